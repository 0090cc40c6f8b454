//! Buffers of a connection that are used again.

use parking_lot::Mutex;

/// Bytes of a buffer that is kept between commands, and the number of such buffers.
const KEPT_BUFFER: usize = 1 << 20;
const KEPT_BUFFERS: usize = 8;

/// The buffers that no command has.
#[derive(Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// A buffer of at least some bytes, of any content.
    pub(crate) fn take(&self, length: usize) -> Vec<u8> {
        if length == 0 {
            return Vec::new();
        }
        let mut buffer = self.0.lock().pop().unwrap_or_default();
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        buffer
    }

    /// Keeps a buffer for another command.
    pub(crate) fn keep(&self, buffer: Vec<u8>) {
        if buffer.is_empty() || buffer.capacity() > KEPT_BUFFER {
            return;
        }
        let mut buffers = self.0.lock();
        if buffers.len() < KEPT_BUFFERS {
            buffers.push(buffer);
        }
    }
}
