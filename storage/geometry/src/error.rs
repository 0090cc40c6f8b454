//! Errors in an array's description or in a block's address.

use thiserror::Error;

/// A rule that an array's description or a block's address breaks. The description comes from a
/// disk, or from the user of the planner. Missing drives are not errors here.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// No raidz has this many children and parities.
    #[error("{children} drives with {parity} parity cannot form a raidz")]
    RaidzShape {
        /// drives in the array
        children: u32,
        /// parity columns of each row
        parity: u32,
    },
    /// More expansions than drives that could have been added.
    #[error("{children} drives with {parity} parity cannot have grown {expansions} times")]
    ExpansionCount {
        /// drives in the array now
        children: u32,
        /// parity columns of each row
        parity: u32,
        /// finished expansions, and the running one
        expansions: usize,
    },
    /// No dRAID has this shape.
    #[error(
        "{children} drives do not make a dRAID of {data} data, {parity} parity, {spares} spares \
         in {groups} groups"
    )]
    DraidShape {
        /// drives in the array
        children: u32,
        /// data columns of each row
        data: u32,
        /// parity columns of each row
        parity: u32,
        /// distributed spares
        spares: u32,
        /// groups of one permutation
        groups: u32,
    },
    /// A block that begins between the places where blocks may begin.
    #[error("a block at offset {offset} does not begin at a multiple of {unit}")]
    Unaligned {
        /// the block's offset on the top-level vdev, bytes
        offset: u64,
        /// the unit in bytes that it should be a multiple of
        unit: u64,
    },
    /// A block of no bytes, or of more than a block may have.
    #[error("no block has {size} bytes")]
    Size {
        /// the block's physical size, bytes
        size: usize,
    },
    /// An address that no drive can have.
    #[error("a block at offset {offset} lies beyond any drive")]
    OffsetTooLarge {
        /// the block's offset on the top-level vdev, bytes
        offset: u64,
    },
}
