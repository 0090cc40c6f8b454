//! The volumes that a mounted directory shows as files, by number.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lun::Lun;
use parking_lot::RwLock;

/// The root has the nodeid 1.
const FIRST_ID: u64 = 2;

/// The volumes of a mounted directory. Cheap to clone; all clones are one table.
#[derive(Clone)]
pub struct VolumeFiles(Arc<Inner>);

struct Inner {
    next_id: AtomicU64,
    units: RwLock<HashMap<u64, Arc<dyn Lun>>>,
}

/// The number of a file, which no other file of that directory ever has. It is the inode number, and its decimal form
/// is the file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeFileId(pub(crate) u64);

impl std::fmt::Display for VolumeFileId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Default for VolumeFiles {
    fn default() -> Self {
        let inner = Inner { next_id: AtomicU64::new(FIRST_ID), units: RwLock::default() };
        Self(Arc::new(inner))
    }
}

impl VolumeFiles {
    /// Shows a volume as a file.
    pub fn add(&self, unit: Arc<dyn Lun>) -> VolumeFileId {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        self.0.units.write().insert(id, unit);
        VolumeFileId(id)
    }

    /// Removes a file and its reference to the volume. Requests of programs that have it open fail.
    pub fn remove(&self, id: VolumeFileId) {
        let gone = self.0.units.write().remove(&id.0);
        // closing a volume takes its time, in which other requests need not wait
        drop(gone);
    }

    /// The volume of an inode number.
    pub(crate) fn unit(&self, id: u64) -> Option<Arc<dyn Lun>> {
        self.0.units.read().get(&id).cloned()
    }
}
