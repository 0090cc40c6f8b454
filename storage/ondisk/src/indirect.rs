//! Indirect vdev: where the blocks of a removed vdev went.
//!
//! Mapping entry (an element of the mapping object, sorted by source):
//!
//! ```text
//! offset  size  field  meaning
//!      0     8  src    bits 0-62 source offset in sectors of 512; bit 63 a mark, of no meaning
//!      8    16  dst    the new place (a DVA), asize long; it may be in an indirect vdev again
//!     24
//! ```
//!
//! Mapping header (bonus of the mapping object):
//!
//! ```text
//! offset  size  field         meaning
//!      0     8  max_offset    end of the last mapped range, bytes
//!      8     8  bytes_mapped  sum of the sizes
//!     16     8  num_entries
//!     24     8  counts_object u32 for each entry: how many of its bytes are in use no more; only
//!                             in a bonus of 32 bytes
//! ```
//!
//! Births: the bonus is one word, the count; an entry is (end offset, txg): everything below that
//! offset and not below the entry before was copied in that txg. Sorted by both.
//!
//! Condensing (entry `com.delphix:condensing_indirect` of the pool directory): three words, vdev,
//! object of the obsolete space map, object of the mapping in the making.
//!
//! Removing (entry `com.delphix:removing`): seven words, state (1 going on, 2 done, 3 cancelled),
//! vdev being or last tried to be removed, vdev last removed (both all ones: none), start and end
//! (seconds since 1970), bytes to copy, bytes copied.
//!
//! Must hold: the sources ascend and do not overlap ([`Mapping::parse`] checks it). A header counts entries of a
//! sector or more below `max_offset` ([`MappingHeader::read`]), so that appending to it overflows nothing.
//!
//! Learnt from: `zdb -C` and `zdb -dddddd` of the fixture `removed`. Proved by:
//! `golden_indirect_mapping`, `golden_indirect_births`.

use units::{ObjectId, Txg, VdevId};

use crate::{Dva, Order, Reader, Result};

/// An object has no more bytes than this.
const MAX_OBJECT_BYTES: u64 = 1 << 63;

/// One range of the removed vdev and where it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappingEntry {
    /// Offset in the removed vdev, bytes.
    pub source: u64,
    /// The new place; its `asize` is the length of the range, bytes.
    pub target: Dva,
}

impl MappingEntry {
    /// Bytes on disk.
    pub const SIZE: usize = 24;

    /// Reads one entry.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let source = reader.u64()?.wrapping_shl(9);
        let [first, second] = reader.words()?;
        let Some(target) = Dva::from_words(first, second) else {
            return Err(reader.corrupt_field(16, "a mapping has a target", 0));
        };
        Ok(Self { source, target })
    }

    /// The bytes on disk.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let [first, second] = self.target.to_words();
        assert!(self.source.is_multiple_of(512), "a mapped range begins at {}", self.source);
        words_to_bytes([self.source >> 9, first, second])
    }

    /// The end of the range in the removed vdev, bytes.
    pub const fn end(&self) -> u64 {
        self.source.saturating_add(self.target.asize)
    }
}

/// The header of a mapping: the bonus of its object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappingHeader {
    /// End of the last mapped range, bytes.
    pub max_offset: u64,
    /// Sum of the sizes, bytes.
    pub bytes_mapped: u64,
    /// How many entries the object holds.
    pub entries: u64,
    /// The object with the obsolete bytes of each entry (u32), if there is one.
    pub counts: Option<ObjectId>,
}

impl MappingHeader {
    /// Reads a bonus of 24 or 32 bytes.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let max_offset = reader.u64()?;
        let bytes_mapped = reader.u64()?;
        let entries = reader.u64()?;
        if entries > bytes_mapped >> 9 || bytes_mapped > max_offset || max_offset >> 63 != 0 {
            let rule = "entries have a sector or more, all below the end of the last";
            return Err(reader.corrupt_field(8, rule, entries));
        }
        let counts =
            if reader.remaining() >= 8 { ObjectId::new(reader.u64()?) } else { ObjectId::META };
        Ok(Self { max_offset, bytes_mapped, entries, counts: counts.exists().then_some(counts) })
    }

    /// The bonus: 32 bytes if there is an object of counts, else 24.
    pub fn encode(&self) -> Vec<u8> {
        let words: [u8; 24] = words_to_bytes([self.max_offset, self.bytes_mapped, self.entries]);
        let counts = self.counts.map(|counts| counts.get().to_le_bytes());
        words.into_iter().chain(counts.into_iter().flatten()).collect()
    }

    /// Bytes of the object's content that are entries; saturates where the count is absurd.
    pub const fn size(&self) -> u64 {
        self.entries.saturating_mul(24)
    }
}

/// All entries of a removed vdev, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mapping {
    entries: Vec<MappingEntry>,
}

impl Mapping {
    /// Reads the object's content, as many whole entries as there are.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        let mut reader = Reader::new("indirect mapping", bytes, order);
        let mut entries: Vec<MappingEntry> = Vec::new();
        while reader.remaining() > 0 {
            let entry = MappingEntry::read(&mut reader)?;
            if entries.last().is_some_and(|before| before.end() > entry.source) {
                return Err(reader.corrupt_field(
                    24,
                    "sources ascend and do not overlap",
                    entry.source,
                ));
            }
            entries.push(entry);
        }
        Ok(Self { entries })
    }

    /// The entries in order of their sources.
    pub fn entries(&self) -> &[MappingEntry] {
        &self.entries
    }

    /// The entry that holds the byte at `offset` of the removed vdev.
    pub fn find(&self, offset: u64) -> Option<&MappingEntry> {
        let after = self.entries.partition_point(|entry| entry.source <= offset);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        (offset < entry.end()).then_some(entry)
    }
}

/// Up to where the removed vdev was copied in which txg.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Birth {
    /// End of the range, bytes in the removed vdev.
    pub end: u64,
    /// The txg in which the preceding ranges were copied.
    pub txg: Txg,
}

impl Birth {
    /// Bytes on disk.
    pub const SIZE: usize = 16;

    /// Reads one entry.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { end: reader.u64()?, txg: Txg::new(reader.u64()?) })
    }

    /// The bytes on disk.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        words_to_bytes([self.end, self.txg.get()])
    }

    /// Reads the count from the object's bonus.
    pub fn count(bonus: &[u8], order: Order) -> Result<u64> {
        let mut reader = Reader::new("indirect births header", bonus, order);
        let count = reader.u64()?;
        if count >= const { MAX_OBJECT_BYTES / Self::SIZE as u64 } {
            return Err(reader.corrupt_field(8, "the births fit an object", count));
        }
        Ok(count)
    }

    /// Reads the object's content.
    pub fn parse_all(bytes: &[u8], order: Order) -> Result<Vec<Self>> {
        let mut reader = Reader::new("indirect births", bytes, order);
        let mut all = Vec::new();
        while reader.remaining() > 0 {
            all.push(Self::read(&mut reader)?);
        }
        Ok(all)
    }
}

/// A mapping that is being rewritten without its obsolete parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Condensing {
    /// The indirect vdev.
    pub vdev: VdevId,
    /// The space map of obsolete ranges that goes into the new mapping.
    pub obsolete: ObjectId,
    /// The new mapping.
    pub next: ObjectId,
}

impl Condensing {
    /// Bytes on disk.
    pub const SIZE: usize = 24;

    /// Reads the three words.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let vdev = reader.u64()?;
        let Ok(vdev) = u32::try_from(vdev) else {
            return Err(reader.corrupt_field(8, "a vdev's index fits 32 bits", vdev));
        };
        let obsolete = ObjectId::new(reader.u64()?);
        let next = ObjectId::new(reader.u64()?);
        Ok(Self { vdev: VdevId::new(vdev), obsolete, next })
    }

    /// From the words of the pool directory's entry; `None` where there are not three, or no such vdev can be.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let [vdev, obsolete, next] = *words else { return None };
        let vdev = VdevId::new(u32::try_from(vdev).ok()?);
        Some(Self { vdev, obsolete: ObjectId::new(obsolete), next: ObjectId::new(next) })
    }

    /// The words of the pool directory's entry.
    pub fn to_words(self) -> [u64; 3] {
        [self.vdev.get().into(), self.obsolete.get(), self.next.get()]
    }
}

/// The removal of a vdev, going on or the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removing {
    /// 1 going on, 2 done, 3 cancelled.
    pub state: u64,
    /// The vdev removed most recently.
    pub vdev: Option<u64>,
    /// The vdev last removed; from it the chain of removed ones starts.
    pub previous: Option<u64>,
    /// Seconds since 1970.
    pub start: u64,
    /// Seconds since 1970; 0 while it runs.
    pub end: u64,
    /// Bytes to copy.
    pub to_copy: u64,
    /// Bytes copied, or freed meanwhile.
    pub copied: u64,
}

impl Removing {
    /// Bytes on disk.
    pub const SIZE: usize = 56;

    /// The state of a removal that goes on.
    pub const COPYING: u64 = 1;
    /// The state of a removal that is complete.
    pub const FINISHED: u64 = 2;
    /// The state of a removal that was cancelled.
    pub const CANCELED: u64 = 3;

    /// Reads the seven words.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let state = reader.u64()?;
        let vdev = Some(reader.u64()?).filter(|vdev| *vdev != u64::MAX);
        let previous = Some(reader.u64()?).filter(|vdev| *vdev != u64::MAX);
        let [start, end, to_copy, copied] = reader.words()?;
        Ok(Self { state, vdev, previous, start, end, to_copy, copied })
    }

    /// From the words of the pool directory's entry; `None` where there are not seven, or where no vdev can have
    /// so many bytes.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let [state, vdev, previous, start, end, to_copy, copied] = *words else { return None };
        if (to_copy | copied) >> 63 != 0 {
            return None;
        }
        let known = |vdev: u64| Some(vdev).filter(|vdev| *vdev != u64::MAX);
        let (vdev, previous) = (known(vdev), known(previous));
        Some(Self { state, vdev, previous, start, end, to_copy, copied })
    }

    /// The words of the pool directory's entry.
    pub fn to_words(self) -> [u64; 7] {
        let number = |vdev: Option<u64>| vdev.unwrap_or(u64::MAX);
        let (vdev, previous) = (number(self.vdev), number(self.previous));
        [self.state, vdev, previous, self.start, self.end, self.to_copy, self.copied]
    }
}

/// Words, least significant byte first.
fn words_to_bytes<const WORDS: usize, const BYTES: usize>(words: [u64; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (place, byte) in bytes.iter_mut().zip(words.into_iter().flat_map(u64::to_le_bytes)) {
        *place = byte;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use units::{ObjectId, Txg};

    use super::{Birth, Condensing, Mapping, MappingEntry, MappingHeader, Removing};
    use crate::{Dva, Order, Reader};

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn mapping_finds_offsets_in_their_ranges() {
        // sectors 8..16 and 32..40 went to vdev 2; the mark in bit 63 is not part of an offset
        let raw = bytes(&[(1 << 63) | 8, (2 << 32) | 8, 100, 32, (2 << 32) | 8, 200]);
        let mapping = Mapping::parse(&raw, Order::Little).unwrap();
        assert_eq!(mapping.entries().len(), 2);
        assert_eq!(mapping.find(4095), None);
        assert_eq!(mapping.find(4096).unwrap().target.offset, 51200);
        assert_eq!(mapping.find(8191).unwrap().source, 4096);
        assert_eq!(mapping.find(8192), None);
        assert_eq!(mapping.find(20479).unwrap().target.vdev.get(), 2);
        assert_eq!(mapping.find(u64::MAX), None);
    }

    #[test]
    fn unsorted_mapping_is_refused() {
        let raw = bytes(&[8, (2 << 32) | 8, 100, 12, (2 << 32) | 8, 200]);
        assert!(Mapping::parse(&raw, Order::Little).is_err());
        assert!(Mapping::parse(&raw[..30], Order::Little).is_err());
    }

    #[test]
    fn headers_of_both_sizes() {
        let raw = bytes(&[4096, 2048, 3, 77]);
        let mut reader = Reader::new("h", &raw, Order::Little);
        assert_eq!(MappingHeader::read(&mut reader).unwrap().counts.unwrap().get(), 77);
        let mut reader = Reader::new("h", &raw[..24], Order::Little);
        let old = MappingHeader::read(&mut reader).unwrap();
        assert_eq!((old.counts, old.size()), (None, 72));
    }

    #[test]
    fn impossible_counts_are_corrupt() {
        let is_header = |words: [u64; 3]| {
            let raw = bytes(&words);
            MappingHeader::read(&mut Reader::new("h", &raw, Order::Little)).is_ok()
        };
        assert!(is_header([4096, 1536, 3]));
        assert!(!is_header([4096, 1536, 4]), "an entry has a sector or more");
        assert!(!is_header([1024, 1536, 3]), "the ranges do not overlap");
        assert!(!is_header([u64::MAX, 1536, 3]), "more than 63 bits");
        assert_eq!(Birth::count(&bytes(&[7]), Order::Little), Ok(7));
        assert!(Birth::count(&bytes(&[1 << 60]), Order::Little).is_err());
        assert!(Removing::from_words(&[1, 0, u64::MAX, 0, 0, 4096, 4096]).is_some());
        assert!(Removing::from_words(&[1, 0, u64::MAX, 0, 0, 4096, u64::MAX]).is_none());
    }

    #[test]
    fn encoded_structures_are_read_back() {
        let target = Dva::from_words((2 << 32) | 8, 100).unwrap();
        let entry = MappingEntry { source: 4096, target };
        let mapping = Mapping::parse(&entry.encode(), Order::Little).unwrap();
        assert_eq!(mapping.entries(), [entry]);
        for counts in [None, Some(ObjectId::new(5))] {
            let header = MappingHeader { max_offset: 8192, bytes_mapped: 4096, entries: 1, counts };
            let bytes = header.encode();
            let mut reader = Reader::new("h", &bytes, Order::Little);
            assert_eq!(MappingHeader::read(&mut reader).unwrap(), header);
        }
        let birth = Birth { end: 8192, txg: Txg::new(7) };
        assert_eq!(Birth::parse_all(&birth.encode(), Order::Little).unwrap(), [birth]);
        let words = [1, 3, u64::MAX, 10, 0, 30, 40];
        assert_eq!(Removing::from_words(&words).unwrap().to_words(), words);
        assert_eq!(Condensing::from_words(&[2, 70, 71]).unwrap().to_words(), [2, 70, 71]);
        assert_eq!(Condensing::from_words(&[1 << 32, 70, 71]), None);
    }

    #[test]
    fn all_ones_mean_no_vdev() {
        let raw = bytes(&[2, u64::MAX, 1, 10, 20, 30, 40]);
        let removing = Removing::read(&mut Reader::new("r", &raw, Order::Little)).unwrap();
        assert_eq!((removing.vdev, removing.previous), (None, Some(1)));
        assert_eq!(removing.copied, 40);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            let _ = Mapping::parse(&bytes, Order::Little);
            let _ = Birth::parse_all(&bytes, Order::Big);
            let _ = Condensing::read(&mut Reader::new("c", &bytes, Order::Big));
            let _ = MappingHeader::read(&mut Reader::new("m", &bytes, Order::Big));
        }
    }
}
