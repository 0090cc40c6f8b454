//! Encrypted datasets: made, written, locked, opened again; `zdb` and the examiner find nothing.

use engine::held::{Held, NewDataset, Shape};
use engine::{Error, KeyState};

use crate::held::{Folder, faults, new_pool, read_file, world, write_file};

const SECRET: &[u8] = b"correct horse battery staple";

fn new(name: &str, properties: &[(&str, &str)]) -> NewDataset {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    NewDataset { name: name.to_owned(), properties: properties.iter().map(pair).collect() }
}

const ROOT: [(&str, &str); 3] =
    [("encryption", "on"), ("keyformat", "passphrase"), ("pbkdf2iters", "100000")];

fn hold(folder: &Folder) -> Held {
    engine::held::hold(&[folder.path().to_owned()], "tank", false, &world()).unwrap()
}

#[test]
fn what_is_encrypted_is_there_again_with_its_key() {
    let folder = Folder::new("encrypted", 3, 256 << 20);
    let held = engine::held::create(&new_pool(&folder, Shape::Raidz(1), 3), &world()).unwrap();
    held.create_filesystem_with(&new("tank/secret", &ROOT), Some(SECRET)).unwrap();
    held.create_filesystem(&new("tank/secret/inner", &[("compression", "off")])).unwrap();
    let ccm = [("encryption", "aes-128-ccm"), ("keyformat", "raw")];
    held.create_volume_with(&new("tank/vol", &ccm), (8 << 20, 16384), true, Some(&[7; 32]))
        .unwrap();
    write_file(&held, "tank/secret", "letter", b"to be or not to be");
    write_file(&held, "tank/secret/inner", "larger", &vec![7; 3_000_000]);
    held.files("tank/secret").unwrap().fsync(None).unwrap();
    held.volume("tank/vol").unwrap().write(16384, &[3; 9_000]).unwrap();
    held.volume("tank/vol").unwrap().flush().unwrap();
    held.snapshot(&["tank/secret@one".to_owned()]).unwrap();
    held.clone_snapshot("tank/secret@one", &new("tank/secret/clone", &[])).unwrap();
    write_file(&held, "tank/secret/clone", "more", &vec![9; 200_000]);
    write_file(&held, "tank/secret", "late", b"not in the snapshot");
    held.export().unwrap();
    drop(held);

    let held = hold(&folder);
    let locked = held.files("tank/secret/inner").err();
    assert!(matches!(&locked, Some(Error::Locked { root, .. }) if root == "tank/secret"));
    let wrong = held.load_key("tank/secret", b"another phrase");
    assert!(matches!(wrong, Err(Error::WrongKey { .. })), "{wrong:?}");
    held.load_key("tank/secret", SECRET).unwrap();
    held.load_key("tank/vol", &[7; 32]).unwrap();
    assert_eq!(read_file(&held, "tank/secret", "letter"), b"to be or not to be");
    assert_eq!(read_file(&held, "tank/secret/inner", "larger"), vec![7; 3_000_000]);
    assert_eq!(read_file(&held, "tank/secret/clone", "more"), vec![9; 200_000]);
    let mut bytes = [0; 9_000];
    held.volume("tank/vol").unwrap().read(16384, &mut bytes).unwrap();
    assert_eq!(bytes, [3; 9_000]);
    held.rollback("tank/secret").unwrap();
    assert!(held.files("tank/secret").unwrap().files().find(b"late").unwrap().is_none());
    held.promote("tank/secret/clone").unwrap();
    held.set("tank/secret/inner", "atime", "off").unwrap();
    write_file(&held, "tank/secret/inner", "after", b"the origin lost its place as root");
    // the key is the clone's now
    held.unload_key("tank/vol").unwrap();
    held.load_key("tank/vol", &[7; 32]).unwrap();
    write_file(&held, "tank/secret/clone", "again", &vec![1; 100_000]);
    held.unload_key("tank/secret").unwrap();
    let states: Vec<_> =
        held.encryption_roots().unwrap().into_iter().map(|root| (root.name, root.state)).collect();
    let secret = ("tank/secret/clone".to_owned(), KeyState::Locked);
    assert_eq!(states, [secret, ("tank/vol".to_owned(), KeyState::Unlocked)]);
    assert!(held.files("tank/secret").is_err());
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn the_whole_pool_may_be_encrypted() {
    let folder = Folder::new("all-encrypted", 1, 128 << 20);
    let mut pool = new_pool(&folder, Shape::Single, 1);
    pool.properties = new("", &[("encryption", "aes-192-gcm"), ("keyformat", "hex")]).properties;
    let wishes = engine::held::Wishes::of(&[], false).unwrap();
    let digits = [b'a'; 64];
    let held = engine::held::create_keyed(&pool, wishes, Some(&digits), &world()).unwrap();
    held.create_filesystem(&new("tank/child", &[])).unwrap();
    write_file(&held, "tank/child", "letter", b"to be");
    held.export().unwrap();
    drop(held);
    let held = hold(&folder);
    held.load_key("tank", &digits).unwrap();
    assert_eq!(read_file(&held, "tank/child", "letter"), b"to be");
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = Folder::new("encryption-refused", 1, 128 << 20);
    let held = engine::held::create(&new_pool(&folder, Shape::Single, 1), &world()).unwrap();
    for (properties, secret) in [
        (&[("encryption", "on")][..], Some(SECRET)),
        (&[("encryption", "rot13"), ("keyformat", "passphrase")], Some(SECRET)),
        (&[("keyformat", "passphrase")], Some(SECRET)),
        (&[("encryption", "on"), ("keyformat", "passphrase")], None),
        (&[("encryption", "on"), ("keyformat", "passphrase")], Some(b"short")),
        (&[("encryption", "on"), ("keyformat", "raw")], Some(SECRET)),
        (&[("encryption", "on"), ("keyformat", "raw"), ("pbkdf2iters", "100000")], Some(&[7; 32])),
        (&[("encryption", "on"), ("keyformat", "raw"), ("keylocation", "nowhere")], Some(&[7; 32])),
    ] {
        let refused = held.create_filesystem_with(&new("tank/x", properties), secret);
        assert!(refused.is_err(), "{properties:?}");
    }
    held.create_filesystem(&new("tank/x", &[])).unwrap();
}
