//! Lists of what is to be freed that are longer than a block, and have lists in them.

use dsl::lists;
use dsl::write;
use ondisk::{Blkptr, ObjectType};
use units::ObjectId;
use zap::Zap;

use crate::world::{World, block};

/// Pointers that no block of a list has room for.
const MANY: u64 = 1500;

#[test]
fn a_long_list_whose_parts_went_to_another_is_freed() {
    let (mut world, _) = World::full();
    let root = block(1, 4, ObjectType::OBJSET);
    let head = world.change(|change| write::create(change, "tank/a")).unwrap();
    let born: Vec<Blkptr> =
        (2..2 + 2 * MANY).map(|number| block(number, 4, ObjectType::PLAIN_FILE)).collect();
    world.write(head, &[&[root.clone()][..], &born].concat(), &[], &root);
    let (first, second) = born.split_at(usize::try_from(MANY).unwrap());
    let snapshot = |world: &mut World, name| {
        world.txg += 1;
        world.change(|change| write::snapshot(change, &[name])).unwrap();
        world.txg += 1;
    };
    snapshot(&mut world, "tank/a@one");
    world.write(head, &[], first, &root);
    snapshot(&mut world, "tank/a@two");
    world.write(head, &[], second, &root);
    // what is dead in the second comes to be a list within that of the head, and then all is freed
    for name in ["tank/a@two", "tank/a@one"] {
        world.change(|change| write::destroy_snapshot(change, name, false)).unwrap();
    }
    let done = world.change(|change| write::release(change, 10 * MANY)).unwrap();
    assert_eq!((done.blocks, done.more), (2 * MANY, false));
    assert!(world.freed.lock().unwrap().values().all(|times| *times == 1));
    let directory = Zap::open(world.mos.object(ObjectId::new(1)).unwrap()).unwrap();
    let free = directory.lookup_u64(b"free_bpobj").unwrap().unwrap();
    let header = lists::bpobj_header(&world.mos, ObjectId::new(free)).unwrap();
    assert_eq!((header.count, header.bytes, header.sublist_count), (0, 0, 0));
}
