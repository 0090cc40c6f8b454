//! Where a scan is: OpenZFS's order of datasets, and how changes of datasets move the place.
//!
//! ```text
//! MOS ─▶ datasets without a previous snapshot ─▶ of each: its next snapshot or head, and its clones
//! ```
//!
//! A dataset is queued with the txg of the snapshot before it, since older blocks belong to that one. The
//! bookmark is in the dataset that is walked; all before it, and nothing of the queue, is scanned.
//!
//! Datasets change meanwhile. A new snapshot takes over the blocks of its head, the next dataset those of a
//! destroyed snapshot, and heads exchange theirs ([`DatasetEvent`]): the bookmark and the queue follow.
//! A walk works with the datasets as they were when it began; [`Aliases`] translates their numbers.
//!
//! Learnt from: `dsl_scan.c` of OpenZFS 2.3.2. Proved by: the tests below, and the engine's
//! `tests/it/scan_state.rs`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use dsl::write::DatasetEvent;
use ondisk::scan::DESTROYED_OBJSET;
use units::{BlockId, Level, ObjectId, ObjsetId, Txg, Zbookmark};

/// Where a scan is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct ScanPosition {
    /// All before it is scanned.
    pub(crate) bookmark: Zbookmark,
    /// Blocks of the bookmark's dataset are scanned that were born after this txg.
    pub(crate) min_txg: Txg,
    /// The same blocks were born up to this txg.
    pub(crate) max_txg: Txg,
    /// The dataset is visited again after this pass, for what was born after `max_txg`.
    pub(crate) visit_again: bool,
    /// Datasets to visit, and the txg after which their own blocks were born.
    pub(crate) queue: Arc<BTreeMap<ObjsetId, Txg>>,
    /// Bytes visited, with all copies and parity.
    pub(crate) examined: u64,
}

/// The first bookmark of an object set.
pub(crate) const fn start_of(objset: ObjsetId) -> Zbookmark {
    Zbookmark::new(objset, ObjectId::META, Level::new(0), BlockId::new(0))
}

impl ScanPosition {
    /// Adds a dataset to the queue.
    pub(crate) fn enqueue(&mut self, dataset: ObjsetId, min_txg: Txg) {
        let queue = Arc::make_mut(&mut self.queue);
        // the content of two datasets may have come to one: the earlier txg covers both
        let known = queue.entry(dataset).or_insert(min_txg);
        *known = min_txg.min(*known);
    }

    /// Takes the next dataset from the queue.
    pub(crate) fn dequeue(&mut self) -> Option<(ObjsetId, Txg)> {
        if self.queue.is_empty() {
            return None;
        }
        Arc::make_mut(&mut self.queue).pop_first()
    }

    /// Follows a change of datasets.
    pub(crate) fn apply(&mut self, event: DatasetEvent) {
        let mut aliases = Aliases::default();
        aliases.apply(event);
        *self = aliases.translate(self);
    }
}

/// Where the content of a dataset is by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Alias {
    /// The dataset; none: it was destroyed.
    dataset: Option<ObjsetId>,
    /// The dataset has more content than that.
    has_more: bool,
}

/// Where the content of datasets is by now, as the datasets were when a walk began.
#[derive(Debug, Default)]
pub(super) struct Aliases(HashMap<ObjsetId, Alias>);

impl Aliases {
    /// Follows a change of datasets.
    pub(super) fn apply(&mut self, event: DatasetEvent) {
        match event {
            DatasetEvent::Snapshotted { head, snapshot } => {
                self.redirect(head, Alias { dataset: Some(snapshot), has_more: false });
            }
            DatasetEvent::SnapshotDestroyed { snapshot, next } => {
                self.redirect(snapshot, Alias { dataset: Some(next), has_more: true });
            }
            DatasetEvent::HeadDestroyed { head } => {
                self.redirect(head, Alias { dataset: None, has_more: false });
            }
            DatasetEvent::HeadsSwapped { first, second } => {
                let (of_first, of_second) = (self.sources(first), self.sources(second));
                for (sources, now) in [(of_first, second), (of_second, first)] {
                    for source in sources {
                        self.set(source, Alias { dataset: Some(now), has_more: false });
                    }
                }
            }
        }
    }

    /// The datasets whose content is in a dataset.
    fn sources(&self, dataset: ObjsetId) -> Vec<ObjsetId> {
        let moved = self.0.iter().filter(|(_, alias)| alias.dataset == Some(dataset));
        let own = (!self.0.contains_key(&dataset)).then_some(dataset);
        moved.map(|(source, _)| *source).chain(own).collect()
    }

    fn redirect(&mut self, from: ObjsetId, to: Alias) {
        for source in self.sources(from) {
            self.set(source, to);
        }
    }

    fn set(&mut self, source: ObjsetId, to: Alias) {
        let had_more = self.0.get(&source).is_some_and(|alias| alias.has_more);
        self.0.insert(source, Alias { has_more: had_more || to.has_more, ..to });
    }

    /// A position with the datasets of a walk, as one with those of now.
    pub(super) fn translate(&self, position: &ScanPosition) -> ScanPosition {
        if self.0.is_empty() {
            return position.clone();
        }
        let mut now = ScanPosition { queue: Arc::default(), ..position.clone() };
        let known = |id| self.0.get(id);
        if let Some(alias) = known(&position.bookmark.objset) {
            now.visit_again |= alias.has_more;
            now.bookmark = match alias.dataset {
                Some(objset) => Zbookmark { objset, ..position.bookmark },
                None => start_of(DESTROYED_OBJSET),
            };
        }
        for (id, min_txg) in &*position.queue {
            match known(id) {
                None => now.enqueue(*id, *min_txg),
                Some(Alias { dataset: Some(id), .. }) => now.enqueue(*id, *min_txg),
                Some(Alias { dataset: None, .. }) => {}
            }
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(number: u64) -> ObjsetId {
        ObjsetId::new(number)
    }

    fn position(current: u64, queued: &[u64]) -> ScanPosition {
        let mut position = ScanPosition { bookmark: start_of(id(current)), ..Default::default() };
        for queued in queued {
            position.enqueue(id(*queued), Txg::new(*queued));
        }
        position
    }

    fn after(events: &[DatasetEvent], before: &ScanPosition) -> ScanPosition {
        let mut position = before.clone();
        for event in events {
            position.apply(*event);
        }
        // a walk that began before them sees the same
        let mut aliases = Aliases::default();
        for event in events {
            aliases.apply(*event);
        }
        assert_eq!(aliases.translate(before), position);
        position
    }

    #[test]
    fn snapshot_takes_the_place_of_its_head() {
        let new = DatasetEvent::Snapshotted { head: id(5), snapshot: id(9) };
        let again = DatasetEvent::Snapshotted { head: id(5), snapshot: id(10) };
        assert_eq!(after(&[new, again], &position(5, &[])).bookmark.objset, id(9));
        let queued = after(&[new, again], &position(1, &[5]));
        assert_eq!(*queued.queue, BTreeMap::from([(id(9), Txg::new(5))]));
    }

    #[test]
    fn next_dataset_takes_the_place_of_destroyed_snapshot() {
        let gone = DatasetEvent::SnapshotDestroyed { snapshot: id(5), next: id(7) };
        let current = after(&[gone], &position(5, &[]));
        assert!(current.visit_again && current.bookmark.objset == id(7));
        let queued = after(&[gone], &position(1, &[5, 7]));
        assert_eq!(*queued.queue, BTreeMap::from([(id(7), Txg::new(5))]));
        let next = DatasetEvent::SnapshotDestroyed { snapshot: id(7), next: id(8) };
        assert_eq!(after(&[gone, next], &position(5, &[])).bookmark.objset, id(8));
    }

    #[test]
    fn destroyed_head_is_left_out() {
        let gone = DatasetEvent::HeadDestroyed { head: id(5) };
        assert_eq!(after(&[gone], &position(5, &[])).bookmark, start_of(DESTROYED_OBJSET));
        assert!(after(&[gone], &position(1, &[5])).queue.is_empty());
        // its number may be that of another dataset by now
        let other = DatasetEvent::Snapshotted { head: id(5), snapshot: id(9) };
        let mut aliases = Aliases::default();
        for event in [gone, other] {
            aliases.apply(event);
        }
        assert!(aliases.translate(&position(1, &[5])).queue.is_empty());
    }

    #[test]
    fn swapped_heads_exchange_their_places() {
        let swap = DatasetEvent::HeadsSwapped { first: id(5), second: id(7) };
        let new = DatasetEvent::Snapshotted { head: id(7), snapshot: id(9) };
        let moved = after(&[swap, new], &position(5, &[7]));
        assert_eq!(moved.bookmark.objset, id(9));
        assert_eq!(*moved.queue, BTreeMap::from([(id(5), Txg::new(7))]));
    }
}
