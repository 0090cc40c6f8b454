//! Blocks that several pointers share: the tables of clones and of dedup, asked while a group is
//! written, and written with it.
//!
//! A pointer to a deduplicated block that the table does not know (it was pruned there) is to a
//! block like any other; so is one to a set of copies that is not in the table.

use std::sync::Arc;

use dmu::Objset;
use dsl::write::Change;
use ondisk::blkptr::Regular;
use ondisk::dedup::{Copies, DedupKey, DedupValue, Shape};
use ondisk::feature::Feature;
use ondisk::{Blkptr, Dva};
use parking_lot::Mutex;
use units::Txg;
use vdev::VdevTree;
use zio::{DedupLookup, DedupMatch, FreeOutcome};

use super::account::{deflated, deflated_copy};
use super::{Owned, World};
use crate::clones::{Cloned, Clones};
use crate::dedup::Dedup;
use crate::features::{self, Uses};
use crate::{Error, Pool};

const BLOCK_CLONING: &str = "com.fudosecurity:block_cloning";
const FAST_DEDUP: &str = "com.klarasystems:fast_dedup";

/// Who knows of a pool's shared blocks.
pub(crate) struct Shared {
    tree: Arc<VdevTree>,
    clones: Clones,
    dedup: Dedup,
    /// Blocks may be cloned (block_cloning).
    may_clone: bool,
    world: World,
    /// Held while a block of dedup is looked up and changed.
    turn: Mutex<()>,
    /// Why a table could not be asked. Until then nothing was given up that may be shared; the
    /// group must not be finished.
    trouble: Mutex<Option<Error>>,
}

impl Shared {
    /// What the pool's directory tells.
    pub(crate) fn load(pool: &Pool, mos: &Objset, world: &World) -> Result<Self, Error> {
        let tops = pool.config.tree.iter().flat_map(|root| &root.children);
        let has = |guid| pool.features.iter().any(|feature| feature.guid == guid);
        Ok(Self {
            tree: Arc::clone(&pool.tree),
            clones: Clones::load(mos, tops.map(|top| top.id))?,
            dedup: Dedup::load(mos, has(FAST_DEDUP))?,
            may_clone: has(BLOCK_CLONING),
            world: world.clone(),
            turn: Mutex::new(()),
            trouble: Mutex::default(),
        })
    }

    /// Writes what has changed into the tables.
    pub(crate) fn sync(&self, change: &Change<'_>) -> Result<(), Error> {
        if let Some(trouble) = self.trouble.lock().take() {
            return Err(trouble);
        }
        let mut random = || (change.random)();
        let size_of = |dva: &Dva| deflated_copy(&self.tree, *dva);
        let clones = self.clones.sync(change.tx, &mut random)?;
        let dedup = self.dedup.sync(change.tx, &size_of, &mut random)?;
        for (guid, more) in [(BLOCK_CLONING, clones), (FAST_DEDUP, dedup)] {
            if more != 0 {
                features::count(change.mos, change.tx, guid, Uses::More(more))?;
            }
        }
        Ok(())
    }

    /// Bytes that blocks with more than one reference save, by the tables as the last group left them.
    pub(super) fn saved(&self) -> u64 {
        self.clones.space().1.saturating_add(self.dedup.saved())
    }

    fn note<T>(&self, result: Result<T, Error>, otherwise: T) -> T {
        result.unwrap_or_else(|error| {
            self.trouble.lock().get_or_insert(error);
            otherwise
        })
    }

    /// The block as the table of clones knows it.
    fn cloned(&self, block: &Regular) -> Option<Cloned> {
        let first = block.dvas[0]?;
        let size = deflated(&self.tree, &Blkptr::Regular(Box::new(*block)));
        Some(Cloned { vdev: first.vdev, offset: first.offset, size })
    }

    fn part_of_clones(&self, block: &Regular) -> Result<FreeOutcome, Error> {
        if let Some(cloned) = self.cloned(block)
            && self.clones.release(&cloned)?
        {
            return Ok(FreeOutcome::StillReferenced);
        }
        Ok(FreeOutcome::Free(block.dvas))
    }

    fn part_of_dedup(&self, block: &Regular) -> Result<Option<FreeOutcome>, Error> {
        let _turn = self.turn.lock();
        let key = DedupKey::of(block);
        let Some(mut value) = self.dedup.find(block.checksum, &key)? else { return Ok(None) };
        let Some(set) = set_of(&mut value, block) else { return Ok(None) };
        set.references = set.references.saturating_sub(1);
        let mut fate = FreeOutcome::StillReferenced;
        if set.references == 0 {
            let [first, second, third] = set.dvas;
            fate = FreeOutcome::Free([first, second, if key.encrypted { None } else { third }]);
            *set = Copies::default();
        }
        self.dedup.put(block.checksum, &key, value)?;
        Ok(Some(fate))
    }

    fn find_same(&self, block: &Regular, copies: u8) -> Result<DedupLookup, Error> {
        let _turn = self.turn.lock();
        let key = DedupKey::of(block);
        let Some(mut value) = self.dedup.find(block.checksum, &key)? else {
            return Ok(DedupLookup::NotFound);
        };
        let flat = matches!(value, DedupValue::Flat { .. });
        let Some(set) = set_for(&mut value, copies) else { return Ok(DedupLookup::Unusable) };
        if set.birth.is_zero() || set.references == 0 {
            return Ok(if flat { DedupLookup::Unusable } else { DedupLookup::NotFound });
        }
        let [first, second, third] = set.dvas;
        let dvas = [first, second, if key.encrypted { None } else { third }];
        // the addresses of one in pieces do not tell how often its content is there
        let in_pieces = dvas.iter().flatten().any(|dva| dva.gang);
        if dvas.iter().flatten().count() < usize::from(copies)
            || (in_pieces && copies > 1)
            || (key.encrypted && set.third != third_of(block))
        {
            return Ok(DedupLookup::Unusable);
        }
        set.references = set.references.saturating_add(1);
        let known = DedupMatch { dvas, birth: set.birth };
        self.dedup.put(block.checksum, &key, value)?;
        Ok(DedupLookup::Found(known))
    }

    /// One more pointer to a block of dedup: whether the table knows it.
    fn share_of_dedup(&self, block: &Regular) -> Result<bool, Error> {
        let _turn = self.turn.lock();
        let key = DedupKey::of(block);
        let Some(mut value) = self.dedup.find(block.checksum, &key)? else { return Ok(false) };
        let set = set_of(&mut value, block).filter(|set| set.references > 0);
        let Some(set) = set else { return Ok(false) };
        set.references = set.references.saturating_add(1);
        self.dedup.put(block.checksum, &key, value)?;
        Ok(true)
    }

    fn share_block(&self, block: &Regular, txg: Txg) -> Result<bool, Error> {
        // what is written with the same group, or was after the last one, is not there
        if block.birth_physical >= txg || block.level.get() > 0 || block.kind.is_metadata() {
            return Ok(false);
        }
        if block.dedup && self.share_of_dedup(block)? {
            return Ok(true);
        }
        let Some(cloned) = self.cloned(block).filter(|_| self.may_clone) else { return Ok(false) };
        self.clones.add(&cloned, 1)?;
        Ok(true)
    }

    fn add_new(&self, block: &Regular) -> Result<bool, Error> {
        let _turn = self.turn.lock();
        let key = DedupKey::of(block);
        let fresh = || match self.dedup.shape(block.checksum) {
            Shape::Flat => {
                let since = (self.world.now)().seconds;
                DedupValue::Flat { copies: Copies::default(), since }
            }
            Shape::Traditional => DedupValue::Traditional(Box::default()),
        };
        let mut value = self.dedup.find(block.checksum, &key)?.unwrap_or_else(fresh);
        let copies = u8::try_from(block.copies().count()).unwrap_or(3);
        // one in pieces has more addresses than copies: it may come to where another is already
        let set = set_for(&mut value, copies).filter(|set| set.birth.is_zero());
        let Some(set) = set else { return Ok(false) };
        *set = Copies {
            dvas: block.dvas,
            third: third_of(block),
            references: 1,
            birth: block.birth_physical,
        };
        self.dedup.put(block.checksum, &key, value)?;
        Ok(true)
    }
}

impl zio::SharedBlocks for Shared {
    fn release(&self, block: &Regular, _: Txg) -> FreeOutcome {
        if block.dedup
            && let Some(fate) =
                self.note(self.part_of_dedup(block), Some(FreeOutcome::StillReferenced))
        {
            return fate;
        }
        if block.level.get() > 0 || block.kind.is_metadata() {
            return FreeOutcome::Free(block.dvas);
        }
        self.note(self.part_of_clones(block), FreeOutcome::StillReferenced)
    }

    fn find_duplicate(&self, block: &Regular, copies: u8, _: Txg) -> DedupLookup {
        self.note(self.find_same(block, copies), DedupLookup::Unusable)
    }

    fn insert(&self, block: &Regular, _: Txg) -> bool {
        self.note(self.add_new(block), false)
    }

    fn add_reference(&self, block: &Regular, txg: Txg) -> bool {
        self.note(self.share_block(block, txg), false)
    }
}

/// The set of copies that a pointer is to.
fn set_of<'a>(value: &'a mut DedupValue, block: &Regular) -> Option<&'a mut Copies> {
    let sets = match value {
        DedupValue::Traditional(sets) => sets.as_mut_slice(),
        DedupValue::Flat { copies, .. } => std::slice::from_mut(copies),
    };
    sets.iter_mut().find(|set| {
        !set.birth.is_zero() && set.birth == block.birth_physical && set.dvas[0] == block.dvas[0]
    })
}

/// The set for blocks of so many copies.
fn set_for(value: &mut DedupValue, copies: u8) -> Option<&mut Copies> {
    match value {
        DedupValue::Traditional(sets) => sets.get_mut(usize::from(copies)),
        DedupValue::Flat { copies, .. } => Some(copies),
    }
}

/// The third address as it stands in a pointer: with encryption, salt and nonce.
fn third_of(block: &Regular) -> [u64; 2] {
    let words = Blkptr::Regular(Box::new(*block)).words();
    [words[4], words[5]]
}

impl Owned {
    /// Counts what a group shares, before anything of it is freed.
    pub(super) fn share_clones(&self, txg: Txg) -> Result<(), Error> {
        let sets: Vec<_> = self.sets.lock().values().cloned().collect();
        for block in sets.iter().flat_map(|set| set.objset.cloned_blocks(txg)) {
            if let Some(cloned) = self.shared.cloned(&block) {
                self.shared.clones.add(&cloned, 1)?;
            }
        }
        Ok(())
    }

    /// Bytes of blocks that are cloned, and bytes that the clones do not take.
    pub fn cloned(&self) -> (u64, u64) {
        self.shared.clones.space()
    }

    /// Whether blocks may be cloned (block_cloning).
    pub fn may_clone(&self) -> bool {
        Feature::by_guid(BLOCK_CLONING)
            .and_then(|feature| dsl::write::features::uses(&self.look(), feature).ok().flatten())
            .is_some()
    }

    /// Writes what has changed of shared blocks.
    pub(super) fn write_shared(&self, change: &Change<'_>) -> Result<(), Error> {
        for pointer in self.shared.dedup.take_unreferenced() {
            if let Blkptr::Regular(block) = &pointer {
                self.writer.free_copies(block, change.tx.txg());
            }
        }
        self.shared.sync(change)
    }
}

#[cfg(test)]
mod tests;
