//! The dictionary: every structure of the format, bytes to types; no I/O, no sums.
//!
//! Bytes become types here and nowhere else. A structure is read with a [`Reader`], a cursor that
//! knows its byte order and where it stands, so that every failure names the place. Above this
//! crate everything is in the machine's own order.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

pub mod acl;
pub mod blkptr;
pub mod dedup;
pub mod dnode;
pub mod dsl;
pub mod dva;
mod error;
pub mod feature;
pub mod gang;
pub mod history;
pub mod indirect;
pub mod l2arc;
pub mod label;
pub mod layout;
pub mod nvlist;
pub mod object_type;
pub mod objset;
mod reader;
pub mod rebuild;
pub mod sa;
pub mod scan;
pub mod spacemap;
pub mod stream;
pub mod swap;
pub mod uberblock;
pub mod version;
mod writer;
pub mod zap;
pub mod zil;
pub mod znode;

pub use blkptr::{Blkptr, Checksum, Compression};
pub use dva::Dva;
pub use error::Error;
pub use object_type::ObjectType;
pub use reader::{Order, Reader};

/// The result of parsing a structure.
pub type Result<T> = std::result::Result<T, Error>;
