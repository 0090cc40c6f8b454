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
        let (mut at, end) = (u64::from(position), u64::from(position) + u64::from(length));
        let mut out = Vec::new();
        while at < end {
            let start = at.checked_div(window).unwrap_or(0) * window;
            let bytes = self.window(repository, pack.0, start..start + window)?;
            let from = units::to_usize(at - start);
            let wanted = units::to_usize(end - at);
            let rest = bytes.get(from..).unwrap_or_default();
            let part = rest.get(..wanted.min(rest.len())).unwrap_or_default();
            if part.is_empty() {
                break;
            }
            out.extend_from_slice(part);
            at += crate::bytes::length(part);
        }
        Ok(out)
    }

    fn window(
        &self,
        repository: &Repository,
        pack: ObjectId,
        range: std::ops::Range<u64>,
    ) -> Result<Arc<Vec<u8>>> {
        let window = self.0.lock().get((pack, range.start), range.end - range.start);
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
        windows.bytes -= size;
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
        while self.bytes + size > MAX_BYTES {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(key, _)| *key) else { break };
            let gone = self.entries.remove(&oldest).map_or(0, |entry| entry.size);
            self.bytes -= gone;
        }
        let window = Arc::new(Window::default());
        self.bytes += size;
        self.entries.insert(key, Entry { window: Arc::clone(&window), size, used: clock });
        window
    }
}
