//! Name to value tables kept in an object.
//!
//! A [`Zap`] is looked up by name, reading only the leaf that the name's hash leads to, or listed
//! leaf by leaf in the order of the hashes; a [`ZapCursor`] says where to go on.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

mod cursor;
mod entries;
mod error;
mod fat_table;
mod micro;
mod normalize;
mod scan;
mod unicode_5;
mod value;
mod write;
mod zap;

pub use cursor::ZapCursor;
pub use entries::ZapEntries;
pub use error::Error;
pub use normalize::normalize;
pub use ondisk::zap::Normalization;
pub use value::{ZapEntry, ZapValue};
pub use write::NewZap;
pub use zap::{Matching, Zap};

/// What asking a table gives.
pub type Result<T> = std::result::Result<T, Error>;
