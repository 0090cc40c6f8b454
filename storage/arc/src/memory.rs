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
}

impl Memory {
    /// So many bytes.
    pub fn of(bytes: usize) -> Self {
        Self(Arc::new(Inner { bytes, caches: AtomicUsize::new(0) }))
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
        memory.bytes() / memory.0.caches.load(Ordering::Relaxed).max(1)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.0.caches.fetch_sub(1, Ordering::Relaxed);
    }
}
