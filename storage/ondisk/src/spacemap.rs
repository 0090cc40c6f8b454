//! Space map: the log of allocations and frees, from which free space is known.
//!
//! Header (bonus of the map's object):
//!
//! ```text
//! offset  size  field          meaning
//!      0     8  object         not used any more
//!      8     8  length         bytes of the object that are entries
//!     16     8  allocated      bytes, signed
//!     24    40  pad            0; from here on only with spacemap_histogram
//!     64   256  histogram[32]  free regions of 2^(i + shift) bytes and more
//!    320
//! ```
//!
//! The object is a row of 64-bit words, told apart by their uppermost bits:
//!
//! * `0`: one range: bits 16-62 offset, 15 freed, 0-14 length less one
//! * `10`: a note: bits 60-61 action (0 allocated, 1 freed), 50-59 pass of the sync, 0-49 txg; all
//!   0 is padding, as the next form does not straddle blocks
//! * `11`: one range in two words: bits 24-59 length less one, 0-23 vdev (0 in a metaslab's own
//!   map, where it says nothing); second word: bit 63 freed, 0-62 offset
//!
//! Offsets and lengths are in sectors of the vdev, from the metaslab's start, in a metaslab's own
//! map; in a log of changes (log_spacemap) in units of 512 bytes from the vdev's start. The log
//! is in force from each metaslab's unflushed txg on (an array of words at the top-level vdev's
//! `com.delphix:ms_unflushed_phys_txgs`).
//!
//! Learnt from: `zdb -mmmm` of the fixtures. Proved by: `each_form`, and `golden_metaslab_space_map`,
//! `golden_log_space_map` against its output and back to the same bytes.

mod encode;

use units::{ObjectId, Txg, VdevId};

use crate::{Order, Reader, Result};
pub use encode::SpaceMapAppender;

/// The head of a space map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpaceMapHeader {
    /// The object's own number, as once kept there.
    pub object: ObjectId,
    /// Bytes of the object that are entries.
    pub length: u64,
    /// Bytes allocated; below 0 in maps that only note changes.
    pub allocated: i64,
    /// How many free regions there are by the power of two of their size (smp_histogram).
    pub histogram: Option<[u64; 32]>,
}

/// Bytes of entries that a map has at most.
const MAX_LENGTH: u64 = 1 << 48;
/// Bytes that a map says are allocated at most: more than a vdev can have.
const MAX_ALLOCATED: u64 = 1 << 62;

impl SpaceMapHeader {
    /// Bytes on disk, without a histogram.
    pub const OLD_SIZE: usize = 24;
    /// Bytes on disk.
    pub const SIZE: usize = 320;

    /// Reads a bonus of either size.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let object = ObjectId::new(reader.u64()?);
        let length = reader.u64()?;
        if length > MAX_LENGTH {
            return Err(reader.corrupt_field(8, "a space map has at most 2^48 bytes", length));
        }
        let allocated = reader.i64()?;
        if allocated.unsigned_abs() > MAX_ALLOCATED {
            let rule = "a space map is of at most 2^62 bytes";
            return Err(reader.corrupt_field(8, rule, allocated.unsigned_abs()));
        }
        let histogram = if reader.remaining() >= Self::SIZE - Self::OLD_SIZE {
            reader.skip(40)?;
            Some(reader.words()?)
        } else {
            None
        };
        Ok(Self { object, length, allocated, histogram })
    }
}

/// Whether a range was taken or given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Action {
    /// Taken.
    Allocated,
    /// Given back.
    Freed,
}

impl Action {
    const fn from_bit(bit: u64) -> Self {
        if bit & 1 == 0 { Self::Allocated } else { Self::Freed }
    }
}

/// One entry of a space map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Entry {
    /// A range changed hands.
    Range {
        /// How.
        action: Action,
        /// The top-level vdev in logs of changes; without meaning in a metaslab's own map.
        vdev: Option<VdevId>,
        /// The start, in units of the map.
        offset: u64,
        /// The length, in units of the map; 1 to 2^36.
        length: u64,
    },
    /// The txg of the following entries.
    Debug {
        /// Its kind.
        action: Action,
        /// The lower 50 bits of the txg.
        txg: Txg,
        /// The pass of that txg's sync.
        pass: u16,
    },
    /// Padding.
    Padding,
}

impl Entry {
    /// The range in bytes, (start, length), for a map whose unit is `1 << shift` bytes and that
    /// begins `start` bytes into the vdev; `None` for other entries, and where it overflows.
    pub fn bytes(&self, shift: u32, start: u64) -> Option<(u64, u64)> {
        let Self::Range { offset, length, .. } = self else { return None };
        let unit = 1_u64.checked_shl(shift)?;
        let from = offset.checked_mul(unit)?.checked_add(start)?;
        let length = length.checked_mul(unit)?;
        from.checked_add(length)?;
        Some((from, length))
    }
}

const VDEV_MASK: u64 = (1 << 24) - 1;

/// Reads entries one by one; ends at the end of the bytes, or after an error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    reader: Reader<'a>,
}

impl<'a> Entries<'a> {
    /// Over the object's content, cut to the header's length, or over any whole block of it.
    pub const fn new(bytes: &'a [u8], order: Order) -> Self {
        Self { reader: Reader::new("space map", bytes, order) }
    }

    fn entry(&mut self) -> Result<Entry> {
        let word = self.reader.u64()?;
        match word >> 62 {
            2 => Ok(debug_entry(word)),
            3 => {
                let second = self.reader.u64()?;
                Ok(Entry::Range {
                    action: Action::from_bit(second >> 63),
                    vdev: u32::try_from(word & VDEV_MASK).ok().map(VdevId::new),
                    offset: second & (u64::MAX >> 1),
                    length: ((word >> 24) & ((1 << 36) - 1)).saturating_add(1),
                })
            }
            _ => Ok(Entry::Range {
                action: Action::from_bit(word >> 15),
                vdev: None,
                offset: (word >> 16) & ((1 << 47) - 1),
                length: (word & 0x7fff).saturating_add(1),
            }),
        }
    }
}

fn debug_entry(word: u64) -> Entry {
    if word == 2 << 62 {
        return Entry::Padding;
    }
    Entry::Debug {
        action: Action::from_bit(word >> 60),
        txg: Txg::new(word & ((1 << 50) - 1)),
        pass: u16::try_from((word >> 50) & 0x3ff).unwrap_or(u16::MAX),
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.remaining() == 0 {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.reader.rest();
        }
        Some(entry)
    }
}

/// Reads the txgs since which the metaslabs of a vdev have changes in the log, in their order; 0
/// is none.
pub fn parse_unflushed_txgs(bytes: &[u8], order: Order) -> Vec<Txg> {
    let mut reader = Reader::new("unflushed txgs", bytes, order);
    std::iter::from_fn(|| reader.u64().ok().map(Txg::new)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Action, Entries, Entry, SpaceMapHeader, parse_unflushed_txgs};
    use crate::{Order, Reader};
    use units::{Txg, VdevId};

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn every_entry_form_is_parsed() {
        let raw = bytes(&[
            (2 << 62) | (1 << 60) | (3 << 50) | 0x4d,
            (5 << 16) | (1 << 15) | 9,
            2 << 62,
            (3 << 62) | (99 << 24) | 4,
            (1 << 63) | 0x3e8,
        ]);
        let all: Vec<_> = Entries::new(&raw, Order::Big).map(Result::unwrap).collect();
        let freed = Action::Freed;
        assert_eq!(all[0], Entry::Debug { action: freed, txg: Txg::new(77), pass: 3 });
        assert_eq!(all[1], Entry::Range { action: freed, vdev: None, offset: 5, length: 10 });
        assert_eq!(all[2], Entry::Padding);
        let vdev = Some(VdevId::new(4));
        assert_eq!(all[3], Entry::Range { action: freed, vdev, offset: 1000, length: 100 });
        assert_eq!(all[1].bytes(12, 1 << 24), Some(((1 << 24) + 20480, 40960)));
        assert_eq!(all[1].bytes(64, 0), None);
        assert_eq!(all[0].bytes(9, 0), None);
        assert_eq!(all.len(), 5 - 1);
    }

    #[test]
    fn truncated_entry_ends_with_an_error() {
        let raw = bytes(&[3 << 62]);
        let mut all = Entries::new(&raw, Order::Big);
        assert!(all.next().unwrap().is_err());
        assert!(all.next().is_none());
    }

    #[test]
    fn headers_of_both_sizes() {
        let mut words = [0; 40];
        words[1] = 16;
        words[2] = u64::MAX;
        words[39] = 5;
        let raw = bytes(&words);
        let new = SpaceMapHeader::read(&mut Reader::new("h", &raw, Order::Big)).unwrap();
        assert_eq!((new.length, new.allocated, new.histogram.unwrap()[31]), (16, -1, 5));
        let old = SpaceMapHeader::read(&mut Reader::new("h", &raw[..24], Order::Big)).unwrap();
        assert_eq!(old.histogram, None);
    }

    #[test]
    fn unflushed_txgs_are_parsed() {
        assert_eq!(parse_unflushed_txgs(&bytes(&[0, 9]), Order::Big), [Txg::ZERO, Txg::new(9)]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>, shift: u32, start: u64) {
            for entry in Entries::new(&bytes, Order::Little).flatten() {
                let _ = entry.bytes(shift, start);
            }
            let _ = SpaceMapHeader::read(&mut Reader::new("h", &bytes, Order::Big));
        }
    }
}
