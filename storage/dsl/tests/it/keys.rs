//! Keys of new datasets: made, found, shared by clones, gone with the last.

use dsl::write::{self, KeyChange, NewKey};
use dsl::{KeyFormat, Pbkdf2Params};
use ondisk::ObjectType;
use ondisk::dsl::Dir;
use transform::crypt::{DatasetKey, Suite, WrappingKey, wrap_key};
use units::ObjectId;

use crate::test_pool::{TestPool, new_block};

fn key_object(world: &TestPool, name: &str) -> Option<ObjectId> {
    let field = world.tree().find(name).unwrap().dir().zap_field(Dir::CRYPTO_KEY).unwrap();
    field.and_then(|it| it.u64()).map(ObjectId::new)
}

#[test]
fn keys_are_made_shared_and_taken_along() {
    let (mut world, skeleton) = TestPool::with_all_features();
    world.write_head(skeleton.root_objset, &[], &[], &new_block(1, 4, ObjectType::OBJSET));
    let user = WrappingKey::from_passphrase(b"correct horse", 77, 1000).unwrap();
    let make = |guid| {
        let key = DatasetKey::new(Suite::Aes256Gcm, guid, 1, &[1; 32], &[2; 64]);
        wrap_key(&user, &key, [3; 12]).unwrap()
    };
    let add = |name: &str, guid, own| {
        world.with_context(|change| {
            let id = write::create_dataset(change, name).unwrap();
            let (wrapped, format) = (make(guid), KeyFormat::Passphrase);
            let key = NewKey {
                wrapped: &wrapped,
                is_encryption_root: own,
                format,
                salt: 77,
                iterations: 1000,
            };
            write::encrypt_dataset(change, id, &key).unwrap();
            id
        })
    };
    let secret = add("tank/secret", 5, true);
    add("tank/secret/below", 6, false);
    let tree = world.tree();
    let (top, below) = (tree.find("tank/secret").unwrap(), tree.find("tank/secret/below").unwrap());
    assert_eq!(tree.encryption_root(&below).unwrap().unwrap().name(), "tank/secret");
    tree.load_key(&below, b"correct horse").unwrap();
    assert_eq!(top.key().unwrap().unwrap().guid(), 5);
    assert_eq!(below.key().unwrap().unwrap().guid(), 6);

    // one that is encrypted with a key from above stays below that
    let change = |from: &str, to: &str| world.with_context(|it| write::rename(it, from, to));
    assert!(matches!(
        change("tank/secret/below", "tank/b"),
        Err(dsl::Error::EncryptionRootMismatch { .. })
    ));
    // one that is not encrypted may go anywhere
    world.with_context(|it| write::create_dataset(it, "tank/open")).unwrap();
    change("tank/open", "tank/secret/open").unwrap();
    change("tank/secret/open", "tank/open").unwrap();
    world.txg += 1;
    let root = new_block(2, world.txg, ObjectType::OBJSET);
    world.write_head(secret, std::slice::from_ref(&root), &[], &root);
    world.with_context(|it| write::create_snapshots(it, &["tank/secret@s"])).unwrap();
    let soon =
        world.with_context(|it| write::create_clone(it, "tank/secret/clone", "tank/secret@s"));
    assert!(matches!(soon, Err(dsl::Error::SnapshotInSameTxg { .. })), "in the same group");
    world.txg += 1;
    world.with_context(|it| write::create_clone(it, "tank/secret/clone", "tank/secret@s")).unwrap();
    let record = key_object(&world, "tank/secret").unwrap();
    assert_eq!(key_object(&world, "tank/secret/clone"), Some(record));
    world.with_context(|it| write::destroy(it, "tank/secret/clone")).unwrap();
    assert!(world.mos.object(record).is_ok());
    world.with_context(|it| write::destroy(it, "tank/secret/below")).unwrap();
    world.with_context(|it| write::destroy_snapshot(it, "tank/secret@s", false)).unwrap();
    world.with_context(|it| write::destroy(it, "tank/secret")).unwrap();
    assert!(world.mos.object(record).is_err());
}

#[test]
fn key_changes_for_all_descendants_or_none() {
    let (world, skeleton) = TestPool::with_all_features();
    world.write_head(skeleton.root_objset, &[], &[], &new_block(1, 4, ObjectType::OBJSET));
    let raw = |byte| WrappingKey::from_raw(&[byte; 32]).unwrap();
    let (old, new, other) = (raw(1), raw(2), raw(3));
    let add = |name: &str, guid, user: &WrappingKey, own| {
        let key = DatasetKey::new(Suite::Aes256Gcm, guid, 1, &[1; 32], &[2; 64]);
        let wrapped = wrap_key(user, &key, [3; 12]).unwrap();
        world.with_context(|change| {
            let id = write::create_dataset(change, name).unwrap();
            let key = NewKey {
                wrapped: &wrapped,
                is_encryption_root: own,
                format: KeyFormat::Raw,
                salt: 0,
                iterations: 0,
            };
            write::encrypt_dataset(change, id, &key).unwrap();
        });
    };
    add("tank/secret", 5, &old, true);
    add("tank/secret/a", 6, &old, false);
    // its wrapped key is damaged
    add("tank/secret/b", 7, &other, false);
    let rewrap = KeyChange {
        old_key: &old,
        new_key: &new,
        format: KeyFormat::Passphrase,
        pbkdf2: Pbkdf2Params { salt: 7, iterations: 100_000 },
        nonce: &|| [4; 12],
    };
    let place = Some("file:///root/key");
    let refused = |name: &str| {
        world.with_context(|change| write::change_key(change, name, &rewrap, place)).unwrap_err()
    };
    for name in ["tank/secret", "tank/secret/b"] {
        assert!(matches!(refused(name), dsl::Error::Key { .. }), "{name}");
        let tree = world.tree();
        let told = tree.find(name).unwrap().property("keylocation").unwrap();
        assert_eq!(told.unwrap().value, "none", "{name}: the key is where it was");
    }
    let tree = world.tree();
    for (name, guid) in [("tank/secret", 5), ("tank/secret/a", 6)] {
        let dataset = tree.find(name).unwrap();
        tree.load_key(&dataset, &[1; 32]).unwrap();
        assert_eq!(dataset.key().unwrap().unwrap().guid(), guid, "{name}");
    }
}
