//! The engine's API: plain functions, plain data, sentences for errors.
//!
//! [`search`] looks for pools at paths; a [`Search`] describes the found pools ([`summary`]) and
//! opens a [`RescuePool`], which lists its datasets ([`dataset`]) and takes keys ([`keys`]). Every
//! [`Error`] is a sentence for a user, with an exit status for programs. [`inspect`] shows
//! the structures on disk.
#![forbid(unsafe_code)]

pub mod backup;
mod cachefile;
pub mod check;
pub mod dataset;
pub mod error;
pub mod event;
pub mod files;
mod hex;
pub mod inspect;
pub mod keys;
mod labelclear;
mod owner_properties;
pub mod pool;
mod rescue;
mod search;
pub mod stream;
pub mod summary;

pub use cachefile::{
    CachedPool, CachefileEntry, check_cachefile, read_cachefile, update_cachefile,
};
pub use error::Error;
pub use event::Event;
pub use hex::hex;
pub use keys::{EncryptionRoot, KeyState};
pub use labelclear::clear_labels;
pub use rescue::{ImportPoint, OpenOptions, RescuePool};
pub use search::{Search, search, search_deep, search_devices};

/// The result of an operation of the engine.
pub type Result<T> = std::result::Result<T, Error>;
