//! Copying the sectors of a raidz to their place at the new width: the I/O of a raidz expansion.
//!
//! ```text
//!            old width 3                     new width 4
//! drive      0    1    2         drive       0    1    2    3
//! offset 0   s0   s1   s2   ──▶  offset 0    s0   s1   s2   s3
//!        1   s3   s4   s5               1    s4   s5   s6   s7
//!        2   s6   s7   s8               2    s8   ...
//! ```
//!
//! Sectors are copied in order. A sector goes to where an earlier one was, so the reflow never passes
//! [`overwrite_limit`]: up to there, what it overwrites is read at the new width, as the uberblock on
//! the drives says. At the start there is no such space. The first sectors therefore go to the boot
//! area of each drive first, the *scratch copy*, and then to their place.
//!
//! ```text
//! position     changed by                                meaning
//! next         copy_reflow_chunk                         sectors below are copied, writes go to both places
//! synced       advance_reflow, after the uberblock       rows below are read at the new width
//! scratch      copy_to_scratch, copy_from_scratch        sectors below synced are read in the boot area
//! ```
//!
//! Every function here is called by one thread at a time, the reflow thread.
//!
//! Learnt from: `vdev_raidz.c` of OpenZFS 2.3.2. Proved by: the engine's `tests/it/raidz_expand.rs`, `zdb`.

use std::ops::Range;
use std::sync::Arc;

use geometry::{BOOT_SIZE, Expandable, LABEL_START, ReflowPosition};
use units::{Guid, MinusOrZero, Txg, VdevId};

use crate::flush::flush_in_parallel;
use crate::node::NodeAddress;
use crate::queue::{IoClass, with_class};
use crate::reflow_gate::ReflowGate;
use crate::{Leaf, NodeKind, VdevNode, VdevTree};

/// Bytes of each old drive that are copied at a time.
const COPY_BYTES_PER_CHILD: u64 = 1 << 20;

/// Why an expansion cannot go on for now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReflowPause {
    /// The vdev is not being expanded.
    #[error("the vdev is not being expanded")]
    NotExpanding,
    /// A device of the vdev is missing, offline or failing.
    #[error("device '{path}' is not online: bring it back with `zpool online` or `zpool clear`")]
    DeviceUnavailable {
        /// Where the device is.
        path: String,
    },
    /// A device of the vdev lacks txgs.
    #[error("device '{path}' lacks data: the expansion goes on when a resilver has completed")]
    NeedsResilver {
        /// Where the device is.
        path: String,
    },
    /// A child of the vdev is being replaced.
    #[error(
        "a device of the vdev is being replaced: the expansion goes on when that has completed"
    )]
    ChildReplacing,
    /// A device of the vdev could not be read.
    #[error(
        "device '{path}' could not be read: if this stays so, run `zpool scrub` or replace the device"
    )]
    ReadFailed {
        /// Where the device is.
        path: String,
    },
    /// A device of the vdev could not be written.
    #[error("device '{path}' could not be written: replace it, or run `zpool clear`")]
    WriteFailed {
        /// Where the device is.
        path: String,
    },
}

/// The leaves of a vdev that is being expanded, all of them healthy, and what they had missed then.
pub struct ReflowLeaves {
    leaves: Vec<(Arc<Leaf>, u64)>,
    guid: Guid,
}

/// What is copied at a time.
#[derive(Clone, Copy, Debug)]
pub struct ReflowChunk {
    /// Where it ends at most, bytes of the top-level vdev.
    pub end: u64,
    /// Bytes that are copied at most.
    pub max_bytes: u64,
    /// The open txg: what a device fails to write, it misses of this txg.
    pub birth: Txg,
}

/// Where reads and writes go on a child.
#[derive(Clone, Copy)]
enum Area {
    /// The allocatable space.
    Data,
    /// The scratch copy in the boot area.
    Scratch,
}

/// How far sectors may be copied, in bytes, while the uberblock on the drives records `synced`: rows that
/// reach beyond `synced` are read at the old width, and must not be overwritten.
pub fn overwrite_limit(raidz: &Expandable, synced: u64) -> u64 {
    let shift = raidz.current().ashift().get();
    let old = (u64::from(raidz.current().width()) - 1).max(1);
    let sector = synced >> shift;
    (sector + sector / old).minus_or_zero(old) << shift
}

/// Bytes of the top-level vdev of which the scratch copy holds the sectors.
pub fn scratch_size(raidz: &Expandable) -> u64 {
    let unit = raidz.current().ashift().bytes();
    (BOOT_SIZE - BOOT_SIZE % unit) * u64::from(raidz.current().width())
}

impl VdevTree {
    /// The position of the expansion of a vdev, while it runs.
    pub fn reflow_position(&self, vdev: VdevId) -> Option<ReflowPosition> {
        Some(self.top_vdev(vdev)?.reflow?.position())
    }

    /// The leaves of a vdev that is being expanded, if all can be read and written and lack nothing. Waits
    /// for the I/O that began before the expansion.
    pub fn check_reflow(&self, vdev: VdevId) -> Result<ReflowLeaves, ReflowPause> {
        let (node, gate) = self.expanding(vdev)?;
        gate.wait_for_earlier_io();
        ReflowLeaves::of(&node)
    }

    /// Flushes the leaves; an error where one of them lost or missed anything since `before`.
    pub fn flush_reflow(&self, vdev: VdevId, before: &ReflowLeaves) -> Result<(), ReflowPause> {
        let leaves: Vec<&Arc<Leaf>> = before.leaves.iter().map(|(leaf, _)| leaf).collect();
        if let Some(leaf) = flush_in_parallel(&leaves).first() {
            return Err(ReflowPause::WriteFailed { path: leaf.path().to_owned() });
        }
        let (node, _) = self.expanding(vdev)?;
        let now = ReflowLeaves::of(&node)?;
        for ((leaf, misses), (leaf_now, misses_now)) in before.leaves.iter().zip(&now.leaves) {
            if !Arc::ptr_eq(leaf, leaf_now) || misses != misses_now {
                return Err(ReflowPause::WriteFailed { path: leaf.path().to_owned() });
            }
        }
        Ok(())
    }

    /// Copies sectors from the position's `next` on, and moves `next`. `allocated` returns the ranges of a
    /// range that blocks may have; it is called while no block there can be written. Returns how many bytes
    /// were copied.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn copy_reflow_chunk(
        &self,
        vdev: VdevId,
        leaves: &ReflowLeaves,
        chunk: ReflowChunk,
        allocated: &dyn Fn(Range<u64>) -> Vec<Range<u64>>,
    ) -> Result<u64, ReflowPause> {
        let ReflowChunk { end, max_bytes, birth } = chunk;
        let (node, gate) = self.expanding(vdev)?;
        let NodeKind::Raidz(raidz, _) = &node.kind else { return Err(ReflowPause::NotExpanding) };
        let start = gate.position().next;
        if node.guid != leaves.guid || start >= end {
            return Ok(0);
        }
        // Rule: sectors that the uberblock on the drives leaves at the old width are not overwritten. After a
        // crash they are read there, at the position that it records.
        let limit = overwrite_limit(raidz, gate.position().synced);
        assert!(end <= limit, "copying stays below the limit");
        // no more is locked than is copied; what is allocated in between is copied as well
        let end = chunk_end(&allocated(start..end), max_bytes, raidz).unwrap_or(end);
        // Rule: the copy awaits its turn at the leaves before it locks the range. In the other order users would wait
        // for the lock while the copy waits for users.
        leaves.await_turns(max_bytes.min(end - start));
        let lock = gate.lock_exclusive(start..end);
        let most = COPY_BYTES_PER_CHILD * (leaves.leaves.len() as u64 - 1);
        let mut copied = 0;
        for range in allocated(start..end) {
            let mut from = range.start;
            while from < range.end {
                let to = range.end.min(from + most);
                copy_sectors(raidz, leaves, from..to, birth)?;
                copied += to - from;
                from = to;
            }
        }
        let position = gate.position();
        lock.set_position(ReflowPosition { next: end, ..position });
        Ok(copied)
    }

    /// The uberblock on the drives records `synced`: rows below are read at the new width from now on.
    pub fn advance_reflow(&self, vdev: VdevId, synced: u64) -> Result<(), ReflowPause> {
        let (_, gate) = self.expanding(vdev)?;
        let position = gate.position();
        let lock = gate.lock_exclusive(position.synced..synced.max(position.synced));
        lock.set_position(ReflowPosition {
            synced,
            next: position.next.max(synced),
            scratch: false,
        });
        Ok(())
    }

    /// Something that was copied may be lost: copying begins again at what the uberblock records.
    pub fn reset_reflow(&self, vdev: VdevId) {
        if let Ok((_, gate)) = self.expanding(vdev) {
            gate.set_next(gate.position().synced);
        }
    }

    /// Copies the first sectors by way of the scratch copy, or finishes that. `record` writes the uberblock
    /// with the offset, and whether the scratch copy is in use.
    pub fn reflow_by_scratch(
        &self,
        vdev: VdevId,
        birth: Txg,
        record: &mut dyn FnMut(u64, bool) -> bool,
    ) -> Result<(), ReflowPause> {
        let (node, gate) = self.expanding(vdev)?;
        let NodeKind::Raidz(raidz, _) = &node.kind else { return Err(ReflowPause::NotExpanding) };
        gate.wait_for_earlier_io();
        let leaves = ReflowLeaves::of(&node)?;
        let offset = scratch_size(raidz);
        // rows that begin below reach beyond by their width at most
        let row = u64::from(raidz.current().width()) << raidz.current().ashift().get();
        let lock = gate.lock_exclusive(0..offset + row);
        let columns = if gate.position().scratch {
            leaves.read_scratch(raidz)?
        } else {
            let columns = leaves.read_first_rows(raidz)?;
            // Rule: the scratch copy is flushed before the uberblock records it, and the uberblock before the
            // first sectors are overwritten. At each moment one of the two copies is whole.
            leaves.write_columns(Area::Scratch, &columns, birth)?;
            self.flush_reflow(vdev, &leaves)?;
            if !record(offset, true) {
                return Err(ReflowPause::NotExpanding);
            }
            lock.set_position(ReflowPosition { synced: offset, next: offset, scratch: true });
            columns
        };
        leaves.write_columns(Area::Data, &columns, birth)?;
        self.flush_reflow(vdev, &leaves)?;
        if !record(offset, false) {
            return Err(ReflowPause::NotExpanding);
        }
        lock.set_position(ReflowPosition { synced: offset, next: offset, scratch: false });
        Ok(())
    }

    fn expanding(&self, vdev: VdevId) -> Result<(Arc<VdevNode>, Arc<ReflowGate>), ReflowPause> {
        let top = self.top_vdev(vdev).ok_or(ReflowPause::NotExpanding)?;
        let gate = top.reflow.ok_or(ReflowPause::NotExpanding)?;
        Ok((top.node, gate))
    }
}

impl ReflowLeaves {
    fn of(node: &VdevNode) -> Result<Self, ReflowPause> {
        let NodeKind::Raidz(_, children) = &node.kind else {
            return Err(ReflowPause::NotExpanding);
        };
        let mut leaves = Vec::with_capacity(children.len());
        for child in children {
            let NodeKind::Leaf(leaf) = &child.kind else {
                return Err(ReflowPause::ChildReplacing);
            };
            let (path, misses) = (leaf.path().to_owned(), leaf.miss_count());
            if !leaf.is_writable() || leaf.is_failing() {
                return Err(ReflowPause::DeviceUnavailable { path });
            }
            if !leaf.dtl().is_empty() {
                return Err(ReflowPause::NeedsResilver { path });
            }
            leaves.push((Arc::clone(leaf), misses));
        }
        Ok(Self { leaves, guid: node.guid })
    }

    /// Waits for the turn at each leaf to copy so many bytes of the vdev.
    fn await_turns(&self, bytes: u64) {
        let share = bytes / units::to_u64(self.leaves.len()).max(1);
        self.leaves.iter().for_each(|(leaf, _)| leaf.await_turn(IoClass::Expansion, share));
    }

    /// What the scratch copy holds, child by child.
    fn read_scratch(&self, raidz: &Expandable) -> Result<Vec<Vec<u8>>, ReflowPause> {
        let bytes = column_size(raidz);
        let reads = (0..self.leaves.len()).map(|child| (child, 0, bytes)).collect();
        self.read(Area::Scratch, reads)
    }

    /// The first sectors as the scratch copy is to hold them, child by child.
    fn read_first_rows(&self, raidz: &Expandable) -> Result<Vec<Vec<u8>>, ReflowPause> {
        let old = self.leaves.len() - 1;
        let unit = sector_size(raidz);
        let bytes = column_size(raidz);
        let sectors = bytes / unit * self.leaves.len();
        let reads = (0..old).map(|child| (child, 0, sectors.div_ceil(old) * unit)).collect();
        let columns = self.read(Area::Data, reads)?;
        Ok(spread(&columns, sectors, (old, self.leaves.len()), unit))
    }

    fn write_columns(
        &self,
        area: Area,
        columns: &[Vec<u8>],
        birth: Txg,
    ) -> Result<(), ReflowPause> {
        let writes = columns.iter().enumerate().map(|(child, bytes)| (child, 0, &bytes[..]));
        self.write(area, writes.collect(), birth)
    }

    /// Reads bytes of children, given by child, offset and length; all children at once.
    fn read(
        &self,
        area: Area,
        reads: Vec<(usize, u64, usize)>,
    ) -> Result<Vec<Vec<u8>>, ReflowPause> {
        in_parallel(reads, |(child, offset, length)| {
            let leaf = &self.leaves[child].0;
            let mut bytes = vec![0; length];
            let position = offset + area.start();
            with_class(IoClass::Expansion, || leaf.read(position, &mut bytes))
                .map_err(|_| ReflowPause::ReadFailed { path: leaf.path().to_owned() })?;
            Ok(bytes)
        })
    }

    fn write(
        &self,
        area: Area,
        writes: Vec<(usize, u64, &[u8])>,
        birth: Txg,
    ) -> Result<(), ReflowPause> {
        let done = in_parallel(writes, |(child, offset, bytes)| {
            let leaf = &self.leaves[child].0;
            let address = NodeAddress::new(offset, birth);
            let address = match area {
                Area::Data => address,
                Area::Scratch => {
                    let offset = offset + area.start();
                    NodeAddress { offset, is_absolute: true, ..address }
                }
            };
            with_class(IoClass::Expansion, || leaf.write_at(address, &[bytes]))
                .map_err(|_| ReflowPause::WriteFailed { path: leaf.path().to_owned() })
        });
        done.map(|_| ())
    }
}

impl Area {
    /// Where it begins on a device.
    fn start(self) -> u64 {
        match self {
            Self::Data => LABEL_START,
            Self::Scratch => LABEL_START - BOOT_SIZE,
        }
    }
}

/// Where a chunk ends that copies `max_bytes` of these ranges; none where they have less.
fn chunk_end(ranges: &[Range<u64>], max_bytes: u64, raidz: &Expandable) -> Option<u64> {
    let unit = raidz.current().ashift().bytes();
    let mut left = (max_bytes - max_bytes % unit).max(unit);
    for range in ranges {
        let length = range.end - range.start;
        if length > left {
            return Some(range.start + left);
        }
        left -= length;
    }
    None
}

/// Copies a range of the vdev from the old width to the new one.
fn copy_sectors(
    raidz: &Expandable,
    leaves: &ReflowLeaves,
    range: Range<u64>,
    birth: Txg,
) -> Result<(), ReflowPause> {
    let shift = raidz.current().ashift().get();
    let unit = sector_size(raidz);
    let new = leaves.leaves.len();
    let old = new - 1;
    let (first, end) = (range.start >> shift, range.end >> shift);
    let count = units::to_usize(end - first);
    let reads = (0..old.min(count)).map(|index| {
        let (child, offset) = place(first, index, old, shift);
        (child, offset, count_from(count, index, old) * unit)
    });
    let columns = leaves.read(Area::Data, reads.collect())?;
    let spread = spread(&columns, count, (old, new), unit);
    let total = spread.iter().map(Vec::len).sum::<usize>();
    assert_eq!(total, count * unit, "each sector has one place at the new width");
    let writes = spread.iter().enumerate().map(|(index, bytes)| {
        let (child, offset) = place(first, index, new, shift);
        (child, offset, &bytes[..])
    });
    leaves.write(Area::Data, writes.filter(|(.., bytes)| !bytes.is_empty()).collect(), birth)
}

/// The child and the offset of the `index`-th sector from `first` on, at a width.
fn place(first: u64, index: usize, width: usize, shift: u32) -> (usize, u64) {
    let (sector, width) = (first + index as u64, width as u64);
    (units::to_usize(sector % width), (sector / width) << shift)
}

/// How many of `count` sectors lie on the same child as the `index`-th.
fn count_from(count: usize, index: usize, width: usize) -> usize {
    count.minus_or_zero(index).div_ceil(width)
}

/// Rearranges sectors: column `i` of the result holds sectors `i`, `i + new`, `i + 2 new`, and so on.
fn spread(
    columns: &[Vec<u8>],
    count: usize,
    (old, new): (usize, usize),
    unit: usize,
) -> Vec<Vec<u8>> {
    let mut spread: Vec<Vec<u8>> =
        (0..new).map(|index| Vec::with_capacity(count_from(count, index, new) * unit)).collect();
    for sector in 0..count {
        let from = sector / old * unit;
        let bytes = columns.get(sector % old).and_then(|column| column.get(from..from + unit));
        assert!(bytes.is_some(), "every sector was read");
        spread[sector % new].extend_from_slice(bytes.unwrap_or_default());
    }
    spread
}

/// Bytes of a sector.
fn sector_size(raidz: &Expandable) -> usize {
    1 << raidz.current().ashift().get()
}

/// Bytes of the scratch copy on each child.
fn column_size(raidz: &Expandable) -> usize {
    let width = u64::from(raidz.current().width()).max(1);
    units::to_usize(scratch_size(raidz) / width)
}

/// Runs `work` on all items at once, one thread each; the first error wins.
fn in_parallel<T: Send, R: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> Result<R, ReflowPause> + Sync,
) -> Result<Vec<R>, ReflowPause> {
    let work = &work;
    std::thread::scope(|scope| {
        let running: Vec<_> =
            items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        let joined = running.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        // all are joined before the first error is returned
        joined.collect::<Vec<_>>().into_iter().collect()
    })
}
