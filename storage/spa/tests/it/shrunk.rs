//! Drives that have become smaller than the pool knows them.

use ondisk::label::PoolState;
use spa::create_pool;
use spa::vdev_layout::VdevLayout;
use units::Guid;

use crate::create::{TestDir, environment, new_pool, open_devices};
use crate::scan::import_pool;

#[test]
fn shrunk_drive_is_not_written() {
    let folder = TestDir::new("shrunk");
    let drives = folder.create_devices(2, 128 << 20);
    let new = new_pool((VdevLayout::Mirror, 12), &drives, open_devices(&drives));
    let made = create_pool(new, environment(), &mut |_, _, _| Ok(())).unwrap();
    made.pool.export(PoolState::Exported).unwrap();
    drop(made);
    let file = std::fs::OpenOptions::new().write(true).open(&drives[1].path).unwrap();
    file.set_len(96 << 20).unwrap();
    let before = std::fs::read(&drives[1].path).unwrap();

    let active = import_pool(&drives);
    active.sync().unwrap();
    let leaves = active.tree().leaves();
    let missing = leaves.iter().filter(|leaf| leaf.device().is_none());
    let missing: Vec<Guid> = missing.map(|leaf| leaf.guid()).collect();
    active.export(PoolState::Exported).unwrap();
    assert!(std::fs::read(&drives[1].path).unwrap() == before, "labels went where blocks are");
    assert_eq!(missing, [leaves[1].guid()]);
}
