//! A daemon's keys: datasets and whole pools are encrypted, locked, unlocked and given other keys.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use crate::command::path_arg;
use crate::test_nas::{TestNas, cannot_mount, kill_daemon};

#[test]
fn encrypted_datasets_are_made_and_unlocked() {
    let nas = TestNas::new("locked", 8);
    nas.create_pool("-O canmount=off tank draid1:2d:1s", 5);
    assert!(nas.run_ok("zpool status tank").contains("draid1"));
    let key = nas.0.join("key");
    std::fs::write(&key, "correct horse battery staple\n").unwrap();
    let place = format!("-o keylocation=file://{}", path_arg(&key));
    let words = "-o encryption=on -o keyformat=passphrase -o canmount=off";
    nas.run_failing(&format!("zfs create -o encryption=on {place} tank/private"), 1);
    nas.run_ok(&format!("zfs create {words} {place} tank/private"));
    nas.run_ok("zfs create -o canmount=off tank/private/letters");
    let facts = "zfs get -H -o value encryption,encryptionroot,keystatus tank/private/letters";
    assert_eq!(nas.run_ok(facts), "aes-256-gcm\ntank/private\navailable\n");
    nas.run_ok("zfs unload-key tank/private");
    assert_eq!(nas.run_ok(facts), "aes-256-gcm\ntank/private\nunavailable\n");
    nas.run_failing("zfs create tank/private/more", 1);
    nas.run_failing("zfs load-key tank/private/letters", 255);
    nas.run_ok("zfs load-key -a");
    nas.run_ok("zfs create -o canmount=off tank/private/more");
    nas.run_ok("zfs unload-key -r tank");
    std::fs::write(&key, "another phrase").unwrap();
    nas.run_failing("zfs load-key tank/private", 1);
}

#[test]
fn key_of_an_encrypted_pool_is_changed() {
    let nas = TestNas::new("rekeyed", 1);
    let [old, new] = ["old", "new"].map(|name| nas.0.join(name));
    std::fs::write(&old, "correct horse battery staple\n").unwrap();
    std::fs::write(&new, "5".repeat(64)).unwrap();
    let place = |path: &Path| format!("keylocation=file://{}", path_arg(path));
    let words = "-O canmount=off -O encryption=on -O keyformat=passphrase -O pbkdf2iters=100000";
    nas.create_pool(&format!("{words} -O {} tank", place(&old)), 1);
    nas.run_ok("zfs create tank/letters");
    let facts = "zfs get -H -o value encryption,encryptionroot,keyformat,keystatus tank/letters";
    assert_eq!(nas.run_ok(facts), "aes-256-gcm\ntank\npassphrase\navailable\n");
    nas.run_ok(&format!("zfs change-key -o keyformat=hex -o {} tank", place(&new)));
    nas.run_ok("zpool export tank");
    let from = nas.0.join("drives");
    nas.run_ok(&format!("zpool import -N -d {} tank", path_arg(&from)));
    assert_eq!(nas.run_ok(facts), "aes-256-gcm\ntank\nhex\nunavailable\n");
    nas.run_failing(&format!("zfs load-key -L file://{} tank", path_arg(&old)), 1);
    nas.run_ok("zpool export tank");
    let root = nas.altroot();
    nas.run_ok(&format!("zpool import -l -R {} -d {} tank", path_arg(&root), path_arg(&from)));
    assert_eq!(nas.run_ok(facts), "aes-256-gcm\ntank\nhex\navailable\n");
    nas.run_failing("zfs change-key -i tank", 255);
    // a key of its own from the same file, and back to the one above
    let own = format!("zfs change-key -o keyformat=hex -o {} tank/letters", place(&new));
    nas.run_ok(&own);
    let root = "zfs get -H -o value encryptionroot tank/letters";
    assert_eq!(nas.run_ok(root), "tank/letters\n");
    nas.run_ok("zfs unmount -a");
    nas.run_ok("zfs unload-key -a");
    nas.run_failing("zfs change-key -i tank/letters", 255);
    nas.run_ok("zfs change-key -l -i tank/letters");
    assert_eq!(nas.run_ok(root), "tank\n");
    let told = nas.run_ok("zpool history -il tank");
    for secret in ["correct horse", "55555"] {
        assert!(!told.contains(secret) && !nas.read_log().contains(secret), "{told}");
    }
    for wanted in ["zpool create -R", "zfs change-key -o", "zpool import -l", "zpool export tank"] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
}

#[test]
fn wrong_key_does_not_stop_the_others() {
    let nas = TestNas::new("some-keys", 1);
    nas.create_pool("-O canmount=off tank", 1);
    let words = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000 -o canmount=off";
    for name in ["a", "b", "c"] {
        let key = nas.0.join(name);
        std::fs::write(&key, format!("the passphrase of {name}")).unwrap();
        nas.run_ok(&format!(
            "zfs create {words} -o keylocation=file://{} tank/{name}",
            path_arg(&key)
        ));
    }
    let states = || nas.run_ok("zfs get -H -o value keystatus tank/a tank/b tank/c");
    nas.run_ok("zfs unload-key -a");
    std::fs::write(nas.0.join("b"), "something else").unwrap();
    let some = "available\nunavailable\navailable\n";
    // a check loads none, and works with those that are loaded
    let checked = nas.run("zfs load-key -an");
    assert_eq!((checked.status, &*checked.stdout), (1, "2 / 3 key(s) successfully verified\n"));
    assert_eq!(states(), "unavailable\n".repeat(3));
    let why = nas.run_failing("zfs load-key -a", 1);
    assert!(why.contains("'tank/b' is wrong"), "{why}");
    assert_eq!(states(), some);
    nas.run_ok("zfs load-key -n tank/a");
    let why = nas.run_failing("zfs load-key -n tank/b", 1);
    assert!(why.contains("'tank/b' is wrong"), "{why}");
    assert_eq!(states(), some);
    nas.run_ok("zfs unload-key -r tank");
    let why = nas.run_failing("zfs mount -a -l", 1);
    assert!(why.contains("'tank/b' is wrong"), "{why}");
    assert_eq!(states(), some);
    // the pool is imported all the same
    nas.run_ok("zpool export tank");
    let import = format!("zpool import -l -d {} tank", path_arg(&nas.0.join("drives")));
    let why = nas.run_failing(&import, 1);
    assert!(why.contains("'tank/b' is wrong"), "{why}");
    assert_eq!(states(), some);
}

#[test]
fn failure_of_one_does_not_stop_the_others() {
    let nas = TestNas::new("others", 2);
    let [first, second] = &nas.drive_paths(2)[..] else { panic!("two drives") };
    for (name, drive) in [("one", first), ("two", second)] {
        nas.run_ok(&format!("zpool create -O canmount=off {name} {}", path_arg(drive)));
    }
    let values = || nas.run_ok("zfs get -H -o value atime one two");
    let why = nas.run_failing("zfs set atime=off one three two", 1);
    assert!(why.contains("three"), "{why}");
    assert_eq!(values(), "off\noff\n");
    nas.run_failing("zfs inherit atime one three two", 1);
    assert_eq!(values(), "on\non\n");
    // the failure of a single one is printed as before
    let why = nas.run_failing("zfs set recordsize=3 one", 255);
    assert!(why.contains("power of 2"), "{why}");
    let why = nas.run_failing("zpool export one three two", 1);
    assert!(why.contains("three"), "{why}");
    assert_eq!(nas.run_ok("zpool list -Ho name"), "");
}

#[test]
fn restart_after_kill_reads_keys_for_replay() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("promised", 1);
    nas.create_pool("tank", 1);
    let key = nas.0.join("key");
    std::fs::write(&key, "correct horse battery staple").unwrap();
    let words = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";
    nas.run_ok(&format!("zfs create {words} -o keylocation=file://{} tank/secret", path_arg(&key)));
    let letter = nas.altroot().join("tank/secret/letter");
    let mut file = File::create(&letter).unwrap();
    // the first commit waits for a txg, which creates the log
    for word in [&b"promised"[..], b" twice"] {
        file.write_all(word).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    kill_daemon(&nas.state_dir());
    // without its key the pool cannot be imported, and the log has the reason
    let away = nas.0.join("away");
    std::fs::rename(&key, &away).unwrap();
    nas.run_failing("zfs list tank", 1);
    assert!(nas.read_log().contains("zpool import -l tank"), "{}", nas.read_log());
    nas.run_ok("serve --stop");
    std::fs::rename(&away, &key).unwrap();
    nas.run_ok("zfs list tank");
    assert_eq!(std::fs::read(&letter).unwrap(), b"promised twice");
}
