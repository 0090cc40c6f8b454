//! Why space could not be had, or given back.

use units::{MetaslabId, VdevId};

/// Why space could not be had, or given back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No metaslab has this much in one piece (a smaller piece may be available).
    #[error("no space for a block of {psize} bytes")]
    NoSpace {
        /// Bytes of the block.
        psize: u64,
    },
    /// Only a metaslab whose map was not read yet may have the space.
    #[error("metaslab {metaslab} of vdev {vdev} is not loaded")]
    NotLoaded {
        /// The vdev.
        vdev: VdevId,
        /// Its metaslab.
        metaslab: MetaslabId,
    },
    /// The map is older than reused space: it must be read again.
    #[error("the map of metaslab {metaslab} of vdev {vdev} was read too long ago")]
    StaleMap {
        /// The vdev.
        vdev: VdevId,
        /// Its metaslab.
        metaslab: MetaslabId,
    },
    /// The address does not exist.
    #[error("vdev {vdev} has no {length} bytes at {offset:x} in one metaslab")]
    InvalidRange {
        /// The vdev.
        vdev: VdevId,
        /// Bytes from the end of the front labels.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The range to free is at least partly free already (Corrupt).
    #[error("{length} bytes at {offset:x} of vdev {vdev} are freed, but are not allocated")]
    NotAllocated {
        /// The vdev.
        vdev: VdevId,
        /// Bytes from the end of the front labels.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The range to claim belongs at least partly to another block (Corrupt).
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
