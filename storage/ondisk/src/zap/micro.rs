//! Micro ZAP: short names, one number each, in one block of 512 bytes to 1 MiB.
//!
//! ```text
//! offset  size  field          meaning
//!      0     8  block_kind     0x8000000000000003
//!      8     8  salt           of the hash
//!     16     8  normalization  how names are made equal
//!     24    40  pad
//!     64    64  entry[]        to the end of the block
//! ```
//!
//! ```text
//! offset  size  field  meaning
//!      0     8  value
//!      8     4  order  tells names of one hash apart (collision differentiator, cd)
//!     12     2  pad
//!     14    50  name   ends with a NUL; empty: the entry is free
//!     64
//! ```
//!
//! Learnt from: `zdb -dddd` of the fixtures, zap_impl.h. Proved by: the tests below,
//! `a_real_micro_table_is_made_again`.

use super::{MICRO, Normalization, write};
use crate::{Order, Reader, Result};

/// A micro table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Micro<'a> {
    /// Stirred into the hash.
    pub salt: u64,
    /// How names are made equal.
    pub normalization: Normalization,
    entries: &'a [u8],
    order: Order,
}

/// One entry of a micro table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MicroEntry<'a> {
    /// The name, without its NUL.
    pub name: &'a [u8],
    /// The number.
    pub value: u64,
    /// The collision number, which distinguishes names of one hash (cd).
    pub collision: u32,
}

impl<'a> Micro<'a> {
    /// Bytes of an entry, and of the header.
    pub const ENTRY: usize = 64;
    /// The longest name, without its NUL.
    pub const MAX_NAME: usize = 49;

    /// Takes the whole block.
    pub fn parse(bytes: &'a [u8], order: Order) -> Result<Self> {
        let mut reader = Reader::new("micro zap", bytes, order);
        let kind = reader.u64()?;
        if kind != MICRO {
            return Err(reader.corrupt_field(8, "the block says that it is a micro zap", kind));
        }
        let salt = reader.u64()?;
        let normalization = Normalization(reader.u64()?);
        reader.skip(40)?;
        Ok(Self { salt, normalization, entries: reader.rest(), order })
    }

    /// The entries, in the order in which they stand.
    pub fn entries(&self) -> impl Iterator<Item = MicroEntry<'a>> + use<'a> {
        self.numbered_entries().map(|(_, entry)| entry)
    }

    /// The entries, each with the number that [`Micro::entry`] takes.
    pub fn numbered_entries(&self) -> impl Iterator<Item = (usize, MicroEntry<'a>)> + use<'a> {
        let order = self.order;
        let all = self.entries.chunks_exact(Self::ENTRY).enumerate();
        all.filter_map(move |(number, bytes)| Some((number, entry(bytes, order)?)))
    }

    /// The capacity in entries.
    pub const fn capacity(&self) -> usize {
        self.entries.len() / Self::ENTRY
    }

    /// An entry by its number; `None` if it is free.
    pub fn entry(&self, number: usize) -> Option<MicroEntry<'a>> {
        let at = number.checked_mul(Self::ENTRY)?;
        entry(self.entries.get(at..at.checked_add(Self::ENTRY)?)?, self.order)
    }
}

/// The block of a micro table, to be changed in place.
#[derive(Debug)]
pub struct MicroMut<'a> {
    bytes: &'a mut [u8],
    order: Order,
}

impl<'a> MicroMut<'a> {
    /// Makes the block a table without entries.
    pub fn init(
        bytes: &'a mut [u8],
        order: Order,
        salt: u64,
        normalization: Normalization,
    ) -> Self {
        bytes.fill(0);
        write::u64(bytes, 0, order, MICRO);
        write::u64(bytes, 8, order, salt);
        write::u64(bytes, 16, order, normalization.0);
        Self { bytes, order }
    }

    /// Takes the block of a table.
    pub fn open(bytes: &'a mut [u8], order: Order) -> Result<Self> {
        Micro::parse(bytes, order)?;
        Ok(Self { bytes, order })
    }

    /// Stores an entry in a slot; its name has at most [`Micro::MAX_NAME`] bytes.
    pub fn set_entry(&mut self, number: usize, entry: &MicroEntry<'_>) {
        self.clear_entry(number);
        let at = entry_offset(number);
        write::u64(self.bytes, at, self.order, entry.value);
        write::u32(self.bytes, at.saturating_add(8), self.order, entry.collision);
        let name = entry.name.get(..Micro::MAX_NAME).unwrap_or(entry.name);
        write::slice(self.bytes, at.saturating_add(14), name);
    }

    /// Gives every entry the same number as its value.
    pub fn set_all_numbers(&mut self, value: u64) {
        let taken =
            Micro::parse(self.bytes, self.order).map(|table| table.numbered_entries().collect());
        let taken: Vec<(usize, MicroEntry<'_>)> = taken.unwrap_or_default();
        let places: Vec<usize> =
            taken.into_iter().map(|(number, _)| entry_offset(number)).collect();
        for at in places {
            write::u64(self.bytes, at, self.order, value);
        }
    }

    /// Makes the place of a number free.
    pub fn clear_entry(&mut self, number: usize) {
        write::slice(self.bytes, entry_offset(number), &[0; Micro::ENTRY]);
    }
}

/// Where the entry of a number stands in the block.
const fn entry_offset(number: usize) -> usize {
    number.saturating_add(1).saturating_mul(Micro::ENTRY)
}

fn entry(bytes: &[u8], order: Order) -> Option<MicroEntry<'_>> {
    let mut reader = Reader::new("micro zap entry", bytes, order);
    let value = reader.u64().ok()?;
    let collision = reader.u32().ok()?;
    reader.skip(2).ok()?;
    let name = reader.rest();
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let name = name.get(..end)?;
    (!name.is_empty()).then_some(MicroEntry { name, value, collision })
}

#[cfg(test)]
mod tests {
    use super::{MICRO, Micro, MicroEntry, MicroMut, Normalization};
    use crate::Order;

    #[test]
    fn free_entries_are_skipped() {
        let mut bytes = vec![0; 256];
        bytes[..8].copy_from_slice(&MICRO.to_be_bytes());
        bytes[8..16].copy_from_slice(&7_u64.to_be_bytes());
        bytes[128..136].copy_from_slice(&99_u64.to_be_bytes());
        bytes[136..140].copy_from_slice(&3_u32.to_be_bytes());
        bytes[142..146].copy_from_slice(b"name");
        bytes[206..256].fill(b'x');
        let micro = Micro::parse(&bytes, Order::Big).unwrap();
        let all: Vec<_> = micro.numbered_entries().collect();
        assert_eq!((micro.salt, all.len(), all[0].0), (7, 2, 1));
        assert_eq!((all[0].1.name, all[0].1.value, all[0].1.collision), (&b"name"[..], 99, 3));
        assert_eq!(all[1].1.name, [b'x'; 50]);
        assert_eq!(micro.entry(0), None);
        assert_eq!(micro.entry(3), None);
    }

    #[test]
    fn entries_are_set_and_cleared() {
        for order in [Order::Little, Order::Big] {
            let mut bytes = vec![0xff; 256];
            let mut table = MicroMut::init(&mut bytes, order, 5, Normalization::NFC);
            let one = MicroEntry { name: b"one", value: 1, collision: 0 };
            let two = MicroEntry { name: &[b'x'; 49], value: u64::MAX, collision: 0xffff };
            table.set_entry(0, &one);
            table.set_entry(2, &two);
            table.set_entry(3, &two);
            let read = Micro::parse(&bytes, order).unwrap();
            assert_eq!(
                (read.salt, read.normalization, read.capacity()),
                (5, Normalization::NFC, 3)
            );
            assert_eq!(read.numbered_entries().collect::<Vec<_>>(), [(0, one), (2, two)]);
            MicroMut::open(&mut bytes, order).unwrap().clear_entry(0);
            let read = Micro::parse(&bytes, order).unwrap();
            assert_eq!(read.numbered_entries().collect::<Vec<_>>(), [(2, two)]);
        }
    }

    proptest::proptest! {
        #[test]
        fn random_bytes_parse_or_give_an_error(tail in proptest::collection::vec(0_u8.., 0..300)) {
            let bytes = [&MICRO.to_le_bytes()[..], &tail].concat();
            if let Ok(micro) = Micro::parse(&bytes, Order::Little) {
                assert!(micro.entries().count() <= tail.len() / 64);
            }
        }
    }
}
