//! A dataset as a block device.
//!
//! A volume is one object of data (number 1) and one table (number 2) that has its size.
//! Unreplayed records of its intent log can be applied in memory ([`Volume::open`]). A
//! [`WritableVolume`] can be changed.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

mod clone;
mod error;
mod replay;
mod volume;
mod writable;

pub use clone::CloneSource;
pub use error::Error;
pub use replay::ReplaySummary;
pub use volume::Volume;
pub use writable::{NewVolume, WritableVolume};

/// The result of an operation on a volume.
pub type Result<T> = std::result::Result<T, Error>;
