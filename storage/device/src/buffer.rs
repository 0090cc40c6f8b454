//! Memory for blocks, used again: the first touch of fresh pages costs far more than reading a
//! block into warm ones.
//!
//! There is one store for all threads, since who writes a block out is seldom who brought it: a
//! buffer that one thread gives back is what another one takes next. It keeps buffers by the power
//! of two that they have room for, up to a limit of bytes altogether ([`keep`]).

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Smaller ones are left to the allocator, which is good at them.
const SMALL: usize = 16 << 10;
/// Larger ones are rare.
const LARGE: usize = 16 << 20;
/// Powers of two from the one to the other.
const CLASSES: usize = (LARGE / SMALL).ilog2() as usize + 1;

/// Bytes that are kept until [`keep`] is called.
const USUAL: usize = 64 << 20;

struct Store {
    classes: [Mutex<Vec<Vec<u8>>>; CLASSES],
    held: AtomicUsize,
    /// Bytes that are kept if nothing is asked for.
    usual: usize,
    /// The most that was asked for; 0: nothing.
    asked: AtomicUsize,
}

static STORE: Store = Store::new(USUAL);

/// A buffer of `length` bytes with any content.
pub fn take(length: usize) -> Vec<u8> {
    STORE.take(length)
}

/// Gives a buffer back.
pub fn give(buffer: Vec<u8>) {
    STORE.give(buffer);
}

/// Frees all buffers that nobody uses.
pub fn free_all() {
    STORE.free_all();
}

/// Has so many bytes kept from now on: as many as are on their way at once. Of several calls the largest
/// number counts.
pub fn keep(bytes: usize) {
    STORE.asked.fetch_max(bytes, Ordering::Relaxed);
}

impl Store {
    const fn new(usual: usize) -> Self {
        let classes = [const { Mutex::new(Vec::new()) }; CLASSES];
        Self { classes, held: AtomicUsize::new(0), usual, asked: AtomicUsize::new(0) }
    }

    fn limit(&self) -> usize {
        match self.asked.load(Ordering::Relaxed) {
            0 => self.usual,
            asked => asked,
        }
    }

    fn take(&self, length: usize) -> Vec<u8> {
        let class = class_that_holds(length);
        let Some(class) = class else { return vec![0; length] };
        let kept = self.classes.get(class).and_then(|class| class.lock().ok()?.pop());
        let mut buffer = match kept {
            Some(kept) => {
                self.held.fetch_sub(kept.capacity(), Ordering::Relaxed);
                kept
            }
            None => Vec::with_capacity(SMALL << class),
        };
        buffer.resize(length, 0);
        buffer
    }

    fn free_all(&self) {
        for class in &self.classes {
            let Ok(mut class) = class.lock() else { continue };
            let free = std::mem::take(&mut *class);
            drop(class);
            self.held.fetch_sub(free.iter().map(Vec::capacity).sum(), Ordering::Relaxed);
        }
    }

    fn give(&self, buffer: Vec<u8>) {
        let room = buffer.capacity();
        if !(SMALL..2 * LARGE).contains(&room) {
            return;
        }
        // what it has room for in any case
        let class = (room / SMALL).ilog2() as usize;
        let held = self.held.fetch_add(room, Ordering::Relaxed);
        let is_too_much = held.saturating_add(room) > self.limit();
        let class = self.classes.get(class).filter(|_| !is_too_much);
        match class.and_then(|class| class.lock().ok()) {
            Some(mut class) => class.push(buffer),
            None => drop(self.held.fetch_sub(room, Ordering::Relaxed)),
        }
    }
}

/// The class whose buffers all have room for so many bytes; none if they are not kept.
fn class_that_holds(length: usize) -> Option<usize> {
    let wanted = length.next_power_of_two();
    (SMALL / 2 < wanted && wanted <= LARGE && length >= SMALL)
        .then(|| (wanted / SMALL).ilog2() as usize)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::{LARGE, SMALL, Store};

    #[test]
    fn memory_is_used_again_and_only_so_much_is_kept() {
        let store = Store::new(40 * SMALL);
        let buffer = store.take(SMALL + 1);
        let place = buffer.as_ptr();
        std::thread::scope(|scope| drop(scope.spawn(|| store.give(buffer)).join()));
        let again = store.take(2 * SMALL);
        assert_eq!(again.as_ptr(), place);
        for _ in 0..100 {
            store.give(vec![1; SMALL]);
        }
        assert_eq!(store.classes[0].lock().unwrap().len(), 40);
        store.give(vec![1; SMALL - 1]);
        assert_eq!(store.take(SMALL).len(), SMALL);
        assert_eq!(store.classes[0].lock().unwrap().len(), 39);
        assert_eq!(store.take(10).len(), 10);
        store.free_all();
        assert!(store.classes.iter().all(|class| class.lock().unwrap().is_empty()));
        assert_eq!(store.held.load(Ordering::Relaxed), 0);
        // less than is usual may be asked for
        let store = Store::new(40 * SMALL);
        store.asked.fetch_max(4 * SMALL, Ordering::Relaxed);
        (0..100).for_each(|_| store.give(vec![1; SMALL]));
        assert_eq!(store.classes[0].lock().unwrap().len(), 4);
    }

    #[test]
    fn what_is_taken_has_room() {
        let store = Store::new(usize::MAX);
        for length in [0, 1, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL, LARGE, LARGE + 1, 3 * LARGE] {
            for room in [SMALL, SMALL + 4096, 3 * SMALL, LARGE, LARGE + 1] {
                store.give(Vec::with_capacity(room));
            }
            assert_eq!(store.take(length).len(), length);
        }
    }
}
