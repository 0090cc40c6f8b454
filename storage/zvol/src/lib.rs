//! A dataset as a block device.
//!
//! A volume is one object of data (number 1) and one table (number 2) that says how large it is.
//! What its intent log still promises can be laid over it in memory ([`Volume::open`]). A
//! [`WritableVolume`] can be changed.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

mod error;
mod replay;
mod volume;
mod writable;

pub use error::Error;
pub use replay::ReplaySummary;
pub use volume::Volume;
pub use writable::{NewVolume, WritableVolume};

/// What asking a volume gives.
pub type Result<T> = std::result::Result<T, Error>;
