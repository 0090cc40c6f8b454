//! Blocks that several pointers share: the tables of clones and of dedup, asked while a group is
//! written, and written with it.
//!
//! A pointer to a deduplicated block that the table does not know (it was pruned there) is to a
//! block like any other; so is one to a set of copies that is not in the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dmu::Objset;
use dsl::write::SyncTaskContext;
use lock::{Mutex, rank};
use ondisk::blkptr::Regular;
use ondisk::dedup::{Copies, DedupKey, DedupValue, Shape};
use ondisk::feature::Feature;
use ondisk::{Blkptr, Dva};
use units::{MinusOrZero, Txg};
use vdev::VdevTree;
use zio::{DedupLookup, DedupMatch, FreeOutcome};

use super::deflate::{bp_dsize, dva_dsize};
use super::{ActivePool, Environment};
use crate::capacity::dedup_table_bytes;
use crate::clones::{CloneTables, ClonedBlock};
use crate::dedup::DedupTables;
use crate::features::{self, RefcountChange};
use crate::{Error, Pool, PoolDirectory};

const BLOCK_CLONING: &str = "com.fudosecurity:block_cloning";
const FAST_DEDUP: &str = "com.klarasystems:fast_dedup";
const DEDUP_TABLE_QUOTA: &[u8] = b"dedup_table_quota";
/// The tables may take any number of bytes.
const NO_QUOTA: u64 = u64::MAX;

/// Who knows of a pool's shared blocks.
pub(crate) struct BlockRefs {
    tree: Arc<VdevTree>,
    clones: CloneTables,
    dedup: DedupTables,
    /// Blocks may be cloned (block_cloning).
    can_clone: bool,
    environment: Environment,
    /// Bytes that the tables of dedup may take; `u64::MAX`: any number.
    dedup_quota: AtomicU64,
    /// Bytes that they took at the last look. Only kept where there is a quota.
    dedup_bytes: AtomicU64,
    /// Held while a block of dedup is looked up and changed.
    dedup_lock: Mutex<(), { rank::DEDUP }>,
    /// Why a table could not be asked. Until then nothing was given up that may be shared; the
    /// group must not be finished.
    deferred_error: Mutex<Option<Error>, { rank::DEFERRED_ERROR }>,
}

impl BlockRefs {
    /// What the pool's directory tells.
    pub(crate) fn load(pool: &Pool, mos: &Objset, world: &Environment) -> Result<Self, Error> {
        let tops = pool.config.tree.iter().flat_map(|root| &root.children);
        let has = |guid| pool.features.iter().any(|feature| feature.guid == guid);
        let quota = stored_dedup_quota(mos)?;
        Ok(Self {
            tree: Arc::clone(&pool.tree),
            clones: CloneTables::load(mos, tops.map(|top| top.id))?,
            dedup: DedupTables::load(mos, has(FAST_DEDUP))?,
            can_clone: has(BLOCK_CLONING),
            environment: world.clone(),
            dedup_quota: AtomicU64::new(quota),
            dedup_bytes: AtomicU64::new(if quota == NO_QUOTA { 0 } else { dedup_table_bytes(mos) }),
            dedup_lock: Mutex::new(()),
            deferred_error: Mutex::default(),
        })
    }

    /// Writes what has changed into the tables.
    pub(crate) fn sync(&self, change: &SyncTaskContext<'_>) -> Result<(), Error> {
        if let Some(trouble) = self.deferred_error.lock().take() {
            return Err(trouble);
        }
        let mut random = || (change.random)();
        let size_of = |dva: &Dva| dva_dsize(&self.tree, *dva);
        if self.dedup_quota.load(Relaxed) != NO_QUOTA {
            self.dedup_bytes.store(dedup_table_bytes(change.mos), Relaxed);
        }
        let clones = self.clones.sync(change.tx, &mut random)?;
        let dedup = self.dedup.sync(change.tx, &size_of, &mut random)?;
        for (guid, more) in [(BLOCK_CLONING, clones), (FAST_DEDUP, dedup)] {
            if more != 0 {
                features::update_refcount(
                    change.mos,
                    change.tx,
                    guid,
                    RefcountChange::Delta(more),
                )?;
            }
        }
        Ok(())
    }

    /// Sets the quota of the tables of dedup, as the pool's property has it.
    pub(super) fn set_dedup_quota(&self, mos: &Objset, stored: u64) {
        self.dedup_bytes.store(dedup_table_bytes(mos), Relaxed);
        self.dedup_quota.store(quota_bytes(stored), Relaxed);
    }

    /// Whether the tables of dedup may not grow.
    fn is_over_dedup_quota(&self) -> bool {
        let quota = self.dedup_quota.load(Relaxed);
        quota != NO_QUOTA && self.dedup_bytes.load(Relaxed) >= quota
    }

    /// Bytes that blocks with more than one reference save, by the tables as the last group left them.
    pub(super) fn saved_bytes(&self) -> u64 {
        self.clones.space_totals().1.saturating_add(self.dedup.saved_bytes())
    }

    fn defer_error<T>(&self, result: Result<T, Error>, otherwise: T) -> T {
        result.unwrap_or_else(|error| {
            self.deferred_error.lock().get_or_insert(error);
            otherwise
        })
    }

    /// The block as the table of clones knows it.
    fn cloned_block(&self, block: &Regular) -> Option<ClonedBlock> {
        let first = block.dvas[0]?;
        let size = bp_dsize(&self.tree, &Blkptr::Regular(Box::new(*block)));
        Some(ClonedBlock { vdev: first.vdev, offset: first.offset, size })
    }

    /// Whether there are references to a block beyond the first.
    pub(super) fn is_cloned(&self, block: &Regular) -> Result<bool, Error> {
        match self.cloned_block(block) {
            Some(cloned) => Ok(self.clones.references(&cloned)? > 0),
            None => Ok(false),
        }
    }

    fn release_clone(&self, block: &Regular) -> Result<FreeOutcome, Error> {
        if let Some(cloned) = self.cloned_block(block)
            && self.clones.release_reference(&cloned)?
        {
            return Ok(FreeOutcome::StillReferenced);
        }
        Ok(FreeOutcome::Free(block.dvas))
    }

    fn release_dedup(&self, block: &Regular) -> Result<Option<FreeOutcome>, Error> {
        let _turn = self.dedup_lock.lock();
        let key = DedupKey::from_block(block);
        let Some(mut value) = self.dedup.lookup(block.checksum, &key)? else { return Ok(None) };
        let Some(set) = copies_of(&mut value, block) else { return Ok(None) };
        set.references = set.references.minus_or_zero(1);
        let mut fate = FreeOutcome::StillReferenced;
        if set.references == 0 {
            let [first, second, third] = set.dvas;
            fate = FreeOutcome::Free([first, second, if key.encrypted { None } else { third }]);
            *set = Copies::default();
        }
        self.dedup.update(block.checksum, &key, value)?;
        Ok(Some(fate))
    }

    fn try_find_duplicate(&self, block: &Regular, copies: u8) -> Result<DedupLookup, Error> {
        let _turn = self.dedup_lock.lock();
        let key = DedupKey::from_block(block);
        let Some(mut value) = self.dedup.lookup(block.checksum, &key)? else {
            return Ok(DedupLookup::NotFound);
        };
        let flat = matches!(value, DedupValue::Flat { .. });
        let Some(set) = copies_slot(&mut value, copies) else { return Ok(DedupLookup::Unusable) };
        if set.birth.is_zero() || set.references == 0 {
            return Ok(if flat { DedupLookup::Unusable } else { DedupLookup::NotFound });
        }
        let [first, second, third] = set.dvas;
        let dvas = [first, second, if key.encrypted { None } else { third }];
        // the addresses of one in pieces do not tell how often its content is there
        let in_pieces = dvas.iter().flatten().any(|dva| dva.gang);
        if dvas.iter().flatten().count() < usize::from(copies)
            || (in_pieces && copies > 1)
            || (key.encrypted && set.third_dva_words != third_dva_words(block))
        {
            return Ok(DedupLookup::Unusable);
        }
        set.references = set.references.saturating_add(1);
        let known = DedupMatch { dvas, birth: set.birth };
        self.dedup.update(block.checksum, &key, value)?;
        Ok(DedupLookup::Found(known))
    }

    /// One more pointer to a block of dedup: whether the table knows it.
    fn add_dedup_reference(&self, block: &Regular) -> Result<bool, Error> {
        let _turn = self.dedup_lock.lock();
        let key = DedupKey::from_block(block);
        let Some(mut value) = self.dedup.lookup(block.checksum, &key)? else { return Ok(false) };
        let set = copies_of(&mut value, block).filter(|set| set.references > 0);
        let Some(set) = set else { return Ok(false) };
        set.references = set.references.saturating_add(1);
        self.dedup.update(block.checksum, &key, value)?;
        Ok(true)
    }

    fn try_add_reference(&self, block: &Regular, txg: Txg) -> Result<bool, Error> {
        // what is written with the same group, or was after the last one, is not there
        if block.birth_physical >= txg || block.level.get() > 0 || block.kind.is_metadata() {
            return Ok(false);
        }
        if block.dedup && self.add_dedup_reference(block)? {
            return Ok(true);
        }
        let Some(cloned) = self.cloned_block(block).filter(|_| self.can_clone) else {
            return Ok(false);
        };
        self.clones.add_references(&cloned, 1)?;
        Ok(true)
    }

    fn try_insert(&self, block: &Regular) -> Result<bool, Error> {
        let _turn = self.dedup_lock.lock();
        let key = DedupKey::from_block(block);
        let fresh = || match self.dedup.value_format(block.checksum) {
            Shape::Flat => {
                let since = (self.environment.now)().seconds;
                DedupValue::Flat { copies: Copies::default(), since }
            }
            Shape::Traditional => DedupValue::Traditional(Box::default()),
        };
        let known = self.dedup.lookup(block.checksum, &key)?;
        if known.is_none() && self.is_over_dedup_quota() {
            return Ok(false);
        }
        let mut value = known.unwrap_or_else(fresh);
        let copies = units::narrow::<u8>(block.copies().count());
        // one in pieces has more addresses than copies: it may come to where another is already
        let set = copies_slot(&mut value, copies).filter(|set| set.birth.is_zero());
        let Some(set) = set else { return Ok(false) };
        *set = Copies {
            dvas: block.dvas,
            third_dva_words: third_dva_words(block),
            references: 1,
            birth: block.birth_physical,
        };
        self.dedup.update(block.checksum, &key, value)?;
        Ok(true)
    }
}

impl zio::SharedBlocks for BlockRefs {
    fn release(&self, block: &Regular, _: Txg) -> FreeOutcome {
        if block.dedup
            && let Some(fate) =
                self.defer_error(self.release_dedup(block), Some(FreeOutcome::StillReferenced))
        {
            return fate;
        }
        if block.level.get() > 0 || block.kind.is_metadata() {
            return FreeOutcome::Free(block.dvas);
        }
        self.defer_error(self.release_clone(block), FreeOutcome::StillReferenced)
    }

    fn find_duplicate(&self, block: &Regular, copies: u8, _: Txg) -> DedupLookup {
        self.defer_error(self.try_find_duplicate(block, copies), DedupLookup::Unusable)
    }

    fn insert(&self, block: &Regular, _: Txg) -> bool {
        self.defer_error(self.try_insert(block), false)
    }

    fn add_reference(&self, block: &Regular, txg: Txg) -> bool {
        self.defer_error(self.try_add_reference(block, txg), false)
    }
}

/// The bytes that the tables of dedup may take, by the property of the pool. Automatic: OpenZFS limits tables on vdevs of
/// their own; here they go to the other vdevs then.
fn stored_dedup_quota(mos: &Objset) -> Result<u64, Error> {
    let directory = PoolDirectory::open(mos.clone())?;
    let Some(table) = directory.object("pool_props")? else { return Ok(NO_QUOTA) };
    let stored = zap::Zap::open(table)?.lookup_u64(DEDUP_TABLE_QUOTA)?;
    Ok(stored.map_or(NO_QUOTA, quota_bytes))
}

/// 0 is none, and the largest number automatic.
fn quota_bytes(stored: u64) -> u64 {
    if stored == 0 { NO_QUOTA } else { stored }
}

/// The set of copies that a pointer is to.
fn copies_of<'a>(value: &'a mut DedupValue, block: &Regular) -> Option<&'a mut Copies> {
    let sets = match value {
        DedupValue::Traditional(sets) => sets.as_mut_slice(),
        DedupValue::Flat { copies, .. } => std::slice::from_mut(copies),
    };
    sets.iter_mut().find(|set| {
        !set.birth.is_zero() && set.birth == block.birth_physical && set.dvas[0] == block.dvas[0]
    })
}

/// The set for blocks of so many copies.
fn copies_slot(value: &mut DedupValue, copies: u8) -> Option<&mut Copies> {
    match value {
        DedupValue::Traditional(sets) => sets.get_mut(usize::from(copies)),
        DedupValue::Flat { copies, .. } => Some(copies),
    }
}

/// The third address as it stands in a pointer: with encryption, salt and nonce.
fn third_dva_words(block: &Regular) -> [u64; 2] {
    let words = Blkptr::Regular(Box::new(*block)).words();
    [words[4], words[5]]
}

impl ActivePool {
    /// Counts what a group shares, before anything of it is freed.
    pub(super) fn add_clone_references(&self, txg: Txg) -> Result<(), Error> {
        let sets = self.open_datasets.all();
        for block in sets.iter().flat_map(|set| set.objset().cloned_blocks(txg)) {
            if let Some(cloned) = self.block_refs.cloned_block(&block) {
                self.block_refs.clones.add_references(&cloned, 1)?;
            }
        }
        Ok(())
    }

    /// Bytes of blocks that are cloned, and bytes that the clones do not take.
    pub fn clone_space(&self) -> (u64, u64) {
        self.block_refs.clones.space_totals()
    }

    /// Whether blocks may be cloned (block_cloning).
    pub fn can_clone(&self) -> bool {
        Feature::by_guid(BLOCK_CLONING)
            .and_then(|feature| {
                dsl::write::features::refcount(&self.synced_mos(), feature).ok().flatten()
            })
            .is_some()
    }

    /// Writes what has changed of shared blocks.
    pub(super) fn write_block_refs(&self, change: &SyncTaskContext<'_>) -> Result<(), Error> {
        for pointer in self.block_refs.dedup.drain_unreferenced() {
            if let Blkptr::Regular(block) = &pointer {
                self.writer.free_copies(block, change.tx.txg());
            }
        }
        self.block_refs.sync(change)
    }
}

#[cfg(test)]
mod tests;
