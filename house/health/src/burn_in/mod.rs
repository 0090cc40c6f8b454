//! Burn-in of a new drive: a seeded pattern is written over all of it, read back and compared.
//!
//! ```text
//! write pass   position 0 ... length    each sector gets its own pattern (see pattern)
//! flush
//! read pass    position 0 ... length    past the page cache; each sector is compared
//! ```
//!
//! All is written before anything is read. So a drive that holds less than it states is found, and no cache
//! of the drive answers in place of the medium. The progress is a [`BurnIn`], which the caller saves after each
//! flush; a burn-in that was interrupted continues from there with the same seed. The last bytes of a drive whose size
//! is no multiple of 4 KiB stay untouched.

mod pass;
mod pattern;
mod target;
mod verdict;

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

pub use target::{BurnInTarget, DirectDrive};
pub use verdict::BurnInVerdict;

use crate::{Counter, Grade};
use pass::Buffer;

/// The bytes of a request.
const CHUNK: u64 = 4 << 20;
/// The unit of sizes and offsets, in bytes: drives with sectors of 4 KiB take no smaller ones past the cache.
const ALIGNMENT: u64 = 4096;
/// The regions of a quick burn-in, and the bytes of each.
const QUICK_REGIONS: u64 = 64;
const QUICK_REGION: u64 = 16 << 20;
/// The parts of the drive's length whose speeds are measured apart.
const ZONES: u64 = 20;
/// The bytes between two flushes of the write pass, and between two saved positions.
const FLUSH_INTERVAL: u64 = 1 << 30;
/// After this many failed requests or damaged chunks the burn-in ends: the verdict is clear.
const MAX_FAULTS: u64 = 32;

/// The pass that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BurnInPhase {
    /// The pattern is written.
    #[default]
    Write,
    /// The pattern is read and compared.
    Read,
    /// Both passes ended.
    Done,
}

/// The speed of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassSpeed {
    /// Bytes that were transferred.
    pub bytes: u64,
    /// Nanoseconds that the requests took, added up.
    pub nanoseconds: u64,
    /// Nanoseconds of the slowest request of 4 MiB.
    pub slowest: u64,
    /// Bytes and nanoseconds of each twentieth of the drive's length, from its beginning.
    pub zones: Vec<(u64, u64)>,
}

/// A fault that the burn-in found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The byte where it begins.
    pub offset: u64,
    /// Its bytes, from the first damaged sector to the end of the last.
    pub length: u64,
    /// Its kind.
    #[serde(flatten)]
    pub kind: FaultKind,
}

/// The kind of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum FaultKind {
    /// The drive reported an error.
    Failed {
        /// "write", "read" or "flush".
        request: String,
        /// The system's reason.
        why: String,
    },
    /// A sector has the data that were written to another place.
    Misplaced {
        /// The byte where they were written.
        written_at: u64,
    },
    /// A sector has none of the pattern: the write was lost.
    Lost,
    /// A sector has a part of its pattern.
    Damaged,
}

/// A burn-in: its plan, its progress and its results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BurnIn {
    /// The number from which the pattern is made.
    pub seed: u64,
    /// The size of the drive in bytes.
    pub size: u64,
    /// Whether only a sample of regions is tested.
    pub is_quick: bool,
    /// The pass that runs.
    pub phase: BurnInPhase,
    /// Bytes of this pass that are done.
    pub position: u64,
    /// The speed of the write pass.
    pub write: PassSpeed,
    /// The speed of the read pass.
    pub read: PassSpeed,
    /// The faults: the first ones of many.
    pub faults: Vec<Fault>,
    /// Requests that failed, and chunks whose data were wrong.
    pub fault_count: u64,
    /// The counters of the SMART report before the burn-in; empty: not known.
    pub counters_before: BTreeMap<Counter, u64>,
    /// The counters of the SMART report after the burn-in; empty: not known.
    pub counters_after: BTreeMap<Counter, u64>,
    /// The verdict on the SMART report after the burn-in.
    pub grade_after: Option<Grade>,
    /// The highest temperature at the two reports, in degrees Celsius.
    pub temperature: Option<i64>,
}

/// Why a burn-in cannot run or continue.
#[derive(Debug, thiserror::Error)]
pub enum BurnInError {
    /// The drive is too small.
    #[error("the drive has {size} bytes; a burn-in needs 4096 or more")]
    TooSmall {
        /// Its size in bytes.
        size: u64,
    },
    /// The drive cannot be opened.
    #[error("the drive cannot be opened: {why}")]
    Open {
        /// The system's reason.
        why: io::Error,
    },
    /// Something else wrote to the drive after the burn-in stopped.
    #[error(
        "byte {offset} of the drive no longer has the pattern of the burn-in. Another program wrote to the drive, or \
         the drive lost the data. Start a new burn-in, without --continue"
    )]
    Changed {
        /// Where the pattern is missing.
        offset: u64,
    },
}

/// How [`BurnIn::run`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurnInEnd {
    /// Both passes ended, or so many faults were found that the verdict is clear.
    Done,
    /// The observer stopped it. It can continue from its position.
    Stopped,
}

/// Follows a burn-in.
pub trait BurnInObserver {
    /// Sees the progress after each chunk. `Break` stops the burn-in.
    fn observe(&mut self, state: &BurnIn) -> ControlFlow<()>;

    /// Saves a state whose written bytes are flushed.
    fn save(&mut self, state: &BurnIn);
}

impl BurnIn {
    /// A burn-in of a drive of `size` bytes that has not begun. The seed is random, so that an old pattern on the drive
    /// is not taken for the new one.
    pub fn new(size: u64, seed: [u8; 8], is_quick: bool) -> Result<Self, BurnInError> {
        if size < ALIGNMENT {
            return Err(BurnInError::TooSmall { size });
        }
        let is_quick = is_quick && size > QUICK_REGIONS * QUICK_REGION;
        Ok(Self { seed: u64::from_le_bytes(seed), size, is_quick, ..Self::default() })
    }

    /// The bytes of one pass.
    pub fn pass_length(&self) -> u64 {
        if self.is_quick { QUICK_REGIONS * QUICK_REGION } else { self.size / ALIGNMENT * ALIGNMENT }
    }

    /// The bytes that both passes have done.
    pub fn bytes_done(&self) -> u64 {
        match self.phase {
            BurnInPhase::Write => self.position,
            BurnInPhase::Read => self.pass_length() + self.position,
            BurnInPhase::Done => 2 * self.pass_length(),
        }
    }

    /// Whether so many faults were found that the rest need not be tested.
    pub fn has_given_up(&self) -> bool {
        self.fault_count >= MAX_FAULTS
    }

    /// The offset on the drive of a position, and the bytes from there to the end of the request.
    fn chunk_at(&self, position: u64) -> (u64, u64) {
        let rest = self.pass_length() - position;
        if !self.is_quick {
            return (position, rest.min(CHUNK));
        }
        // the first region is at the beginning of the drive, the last one at its end
        let (region, within) = (position / QUICK_REGION, position % QUICK_REGION);
        let last = u128::from(self.size - QUICK_REGION);
        let start = last * u128::from(region) / u128::from(QUICK_REGIONS - 1);
        let start = units::narrow::<u64>(start) / ALIGNMENT * ALIGNMENT;
        (start + within, (QUICK_REGION - within).min(CHUNK))
    }

    /// Checks that the drive has the pattern as far as it was written, at three places. For a burn-in that continues:
    /// another drive may have come under the same name. At least one place must be free of known faults.
    pub fn check_unchanged(&self, target: &dyn BurnInTarget) -> Result<(), BurnInError> {
        let written =
            if self.phase == BurnInPhase::Write { self.position } else { self.pass_length() };
        let mut buffer = Buffer::new(CHUNK);
        let mut is_known = written == 0;
        for position in [0, written / 2 / CHUNK * CHUNK, written - written.min(CHUNK)] {
            let (offset, length) = self.chunk_at(position);
            let length = length.min(written - position);
            let overlaps = |fault: &Fault| {
                fault.offset < offset + length && offset < fault.offset + fault.length
            };
            if length == 0 || self.faults.iter().any(overlaps) {
                continue;
            }
            let bytes = buffer.bytes(length);
            let is_same = target.read_at(offset, bytes).is_ok()
                && pattern::compare(self.seed, offset, bytes).is_none();
            if !is_same {
                return Err(BurnInError::Changed { offset });
            }
            is_known = true;
        }
        if is_known { Ok(()) } else { Err(BurnInError::Changed { offset: 0 }) }
    }

    /// Runs both passes from the present position on.
    pub fn run(
        &mut self,
        target: &dyn BurnInTarget,
        observer: &mut dyn BurnInObserver,
    ) -> BurnInEnd {
        let mut buffer = Buffer::new(CHUNK);
        while self.phase != BurnInPhase::Done && !self.has_given_up() {
            if self.run_pass(target, observer, &mut buffer).is_break() {
                return BurnInEnd::Stopped;
            }
            self.phase = match self.phase {
                BurnInPhase::Write => BurnInPhase::Read,
                BurnInPhase::Read | BurnInPhase::Done => BurnInPhase::Done,
            };
            self.position = 0;
            observer.save(self);
        }
        self.phase = BurnInPhase::Done;
        BurnInEnd::Done
    }
}
