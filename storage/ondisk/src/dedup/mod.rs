//! Dedup tables and the table of cloned blocks: how many times a block is referred to.
//!
//! The tables are ZAPs with keys of words. Names in the pool directory lead to them
//! ([`TableName`]): `DDT-sha256-zap-unique` in old pools. With fast_dedup a directory
//! `DDT-sha256` holds the tables, their `version` and `flags`, and two logs of changes that are
//! not yet in the tables.
//!
//! Key, 5 words:
//!
//! ```text
//! offset  size  field     meaning
//!      0    32  checksum  of the block
//!     32     8  prop      bits 0-15 lsize, 16-31 psize (in sectors, less one), 32-38
//!                         compression, 39 encrypted
//!     40
//! ```
//!
//! Learnt from: `zdb -DDDDD` of the fixtures `dedup-legacy`, `dedup-fast`. Proved by: the tests
//! of the parts.

mod clones;
mod log;
mod value;

pub use clones::{CloneTable, clone_count, clone_table_name};
pub use log::{LogEntry, LogHeader, Records};
pub use value::{Copies, DedupValue, unpack};

use crate::blkptr::{Blkptr, Checksum, Compression, Protection, Regular};
use crate::{Dva, Error, ObjectType, Order, Reader, Result};

/// The stored form of a table's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Shape {
    /// Four sets of copies: for ditto blocks and for 1 to 3 copies.
    Traditional,
    /// One set of copies, and a time (bit 0 of the table's flags).
    Flat,
}

impl Shape {
    /// From the `flags` in the table's directory; old tables have none, which is 0.
    pub const fn from_flags(flags: u64) -> Self {
        if flags & 1 == 0 { Self::Traditional } else { Self::Flat }
    }

    /// Bytes of a value.
    pub const fn size(self) -> usize {
        match self {
            Self::Traditional => 256,
            Self::Flat => 72,
        }
    }
}

/// Which blocks a table holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Class {
    /// Blocks with extra copies for safety, in old pools.
    Ditto,
    /// Blocks with more than one reference.
    Duplicate,
    /// Blocks with one reference.
    Unique,
}

impl Class {
    /// All, in their order on disk.
    pub const ALL: [Self; 3] = [Self::Ditto, Self::Duplicate, Self::Unique];

    /// From the number in a log's record.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The name in the table's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ditto => "ditto",
            Self::Duplicate => "duplicate",
            Self::Unique => "unique",
        }
    }
}

/// The meaning of a name in the pool directory, or in a table's directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TableName {
    /// The directory of a checksum's tables (fast_dedup): `DDT-<checksum>`.
    Directory(Checksum),
    /// A table: `DDT-<checksum>-zap-<class>`.
    Table(Checksum, Class),
    /// One of the two logs: `DDT-log-<checksum>-<0 or 1>`.
    Log(Checksum, u32),
    /// Sums over the tables: `DDT-statistics`.
    Statistics,
}

/// The checksums that dedup can go by.
const CHECKSUMS: [Checksum; 5] =
    [Checksum::Sha256, Checksum::Sha512, Checksum::Skein, Checksum::EdonR, Checksum::Blake3];

impl TableName {
    /// From a name; `None` if it is not one of dedup.
    pub fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("DDT-")?;
        if rest == "statistics" {
            return Some(Self::Statistics);
        }
        if let Some(rest) = rest.strip_prefix("log-") {
            let (checksum, index) = rest.rsplit_once('-')?;
            return Some(Self::Log(checksum_named(checksum)?, index.parse().ok()?));
        }
        if let Some((checksum, class)) = rest.split_once("-zap-") {
            let class = Class::ALL.into_iter().find(|known| known.name() == class)?;
            return Some(Self::Table(checksum_named(checksum)?, class));
        }
        checksum_named(rest).map(Self::Directory)
    }
}

impl std::fmt::Display for TableName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory(checksum) => write!(f, "DDT-{}", checksum.name()),
            Self::Table(checksum, class) => {
                write!(f, "DDT-{}-zap-{}", checksum.name(), class.name())
            }
            Self::Log(checksum, index) => write!(f, "DDT-log-{}-{index}", checksum.name()),
            Self::Statistics => f.write_str("DDT-statistics"),
        }
    }
}

fn checksum_named(name: &str) -> Option<Checksum> {
    CHECKSUMS.into_iter().find(|known| known.name() == name)
}

/// The fields that identify equal blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct DedupKey {
    /// The block's checksum.
    pub sum: [u64; 4],
    /// Bytes of the block as its object sees it.
    pub lsize: u32,
    /// Bytes as stored.
    pub psize: u32,
    /// How the stored bytes were made.
    pub compression: Compression,
    /// Whether they are ciphered.
    pub encrypted: bool,
}

impl DedupKey {
    /// Bytes on disk.
    pub const SIZE: usize = 40;

    /// Reads the five words.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let words = reader.words()?;
        Self::from_words(&words)
    }

    /// From the words of a ZAP's key.
    pub fn from_words(words: &[u64; 5]) -> Result<Self> {
        let [a, b, c, d, prop] = *words;
        let [l0, l1, p0, p1, form, ..] = prop.to_le_bytes();
        let number = form & 0x7f;
        let Some(compression) = Compression::from_number(number) else {
            let found = u64::from(number);
            return Err(Error::Unknown { structure: "dedup key", field: "compression", found });
        };
        Ok(Self {
            sum: [a, b, c, d],
            lsize: sectors(u16::from_le_bytes([l0, l1])),
            psize: sectors(u16::from_le_bytes([p0, p1])),
            compression,
            encrypted: form & 0x80 != 0,
        })
    }
}

impl DedupKey {
    /// That of a block.
    pub fn from_block(block: &Regular) -> Self {
        let words = Blkptr::Regular(Box::new(*block)).words();
        Self {
            sum: [words[12], words[13], words[14], words[15]],
            lsize: block.lsize,
            psize: block.psize,
            compression: block.compression,
            encrypted: block.protection != Protection::None,
        }
    }

    /// The words of a ZAP's key.
    pub fn to_words(self) -> [u64; 5] {
        let [a, b, c, d] = self.sum;
        let field = |bytes: u32| u64::from((bytes / 512).saturating_sub(1) & 0xffff);
        let form = u64::from(self.compression.number()) | (u64::from(self.encrypted) << 7);
        [a, b, c, d, field(self.lsize) | (field(self.psize) << 16) | (form << 32)]
    }

    /// A pointer to copies of the block, for finding and freeing them only: a table does not hold
    /// the whole nonce of an encrypted block.
    pub fn pointer(self, checksum: Checksum, copies: &Copies) -> Result<Blkptr> {
        let [a, b, c, d, form] = self.to_words();
        let [first, second] = [copies.dvas[0], copies.dvas[1]];
        let [first, second] = [first, second].map(|dva| dva.map_or([0; 2], Dva::to_words));
        let [third, fourth] = copies.third_dva_words;
        let sizes = form & 0x7f_ffff_ffff;
        let kind = u64::from(ObjectType::PLAIN_FILE.0);
        // deduplicated, little-endian
        let prop = sizes | u64::from(checksum.number()) << 40 | kind << 48 | 0b11 << 62;
        let prop = prop | u64::from(self.encrypted) << 61;
        let birth = copies.birth.get();
        let place = [first[0], first[1], second[0], second[1], third, fourth];
        let rest = [prop, 0, 0, 0, birth, 1, a, b, c, d];
        let bytes: Vec<u8> = place.into_iter().chain(rest).flat_map(u64::to_le_bytes).collect();
        Blkptr::read(&mut Reader::new("dedup entry", &bytes, Order::Little))
    }
}

fn sectors(field: u16) -> u32 {
    u32::from(field).saturating_add(1).saturating_mul(512)
}

/// Sums over the blocks whose reference counts share one power of two (ddt_stat).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Blocks stored.
    pub blocks: u64,
    /// Their bytes as objects see them.
    pub lsize: u64,
    /// Their compressed bytes.
    pub psize: u64,
    /// Their allocated bytes.
    pub dsize: u64,
    /// References to them.
    pub referenced_blocks: u64,
    /// Bytes as objects see them, by references.
    pub referenced_lsize: u64,
    /// Bytes as compressed, by references.
    pub referenced_psize: u64,
    /// Bytes as allocated, by references.
    pub referenced_dsize: u64,
}

impl Sums {
    /// These sums and those of other blocks, each pair combined by `by`.
    #[must_use]
    pub fn combined(&self, other: &Self, by: fn(u64, u64) -> u64) -> Self {
        Self {
            blocks: by(self.blocks, other.blocks),
            lsize: by(self.lsize, other.lsize),
            psize: by(self.psize, other.psize),
            dsize: by(self.dsize, other.dsize),
            referenced_blocks: by(self.referenced_blocks, other.referenced_blocks),
            referenced_lsize: by(self.referenced_lsize, other.referenced_lsize),
            referenced_psize: by(self.referenced_psize, other.referenced_psize),
            referenced_dsize: by(self.referenced_dsize, other.referenced_dsize),
        }
    }
}

/// Reads the histogram of a table from the words of its entry in `DDT-statistics`: one element
/// for each power of two of references, 64 in all.
pub fn histogram(bytes: &[u8], order: Order) -> Result<Vec<Sums>> {
    let mut reader = Reader::new("dedup histogram", bytes, order);
    (0..64)
        .map(|_| {
            let [blocks, lsize, psize, dsize, r0, r1, r2, r3] = reader.words()?;
            Ok(Sums {
                blocks,
                lsize,
                psize,
                dsize,
                referenced_blocks: r0,
                referenced_lsize: r1,
                referenced_psize: r2,
                referenced_dsize: r3,
            })
        })
        .collect()
}

/// The words of a histogram.
pub fn histogram_words(histogram: &[Sums]) -> Vec<u64> {
    let words = |sums: &Sums| {
        [
            sums.blocks,
            sums.lsize,
            sums.psize,
            sums.dsize,
            sums.referenced_blocks,
            sums.referenced_lsize,
            sums.referenced_psize,
            sums.referenced_dsize,
        ]
    };
    histogram.iter().flat_map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::{Class, DedupKey, TableName, histogram, histogram_words};
    use crate::Order;
    use crate::blkptr::{Checksum, Compression};

    #[test]
    fn table_names_survive_parsing() {
        for name in [
            "DDT-sha256",
            "DDT-skein-zap-unique",
            "DDT-blake3-zap-ditto",
            "DDT-log-edonr-1",
            "DDT-statistics",
        ] {
            assert_eq!(TableName::parse(name).unwrap().to_string(), name);
        }
        let table = TableName::Table(Checksum::Sha512, Class::Duplicate);
        assert_eq!(TableName::parse("DDT-sha512-zap-duplicate"), Some(table));
        for wrong in ["DDT-", "DDT-crc", "DDT-log-sha256", "DDT-sha256-btree-unique", "config"] {
            assert_eq!(TableName::parse(wrong), None);
        }
    }

    #[test]
    fn dedup_key_encodes_sizes_and_compression() {
        let key = DedupKey::from_words(&[1, 2, 3, 4, (0x8f << 32) | (7 << 16) | 255]).unwrap();
        assert_eq!(key.to_words(), [1, 2, 3, 4, (0x8f << 32) | (7 << 16) | 255]);
        assert_eq!((key.lsize, key.psize), (131_072, 4096));
        assert_eq!((key.compression, key.encrypted), (Compression::Lz4, true));
        assert!(DedupKey::from_words(&[0, 0, 0, 0, 0x7f << 32]).is_err());
    }

    #[test]
    fn truncated_histogram_is_an_error() {
        let mut raw = vec![0; 64 * 64];
        raw[64 + 7] = 9;
        let read = histogram(&raw, Order::Big).unwrap();
        assert_eq!(read[1].blocks, 9);
        let again: Vec<u8> =
            histogram_words(&read).into_iter().flat_map(u64::to_be_bytes).collect();
        assert_eq!(again, raw);
        assert!(histogram(&raw[8..], Order::Big).is_err());
    }
}
