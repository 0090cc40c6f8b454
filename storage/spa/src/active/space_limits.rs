//! What may still be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dsl::write::{SpaceLimit, SyncTaskContext};
use lock::{Mutex, MutexGuard, rank};
use metaslab::Class;
use ondisk::Blkptr;
use txg::Tx;
use units::{MinusOrZero, ObjsetId, Txg, VdevId};
use zio::Source;

use super::{ActivePool, deflate};
use crate::{Error, Pool, capacity};

/// No block has more copies.
const MAX_COPIES: u64 = 3;
/// No vdev has more drives for parity.
const MAX_PARITY: u64 = 3;
/// No block is smaller.
const MIN_BLOCK_SIZE: u64 = 512;
/// As much again is for metadata.
const METADATA_FACTOR: u64 = 2;

/// The queue of writers that wait for the txgs after which freed space can be used again.
#[derive(Default)]
pub(super) struct SpaceQueue {
    /// Held by the writer whose turn it is.
    turn: Mutex<(), { rank::SPACE_TURN }>,
    waiting: AtomicUsize,
}

/// The turn of a writer that waits for space. Other writers of the pool that need space wait until it is dropped.
pub struct SpaceTurn<'a> {
    queue: &'a SpaceQueue,
    _turn: MutexGuard<'a, ()>,
}

impl Drop for SpaceTurn<'_> {
    fn drop(&mut self) {
        let before = self.queue.waiting.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0 || std::thread::panicking(), "a writer leaves the queue that it is in");
    }
}

/// How many times its size each copy of what waits to be written may take: each sector has a parity of
/// its own. Were that too little, a group could be too large for the pool: it could not be written at
/// all, and what waits were lost. As it is too much, more groups are written while a pool is nearly
/// full.
pub(super) fn asize_inflation(pool: &Pool) -> u64 {
    let tops = pool.config.tree.iter().flat_map(|root| &root.children);
    let parity = tops.filter_map(|top| top.nparity).max().unwrap_or(0).min(MAX_PARITY);
    (parity + 1) * METADATA_FACTOR
}

/// Bytes that a block takes at least, wherever it goes, without its parity: a sector, or in a dRAID a row of its
/// group.
pub(super) fn min_allocation(pool: &Pool) -> u64 {
    let tops = pool.config.tree.iter().flat_map(|root| &root.children);
    let least = tops.filter_map(|top| {
        let with_parity = pool.tree().asize(top.id, MIN_BLOCK_SIZE, Txg::ZERO)?;
        let parity = top.nparity.unwrap_or(0).min(MAX_PARITY);
        Some(with_parity.div_ceil(parity + 1))
    });
    least.max().unwrap_or(0).max(MIN_BLOCK_SIZE)
}

impl ActivePool {
    /// Bytes that datasets may use together, as of the last group that is on the drives.
    pub fn usable_space(&self) -> u64 {
        let all = self.base_space.load(Ordering::Relaxed);
        all.saturating_add(self.saved_space.load(Ordering::Relaxed))
            .minus_or_zero(self.space.allocator().all_checkpointed_bytes())
    }

    /// Takes over what follows from the shapes of the top-level vdevs, after they changed.
    pub(super) fn refresh_space_limits(&self) -> Result<(), Error> {
        let (_pin, pool) = self.synced_pool()?;
        let (bare, saved) = (capacity::base_space(&pool), capacity::saved_space(&pool));
        self.writer.set_rounding(deflate::rounding(&pool));
        self.txgs.set_sector_size(min_allocation(&pool));
        self.asize_inflation.store(asize_inflation(&pool), Ordering::Relaxed);
        self.base_space.store(bare, Ordering::Relaxed);
        self.saved_space.store(saved, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes in all vdevs but those for the intent log, and how many of them are in use, parity
    /// included. The metaslabs that data vdevs keep for the log count.
    pub fn space_usage(&self) -> (u64, u64) {
        let counted = Class::ALL.into_iter().filter(|class| *class != Class::Log);
        let usages = counted.map(|class| self.space.allocator().class_usage(class));
        usages.fold((0, 0), |(size, used), usage| (size + usage.capacity, used + usage.allocated))
    }

    /// What one top-level vdev is for, and the same of it.
    pub fn vdev_space_usage(&self, vdev: VdevId) -> (Class, u64, u64) {
        let usage = self.space.allocator().vdev_usage(vdev).unwrap_or_default();
        let class = self.space.allocator().vdev_class(vdev).unwrap_or(Class::Normal);
        (class, usage.capacity, usage.allocated)
    }

    /// How broken up the free space of data vdevs is, and that of one top-level vdev: 0 to 100; none
    /// if that is not known.
    pub fn fragmentation(&self, vdev: Option<VdevId>) -> Result<Option<u64>, Error> {
        let _pin = self.pin();
        match vdev {
            Some(vdev) => self.space.vdev_fragmentation(vdev),
            None => self.space.class_fragmentation(Class::Normal),
        }
    }

    /// What deduplication stores: [`crate::capacity::dedup_histogram`].
    pub fn dedup_histogram(&self) -> Vec<ondisk::dedup::Sums> {
        capacity::dedup_histogram(&self.synced_mos(), &self.tree)
    }

    /// Bytes on the drives of the deduplication tables and their logs.
    pub fn dedup_table_bytes(&self) -> u64 {
        capacity::dedup_table_bytes(&self.synced_mos())
    }

    /// Limits the bytes of the deduplication tables, by the value of the pool's property `dedup_table_quota`: 0 is none,
    /// the largest number automatic. At the quota new blocks are written as ordinary ones.
    pub fn set_dedup_table_quota(&self, stored: u64) {
        self.block_refs.set_dedup_quota(&self.synced_mos(), stored);
    }

    /// Whether so many bytes more have room, with all that waits to be written and what is kept
    /// back for frees.
    pub fn has_space(&self, bytes: u64) -> bool {
        let inflation = self.asize_inflation.load(Ordering::Relaxed);
        // a request may be of any size
        let wanted =
            (u128::from(bytes) + u128::from(self.txgs.dirty_bytes())) * u128::from(inflation);
        let most = wanted * u128::from(MAX_COPIES);
        let loaded = units::narrow(most.min(u64::MAX.into()));
        // Rule: the maps are loaded before the answer. A writer that got space must not find in the sync that no
        // map of it can be read: the txg would fail with its acknowledged change.
        self.space.allocator().ensure_loaded_free(Class::Normal, loaded, self.txgs.synced_txg());
        let usage = self.space.allocator().class_usage(Class::Normal);
        let kept = (usage.capacity >> 5).clamp(8 << 20, 128 << 30);
        // Rule: deferred space counts as taken. It becomes free after two txgs (W1), and this txg needs space of
        // its own: one that does not fit cannot be written at all.
        let taken = (usage.allocated + usage.deferred) + kept;
        let left = u128::from(usage.capacity.minus_or_zero(taken + usage.unreadable));
        // Most pools have space for any number of copies, and the datasets need not be looked at.
        left >= most || left >= wanted * u128::from(self.max_copies())
    }

    /// Whether a writer waits for space. Writers that come now must not take the space that it waits for.
    pub fn has_space_waiters(&self) -> bool {
        self.space_queue.waiting.load(Ordering::Acquire) > 0
    }

    /// Waits for the turn to wait for space. The caller must hold no transaction.
    pub fn wait_for_space_turn(&self) -> SpaceTurn<'_> {
        // Rule: the writer is counted before it waits for its turn. Writers that come later see the count and do
        // not take the space that the txgs free meanwhile.
        let queue = &self.space_queue;
        queue.waiting.fetch_add(1, Ordering::AcqRel);
        SpaceTurn { queue, _turn: queue.turn.lock() }
    }

    /// The most copies that a dataset in use has of its data.
    fn max_copies(&self) -> u64 {
        let sets = self.open_datasets.all();
        let copies = sets.iter().map(|set| u64::from(set.settings().copies));
        copies.max().unwrap_or(1)
    }

    /// Has what was freed used again as soon as it can be: who keeps it gives it up.
    pub fn reclaim_freed_space(&self) {
        self.space.allocator().wait_for_pins();
    }

    /// Whether there may be more room when what waits has been written: it is guessed too high,
    /// and what was freed can be used again after some groups only.
    pub fn can_gain_space(&self) -> bool {
        let deferred = self.space.allocator().class_usage(Class::Normal).deferred;
        deferred > 0 || self.txgs.unsynced_bytes() > 0
    }

    /// What may still be written to a dataset by quotas and reservations, as of the last group
    /// that is on the drives.
    pub fn dataset_space(&self, dataset: ObjsetId) -> Result<SpaceLimit, Error> {
        let mos = self.synced_mos();
        let tx = Tx::syncing(self.txgs.synced_txg());
        let raw: Arc<dyn Source> = Arc::clone(&self.cache) as Arc<dyn Source>;
        let change = SyncTaskContext {
            mos: &mos,
            tx: &tx,
            pool: &self.name,
            version: self.uberblock.read().version,
            now: (self.environment.now)(),
            usable_space: self.usable_space(),
            raw_source: &raw,
            random: &|| 0,
            free_block: &|_: &Blkptr| {},
            mark_obsolete: &|_| {},
            free_log: &|_, _| {},
            dsize: &|_| 0,
            dataset_event: &|_| {},
        };
        Ok(dsl::write::space_limit(&change, dataset)?)
    }
}
