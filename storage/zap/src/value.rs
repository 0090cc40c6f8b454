//! The content of a table: entries and their values.

use crate::ZapCursor;

/// A value: integers of 1, 2, 4 or 8 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZapValue {
    int_size: u8,
    content: ZapValueContent,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum ZapValueContent {
    /// One number of 8 bytes, most significant byte first: what most entries have.
    U64([u8; 8]),
    Bytes(Vec<u8>),
}

impl ZapValue {
    /// One 8-byte number.
    pub const fn from_u64(value: u64) -> Self {
        Self { int_size: 8, content: ZapValueContent::U64(value.to_be_bytes()) }
    }

    /// Integers of `int_size` bytes, most significant byte first.
    pub fn new(int_size: u8, bytes: Vec<u8>) -> Self {
        match <[u8; 8]>::try_from(bytes.as_slice()) {
            Ok(number) if int_size == 8 => Self { int_size, content: ZapValueContent::U64(number) },
            _ => Self { int_size, content: ZapValueContent::Bytes(bytes) },
        }
    }

    /// Bytes of an integer.
    pub const fn int_size(&self) -> u8 {
        self.int_size
    }

    /// How many integers.
    pub fn count(&self) -> usize {
        self.bytes().len().checked_div(self.int_size.into()).unwrap_or(0)
    }

    /// All bytes; integers of more than one have the most significant first.
    pub fn bytes(&self) -> &[u8] {
        match &self.content {
            ZapValueContent::U64(bytes) => bytes,
            ZapValueContent::Bytes(bytes) => bytes,
        }
    }

    /// The number, where there is just one integer.
    pub fn u64(&self) -> Option<u64> {
        let mut all = self.integers();
        let first = all.next()?;
        all.next().is_none().then_some(first)
    }

    /// The integers as numbers.
    pub fn u64s(&self) -> Vec<u64> {
        self.integers().collect()
    }

    /// The integers as numbers, one after the other.
    pub fn integers(&self) -> impl Iterator<Item = u64> + '_ {
        self.bytes()
            .chunks_exact(usize::from(self.int_size).max(1))
            .map(|bytes| bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    /// The text before the first NUL; `None` if the integers are not bytes or not UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        let bytes = self.bytes();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let text = bytes.get(..end).filter(|_| self.int_size == 1)?;
        std::str::from_utf8(text).ok()
    }
}

/// One name and its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZapEntry {
    /// The name without its NUL. Of a key of words: their bytes, most significant first.
    pub name: Vec<u8>,
    /// The words, in a table whose keys are words.
    pub key64: Option<Vec<u64>>,
    /// The value.
    pub value: ZapValue,
    /// The entry's place in the listing; [`ZapCursor::after`] is where to continue.
    pub cursor: ZapCursor,
}
