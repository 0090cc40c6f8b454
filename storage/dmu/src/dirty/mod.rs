//! Object sets that are being changed.
//!
//! A live [`Objset`] is the one on the drives with a table of dirty objects over it. A read looks
//! into the table first. The sync of a txg takes the txg's versions out of the table, writes them,
//! and puts the new tree under the rest.

mod clone;
mod create;
mod log_write;
pub(crate) mod lookup;
mod raw;
pub(crate) mod record;
mod write;
mod write_through;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use ondisk::dnode::{Dnode, Flags};
use parking_lot::{Mutex, RwLock};
use units::{BlockId, Level, ObjectId, Txg, Zbookmark};

use crate::objset::Objset;
use crate::tree::DnodeTree;
use crate::{Error, Result};
pub use create::{NewObject, RawShape};
pub use log_write::LogWrite;
pub(crate) use record::{BlockLocation, DirtyObject};
pub use write_through::{LongWrite, PendingWrite, WriteThrough};

/// The dirty overlay of an object set.
pub(crate) struct DirtyObjset {
    /// The tree on the drives.
    pub(crate) base: RwLock<Objset>,
    /// The same as of the last finished txg, if requested ([`Objset::pin_synced`]).
    pinned_base: RwLock<Option<Objset>>,
    table: Mutex<ObjectTable>,
    /// The number at which the search for a free one continues.
    pub(crate) id_search: Mutex<FreeIdSearch>,
    /// The accounting flags of dnodes that are written.
    pub(crate) accounted_flags: AtomicU8,
    /// The groups that share blocks with others.
    pub(crate) cloned_txgs: Mutex<BTreeSet<Txg>>,
    /// Where content goes before its group is written.
    write_through: OnceLock<Arc<dyn WriteThrough>>,
    /// How blocks of dnodes are encrypted that a raw stream brings.
    pub(crate) dnode_crypt: raw::DnodeBlockCrypt,
}

/// How free numbers are looked for.
pub(crate) struct FreeIdSearch {
    /// The number that comes next.
    pub(crate) next_id: u64,
    /// A dnode block with this many dnodes is taken for full without a read: such blocks were full.
    /// The pointer to it does not tell how many slots they use.
    pub(crate) full_count: u64,
}

#[derive(Default)]
struct ObjectTable {
    objects: HashMap<ObjectId, Arc<DirtyObject>>,
    dirty_ids: BTreeMap<Txg, BTreeSet<ObjectId>>,
    /// Objects that were made and are not on the drives yet, and how many slots they have.
    claimed: BTreeMap<ObjectId, u8>,
    /// The number of syncs: a lookup from before a sync may be stale after it.
    epoch: u64,
}

impl DirtyObjset {
    pub(crate) fn new(base: Objset) -> Self {
        Self {
            base: RwLock::new(base),
            pinned_base: RwLock::default(),
            table: Mutex::default(),
            id_search: Mutex::new(FreeIdSearch { next_id: 1, full_count: u64::MAX }),
            accounted_flags: AtomicU8::new(0),
            cloned_txgs: Mutex::default(),
            write_through: OnceLock::new(),
            dnode_crypt: raw::DnodeBlockCrypt::default(),
        }
    }

    /// The tree on the drives.
    pub(crate) fn base(&self) -> Objset {
        self.base.read().clone()
    }

    /// The object's entry; one is made if there is none yet.
    pub(crate) fn find_or_load(&self, id: ObjectId) -> Result<Arc<DirtyObject>> {
        loop {
            let epoch = {
                let table = self.table.lock();
                if let Some(entry) = table.objects.get(&id) {
                    return Ok(Arc::clone(entry));
                }
                table.epoch
            };
            let base = match self.base().dnode(id) {
                Ok(dnode) => Some(self.build_tree(id, dnode)),
                Err(Error::NoSuchObject { .. }) => None,
                // the block may have been freed and overwritten while it was read
                Err(_) if !self.is_current_epoch(epoch) => continue,
                Err(error) => return Err(error),
            };
            // Rule: an entry is made only from the tree that is installed. A sync in between has a newer dnode,
            // and an entry with the older one would write the older pointers back with its next txg.
            let mut table = self.table.lock();
            if table.epoch == epoch {
                let made = || Arc::new(DirtyObject::new(id, base));
                return Ok(Arc::clone(table.objects.entry(id).or_insert_with(made)));
            }
        }
    }

    /// The entry of one that exists, and its tree, which has the dnode as it is now.
    pub(crate) fn existing_object(
        &self,
        id: ObjectId,
    ) -> Result<(Arc<DirtyObject>, Arc<DnodeTree>)> {
        let entry = self.find_or_load(id)?;
        let tree = entry.state.read().tree(|dnode| self.build_tree(id, dnode));
        match tree {
            Some(tree) => Ok((entry, tree)),
            None => Err(self.no_such_object(id)),
        }
    }

    pub(crate) fn no_such_object(&self, id: ObjectId) -> Error {
        let objset = self.base.read().id();
        Error::NoSuchObject {
            zbookmark: Zbookmark::new(objset, id, Level::new(0), BlockId::new(0)),
        }
    }

    pub(crate) fn build_tree(&self, id: ObjectId, dnode: Dnode) -> Arc<DnodeTree> {
        let base = self.base.read();
        let source = Arc::clone(base.source());
        Arc::new(DnodeTree::new(source, base.key().cloned(), base.id(), id, dnode))
    }

    /// Notes that a group has something of an object to write.
    pub(crate) fn mark_dirty(&self, txg: Txg, entry: &Arc<DirtyObject>) {
        let mut table = self.table.lock();
        table.dirty_ids.entry(txg).or_default().insert(entry.id);
        let known = table.objects.entry(entry.id).or_insert_with(|| Arc::clone(entry));
        assert!(Arc::ptr_eq(known, entry), "an object has one entry, which has all its versions");
    }

    /// Whether a group has anything to write.
    pub(crate) fn is_dirty(&self, txg: Txg) -> bool {
        self.table.lock().dirty_ids.contains_key(&txg)
    }

    /// The objects of which a group has something to write.
    pub(crate) fn dirty_objects(&self, txg: Txg) -> Vec<Arc<DirtyObject>> {
        let table = self.table.lock();
        let ids = table.dirty_ids.get(&txg).into_iter().flatten();
        ids.filter_map(|id| table.objects.get(id).cloned()).collect()
    }

    /// Notes the slots of an object that is made. Returns those that it was noted with before.
    pub(crate) fn claim_slots(&self, id: ObjectId, slots: u8) -> Option<u8> {
        self.table.lock().claimed.insert(id, slots)
    }

    /// The slots of a block of dnodes that are noted so, from its beginning on, and the epoch.
    pub(crate) fn claimed_slots(&self, block: Range<u64>) -> (BTreeSet<u64>, u64) {
        let table = self.table.lock();
        let range = ObjectId::new(block.start)..ObjectId::new(block.end);
        let slots = table.claimed.range(range).flat_map(|(id, slots)| {
            let first = id.get() - block.start;
            first..first + u64::from(*slots)
        });
        (slots.collect(), table.epoch)
    }

    /// Whether no group was written since that epoch.
    pub(crate) fn is_current_epoch(&self, epoch: u64) -> bool {
        self.table.lock().epoch == epoch
    }

    /// Puts a new tree under the remaining overlay. `settle` does so for the entries of the sync,
    /// whose slots are now known to be used or free.
    pub(crate) fn install_synced(
        &self,
        base: Objset,
        txg: Txg,
        synced: &[ObjectId],
        settle: impl FnOnce(&Self),
    ) {
        // Rule: the new tree comes first, then the versions that it has go, and the epoch changes last. A reader
        // that finds no version then finds the new tree. In the other order it would read the state before
        // the txg, and a write of a part of a block would lose what the txg wrote.
        let mut table = self.table.lock();
        *self.base.write() = base;
        settle(self);
        table.dirty_ids.remove(&txg);
        let older = table.dirty_ids.first_key_value().map(|(older, _)| *older);
        assert!(
            older.is_none_or(|older| older > txg),
            "{older:?} is dirty after txg {txg} is synced"
        );
        self.dnode_crypt.finish_txg(txg);
        self.cloned_txgs.lock().remove(&txg);
        for id in synced {
            table.claimed.remove(id);
        }
        table.epoch = table.epoch.wrapping_add(1);
        // Rule: an entry stays while it has versions of later txgs, or someone has it. A second entry for
        // the object would hide these versions from the sync.
        table
            .objects
            .retain(|_, entry| Arc::strong_count(entry) > 1 || entry.state.read().is_dirty());
    }
}

impl Objset {
    /// Whether it can be changed.
    pub fn is_writable(&self) -> bool {
        self.overlay().is_some()
    }

    /// Whether a group has anything of it to write.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        self.overlay().is_some_and(|overlay| overlay.is_dirty(txg))
    }

    /// From now on written objects are marked as accounted. The caller must maintain the accounts
    /// from the results of [`Objset::sync`].
    pub fn set_accounted_flags(&self, flags: Flags) {
        if let Some(overlay) = self.overlay() {
            overlay.accounted_flags.store(flags.0, Ordering::Relaxed);
        }
    }

    /// Has whole blocks of content stored before their group is written, where that can be.
    pub fn set_write_through(&self, early: Arc<dyn WriteThrough>) {
        if let Some(overlay) = self.overlay() {
            let _ = overlay.write_through.set(early);
        }
    }

    /// Discards the dirty data: frees the space of eagerly written blocks. No thread changes the
    /// object set any more.
    pub fn discard_dirty(&self) {
        let Some(overlay) = self.overlay() else { return };
        for entry in overlay.table.lock().objects.values() {
            entry.state.read().discard_written_through();
        }
    }

    /// How objects are marked that are written.
    pub fn accounted_flags(&self) -> Flags {
        Flags(self.overlay().map_or(0, |overlay| overlay.accounted_flags.load(Ordering::Relaxed)))
    }

    /// A handle on the tree on the drives, without dirty data. If the object set was ever pinned
    /// ([`Objset::pin_synced`]), the pinned one.
    #[must_use]
    pub fn synced(&self) -> Self {
        let Some(overlay) = self.overlay() else { return self.clone() };
        let kept = overlay.pinned_base.read().clone();
        kept.unwrap_or_else(|| overlay.base())
    }

    /// Pins the present tree as the result of [`Objset::synced`] until the next call. A txg is
    /// written in several passes, and a later pass may overwrite blocks of an earlier one in place.
    /// A plain reader must not see those.
    pub fn pin_synced(&self) {
        if let Some(overlay) = self.overlay() {
            *overlay.pinned_base.write() = Some(overlay.base());
        }
    }
}

#[cfg(test)]
mod tests;
