//! Name to value tables kept in an object.
//!
//! A lookup by name reads only the leaf of the name's hash. A listing reads leaf by leaf in the
//! order of the hashes; a [`ZapCursor`] marks where it continues.
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

/// The result of an operation on a table.
pub type Result<T> = std::result::Result<T, Error>;
