//! The order of the drives: the walk finds blocks in the order of files, and they are read in the order in which
//! they lie on the drives.
//!
//! ```text
//! walk   gathers blocks until their memory is used up      (no position is kept meanwhile)
//! sort   by vdev and offset; cut into batches; batches of different vdevs take turns
//! read   the workers; when the last batch is done, the position behind all of the blocks is durable
//! ```
//!
//! Proved by: the tests below, and `scrub_reads_in_the_order_of_the_drive` of the engine.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use units::VdevId;

use super::round::ScanBlock;
use crate::ActivePool;

/// Blocks in a batch.
const BATCH_BLOCKS: usize = 64;
/// A batch is full, too, when its blocks have so many bytes.
const BATCH_BYTES: u64 = 4 << 20;

/// Bytes of memory for the blocks that a scan sorts.
pub(crate) struct SortMemory(AtomicU64);

impl Default for SortMemory {
    fn default() -> Self {
        Self(AtomicU64::new(64 << 20))
    }
}

impl SortMemory {
    /// How many blocks fit.
    pub(super) fn blocks(&self) -> usize {
        units::to_usize(self.0.load(Ordering::Relaxed)) / size_of::<ScanBlock>()
    }
}

impl ActivePool {
    /// Sets how much memory (bytes) the blocks take that a scan sorts: the more, the fewer seeks.
    pub fn set_scan_memory(&self, bytes: u64) {
        self.scan_memory().0.store(bytes, Ordering::Relaxed);
    }
}

/// Blocks that were sorted together.
pub(super) struct SortedBlocks {
    blocks: Vec<ScanBlock>,
    /// The ticket of the position behind them.
    ticket: Option<u64>,
    /// Batches that are not done yet.
    left: AtomicUsize,
    /// Whether a batch was not read to its end.
    is_interrupted: AtomicBool,
}

impl SortedBlocks {
    /// Sorts blocks. Returns the ranges of their batches, in the order in which they are to be read: at least
    /// one.
    pub(super) fn new(
        mut blocks: Vec<ScanBlock>,
        ticket: Option<u64>,
    ) -> (Self, Vec<Range<usize>>) {
        blocks.sort_unstable_by_key(|item| item.block.dvas[0].map(|dva| (dva.vdev, dva.offset)));
        let places = blocks.iter().map(|item| (first_vdev(item), u64::from(item.block.psize)));
        let ranges = take_turns(cut_into_batches(places));
        let batched = ranges.iter().map(Range::len).sum::<usize>();
        assert_eq!(batched, blocks.len(), "each block of a scan is in one batch");
        let left = AtomicUsize::new(ranges.len());
        (Self { blocks, ticket, left, is_interrupted: AtomicBool::new(false) }, ranges)
    }

    /// The blocks of a batch.
    pub(super) fn blocks(&self, range: &Range<usize>) -> &[ScanBlock] {
        &self.blocks[range.clone()]
    }

    /// A batch is done. Returns the ticket, if it was the last one and all were read to their ends.
    pub(super) fn finish_batch(&self, is_complete: bool) -> Option<u64> {
        if !is_complete {
            self.is_interrupted.store(true, Ordering::Release);
        }
        let left = self.left.fetch_sub(1, Ordering::AcqRel);
        assert!(left > 0, "each batch of {} blocks is finished once", self.blocks.len());
        let is_last = left == 1;
        self.ticket.filter(|_| is_last && !self.is_interrupted.load(Ordering::Acquire))
    }
}

fn first_vdev(item: &ScanBlock) -> Option<VdevId> {
    item.block.dvas[0].map(|dva| dva.vdev)
}

/// Cuts sorted blocks, given by vdev and bytes, into batches of one vdev each: by vdev, the ranges in order.
fn cut_into_batches(
    places: impl Iterator<Item = (Option<VdevId>, u64)>,
) -> Vec<(Option<VdevId>, Vec<Range<usize>>)> {
    let mut vdevs: Vec<(Option<VdevId>, Vec<Range<usize>>)> = Vec::new();
    let mut batch_bytes = 0;
    for (index, (vdev, bytes)) in places.enumerate() {
        let last = vdevs.last_mut().filter(|(known, _)| *known == vdev);
        let Some((_, ranges)) = last else {
            let first = index..index + 1;
            vdevs.push((vdev, vec![first]));
            batch_bytes = bytes;
            continue;
        };
        match ranges.last_mut() {
            Some(batch) if batch.len() < BATCH_BLOCKS && batch_bytes < BATCH_BYTES => {
                batch.end = index + 1;
                batch_bytes += bytes;
            }
            _ => {
                ranges.push(index..index + 1);
                batch_bytes = bytes;
            }
        }
    }
    vdevs
}

/// Mixes the batches of vdevs evenly, so that all vdevs are read all the time; an empty batch if there are none.
fn take_turns(vdevs: Vec<(Option<VdevId>, Vec<Range<usize>>)>) -> Vec<Range<usize>> {
    let mut turns = Vec::new();
    for (_, ranges) in vdevs {
        let count = ranges.len();
        turns.extend(ranges.into_iter().enumerate().map(|(at, range)| ((at << 32) / count, range)));
    }
    turns.sort_by_key(|(turn, _)| *turn);
    let mut ranges: Vec<Range<usize>> = turns.into_iter().map(|(_, range)| range).collect();
    if ranges.is_empty() {
        ranges.push(0..0);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use units::VdevId;

    use super::{BATCH_BLOCKS, SortedBlocks, cut_into_batches, take_turns};

    fn places(counts: &[usize], bytes: u64) -> Vec<(Option<VdevId>, u64)> {
        let vdevs = (0..).map(VdevId::new).zip(counts);
        vdevs.flat_map(|(vdev, count)| vec![(Some(vdev), bytes); *count]).collect()
    }

    #[test]
    fn batches_of_vdevs_take_turns() {
        let sizes = [4 * BATCH_BLOCKS, 2 * BATCH_BLOCKS];
        let order = take_turns(cut_into_batches(places(&sizes, 512).into_iter()));
        let starts: Vec<usize> = order.iter().map(|range| range.start / BATCH_BLOCKS).collect();
        assert_eq!(starts, [0, 4, 1, 2, 5, 3]);
        assert!(order.iter().all(|range| range.len() == BATCH_BLOCKS));
    }

    #[test]
    fn large_blocks_make_short_batches() {
        let cut = cut_into_batches(places(&[9], 1 << 20).into_iter());
        assert_eq!(take_turns(cut), [0..4, 4..8, 8..9]);
        assert_eq!(take_turns(Vec::new()).as_slice(), std::slice::from_ref(&(0..0)));
    }

    #[test]
    fn position_is_durable_after_all_batches() {
        let ends = |complete: bool| {
            let (group, ranges) = SortedBlocks::new(Vec::new(), Some(7));
            assert_eq!(ranges.len(), 1);
            group.finish_batch(complete)
        };
        assert_eq!((ends(true), ends(false)), (Some(7), None));
    }
}
