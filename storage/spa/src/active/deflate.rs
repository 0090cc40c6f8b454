//! What blocks take.

use ondisk::{Blkptr, Dva};
use vdev::VdevTree;
use zio::SizeRounding;

use crate::Pool;

/// Bytes of the block by which a vdev's ratio of usable to allocated space is told.
const DEFLATE_BLOCK_SIZE: u64 = 1 << 17;

/// To what sizes the pool rounds stored blocks.
pub(super) fn rounding(pool: &Pool) -> SizeRounding {
    let tops = pool.config.tree.iter().flat_map(|root| &root.children);
    SizeRounding::from_min_sizes(tops.filter(|top| !top.is_log).filter_map(|top| {
        let sector = 1_u64.checked_shl(u32::try_from(top.ashift?).ok()?)?;
        let data = top.draid.as_ref().map_or(1, |draid| draid.data);
        Some(sector * data.max(1))
    }))
}

/// How much of the pool's usable space a block takes, all its copies together.
pub(super) fn bp_dsize(tree: &VdevTree, pointer: &Blkptr) -> u64 {
    let Blkptr::Regular(block) = pointer else { return 0 };
    block.copies().map(|dva| dva_dsize(tree, dva)).sum()
}

/// How much of it one copy takes.
pub(crate) fn dva_dsize(tree: &VdevTree, dva: Dva) -> u64 {
    if tree.counts_parity() {
        return dva.asize;
    }
    let typical =
        tree.asize(dva.vdev, DEFLATE_BLOCK_SIZE, units::Txg::ZERO).unwrap_or(DEFLATE_BLOCK_SIZE);
    let ratio = DEFLATE_BLOCK_SIZE.checked_div(typical >> 9).unwrap_or(0);
    (dva.asize >> 9) * ratio
}
