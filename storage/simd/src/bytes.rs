//! Small things over plain bytes.

use crate::Backend;

/// `destination ^= source`.
///
/// # Panics
/// If the lengths differ.
pub fn xor(destination: &mut [u8], source: &[u8]) {
    Backend::best().xor(destination, source);
}

/// Whether every byte is zero. An empty slice is.
pub fn is_zero(data: &[u8]) -> bool {
    Backend::best().is_zero(data)
}

impl Backend {
    /// [`xor`] with these kernels.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn xor(self, destination: &mut [u8], source: &[u8]) {
        assert_eq!(destination.len(), source.len(), "xor of unequal lengths");
        self.kernels().xor(destination, source);
    }

    /// [`is_zero`] with these kernels.
    pub fn is_zero(self, data: &[u8]) -> bool {
        self.kernels().is_zero(data)
    }
}
