//! Block pointer: where a block is, how big, how encoded, when born, and its checksum.
//!
//! ```text
//! offset  size  field          meaning
//!      0    48  dva[3]         see dva.rs; in an encrypted block dva[2] is salt and IV
//!     48     8  prop           bit fields, below
//!     56    16  pad            0
//!     72     8  birth_physical the txg that wrote it; 0: as birth
//!     80     8  birth          the txg in which it came to be
//!     88     8  fill           non-hole blocks below; upper half is IV in an encrypted block
//!     96    32  checksum       in protected blocks the second half is a MAC
//!    128
//! ```
//!
//! `prop`: bits 0-15 lsize, 16-31 psize (both in sectors, less one), 32-38 compression, 39
//! embedded, 40-47 checksum, 48-55 type, 56-60 level, 61 crypt, 62 dedup, 63 little-endian block.
//!
//! With bit 39 set there is no block: all words but `prop` and `birth` are payload, `prop` has
//! lsize in bits 0-24 and psize in 25-31 (both in bytes, less one), and bits 40-47 say what the
//! payload is (0 data, 2 redacted: there was a block and it was left out on purpose).
//!
//! Bit 61 stands for one of three things: a level-0 block of an encrypted type is ciphered; one
//! of another type carries a MAC (an object set within itself); on a higher level the MAC is a
//! digest over the MACs below.
//!
//! Learnt from: `zdb -bbbb` of the fixtures. Proved by: `golden_pointers` and the fixture tests.

mod encode;

use units::{Level, Txg};

use crate::{Dva, Error, ObjectType, Order, Reader, Result};

/// How a block's checksum is computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each is the name of an algorithm")]
pub enum Checksum {
    Inherit,
    On,
    Off,
    Label,
    GangHeader,
    Zilog,
    Fletcher2,
    Fletcher4,
    Sha256,
    Zilog2,
    NoParity,
    Sha512,
    Skein,
    EdonR,
    Blake3,
}

impl Checksum {
    const ALL: [(Self, &'static str); 15] = [
        (Self::Inherit, "inherit"),
        (Self::On, "on"),
        (Self::Off, "off"),
        (Self::Label, "label"),
        (Self::GangHeader, "gang_header"),
        (Self::Zilog, "zilog"),
        (Self::Fletcher2, "fletcher2"),
        (Self::Fletcher4, "fletcher4"),
        (Self::Sha256, "sha256"),
        (Self::Zilog2, "zilog2"),
        (Self::NoParity, "noparity"),
        (Self::Sha512, "sha512"),
        (Self::Skein, "skein"),
        (Self::EdonR, "edonr"),
        (Self::Blake3, "blake3"),
    ];

    /// From the number on disk.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).map(|row| row.0)
    }

    /// The number on disk.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The field's name of it.
    pub fn name(self) -> &'static str {
        Self::ALL.get(usize::from(self.number())).map_or("?", |row| row.1)
    }

    /// Whether the checksum stands at the end of the block itself.
    pub const fn is_embedded(self) -> bool {
        matches!(self, Self::Label | Self::GangHeader | Self::Zilog | Self::Zilog2)
    }
}

/// How a block is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each is the name of an algorithm")]
pub enum Compression {
    Inherit,
    On,
    Off,
    Lzjb,
    Empty,
    /// With its level, 1 to 9.
    Gzip(u8),
    Zle,
    Lz4,
    Zstd,
}

impl Compression {
    /// From the number on disk.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Inherit,
            1 => Self::On,
            2 => Self::Off,
            3 => Self::Lzjb,
            4 => Self::Empty,
            5..=13 => Self::Gzip(number.wrapping_sub(4)),
            14 => Self::Zle,
            15 => Self::Lz4,
            16 => Self::Zstd,
            _ => return None,
        })
    }

    /// The number on disk.
    pub const fn number(self) -> u8 {
        match self {
            Self::Inherit => 0,
            Self::On => 1,
            Self::Off => 2,
            Self::Lzjb => 3,
            Self::Empty => 4,
            Self::Gzip(level) => level.wrapping_add(4),
            Self::Zle => 14,
            Self::Lz4 => 15,
            Self::Zstd => 16,
        }
    }

    /// Whether the stored bytes are the block's own.
    pub const fn is_off(self) -> bool {
        matches!(self, Self::Off | Self::Inherit | Self::On)
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inherit => f.write_str("inherit"),
            Self::On => f.write_str("on"),
            Self::Off => f.write_str("uncompressed"),
            Self::Lzjb => f.write_str("lzjb"),
            Self::Empty => f.write_str("empty"),
            Self::Gzip(level) => write!(f, "gzip-{level}"),
            Self::Zle => f.write_str("zle"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd => f.write_str("zstd"),
        }
    }
}

/// The fields that an encrypted dataset adds to a block pointer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protection {
    /// None: the dataset is not encrypted.
    None,
    /// A level-0 block of an encrypted type: its bytes are ciphered.
    Encrypted {
        /// Makes the block's key from the dataset's.
        salt: [u8; 8],
        /// The nonce.
        iv: [u8; 12],
        /// The cipher's tag.
        mac: [u8; 16],
    },
    /// An object set of an encrypted dataset: its MACs stand in the block itself.
    Objset,
    /// A level-0 block of another type: readable, with a MAC.
    Authenticated {
        /// The MAC.
        mac: [u8; 16],
    },
    /// An indirect block: a digest over the MACs of the pointers in it.
    Indirect {
        /// The digest.
        mac: [u8; 16],
    },
}

/// A block that lies on the drives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Regular {
    /// Its copies; the first is always there.
    pub dvas: [Option<Dva>; 3],
    /// Bytes of the block as its object sees it: 512 to 32 MiB.
    pub lsize: u32,
    /// Bytes as stored, parity not counted: 512 to 32 MiB.
    pub psize: u32,
    /// How the stored bytes were made.
    pub compression: Compression,
    /// How its checksum is computed.
    pub checksum: Checksum,
    /// The type of the object that the block is part of.
    pub kind: ObjectType,
    /// Its height in the object's tree.
    pub level: Level,
    /// Whether the dedup table may know it.
    pub dedup: bool,
    /// The byte order of the block's content.
    pub order: Order,
    /// The txg in which it came to be (logical birth).
    pub birth: Txg,
    /// The txg in which it was written; the same but for dedup and clones.
    pub birth_physical: Txg,
    /// Non-hole blocks (for a dnode block: dnodes in use) at and below it.
    pub fill: u64,
    /// The checksum; of blocks with a MAC only the first two words, the others being 0.
    pub sum: [u64; 4],
    /// Encryption.
    pub protection: Protection,
}

impl Regular {
    /// The copies that there are.
    pub fn copies(&self) -> impl Iterator<Item = Dva> + '_ {
        self.dvas.iter().flatten().copied()
    }

    /// Whether the checksum is truncated because a MAC takes the other half.
    pub const fn has_half_sum(&self) -> bool {
        !matches!(self.protection, Protection::None | Protection::Objset)
    }

    /// Whether the block was too large for one place and its first copy is a gang header.
    pub fn is_gang(&self) -> bool {
        self.dvas[0].is_some_and(|dva| dva.gang)
    }
}

/// A block so small that it stands in its pointer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Embedded {
    /// The stored bytes (psize of them).
    pub payload: Vec<u8>,
    /// Bytes of the block as its object sees it.
    pub lsize: u32,
    /// How the stored bytes were made.
    pub compression: Compression,
    /// The type of the object that the block is part of.
    pub kind: ObjectType,
    /// Its height in the object's tree.
    pub level: Level,
    /// The txg in which it came to be.
    pub birth: Txg,
    /// The byte order of the block's content.
    pub order: Order,
}

/// A hole: the block was never written, is all zeros, or was punched out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hole {
    /// The txg in which it became a hole; 0 where that is not known.
    pub birth: Txg,
    /// Its level, if known.
    pub level: Level,
    /// The size of the hole, where known: that of the block it stands for.
    pub lsize: u32,
    /// The type of its object, if known.
    pub kind: ObjectType,
}

/// A block pointer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Blkptr {
    /// Zeros.
    Hole(Hole),
    /// A block on the drives (plain, authenticated or encrypted).
    Regular(Box<Regular>),
    /// A block in the pointer itself.
    Embedded(Box<Embedded>),
    /// A block that a redacted send stream left out: it cannot be read, and is not zeros.
    Redacted(Hole),
}

/// Bits `low..low + width` of `word`; `width` is 1 to 63.
const fn bits(word: u64, low: u32, width: u32) -> u64 {
    (word >> low) & !(u64::MAX << width)
}

fn low_u32(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn byte(word: u64, low: u32) -> u8 {
    (word >> low).to_le_bytes()[0]
}

impl Blkptr {
    /// Bytes on disk.
    pub const SIZE: usize = 128;
    /// The content of an embedded pointer.
    pub const PAYLOAD: usize = 112;
    /// A hole that was never anything else.
    pub const EMPTY: Self =
        Self::Hole(Hole { birth: Txg::ZERO, level: Level::new(0), lsize: 0, kind: ObjectType(0) });

    /// The byte order of the block's content; a hole has none, and counts as little-endian.
    pub const fn order(&self) -> Order {
        match self {
            Self::Regular(block) => block.order,
            Self::Embedded(block) => block.order,
            Self::Hole(_) | Self::Redacted(_) => Order::Little,
        }
    }

    /// Reads one pointer (blkptr_t).
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.position();
        let order = reader.order();
        let words: [u64; 16] = reader.words()?;
        let mut short = Reader::new(reader.structure(), &[], order);
        short.seek(at);
        Self::from_words(&words, &short)
    }

    /// Reads from a slice that holds just one.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        let mut reader = Reader::new("block pointer", bytes, order);
        let pointer = Self::read(&mut reader)?;
        reader.expect_end()?;
        Ok(pointer)
    }

    fn from_words(words: &[u64; 16], place: &Reader<'_>) -> Result<Self> {
        let prop = words[6];
        let shared = Hole {
            birth: Txg::new(words[10]),
            level: Level::new(byte(bits(prop, 56, 5), 0)),
            kind: ObjectType(byte(prop, 48)),
            lsize: sectors(bits(prop, 0, 16)),
        };
        if bits(prop, 39, 1) == 1 {
            return Self::embedded(words, shared, place);
        }
        if words[0] == 0 && words[1] == 0 {
            return Ok(Self::Hole(if shared.birth.is_zero() && prop == 0 {
                Hole::default()
            } else {
                shared
            }));
        }
        Self::regular(words, shared, place)
    }

    fn embedded(words: &[u64; 16], shared: Hole, place: &Reader<'_>) -> Result<Self> {
        let prop = words[6];
        let what = place.structure();
        match bits(prop, 40, 8) {
            0 => {}
            2 => return Ok(Self::Redacted(shared)),
            found => return Err(Error::Unknown { structure: what, field: "embedded type", found }),
        }
        let mut payload = Vec::with_capacity(Self::PAYLOAD);
        for (index, word) in words.iter().enumerate() {
            if index != 6 && index != 10 {
                // eight bytes form a number, lowest byte first, on every machine
                payload.extend_from_slice(&word.to_le_bytes());
            }
        }
        let psize = usize::from(byte(bits(prop, 25, 7), 0)).saturating_add(1);
        if psize > payload.len() {
            return Err(place.corrupt_field(0, "embedded data fit the pointer", bits(prop, 25, 7)));
        }
        payload.truncate(psize);
        Ok(Self::Embedded(Box::new(Embedded {
            payload,
            lsize: low_u32(bits(prop, 0, 25)).saturating_add(1),
            compression: compression(prop, what)?,
            kind: shared.kind,
            level: shared.level,
            birth: shared.birth,
            order: order(prop),
        })))
    }

    fn regular(words: &[u64; 16], shared: Hole, place: &Reader<'_>) -> Result<Self> {
        let prop = words[6];
        let what = place.structure();
        let protection = protection(words, shared);
        let encrypted = matches!(protection, Protection::Encrypted { .. });
        let third = if encrypted { None } else { Dva::from_words(words[4], words[5]) };
        let checksum = bits(prop, 40, 8);
        let mut sum = [words[12], words[13], words[14], words[15]];
        if !matches!(protection, Protection::None | Protection::Objset) {
            sum = [words[12], words[13], 0, 0];
        }
        let birth_physical = if words[9] == 0 { shared.birth } else { Txg::new(words[9]) };
        Ok(Self::Regular(Box::new(Regular {
            dvas: [Dva::from_words(words[0], words[1]), Dva::from_words(words[2], words[3]), third],
            lsize: shared.lsize,
            psize: sectors(bits(prop, 16, 16)),
            compression: compression(prop, what)?,
            checksum: Checksum::from_number(byte(prop, 40)).ok_or(Error::Unknown {
                structure: what,
                field: "checksum",
                found: checksum,
            })?,
            kind: shared.kind,
            level: shared.level,
            dedup: bits(prop, 62, 1) == 1,
            order: order(prop),
            birth: shared.birth,
            birth_physical,
            fill: if encrypted { bits(words[11], 0, 32) } else { words[11] },
            sum,
            protection,
        })))
    }

    /// Whether it stands for zeros.
    pub const fn is_hole(&self) -> bool {
        matches!(self, Self::Hole(_))
    }

    /// The txg in which it came to be (0: never, or before that was kept).
    pub fn birth(&self) -> Txg {
        match self {
            Self::Hole(hole) | Self::Redacted(hole) => hole.birth,
            Self::Regular(block) => block.birth,
            Self::Embedded(block) => block.birth,
        }
    }

    /// Bytes of the block as its object sees it.
    pub fn lsize(&self) -> u32 {
        match self {
            Self::Hole(hole) | Self::Redacted(hole) => hole.lsize,
            Self::Regular(block) => block.lsize,
            Self::Embedded(block) => block.lsize,
        }
    }

    /// Its height in the object's tree.
    pub fn level(&self) -> Level {
        match self {
            Self::Hole(hole) | Self::Redacted(hole) => hole.level,
            Self::Regular(block) => block.level,
            Self::Embedded(block) => block.level,
        }
    }

    /// The type of the object that it is part of.
    pub fn kind(&self) -> ObjectType {
        match self {
            Self::Hole(hole) | Self::Redacted(hole) => hole.kind,
            Self::Regular(block) => block.kind,
            Self::Embedded(block) => block.kind,
        }
    }

    /// Non-hole blocks at and below it.
    pub fn fill(&self) -> u64 {
        match self {
            Self::Hole(_) | Self::Redacted(_) => 0,
            Self::Regular(block) => block.fill,
            Self::Embedded(_) => 1,
        }
    }

    /// Bytes that all its copies take on the drives, parity counted.
    pub fn allocated(&self) -> u64 {
        match self {
            Self::Regular(block) => {
                block.copies().fold(0, |sum, dva| sum.saturating_add(dva.asize))
            }
            _ => 0,
        }
    }
}

fn sectors(field: u64) -> u32 {
    low_u32(field.saturating_add(1).saturating_mul(512))
}

fn order(prop: u64) -> Order {
    if prop >> 63 == 1 { Order::Little } else { Order::Big }
}

fn compression(prop: u64, what: &'static str) -> Result<Compression> {
    let found = bits(prop, 32, 7);
    Compression::from_number(byte(found, 0)).ok_or(Error::Unknown {
        structure: what,
        field: "compression",
        found,
    })
}

fn protection(words: &[u64; 16], shared: Hole) -> Protection {
    if bits(words[6], 61, 1) == 0 {
        return Protection::None;
    }
    // salt, nonce and tag are bytes that were laid into words by the block's writer
    let order = order(words[6]);
    let mut mac = [0; 16];
    for (half, word) in mac.chunks_exact_mut(8).zip([words[14], words[15]]) {
        half.copy_from_slice(&word_to_bytes(word, order));
    }
    if shared.level.get() > 0 {
        return Protection::Indirect { mac };
    }
    if shared.kind == ObjectType::OBJSET {
        return Protection::Objset;
    }
    if !shared.kind.is_encrypted() {
        return Protection::Authenticated { mac };
    }
    let mut iv = [0; 12];
    let second = low_u32(words[11] >> 32);
    let second = match order {
        Order::Little => second.to_le_bytes(),
        Order::Big => second.to_be_bytes(),
    };
    for (to, from) in iv.iter_mut().zip(word_to_bytes(words[5], order).into_iter().chain(second)) {
        *to = from;
    }
    Protection::Encrypted { salt: word_to_bytes(words[4], order), iv, mac }
}

/// The bytes of a word as a machine of that order holds them.
const fn word_to_bytes(word: u64, order: Order) -> [u8; 8] {
    match order {
        Order::Little => word.to_le_bytes(),
        Order::Big => word.to_be_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Blkptr, Checksum, Compression};
    use crate::{ObjectType, Order};

    #[test]
    fn pointer_reads_the_same_in_both_orders() {
        let mut words = [0_u64; 16];
        words[0] = 8;
        words[1] = 0x160;
        words[6] = (1 << 63) | (19 << 48) | (7 << 40) | (15 << 32) | (7 << 16) | 255;
        words[10] = 77;
        words[11] = 1;
        words[12] = 0x1234;
        let little: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let big: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        let pointer = Blkptr::parse(&little, Order::Little).unwrap();
        assert_eq!(pointer, Blkptr::parse(&big, Order::Big).unwrap());
        let Blkptr::Regular(block) = pointer else { panic!("{pointer:?}") };
        assert_eq!((block.lsize, block.psize), (131_072, 4096));
        assert_eq!(block.kind, ObjectType::PLAIN_FILE);
        assert_eq!((block.checksum, block.compression), (Checksum::Fletcher4, Compression::Lz4));
        assert_eq!(block.copies().count(), 1);
        assert_eq!(block.birth_physical, block.birth);
        // data within the pointer: ten bytes, the first of them the lowest of the first word
        words[0] = 0x0807_0605_0403_0201;
        words[1] = 0x0a09;
        words[6] = (19 << 48) | (1 << 39) | (2 << 32) | (9 << 25) | 511;
        for order in [Order::Little, Order::Big] {
            let bytes = words.iter().flat_map(|word| match order {
                Order::Little => word.to_le_bytes(),
                Order::Big => word.to_be_bytes(),
            });
            let pointer = Blkptr::parse(&bytes.collect::<Vec<_>>(), order).unwrap();
            let Blkptr::Embedded(block) = pointer else { panic!("{pointer:?}") };
            assert_eq!(block.payload, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        }
    }

    #[test]
    fn algorithm_numbers_are_their_table_indexes() {
        for number in 0..=16 {
            assert_eq!(Compression::from_number(number).map(Compression::number), Some(number));
        }
        for number in 0..=14 {
            assert_eq!(Checksum::from_number(number).map(Checksum::number), Some(number));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_pointer_or_an_error(bytes: [u8; 128]) {
            let _ = Blkptr::parse(&bytes, Order::Little);
        }
    }
}
