//! Space that was freed lately and not trimmed since (`autotrim=on`).
//!
//! The sync of a txg adds what it frees. Space that is allocated again meanwhile stays in the list: only space that the
//! allocator lends is trimmed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lock::{Mutex, rank};
use metaslab::{MetaslabChange, RangeSet};
use units::VdevId;

/// Shorter ranges wait until their neighbours are free, too.
const MIN_TRIM_BYTES: u64 = 32 << 10;
/// Ranges of a vdev that are kept; what is freed beyond that waits for `zpool trim`.
const MAX_RANGES: usize = 1 << 17;

/// The freed ranges of a pool.
#[derive(Default)]
pub(crate) struct FreedSpace {
    is_tracked: AtomicBool,
    ranges: Mutex<BTreeMap<VdevId, RangeSet>, { rank::FREED_SPACE }>,
}

impl FreedSpace {
    /// Begins or ends to keep what is freed.
    pub(crate) fn set_tracked(&self, is_tracked: bool) {
        self.is_tracked.store(is_tracked, Relaxed);
        if !is_tracked {
            self.ranges.lock().clear();
        }
    }

    /// Whether freed ranges are kept.
    pub(crate) fn is_tracked(&self) -> bool {
        self.is_tracked.load(Relaxed)
    }

    /// Adds what a txg freed.
    pub(super) fn record(&self, changes: &[MetaslabChange]) {
        if !self.is_tracked() {
            return;
        }
        let mut all = self.ranges.lock();
        for change in changes.iter().filter(|change| !change.freed.is_empty()) {
            let kept = all.entry(change.vdev).or_default();
            for range in &change.freed {
                if kept.len() < MAX_RANGES {
                    kept.insert(range.clone());
                }
            }
        }
    }

    /// Removes and returns the ranges that are long enough to be trimmed.
    pub(crate) fn take_long_ranges(&self) -> Vec<(VdevId, Range<u64>)> {
        let mut all = self.ranges.lock();
        let mut taken = Vec::new();
        for (vdev, kept) in all.iter_mut() {
            let long: Vec<_> =
                kept.iter().filter(|range| range.end - range.start >= MIN_TRIM_BYTES).collect();
            for range in long {
                kept.remove(&range);
                taken.push((*vdev, range));
            }
        }
        taken
    }

    /// Keeps a range for the next time.
    pub(crate) fn put_back(&self, vdev: VdevId, range: Range<u64>) {
        self.ranges.lock().entry(vdev).or_default().insert(range);
    }
}

#[cfg(test)]
mod tests {
    use metaslab::MetaslabChange;
    use units::{MetaslabId, VdevId};

    use super::FreedSpace;

    #[test]
    fn short_ranges_wait_for_their_neighbours() {
        let space = FreedSpace::default();
        let freed = |range: std::ops::Range<u64>| {
            space.record(&[MetaslabChange {
                vdev: VdevId::new(0),
                metaslab: MetaslabId::new(0),
                allocated: Vec::new(),
                freed: vec![range],
            }]);
        };
        freed(0..1 << 20);
        space.set_tracked(true);
        freed(0..16 << 10);
        assert!(space.take_long_ranges().is_empty());
        freed(16 << 10..32 << 10);
        assert_eq!(space.take_long_ranges(), [(VdevId::new(0), 0..32 << 10)]);
        assert!(space.take_long_ranges().is_empty());
        freed(0..1 << 20);
        space.set_tracked(false);
        space.set_tracked(true);
        assert!(space.take_long_ranges().is_empty());
    }
}
