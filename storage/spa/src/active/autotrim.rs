//! autotrim: devices are told of freed space without a command.
//!
//! ```text
//! sync of a txg   freed ranges go into a list (space::freed)
//! autotrim        every 32 txgs, what of the list is free is lent by the allocator and discarded on each leaf
//! ```
//!
//! Space that was freed in the last txgs cannot be lent: an import may go back to them. It stays in the list.
//!
//! Learnt from: `vdev_trim.c` and zpoolprops(7) of OpenZFS 2.3.2. Proved by: the engine's
//! `tests/it/leaf_activity.rs`.

use std::ops::Range;

use metaslab::RangeSet;
use units::{MetaslabId, VdevId};
use vdev::NodeKind;

use super::ActivePool;
use super::leaf_activity::{ActivityKind, LeafMap, TRIM_STEP, sweep_range};
use crate::Error;

impl ActivePool {
    /// Has freed space be kept in a list for [`ActivePool::trim_freed`], or not.
    pub fn set_autotrim(&self, is_on: bool) {
        self.space.freed_space().set_tracked(is_on);
    }

    /// Whether freed space is trimmed without a command.
    pub fn has_autotrim(&self) -> bool {
        self.space.freed_space().is_tracked()
    }

    /// Trims what was freed since the last call, as far as it is free for new blocks. Returns the bytes of the
    /// top-level vdevs that were trimmed. A device that cannot discard keeps its old content.
    pub fn trim_freed(&self) -> Result<u64, Error> {
        let mut trimmed = 0;
        for (vdev, range) in self.space.freed_space().take_long_ranges() {
            if self.txgs.is_stopped() {
                break;
            }
            trimmed += self.trim_range(vdev, range)?;
        }
        Ok(trimmed)
    }

    fn trim_range(&self, vdev: VdevId, range: Range<u64>) -> Result<u64, Error> {
        if self.removing_vdev() == Some(vdev) {
            return Ok(0);
        }
        let allocator = self.space.allocator();
        let mut trimmed = 0;
        for metaslab in allocator.metaslabs(vdev)? {
            let extent = allocator.extent(vdev, metaslab)?;
            let part = extent.start.max(range.start)..extent.end.min(range.end);
            if part.start < part.end {
                trimmed += self.trim_part(vdev, metaslab, part)?;
            }
        }
        Ok(trimmed)
    }

    /// Trims what is free in a part of a metaslab, and keeps the rest for the next time.
    fn trim_part(
        &self,
        vdev: VdevId,
        metaslab: MetaslabId,
        part: Range<u64>,
    ) -> Result<u64, Error> {
        let allocator = self.space.allocator();
        let (mut from, mut trimmed) = (part.start, 0);
        let mut left = RangeSet::from_range(part.clone());
        while from < part.end {
            let most = units::narrow::<u32>(u64::from(TRIM_STEP).min(part.end - from));
            let lent = allocator.lend_free(vdev, metaslab, from, most, self.txgs.synced_txg())?;
            let Some(lent) = lent else { break };
            if lent.start < part.end {
                self.discard_range(vdev, &lent);
                trimmed += lent.end - lent.start;
                left.remove(&lent);
            }
            allocator.return_lent(vdev, metaslab, &lent)?;
            from = lent.end;
        }
        // what blocks have again is in the list when it is freed the next time
        if let Ok(used) = allocator.in_use(vdev, &part) {
            used.iter().for_each(|used| left.remove(&used));
        }
        left.iter().for_each(|range| self.space.freed_space().put_back(vdev, range));
        Ok(trimmed)
    }

    /// Discards a lent range on all leaves that are in service.
    fn discard_range(&self, vdev: VdevId, range: &Range<u64>) {
        // until it is done: sectors of a raidz move in an expansion
        let Some(layout) = self.tree.hold_layout(vdev) else { return };
        if matches!(layout.node().kind, NodeKind::Draid(..)) {
            return;
        }
        for leaf in layout.node().leaves() {
            if !leaf.is_writable() || leaf.is_failing() {
                continue;
            }
            let part = LeafMap::new(layout.node(), leaf.guid()).to_leaf(range);
            // not every device can discard
            let _ = sweep_range(leaf, &part, ActivityKind::Trim);
        }
    }
}
