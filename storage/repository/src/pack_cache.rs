//! Cached parts of packs in memory, so that adjacent blocks cost one request.
//!
//! Packs are read in aligned windows. Adjacent blocks of a file are adjacent in a pack, so the next
//! block is mostly in the window that was just read. Packs never change, so windows are never
//! stale.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::head::{ObjectId, PACKS};
use crate::{PackKind, Repository, Result};

/// Bytes of a window in packs of data.
const DATA_WINDOW: u64 = 1 << 20;
/// Bytes of a window in packs of metadata, which are read here and there.
const METADATA_WINDOW: u64 = 256 << 10;
/// Bytes that the windows of a repository take at most.
const MAX_BYTES: u64 = 96 << 20;

type WindowKey = (ObjectId, u64);

/// Windows of packs, the least recently used of which go first.
#[derive(Default)]
pub(crate) struct PackCache(Mutex<Windows>);

/// A window; the first thread that wants it reads it, and the others wait.
#[derive(Default)]
struct Window(Mutex<Option<Arc<Vec<u8>>>>);

#[derive(Default)]
struct Windows {
    entries: HashMap<WindowKey, Entry>,
    bytes: u64,
    clock: u64,
}

/// A window, its size at most, and the time of its last use.
struct Entry {
    window: Arc<Window>,
    size: u64,
    used: u64,
}

impl PackCache {
    /// Bytes of a pack from `position` on. Fewer come if the pack ends before.
    pub(crate) fn read(
        &self,
        repository: &Repository,
        pack: (ObjectId, PackKind),
        position: u32,
        length: u32,
    ) -> Result<Vec<u8>> {
        let window = if pack.1 == PackKind::Data { DATA_WINDOW } else { METADATA_WINDOW };
        let (mut at, end) =
            (u64::from(position), u64::from(position).saturating_add(length.into()));
        let mut out = Vec::new();
        while at < end {
            let start = at.checked_div(window).unwrap_or(0).saturating_mul(window);
            let bytes = self.window(repository, pack.0, start..start.saturating_add(window))?;
            let from = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
            let wanted = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
            let rest = bytes.get(from..).unwrap_or_default();
            let part = rest.get(..wanted.min(rest.len())).unwrap_or_default();
            if part.is_empty() {
                break;
            }
            out.extend_from_slice(part);
            at = at.saturating_add(crate::bytes::length(part));
        }
        Ok(out)
    }

    fn window(
        &self,
        repository: &Repository,
        pack: ObjectId,
        range: std::ops::Range<u64>,
    ) -> Result<Arc<Vec<u8>>> {
        let window = self.0.lock().get((pack, range.start), range.end.saturating_sub(range.start));
        let mut bytes = window.0.lock();
        if let Some(known) = &*bytes {
            return Ok(Arc::clone(known));
        }
        let read = Arc::new(repository.read_range(&pack.name(PACKS), range)?);
        *bytes = Some(Arc::clone(&read));
        Ok(read)
    }

    /// Drops the cached parts of a pack, which were wrong.
    pub(crate) fn forget(&self, pack: ObjectId) {
        let mut windows = self.0.lock();
        let of_pack = windows.entries.iter().filter(|(key, _)| key.0 == pack);
        let size: u64 = of_pack.map(|(_, entry)| entry.size).sum();
        windows.bytes = windows.bytes.saturating_sub(size);
        windows.entries.retain(|key, _| key.0 != pack);
    }
}

impl Windows {
    /// The window at a place, perhaps not read yet.
    fn get(&mut self, key: WindowKey, size: u64) -> Arc<Window> {
        self.clock = self.clock.wrapping_add(1);
        let clock = self.clock;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.used = clock;
            return Arc::clone(&entry.window);
        }
        while self.bytes.saturating_add(size) > MAX_BYTES {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(key, _)| *key) else { break };
            let gone = self.entries.remove(&oldest).map_or(0, |entry| entry.size);
            self.bytes = self.bytes.saturating_sub(gone);
        }
        let window = Arc::new(Window::default());
        self.bytes = self.bytes.saturating_add(size);
        self.entries.insert(key, Entry { window: Arc::clone(&window), size, used: clock });
        window
    }
}
