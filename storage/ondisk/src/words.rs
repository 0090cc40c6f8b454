//! Writes fixed structures: a cursor over room that is as long as what goes there.

/// Puts numbers, little-endian, and bytes one after the other.
///
/// The room is made by us, so that what does not fit is our mistake and cut off at its end; each
/// structure's test compares with what it is read back from.
pub(crate) struct Room<'a> {
    left: &'a mut [u8],
}

impl<'a> Room<'a> {
    /// A cursor at the start of `bytes`.
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self { left: bytes }
    }

    /// Bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.next(bytes.len()).iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
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
        self.next(count).fill(0);
        self
    }

    /// The next `count` bytes, to be filled by another.
    pub(crate) fn next(&mut self, count: usize) -> &'a mut [u8] {
        let count = count.min(self.left.len());
        let (this, left) = std::mem::take(&mut self.left).split_at_mut(count);
        self.left = left;
        this
    }

    /// How many bytes are left.
    pub(crate) const fn left(&self) -> usize {
        self.left.len()
    }
}
