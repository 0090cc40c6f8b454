//! A block's bytes, shared and not copied, their memory used again.

use std::ops::Deref;
use std::sync::Arc;

use device::buffer;
use ondisk::Order;

/// The content of a block: `lsize` bytes in the order of the machine that wrote it. Cheap to clone.
#[derive(Clone)]
pub struct Block {
    bytes: Arc<PooledBuffer>,
    order: Order,
}

impl Block {
    /// Takes bytes as a block's content.
    pub fn new(bytes: Vec<u8>, order: Order) -> Self {
        Self { bytes: Arc::new(PooledBuffer(bytes)), order }
    }

    /// A copy of bytes as a block's content.
    pub fn from_slice(bytes: &[u8], order: Order) -> Self {
        let mut copy = Self::alloc_buffer(bytes.len());
        copy.copy_from_slice(bytes);
        Self::new(copy, order)
    }

    /// This many zeros as a block's content.
    pub fn zeros(length: usize, order: Order) -> Self {
        let mut bytes = Self::alloc_buffer(length);
        bytes.fill(0);
        Self::new(bytes, order)
    }

    /// Whether this is the same memory as another: a clone of it, with nothing changed.
    pub fn is_same_buffer(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
    }

    /// The byte order of the content.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Copies as much of the bytes as fits; returns the block's length.
    pub fn copy_to(&self, into: &mut [u8]) -> usize {
        let count = self.len().min(into.len());
        if let (Some(into), Some(from)) = (into.get_mut(..count), self.get(..count)) {
            into.copy_from_slice(from);
        }
        self.len()
    }

    /// Memory for a block of this many bytes, with any content.
    pub fn alloc_buffer(length: usize) -> Vec<u8> {
        buffer::alloc(length)
    }

    /// The bytes, to be changed: a copy of them if anyone else holds the block.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut Arc::make_mut(&mut self.bytes).0
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

/// Memory that goes back to the thread's store when it is no longer needed.
struct PooledBuffer(Vec<u8>);

impl Clone for PooledBuffer {
    fn clone(&self) -> Self {
        let mut copy = buffer::alloc(self.0.len());
        copy.copy_from_slice(&self.0);
        Self(copy)
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        buffer::recycle(std::mem::take(&mut self.0));
    }
}
