//! Encrypted datasets: made, written, locked, opened again; `zdb` and the examiner find nothing.

use engine::pool::{NewDataset, Pool, Rewind, VdevLayout};
use engine::{Error, KeyState};

use crate::test_pool::{TempDir, check_pool, environment, new_pool, read_file, write_file};

const SECRET: &[u8] = b"correct horse battery staple";

fn new_dataset(name: &str, properties: &[(&str, &str)]) -> NewDataset {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    NewDataset { name: name.to_owned(), properties: properties.iter().map(pair).collect() }
}

const ROOT_PROPERTIES: [(&str, &str); 3] =
    [("encryption", "on"), ("keyformat", "passphrase"), ("pbkdf2iters", "100000")];

fn import(folder: &TempDir) -> Pool {
    engine::pool::import(&[folder.path().to_owned()], "tank", false, &environment()).unwrap()
}

#[test]
fn encrypted_data_returns_with_its_key() {
    let folder = TempDir::new("encrypted", 3, 256 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Raidz(1), 3), &environment()).unwrap();
    held.datasets()
        .create_filesystem_with(&new_dataset("tank/secret", &ROOT_PROPERTIES), Some(SECRET))
        .unwrap();
    held.datasets()
        .create_filesystem(&new_dataset("tank/secret/inner", &[("compression", "off")]))
        .unwrap();
    let ccm = [("encryption", "aes-128-ccm"), ("keyformat", "raw")];
    held.volumes()
        .create_with(&new_dataset("tank/vol", &ccm), (8 << 20, 16384), true, Some(&[7; 32]))
        .unwrap();
    write_file(&held, "tank/secret", "letter", b"to be or not to be");
    write_file(&held, "tank/secret/inner", "larger", &vec![7; 3_000_000]);
    held.datasets().filesystem("tank/secret").unwrap().fsync(None).unwrap();
    held.volumes().get("tank/vol").unwrap().write(16384, &[3; 9_000]).unwrap();
    held.volumes().get("tank/vol").unwrap().flush().unwrap();
    held.snapshots().create(&["tank/secret@one".to_owned()]).unwrap();
    held.snapshots()
        .clone_snapshot("tank/secret@one", &new_dataset("tank/secret/clone", &[]))
        .unwrap();
    write_file(&held, "tank/secret/clone", "more", &vec![9; 200_000]);
    write_file(&held, "tank/secret", "late", b"not in the snapshot");
    held.export().unwrap();
    drop(held);

    let held = import(&folder);
    let locked = held.datasets().filesystem("tank/secret/inner").err();
    assert!(matches!(&locked, Some(Error::Locked { root, .. }) if root == "tank/secret"));
    let wrong = held.keys().load("tank/secret", b"another phrase");
    assert!(matches!(wrong, Err(Error::WrongKey { .. })), "{wrong:?}");
    held.keys().load("tank/secret", SECRET).unwrap();
    held.keys().load("tank/vol", &[7; 32]).unwrap();
    assert_eq!(read_file(&held, "tank/secret", "letter"), b"to be or not to be");
    assert_eq!(read_file(&held, "tank/secret/inner", "larger"), vec![7; 3_000_000]);
    assert_eq!(read_file(&held, "tank/secret/clone", "more"), vec![9; 200_000]);
    let mut bytes = [0; 9_000];
    held.volumes().get("tank/vol").unwrap().read(16384, &mut bytes).unwrap();
    assert_eq!(bytes, [3; 9_000]);
    held.snapshots().rollback("tank/secret").unwrap();
    assert!(
        held.datasets()
            .filesystem("tank/secret")
            .unwrap()
            .reader()
            .find(b"late")
            .unwrap()
            .is_none()
    );
    held.datasets().promote("tank/secret/clone").unwrap();
    held.properties().set("tank/secret/inner", "atime", "off").unwrap();
    write_file(&held, "tank/secret/inner", "after", b"the origin lost its place as root");
    // the key is the clone's now
    held.keys().unload("tank/vol").unwrap();
    held.keys().load("tank/vol", &[7; 32]).unwrap();
    write_file(&held, "tank/secret/clone", "again", &vec![1; 100_000]);
    held.keys().unload("tank/secret").unwrap();
    let states: Vec<_> = held
        .keys()
        .encryption_roots()
        .unwrap()
        .into_iter()
        .map(|root| (root.name, root.state))
        .collect();
    let secret = ("tank/secret/clone".to_owned(), KeyState::Locked);
    assert_eq!(states, [secret, ("tank/vol".to_owned(), KeyState::Unlocked)]);
    assert!(held.datasets().filesystem("tank/secret").is_err());
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn the_whole_pool_may_be_encrypted() {
    let folder = TempDir::new("all-encrypted", 1, 128 << 20);
    let mut pool = new_pool(&folder, VdevLayout::Single, 1);
    pool.properties =
        new_dataset("", &[("encryption", "aes-192-gcm"), ("keyformat", "hex")]).properties;
    let wishes = engine::pool::CreateOptions::parse(&[], false).unwrap();
    let digits = [b'a'; 64];
    let held =
        engine::pool::create_encrypted(&pool, wishes, Some(&digits), &environment()).unwrap();
    held.datasets().create_filesystem(&new_dataset("tank/child", &[])).unwrap();
    write_file(&held, "tank/child", "letter", b"to be");
    held.export().unwrap();
    drop(held);
    let held = import(&folder);
    held.keys().load("tank", &digits).unwrap();
    assert_eq!(read_file(&held, "tank/child", "letter"), b"to be");
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = TempDir::new("encryption-refused", 1, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
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
        let refused =
            held.datasets().create_filesystem_with(&new_dataset("tank/x", properties), secret);
        assert!(refused.is_err(), "{properties:?}");
    }
    held.datasets().create_filesystem(&new_dataset("tank/x", &[])).unwrap();
}

/// The old key no longer opens it, and the new one does.
fn import_with_new_key(folder: &TempDir, root: &str, old: &[u8], new: &[u8]) -> Pool {
    let pool = import(folder);
    let wrong = pool.keys().load(root, old);
    assert!(matches!(wrong, Err(Error::WrongKey { .. } | Error::InvalidKey { .. })), "{wrong:?}");
    pool.keys().load(root, new).unwrap();
    pool
}

fn encryption_roots(pool: &Pool) -> Vec<(String, String)> {
    let all = pool.keys().encryption_roots().unwrap();
    all.into_iter().map(|root| (root.name, root.format)).collect()
}

fn property_value(pool: &Pool, name: &str, property: &str) -> String {
    let wanted = engine::dataset::DatasetQuery {
        depth: Some(0),
        properties: vec![property.to_owned()],
        ..engine::dataset::DatasetQuery::default()
    };
    let mut value = String::new();
    let mut show = |dataset: engine::dataset::Dataset| {
        dataset.property_value(property).unwrap_or_default().clone_into(&mut value);
    };
    pool.datasets().list(name, &wanted, &mut show, &mut |_| ()).unwrap();
    value
}

#[test]
fn keys_are_changed_and_inherited() {
    let folder = TempDir::new("rekeyed", 1, 256 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    held.datasets()
        .create_filesystem_with(&new_dataset("tank/a", &ROOT_PROPERTIES), Some(SECRET))
        .unwrap();
    held.datasets().create_filesystem(&new_dataset("tank/a/b", &[])).unwrap();
    held.datasets().create_filesystem(&new_dataset("tank/a/b/c", &[])).unwrap();
    write_file(&held, "tank/a/b", "letter", b"to be");
    held.snapshots().create(&["tank/a/b@one".to_owned()]).unwrap();
    held.snapshots().clone_snapshot("tank/a/b@one", &new_dataset("tank/a/twin", &[])).unwrap();
    held.datasets().create_filesystem(&new_dataset("tank/a/twin/below", &[])).unwrap();
    write_file(&held, "tank/a/twin/below", "deep", b"or not");
    // another passphrase: all below go along
    let other = b"another passphrase";
    held.keys().change("tank/a", &[], other).unwrap();
    write_file(&held, "tank/a/b/c", "after", b"still open");
    held.export().unwrap();
    drop(held);

    let held = import_with_new_key(&folder, "tank/a", SECRET, other);
    assert_eq!(read_file(&held, "tank/a/b", "letter"), b"to be");
    assert_eq!(read_file(&held, "tank/a/twin", "letter"), b"to be");
    assert_eq!(read_file(&held, "tank/a/twin/below", "deep"), b"or not");
    // an encryption root in the middle: its children change with it, and those of its clones
    let digits = [b'7'; 64];
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let hex = [pair("keyformat", "hex"), pair("keylocation", "file:///root/key")];
    let twin = held.keys().change("tank/a/twin", &hex, &digits);
    assert!(twin.is_err(), "a clone has the key of its origin");
    held.keys().change("tank/a/b", &hex, &digits).unwrap();
    assert_eq!(property_value(&held, "tank/a/b", "keylocation"), "file:///root/key");
    for name in ["tank/a/b/c", "tank/a/twin", "tank/a/twin/below"] {
        assert_eq!(property_value(&held, name, "encryptionroot"), "tank/a/b", "{name}");
    }
    held.export().unwrap();
    drop(held);
    let held = import_with_new_key(&folder, "tank/a/b", other, &digits);
    assert_eq!(read_file(&held, "tank/a/b/c", "after"), b"still open");
    assert_eq!(read_file(&held, "tank/a/twin/below", "deep"), b"or not");
    assert!(held.datasets().filesystem("tank/a").is_err(), "that has another key");

    // what makes no sense
    assert!(matches!(held.keys().inherit("tank/a/b"), Err(Error::Locked { .. })));
    assert!(held.keys().change("tank", &hex, &digits).is_err(), "it is not encrypted");
    assert!(matches!(held.keys().change("tank/a", &[], other), Err(Error::Locked { .. })));
    held.keys().load("tank/a", other).unwrap();
    assert!(held.keys().inherit("tank/a").is_err(), "its parent is not encrypted");
    assert!(held.keys().inherit("tank/a/b/c").is_err(), "it does already");
    let cipher = [pair("encryption", "aes-128-gcm")];
    assert!(held.keys().change("tank/a", &cipher, other).is_err());
    assert!(held.keys().change("tank/a", &[pair("atime", "off")], other).is_err());
    assert!(held.keys().change("tank/a", &[], b"short").is_err());

    held.keys().inherit("tank/a/b").unwrap();
    assert_eq!(encryption_roots(&held), [("tank/a".to_owned(), "passphrase".to_owned())]);
    assert_eq!(property_value(&held, "tank/a/b", "keylocation"), "none");
    held.export().unwrap();
    drop(held);
    let held = import_with_new_key(&folder, "tank/a", &digits, other);
    assert_eq!(read_file(&held, "tank/a/b/c", "after"), b"still open");
    assert_eq!(read_file(&held, "tank/a/twin/below", "deep"), b"or not");
    // destroying a dataset destroys its own key record only
    held.datasets().destroy("tank/a/twin/below").unwrap();
    held.datasets().destroy("tank/a/twin").unwrap();
    write_file(&held, "tank/a/b", "last", b"word");
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn replay_of_a_locked_dataset_needs_its_key() {
    let folder = TempDir::new("locked-log", 1, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    held.datasets()
        .create_filesystem_with(&new_dataset("tank/secret", &ROOT_PROPERTIES), Some(SECRET))
        .unwrap();
    held.datasets().create_filesystem(&new_dataset("tank/secret/inner", &[])).unwrap();
    write_file(&held, "tank/secret/inner", "one", b"first");
    // the first commit waits for a txg, which creates the log
    held.datasets().filesystem("tank/secret/inner").unwrap().fsync(None).unwrap();
    write_file(&held, "tank/secret/inner", "two", b"promised");
    held.datasets().filesystem("tank/secret/inner").unwrap().fsync(None).unwrap();
    let after = crate::test_pool::copy_after_cut(&folder, "locked-log-cut", 1);
    let known = held.keys().loaded();
    held.export().unwrap();
    drop(held);

    let paths = [after.path().to_owned()];
    let refused = engine::pool::import(&paths, "tank", false, &environment()).err();
    let text = refused.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(
        matches!(&refused, Some(Error::LockedLog { root, .. }) if root == "tank/secret")
            && text.contains("zpool import -l tank"),
        "{text}"
    );
    let roots = engine::pool::encryption_roots(&paths, "tank", (false, Rewind::No)).unwrap();
    assert_eq!((roots[0].name.as_str(), roots[0].location.as_str()), ("tank/secret", "prompt"));
    let options = |secret: &[u8]| engine::pool::ImportOptions {
        keys: vec![("tank/secret".to_owned(), secret.to_vec())],
        new_name: Some("vault".to_owned()),
        ..engine::pool::ImportOptions::default()
    };
    let wrong =
        engine::pool::import_with(&paths, "tank", &options(b"another phrase"), &environment());
    assert!(matches!(wrong.err(), Some(Error::WrongKey { .. })));
    let again = crate::test_pool::copy_after_cut(&after, "locked-log-again", 1);
    let held = engine::pool::import_with(&paths, "tank", &options(SECRET), &environment()).unwrap();
    assert_eq!(read_file(&held, "vault/secret/inner", "two"), b"promised");
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&after, "vault"), Vec::<String>::new());

    // the earlier import's keys are still loaded
    let options = engine::pool::ImportOptions {
        loaded_keys: Some(known),
        ..engine::pool::ImportOptions::default()
    };
    let paths = [again.path().to_owned()];
    let held = engine::pool::import_with(&paths, "tank", &options, &environment()).unwrap();
    assert_eq!(read_file(&held, "tank/secret/inner", "two"), b"promised");
}

#[test]
fn child_created_during_rekey_uses_the_new_key() {
    let folder = TempDir::new("meanwhile", 1, 256 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    let own = [("encryption", "on"), ("keyformat", "raw")];
    held.datasets()
        .create_filesystem_with(&new_dataset("tank/secret", &own), Some(&[0; 32]))
        .unwrap();
    for round in 1..6_u8 {
        std::thread::scope(|scope| {
            scope.spawn(|| held.keys().change("tank/secret", &[], &[round; 32]).unwrap());
            for number in 0..3 {
                let name = format!("tank/secret/{round}-{number}");
                let held = &held;
                scope.spawn(move || {
                    held.datasets().create_filesystem(&new_dataset(&name, &[])).unwrap();
                });
            }
        });
    }
    held.export().unwrap();
    drop(held);
    let held = import(&folder);
    held.keys().load("tank/secret", &[5; 32]).unwrap();
    for round in 1..6 {
        for number in 0..3 {
            held.datasets().filesystem(&format!("tank/secret/{round}-{number}")).unwrap();
        }
    }
}

#[test]
fn clone_uses_the_encryption_of_its_origin() {
    let folder = TempDir::new("clone-keys", 1, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    held.datasets().create_filesystem(&new_dataset("tank/plain", &[])).unwrap();
    held.datasets()
        .create_filesystem_with(&new_dataset("tank/secret", &ROOT_PROPERTIES), Some(SECRET))
        .unwrap();
    for origin in ["tank/plain", "tank/secret"] {
        let snapshot = format!("{origin}@one");
        held.snapshots().create(std::slice::from_ref(&snapshot)).unwrap();
        for wish in [
            ("keylocation", "file:///root/key"),
            ("keylocation", "none"),
            ("keyformat", "raw"),
            ("encryption", "on"),
            ("encryption", "off"),
            ("pbkdf2iters", "100000"),
        ] {
            let refused =
                held.snapshots().clone_snapshot(&snapshot, &new_dataset("tank/clone", &[wish]));
            assert!(matches!(refused, Err(Error::Usage { .. })), "{origin}: {wish:?}");
        }
    }
    for wish in [("keylocation", "prompt"), ("encryption", "off")] {
        let properties = [(wish.0.to_owned(), wish.1.to_owned())];
        let refused = held.snapshots().create_with(&["tank/plain@two".to_owned()], &properties);
        assert!(refused.is_err(), "{wish:?}");
        assert!(held.properties().set("tank/plain", wish.0, wish.1).is_err(), "{wish:?}");
    }
    held.properties().set("tank/plain", "keylocation", "none").unwrap();
}

#[test]
fn unloading_keys_blocks_opens() {
    let folder = TempDir::new("locked-meanwhile", 1, 256 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    let own = [("encryption", "on"), ("keyformat", "raw")];
    held.datasets()
        .create_filesystem_with(&new_dataset("tank/secret", &own), Some(&[7; 32]))
        .unwrap();
    for inner in 0..20 {
        held.datasets()
            .create_filesystem(&new_dataset(&format!("tank/secret/{inner}"), &[]))
            .unwrap();
    }
    held.volumes()
        .create_with(&new_dataset("tank/vol", &own), (8 << 20, 16384), true, Some(&[7; 32]))
        .unwrap();
    for _ in 0..10 {
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Acquire) {
                    drop(held.datasets().filesystem("tank/secret/0"));
                }
            });
            held.keys().unload("tank/secret").unwrap();
            stop.store(true, std::sync::atomic::Ordering::Release);
        });
        assert!(matches!(held.datasets().filesystem("tank/secret/0"), Err(Error::Locked { .. })));
        held.keys().load("tank/secret", &[7; 32]).unwrap();
    }
    // an open volume keeps its key loaded
    let (volume, in_use) = held.volumes().open("tank/vol").unwrap();
    assert!(matches!(held.keys().unload("tank/vol"), Err(Error::Refused { .. })));
    volume.write(0, b"still open").unwrap();
    drop((volume, in_use));
    held.keys().unload("tank/vol").unwrap();
    assert!(held.volumes().get("tank/vol").is_err());
}
