//! The vocabulary of file systems: types, attributes, credentials, ACLs, access rules; pure.
//!
//! `ondisk` stores these types, `zpl` changes files by them, and the file protocols use them. There
//! is one definition of each, so that no crate copies fields between twin structs.
#![forbid(unsafe_code)]

pub mod access;
pub mod acl;
mod attributes;
mod credentials;
mod file_flags;
mod file_type;
pub mod mode;
mod request;
mod time;

pub use attributes::{Attributes, Ino};
pub use credentials::{Capability, ChangeContext, Credentials};
pub use file_flags::{FileFlags, FlagChange};
pub use file_type::FileType;
pub use request::{
    CloneRange, NewInode, RenameMode, RenameRequest, SetAttributes, WriteOffset, XattrMode,
};
pub use time::{SetTime, Time};
