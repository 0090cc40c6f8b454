//! Object sets that are being changed.
//!
//! A live [`Objset`] is one that is on the drives with a table of changed objects laid over it.
//! Reading looks into the table first. The sync of a group takes the group's versions out of the
//! table, writes them, and puts the new tree under what is left.

mod change;
mod clone;
mod create;
mod early;
pub(crate) mod entry;
pub(crate) mod see;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use ondisk::dnode::{Dnode, Flags};
use parking_lot::{Mutex, RwLock};
use units::{BlockId, Level, ObjectId, Place, Txg};

use crate::objset::Objset;
use crate::tree::Tree;
use crate::{Error, Result};
pub use create::NewObject;
pub use early::{Early, LongWrite, Underway};
pub(crate) use entry::{Entry, Seen};

/// What is laid over an object set.
pub(crate) struct Live {
    /// What is on the drives.
    pub(crate) base: RwLock<Objset>,
    /// The same as of the last group that was finished, if that is told ([`Objset::keep`]).
    kept: RwLock<Option<Objset>>,
    table: Mutex<Table>,
    /// Where the search for a free number goes on.
    pub(crate) search: Mutex<Search>,
    /// The flags that dnodes get when they are written: what is accounted of them.
    pub(crate) accounted: AtomicU8,
    /// The groups that share blocks with others.
    pub(crate) cloned: Mutex<BTreeSet<Txg>>,
    /// Where content goes before its group is written.
    early: OnceLock<Arc<dyn Early>>,
}

/// How free numbers are looked for.
pub(crate) struct Search {
    /// The number that comes next.
    pub(crate) next: u64,
    /// A block of dnodes that has so many is taken for full without a look: such a one was. The pointer
    /// to it does not tell how many slots they have.
    pub(crate) full: u64,
}

#[derive(Default)]
struct Table {
    objects: HashMap<ObjectId, Arc<Entry>>,
    dirty: BTreeMap<Txg, BTreeSet<ObjectId>>,
    /// Objects that were made and are not on the drives yet, and how many slots they have.
    claimed: BTreeMap<ObjectId, u8>,
    /// Counts the syncs: what was looked up before one may be old after it.
    epoch: u64,
}

impl Live {
    pub(crate) fn new(base: Objset) -> Self {
        Self {
            base: RwLock::new(base),
            kept: RwLock::default(),
            table: Mutex::default(),
            search: Mutex::new(Search { next: 1, full: u64::MAX }),
            accounted: AtomicU8::new(0),
            cloned: Mutex::default(),
            early: OnceLock::new(),
        }
    }

    /// What is on the drives.
    pub(crate) fn base(&self) -> Objset {
        self.base.read().clone()
    }

    /// The object's entry; one is made if there is none yet.
    pub(crate) fn entry(&self, id: ObjectId) -> Result<Arc<Entry>> {
        loop {
            let epoch = {
                let table = self.table.lock();
                if let Some(entry) = table.objects.get(&id) {
                    return Ok(Arc::clone(entry));
                }
                table.epoch
            };
            let base = match self.base().dnode(id) {
                Ok(dnode) => Some(self.tree(id, dnode)),
                Err(Error::NoSuchObject { .. }) => None,
                // what was there may have been freed and written over while it was read
                Err(_) if !self.is_epoch(epoch) => continue,
                Err(error) => return Err(error),
            };
            let mut table = self.table.lock();
            if table.epoch == epoch {
                let made = || Arc::new(Entry::new(id, base));
                return Ok(Arc::clone(table.objects.entry(id).or_insert_with(made)));
            }
        }
    }

    /// The entry of one that exists, and its tree, which has the dnode as it is now.
    pub(crate) fn existing(&self, id: ObjectId) -> Result<(Arc<Entry>, Arc<Tree>)> {
        let entry = self.entry(id)?;
        let tree = entry.state.read().tree(|dnode| self.tree(id, dnode));
        match tree {
            Some(tree) => Ok((entry, tree)),
            None => Err(self.absent(id)),
        }
    }

    pub(crate) fn absent(&self, id: ObjectId) -> Error {
        let objset = self.base.read().id();
        Error::NoSuchObject { place: Place::new(objset, id, Level::new(0), BlockId::new(0)) }
    }

    pub(crate) fn tree(&self, id: ObjectId, dnode: Dnode) -> Arc<Tree> {
        let base = self.base.read();
        let source = Arc::clone(base.source());
        Arc::new(Tree::new(source, base.key().cloned(), base.id(), id, dnode))
    }

    /// Notes that a group has something of an object to write.
    pub(crate) fn soil(&self, txg: Txg, entry: &Arc<Entry>) {
        let mut table = self.table.lock();
        table.dirty.entry(txg).or_default().insert(entry.id);
        table.objects.entry(entry.id).or_insert_with(|| Arc::clone(entry));
    }

    /// Whether a group has anything to write.
    pub(crate) fn is_dirty(&self, txg: Txg) -> bool {
        self.table.lock().dirty.contains_key(&txg)
    }

    /// The objects of which a group has something to write.
    pub(crate) fn dirty(&self, txg: Txg) -> Vec<Arc<Entry>> {
        let table = self.table.lock();
        let ids = table.dirty.get(&txg).into_iter().flatten();
        ids.filter_map(|id| table.objects.get(id).cloned()).collect()
    }

    /// Notes the slots of an object that is made.
    pub(crate) fn claim(&self, id: ObjectId, slots: u8) {
        self.table.lock().claimed.insert(id, slots);
    }

    /// The slots of a block of dnodes that are noted so, from its beginning on, and the epoch.
    pub(crate) fn claimed(&self, block: Range<u64>) -> (BTreeSet<u64>, u64) {
        let table = self.table.lock();
        let range = ObjectId::new(block.start)..ObjectId::new(block.end);
        let slots = table.claimed.range(range).flat_map(|(id, slots)| {
            let first = id.get().saturating_sub(block.start);
            first..first.saturating_add((*slots).into())
        });
        (slots.collect(), table.epoch)
    }

    /// Whether no group was written since that epoch.
    pub(crate) fn is_epoch(&self, epoch: u64) -> bool {
        self.table.lock().epoch == epoch
    }

    /// Puts a new tree under what is left. `settle` does so for the entries of the sync, whose
    /// slots are now known to be taken or free.
    pub(crate) fn settle(
        &self,
        base: Objset,
        txg: Txg,
        synced: &[ObjectId],
        settle: impl FnOnce(&Self),
    ) {
        let mut table = self.table.lock();
        *self.base.write() = base;
        settle(self);
        table.dirty.remove(&txg);
        self.cloned.lock().remove(&txg);
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
    pub fn is_live(&self) -> bool {
        self.live().is_some()
    }

    /// Whether a group has anything of it to write.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        self.live().is_some_and(|live| live.is_dirty(txg))
    }

    /// From now on the objects that are written are marked as accounted so. Whoever says it must
    /// keep the accounts, from what [`Objset::sync`] gives.
    pub fn set_accounted(&self, flags: Flags) {
        if let Some(live) = self.live() {
            live.accounted.store(flags.0, Ordering::Relaxed);
        }
    }

    /// Has whole blocks of content stored before their group is written, where that can be.
    pub fn set_early(&self, early: Arc<dyn Early>) {
        if let Some(live) = self.live() {
            let _ = live.early.set(early);
        }
    }

    /// What waits to be written never will be: gives up the room of what is stored already.
    /// Nobody changes the object set any more.
    pub fn abandon(&self) {
        let Some(live) = self.live() else { return };
        for entry in live.table.lock().objects.values() {
            entry.state.read().abandon();
        }
    }

    /// How objects are marked that are written.
    pub fn accounted(&self) -> Flags {
        Flags(self.live().map_or(0, |live| live.accounted.load(Ordering::Relaxed)))
    }

    /// A handle on what is on the drives now, without what waits to be written. Of an object set that
    /// was ever kept ([`Objset::keep`]), what it was then.
    #[must_use]
    pub fn synced(&self) -> Self {
        let Some(live) = self.live() else { return self.clone() };
        let kept = live.kept.read().clone();
        kept.unwrap_or_else(|| live.base())
    }

    /// Has [`Objset::synced`] give what is on the drives now, until this is said again. Where a group is
    /// written in several passes, what one has stored the next may store otherwise in its place: who
    /// only looks must not come across it.
    pub fn keep(&self) {
        if let Some(live) = self.live() {
            *live.kept.write() = Some(live.base());
        }
    }
}

#[cfg(test)]
mod tests;
