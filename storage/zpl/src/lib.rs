//! Files and directories on a dataset.
//!
//! [`Fs`] opens an object set that holds files; [`Inode`] is one of them. Everything is read on
//! demand: attributes from the bonus buffer, names from the directory's table, content
//! by range. Unreplayed records of an intent log can be applied in memory ([`Fs::open`]).
//!
//! [`create_fs`] makes the content of a new file system; a [`FsWriter`] changes the files of a live
//! object set.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

mod accounting;
mod acl;
mod attributes;
mod chunked_table;
mod create;
mod dir;
mod error;
mod fs;
mod inode;
mod locks;
mod log_overlay;
mod master_node;
mod new_znode;
mod quota;
mod replay;
mod sa_layouts;
mod sa_schema;
mod sa_table;
mod transactions;
mod upgrade;
mod writer;
mod xattr;
mod zap_cache;

pub use accounting::{AccountingMode, update_accounting};
pub use acl::Nfs4Acl;
pub use attributes::ZnodeAttributes;
pub use create::{FsCreateOptions, create_fs};
pub use dir::{DirCursor, DirEntry};
pub use error::Error;
pub use fs::{Fs, FsOptions};
pub use inode::Inode;
pub use master_node::{CaseSensitivity, MasterNode};
pub use quota::{
    QuotaLimit, QuotaOwner, has_quotas, has_unlinked_files, is_over_quota, read_quota, read_usage,
    set_quota,
};
pub use replay::ReplaySummary;
pub use transactions::{LogRecord, SpaceNeed, Transactions};
pub use upgrade::upgrade_fs;
pub use writer::{AtimeMode, CreatedInode, FsWriter, RewrittenRange, WriteSettings, is_repeatable};
pub use xattr::Xattr;

/// The result of an operation on a file system.
pub type Result<T> = std::result::Result<T, Error>;
