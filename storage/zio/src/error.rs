//! Why a block could not be given.

use ondisk::Dva;
use units::{ObjsetId, Zbookmark};

/// The error of one copy of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyError {
    /// The copy.
    pub dva: Dva,
    /// The vdev's own words: devices missing, read errors, or a checksum that never matched.
    pub why: vdev::Error,
}

/// Why a block could not be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No copy could be read and verified.
    #[error("{zbookmark}: {}", describe_faults(.faults))]
    Unreadable {
        /// The block.
        zbookmark: Zbookmark,
        /// Each copy's fault.
        faults: Vec<CopyError>,
    },
    /// A block that is stored outside the pool's drives is not there, damaged, or out of reach.
    #[error("{zbookmark}: {why}")]
    NotStored {
        /// The block.
        zbookmark: Zbookmark,
        /// Why it could not be had.
        why: String,
    },
    /// A redacted send stream left the block out.
    #[error("{zbookmark}: the block was redacted when this dataset was sent")]
    Redacted {
        /// The block.
        zbookmark: Zbookmark,
    },
    /// The dataset is encrypted and no key was given.
    #[error("{zbookmark}: the block is encrypted and no key is loaded")]
    KeyNotLoaded {
        /// The block.
        zbookmark: Zbookmark,
    },
    /// The checksum is right, but the bytes are not a valid block of the format.
    #[error("{zbookmark}: {why}")]
    Corrupt {
        /// The block.
        zbookmark: Zbookmark,
        /// The rule that they break.
        why: ondisk::Error,
    },
    /// The stored bytes could not be turned into the block: corrupt, forged, or unsupported.
    #[error("{zbookmark}: {why}")]
    Transform {
        /// The block.
        zbookmark: Zbookmark,
        /// The failed operation.
        why: transform::Error,
    },
    /// The block's class has no space for it, not even as a gang block.
    #[error("{zbookmark}: no space for {psize} bytes")]
    NoSpace {
        /// The block.
        zbookmark: Zbookmark,
        /// Bytes to be stored.
        psize: u64,
    },
    /// Space could not be found or given back for another reason.
    #[error("{zbookmark}: {why}")]
    Allocator {
        /// The block.
        zbookmark: Zbookmark,
        /// The allocator's own words.
        why: metaslab::Error,
    },
    /// A copy could not be written with enough redundancy (Unavailable).
    #[error("{zbookmark}: the copy at {dva} could not be written: {why}")]
    WriteFailed {
        /// The block.
        zbookmark: Zbookmark,
        /// The copy.
        dva: Dva,
        /// The vdev's own words.
        why: vdev::Error,
    },
    /// Writes may not survive a power cut (Unavailable).
    #[error("the drives could not be flushed: {why}")]
    NotFlushed {
        /// The vdev's own words.
        why: vdev::Error,
    },
}

impl Error {
    /// Whether the block's content, or even its existence, is unknown as long as
    /// devices are missing or failing.
    pub fn is_unavailable(&self) -> bool {
        let away = |fault: &CopyError| {
            matches!(fault.why, vdev::Error::Unavailable { .. } | vdev::Error::NoVdev(_))
        };
        matches!(self, Self::Unreadable { faults, .. } if faults.iter().any(away))
    }

    /// The block.
    pub const fn zbookmark(&self) -> Zbookmark {
        match self {
            Self::Unreadable { zbookmark: place, .. }
            | Self::NotStored { zbookmark: place, .. }
            | Self::Redacted { zbookmark: place }
            | Self::KeyNotLoaded { zbookmark: place }
            | Self::Corrupt { zbookmark: place, .. }
            | Self::Transform { zbookmark: place, .. }
            | Self::NoSpace { zbookmark: place, .. }
            | Self::Allocator { zbookmark: place, .. }
            | Self::WriteFailed { zbookmark: place, .. } => *place,
            Self::NotFlushed { .. } => Zbookmark::root(ObjsetId::MOS),
        }
    }
}

fn describe_faults(faults: &[CopyError]) -> String {
    if faults.is_empty() {
        return "its pointer has no address".to_owned();
    }
    let each: Vec<String> =
        faults.iter().map(|fault| format!("copy at {}: {}", fault.dva, fault.why)).collect();
    each.join("; ")
}
