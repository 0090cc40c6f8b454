//! Files that programs have open, and which of them a program may have mapped writable.
//!
//! A program changes the pages of a shared mapping without a request to us; the kernel writes them out some
//! time later. Until then the pool may have a hole where the page has data. The kernel keeps a handle open as
//! long as a mapping of it lives, writes the pages out when the mapping goes, and only then sends RELEASE. So
//! a file has no such pages unless a handle is open that was opened to be read and written: mmap(2) refuses
//! others. [`MappableFiles`] counts these handles; LSEEK claims no hole while there is one.
//!
//! Requests that copy or read need no such care: before COPY_FILE_RANGE, FALLOCATE and READ of an O_DIRECT
//! handle the kernel writes out the pages of the range.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use posix::Ino;
use vfs::OpenFile;

/// The access mode of open(2), and the one that allows a shared mapping to be written.
const O_ACCMODE: i32 = 3;
const O_RDWR: i32 = 2;

/// How many handles of each node allow a mapping that is written.
#[derive(Default)]
pub(super) struct MappableFiles(Mutex<HashMap<u64, usize>>);

impl MappableFiles {
    /// Whether a program may have mapped the node writable.
    pub(super) fn contains(&self, node: u64) -> bool {
        self.0.lock().contains_key(&node)
    }

    fn add(self: &Arc<Self>, node: u64) -> MappableHandle {
        let mut counts = self.0.lock();
        let count = counts.entry(node).or_default();
        *count += 1;
        MappableHandle { files: Arc::clone(self), node }
    }
}

/// Counts one handle as long as it is open.
struct MappableHandle {
    files: Arc<MappableFiles>,
    node: u64,
}

impl Drop for MappableHandle {
    fn drop(&mut self) {
        let mut counts = self.files.0.lock();
        if let Some(count) = counts.get_mut(&self.node) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.node);
            }
        }
    }
}

/// An open handle of a file.
pub(super) struct FileHandle {
    pub(super) file: OpenFile,
    _mappable: Option<MappableHandle>,
    /// The owners that set byte locks by this handle.
    lock_owners: Mutex<Vec<u64>>,
}

impl FileHandle {
    /// A handle that the kernel opens with these flags of open(2).
    pub(super) fn new(file: OpenFile, flags: i32, files: &Arc<MappableFiles>) -> Self {
        let is_mappable = flags & O_ACCMODE == O_RDWR;
        let node = file.ino().ok().filter(|_| is_mappable).map(Ino::get);
        let mappable = node.map(|node| files.add(node));
        Self { file, _mappable: mappable, lock_owners: Mutex::default() }
    }

    /// An owner sets a byte lock by this handle.
    pub(super) fn add_lock_owner(&self, owner: u64) {
        let mut owners = self.lock_owners.lock();
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }

    /// The owners that set byte locks by this handle. It has none afterwards.
    pub(super) fn take_lock_owners(&self) -> Vec<u64> {
        std::mem::take(&mut *self.lock_owners.lock())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::MappableFiles;

    #[test]
    fn node_is_mappable_until_its_last_handle_closes() {
        let files = Arc::new(MappableFiles::default());
        let (first, second, other) = (files.add(7), files.add(7), files.add(8));
        drop(first);
        assert!(files.contains(7));
        drop(second);
        assert!(!files.contains(7) && files.contains(8));
        drop(other);
        assert!(files.0.lock().is_empty());
    }
}
