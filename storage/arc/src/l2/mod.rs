//! The second level of the read cache: drives that keep blocks of the pool as they are stored.
//!
//! ```text
//! a read that the cache in memory does not answer
//!  └ zio::Reader          reads here first (zio::SecondaryCache), verifies the pointer's checksum
//!    ├ index              which drive has the block, and where          (in memory, bounded)
//!    └ the pool's drives  if it is not here, or not right: what they give is offered
//! the thread that calls L2arc::feed at intervals
//!  └ pen                  writes what was offered behind the hand of a drive's ring, evicts
//!                         ahead of it, and keeps the log by which the cache is found again
//! ```
//!
//! The L2ARC never has the only copy of anything, and verifies every block that it reads. So a
//! device that fails is no longer used, and the pool works on. A freed block needs no notice: its
//! address and birth never identify another content. For the same reason the L2ARC takes only
//! blocks of transaction groups that are on the pool's drives: after a power cut another content
//! may be born at the same address and txg.

mod cache_device;
mod feed_queue;
mod index;
mod rebuild;
mod ring;
mod writer;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use device::{Device, buffer};
use ondisk::blkptr::Regular;
use parking_lot::{Mutex, RwLock};
use units::{Ashift, Guid, ObjsetId, Txg, Zbookmark};
use zio::SecondaryCache;

use crate::MemoryBudget;
use crate::memory_budget::MemoryReservation;
use cache_device::CacheDevice;
use feed_queue::{FeedQueue, QueuedBlock};
use index::{BlockKey, Index};

/// The share of the cache's memory that the index may use, and the share of the feed queue.
const INDEX_FRACTION: usize = 8;
const QUEUE_FRACTION: usize = 16;
/// More is never offered at once.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// The bytes that one request writes to a device.
const WRITE_CHUNK: usize = 4 << 20;

/// Which blocks of a dataset go to drives of the cache (the property secondarycache).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SecondaryCachePolicy {
    /// None.
    None,
    /// Metadata.
    Metadata,
    /// All.
    #[default]
    All,
}

/// How the second level does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct L2Stats {
    /// Blocks that it gave.
    pub hits: u64,
    /// Reads of blocks that it did not have, or had wrong.
    pub misses: u64,
    /// Bytes that were written to its drives.
    pub bytes_written: u64,
    /// Blocks that it could give now.
    pub blocks: u64,
}

/// How one of its drives is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct L2DeviceStats {
    /// Its guid.
    pub guid: Guid,
    /// Its path.
    pub name: String,
    /// It failed too often, and is left alone.
    pub is_failed: bool,
    /// How many times it could not be read.
    pub read_errors: u64,
    /// How many times it could not be written.
    pub write_errors: u64,
    /// The number of wrong blocks from it.
    pub checksum_errors: u64,
    /// Bytes for blocks.
    pub size: u64,
    /// Of these, in use.
    pub allocated: u64,
}

/// The second level of a pool's read cache.
pub struct L2arc {
    pool: Guid,
    /// The last group that is on the pool's drives.
    synced_txg: Box<dyn Fn() -> Txg + Send + Sync>,
    memory: MemoryBudget,
    reserve: Mutex<Option<MemoryReservation>>,
    devices: RwLock<Vec<Arc<CacheDevice>>>,
    /// Whether there are devices: every read checks this first.
    has_devices: AtomicBool,
    index: Mutex<Index>,
    feed_queue: Mutex<FeedQueue>,
    policies: RwLock<HashMap<ObjsetId, SecondaryCachePolicy>>,
    hits: AtomicU64,
    misses: AtomicU64,
    bytes_written: AtomicU64,
    next_id: AtomicU64,
    next_device: AtomicUsize,
}

impl std::fmt::Debug for L2arc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "L2arc({} drives)", self.devices.read().len())
    }
}

impl L2arc {
    /// The L2ARC of a pool, without devices yet. `settled` returns the last txg on the pool's
    /// drives; `memory` is the budget that it shares with the cache in memory.
    pub fn new(
        pool: Guid,
        memory: &MemoryBudget,
        settled: impl Fn() -> Txg + Send + Sync + 'static,
    ) -> Self {
        let offered = (memory.bytes() / QUEUE_FRACTION).min(MAX_QUEUED_BYTES);
        Self {
            pool,
            synced_txg: Box::new(settled),
            memory: memory.clone(),
            reserve: Mutex::default(),
            devices: RwLock::default(),
            has_devices: AtomicBool::default(),
            index: Mutex::default(),
            feed_queue: Mutex::new(FeedQueue::with_limit(offered)),
            policies: RwLock::default(),
            hits: AtomicU64::default(),
            misses: AtomicU64::default(),
            bytes_written: AtomicU64::default(),
            next_id: AtomicU64::default(),
            next_device: AtomicUsize::default(),
        }
    }

    /// Adds a device. The next [`L2arc::feed`] examines its content. Returns false if it is too
    /// small.
    pub fn add_device(&self, guid: Guid, ashift: Ashift, device: Arc<dyn Device>) -> bool {
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        let Some(drive) = CacheDevice::new(number, guid, ashift, device) else { return false };
        let mut drives = self.devices.write();
        drives.push(Arc::new(drive));
        self.has_devices.store(true, Ordering::Release);
        let mut reserve = self.reserve.lock();
        reserve
            .get_or_insert_with(|| self.memory.reserve())
            .set_bytes(self.feed_queue.lock().limit());
        true
    }

    /// Lets a drive go: nothing is read from it or written to it any more. Gives the device.
    pub fn remove_device(&self, guid: Guid) -> Option<Arc<dyn Device>> {
        let gone = {
            let mut drives = self.devices.write();
            let at = drives.iter().position(|drive| drive.guid == guid)?;
            let gone = drives.remove(at);
            self.has_devices.store(!drives.is_empty(), Ordering::Release);
            gone
        };
        // its writer has finished
        gone.disable();
        self.index.lock().remove_device(gone.id);
        if !self.has_devices.load(Ordering::Acquire) {
            self.feed_queue.lock().drain_up_to(usize::MAX);
            *self.reserve.lock() = None;
        }
        Some(Arc::clone(&gone.device))
    }

    /// Lets all drives go.
    pub fn close(&self) {
        let drives: Vec<Guid> = self.devices.read().iter().map(|drive| drive.guid).collect();
        for guid in drives {
            self.remove_device(guid);
        }
    }

    /// Sets which blocks of a dataset it may hold (`secondarycache`).
    pub fn set_policy(&self, objset: ObjsetId, kept: SecondaryCachePolicy) {
        let mut all = self.policies.write();
        if kept == SecondaryCachePolicy::All {
            all.remove(&objset);
        } else {
            all.insert(objset, kept);
        }
    }

    /// Clears the error counts of one device or all; failed devices are used again.
    pub fn clear_errors(&self, only: Option<Guid>) {
        let drives = self.devices.read();
        let wanted = drives.iter().filter(|drive| only.is_none_or(|guid| drive.guid == guid));
        wanted.for_each(|drive| drive.clear_errors());
    }

    /// Whether there is any drive.
    pub fn has_devices(&self) -> bool {
        self.has_devices.load(Ordering::Acquire)
    }

    /// Whether a drive is not full yet, so that more may be written at once.
    pub fn is_warming_up(&self) -> bool {
        self.devices.read().iter().any(|drive| drive.is_warming_up())
    }

    /// How it does.
    pub fn stats(&self) -> L2Stats {
        L2Stats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            blocks: self.index.lock().len(),
        }
    }

    /// How its drives are.
    pub fn device_stats(&self) -> Vec<L2DeviceStats> {
        let drives = self.devices.read().clone();
        drives.iter().map(|drive| drive.stats(self.index.lock().bytes_on(drive.id))).collect()
    }

    /// Its drives, by their guids.
    pub fn devices(&self) -> Vec<(Guid, Arc<dyn Device>)> {
        let drives = self.devices.read();
        drives.iter().map(|drive| (drive.guid, Arc::clone(&drive.device))).collect()
    }

    /// Examines the content of new devices, and writes up to `budget` bytes of the queue to the
    /// next device. Returns the bytes written.
    pub fn feed(&self, budget: usize) -> usize {
        let drives = self.devices.read().clone();
        let settled = (self.synced_txg)();
        for drive in drives.iter().filter(|drive| drive.is_usable()) {
            rebuild::rebuild_index(drive, self.pool, settled, &self.index, self.max_index_memory());
        }
        let usable: Vec<_> = drives.iter().filter(|drive| drive.is_usable()).collect();
        let turn = self.next_device.fetch_add(1, Ordering::Relaxed).checked_rem(usable.len());
        let Some(drive) = turn.and_then(|turn| usable.get(turn)) else { return 0 };
        let mut written = 0;
        let budget = budget.min(drive.max_write_bytes());
        while written < budget && drive.is_usable() {
            let offers = self.feed_queue.lock().drain_up_to(WRITE_CHUNK.min(budget - written));
            if offers.is_empty() {
                break;
            }
            written += self.write_to_device(drive, &offers);
            for offer in offers {
                buffer::recycle(offer.stored);
            }
        }
        self.bytes_written.fetch_add(written as u64, Ordering::Relaxed);
        written
    }

    fn write_to_device(&self, drive: &CacheDevice, offers: &[QueuedBlock]) -> usize {
        let evict = |range| self.index.lock().evict_range(drive.id, &range);
        // locked until the index has the blocks: removal of the device waits for that
        let mut pen = drive.writer.lock();
        let Some(places) = pen.write_blocks(drive, self.pool, offers, evict) else {
            if !drive.is_usable() {
                self.index.lock().remove_device(drive.id);
            }
            return 0;
        };
        assert_eq!(places.len(), offers.len(), "each written block has its place");
        let mut index = self.index.lock();
        for (offer, at) in offers.iter().zip(places) {
            index.insert(drive.id, offer.key, at, offer.entry.psize);
        }
        index.shrink(self.max_index_memory());
        let used = index.memory_used();
        drop((index, pen));
        if let Some(reserve) = &*self.reserve.lock() {
            reserve.set_bytes(used + self.feed_queue.lock().limit());
        }
        offers.iter().map(|offer| offer.stored.len()).sum()
    }

    fn max_index_memory(&self) -> usize {
        self.memory.bytes() / INDEX_FRACTION
    }

    /// The block's stored bytes, read from the address in the index.
    fn read_cached(&self, block: &Regular, judge: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let name = BlockKey::from_block(block)?;
        let spot = self.index.lock().find(name)?;
        let forget = || self.index.lock().remove(name, spot);
        let drives = self.devices.read();
        let drive = drives.iter().find(|drive| drive.id == spot.device_id).cloned();
        drop(drives);
        let Some(drive) = drive.filter(|drive| drive.is_usable() && spot.size == block.psize)
        else {
            forget();
            return None;
        };
        let mut bytes = buffer::alloc(spot.size as usize);
        if drive.device.read_at(spot.offset, &mut bytes).is_err() {
            forget();
            if drive.record_read_error() {
                self.index.lock().remove_device(drive.id);
            }
        } else if judge(&bytes) {
            return Some(bytes);
        } else if forget() {
            drive.record_checksum_error();
        }
        // after an eviction meanwhile the bytes may be those of another block
        buffer::recycle(bytes);
        None
    }
}

impl SecondaryCache for L2arc {
    fn fetch(&self, block: &Regular, judge: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        if !self.has_devices() {
            return None;
        }
        let found = self.read_cached(block, judge);
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    fn offer(&self, block: &Regular, zbookmark: Zbookmark, stored: &[u8]) {
        if !self.has_devices() || block.birth_physical > (self.synced_txg)() {
            return;
        }
        let kept = self.policies.read().get(&zbookmark.objset).copied().unwrap_or_default();
        let metadata = block.level.get() > 0 || block.kind.is_metadata();
        if kept == SecondaryCachePolicy::All || (kept == SecondaryCachePolicy::Metadata && metadata)
        {
            let Some(name) = BlockKey::from_block(block) else { return };
            // copied while others may offer theirs
            if self.feed_queue.lock().accepts(name, stored.len())
                && let Some(offer) = QueuedBlock::new(block, metadata, stored)
            {
                self.feed_queue.lock().push(offer);
            }
        }
    }
}

#[cfg(test)]
mod tests;
