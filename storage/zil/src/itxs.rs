//! Records (itx) that wait for a commit, by txg, and by object if their order does not matter.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::zil::Body;
use units::{ObjectId, Txg};

use crate::commit::CommitScope;

/// A change that a txg brings, for the log.
#[derive(Clone, Debug)]
pub struct Itx {
    /// The change. A write without data and without a block reads its data from its object at the
    /// commit.
    pub body: Body,
    /// Whether names were compared without case.
    pub fold_case: bool,
    /// Whether the record is committed with every later one. Otherwise (content and attributes of a
    /// file) it is committed only with its object or with everything.
    pub is_ordered: bool,
}

impl Itx {
    /// A record whose order matters: a change of names.
    pub const fn new_ordered(body: Body) -> Self {
        Self { body, fold_case: false, is_ordered: true }
    }

    /// A record that may wait for a commit of its object.
    pub const fn new_per_object(body: Body) -> Self {
        Self { body, fold_case: false, is_ordered: false }
    }
}

#[derive(Default)]
struct TxgItxs {
    ordered: Vec<Itx>,
    by_object: BTreeMap<ObjectId, Vec<Itx>>,
    /// Objects renamed since the last commit: their records are committed with the ordered ones.
    renamed_objects: Vec<ObjectId>,
}

/// All that waits.
#[derive(Default)]
pub(crate) struct PendingItxs {
    by_txg: BTreeMap<Txg, TxgItxs>,
    /// The last txg with a change that has no log record.
    unlogged_txg: Txg,
}

impl PendingItxs {
    pub(crate) fn add(&mut self, txg: Txg, item: Itx) {
        let group = self.by_txg.entry(txg).or_default();
        match item.body.changed_object() {
            Some(object) if !item.is_ordered => {
                group.by_object.entry(object).or_default().push(item);
            }
            _ => group.ordered.push(item),
        }
    }

    /// Marks a txg that has a change without a log record. No later change may be committed before
    /// that txg is on the drives: a replay would apply it to an older state.
    pub(crate) fn add_unlogged(&mut self, txg: Txg) {
        // Rule Z1: a later record must not be replayed without this change. A crash after its commit would
        // apply it to a state in which the change is missing.
        self.unlogged_txg = self.unlogged_txg.max(txg);
    }

    /// The last txg with such a change.
    pub(crate) const fn unlogged_txg(&self) -> Txg {
        self.unlogged_txg
    }

    /// Marks an object as renamed: its earlier records are committed with the next ordered one. A
    /// program that writes a file and renames it over an old one expects either content, never an
    /// empty file.
    pub(crate) fn on_rename(&mut self, object: ObjectId) {
        let groups = self.by_txg.values_mut();
        for group in groups.filter(|group| group.by_object.contains_key(&object)) {
            group.renamed_objects.push(object);
        }
    }

    /// The content of the object is of no interest any more.
    pub(crate) fn forget_object(&mut self, object: ObjectId) {
        for group in self.by_txg.values_mut() {
            group.by_object.remove(&object);
        }
    }

    /// A txg is on the drives.
    pub(crate) fn drop_synced(&mut self, txg: Txg) {
        self.by_txg = self.by_txg.split_off(&txg.next());
    }

    /// The records of these objects since the last commit, if one of them truncated the object.
    pub(crate) fn drain_truncations(&mut self, objects: &BTreeSet<ObjectId>) -> Vec<(Txg, Itx)> {
        let takes_away = |item: &Itx| matches!(item.body, Body::SetAttr(_) | Body::Truncate { .. });
        let mut groups = self.by_txg.values();
        let is_cut = groups.any(|group| {
            let mut waiting = objects.iter().filter_map(|object| group.by_object.get(object));
            waiting.any(|items| items.iter().any(takes_away))
        });
        let mut taken = Vec::new();
        for (txg, group) in self.by_txg.iter_mut().filter(|_| is_cut) {
            for object in objects {
                let items = group.by_object.remove(object).unwrap_or_default();
                taken.extend(items.into_iter().map(|item| (*txg, item)));
            }
        }
        taken
    }

    /// Bytes of the writes to an object (none: to all) in txgs before that one.
    pub(crate) fn write_bytes_before(&self, txg: Txg, object: Option<ObjectId>) -> u64 {
        let length = |item: &Itx| match &item.body {
            Body::Write(write) => write.length,
            _ => 0,
        };
        let wanted = |known: &ObjectId| object.is_none_or(|object| object == *known);
        let groups = self.by_txg.range(..txg).flat_map(|(_, group)| &group.by_object);
        groups.filter(|(known, _)| wanted(known)).flat_map(|(_, items)| items).map(length).sum()
    }

    /// The records to commit for those objects, or for everything; in order.
    pub(crate) fn drain(&mut self, scope: &CommitScope) -> Vec<(Txg, Itx)> {
        // Rule: the records of all txgs come together, the older txgs first. A replay after a crash applies them
        // in the order of the chain, and a record may depend on those of an earlier txg.
        let mut taken = Vec::new();
        for (txg, group) in &mut self.by_txg {
            let mut items = std::mem::take(&mut group.ordered);
            let renamed = std::mem::take(&mut group.renamed_objects);
            match scope {
                CommitScope::Objects(objects) => {
                    for object in renamed.iter().chain(objects) {
                        items.extend(group.by_object.remove(object).unwrap_or_default());
                    }
                }
                CommitScope::All => {
                    items.extend(std::mem::take(&mut group.by_object).into_values().flatten());
                }
            }
            taken.extend(items.into_iter().map(|item| (*txg, item)));
        }
        assert!(taken.is_sorted_by_key(|(txg, _)| *txg), "records of older txgs come first");
        taken
    }
}
