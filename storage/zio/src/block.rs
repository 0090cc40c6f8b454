//! A block's bytes, shared and not copied, their memory used again.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

use ondisk::Order;

/// The content of a block: `lsize` bytes in the order of the machine that wrote it. Cheap to clone.
#[derive(Clone)]
pub struct Block {
    bytes: Arc<Buffer>,
    order: Order,
}

impl Block {
    /// Takes over bytes as a block's content.
    pub fn new(bytes: Vec<u8>, order: Order) -> Self {
        Self { bytes: Arc::new(Buffer(bytes)), order }
    }

    /// The byte order of the content.
    pub fn order(&self) -> Order {
        self.order
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes.0
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} bytes, {:?})", self.len(), self.order)
    }
}

/// Memory that goes back to this thread's store when it is no longer needed: the first touch of
/// fresh pages costs far more than reading a block into warm ones.
struct Buffer(Vec<u8>);

/// How many buffers, and of how many bytes together, a thread keeps.
const KEPT: usize = 32;
const KEPT_BYTES: usize = 8 << 20;
/// Smaller ones are left to the allocator, which is good at them.
const SMALL: usize = 16 << 10;

thread_local! {
    static STORE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of `length` bytes with any content.
pub(crate) fn take(length: usize) -> Vec<u8> {
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
pub(crate) fn give(buffer: Vec<u8>) {
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

impl Drop for Buffer {
    fn drop(&mut self) {
        give(std::mem::take(&mut self.0));
    }
}
