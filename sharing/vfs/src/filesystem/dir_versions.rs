//! Versions of directories: they change when names are added, removed or renamed, for caches of
//! listings.

use posix::Ino;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of versions. Two directories that share one cost a needless read at most.
const BUCKETS: u64 = 256;

/// How often the names of directories were changed.
pub(super) struct DirVersions(Vec<AtomicU64>);

impl Default for DirVersions {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl DirVersions {
    fn bucket(&self, dir: Ino) -> Option<&AtomicU64> {
        self.0.get(usize::try_from(dir.get() % BUCKETS).ok()?)
    }

    /// Another number than before, if names changed since.
    pub(super) fn current(&self, dir: Ino) -> u64 {
        self.bucket(dir).map_or(0, |lane| lane.load(Ordering::Acquire))
    }

    /// The names of all directories may have changed.
    pub(super) fn bump_all(&self) {
        for version in &self.0 {
            version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Runs a change of names in directories.
    pub(super) fn bump_after<T>(&self, dirs: &[Ino], work: impl FnOnce() -> T) -> T {
        let done = work();
        // afterwards, because a concurrent listing could record the old names under the newest
        // version; and regardless of the result, because a failed change may have been done in part
        for lane in dirs.iter().filter_map(|dir| self.bucket(*dir)) {
            lane.fetch_add(1, Ordering::AcqRel);
        }
        done
    }
}
