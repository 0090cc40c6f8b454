//! The record of a sequential rebuild of a top-level vdev.
//!
//! A value of 64-bit integers in the ZAP of the top-level vdev, under `org.openzfs:vdev_rebuild`
//! (`vdev_rebuild_phys_t`):
//!
//! ```text
//! offset  size  field          meaning
//!      0     8  state          1 active, 2 canceled, 3 complete
//!      8     8  last_offset    all before this byte of the vdev is rebuilt
//!     16     8  min_txg        the first txg that leaves of the vdev missed
//!     24     8  max_txg        the last one
//!     32     8  start_time     seconds since 1970
//!     40     8  end_time       seconds since 1970
//!     48     8  scan_time      milliseconds that it has run
//!     56     8  bytes_scanned  allocated bytes that the rebuild came by
//!     64     8  bytes_issued   bytes of those that were read
//!     72     8  bytes_rebuilt  bytes written to leaves
//!     80     8  bytes_est      allocated bytes of the vdev
//!     88     8  errors         ranges that could not be rebuilt
//!     96
//! ```
//!
//! Learnt from: `vdev_rebuild.h` of OpenZFS 2.3.2. Proved by: the engine's `tests/it/rebuild.rs`, and `zdb`.

use units::Txg;

use crate::{Error, Result};

/// The entry of the record in the ZAP of a top-level vdev.
pub const REBUILD_ENTRY: &str = "org.openzfs:vdev_rebuild";

const STRUCTURE: &str = "rebuild record";

/// Whether a rebuild goes on (`vdev_rebuild_state_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RebuildPhase {
    /// There was none.
    #[default]
    None,
    /// It goes on.
    Active,
    /// It was stopped before its end.
    Canceled,
    /// It reached its end.
    Complete,
}

impl RebuildPhase {
    const ALL: [Self; 4] = [Self::None, Self::Active, Self::Canceled, Self::Complete];

    const fn number(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Active => 1,
            Self::Canceled => 2,
            Self::Complete => 3,
        }
    }
}

/// The record of a sequential rebuild.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RebuildPhys {
    /// Whether it goes on.
    pub phase: RebuildPhase,
    /// All before this byte of the vdev is rebuilt.
    pub last_offset: u64,
    /// The first txg that leaves of the vdev missed.
    pub min_txg: Txg,
    /// The last one.
    pub max_txg: Txg,
    /// When it began, seconds since 1970.
    pub start_time: u64,
    /// When it ended, seconds since 1970.
    pub end_time: u64,
    /// Milliseconds that it has run.
    pub scan_time: u64,
    /// Allocated bytes that it came by.
    pub bytes_scanned: u64,
    /// Bytes of those that were read.
    pub bytes_issued: u64,
    /// Bytes written to leaves.
    pub bytes_rebuilt: u64,
    /// Allocated bytes of the vdev.
    pub bytes_est: u64,
    /// Ranges that could not be rebuilt.
    pub errors: u64,
}

impl RebuildPhys {
    /// Integers in the entry.
    pub const WORDS: usize = 12;

    /// From the integers of the entry.
    ///
    /// # Errors
    /// If there are not 12, or the state is not known.
    pub fn from_words(words: &[u64]) -> Result<Self> {
        let words: &[u64; Self::WORDS] = words.try_into().map_err(|_| {
            let found = u64::try_from(words.len()).unwrap_or(u64::MAX);
            Error::Unknown { structure: STRUCTURE, field: "number of integers", found }
        })?;
        let [state, last_offset, min_txg, max_txg, start_time, end_time, rest @ ..] = *words;
        let [scan_time, bytes_scanned, bytes_issued, bytes_rebuilt, bytes_est, errors] = rest;
        let phase = usize::try_from(state).ok().and_then(|at| RebuildPhase::ALL.get(at).copied());
        let unknown = Error::Unknown { structure: STRUCTURE, field: "state", found: state };
        Ok(Self {
            phase: phase.ok_or(unknown)?,
            last_offset,
            min_txg: Txg::new(min_txg),
            max_txg: Txg::new(max_txg),
            start_time,
            end_time,
            scan_time,
            bytes_scanned,
            bytes_issued,
            bytes_rebuilt,
            bytes_est,
            errors,
        })
    }

    /// The integers of the entry.
    pub const fn to_words(&self) -> [u64; Self::WORDS] {
        [
            self.phase.number(),
            self.last_offset,
            self.min_txg.get(),
            self.max_txg.get(),
            self.start_time,
            self.end_time,
            self.scan_time,
            self.bytes_scanned,
            self.bytes_issued,
            self.bytes_rebuilt,
            self.bytes_est,
            self.errors,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::RebuildPhys;

    proptest::proptest! {
        #[test]
        fn records_survive_a_round_trip(mut words: [u64; 12]) {
            words[0] %= 4;
            proptest::prop_assert_eq!(RebuildPhys::from_words(&words).unwrap().to_words(), words);
        }

        #[test]
        fn any_words(words: Vec<u64>) {
            let _ = RebuildPhys::from_words(&words);
        }
    }

    #[test]
    fn unknown_states_and_lengths_are_refused() {
        assert!(RebuildPhys::from_words(&[1; 11]).is_err());
        assert!(RebuildPhys::from_words(&[4; 12]).is_err());
    }
}
