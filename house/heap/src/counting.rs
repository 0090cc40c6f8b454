//! An allocator that counts, for tests and benchmarks of memory.
//!
//! It is the system's allocator with two counters: the bytes that are allocated now, and the most that there were
//! since the counter was reset. Bytes are those that the program requested, without the allocator's own overhead.
//!
//! `unsafe` because the trait of allocators is.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a count of the bytes that are allocated.
#[derive(Debug)]
pub struct CountingAllocator;

impl CountingAllocator {
    /// Bytes that are allocated now.
    pub fn allocated() -> usize {
        ALLOCATED.load(Relaxed)
    }

    /// The most bytes that were allocated at a time since the last [`Self::reset_peak`].
    pub fn peak() -> usize {
        PEAK.load(Relaxed)
    }

    /// Begins to look for the peak anew.
    pub fn reset_peak() {
        PEAK.store(Self::allocated(), Relaxed);
    }

    fn add(bytes: usize) {
        let before = ALLOCATED.fetch_add(bytes, Relaxed);
        PEAK.fetch_max(before.wrapping_add(bytes), Relaxed);
    }

    fn remove(bytes: usize) {
        ALLOCATED.fetch_sub(bytes, Relaxed);
    }
}

// SAFETY: each call goes to the system's allocator with the caller's arguments, so its guarantees hold.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            Self::add(layout.size());
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            Self::add(layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller gives a block of this allocator, which is one of the system's
        unsafe { System.dealloc(block, layout) };
        Self::remove(layout.size());
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller gives a block of this allocator, which is one of the system's
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            Self::remove(layout.size());
            Self::add(size);
        }
        moved
    }
}
