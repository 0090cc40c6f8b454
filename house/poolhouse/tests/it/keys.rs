//! A daemon's keys: datasets and whole pools are encrypted, locked, unlocked and given other keys.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use crate::nas::{Nas, cannot_mount, kill};
use crate::poolhouse::arg;

#[test]
fn encrypted_datasets_are_made_and_unlocked() {
    let nas = Nas::new("locked", 8);
    nas.create("-O canmount=off tank draid1:2d:1s", 5);
    assert!(nas.good("zpool status tank").contains("draid1"));
    let key = nas.0.join("key");
    std::fs::write(&key, "correct horse battery staple\n").unwrap();
    let place = format!("-o keylocation=file://{}", arg(&key));
    let words = "-o encryption=on -o keyformat=passphrase -o canmount=off";
    nas.refused(&format!("zfs create -o encryption=on {place} tank/private"), 2);
    nas.good(&format!("zfs create {words} {place} tank/private"));
    nas.good("zfs create -o canmount=off tank/private/letters");
    let facts = "zfs get -H -o value encryption,encryptionroot,keystatus tank/private/letters";
    assert_eq!(nas.good(facts), "aes-256-gcm\ntank/private\navailable\n");
    nas.good("zfs unload-key tank/private");
    assert_eq!(nas.good(facts), "aes-256-gcm\ntank/private\nunavailable\n");
    nas.refused("zfs create tank/private/more", 1);
    nas.refused("zfs load-key tank/private/letters", 2);
    nas.good("zfs load-key -a");
    nas.good("zfs create -o canmount=off tank/private/more");
    nas.good("zfs unload-key -r tank");
    std::fs::write(&key, "another phrase").unwrap();
    nas.refused("zfs load-key tank/private", 1);
}

#[test]
fn a_whole_pool_is_encrypted_and_its_key_is_changed() {
    let nas = Nas::new("rekeyed", 1);
    let [old, new] = ["old", "new"].map(|name| nas.0.join(name));
    std::fs::write(&old, "correct horse battery staple\n").unwrap();
    std::fs::write(&new, "5".repeat(64)).unwrap();
    let place = |path: &Path| format!("keylocation=file://{}", arg(path));
    let words = "-O canmount=off -O encryption=on -O keyformat=passphrase -O pbkdf2iters=100000";
    nas.create(&format!("{words} -O {} tank", place(&old)), 1);
    nas.good("zfs create tank/letters");
    let facts = "zfs get -H -o value encryption,encryptionroot,keyformat,keystatus tank/letters";
    assert_eq!(nas.good(facts), "aes-256-gcm\ntank\npassphrase\navailable\n");
    nas.good(&format!("zfs change-key -o keyformat=hex -o {} tank", place(&new)));
    nas.good("zpool export tank");
    let from = nas.0.join("drives");
    nas.good(&format!("zpool import -N -d {} tank", arg(&from)));
    assert_eq!(nas.good(facts), "aes-256-gcm\ntank\nhex\nunavailable\n");
    nas.refused(&format!("zfs load-key -L file://{} tank", arg(&old)), 1);
    nas.good("zpool export tank");
    let root = nas.root();
    nas.good(&format!("zpool import -l -R {} -d {} tank", arg(&root), arg(&from)));
    assert_eq!(nas.good(facts), "aes-256-gcm\ntank\nhex\navailable\n");
    nas.refused("zfs change-key -i tank", 2);
    // a key of its own from the same file, and back to the one above
    let own = format!("zfs change-key -o keyformat=hex -o {} tank/letters", place(&new));
    nas.good(&own);
    let root = "zfs get -H -o value encryptionroot tank/letters";
    assert_eq!(nas.good(root), "tank/letters\n");
    nas.good("zfs unmount -a");
    nas.good("zfs unload-key -a");
    nas.refused("zfs change-key -i tank/letters", 1);
    nas.good("zfs change-key -l -i tank/letters");
    assert_eq!(nas.good(root), "tank\n");
    let told = nas.good("zpool history -il tank");
    for secret in ["correct horse", "55555"] {
        assert!(!told.contains(secret) && !nas.log().contains(secret), "{told}");
    }
    for wanted in ["zpool create -R", "zfs change-key -o", "zpool import -l", "zpool export tank"] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
}

#[test]
fn one_key_that_is_wrong_keeps_no_other_from_being_loaded() {
    let nas = Nas::new("some-keys", 1);
    nas.create("-O canmount=off tank", 1);
    let words = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000 -o canmount=off";
    for name in ["a", "b", "c"] {
        let key = nas.0.join(name);
        std::fs::write(&key, format!("the passphrase of {name}")).unwrap();
        nas.good(&format!("zfs create {words} -o keylocation=file://{} tank/{name}", arg(&key)));
    }
    let states = || nas.good("zfs get -H -o value keystatus tank/a tank/b tank/c");
    nas.good("zfs unload-key -a");
    std::fs::write(nas.0.join("b"), "something else").unwrap();
    let some = "available\nunavailable\navailable\n";
    let why = nas.refused("zfs load-key -a", 1);
    assert!(why.contains("'tank/b' is wrong"), "{why}");
    assert_eq!(states(), some);
    nas.good("zfs unload-key -r tank");
    let why = nas.refused("zfs mount -a -l", 1);
    assert!(why.contains("'tank/b' is wrong"), "{why}");
    assert_eq!(states(), some);
    // the pool is there all the same
    nas.good("zpool export tank");
    let import = format!("zpool import -l -d {} tank", arg(&nas.0.join("drives")));
    let why = nas.refused(&import, 1);
    assert!(why.contains("'tank/b' is wrong"), "{why}");
    assert_eq!(states(), some);
}

#[test]
fn what_cannot_be_done_to_one_is_done_to_the_others() {
    let nas = Nas::new("others", 2);
    let [first, second] = &nas.drives(2)[..] else { panic!("two drives") };
    for (name, drive) in [("one", first), ("two", second)] {
        nas.good(&format!("zpool create -O canmount=off {name} {}", arg(drive)));
    }
    let values = || nas.good("zfs get -H -o value atime one two");
    let why = nas.refused("zfs set atime=off one three two", 1);
    assert!(why.contains("three"), "{why}");
    assert_eq!(values(), "off\noff\n");
    nas.refused("zfs inherit atime one three two", 1);
    assert_eq!(values(), "on\non\n");
    // what is wrong with a single one is said as before
    let why = nas.refused("zfs set recordsize=3 one", 1);
    assert!(why.contains("power of two"), "{why}");
    let why = nas.refused("zpool export one three two", 1);
    assert!(why.contains("three"), "{why}");
    assert_eq!(nas.good("zpool list -Ho name"), "");
}

#[test]
fn a_killed_daemon_reads_keys_that_promises_need() {
    if cannot_mount() {
        return;
    }
    let nas = Nas::new("promised", 1);
    nas.create("tank", 1);
    let key = nas.0.join("key");
    std::fs::write(&key, "correct horse battery staple").unwrap();
    let words = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";
    nas.good(&format!("zfs create {words} -o keylocation=file://{} tank/secret", arg(&key)));
    let letter = nas.root().join("tank/secret/letter");
    let mut file = File::create(&letter).unwrap();
    // the first promise takes a group, in which the log comes to be
    for word in [&b"promised"[..], b" twice"] {
        file.write_all(word).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    kill(&nas.state());
    // without its key the pool cannot be had, and the log says why
    let away = nas.0.join("away");
    std::fs::rename(&key, &away).unwrap();
    nas.refused("zfs list tank", 1);
    assert!(nas.log().contains("zpool import -l tank"), "{}", nas.log());
    nas.good("serve --stop");
    std::fs::rename(&away, &key).unwrap();
    nas.good("zfs list tank");
    assert_eq!(std::fs::read(&letter).unwrap(), b"promised twice");
}
