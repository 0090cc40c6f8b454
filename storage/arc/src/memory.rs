//! Memory that several caches share.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// What is reserved may grow by so much before caches are told.
const STEP: usize = 1 << 20;

/// What holds blocks within a share.
pub(crate) trait Holder: Send + Sync {
    /// Has it hold no more than so many bytes: it may be asked for nothing for a long time.
    fn shrink(&self, bytes: usize);
}

/// So many bytes, for all caches that are made with a clone of this.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Inner>);

struct Inner {
    bytes: usize,
    caches: AtomicUsize,
    holders: Mutex<Vec<Weak<dyn Holder>>>,
    /// Bytes that something else than blocks takes.
    reserved: AtomicUsize,
}

impl Memory {
    /// So many bytes.
    pub fn of(bytes: usize) -> Self {
        let (caches, holders, reserved) = Default::default();
        Self(Arc::new(Inner { bytes, caches, holders, reserved }))
    }

    /// All of it.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// One more cache takes part, and the others give up what is its.
    pub(crate) fn share(&self, holder: Weak<dyn Holder>) -> Share {
        self.0.caches.fetch_add(1, Ordering::Relaxed);
        let mut holders = self.0.holders.lock();
        holders.retain(|holder| holder.strong_count() > 0);
        holders.push(holder);
        drop(holders);
        self.shrink();
        Share(self.clone())
    }

    /// What each cache may have.
    fn each(&self) -> usize {
        let left = self.bytes().saturating_sub(self.0.reserved.load(Ordering::Relaxed));
        left / self.0.caches.load(Ordering::Relaxed).max(1)
    }

    /// Has all caches keep to what they may have now.
    fn shrink(&self) {
        let holders: Vec<_> = self.0.holders.lock().iter().filter_map(Weak::upgrade).collect();
        for holder in holders {
            holder.shrink(self.each());
        }
    }

    /// Something else takes part that caches need; it takes nothing yet.
    pub(crate) fn reserve(&self) -> Reserve {
        Reserve { memory: self.clone(), bytes: AtomicUsize::default() }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes for {} caches", self.bytes, self.caches.load(Ordering::Relaxed))
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
        self.0.each()
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
        if bytes / STEP > before / STEP {
            self.memory.shrink();
        }
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
