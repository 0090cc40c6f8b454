//! Content that goes to the drives before its group is written.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use dmu::{PolicyQuery, WriteThrough};
use ondisk::Blkptr;
use parking_lot::{Mutex, RwLock};
use units::Txg;
use zio::{Sink, WritePolicy, Writer};

use super::Owned;
use super::policy::Settings;

/// Blocks that were stored, and that no group leads to: their room is given up with a group.
#[derive(Default)]
pub(crate) struct Unwanted(Mutex<Vec<Blkptr>>);

impl Unwanted {
    fn add(&self, pointer: &Blkptr) {
        self.0.lock().push(pointer.clone());
    }

    /// Those that a group knows to be allocated.
    fn take(&self, txg: Txg) -> Vec<Blkptr> {
        let mut all = self.0.lock();
        let (now, later) = all.drain(..).partition(|pointer: &Blkptr| pointer.birth() <= txg);
        *all = later;
        now
    }
}

/// Where the content of one dataset goes.
pub(super) struct Ahead {
    pub(super) writer: Arc<Writer>,
    pub(super) settings: Arc<RwLock<Settings>>,
    pub(super) unwanted: Arc<Unwanted>,
    /// How many write to the pool.
    pub(super) writers: Arc<AtomicUsize>,
    /// How many threads work on a group.
    pub(super) workers: usize,
}

impl WriteThrough for Ahead {
    fn write_policy(&self, wanted: PolicyQuery) -> Option<WritePolicy> {
        let settings = self.settings.read();
        let policy = settings.policy(wanted);
        (settings.early && !policy.dedup && !policy.uses_nopwrite()).then_some(policy)
    }

    fn sink(&self) -> &dyn Sink {
        &*self.writer
    }

    fn active_writers(&self) -> &AtomicUsize {
        &self.writers
    }

    fn min_writers(&self) -> usize {
        self.workers
    }

    fn add_orphan(&self, pointer: &Blkptr) {
        self.unwanted.add(pointer);
    }
}

impl Owned {
    /// Gives up what was stored for this group and is not part of it.
    pub(super) fn give_up_unwanted(&self, txg: Txg) {
        for pointer in self.unwanted.take(txg) {
            self.writer.free(&pointer, txg);
        }
    }
}

#[cfg(test)]
mod tests {
    use ondisk::Blkptr;
    use ondisk::ObjectType;
    use ondisk::blkptr::Hole;
    use units::{Level, Txg};

    use super::Unwanted;

    #[test]
    fn what_a_later_group_stored_waits_for_it() {
        let born = |txg| {
            let (level, kind) = (Level::new(0), ObjectType::PLAIN_FILE);
            Blkptr::Hole(Hole { birth: Txg::new(txg), level, lsize: 512, kind })
        };
        let unwanted = Unwanted::default();
        for txg in [7, 9, 8] {
            unwanted.add(&born(txg));
        }
        assert_eq!(unwanted.take(Txg::new(8)), [born(7), born(8)]);
        assert_eq!(unwanted.take(Txg::new(8)), []);
        assert_eq!(unwanted.take(Txg::new(9)), [born(9)]);
    }
}
