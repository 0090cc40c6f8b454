//! Files and directories on a dataset.
//!
//! [`Fs`] opens an object set that holds files; [`Node`] is one of them. Everything is read where
//! it is asked for: attributes from the bonus buffer, names from the directory's table, content
//! by range. What an intent log still promises can be laid over it in memory ([`Fs::open`]).
//!
//! [`create`] makes the content of a new file system; a [`Writer`] changes the files of one whose
//! object set is live.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod account;
mod acl;
mod attributes;
mod begin;
mod birth;
mod create;
mod dir;
mod error;
mod fs;
mod layouts;
mod locks;
mod master;
mod node;
mod overlay;
mod posix;
mod quota;
mod recent;
mod replay;
mod schema;
mod sheet;
mod trivial;
mod writer;
mod xattr;

pub use account::{Counting, account};
pub use acl::Acl;
pub use attributes::{Attributes, Kind, flags_of_linux};
pub use begin::{Begin, Caller, Need, Promise};
pub use create::{NewFs, create};
pub use dir::{Cursor, Entry};
pub use error::Error;
pub use fs::{Fs, Options};
pub use master::{Case, Master};
pub use node::Node;
pub use quota::{
    Limit, Owner, has_quotas, has_unlinked, is_over_quota, quota_of, set_quota, used_by,
};
pub use replay::Replayed;
pub use writer::{
    Atime, Made, Move, MoveKind, New, Position, Set, Settings, Stretch, Writer, XattrMode,
    can_repeat, without_set_id,
};
pub use xattr::Xattr;

/// What asking a file system gives.
pub type Result<T> = std::result::Result<T, Error>;
