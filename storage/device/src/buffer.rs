//! Memory for blocks, used again: the first touch of fresh pages costs far more than reading a
//! block into warm ones.
//!
//! Each thread keeps a few buffers of its own, so that no lock is needed.

use std::cell::RefCell;

/// How many buffers, and of how many bytes together, a thread keeps.
const KEPT: usize = 32;
const KEPT_BYTES: usize = 8 << 20;
/// Smaller ones are left to the allocator, which is good at them.
const SMALL: usize = 16 << 10;

thread_local! {
    static STORE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of `length` bytes with any content.
pub fn take(length: usize) -> Vec<u8> {
    let mut buffer = Vec::new();
    if length >= SMALL {
        STORE.with_borrow_mut(|store| {
            let fits =
                |old: &Vec<u8>| (length..=length.saturating_mul(4)).contains(&old.capacity());
            if let Some(found) = store.iter().rposition(fits) {
                buffer = store.swap_remove(found);
            }
        });
    }
    buffer.resize(length, 0);
    buffer
}

/// Gives a buffer back.
pub fn give(buffer: Vec<u8>) {
    if buffer.capacity() < SMALL {
        return;
    }
    // a thread that ends has no store any more
    let _ = STORE.try_with(|store| {
        let Ok(mut store) = store.try_borrow_mut() else { return };
        let held: usize = store.iter().map(Vec::capacity).sum();
        if store.len() < KEPT && held.saturating_add(buffer.capacity()) <= KEPT_BYTES {
            store.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{KEPT, SMALL, STORE, give, take};

    #[test]
    fn memory_is_used_again_and_only_so_much_is_kept() {
        let buffer = take(SMALL);
        let place = buffer.as_ptr();
        give(buffer);
        let again = take(SMALL);
        assert_eq!(again.as_ptr(), place);
        for _ in 0..2 * KEPT {
            give(vec![1; SMALL]);
        }
        give(vec![1; SMALL - 1]);
        assert_eq!(STORE.with_borrow(Vec::len), KEPT);
        assert_eq!(take(2 * SMALL).len(), 2 * SMALL);
        assert_eq!(take(10).len(), 10);
    }
}
