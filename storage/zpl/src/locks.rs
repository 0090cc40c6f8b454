//! Locks against concurrent changes of files.
//!
//! Every operation that changes files locks them first and begins its transaction then, so that
//! the txgs of one file's changes never decrease. Locks are stripes by object number; several
//! are always locked in the stripes' order. Two more locks belong to no single file: the
//! shape of the tree (directories that move elsewhere) and the set of unlinked files. Order:
//!
//! ```text
//! tree -> files -> unlinked set -> layouts -> transaction
//! ```

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use units::ObjectId;

use crate::chunked_table::ChunkedTable;

const STRIPES: usize = 1024;

/// The locks of a file system.
#[derive(Debug)]
pub(crate) struct FileLocks {
    stripes: ChunkedTable<RwLock<()>>,
    tree: Mutex<()>,
    unlinked: Mutex<()>,
}

impl Default for FileLocks {
    fn default() -> Self {
        let stripes = ChunkedTable::new(STRIPES);
        Self { stripes, tree: Mutex::default(), unlinked: Mutex::default() }
    }
}

impl FileLocks {
    /// The file stays as it is while this lives.
    pub(crate) fn read(&self, id: ObjectId) -> Option<RwLockReadGuard<'_, ()>> {
        self.stripes.get(stripe_of(id)).map(RwLock::read)
    }

    /// Only the holder may read or change the files.
    pub(crate) fn write(&self, files: &[ObjectId]) -> Vec<RwLockWriteGuard<'_, ()>> {
        let mut wanted: Vec<usize> = files.iter().copied().map(stripe_of).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let guards: Vec<_> =
            wanted.iter().filter_map(|at| self.stripes.get(*at)).map(RwLock::write).collect();
        assert_eq!(guards.len(), wanted.len(), "each file is locked");
        guards
    }

    /// No directory moves elsewhere while this lives.
    pub(crate) fn lock_tree(&self) -> MutexGuard<'_, ()> {
        self.tree.lock()
    }

    /// Only the holder may change the set of unlinked files.
    pub(crate) fn lock_unlinked_set(&self) -> MutexGuard<'_, ()> {
        self.unlinked.lock()
    }
}

/// Neighbouring numbers use different stripes.
fn stripe_of(id: ObjectId) -> usize {
    units::to_usize(id.get()) % STRIPES
}

#[cfg(test)]
mod tests {
    use super::{FileLocks, STRIPES};
    use units::ObjectId;

    #[test]
    fn files_of_one_stripe_are_locked_once() {
        let locks = FileLocks::default();
        let far = ObjectId::new(7 + STRIPES as u64);
        let held = locks.write(&[far, ObjectId::new(9), ObjectId::new(7)]);
        assert_eq!(held.len(), 2);
        drop(held);
        assert!(locks.read(far).is_some());
    }
}
