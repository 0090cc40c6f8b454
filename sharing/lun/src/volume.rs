//! A volume of an imported pool as a logical unit.
//!
//! The unit holds the volume, so that `zfs destroy` says that it is busy. It follows the volume by its guid: a
//! rename goes unnoticed, and after a rollback the unit opens the volume again and notifies its initiators.
//!
//! Protocols that serve one volume have views of it, each with its own options. The views share the locks of ranges,
//! the reservations and the events.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use engine::pool::{BlockSource, DatasetHold, MemoryParts, OpenVolume, Pool};
use parking_lot::{Mutex, RwLock};

use crate::range_locks::RangeLocks;
use crate::ranges::{self, byte_count};
use crate::{
    Compared, Durability, Error, EventCallback, Extent, Geometry, Lun, LunEvent, Reservations,
    Result, ThinSpace,
};

/// How a volume is served.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LunOptions {
    /// Bytes of a logical block: 512 or 4096.
    pub block_size: u32,
    /// Whether initiators may not write.
    pub read_only: bool,
}

impl Default for LunOptions {
    fn default() -> Self {
        Self { block_size: 512, read_only: false }
    }
}

impl LunOptions {
    /// Refuses logical blocks that a volume with blocks of that size cannot have.
    pub(crate) fn check(self, volume_block: u32) -> Result<()> {
        let block_size = self.block_size;
        if ![512, 4096].contains(&block_size) || block_size > volume_block {
            return Err(Error::BlockSize { block_size, volume_block });
        }
        Ok(())
    }
}

/// A volume as a logical unit. Cheap to clone.
#[derive(Clone)]
pub struct VolumeLun {
    shared: Arc<SharedVolume>,
    options: LunOptions,
}

/// The part of an open volume that all its views share.
pub(crate) struct SharedVolume {
    pool: Pool,
    guid: u64,
    current: RwLock<Current>,
    locks: RangeLocks,
    reservations: Reservations,
    subscribers: Mutex<Vec<Subscriber>>,
    /// Requests that wait for the intent log.
    log_waits: AtomicU64,
    /// The callback of the volume for a resize or its end; it is kept here, because the volume does
    /// not keep it.
    watcher: Arc<dyn Fn() + Send + Sync>,
}

type Subscriber = Weak<dyn Fn(LunEvent) + Send + Sync>;

/// The open volume, and what initiators know of it.
struct Current {
    volume: OpenVolume,
    /// Keeps the volume from being destroyed.
    _hold: DatasetHold,
    /// Its size in bytes at the last notice to initiators.
    size: u64,
    is_gone: bool,
}

/// The largest transfer that is fast, in bytes.
pub(crate) const MAX_OPTIMAL_TRANSFER: u32 = 1 << 20;

impl VolumeLun {
    /// Opens a volume by its full name, with reservations that were kept or none.
    pub fn open(
        pool: &Pool,
        name: &str,
        options: LunOptions,
        reservations: Reservations,
    ) -> Result<Self> {
        let opened = pool.volumes().open(name);
        let (volume, hold) = opened.map_err(|why| Error::Open { why: why.to_string() })?;
        options.check(volume.block_size())?;
        let (pool, guid, size) = (pool.clone(), volume.guid(), volume.size());
        let current = Current { volume: volume.clone(), _hold: hold, size, is_gone: false };
        let shared = Arc::new_cyclic(|weak: &Weak<SharedVolume>| {
            let weak = weak.clone();
            let watcher = move || {
                if let Some(shared) = weak.upgrade() {
                    shared.refresh();
                }
            };
            SharedVolume {
                pool,
                guid,
                current: RwLock::new(current),
                locks: RangeLocks::default(),
                reservations,
                subscribers: Mutex::default(),
                log_waits: AtomicU64::new(0),
                watcher: Arc::new(watcher),
            }
        });
        volume.watch(&shared.watcher);
        // it may have been resized before it was watched
        shared.refresh();
        Ok(Self { shared, options })
    }

    /// A view of a volume that is open already.
    pub(crate) fn view(shared: Arc<SharedVolume>, options: LunOptions) -> Result<Self> {
        options.check(shared.current.read().volume.block_size())?;
        Ok(Self { shared, options })
    }

    pub(crate) fn shared(&self) -> &Arc<SharedVolume> {
        &self.shared
    }

    /// Guid of the volume: a name for the unit that stays the same (NAA, EUI-64, serial number).
    pub fn guid(&self) -> u64 {
        self.shared.guid
    }

    fn check_range(&self, offset: u64, length: u64, size: u64) -> Result<Range<u64>> {
        ranges::check(self.options.block_size, (offset, length), size)
    }

    fn check_given_range(&self, range: &Range<u64>, size: u64) -> Result<Range<u64>> {
        ranges::check_given(self.options.block_size, range, size)
    }

    fn check_writable(&self) -> Result<()> {
        if self.options.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }
}

impl SharedVolume {
    /// Whether the volume was destroyed, or its pool exported.
    pub(crate) fn is_gone(&self) -> bool {
        self.volume().is_err()
    }

    /// The volume as it is now, opened again if it was rolled back.
    fn volume(&self) -> Result<OpenVolume> {
        {
            let current = self.current.read();
            if current.is_gone {
                return Err(Error::Gone);
            }
            if !current.volume.is_retired() {
                return Ok(current.volume.clone());
            }
        }
        self.refresh();
        let current = self.current.read();
        if current.is_gone { Err(Error::Gone) } else { Ok(current.volume.clone()) }
    }

    /// Compares the volume with the initiators' view, and notifies them.
    fn refresh(&self) {
        let events = {
            let mut current = self.current.write();
            let mut events = Vec::new();
            if current.is_gone {
                return;
            }
            if current.volume.is_retired() {
                if let Some((volume, hold)) = self.reopen() {
                    volume.watch(&self.watcher);
                    let (size, is_gone) = (current.size, false);
                    *current = Current { volume, _hold: hold, size, is_gone };
                    events.push(LunEvent::Reverted);
                } else {
                    current.is_gone = true;
                    events.push(LunEvent::Gone);
                }
            }
            let size = current.volume.size();
            if !current.is_gone && size != current.size {
                current.size = size;
                events.push(LunEvent::Resized { size });
            }
            events
        };
        let subscribers = self.subscribers.lock().clone();
        for subscriber in subscribers.iter().filter_map(Weak::upgrade) {
            for event in &events {
                subscriber(*event);
            }
        }
    }

    fn reopen(&self) -> Option<(OpenVolume, DatasetHold)> {
        let name = self.pool.datasets().name_by_guid(self.guid).ok()??;
        let (volume, hold) = self.pool.volumes().open(&name).ok()?;
        (volume.guid() == self.guid && !volume.is_retired()).then_some((volume, hold))
    }

    fn commit(&self, volume: &OpenVolume, durability: Durability) -> Result<()> {
        match durability {
            Durability::Cached => Ok(()),
            Durability::Durable => self.flush(volume),
        }
    }

    /// Waits for the intent log.
    fn flush(&self, volume: &OpenVolume) -> Result<()> {
        self.log_waits.fetch_add(1, SeqCst);
        let done = volume.flush();
        self.log_waits.fetch_sub(1, SeqCst);
        Ok(done?)
    }

    /// An error of a volume that was retired meanwhile means that it is gone, or was rolled back just now.
    fn explain(&self, volume: &OpenVolume, why: Error) -> Error {
        if !volume.is_retired() {
            return why;
        }
        // initiators repeat a request that was suspended, and find the volume that was opened again
        self.volume().err().unwrap_or(Error::Suspended)
    }

    /// Has a request done with the volume as it is now.
    fn run<T>(&self, work: impl FnOnce(&OpenVolume) -> Result<T>) -> Result<T> {
        let volume = self.volume()?;
        work(&volume).map_err(|why| self.explain(&volume, why))
    }
}

fn read_exact(volume: &OpenVolume, offset: u64, into: &mut [u8]) -> Result<()> {
    let count = volume.read(offset, into)?;
    if count == into.len() {
        return Ok(());
    }
    // it became smaller between the check and the read
    Err(Error::OutOfRange { end: offset + byte_count(into), size: volume.size() })
}

impl Lun for VolumeLun {
    fn geometry(&self) -> Geometry {
        let current = self.shared.current.read();
        let (block_size, physical) = (self.options.block_size, current.volume.block_size());
        Geometry {
            block_size,
            blocks: current.volume.size() / u64::from(block_size),
            physical_block_size: physical,
            optimal_transfer: (physical, MAX_OPTIMAL_TRANSFER.max(physical)),
            unmap_granularity: physical,
            is_read_only: self.options.read_only || current.volume.is_read_only(),
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.shared.run(|volume| {
            self.check_range(offset, byte_count(into), volume.size())?;
            read_exact(volume, offset, into)
        })
    }

    fn parts_in_memory(&self, offset: u64, length: usize) -> Option<MemoryParts> {
        let current = self.shared.current.try_read()?;
        if current.is_gone || current.volume.is_retired() {
            return None;
        }
        // the volume itself checks its present size
        let bytes = u64::try_from(length).ok()?;
        self.check_range(offset, bytes, current.size).ok()?;
        current.volume.parts_in_memory(offset, length)
    }

    fn write(&self, offset: u64, bytes: &[u8], durability: Durability) -> Result<()> {
        self.check_writable()?;
        self.shared.run(|volume| {
            let range = self.check_range(offset, byte_count(bytes), volume.size())?;
            let _lock = self.shared.locks.lock_shared(range);
            volume.write(offset, bytes)?;
            self.shared.commit(volume, durability)
        })
    }

    fn unmap(&self, range: Range<u64>) -> Result<()> {
        self.check_writable()?;
        self.shared.run(|volume| {
            let range = self.check_given_range(&range, volume.size())?;
            let _lock = self.shared.locks.lock_shared(range.clone());
            Ok(volume.discard(range)?)
        })
    }

    fn write_zeroes(&self, range: Range<u64>, durability: Durability) -> Result<()> {
        self.check_writable()?;
        self.shared.run(|volume| {
            let range = self.check_given_range(&range, volume.size())?;
            let _lock = self.shared.locks.lock_shared(range.clone());
            volume.write_zeros(range)?;
            self.shared.commit(volume, durability)
        })
    }

    fn flush(&self) -> Result<()> {
        self.shared.run(|volume| self.shared.flush(volume))
    }

    fn compare_and_write(
        &self,
        offset: u64,
        expected: &[u8],
        new: &[u8],
        durability: Durability,
    ) -> Result<Compared> {
        self.check_writable()?;
        if expected.len() != new.len() {
            return Err(Error::LengthMismatch);
        }
        self.shared.run(|volume| {
            let range = self.check_range(offset, byte_count(new), volume.size())?;
            let _lock = self.shared.locks.lock_exclusive(range);
            let mut found = vec![0; expected.len()];
            read_exact(volume, offset, &mut found)?;
            if let Some(at) = found.iter().zip(expected).position(|(one, other)| one != other) {
                return Ok(Compared::Differs { at });
            }
            volume.write(offset, new)?;
            self.shared.commit(volume, durability)?;
            Ok(Compared::Written)
        })
    }

    fn block_source(&self) -> Result<Option<BlockSource>> {
        Ok(Some(BlockSource::Volume(self.shared.volume()?)))
    }

    fn clone_blocks(&self, source: &BlockSource, from: Range<u64>, to: u64) -> Result<u64> {
        self.check_writable()?;
        self.shared.run(|volume| {
            let length = from.end.checked_sub(from.start).ok_or(Error::LengthMismatch)?;
            let range = self.check_range(to, length, volume.size())?;
            let _lock = self.shared.locks.lock_shared(range);
            Ok(volume.clone_blocks(source, from, to)?)
        })
    }

    fn settle(&self) -> Result<()> {
        self.shared.pool.sync().map_err(|why| Error::Medium { why: why.to_string() })
    }

    fn extent(&self, range: Range<u64>) -> Result<Extent> {
        self.shared.run(|volume| {
            let Range { start, end } = self.check_given_range(&range, volume.size())?;
            loop {
                // physical blocks are whole logical blocks, so both ends are aligned
                let data = volume.next_data(start)?.map_or(end, |data| data.clamp(start, end));
                if data > start || start == end {
                    return Ok(Extent { range: start..data, is_mapped: false });
                }
                let hole = volume.next_hole(start..end)?;
                if hole > start {
                    return Ok(Extent { range: start..hole, is_mapped: true });
                }
                // the range was freed, or the volume shrank, between the two questions
                self.check_given_range(&range, volume.size())?;
            }
        })
    }

    fn space(&self) -> Result<ThinSpace> {
        self.shared.volume()?;
        let gone = |why: engine::Error| Error::Medium { why: why.to_string() };
        let name = self
            .shared
            .pool
            .datasets()
            .name_by_guid(self.shared.guid)
            .map_err(gone)?
            .ok_or(Error::Gone)?;
        let found = self.shared.pool.datasets().space(&name);
        Ok(ThinSpace { used: found.referenced, available: found.available })
    }

    fn log_waits(&self) -> u64 {
        self.shared.log_waits.load(SeqCst)
    }

    fn waits_while_suspended(&self) -> bool {
        self.shared.pool.properties().has_failmode_wait()
    }

    fn reservations(&self) -> &Reservations {
        &self.shared.reservations
    }

    fn subscribe(&self, callback: &EventCallback) {
        let mut subscribers = self.shared.subscribers.lock();
        subscribers.retain(|known| known.strong_count() > 0);
        subscribers.push(Arc::downgrade(callback));
    }
}
