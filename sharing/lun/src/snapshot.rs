//! A snapshot of a volume as a read-only logical unit.
//!
//! The unit holds the snapshot, so that `zfs destroy` says that it is busy. Its content never changes, so that it has
//! no events; after its pool was exported, every request fails with [`Error::Gone`].

use std::ops::Range;
use std::sync::Arc;

use engine::pool::{BlockSource, Pool, VolumeSnapshot};

use crate::ranges::{self, byte_count};
use crate::volume::MAX_OPTIMAL_TRANSFER;
use crate::{
    Compared, Durability, Error, EventCallback, Extent, Geometry, Lun, LunOptions, Reservations,
    Result, ThinSpace,
};

/// A snapshot of a volume as a read-only logical unit. Cheap to clone.
#[derive(Clone)]
pub struct SnapshotLun(Arc<Inner>);

struct Inner {
    snapshot: Arc<VolumeSnapshot>,
    block_size: u32,
    reservations: Reservations,
}

impl SnapshotLun {
    /// Opens a snapshot by its full name (VOLUME@NAME). It is always read-only.
    pub fn open(pool: &Pool, name: &str, options: LunOptions) -> Result<Self> {
        let opened = pool.volumes().open_snapshot(name);
        let snapshot = Arc::new(opened.map_err(|why| Error::Open { why: why.to_string() })?);
        options.check(snapshot.block_size())?;
        let (block_size, reservations) = (options.block_size, Reservations::default());
        Ok(Self(Arc::new(Inner { snapshot, block_size, reservations })))
    }

    /// Guid of the snapshot: a name for the unit that stays the same.
    pub fn guid(&self) -> u64 {
        self.0.snapshot.guid()
    }

    /// The snapshot, unless its pool was exported.
    fn snapshot(&self) -> Result<&Arc<VolumeSnapshot>> {
        if self.0.snapshot.is_retired() { Err(Error::Gone) } else { Ok(&self.0.snapshot) }
    }

    /// Why a snapshot is not changed.
    fn refuse_change<T>(&self) -> Result<T> {
        self.snapshot()?;
        Err(Error::ReadOnly)
    }
}

impl Lun for SnapshotLun {
    fn geometry(&self) -> Geometry {
        let (block_size, physical) = (self.0.block_size, self.0.snapshot.block_size());
        Geometry {
            block_size,
            blocks: self.0.snapshot.size() / u64::from(block_size),
            physical_block_size: physical,
            optimal_transfer: (physical, MAX_OPTIMAL_TRANSFER.max(physical)),
            unmap_granularity: physical,
            is_read_only: true,
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let snapshot = self.snapshot()?;
        ranges::check(self.0.block_size, (offset, byte_count(into)), snapshot.size())?;
        let count = snapshot.read(offset, into)?;
        assert_eq!(count, into.len(), "the range was checked, and a snapshot keeps its size");
        Ok(())
    }

    fn write(&self, _: u64, _: &[u8], _: Durability) -> Result<()> {
        self.refuse_change()
    }

    fn unmap(&self, _: Range<u64>) -> Result<()> {
        self.refuse_change()
    }

    fn write_zeroes(&self, _: Range<u64>, _: Durability) -> Result<()> {
        self.refuse_change()
    }

    fn flush(&self) -> Result<()> {
        self.snapshot().map(drop)
    }

    fn compare_and_write(&self, _: u64, _: &[u8], _: &[u8], _: Durability) -> Result<Compared> {
        self.refuse_change()
    }

    fn block_source(&self) -> Result<Option<BlockSource>> {
        Ok(Some(BlockSource::Snapshot(Arc::clone(self.snapshot()?))))
    }

    fn extent(&self, range: Range<u64>) -> Result<Extent> {
        let snapshot = self.snapshot()?;
        let checked = ranges::check_given(self.0.block_size, &range, snapshot.size())?;
        let Range { start, end } = checked;
        let data = snapshot.next_data(start)?.map_or(end, |data| data.clamp(start, end));
        if data > start || start == end {
            return Ok(Extent { range: start..data, is_mapped: false });
        }
        Ok(Extent { range: start..snapshot.next_hole(start..end)?, is_mapped: true })
    }

    fn space(&self) -> Result<ThinSpace> {
        Ok(ThinSpace { used: self.snapshot()?.referenced(), available: 0 })
    }

    fn waits_while_suspended(&self) -> bool {
        // reads of a suspended pool fail at once or succeed
        false
    }

    fn reservations(&self) -> &Reservations {
        &self.0.reservations
    }

    fn subscribe(&self, _: &EventCallback) {}
}
