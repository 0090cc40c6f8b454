//! The records of scans: how far a scrub or a resilver has come, and how far an error scrub has.
//!
//! Both are entries of the pool's directory, whose values are 64-bit integers. The entry `scan`
//! (`dsl_scan_phys_t`):
//!
//! ```text
//! offset  size  field          meaning
//!      0     8  function       1 scrub, 2 resilver
//!      8     8  state          1 scanning, 2 finished, 3 canceled
//!     16     8  queue_obj      ZAP of datasets to visit: number in hexadecimal → first txg, exclusive
//!     24     8  min_txg        blocks born after it are scanned
//!     32     8  max_txg        blocks born up to it are scanned: the txg in which the scan began
//!     40     8  cur_min_txg    the same two for the dataset of the bookmark
//!     48     8  cur_max_txg
//!     56     8  start_time     seconds since 1970
//!     64     8  end_time       seconds since 1970
//!     72     8  to_examine     bytes allocated in the pool when the scan began
//!     80     8  examined       bytes of the blocks visited, all copies and parity
//!     88     8  skipped        bytes of visited blocks that needed no I/O
//!     96     8  processed      bytes repaired or resilvered
//!    104     8  errors         blocks that could not be repaired
//!    112     8  ddt_class_max  the last class of the dedup tables that is scanned first
//!    120    32  ddt_bookmark   class, type, checksum, cursor in the dedup tables
//!    152    32  bookmark       objset, object, level, block: all before it is scanned
//!    184     8  flags          bit 0 visit the dataset again, bit 1 paused
//!    192
//! ```
//!
//! The bookmark 0:0:0:0 is the start, in the MOS. Its objset is −1 if its dataset was destroyed or no
//! dataset is left. The entry `error_scrub` (`dsl_errorscrub_phys_t`):
//!
//! ```text
//! offset  size  field       meaning
//!      0     8  function    3 error scrub
//!      8     8  state       2 finished, 3 canceled, 4 scrubbing
//!     16     8  cursor      of the ZAP of the error log
//!     24     8  start_time  seconds since 1970
//!     32     8  end_time    seconds since 1970
//!     40     8  to_examine  blocks in the error log when it began
//!     48     8  examined    blocks read
//!     56     8  errors      blocks that are still damaged
//!     64     8  paused      1 paused
//!     72
//! ```
//!
//! Learnt from: `dsl_scan.h` of OpenZFS 2.3.2. Proved by: the engine's `tests/it/scan_state.rs`, where zdb
//! reads the records.

use units::{BlockId, Level, ObjectId, ObjsetId, Txg, Zbookmark};

use crate::{Error, Result};

/// The entry of the scan in the pool's directory.
pub const SCAN_ENTRY: &str = "scan";
/// The entry of the error scrub in the pool's directory.
pub const ERROR_SCRUB_ENTRY: &str = "error_scrub";
/// The entry of the pool's directory with the txg up to which the last finished scrub went.
pub const LAST_SCRUBBED_TXG_ENTRY: &str = "last_scrubbed_txg";

/// The objset of a bookmark whose dataset is gone, or behind the last dataset.
pub const DESTROYED_OBJSET: ObjsetId = ObjsetId::new(u64::MAX);

/// The purpose of a scan (`pool_scan_func_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ScanFunction {
    /// There was none.
    #[default]
    None,
    /// Everything is read and verified.
    Scrub,
    /// Leaves get what they missed.
    Resilver,
    /// Blocks of the error log are read.
    ErrorScrub,
}

impl ScanFunction {
    const ALL: [Self; 4] = [Self::None, Self::Scrub, Self::Resilver, Self::ErrorScrub];
}

/// Whether a scan goes on (`dsl_scan_state_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ScanPhase {
    /// There was none.
    #[default]
    None,
    /// It goes on, or is paused.
    Scanning,
    /// It reached its end.
    Finished,
    /// It was stopped before its end.
    Canceled,
    /// An error scrub goes on, or is paused.
    ErrorScrubbing,
}

impl ScanPhase {
    const ALL: [Self; 5] =
        [Self::None, Self::Scanning, Self::Finished, Self::Canceled, Self::ErrorScrubbing];
}

/// The number of an enumeration's value on disk.
fn number<T: PartialEq>(all: &[T], value: &T) -> u64 {
    (0_u64..).zip(all).find_map(|(number, known)| (known == value).then_some(number)).unwrap_or(0)
}

fn from_number<T: Copy>(all: &[T], field: &'static str, number: u64) -> Result<T> {
    let found = usize::try_from(number).ok().and_then(|at| all.get(at));
    found.copied().ok_or(Error::Unknown { structure: STRUCTURE, field, found: number })
}

const STRUCTURE: &str = "scan record";

/// The record of a scrub or resilver.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ScanPhys {
    /// The purpose of the scan.
    pub function: ScanFunction,
    /// Whether it goes on.
    pub phase: ScanPhase,
    /// The ZAP of datasets to visit; 0: none.
    pub queue: ObjectId,
    /// Blocks born after it are scanned.
    pub min_txg: Txg,
    /// Blocks born up to it are scanned.
    pub max_txg: Txg,
    /// The same two for the dataset of the bookmark.
    pub cur_min_txg: Txg,
    /// The last txg for the dataset of the bookmark.
    pub cur_max_txg: Txg,
    /// When it began, seconds since 1970.
    pub start_time: u64,
    /// When it ended, seconds since 1970.
    pub end_time: u64,
    /// Bytes allocated when it began.
    pub to_examine: u64,
    /// Bytes of the blocks visited, all copies and parity.
    pub examined: u64,
    /// Bytes of visited blocks that needed no I/O.
    pub skipped: u64,
    /// Bytes repaired or resilvered.
    pub processed: u64,
    /// Blocks that could not be repaired.
    pub errors: u64,
    /// The last class of the dedup tables that is scanned before the datasets.
    pub ddt_class_max: u64,
    /// Class, type, checksum and cursor in the dedup tables.
    pub ddt_bookmark: [u64; 4],
    /// All before it is scanned.
    pub bookmark: Zbookmark,
    /// [`ScanPhys::VISIT_AGAIN`] and [`ScanPhys::PAUSED`].
    pub flags: u64,
}

impl ScanPhys {
    /// Integers in the entry.
    pub const WORDS: usize = 24;
    /// A flag: after this pass the dataset is visited again, for blocks born after `cur_max_txg`.
    pub const VISIT_AGAIN: u64 = 1;
    /// A flag: the scrub is paused.
    pub const PAUSED: u64 = 1 << 1;

    /// From the integers of the entry.
    ///
    /// # Errors
    /// If there are not 24, or the function or state is not known.
    pub fn from_words(words: &[u64]) -> Result<Self> {
        let words: &[u64; Self::WORDS] = words.try_into().map_err(|_| wrong_length(words))?;
        let [function, phase, queue, min, max, cur_min, cur_max, start, end, rest @ ..] = *words;
        let [to_examine, examined, skipped, processed, errors, class_max, rest @ ..] = rest;
        let [class, kind, checksum, cursor, objset, object, level, block, flags] = rest;
        // levels are small; the marks below 0 of OpenZFS keep their low byte
        let level = Level::new(level.to_le_bytes()[0]);
        let (objset, object) = (ObjsetId::new(objset), ObjectId::new(object));
        Ok(Self {
            function: from_number(&ScanFunction::ALL, "function", function)?,
            phase: from_number(&ScanPhase::ALL, "state", phase)?,
            queue: ObjectId::new(queue),
            min_txg: Txg::new(min),
            max_txg: Txg::new(max),
            cur_min_txg: Txg::new(cur_min),
            cur_max_txg: Txg::new(cur_max),
            start_time: start,
            end_time: end,
            to_examine,
            examined,
            skipped,
            processed,
            errors,
            ddt_class_max: class_max,
            ddt_bookmark: [class, kind, checksum, cursor],
            bookmark: Zbookmark::new(objset, object, level, BlockId::new(block)),
            flags,
        })
    }

    /// The integers of the entry.
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        let [class, kind, checksum, cursor] = self.ddt_bookmark;
        [
            number(&ScanFunction::ALL, &self.function),
            number(&ScanPhase::ALL, &self.phase),
            self.queue.get(),
            self.min_txg.get(),
            self.max_txg.get(),
            self.cur_min_txg.get(),
            self.cur_max_txg.get(),
            self.start_time,
            self.end_time,
            self.to_examine,
            self.examined,
            self.skipped,
            self.processed,
            self.errors,
            self.ddt_class_max,
            class,
            kind,
            checksum,
            cursor,
            self.bookmark.objset.get(),
            self.bookmark.object.get(),
            u64::from(self.bookmark.level.get()),
            self.bookmark.block.get(),
            self.flags,
        ]
    }

    /// Whether the scan goes on, or is paused.
    pub fn is_running(&self) -> bool {
        self.phase == ScanPhase::Scanning
    }

    /// Whether the scan goes on, and is paused.
    pub fn is_paused(&self) -> bool {
        self.is_running() && self.flags & Self::PAUSED != 0
    }
}

/// The record of an error scrub.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ErrorScrubPhys {
    /// [`ScanFunction::ErrorScrub`], if there was one.
    pub function: ScanFunction,
    /// Whether it goes on.
    pub phase: ScanPhase,
    /// Where it is in the ZAP of the error log.
    pub cursor: u64,
    /// When it began, seconds since 1970.
    pub start_time: u64,
    /// When it ended, seconds since 1970.
    pub end_time: u64,
    /// Blocks in the error log when it began.
    pub to_examine: u64,
    /// Blocks read.
    pub examined: u64,
    /// Blocks that are still damaged.
    pub errors: u64,
    /// Whether it is paused: 1.
    pub paused: u64,
}

impl ErrorScrubPhys {
    /// Integers in the entry.
    pub const WORDS: usize = 9;

    /// From the integers of the entry.
    ///
    /// # Errors
    /// If there are not 9, or the function or state is not known.
    pub fn from_words(words: &[u64]) -> Result<Self> {
        let words: &[u64; Self::WORDS] = words.try_into().map_err(|_| wrong_length(words))?;
        let [function, phase, cursor, start_time, end_time, rest @ ..] = *words;
        let [to_examine, examined, errors, paused] = rest;
        Ok(Self {
            function: from_number(&ScanFunction::ALL, "function", function)?,
            phase: from_number(&ScanPhase::ALL, "state", phase)?,
            cursor,
            start_time,
            end_time,
            to_examine,
            examined,
            errors,
            paused,
        })
    }

    /// The integers of the entry.
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        [
            number(&ScanFunction::ALL, &self.function),
            number(&ScanPhase::ALL, &self.phase),
            self.cursor,
            self.start_time,
            self.end_time,
            self.to_examine,
            self.examined,
            self.errors,
            self.paused,
        ]
    }

    /// Whether the error scrub goes on, or is paused.
    pub fn is_running(&self) -> bool {
        self.phase == ScanPhase::ErrorScrubbing
    }
}

fn wrong_length(words: &[u64]) -> Error {
    let found = u64::try_from(words.len()).unwrap_or(u64::MAX);
    Error::Unknown { structure: STRUCTURE, field: "number of integers", found }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn records_survive_a_round_trip(mut words: [u64; 24], mut errors: [u64; 9]) {
            (words[0], words[1], words[21]) = (words[0] % 4, words[1] % 5, words[21] % 256);
            (errors[0], errors[1]) = (errors[0] % 4, errors[1] % 5);
            proptest::prop_assert_eq!(ScanPhys::from_words(&words).unwrap().to_words(), words);
            let error_scrub = ErrorScrubPhys::from_words(&errors).unwrap();
            proptest::prop_assert_eq!(error_scrub.to_words(), errors);
        }

        #[test]
        fn any_words(words: Vec<u64>) {
            let _ = ScanPhys::from_words(&words);
            let _ = ErrorScrubPhys::from_words(&words);
        }
    }

    #[test]
    fn unknown_states_and_lengths_are_refused() {
        assert!(ScanPhys::from_words(&[1; 23]).is_err());
        assert!(ScanPhys::from_words(&[9; 24]).is_err());
        assert!(ErrorScrubPhys::from_words(&[3; 10]).is_err());
    }
}
