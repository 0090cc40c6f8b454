//! Records that wait to be promised, by txg, and by object where their order does not matter.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::zil::Body;
use units::{ObjectId, Txg};

/// A change that a txg brings, for the log.
#[derive(Clone, Debug)]
pub struct Itx {
    /// What was done. A write without data and without a block is one whose data is read from its
    /// object when it is promised.
    pub body: Body,
    /// Whether names were compared without case.
    pub fold_case: bool,
    /// Whether it must be promised with whatever comes after it. Otherwise (content and attributes
    /// of a file) it is promised when its object or everything is asked for.
    pub is_ordered: bool,
}

impl Itx {
    /// One whose order matters: what is done to names.
    pub const fn new_ordered(body: Body) -> Self {
        Self { body, fold_case: false, is_ordered: true }
    }

    /// One that may wait for someone to ask for its object.
    pub const fn new_per_object(body: Body) -> Self {
        Self { body, fold_case: false, is_ordered: false }
    }
}

#[derive(Default)]
struct TxgItxs {
    ordered: Vec<Itx>,
    by_object: BTreeMap<ObjectId, Vec<Itx>>,
    /// Objects that were renamed since: theirs goes with what is ordered.
    renamed_objects: Vec<ObjectId>,
}

/// All that waits.
#[derive(Default)]
pub(crate) struct PendingItxs {
    by_txg: BTreeMap<Txg, TxgItxs>,
    /// The last txg that brings something of which no record tells.
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

    /// A txg brings something of which no record tells. Nothing that comes after it may be promised
    /// before that txg is on the drives: a replay would do it to something else.
    pub(crate) fn add_unlogged(&mut self, txg: Txg) {
        self.unlogged_txg = self.unlogged_txg.max(txg);
    }

    /// The last txg that brings such a thing.
    pub(crate) const fn unlogged_txg(&self) -> Txg {
        self.unlogged_txg
    }

    /// An object gets another name: what was done to it before is promised with whatever is next. Who
    /// writes a file and gives it the name of an old one counts on either, and not on an empty one.
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

    /// What was done to these objects since they were asked for, if it took content away from one.
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

    /// What is to be promised if that object is asked for, or everything; in order.
    pub(crate) fn drain(&mut self, object: Option<ObjectId>) -> Vec<(Txg, Itx)> {
        let mut taken = Vec::new();
        for (txg, group) in &mut self.by_txg {
            let mut items = std::mem::take(&mut group.ordered);
            let renamed = std::mem::take(&mut group.renamed_objects);
            match object {
                Some(object) => {
                    for object in renamed.into_iter().chain([object]) {
                        items.extend(group.by_object.remove(&object).unwrap_or_default());
                    }
                }
                None => items.extend(std::mem::take(&mut group.by_object).into_values().flatten()),
            }
            taken.extend(items.into_iter().map(|item| (*txg, item)));
        }
        taken
    }
}
