//! An index object: sorted block records, each with its pack.
//!
//! ```text
//! offset    size  field    meaning
//!      0       8  magic    "PHINDEX\1"
//!      8       8  pool     the guid of the pool
//!     16       4  packs    P, the number of packs
//!     20       4  count    N, the number of blocks
//!     24   32 * P packs    generation (8), ID (16), kind (4, as in pack.rs), 0 (4)
//!      -   56 * N blocks   the record of 48 bytes (key.rs), the number of its pack (4), 0 (4)
//!      -      32  sum      BLAKE3 of all bytes before
//! ```
//!
//! The records are sorted by their keys, without duplicates. An object has at most [`MAX_ENTRIES`] of them,
//! so that a reader can load it whole.
//!
//! Learnt from: our own format. Proved by: `index_objects_survive_the_way_to_bytes`.

use std::collections::HashMap;

use crate::bytes::ByteReader;
use crate::head::{Generation, ObjectId};
use crate::key::{BlockKey, StoredBlock};
use crate::pack::PackKind;

const MAGIC: [u8; 8] = *b"PHINDEX\x01";
const HEADER_SIZE: usize = 24;
const PACK_ENTRY_SIZE: usize = 32;
const BLOCK_ENTRY_SIZE: usize = StoredBlock::SIZE + 8;
const SUM_SIZE: usize = 32;
/// Blocks in an index object: 3.5 MiB.
pub(crate) const MAX_ENTRIES: usize = 1 << 16;
/// Bytes of an index object at most: each block in a pack of its own.
pub(crate) const MAX_INDEX_SIZE: u64 =
    (HEADER_SIZE + SUM_SIZE + MAX_ENTRIES * (BLOCK_ENTRY_SIZE + PACK_ENTRY_SIZE)) as u64;

/// A pack as the index names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct PackRef {
    pub(crate) id: ObjectId,
    pub(crate) kind: PackKind,
}

/// Where a block lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockLocation {
    /// The record.
    pub block: StoredBlock,
    /// The pack.
    pub pack: ObjectId,
    /// The kind of that pack.
    pub kind: PackKind,
}

/// An index object, as its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexObject {
    pool: u64,
    packs: Vec<PackRef>,
    /// The records with the numbers of their packs.
    entries: Vec<u8>,
}

impl IndexObject {
    /// Parses an object. The error is the rule that it breaks.
    pub fn parse(object: &[u8]) -> Result<Self, &'static str> {
        let short = "it is too short";
        let split = object.len().checked_sub(SUM_SIZE).ok_or(short)?;
        let (summed, sum) = object.split_at_checked(split).ok_or(short)?;
        let mut reader = ByteReader(summed);
        if reader.array() != Some(MAGIC) {
            return Err("it does not begin as an index object does");
        }
        if blake3::hash(summed).as_bytes() != sum {
            return Err("its checksum is wrong");
        }
        let pool = reader.u64().ok_or(short)?;
        let (packs, count) = (reader.u32().ok_or(short)?, reader.u32().ok_or(short)?);
        let mut table = Vec::new();
        for _ in 0..packs {
            table.push(read_pack(&mut reader)?);
        }
        let expected = usize::try_from(count).ok().and_then(|n| n.checked_mul(BLOCK_ENTRY_SIZE));
        if expected != Some(reader.0.len()) {
            return Err("its number of records is wrong");
        }
        let object = Self { pool, packs: table, entries: reader.0.to_vec() };
        object.check_entries()?;
        Ok(object)
    }

    fn check_entries(&self) -> Result<(), &'static str> {
        let mut before = None;
        for at in 0..self.len() {
            let location = self.get(at).ok_or("a record names a pack that is not in its table")?;
            if before >= Some(location.block.key) {
                return Err("its records are not sorted");
            }
            if !location.block.has_valid_sizes() {
                return Err("the sizes of a record are wrong");
            }
            before = Some(location.block.key);
        }
        Ok(())
    }

    /// The pool whose blocks it lists.
    pub fn pool(&self) -> u64 {
        self.pool
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.entries.len() / BLOCK_ENTRY_SIZE
    }

    /// Whether the index is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The packs that its records may name.
    pub(crate) fn packs(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.packs.iter().map(|pack| pack.id)
    }

    /// The record of that number.
    pub fn get(&self, at: usize) -> Option<BlockLocation> {
        let start = at.checked_mul(BLOCK_ENTRY_SIZE)?;
        let mut reader = ByteReader(self.entries.get(start..)?);
        let block = StoredBlock::read(&mut reader)?;
        let pack = self.packs.get(usize::try_from(reader.u32()?).ok()?)?;
        Some(BlockLocation { block, pack: pack.id, kind: pack.kind })
    }

    /// The number of the record with a key.
    pub fn find(&self, key: &BlockKey) -> Option<usize> {
        let (mut low, mut high) = (0_usize, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle)?.block.key.cmp(key) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => low = middle.checked_add(1)?,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// All records, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = BlockLocation> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// The object with these records, which are sorted.
    pub(crate) fn build(pool: u64, locations: &[BlockLocation]) -> Vec<u8> {
        assert!(
            locations.is_sorted_by(|one, next| one.block.key < next.block.key),
            "records are sorted, and none is there twice: a reader refuses others"
        );
        assert!(locations.len() <= MAX_ENTRIES, "a reader can load an index object whole");
        let mut packs: Vec<PackRef> = Vec::new();
        let mut numbers: HashMap<ObjectId, u32> = HashMap::new();
        let mut entries = Vec::new();
        for location in locations {
            let next = units::narrow::<u32>(packs.len());
            let number = *numbers.entry(location.pack).or_insert_with(|| {
                packs.push(PackRef { id: location.pack, kind: location.kind });
                next
            });
            entries.extend_from_slice(&location.block.encode());
            entries.extend_from_slice(&number.to_le_bytes());
            entries.extend_from_slice(&[0; 4]);
        }
        assert_eq!(
            entries.len(),
            locations.len() * BLOCK_ENTRY_SIZE,
            "an index has a record of fixed size for each block"
        );
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&pool.to_le_bytes());
        out.extend_from_slice(&units::narrow::<u32>(packs.len()).to_le_bytes());
        out.extend_from_slice(&units::narrow::<u32>(locations.len()).to_le_bytes());
        for pack in &packs {
            out.extend_from_slice(&pack.id.generation.0.to_le_bytes());
            out.extend_from_slice(&pack.id.id);
            out.extend_from_slice(&pack.kind.number().to_le_bytes());
            out.extend_from_slice(&[0; 4]);
        }
        out.extend_from_slice(&entries);
        let sum = blake3::hash(&out);
        out.extend_from_slice(sum.as_bytes());
        out
    }
}

fn read_pack(reader: &mut ByteReader<'_>) -> Result<PackRef, &'static str> {
    let short = "it is too short";
    let generation = Generation(reader.u64().ok_or(short)?);
    let id = reader.array().ok_or(short)?;
    let kind =
        reader.u32().and_then(PackKind::from_number).ok_or("the kind of a pack is unknown")?;
    reader.u32().ok_or(short)?;
    Ok(PackRef { id: ObjectId { generation, id }, kind })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BLOCK_ENTRY_SIZE, BlockLocation, IndexObject, SUM_SIZE};
    use crate::head::{Generation, ObjectId};
    use crate::key::{BlockKey, StoredBlock};
    use crate::pack::PackKind;

    fn locations(births: &std::collections::BTreeSet<u64>) -> Vec<BlockLocation> {
        let location = |birth: &u64| {
            let key = BlockKey { birth: *birth, psize: 4096, ..BlockKey::default() };
            let small = u8::try_from(birth % 5).unwrap();
            let pack = ObjectId { generation: Generation(birth % 5), id: [small; 16] };
            let kind = if small == 0 { PackKind::Metadata } else { PackKind::Data };
            let block = StoredBlock { key, hash: birth * 3, position: 9, length: 100 };
            BlockLocation { block, pack, kind }
        };
        births.iter().map(location).collect()
    }

    proptest! {
        #[test]
        fn index_objects_survive_the_way_to_bytes(
            births in proptest::collection::btree_set(0_u64..1000, 0..60),
            flip: usize,
        ) {
            let all = locations(&births);
            let bytes = IndexObject::build(7, &all);
            let index = IndexObject::parse(&bytes).unwrap();
            prop_assert_eq!(index.iter().collect::<Vec<_>>(), all.clone());
            for birth in 0..1000 {
                let key = BlockKey { birth, psize: 4096, ..BlockKey::default() };
                let found = index.find(&key).and_then(|at| index.get(at));
                prop_assert_eq!(found.map(|it| it.block.key.birth), births.get(&birth).copied());
            }
            let mut wrong = bytes.clone();
            wrong[flip % bytes.len()] ^= 0x10;
            prop_assert!(IndexObject::parse(&wrong).is_err());
        }

        #[test]
        fn unsorted_index_is_refused(
            births in proptest::collection::btree_set(0_u64..1000, 2..60),
        ) {
            let mut bytes = IndexObject::build(7, &locations(&births));
            bytes.truncate(bytes.len() - SUM_SIZE);
            let start = bytes.len() - births.len() * BLOCK_ENTRY_SIZE;
            bytes[start..start + 2 * BLOCK_ENTRY_SIZE].rotate_left(BLOCK_ENTRY_SIZE);
            let sum = blake3::hash(&bytes);
            bytes.extend_from_slice(sum.as_bytes());
            prop_assert_eq!(IndexObject::parse(&bytes), Err("its records are not sorted"));
        }
    }
}
