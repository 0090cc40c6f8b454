//! ZAP: tables of names and values, micro and fat.
//!
//! A table of short names and single numbers is *micro*: one block ([`micro`]). All others are
//! *fat*: block 0 is a header ([`fat`]) with a table of pointers indexed by the first bits of a
//! name's hash ([`hash`]), which lead to leaf blocks ([`leaf`]) of entries.
//!
//! The first word of a block tells what it is: `0x8000000000000003` micro, `...01` header,
//! `...00` leaf; a block of an external pointer table has no such word.
pub mod fat;
pub mod hash;
pub mod leaf;
pub mod micro;
pub mod pointers;
mod write;

use crate::{Order, Reader, Result};

/// The first word of a leaf (ZBT_LEAF).
pub const LEAF: u64 = 1 << 63;
/// The first word of a fat table's header (ZBT_HEADER).
pub const HEADER: u64 = LEAF | 1;
/// The first word of a micro table (ZBT_MICRO).
pub const MICRO: u64 = LEAF | 3;

/// The first word of a block, which marks its kind.
pub fn block_kind(bytes: &[u8], order: Order) -> Result<u64> {
    Reader::new("zap block", bytes, order).u64()
}

/// How names are made equal before they are hashed and compared (zap_normflags).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Normalization(pub u64);

impl Normalization {
    /// Case is folded to upper (U8_TEXTPREP_TOUPPER).
    pub const UPPER: Self = Self(0x2);
    /// Canonical decomposition (U8_TEXTPREP_NFD).
    pub const NFD: Self = Self(0x10);
    /// Canonical composition (U8_TEXTPREP_NFC).
    pub const NFC: Self = Self(0x50);
    /// Compatibility decomposition (U8_TEXTPREP_NFKD).
    pub const NFKD: Self = Self(0x20);
    /// Compatibility composition (U8_TEXTPREP_NFKC).
    pub const NFKC: Self = Self(0x60);

    /// Whether names stand for themselves.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether upper and lower case are one.
    pub const fn folds_case(self) -> bool {
        self.0 & Self::UPPER.0 != 0
    }

    /// The part that is a Unicode form; 0 where there is none.
    #[must_use]
    pub const fn form(self) -> Self {
        Self(self.0 & 0x70)
    }

    /// The same without the folding of case.
    #[must_use]
    pub const fn without_case_folding(self) -> Self {
        Self(self.0 & !Self::UPPER.0)
    }
}
