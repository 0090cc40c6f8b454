//! Object sets that are being changed.
//!
//! A live [`Objset`] is one that is on the drives with a table of changed objects laid over it.
//! Reading looks into the table first. The sync of a group takes the group's versions out of the
//! table, writes them, and puts the new tree under what is left.

mod clone;
mod create;
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
pub(crate) use record::{BlockLocation, DirtyObject};
pub use write_through::{LongWrite, PendingWrite, WriteThrough};

/// What is laid over an object set.
pub(crate) struct DirtyObjset {
    /// What is on the drives.
    pub(crate) base: RwLock<Objset>,
    /// The same as of the last group that was finished, if that is told ([`Objset::pin_synced`]).
    pinned_base: RwLock<Option<Objset>>,
    table: Mutex<ObjectTable>,
    /// Where the search for a free number goes on.
    pub(crate) id_search: Mutex<FreeIdSearch>,
    /// The flags that dnodes get when they are written: what is accounted of them.
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
    /// A block of dnodes that has so many is taken for full without a look: such a one was. The pointer
    /// to it does not tell how many slots they have.
    pub(crate) full_count: u64,
}

#[derive(Default)]
struct ObjectTable {
    objects: HashMap<ObjectId, Arc<DirtyObject>>,
    dirty_ids: BTreeMap<Txg, BTreeSet<ObjectId>>,
    /// Objects that were made and are not on the drives yet, and how many slots they have.
    claimed: BTreeMap<ObjectId, u8>,
    /// Counts the syncs: what was looked up before one may be old after it.
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

    /// What is on the drives.
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
                // what was there may have been freed and written over while it was read
                Err(_) if !self.is_current_epoch(epoch) => continue,
                Err(error) => return Err(error),
            };
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
        table.objects.entry(entry.id).or_insert_with(|| Arc::clone(entry));
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

    /// Notes the slots of an object that is made.
    pub(crate) fn claim_slots(&self, id: ObjectId, slots: u8) {
        self.table.lock().claimed.insert(id, slots);
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

    /// Puts a new tree under what is left. `settle` does so for the entries of the sync, whose
    /// slots are now known to be taken or free.
    pub(crate) fn install_synced(
        &self,
        base: Objset,
        txg: Txg,
        synced: &[ObjectId],
        settle: impl FnOnce(&Self),
    ) {
        let mut table = self.table.lock();
        *self.base.write() = base;
        settle(self);
        table.dirty_ids.remove(&txg);
        self.dnode_crypt.finish_txg(txg);
        self.cloned_txgs.lock().remove(&txg);
        for id in synced {
            table.claimed.remove(id);
        }
        table.epoch = table.epoch.wrapping_add(1);
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

    /// From now on the objects that are written are marked as accounted so. Whoever says it must
    /// keep the accounts, from what [`Objset::sync`] gives.
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

    /// What waits to be written never will be: gives up the room of what is stored already.
    /// Nobody changes the object set any more.
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

    /// A handle on what is on the drives now, without what waits to be written. Of an object set that
    /// was ever kept ([`Objset::pin_synced`]), what it was then.
    #[must_use]
    pub fn synced(&self) -> Self {
        let Some(overlay) = self.overlay() else { return self.clone() };
        let kept = overlay.pinned_base.read().clone();
        kept.unwrap_or_else(|| overlay.base())
    }

    /// Has [`Objset::synced`] give what is on the drives now, until this is said again. Where a group is
    /// written in several passes, what one has stored the next may store otherwise in its place: who
    /// only looks must not come across it.
    pub fn pin_synced(&self) {
        if let Some(overlay) = self.overlay() {
            *overlay.pinned_base.write() = Some(overlay.base());
        }
    }
}

#[cfg(test)]
mod tests;
