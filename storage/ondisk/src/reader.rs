//! A cursor over bytes that knows their order and where it stands.

use crate::{Error, Result};

/// The order of bytes in a number: that of the machine which wrote the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Order {
    /// Least significant byte first: x86, ARM.
    #[default]
    Little,
    /// Most significant byte first: SPARC, s390x.
    Big,
}

/// Reads numbers and slices one after the other; each failure names structure and offset.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    structure: &'static str,
    bytes: &'a [u8],
    position: usize,
    order: Order,
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident -> $type:ty;)*) => {$(
        $(#[$doc])*
        pub fn $name(&mut self) -> Result<$type> {
            let raw = self.array()?;
            Ok(match self.order {
                Order::Little => <$type>::from_le_bytes(raw),
                Order::Big => <$type>::from_be_bytes(raw),
            })
        }
    )*};
}

impl<'a> Reader<'a> {
    /// A cursor at the start of `bytes`, which are taken for a `what`.
    pub const fn new(structure: &'static str, bytes: &'a [u8], order: Order) -> Self {
        Self { structure, bytes, position: 0, order }
    }

    /// The byte order in which numbers are read.
    pub const fn order(&self) -> Order {
        self.order
    }

    /// The name of the structure, for errors.
    pub const fn structure(&self) -> &'static str {
        self.structure
    }

    /// Where the cursor stands, in bytes from the start.
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Bytes not yet read.
    pub const fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.position)
    }

    /// Moves the cursor to an offset from the start; beyond the end, the next read fails.
    pub const fn seek(&mut self, at: usize) {
        self.position = at;
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.position.checked_add(count);
        let slice = end.and_then(|end| self.bytes.get(self.position..end));
        let Some(slice) = slice else {
            let have = self.bytes.len();
            return Err(Error::Short {
                structure: self.structure,
                at: self.position,
                need: count,
                have,
            });
        };
        self.position = self.position.saturating_add(count);
        Ok(slice)
    }

    /// Passes over `count` bytes.
    pub fn skip(&mut self, count: usize) -> Result<()> {
        self.bytes(count).map(drop)
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        let slice = self.bytes.get(self.position..).unwrap_or(&[]);
        self.position = self.bytes.len();
        slice
    }

    /// The next `N` bytes as they stand.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N)?);
        Ok(out)
    }

    /// The next `N` 64-bit numbers.
    pub fn words<const N: usize>(&mut self) -> Result<[u64; N]> {
        let mut out = [0; N];
        for word in &mut out {
            *word = self.u64()?;
        }
        Ok(out)
    }

    numbers! {
        /// The next byte.
        u8 -> u8;
        /// The next 2 bytes as a number.
        u16 -> u16;
        /// The next 4 bytes as a number.
        u32 -> u32;
        /// The next 8 bytes as a number.
        u64 -> u64;
        /// The next 8 bytes as a signed number.
        i64 -> i64;
    }

    /// Fails if bytes are left.
    pub fn expect_end(self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            extra => Err(Error::Trailing { structure: self.structure, extra }),
        }
    }

    /// An error about the field of `width` bytes that was just read.
    pub fn corrupt_field(&self, width: usize, rule: &'static str, found: u64) -> Error {
        Error::Rule {
            structure: self.structure,
            at: self.position.saturating_sub(width),
            rule,
            found,
        }
    }
}
