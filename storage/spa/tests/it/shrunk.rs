//! Drives that have become smaller than the pool knows them.

use ondisk::label::PoolState;
use spa::create;
use spa::design::Shape;
use units::Guid;

use crate::made::{Folder, devices, new_pool, world};
use crate::scan::own;

#[test]
fn a_drive_that_became_too_small_is_not_written() {
    let folder = Folder::new("shrunk");
    let drives = folder.drives(2, 128 << 20);
    let new = new_pool((Shape::Mirror, 12), &drives, devices(&drives));
    let made = create(new, world(), &mut |_, _, _| Ok(())).unwrap();
    made.owned.leave(PoolState::Exported).unwrap();
    drop(made);
    let file = std::fs::OpenOptions::new().write(true).open(&drives[1].path).unwrap();
    file.set_len(96 << 20).unwrap();
    let before = std::fs::read(&drives[1].path).unwrap();

    let owned = own(&drives);
    owned.sync().unwrap();
    let leaves = owned.tree().leaves();
    let missing = leaves.iter().filter(|leaf| leaf.device().is_none());
    let missing: Vec<Guid> = missing.map(|leaf| leaf.guid()).collect();
    owned.leave(PoolState::Exported).unwrap();
    assert!(std::fs::read(&drives[1].path).unwrap() == before, "labels went where blocks are");
    assert_eq!(missing, [leaves[1].guid()]);
}
