//! Why space could not be had, or given back.

use units::{MetaslabId, VdevId};

/// Why space could not be had, or given back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No metaslab has so much in one piece (a smaller piece may be had).
    #[error("no space for a block of {psize} bytes")]
    NoSpace {
        /// Bytes of the block.
        psize: u64,
    },
    /// Only a metaslab whose map was not read yet may have room.
    #[error("metaslab {metaslab} of vdev {vdev} is not loaded")]
    NotLoaded {
        /// The vdev.
        vdev: VdevId,
        /// Its metaslab.
        metaslab: MetaslabId,
    },
    /// The map that was read is older than what was reused since: it must be read again.
    #[error("the map of metaslab {metaslab} of vdev {vdev} was read too long ago")]
    StaleMap {
        /// The vdev.
        vdev: VdevId,
        /// Its metaslab.
        metaslab: MetaslabId,
    },
    /// There is no such place.
    #[error("vdev {vdev} has no {length} bytes at {offset:x} in one metaslab")]
    InvalidRange {
        /// The vdev.
        vdev: VdevId,
        /// Bytes from the end of the front labels.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// What is to be freed is free, in part at least (Corrupt).
    #[error("{length} bytes at {offset:x} of vdev {vdev} are freed, but are not allocated")]
    NotAllocated {
        /// The vdev.
        vdev: VdevId,
        /// Bytes from the end of the front labels.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// What is to be claimed belongs to another block, in part at least (Corrupt).
    #[error("{length} bytes at {offset:x} of vdev {vdev} are claimed, but are not free")]
    NotFree {
        /// The vdev.
        vdev: VdevId,
        /// Bytes from the end of the front labels.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}
