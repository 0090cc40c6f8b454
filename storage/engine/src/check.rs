//! Verifying a pool: every block, each copy of it and its parity, and the space maps.
//!
//! [`PoolVerifier`] is worked on by as many threads as the caller brings:
//!
//! ```text
//! let verify = Verify::new(&pool, job)?;
//! loop {
//!     (on each thread) verify.work();
//!     if !verify.next_round() { break }
//! }
//! let findings = verify.findings();
//! ```

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ::check::report::{
    BlockCounts, CheckReport, ClaimedRange, DamagedObject, DamagedPart, SpaceReport,
};
use job::Job;
use serde::Serialize;
use units::{Guid, MinusOrZero};

use crate::{Error, RescuePool, Result};

/// How many blocks, and how large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockTotals {
    /// Pointers to blocks.
    pub blocks: u64,
    /// Bytes as their objects see them.
    pub logical_bytes: u64,
    /// Bytes as stored, once.
    pub stored_bytes: u64,
    /// Bytes allocated, all copies, parity included.
    pub allocated_bytes: u64,
}

/// The blocks of one type on one level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypeBlocks {
    /// The object that they are part of.
    #[serde(rename = "type")]
    pub kind: String,
    /// Their level in the objects' trees; 0: the data.
    pub level: u8,
    /// How many.
    #[serde(flatten)]
    pub blocks: BlockTotals,
}

/// The blocks of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeBlocks {
    /// Bytes as stored: not more than this, and more than half of it.
    pub up_to: u64,
    /// How many.
    #[serde(flatten)]
    pub blocks: BlockTotals,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// The path by which it was opened; of one that is missing the one the pool knows.
    pub path: String,
    /// Its guid.
    pub guid: u64,
    /// Whether it was not found.
    pub missing: bool,
    /// Blocks of which it has a part with wrong bytes.
    pub checksum_errors: u64,
    /// Blocks of which it failed to read its part.
    pub read_errors: u64,
    /// Blocks of which its part is not there, as it is missing.
    pub absent: u64,
    /// Blocks that were written while it was missing.
    pub stale: u64,
}

/// A damaged range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DamagedRange {
    /// From this byte on (of a table of objects: from this number on).
    pub start: u64,
    /// To before this.
    pub end: u64,
    /// Whether it cannot be read any more; else redundancy still gives it.
    pub lost: bool,
    /// The devices whose part is wrong or unreadable.
    pub devices: Vec<String>,
    /// Why it cannot be read.
    pub why: Option<String>,
}

/// A file, or another object, with damage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectDamage {
    /// The dataset; empty: the pool's own data.
    pub dataset: String,
    /// The object's number.
    pub object: u64,
    /// The path in the dataset, if known. Invalid UTF-8 in it is replaced.
    pub path: Option<String>,
    /// The original bytes in hexadecimal digits, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
    /// The type of the object.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// "content", "objects" (a part of the table of all objects: ranges are numbers of objects) or
    /// "rest" (parts of the object besides its content).
    pub part: &'static str,
    /// The damaged ranges.
    pub ranges: Vec<DamagedRange>,
}

impl ObjectDamage {
    /// Whether some of it cannot be read any more.
    pub fn is_lost(&self) -> bool {
        self.ranges.iter().any(|range| range.lost)
    }

    /// Its path for messages.
    pub fn display_name(&self) -> String {
        let dataset = if self.dataset.is_empty() { "the pool's own data" } else { &self.dataset };
        match (&self.path, self.part) {
            (Some(path), _) => format!("{dataset}:{path}"),
            (None, "objects") => format!("{dataset}: the table of all objects"),
            (None, _) if self.object == 0 => format!("{dataset}: its root or intent log"),
            (None, _) => {
                let kind = self.kind.as_deref().unwrap_or("unknown");
                format!("{dataset}: object {} ({kind})", self.object)
            }
        }
    }
}

/// A range of a vdev, in bytes from the end of its front labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpaceRange {
    /// The top-level vdev.
    pub vdev: u32,
    /// The first byte.
    pub start: u64,
    /// Behind the last.
    pub end: u64,
    /// The owner of the block at the range, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<String>,
}

/// The space of a top-level vdev.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VdevSpaceReport {
    /// Which.
    pub vdev: u32,
    /// Bytes that the space maps have as allocated.
    pub allocated_bytes: u64,
    /// Bytes that are referred to.
    pub referenced_bytes: u64,
    /// Bytes allocated to which nothing refers.
    pub leaked_bytes: u64,
    /// Where, the first thousand ranges.
    pub leaks: Vec<SpaceRange>,
    /// Bytes referred to that are not allocated.
    pub unallocated_bytes: u64,
    /// Where, the first thousand ranges.
    pub unallocated: Vec<SpaceRange>,
    /// Bytes that the space maps allocate or free twice.
    pub contradicting_bytes: u64,
}

/// Something to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// Whether it is a fault.
    pub is_fault: bool,
    /// The kind of the finding.
    pub what: String,
}

/// The result of verifying a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// The pool's name.
    pub pool: String,
    /// Its guid.
    pub guid: u64,
    /// As of when.
    pub txg: u64,
    /// Whether everything was examined; false: the work was stopped.
    pub complete: bool,
    /// Whether nothing is wrong, missing devices aside.
    pub clean: bool,
    /// Object sets with blocks of their own: the pool's, each dataset, each snapshot.
    pub datasets: u64,
    /// How many of them were examined to the end.
    pub datasets_done: u64,
    /// Bytes read, all copies and parity.
    pub examined_bytes: u64,
    /// All blocks.
    pub total: BlockTotals,
    /// Blocks by type and level.
    pub types: Vec<TypeBlocks>,
    /// Blocks by size.
    pub sizes: Vec<SizeBlocks>,
    /// Blocks that stand in their pointers.
    pub embedded: u64,
    /// Blocks that a redacted send stream left out.
    pub redacted: u64,
    /// Blocks in pieces (gangs).
    pub gangs: u64,
    /// References to shared blocks beyond the first (dedup, clones).
    pub shared: u64,
    /// Bytes that these would take.
    pub shared_bytes: u64,
    /// Blocks that wait to be freed; they are not examined.
    pub freeing: BlockTotals,
    /// Blocks that were reconstructed without missing or outdated devices.
    pub degraded: u64,
    /// Blocks with damage that redundancy makes up for.
    pub repairable: u64,
    /// Blocks that cannot be read any more.
    pub lost: u64,
    /// The devices.
    pub devices: Vec<DeviceReport>,
    /// Files and other objects with damage.
    pub damaged: Vec<ObjectDamage>,
    /// Damaged blocks beyond those that are named.
    pub unnamed: u64,
    /// Allocated bytes compared with referenced bytes; empty if the work was stopped.
    pub space: Vec<VdevSpaceReport>,
    /// Bytes that two blocks claim.
    pub doubly_claimed_bytes: u64,
    /// Where, the first thousand.
    pub double_claims: Vec<SpaceRange>,
    /// Addresses outside of the space.
    pub invalid_dvas: u64,
    /// Which, the first thousand.
    pub invalid_ranges: Vec<SpaceRange>,
    /// All else.
    pub notes: Vec<Note>,
}

/// The verification of a pool. Shared between the threads that do it.
#[derive(Clone)]
pub struct PoolVerifier {
    check: ::check::PoolCheck,
    pool: RescuePool,
}

impl PoolVerifier {
    /// Reads the roots of the walk. `job` gets the progress, in allocated bytes, and may cancel
    /// the work.
    pub fn new(pool: &RescuePool, job: Arc<Job>) -> Result<Self> {
        let check = ::check::PoolCheck::new(pool.spa(), job).map_err(|error| {
            Error::DamagedPool { pool: pool.name().to_owned(), why: error.to_string() }
        })?;
        Ok(Self { check, pool: pool.clone() })
    }

    /// Works until there is nothing left to do, or the job was cancelled.
    pub fn work(&self) {
        self.check.run_worker();
    }

    /// Whether, all threads having come back, there is another round of work.
    pub fn next_round(&self) -> bool {
        self.check.start_next_round()
    }

    /// The findings.
    pub fn findings(&self) -> Findings {
        let report = self.check.report(Some(self.pool.tree()), Duration::ZERO, 0);
        findings_from_report(report)
    }
}

fn block_totals(counts: &BlockCounts) -> BlockTotals {
    BlockTotals {
        blocks: counts.blocks,
        logical_bytes: counts.lsize,
        stored_bytes: counts.psize,
        allocated_bytes: counts.asize,
    }
}

fn findings_from_report(report: CheckReport) -> Findings {
    let types = report.types.iter().map(|each| TypeBlocks {
        kind: each.kind.to_string(),
        level: each.level.get(),
        blocks: block_totals(&each.counts),
    });
    let sizes = report
        .sizes
        .iter()
        .map(|each| SizeBlocks { up_to: each.max_psize, blocks: block_totals(&each.counts) });
    Findings {
        clean: report.is_clean(),
        guid: report.guid.get(),
        txg: report.txg.get(),
        complete: report.is_complete,
        datasets: report.objsets,
        datasets_done: report.objsets_done,
        examined_bytes: report.examined_bytes,
        total: block_totals(&report.total),
        types: types.collect(),
        sizes: sizes.collect(),
        embedded: report.embedded,
        redacted: report.redacted,
        gangs: report.gang_blocks,
        shared: report.extra_references,
        shared_bytes: report.extra_reference_bytes,
        freeing: block_totals(&report.pending_frees),
        degraded: report.degraded,
        repairable: report.repairable,
        lost: report.lost,
        devices: device_reports(&report),
        damaged: report.damaged.iter().map(|object| object_damage(object, &report)).collect(),
        unnamed: report.unlisted_damage,
        space: report.space.iter().map(vdev_space_report).collect(),
        doubly_claimed_bytes: report.double_claimed_bytes,
        double_claims: report.double_claims.iter().map(claimed_range).collect(),
        invalid_dvas: report.out_of_range_count,
        invalid_ranges: report.out_of_range.iter().map(claimed_range).collect(),
        notes: report
            .notes
            .iter()
            .map(|note| Note { is_fault: note.is_fault, what: note.message.clone() })
            .collect(),
        pool: report.pool,
    }
}

fn device_reports(report: &CheckReport) -> Vec<DeviceReport> {
    let device = |leaf: &::check::report::LeafReport| DeviceReport {
        path: leaf.path.clone(),
        guid: leaf.guid.get(),
        missing: leaf.is_missing,
        checksum_errors: leaf.checksum_errors,
        read_errors: leaf.read_errors,
        absent: leaf.missing_blocks,
        stale: leaf.stale_blocks,
    };
    report.leaves.iter().map(device).collect()
}

/// The lost parts of an object, as a line.
pub(crate) fn format_damage(object: &DamagedObject) -> String {
    let found = object_damage(object, &CheckReport::default());
    let mut text = found.display_name();
    for (at, range) in found.ranges.iter().enumerate() {
        let comma = if at == 0 { ':' } else { ',' };
        let _ = match (found.part, range.end) {
            ("rest", _) => write!(text, "{comma} attributes"),
            (_, u64::MAX) => write!(text, "{comma} all of it"),
            ("objects", end) => {
                write!(text, "{comma} objects {} to {}", range.start, end.minus_or_zero(1))
            }
            (_, end) => write!(text, "{comma} bytes {} to {}", range.start, end.minus_or_zero(1)),
        };
    }
    text
}

fn object_damage(object: &DamagedObject, report: &CheckReport) -> ObjectDamage {
    let path_of = |guid: &Guid| {
        let leaf = report.leaves.iter().find(|leaf| leaf.guid == *guid);
        leaf.map_or_else(|| guid.to_string(), |leaf| leaf.path.clone())
    };
    let range = |range: &::check::report::DamagedRange| DamagedRange {
        start: range.range.start,
        end: range.range.end,
        lost: range.is_lost,
        devices: range.leaves.iter().map(path_of).collect(),
        why: range.why.clone(),
    };
    let path = object.path.as_deref();
    let is_text = path.is_none_or(|path| std::str::from_utf8(path).is_ok());
    let hex = |path: &[u8]| path.iter().map(|byte| format!("{byte:02x}")).collect();
    ObjectDamage {
        dataset: object.dataset.clone(),
        object: object.object.get(),
        path: path.map(|path| String::from_utf8_lossy(path).into_owned()),
        path_hex: path.filter(|_| !is_text).map(hex),
        kind: object.kind.map(|kind| kind.to_string()),
        part: match object.part {
            DamagedPart::Content => "content",
            DamagedPart::ObjectTable => "objects",
            DamagedPart::Other => "rest",
        },
        ranges: object.ranges.iter().map(range).collect(),
    }
}

fn vdev_space_report(space: &SpaceReport) -> VdevSpaceReport {
    let vdev = space.vdev.get();
    let ranges = |ranges: &[Range<u64>]| {
        let range = |range: &Range<u64>| SpaceRange {
            vdev,
            start: range.start,
            end: range.end,
            claimed_by: None,
        };
        ranges.iter().map(range).collect()
    };
    VdevSpaceReport {
        vdev,
        allocated_bytes: space.allocated,
        referenced_bytes: space.referenced,
        leaked_bytes: space.leaked,
        leaks: ranges(&space.leaked_ranges),
        unallocated_bytes: space.unallocated,
        unallocated: ranges(&space.unallocated_ranges),
        contradicting_bytes: space.contradictions,
    }
}

fn claimed_range(double: &ClaimedRange) -> SpaceRange {
    SpaceRange {
        vdev: double.vdev.get(),
        start: double.range.start,
        end: double.range.end,
        claimed_by: Some(double.zbookmark.to_string()),
    }
}
