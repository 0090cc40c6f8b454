//! Open files of requests that identify a file by its handle alone: those of NFSv3, and those of
//! NFSv4 without a stateid.
//!
//! Such a client never closes a file explicitly. The cache keeps a file open for a few seconds after its last use,
//! so that a stream of reads has one read-ahead. A cached file is opened without access checks: each request checks
//! its caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use posix::access::OpenMode;
use vfs::{FileHandle, OpenFile};

use crate::node::FileNode;
use crate::request::Request;

/// The time that a file stays open after its last use.
const IDLE: Duration = Duration::from_secs(3);
/// Files that the cache holds.
const CAPACITY: usize = 512;

/// Open files by their handles, and whether they are open to write.
#[derive(Default)]
pub(crate) struct OpenCache(Mutex<HashMap<(FileHandle, bool), Entry>>);

struct Entry {
    file: Arc<OpenFile>,
    used: Instant,
}

impl OpenCache {
    /// A file, opened to read or to write. The caller has checked that the request may do so.
    pub(crate) fn open(
        &self,
        request: &Request<'_>,
        node: &FileNode,
        writes: bool,
    ) -> vfs::Result<Arc<OpenFile>> {
        let key = (node.handle, writes);
        if let Some(entry) = self.0.lock().get_mut(&key) {
            entry.used = Instant::now();
            return Ok(Arc::clone(&entry.file));
        }
        let mode = if writes { OpenMode::READ_WRITE } else { OpenMode::READ };
        let context = request.context(node).checked_by_door();
        let file = Arc::new(node.export.filesystem.open(&context, node.ino, mode)?);
        let entry = Entry { file: Arc::clone(&file), used: Instant::now() };
        let mut files = self.0.lock();
        let dropped = if files.len() < CAPACITY { None } else { oldest(&files) };
        let dropped = dropped.and_then(|key| files.remove(&key));
        let replaced = files.insert(key, entry);
        // a file that is closed may free its blocks: not under the lock
        drop(files);
        drop((dropped, replaced));
        Ok(file)
    }

    /// Closes a file whose name was removed, so that its space is freed.
    pub(crate) fn close(&self, handle: &FileHandle) {
        let mut files = self.0.lock();
        let closed = [false, true].map(|writes| files.remove(&(*handle, writes)));
        drop(files);
        drop(closed);
    }

    /// Closes the files that were not used for a while.
    pub(crate) fn close_idle(&self) {
        let now = Instant::now();
        let is_idle = |entry: &Entry| now.saturating_duration_since(entry.used) >= IDLE;
        let closed: Vec<_> = self.0.lock().extract_if(|_, entry| is_idle(entry)).collect();
        drop(closed);
    }

    /// Closes all files.
    pub(crate) fn close_all(&self) {
        let closed = std::mem::take(&mut *self.0.lock());
        drop(closed);
    }
}

fn oldest(files: &HashMap<(FileHandle, bool), Entry>) -> Option<(FileHandle, bool)> {
    files.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key)
}
