//! Writes fixed structures: a cursor over a buffer of the structure's length.

/// Puts numbers, little-endian, and bytes one after the other.
///
/// Callers allocate the buffer, so a value that does not fit is a failed assertion: a truncated structure would
/// look whole. Each structure's test parses its encoded bytes and compares.
pub(crate) struct FixedWriter<'a> {
    remaining: &'a mut [u8],
}

impl<'a> FixedWriter<'a> {
    /// A cursor at the start of `bytes`.
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self { remaining: bytes }
    }

    /// Bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.next_slice(bytes.len()).iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        self
    }

    /// One byte.
    pub(crate) fn u8(&mut self, number: u8) -> &mut Self {
        self.bytes(&[number])
    }

    /// Two bytes.
    pub(crate) fn u16(&mut self, number: u16) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    /// Eight bytes.
    pub(crate) fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    /// `count` bytes of zeros.
    pub(crate) fn zeros(&mut self, count: usize) -> &mut Self {
        self.next_slice(count).fill(0);
        self
    }

    /// The next `count` bytes, to be filled by another.
    pub(crate) fn next_slice(&mut self, count: usize) -> &'a mut [u8] {
        let left = self.remaining.len();
        assert!(count <= left, "a structure has {left} bytes left for a field of {count}");
        let (this, left) = std::mem::take(&mut self.remaining).split_at_mut(count);
        self.remaining = left;
        this
    }

    /// How many bytes are left.
    pub(crate) const fn remaining(&self) -> usize {
        self.remaining.len()
    }
}
