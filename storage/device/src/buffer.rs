//! Reused memory for blocks: the first touch of fresh pages costs far more than reading a
//! block into warm ones.
//!
//! All threads share one store, because the thread that writes a block out is seldom the one that
//! allocated it. The store sorts free buffers by their capacity, a power of two. Its total is
//! limited ([`raise_limit`]).

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Smaller ones are left to the allocator, which is good at them.
const MIN_POOLED: usize = 16 << 10;
/// Larger ones are rare.
const MAX_POOLED: usize = 16 << 20;
/// Powers of two from the one to the other.
const CLASS_COUNT: usize = (MAX_POOLED / MIN_POOLED).ilog2() as usize + 1;

/// Bytes that are kept until [`raise_limit`] is called.
const DEFAULT_LIMIT: usize = 64 << 20;

struct BufferPool {
    classes: [Mutex<Vec<Vec<u8>>>; CLASS_COUNT],
    pooled_bytes: AtomicUsize,
    /// The limit of the store, in bytes, unless [`raise_limit`] raised it.
    usual: usize,
    /// The highest limit that a caller set; 0: none.
    asked: AtomicUsize,
}

static POOL: BufferPool = BufferPool::new(DEFAULT_LIMIT);

/// A buffer of `length` bytes with any content.
pub fn alloc(length: usize) -> Vec<u8> {
    POOL.alloc(length)
}

/// Gives a buffer back.
pub fn recycle(buffer: Vec<u8>) {
    POOL.recycle(buffer);
}

/// Frees all unused buffers.
pub fn free_all() {
    POOL.free_all();
}

/// Raises the limit of the store to the bytes that are in flight at once. The largest of several
/// calls counts. number counts.
pub fn raise_limit(bytes: usize) {
    POOL.asked.fetch_max(bytes, Ordering::Relaxed);
}

impl BufferPool {
    const fn new(usual: usize) -> Self {
        let classes = [const { Mutex::new(Vec::new()) }; CLASS_COUNT];
        Self { classes, pooled_bytes: AtomicUsize::new(0), usual, asked: AtomicUsize::new(0) }
    }

    fn limit(&self) -> usize {
        match self.asked.load(Ordering::Relaxed) {
            0 => self.usual,
            asked => asked,
        }
    }

    fn alloc(&self, length: usize) -> Vec<u8> {
        let class = size_class(length);
        let Some(class) = class else { return vec![0; length] };
        let kept = self.classes.get(class).and_then(|class| class.lock().ok()?.pop());
        let mut buffer = match kept {
            Some(kept) => {
                assert!(kept.capacity() >= length, "a buffer is as large as its class");
                let before = self.pooled_bytes.fetch_sub(kept.capacity(), Ordering::Relaxed);
                assert!(before >= kept.capacity(), "the store has the bytes of its buffers");
                kept
            }
            None => Vec::with_capacity(MIN_POOLED << class),
        };
        buffer.resize(length, 0);
        buffer
    }

    fn free_all(&self) {
        for class in &self.classes {
            let Ok(mut class) = class.lock() else { continue };
            let free = std::mem::take(&mut *class);
            drop(class);
            let bytes = free.iter().map(Vec::capacity).sum();
            let before = self.pooled_bytes.fetch_sub(bytes, Ordering::Relaxed);
            assert!(before >= bytes, "the store frees {bytes} bytes of {before}");
        }
    }

    fn recycle(&self, buffer: Vec<u8>) {
        let room = buffer.capacity();
        if !(MIN_POOLED..2 * MAX_POOLED).contains(&room) {
            return;
        }
        // the capacity that every buffer of its class has
        let class = (room / MIN_POOLED).ilog2() as usize;
        let held = self.pooled_bytes.fetch_add(room, Ordering::Relaxed);
        let is_too_much = held + room > self.limit();
        let class = self.classes.get(class).filter(|_| !is_too_much);
        if let Some(mut class) = class.and_then(|class| class.lock().ok()) {
            class.push(buffer);
        } else {
            let before = self.pooled_bytes.fetch_sub(room, Ordering::Relaxed);
            assert!(before >= room, "a buffer of {room} bytes was counted, of {before} in all");
        }
    }
}

/// The class whose buffers all have this capacity; none if the store does not keep such buffers.
fn size_class(length: usize) -> Option<usize> {
    let wanted = length.next_power_of_two();
    (MIN_POOLED / 2 < wanted && wanted <= MAX_POOLED && length >= MIN_POOLED)
        .then(|| (wanted / MIN_POOLED).ilog2() as usize)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::{BufferPool, MAX_POOLED, MIN_POOLED};

    #[test]
    fn buffers_are_reused_up_to_the_limit() {
        let store = BufferPool::new(40 * MIN_POOLED);
        let buffer = store.alloc(MIN_POOLED + 1);
        let place = buffer.as_ptr();
        std::thread::scope(|scope| drop(scope.spawn(|| store.recycle(buffer)).join()));
        let again = store.alloc(2 * MIN_POOLED);
        assert_eq!(again.as_ptr(), place);
        for _ in 0..100 {
            store.recycle(vec![1; MIN_POOLED]);
        }
        assert_eq!(store.classes[0].lock().unwrap().len(), 40);
        store.recycle(vec![1; MIN_POOLED - 1]);
        assert_eq!(store.alloc(MIN_POOLED).len(), MIN_POOLED);
        assert_eq!(store.classes[0].lock().unwrap().len(), 39);
        assert_eq!(store.alloc(10).len(), 10);
        store.free_all();
        assert!(store.classes.iter().all(|class| class.lock().unwrap().is_empty()));
        assert_eq!(store.pooled_bytes.load(Ordering::Relaxed), 0);
        // a lower limit than the default may be set
        let store = BufferPool::new(40 * MIN_POOLED);
        store.asked.fetch_max(4 * MIN_POOLED, Ordering::Relaxed);
        (0..100).for_each(|_| store.recycle(vec![1; MIN_POOLED]));
        assert_eq!(store.classes[0].lock().unwrap().len(), 4);
    }

    #[test]
    fn buffers_have_the_requested_capacity() {
        let store = BufferPool::new(usize::MAX);
        for length in [
            0,
            1,
            MIN_POOLED - 1,
            MIN_POOLED,
            MIN_POOLED + 1,
            3 * MIN_POOLED,
            MAX_POOLED,
            MAX_POOLED + 1,
            3 * MAX_POOLED,
        ] {
            for room in [MIN_POOLED, MIN_POOLED + 4096, 3 * MIN_POOLED, MAX_POOLED, MAX_POOLED + 1]
            {
                store.recycle(Vec::with_capacity(room));
            }
            assert_eq!(store.alloc(length).len(), length);
        }
    }
}
