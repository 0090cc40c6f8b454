//! The place of a block's columns on an array, and an array's capacity; pure arithmetic.
//!
//! ```text
//! map       the common result: rows of columns, and the bytes of the block in each column
//! stripe    the sectors of data, parity and padding of a block
//! raidz     their places on raidz1 to 3
//! expand    the same on a raidz that was expanded, or is being expanded
//! draid     the same on dRAID, and the child of a distributed spare
//! layout    any of these, or a mirror or a single drive: allocated size, deflate ratio
//! capacity  the capacity of a vdev and of a pool of given drives
//! ```
//!
//! Offsets on a top-level vdev and on its children do not count the labels and the boot area that
//! each drive begins with ([`LABEL_START`]); only [`Column::device_offset`] does.
#![forbid(unsafe_code)]

pub mod capacity;
pub mod draid;
mod error;
pub mod expand;
mod layout;
mod map;
pub mod raidz;
mod stripe;

pub use draid::Draid;
pub use error::Error;
pub use expand::{Expandable, Reflow, ReflowPosition};
pub use layout::Layout;
pub use map::{Block, Column, Map, Row, Shadow};
pub use raidz::Raidz;

/// Bytes at the start of every drive that hold labels and the boot area, not data.
pub const LABEL_START: u64 = 4 << 20;
/// Bytes at the end of every drive that hold labels.
pub const LABEL_END: u64 = 512 << 10;
/// Bytes of the boot area, the last part of [`LABEL_START`]; an expansion's scratch space.
pub const BOOT_SIZE: u64 = 7 << 19;
/// The largest block there is, in bytes.
pub const MAX_BLOCK: usize = 16 << 20;

#[cfg(test)]
mod tests;
