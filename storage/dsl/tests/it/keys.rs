//! Keys of new datasets: made, found, shared by clones, gone with the last.

use dsl::KeyFormat;
use dsl::write::{self, NewKey};
use ondisk::ObjectType;
use ondisk::dsl::Dir;
use transform::crypt::{DatasetKey, Suite, WrappingKey, wrap_key};
use units::ObjectId;

use crate::world::{World, block};

fn key_object(world: &World, name: &str) -> Option<ObjectId> {
    let field = world.tree().find(name).unwrap().dir().field(Dir::CRYPTO_KEY).unwrap();
    field.and_then(|it| it.u64()).map(ObjectId::new)
}

#[test]
fn keys_are_made_shared_and_taken_along() {
    let (mut world, skeleton) = World::full();
    world.write(skeleton.root, &[], &[], &block(1, 4, ObjectType::OBJSET));
    let user = WrappingKey::from_passphrase(b"correct horse", 77, 1000).unwrap();
    let make = |guid| {
        let key = DatasetKey::new(Suite::Aes256Gcm, guid, 1, &[1; 32], &[2; 64]);
        wrap_key(&user, &key, [3; 12]).unwrap()
    };
    let add = |name: &str, guid, own| {
        world.change(|change| {
            let id = write::create(change, name).unwrap();
            let (wrapped, format) = (make(guid), KeyFormat::Passphrase);
            let key = NewKey { wrapped: &wrapped, own, format, salt: 77, iterations: 1000 };
            write::encrypt(change, id, &key).unwrap();
            id
        })
    };
    let secret = add("tank/secret", 5, true);
    add("tank/secret/below", 6, false);
    let tree = world.tree();
    let (top, below) = (tree.find("tank/secret").unwrap(), tree.find("tank/secret/below").unwrap());
    assert_eq!(tree.encryption_root(&below).unwrap().unwrap().name(), "tank/secret");
    tree.unlock(&below, b"correct horse").unwrap();
    assert_eq!(top.key().unwrap().unwrap().guid(), 5);
    assert_eq!(below.key().unwrap().unwrap().guid(), 6);

    // one that is encrypted with a key from above stays below that
    let change = |from: &str, to: &str| world.change(|it| write::rename(it, from, to));
    assert!(matches!(change("tank/secret/below", "tank/b"), Err(dsl::Error::OtherKey { .. })));
    // one that is not encrypted may go anywhere
    world.change(|it| write::create(it, "tank/open")).unwrap();
    change("tank/open", "tank/secret/open").unwrap();
    change("tank/secret/open", "tank/open").unwrap();
    world.txg += 1;
    let root = block(2, world.txg, ObjectType::OBJSET);
    world.write(secret, std::slice::from_ref(&root), &[], &root);
    world.change(|it| write::snapshot(it, &["tank/secret@s"])).unwrap();
    let soon = world.change(|it| write::clone(it, "tank/secret/clone", "tank/secret@s"));
    assert!(matches!(soon, Err(dsl::Error::TooSoon { .. })), "in the same group");
    world.txg += 1;
    world.change(|it| write::clone(it, "tank/secret/clone", "tank/secret@s")).unwrap();
    let record = key_object(&world, "tank/secret").unwrap();
    assert_eq!(key_object(&world, "tank/secret/clone"), Some(record));
    world.change(|it| write::destroy(it, "tank/secret/clone")).unwrap();
    assert!(world.mos.object(record).is_ok());
    world.change(|it| write::destroy(it, "tank/secret/below")).unwrap();
    world.change(|it| write::destroy_snapshot(it, "tank/secret@s", false)).unwrap();
    world.change(|it| write::destroy(it, "tank/secret")).unwrap();
    assert!(world.mos.object(record).is_err());
}
