//! Records that wait to be promised, by txg, and by object where their order does not matter.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::zil::Body;
use units::{ObjectId, Txg};

/// A change that a txg brings, for the log.
#[derive(Clone, Debug)]
pub struct Item {
    /// What was done. A write without data and without a block is one whose data is read from its
    /// object when it is promised.
    pub body: Body,
    /// Whether names were compared without case.
    pub fold_case: bool,
    /// Whether it must be promised with whatever comes after it. Otherwise (content and attributes
    /// of a file) it is promised when its object or everything is asked for.
    pub ordered: bool,
}

impl Item {
    /// One whose order matters: what is done to names.
    pub const fn ordered(body: Body) -> Self {
        Self { body, fold_case: false, ordered: true }
    }

    /// One that may wait for someone to ask for its object.
    pub const fn of_object(body: Body) -> Self {
        Self { body, fold_case: false, ordered: false }
    }
}

#[derive(Default)]
struct Group {
    ordered: Vec<Item>,
    by_object: BTreeMap<ObjectId, Vec<Item>>,
    /// Objects that were renamed since: theirs goes with what is ordered.
    renamed: Vec<ObjectId>,
}

/// All that waits.
#[derive(Default)]
pub(crate) struct Pending {
    groups: BTreeMap<Txg, Group>,
    /// The last txg that brings something of which no record tells.
    untold: Txg,
}

impl Pending {
    pub(crate) fn add(&mut self, txg: Txg, item: Item) {
        let group = self.groups.entry(txg).or_default();
        match item.body.changed_object() {
            Some(object) if !item.ordered => group.by_object.entry(object).or_default().push(item),
            _ => group.ordered.push(item),
        }
    }

    /// A txg brings something of which no record tells. Nothing that comes after it may be promised
    /// before that txg is on the drives: a replay would do it to something else.
    pub(crate) fn add_untold(&mut self, txg: Txg) {
        self.untold = self.untold.max(txg);
    }

    /// The last txg that brings such a thing.
    pub(crate) const fn untold(&self) -> Txg {
        self.untold
    }

    /// An object gets another name: what was done to it before is promised with whatever is next. Who
    /// writes a file and gives it the name of an old one counts on either, and not on an empty one.
    pub(crate) fn renamed(&mut self, object: ObjectId) {
        let groups = self.groups.values_mut();
        for group in groups.filter(|group| group.by_object.contains_key(&object)) {
            group.renamed.push(object);
        }
    }

    /// The content of the object is of no interest any more.
    pub(crate) fn forget(&mut self, object: ObjectId) {
        for group in self.groups.values_mut() {
            group.by_object.remove(&object);
        }
    }

    /// A txg is on the drives.
    pub(crate) fn synced(&mut self, txg: Txg) {
        self.groups = self.groups.split_off(&Txg::new(txg.get().saturating_add(1)));
    }

    /// What was done to these objects since they were asked for, if it took content away from one.
    pub(crate) fn take_cuts(&mut self, objects: &BTreeSet<ObjectId>) -> Vec<(Txg, Item)> {
        let takes_away =
            |item: &Item| matches!(item.body, Body::SetAttr(_) | Body::Truncate { .. });
        let mut groups = self.groups.values();
        let is_cut = groups.any(|group| {
            let mut waiting = objects.iter().filter_map(|object| group.by_object.get(object));
            waiting.any(|items| items.iter().any(takes_away))
        });
        let mut taken = Vec::new();
        for (txg, group) in self.groups.iter_mut().filter(|_| is_cut) {
            for object in objects {
                let items = group.by_object.remove(object).unwrap_or_default();
                taken.extend(items.into_iter().map(|item| (*txg, item)));
            }
        }
        taken
    }

    /// What is to be promised if that object is asked for, or everything; in order.
    pub(crate) fn take(&mut self, object: Option<ObjectId>) -> Vec<(Txg, Item)> {
        let mut taken = Vec::new();
        for (txg, group) in &mut self.groups {
            let mut items = std::mem::take(&mut group.ordered);
            let renamed = std::mem::take(&mut group.renamed);
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
