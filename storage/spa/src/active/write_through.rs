//! Content that goes to the drives before its group is written.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use dmu::{PolicyQuery, WriteThrough};
use lock::{Mutex, rank};
use ondisk::Blkptr;
use units::Txg;
use zio::{Sink, WritePolicy, Writer};

use super::ActivePool;

/// Eagerly written blocks that no txg refers to: they are freed with a txg.
#[derive(Default)]
pub(crate) struct OrphanBlocks(Mutex<Vec<Blkptr>, { rank::ORPHANS }>);

impl OrphanBlocks {
    fn add(&self, pointer: &Blkptr) {
        self.0.lock().push(pointer.clone());
    }

    /// Those that a txg knows to be allocated.
    fn drain_up_to(&self, txg: Txg) -> Vec<Blkptr> {
        let mut all = self.0.lock();
        // Rule W1: an orphan of a later txg waits. Its allocation is in no space map yet, and a free that is synced
        // before it would have its space allocated again while a log record points to it.
        let (now, later) = all.drain(..).partition(|pointer: &Blkptr| pointer.birth() <= txg);
        *all = later;
        now
    }
}

/// Where the content of one dataset goes.
pub(super) struct DatasetWriteThrough {
    pub(super) writer: Arc<Writer>,
    pub(super) settings: super::open_dataset::SharedSettings,
    pub(super) orphans: Arc<OrphanBlocks>,
    /// How many write to the pool.
    pub(super) active_writers: Arc<AtomicUsize>,
    /// How many threads work on a group.
    pub(super) workers: usize,
}

impl WriteThrough for DatasetWriteThrough {
    fn write_policy(&self, wanted: PolicyQuery) -> Option<WritePolicy> {
        let settings = self.settings.read();
        let policy = settings.write_policy(wanted);
        (settings.write_through && !policy.dedup && !policy.uses_nopwrite()).then_some(policy)
    }

    fn log_write_policy(&self, wanted: PolicyQuery) -> Option<WritePolicy> {
        let policy = self.settings.read().write_policy(wanted);
        (!policy.dedup && !policy.uses_nopwrite() && !policy.keyless).then_some(policy)
    }

    fn sink(&self) -> &dyn Sink {
        &*self.writer
    }

    fn active_writers(&self) -> &AtomicUsize {
        &self.active_writers
    }

    fn min_writers(&self) -> usize {
        self.workers
    }

    fn add_orphan(&self, pointer: &Blkptr) {
        self.orphans.add(pointer);
    }
}

impl ActivePool {
    /// Frees the blocks that were written for this txg and are not part of it.
    pub(super) fn free_orphan_blocks(&self, txg: Txg) {
        for pointer in self.orphans.drain_up_to(txg) {
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

    use super::OrphanBlocks;

    #[test]
    fn block_of_a_later_txg_waits_for_it() {
        let born = |txg| {
            let (level, kind) = (Level::new(0), ObjectType::PLAIN_FILE);
            Blkptr::Hole(Hole { birth: Txg::new(txg), level, lsize: 512, kind })
        };
        let unwanted = OrphanBlocks::default();
        for txg in [7, 9, 8] {
            unwanted.add(&born(txg));
        }
        assert_eq!(unwanted.drain_up_to(Txg::new(8)), [born(7), born(8)]);
        assert_eq!(unwanted.drain_up_to(Txg::new(8)), []);
        assert_eq!(unwanted.drain_up_to(Txg::new(9)), [born(9)]);
    }
}
