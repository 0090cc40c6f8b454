//! Datasets: file systems, volumes, snapshots, clones, properties.
//!
//! A [`DatasetTree`] is the pool's tree of directories, read once. A [`Dataset`] is a file system,
//! a volume, a snapshot, or a bookmark. A dataset has properties ([`Dataset::properties`]), its
//! space by owner ([`Dataset::space_by_owner`]) and keys ([`DatasetTree::load_key`]).
//! [`block_lists`] walks the blocks that wait to be freed.
//!
//! ```text
//! MOS object 1 -> root directory -> child directories
//!                 directory -> head dataset -> previous snapshot -> ... (newest to oldest)
//!                                           -> snapshot names, bookmarks
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

pub mod block_lists;
mod dataset;
mod delegation;
mod dir;
mod error;
mod keys;
mod local_properties;
mod owners;
pub mod property;
mod raw_key;
mod resume;
mod tree;
pub mod write;

pub use dataset::{Dataset, DatasetKind, Hold};
pub use delegation::{DelegationTarget, DelegationUser, Delegations, is_permitted};
pub use dir::Dir;
pub use error::Error;
pub use keys::{KeyFormat, KeyInfo, KeyStatus, Keyring, Pbkdf2Params};
pub use local_properties::PropertyValue;
pub use owners::{OwnerKind, OwnerUsage, SpaceByOwner};
pub use property::{Property, PropertySource};
pub use raw_key::{IvsetGuids, UserKeyForm, raw_keydata, wrapped_key_of};
pub use resume::ResumeToken;
pub use tree::{DatasetTree, PoolInfo};

/// The result of an operation on a dataset.
pub type Result<T> = std::result::Result<T, Error>;
