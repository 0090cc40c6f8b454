//! The second level of the read cache: drives that keep blocks of the pool as they are stored.
//!
//! ```text
//! a read that the cache in memory does not answer
//!  └ zio::Reader          asks here first (zio::Aside), judges by the pointer's checksum
//!    ├ index              which drive has the block, and where          (in memory, bounded)
//!    └ the pool's drives  if it is not here, or not right: what they give is offered
//! whoever calls L2arc::feed, now and then
//!  └ pen                  writes what was offered behind the hand of a drive's ring, evicts
//!                         ahead of it, and keeps the log by which the cache is found again
//! ```
//!
//! Nothing here is ever the only copy of anything, and nothing that comes from here is believed.
//! So a drive that fails is left alone, and the pool goes on. A freed block need not be told: its
//! address and birth never name another content. For the same reason only blocks of transaction
//! groups that are on the pool's drives are taken: after a power cut another content may be born
//! in the same place and group.

mod drive;
mod index;
mod offers;
mod pen;
mod restore;
mod ring;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use device::{Device, buffer};
use ondisk::blkptr::Regular;
use parking_lot::{Mutex, RwLock};
use units::{Ashift, Guid, ObjsetId, Place, Txg};
use zio::Aside;

use crate::Memory;
use crate::memory::Reserve;
use drive::Drive;
use index::{Index, Name};
use offers::{Offer, Offers};

/// The index has this part of the cache's memory at most, and what is offered that part.
const INDEX_PART: usize = 8;
const OFFERS_PART: usize = 16;
/// More is never offered at once.
const MOST_OFFERED: usize = 64 << 20;
/// So much is written to a drive in one request.
const STRETCH: usize = 4 << 20;

/// Which blocks of a dataset go to drives of the cache (the property secondarycache).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kept {
    /// None.
    Nothing,
    /// Metadata.
    Metadata,
    /// All.
    #[default]
    All,
}

/// How the second level does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct L2Counts {
    /// Blocks that it gave.
    pub hits: u64,
    /// Blocks that it was asked for and did not have, or not right.
    pub misses: u64,
    /// Bytes that were written to its drives.
    pub written: u64,
    /// Blocks that it could give now.
    pub blocks: u64,
}

/// How one of its drives is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct L2Drive {
    /// Its identity.
    pub guid: Guid,
    /// Its path.
    pub name: String,
    /// It failed too often, and is left alone.
    pub is_failed: bool,
    /// How many times it could not be read.
    pub read_errors: u64,
    /// How many times it could not be written.
    pub write_errors: u64,
    /// How many times what it gave was wrong.
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
    settled: Box<dyn Fn() -> Txg + Send + Sync>,
    memory: Memory,
    reserve: Mutex<Option<Reserve>>,
    drives: RwLock<Vec<Arc<Drive>>>,
    /// Whether there are drives: what all that are read are asked first.
    in_use: AtomicBool,
    index: Mutex<Index>,
    offers: Mutex<Offers>,
    kept: RwLock<HashMap<ObjsetId, Kept>>,
    hits: AtomicU64,
    misses: AtomicU64,
    written: AtomicU64,
    numbers: AtomicU64,
    turn: AtomicUsize,
}

impl std::fmt::Debug for L2arc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "L2arc({} drives)", self.drives.read().len())
    }
}

impl L2arc {
    /// That of a pool, with no drive yet. `settled` says which group is the last on the pool's
    /// drives; `memory` is what the cache in memory has its share of, too.
    pub fn new(
        pool: Guid,
        memory: &Memory,
        settled: impl Fn() -> Txg + Send + Sync + 'static,
    ) -> Self {
        let offered = (memory.bytes() / OFFERS_PART).min(MOST_OFFERED);
        Self {
            pool,
            settled: Box::new(settled),
            memory: memory.clone(),
            reserve: Mutex::default(),
            drives: RwLock::default(),
            in_use: AtomicBool::default(),
            index: Mutex::default(),
            offers: Mutex::new(Offers::of(offered)),
            kept: RwLock::default(),
            hits: AtomicU64::default(),
            misses: AtomicU64::default(),
            written: AtomicU64::default(),
            numbers: AtomicU64::default(),
            turn: AtomicUsize::default(),
        }
    }

    /// Has a drive take part. What is on it is looked at by the next [`L2arc::feed`]. False: it is
    /// too small.
    pub fn add(&self, guid: Guid, ashift: Ashift, device: Arc<dyn Device>) -> bool {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let Some(drive) = Drive::new(number, guid, ashift, device) else { return false };
        let mut drives = self.drives.write();
        drives.push(Arc::new(drive));
        self.in_use.store(true, Ordering::Release);
        let mut reserve = self.reserve.lock();
        reserve.get_or_insert_with(|| self.memory.reserve()).set(self.offers.lock().limit());
        true
    }

    /// Lets a drive go: nothing is read from it or written to it any more. Gives the device.
    pub fn remove(&self, guid: Guid) -> Option<Arc<dyn Device>> {
        let gone = {
            let mut drives = self.drives.write();
            let at = drives.iter().position(|drive| drive.guid == guid)?;
            let gone = drives.remove(at);
            self.in_use.store(!drives.is_empty(), Ordering::Release);
            gone
        };
        // whoever writes to it has done so
        gone.retire();
        self.index.lock().forget_drive(gone.number);
        if !self.in_use.load(Ordering::Acquire) {
            self.offers.lock().take(usize::MAX);
            *self.reserve.lock() = None;
        }
        Some(Arc::clone(&gone.device))
    }

    /// Lets all drives go.
    pub fn close(&self) {
        let drives: Vec<Guid> = self.drives.read().iter().map(|drive| drive.guid).collect();
        for guid in drives {
            self.remove(guid);
        }
    }

    /// Says which blocks of a dataset it may take.
    pub fn set_kept(&self, objset: ObjsetId, kept: Kept) {
        let mut all = self.kept.write();
        if kept == Kept::All {
            all.remove(&objset);
        } else {
            all.insert(objset, kept);
        }
    }

    /// Counts errors anew, of one drive or all, and has them take part again if they failed.
    pub fn clear(&self, only: Option<Guid>) {
        let drives = self.drives.read();
        let wanted = drives.iter().filter(|drive| only.is_none_or(|guid| drive.guid == guid));
        wanted.for_each(|drive| drive.clear());
    }

    /// Whether there is any drive.
    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Acquire)
    }

    /// Whether a drive is not full yet, so that more may be written at once.
    pub fn is_cold(&self) -> bool {
        self.drives.read().iter().any(|drive| drive.is_cold())
    }

    /// How it does.
    pub fn counts(&self) -> L2Counts {
        L2Counts {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            blocks: self.index.lock().len(),
        }
    }

    /// How its drives are.
    pub fn drives(&self) -> Vec<L2Drive> {
        let drives = self.drives.read().clone();
        drives
            .iter()
            .map(|drive| drive.describe(self.index.lock().bytes_on(drive.number)))
            .collect()
    }

    /// Looks at what is on new drives, and writes up to `budget` bytes of what was offered to the
    /// drive whose turn it is. Gives how many.
    pub fn feed(&self, budget: usize) -> usize {
        let drives = self.drives.read().clone();
        let settled = (self.settled)();
        for drive in drives.iter().filter(|drive| drive.is_usable()) {
            restore::restore(drive, self.pool, settled, &self.index, self.most_indexed());
        }
        let usable: Vec<_> = drives.iter().filter(|drive| drive.is_usable()).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed).checked_rem(usable.len());
        let Some(drive) = turn.and_then(|turn| usable.get(turn)) else { return 0 };
        let mut written = 0;
        let budget = budget.min(drive.most_at_once());
        while written < budget && drive.is_usable() {
            let offers = self.offers.lock().take(STRETCH.min(budget - written));
            if offers.is_empty() {
                break;
            }
            written += self.write(drive, &offers);
            for offer in offers {
                buffer::give(offer.stored);
            }
        }
        self.written.fetch_add(written as u64, Ordering::Relaxed);
        written
    }

    fn write(&self, drive: &Drive, offers: &[Offer]) -> usize {
        let evict = |range| self.index.lock().evict(drive.number, &range);
        // held until the index knows: whoever lets the drive go waits for that
        let mut pen = drive.pen.lock();
        let Some(places) = pen.write(drive, self.pool, offers, evict) else {
            if !drive.is_usable() {
                self.index.lock().forget_drive(drive.number);
            }
            return 0;
        };
        let mut index = self.index.lock();
        for (offer, at) in offers.iter().zip(places) {
            index.put(drive.number, offer.name, at, offer.entry.psize);
        }
        index.shrink(self.most_indexed());
        let used = index.memory();
        drop((index, pen));
        if let Some(reserve) = &*self.reserve.lock() {
            reserve.set(used + self.offers.lock().limit());
        }
        offers.iter().map(|offer| offer.stored.len()).sum()
    }

    fn most_indexed(&self) -> usize {
        self.memory.bytes() / INDEX_PART
    }

    /// The block's stored bytes, from where the index says that they are.
    fn find(&self, block: &Regular, judge: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let name = Name::of(block)?;
        let spot = self.index.lock().find(name)?;
        let forget = || self.index.lock().forget(name, spot);
        let drives = self.drives.read();
        let drive = drives.iter().find(|drive| drive.number == spot.drive).cloned();
        drop(drives);
        let Some(drive) = drive.filter(|drive| drive.is_usable() && spot.size == block.psize)
        else {
            forget();
            return None;
        };
        let mut bytes = buffer::take(spot.size as usize);
        if drive.device.read_at(spot.at, &mut bytes).is_err() {
            forget();
            if drive.note_read_error() {
                self.index.lock().forget_drive(drive.number);
            }
        } else if judge(&bytes) {
            return Some(bytes);
        } else if forget() {
            drive.note_wrong();
        }
        // if it was evicted meanwhile, what was read may well be another block
        buffer::give(bytes);
        None
    }
}

impl Aside for L2arc {
    fn fetch(&self, block: &Regular, judge: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        if !self.is_in_use() {
            return None;
        }
        let found = self.find(block, judge);
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    fn offer(&self, block: &Regular, place: Place, stored: &[u8]) {
        if !self.is_in_use() || block.birth_physical > (self.settled)() {
            return;
        }
        let kept = self.kept.read().get(&place.objset).copied().unwrap_or_default();
        let metadata = block.level.get() > 0 || block.kind.is_metadata();
        if kept == Kept::All || (kept == Kept::Metadata && metadata) {
            let Some(name) = Name::of(block) else { return };
            // copied while others may offer theirs
            if self.offers.lock().wants(name, stored.len())
                && let Some(offer) = Offer::new(block, metadata, stored)
            {
                self.offers.lock().add(offer);
            }
        }
    }
}

#[cfg(test)]
mod tests;
