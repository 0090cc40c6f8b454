//! The recorded DTLs of drives.

use std::os::unix::fs::FileExt;

use ondisk::blkptr::Blkptr;
use ondisk::label::PoolState;
use spa::Pool;
use units::{BlockId, Level, Txg};
use vdev::TxgRanges;

use crate::create::{create_mirror, open_pool};
use crate::scan::import_pool;

/// The address of the only DTL of such a pool.
fn dtl_block(pool: &Pool) -> Blkptr {
    let mut notes = pool.config().tree.as_ref().unwrap().leaves().filter_map(|leaf| leaf.dtl);
    let (note, other) = (notes.next().unwrap(), notes.next());
    assert_eq!(other, None);
    let object = pool.mos().object(note).unwrap();
    object.pointer(Level::new(0), BlockId::new(0)).unwrap()
}

#[test]
fn drive_with_damaged_dtl_misses_everything() {
    let (folder, drives, active) = create_mirror("note", 9);
    // so many entries that they are not embedded in the pointer
    let many = (0..300_u64).map(|n| (Txg::new(1000 + n * n), Txg::new(1000 + n * n + n)));
    let leaf = active.tree().leaves().remove(0);
    leaf.set_dtl(TxgRanges::new(many));
    active.export(PoolState::Exported).unwrap();
    let guid = leaf.guid();
    drop((leaf, active));
    assert!(open_pool(&folder).tree().leaf(guid).unwrap().dtl().contains(Txg::new(1001)));

    let pointer = dtl_block(&open_pool(&folder));
    let Blkptr::Regular(block) = pointer else { panic!("{pointer:?}") };
    for (dva, drive) in block.copies().flat_map(|dva| drives.iter().map(move |to| (dva, to))) {
        let image = std::fs::File::options().write(true).open(&drive.path).unwrap();
        image.write_all_at(&[0x5a; 512], dva.offset + (4 << 20)).unwrap();
    }
    let pool = open_pool(&folder);
    let all = TxgRanges::new([(Txg::new(1), pool.txg())]);
    assert_eq!(pool.tree().leaf(guid).unwrap().dtl(), all);
    drop(pool);

    // it got everything
    let active = import_pool(&drives);
    active.tree().leaf(guid).unwrap().set_dtl(TxgRanges::default());
    active.export(PoolState::Exported).unwrap();
    drop(active);
    assert!(open_pool(&folder).tree().leaves().iter().all(|leaf| leaf.dtl().is_empty()));
}
