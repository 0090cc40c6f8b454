//! The report: plain data.

use std::ops::Range;
use std::time::Duration;

use ondisk::ObjectType;
use units::{Guid, Level, ObjectId, ObjsetId, Txg, VdevId, Zbookmark};

/// How many blocks, and how large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Pointers to blocks on the drives.
    pub blocks: u64,
    /// Bytes as their objects see them.
    pub lsize: u64,
    /// Bytes as stored.
    pub psize: u64,
    /// Bytes allocated, all copies, parity included.
    pub asize: u64,
}

impl BlockCounts {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.lsize += other.lsize;
        self.psize += other.psize;
        self.asize += other.asize;
    }
}

/// The blocks of one type on one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeCounts {
    /// The object that they are part of.
    pub kind: ObjectType,
    /// Their height in the objects' trees.
    pub level: Level,
    /// How many.
    pub counts: BlockCounts,
}

/// The blocks of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeCounts {
    /// Bytes as stored: more than half of this, and not more than this.
    pub max_psize: u64,
    /// How many.
    pub counts: BlockCounts,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafReport {
    /// Its guid.
    pub guid: Guid,
    /// The path by which it was opened; of one that is missing the one the pool knows.
    pub path: String,
    /// Whether it was not found.
    pub is_missing: bool,
    /// Blocks of which it holds a part with wrong bytes.
    pub checksum_errors: u64,
    /// Blocks of which it holds a part that it failed to read.
    pub read_errors: u64,
    /// Blocks of which it should hold a part and is missing.
    pub missing_blocks: u64,
    /// Blocks of which it should hold a part that was written while it was missing.
    pub stale_blocks: u64,
}

/// The space of a top-level vdev.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceReport {
    /// Which.
    pub vdev: VdevId,
    /// Bytes that the space maps have as allocated.
    pub allocated: u64,
    /// Bytes that are referred to.
    pub referenced: u64,
    /// Bytes allocated to which nothing refers.
    pub leaked: u64,
    /// Where: the first ranges, in bytes from the end of the front labels.
    pub leaked_ranges: Vec<Range<u64>>,
    /// Bytes referred to that are not allocated.
    pub unallocated: u64,
    /// Where: the first ranges.
    pub unallocated_ranges: Vec<Range<u64>>,
    /// Bytes that the space maps allocate twice, or free twice.
    pub contradictions: u64,
}

/// Space with which something is wrong, and the block that claims it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedRange {
    /// The top-level vdev.
    pub vdev: VdevId,
    /// The range, in bytes from the end of the front labels.
    pub range: Range<u64>,
    /// The block: the second of those at the address.
    pub zbookmark: Zbookmark,
}

/// A damaged range of a file or of another object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// Bytes; of an array of dnodes numbers of objects.
    pub range: Range<u64>,
    /// Whether no copy and no reconstruction gives it any more.
    pub is_lost: bool,
    /// The devices whose part was wrong or unreadable.
    pub leaves: Vec<Guid>,
    /// Why it is lost.
    pub why: Option<String>,
}

/// The damaged part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DamagedPart {
    /// Its content: ranges are in bytes.
    Content,
    /// The table of all objects of a dataset: ranges are numbers of objects.
    ObjectTable,
    /// A part besides the object's content (attributes, the intent log).
    Other,
}

/// A file, or another object, with damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedObject {
    /// The dataset's name; empty for the pool's own object set.
    pub dataset: String,
    /// Its number.
    pub objset: ObjsetId,
    /// The object.
    pub object: ObjectId,
    /// The type of the object, if known.
    pub kind: Option<ObjectType>,
    /// Its path in the dataset, where that could be found.
    pub path: Option<Vec<u8>>,
    /// Which part of it.
    pub part: DamagedPart,
    /// Its damaged parts.
    pub ranges: Vec<DamagedRange>,
}

impl DamagedObject {
    /// Whether some of it cannot be read any more.
    pub fn is_lost(&self) -> bool {
        self.ranges.iter().any(|range| range.is_lost)
    }
}

/// Something else that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether it is a fault, and not just something to know.
    pub is_fault: bool,
    /// The part.
    pub message: String,
}

/// All that was found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The pool's name.
    pub pool: String,
    /// Its guid.
    pub guid: Guid,
    /// As of when it was examined.
    pub txg: Txg,
    /// Whether everything was examined: false if the work was stopped.
    pub is_complete: bool,
    /// Datasets and snapshots with blocks of their own, the pool's own object set included.
    pub objsets: u64,
    /// How many of them were examined to the end.
    pub objsets_done: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// The threads that worked.
    pub threads: usize,
    /// Blocks by type and level.
    pub types: Vec<TypeCounts>,
    /// Blocks by size.
    pub sizes: Vec<SizeCounts>,
    /// All blocks.
    pub total: BlockCounts,
    /// Blocks that stand in their pointers.
    pub embedded: u64,
    /// Blocks that a redacted send stream left out.
    pub redacted: u64,
    /// Blocks in pieces.
    pub gang_blocks: u64,
    /// References to shared blocks beyond the first: dedup and clones.
    pub extra_references: u64,
    /// The bytes that they need.
    pub extra_reference_bytes: u64,
    /// Blocks that wait to be freed, and are not examined.
    pub pending_frees: BlockCounts,
    /// Bytes that were examined, all copies and parity.
    pub examined_bytes: u64,
    /// Blocks that were reconstructed without missing or outdated devices.
    pub degraded: u64,
    /// Blocks with damage that can be read all the same.
    pub repairable: u64,
    /// Blocks that cannot be read any more.
    pub lost: u64,
    /// The devices.
    pub leaves: Vec<LeafReport>,
    /// The files and other objects with damage.
    pub damaged: Vec<DamagedObject>,
    /// Damaged blocks beyond those that are named.
    pub unlisted_damage: u64,
    /// Space: allocated bytes compared with referenced bytes. Unknown if the work was stopped.
    pub space: Vec<SpaceReport>,
    /// Space that two blocks claim.
    pub double_claims: Vec<ClaimedRange>,
    /// Bytes of it.
    pub double_claimed_bytes: u64,
    /// Blocks with addresses outside of the space.
    pub out_of_range: Vec<ClaimedRange>,
    /// How many.
    pub out_of_range_count: u64,
    /// All else.
    pub notes: Vec<Note>,
}

impl CheckReport {
    /// Bytes allocated to which nothing refers.
    pub fn leaked_bytes(&self) -> u64 {
        self.space.iter().map(|space| space.leaked).sum()
    }

    /// Bytes referred to that are not allocated.
    pub fn unallocated_bytes(&self) -> u64 {
        self.space.iter().map(|space| space.unallocated).sum()
    }

    /// Whether nothing is wrong, missing devices aside.
    pub fn is_clean(&self) -> bool {
        self.repairable == 0
            && self.lost == 0
            && self.leaked_bytes() == 0
            && self.unallocated_bytes() == 0
            && self.double_claimed_bytes == 0
            && self.out_of_range_count == 0
            && self.space.iter().all(|space| space.contradictions == 0)
            && !self.notes.iter().any(|note| note.is_fault)
    }
}
