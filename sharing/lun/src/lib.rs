//! The interface of block protocols to volumes: logical units with reservations.
//!
//! iSCSI, NBD, NVMe/TCP and ublk serve the same volumes. [`Lun`] is their common part: blocks that
//! are read, written, unmapped and compared, a cache that is flushed, persistent reservations, and
//! events. [`VolumeLun`] is a volume of an imported pool, [`SnapshotLun`] a snapshot of one, and [`UnitTable`] opens each
//! once for all protocols.
//!
//! All offsets and lengths are in bytes and multiples of the logical block size. Written data is in memory until
//! [`Lun::flush`] or a write with [`Durability::Durable`] (FUA): a protocol reports a write-back cache.
#![forbid(unsafe_code)]

mod copy;
mod error;
mod range_locks;
mod ranges;
mod reservation_record;
mod reservation_store;
mod reservations;
mod snapshot;
mod unit_table;
mod volume;

use std::ops::Range;
use std::sync::Arc;

pub use copy::{CopyError, copy};
use engine::pool::BlockSource;
pub use engine::pool::MemoryParts;
pub use error::{Error, Result};
pub use reservation_store::{ReservationStore, VolumeGuids};
pub use reservations::{
    AccessKind, Admitted, Holder, Nexus, Preempted, ReservationCallback, ReservationConflict,
    ReservationError, ReservationKey, ReservationLoss, ReservationReport, ReservationType,
    Reservations,
};
pub use snapshot::SnapshotLun;
pub use unit_table::{OpenUnit, UnitTable};
pub use volume::{LunOptions, VolumeLun};

/// The shape of a logical unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes of a logical block: what addresses count.
    pub block_size: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a block as the pool stores it (volblocksize). Smaller writes read the rest of the block first.
    pub physical_block_size: u32,
    /// Bytes that a transfer should have at least, and at most, to be fast.
    pub optimal_transfer: (u32, u32),
    /// Bytes of the smallest range that an unmap frees.
    pub unmap_granularity: u32,
    /// Whether writes are refused (readonly=on).
    pub is_read_only: bool,
}

impl Geometry {
    /// Bytes of the unit.
    pub fn size(&self) -> u64 {
        // made from a size in bytes by division
        self.blocks * u64::from(self.block_size)
    }
}

/// The durability of a write when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// None: it is in the write-back cache.
    Cached,
    /// A power cut (FUA).
    Durable,
}

/// The result of a compare-and-write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    /// The content was as expected and the new data was written.
    Written,
    /// The content differs from the expected one, and nothing was written.
    Differs {
        /// Offset of the first byte that differs, from the start of the range.
        at: usize,
    },
}

/// A range of a unit that is mapped or not (SCSI: GET LBA STATUS).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Bytes of the unit, whole logical blocks.
    pub range: Range<u64>,
    /// Whether the range is mapped. Unmapped ranges read as zeros.
    pub is_mapped: bool,
}

/// Space of a thin-provisioned unit, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThinSpace {
    /// Space that the unit takes in the pool.
    pub used: u64,
    /// Space that the pool still has for it.
    pub available: u64,
}

/// A change of a unit that initiators are notified of (SCSI: unit attention; NVMe: asynchronous
/// event).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LunEvent {
    /// It has another size.
    Resized {
        /// Bytes of the volume now.
        size: u64,
    },
    /// It was rolled back to a snapshot: any content may be another.
    Reverted,
    /// Its pool was exported, or the volume is not there any more. Every request fails.
    Gone,
}

/// A function that is called for each event. It must not call the unit and must not wait.
pub type EventCallback = Arc<dyn Fn(LunEvent) + Send + Sync>;

/// A logical unit: what iSCSI, NBD, NVMe/TCP and ublk serve.
pub trait Lun: Send + Sync {
    /// The shape now. It changes when the unit is resized.
    fn geometry(&self) -> Geometry;

    /// Fills `into` with the bytes from `offset` on.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// The bytes from `offset` on as parts of blocks, if all of them are in memory: waits neither for a drive nor for
    /// another thread. None: they are to be read.
    fn parts_in_memory(&self, offset: u64, length: usize) -> Option<MemoryParts> {
        let _ = (offset, length);
        None
    }

    /// Writes all of `bytes` at `offset`.
    fn write(&self, offset: u64, bytes: &[u8], durability: Durability) -> Result<()>;

    /// Frees the whole physical blocks of a range, which read as zeros then. The rest of the range stays.
    fn unmap(&self, range: Range<u64>) -> Result<()>;

    /// Makes zeros of a range, which take no space where they are whole physical blocks.
    fn write_zeroes(&self, range: Range<u64>, durability: Durability) -> Result<()>;

    /// Returns when everything that was written before survives a power cut.
    fn flush(&self) -> Result<()>;

    /// Writes `new` at `offset` if the content there is `expected`, as one step: no other write to the range comes
    /// between (SCSI: COMPARE AND WRITE, VMware's ATS). Both have the same length.
    fn compare_and_write(
        &self,
        offset: u64,
        expected: &[u8],
        new: &[u8],
        durability: Durability,
    ) -> Result<Compared>;

    /// The volume whose blocks other units can share; none: its blocks can only be copied.
    fn block_source(&self) -> Result<Option<BlockSource>> {
        Ok(None)
    }

    /// Shares blocks of a range of `source` with the blocks from byte `to` on. Returns the number of bytes from the
    /// start of the range that are shared: 0 if its first block can only be copied.
    fn clone_blocks(&self, source: &BlockSource, from: Range<u64>, to: u64) -> Result<u64> {
        let _ = (source, from, to);
        Ok(0)
    }

    /// Returns when the blocks that were written before are on the drives, so that others can share them.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// The extent at the start of a range, up to where the state changes or the range ends. A mapped extent is found
    /// block by block, so that the range bounds the time.
    fn extent(&self, range: Range<u64>) -> Result<Extent>;

    /// Space that the unit takes and may take.
    fn space(&self) -> Result<ThinSpace>;

    /// The requests of all views that wait for the intent log now.
    fn log_waits(&self) -> u64 {
        0
    }

    /// Whether a request that fails with [`Error::Suspended`] is to be repeated until the pool is
    /// resumed, while the initiator waits (failmode=wait).
    fn waits_while_suspended(&self) -> bool;

    /// The persistent reservations. Protocols call [`Reservations::admit`] for each request.
    fn reservations(&self) -> &Reservations;

    /// Has `callback` called for each event, for as long as the caller keeps it.
    fn subscribe(&self, callback: &EventCallback);
}
