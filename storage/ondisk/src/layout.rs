//! Size and offset of every fixed structure, asserted on one page.
//!
//! The constants are sums of the fields in the drawings: a wrong one does not compile. The test
//! below parses each structure and compares the cursor's position.

use crate::blkptr::Blkptr;
use crate::dedup::{CloneTable, DedupKey, LogHeader, Shape};
use crate::dsl::{
    Bookmark, Bpobj, Bptree, BptreeEntry, Dataset, Deadlist, Dir, RedactedBlocks, RedactionList,
};
use crate::gang::{EMBEDDED_CHECKSUM_SIZE, GangHeader};
use crate::history::HistoryHeader;
use crate::indirect::{Birth, Condensing, MappingEntry, Removing};
use crate::spacemap::SpaceMapHeader;
use crate::uberblock::Uberblock;
use crate::znode::Znode;
use crate::{label, objset, zil};

/// Bytes of one word, an address, a checksum.
const WORD: usize = 8;
const DVA: usize = 2 * WORD;
const SUM: usize = 4 * WORD;

macro_rules! sizes {
    ($($size:expr => $fields:expr;)*) => { $(const _: () = assert!($size == $fields);)* };
}

sizes! {
    // addresses, properties, padding, births, fill, checksum
    Blkptr::SIZE => 3 * DVA + WORD + 2 * WORD + 2 * WORD + WORD + SUM;
    Blkptr::PAYLOAD => Blkptr::SIZE - 2 * WORD;
    EMBEDDED_CHECKSUM_SIZE => WORD + SUM;
    GangHeader::SIZE => 3 * Blkptr::SIZE + 11 * WORD + EMBEDDED_CHECKSUM_SIZE;
    Uberblock::SIZE => 5 * WORD + Blkptr::SIZE + 6 * WORD;
    zil::Chain::SIZE => WORD + Blkptr::SIZE + WORD + EMBEDDED_CHECKSUM_SIZE;
    objset::LogHeader::SIZE => 5 * WORD + Blkptr::SIZE + 3 * WORD;
    MappingEntry::SIZE => WORD + DVA;
    Birth::SIZE => 2 * WORD;
    Condensing::SIZE => 3 * WORD;
    Removing::SIZE => 7 * WORD;
    SpaceMapHeader::OLD_SIZE => 3 * WORD;
    SpaceMapHeader::SIZE => SpaceMapHeader::OLD_SIZE + 5 * WORD + 32 * WORD;
    DedupKey::SIZE => SUM + WORD;
    LogHeader::SIZE => 3 * WORD + DedupKey::SIZE;
    CloneTable::SIZE => 7 * WORD;
    Shape::Flat.size() => 3 * DVA + 3 * WORD;
    Shape::Traditional.size() => 4 * (3 * DVA + 2 * WORD);
    HistoryHeader::SIZE => 5 * WORD;
    Bookmark::SHORT_SIZE => 3 * WORD;
    Bookmark::SIZE => 12 * WORD;
    RedactionList::SIZE => 4 * WORD;
    RedactedBlocks::SIZE => 4 * WORD;
    Bpobj::SIZE => 7 * WORD;
    Bptree::SIZE => 5 * WORD;
    BptreeEntry::SIZE => 5 * WORD + Blkptr::SIZE;
    Dataset::SIZE => 320;
    Deadlist::SIZE => 320;
    Dir::SIZE => 256;
    Znode::SIZE => 264;
    label::BOOT_ENV_OFFSET + label::BOOT_ENV_SIZE => label::CONFIG_OFFSET;
    label::CONFIG_OFFSET + label::CONFIG_SIZE => label::RING_OFFSET;
    label::RING_OFFSET + label::RING_SIZE => label::SIZE;
}

#[cfg(test)]
mod tests {
    use super::{
        Birth, Blkptr, CloneTable, Condensing, DedupKey, GangHeader, HistoryHeader, LogHeader,
        MappingEntry, Removing, Shape, SpaceMapHeader, Uberblock,
    };
    use crate::dedup::DedupValue;
    use crate::gang::EMBEDDED_CHECKSUM_MAGIC;
    use crate::indirect::MappingHeader;
    use crate::{Order, Reader, Result};

    /// Where the cursor stands after reading words with those numbers in their places.
    fn end<T>(set: &[(usize, u64)], read: impl Fn(&mut Reader<'_>) -> Result<T>) -> usize {
        let mut words = [0_u64; 128];
        for (place, word) in set {
            words[*place] = *word;
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut reader = Reader::new("layout", &bytes, Order::Little);
        read(&mut reader).unwrap();
        reader.position()
    }

    #[test]
    fn each_structure_reads_its_own_size() {
        assert_eq!(end(&[], Blkptr::read), Blkptr::SIZE);
        let magic = [(59, EMBEDDED_CHECKSUM_MAGIC)];
        assert_eq!(end(&magic, GangHeader::read), GangHeader::SIZE);
        assert_eq!(end(&[(0, 0x00ba_b10c)], Uberblock::read), Uberblock::SIZE);
        assert_eq!(end(&[(1, 1)], MappingEntry::read), MappingEntry::SIZE);
        assert_eq!(end(&[], MappingHeader::read), 32);
        assert_eq!(end(&[], Birth::read), Birth::SIZE);
        assert_eq!(end(&[], Condensing::read), Condensing::SIZE);
        assert_eq!(end(&[], Removing::read), Removing::SIZE);
        assert_eq!(end(&[], SpaceMapHeader::read), SpaceMapHeader::SIZE);
        assert_eq!(end(&[], DedupKey::read), DedupKey::SIZE);
        assert_eq!(end(&[(0, 1)], LogHeader::read), LogHeader::SIZE);
        assert_eq!(end(&[], CloneTable::read), CloneTable::SIZE);
        assert_eq!(end(&[], HistoryHeader::read), HistoryHeader::SIZE);
        for shape in [Shape::Flat, Shape::Traditional] {
            assert_eq!(end(&[], |reader| DedupValue::read(reader, shape)), shape.size());
        }
    }
}
