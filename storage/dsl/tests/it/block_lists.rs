//! Lists of blocks to free that are longer than a block and have sublists.

use dsl::block_lists;
use dsl::write;
use ondisk::{Blkptr, ObjectType};
use units::ObjectId;
use zap::Zap;

use crate::test_pool::{TestPool, new_block};

/// A number of pointers that exceeds a block of a list.
const POINTER_COUNT: u64 = 1500;

#[test]
fn long_list_with_moved_parts_is_freed() {
    let (mut world, _) = TestPool::with_all_features();
    let root = new_block(1, 4, ObjectType::OBJSET);
    let head = world.with_context(|change| write::create_dataset(change, "tank/a")).unwrap();
    let born: Vec<Blkptr> = (2..2 + 2 * POINTER_COUNT)
        .map(|number| new_block(number, 4, ObjectType::PLAIN_FILE))
        .collect();
    world.write_head(head, &[&[root.clone()][..], &born].concat(), &[], &root);
    let (first, second) = born.split_at(usize::try_from(POINTER_COUNT).unwrap());
    let snapshot = |world: &mut TestPool, name| {
        world.txg += 1;
        world.with_context(|change| write::create_snapshots(change, &[name])).unwrap();
        world.txg += 1;
    };
    snapshot(&mut world, "tank/a@one");
    world.write_head(head, &[], first, &root);
    snapshot(&mut world, "tank/a@two");
    world.write_head(head, &[], second, &root);
    // the second's dead blocks become a sublist of the head's list, and then all is freed
    for name in ["tank/a@two", "tank/a@one"] {
        world.with_context(|change| write::destroy_snapshot(change, name, false)).unwrap();
    }
    let done =
        world.with_context(|change| write::free_pending(change, 10 * POINTER_COUNT)).unwrap();
    assert_eq!((done.blocks, done.has_more), (2 * POINTER_COUNT, false));
    assert!(world.freed.lock().unwrap().values().all(|times| *times == 1));
    let directory = Zap::open(world.mos.object(ObjectId::new(1)).unwrap()).unwrap();
    let free = directory.lookup_u64(b"free_bpobj").unwrap().unwrap();
    let header = block_lists::bpobj_header(&world.mos, ObjectId::new(free)).unwrap();
    assert_eq!((header.count, header.bytes, header.sublist_count), (0, 0, 0));
}
