//! Memory that several caches share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many bytes, for all caches that are made with a clone of this.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes: usize,
    caches: AtomicUsize,
    /// Bytes that something else than blocks takes.
    reserved: AtomicUsize,
}

impl Memory {
    /// So many bytes.
    pub fn of(bytes: usize) -> Self {
        let (caches, reserved) = Default::default();
        Self(Arc::new(Inner { bytes, caches, reserved }))
    }

    /// All of it.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// One more cache takes part.
    pub(crate) fn share(&self) -> Share {
        self.0.caches.fetch_add(1, Ordering::Relaxed);
        Share(self.clone())
    }

    /// Something else takes part that caches need; it takes nothing yet.
    pub(crate) fn reserve(&self) -> Reserve {
        Reserve { memory: self.clone(), bytes: AtomicUsize::default() }
    }
}

impl Default for Memory {
    /// What a reader needs who reads each thing once.
    fn default() -> Self {
        Self::of(160 << 20)
    }
}

/// What one cache has of it.
#[derive(Debug)]
pub(crate) struct Share(Memory);

impl Share {
    /// Bytes, now: others come and go.
    pub(crate) fn bytes(&self) -> usize {
        let Share(memory) = self;
        let reserved = memory.0.reserved.load(Ordering::Relaxed);
        memory.bytes().saturating_sub(reserved) / memory.0.caches.load(Ordering::Relaxed).max(1)
    }
}

/// What something else than blocks takes.
#[derive(Debug)]
pub(crate) struct Reserve {
    memory: Memory,
    bytes: AtomicUsize,
}

impl Reserve {
    /// It takes so many bytes now.
    pub(crate) fn set(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        let reserved = &self.memory.0.reserved;
        reserved.fetch_add(bytes, Ordering::Relaxed);
        reserved.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.0.caches.fetch_sub(1, Ordering::Relaxed);
    }
}
