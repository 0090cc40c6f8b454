//! Why a block could not be given.

use ondisk::Dva;
use units::{ObjsetId, Place};

/// What was wrong with one copy of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFault {
    /// The copy.
    pub dva: Dva,
    /// The vdev's own words: devices missing, read errors, or a checksum that never matched.
    pub why: vdev::Error,
}

/// Why a block could not be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No copy could be read and verified.
    #[error("{place}: {}", describe(.faults))]
    Unreadable {
        /// Where the block belongs.
        place: Place,
        /// Each copy's fault.
        faults: Vec<CopyFault>,
    },
    /// A redacted send stream left the block out.
    #[error("{place}: the block was redacted when this dataset was sent")]
    Redacted {
        /// Where the block belongs.
        place: Place,
    },
    /// The dataset is encrypted and no key was given.
    #[error("{place}: the block is encrypted and no key is loaded")]
    Locked {
        /// Where the block belongs.
        place: Place,
    },
    /// The bytes are what was written (their checksum fits), but no block of the format.
    #[error("{place}: {why}")]
    Corrupt {
        /// Where the block belongs.
        place: Place,
        /// The rule that they break.
        why: ondisk::Error,
    },
    /// The stored bytes could not be turned into the block: corrupt, forged, or unsupported.
    #[error("{place}: {why}")]
    Transform {
        /// Where the block belongs.
        place: Place,
        /// What failed.
        why: transform::Error,
    },
    /// The drives that a block is meant for have no room for it, not even in pieces.
    #[error("{place}: no space for {psize} bytes")]
    NoSpace {
        /// Where the block belongs.
        place: Place,
        /// Bytes to be stored.
        psize: u64,
    },
    /// Space could not be found or given back for another reason.
    #[error("{place}: {why}")]
    Space {
        /// Where the block belongs.
        place: Place,
        /// The allocator's own words.
        why: metaslab::Error,
    },
    /// A copy could not be written with enough redundancy (Unavailable).
    #[error("{place}: the copy at {dva} could not be written: {why}")]
    Unwritten {
        /// Where the block belongs.
        place: Place,
        /// The copy.
        dva: Dva,
        /// The vdev's own words.
        why: vdev::Error,
    },
    /// What was written may not outlast a power cut (Unavailable).
    #[error("the drives could not be told to keep what was written: {why}")]
    NotFlushed {
        /// The vdev's own words.
        why: vdev::Error,
    },
}

impl Error {
    /// Whether nobody can know what the block holds, or whether it was ever written, as long as
    /// devices are missing or failing.
    pub fn is_out_of_reach(&self) -> bool {
        let away = |fault: &CopyFault| {
            matches!(fault.why, vdev::Error::Unavailable { .. } | vdev::Error::NoVdev(_))
        };
        matches!(self, Self::Unreadable { faults, .. } if faults.iter().any(away))
    }

    /// Where the block belongs.
    pub const fn place(&self) -> Place {
        match self {
            Self::Unreadable { place, .. }
            | Self::Redacted { place }
            | Self::Locked { place }
            | Self::Corrupt { place, .. }
            | Self::Transform { place, .. }
            | Self::NoSpace { place, .. }
            | Self::Space { place, .. }
            | Self::Unwritten { place, .. } => *place,
            Self::NotFlushed { .. } => Place::root(ObjsetId::MOS),
        }
    }
}

fn describe(faults: &[CopyFault]) -> String {
    if faults.is_empty() {
        return "its pointer has no address".to_owned();
    }
    let each: Vec<String> =
        faults.iter().map(|fault| format!("copy at {}: {}", fault.dva, fault.why)).collect();
    each.join("; ")
}
