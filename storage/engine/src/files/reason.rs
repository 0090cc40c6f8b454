//! The reasons of errors, in the terms of file protocols.

use super::Error;

/// The reason of an error, in the terms of file protocols.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// The file or name does not exist, or no longer exists.
    NotFound,
    /// The extended attribute does not exist.
    NoXattr,
    /// The operation needs a directory.
    NotDirectory,
    /// A directory cannot do that.
    IsDirectory,
    /// The operation needs a symbolic link.
    NotSymlink,
    /// The dataset is locked.
    Locked,
    /// It can be read only.
    ReadOnly,
    /// The name is taken.
    Exists,
    /// The directory is not empty.
    NotEmpty,
    /// The change was meant for an earlier version of the file.
    ChangedMeanwhile,
    /// The file's flags, or its type, forbid it.
    NotPermitted,
    /// It makes no sense of this file.
    Invalid,
    /// This file, or this file system, has no such thing.
    NotSupported,
    /// The name is too long.
    NameTooLong,
    /// The name is not UTF-8, and the file system takes nothing else.
    NameNotUtf8,
    /// The file may not go to another project, or another file system.
    CrossDevice,
    /// The file would become too large.
    TooLarge,
    /// No space is left.
    NoSpace,
    /// A quota is used up.
    OverQuota,
    /// The pool is suspended, or is being exported.
    Suspended,
    /// The same, but the change is done and stays when the pool resumes: only a power cut could
    /// undo it.
    NotCommitted,
    /// The disks could not read it, or their data breaks a rule.
    Unreadable,
}

impl Error {
    /// The reason of an error, in the terms of file protocols.
    pub fn reason(&self) -> Reason {
        if self.is_locked() {
            return Reason::Locked;
        }
        if self.is_not_found() {
            return Reason::NotFound;
        }
        let why = match self {
            Self::FileSystem(why) => why,
            Self::NotCommitted => return Reason::NotCommitted,
            Self::Volume(zvol::Error::Stopped | zvol::Error::Log(zil::Error::Stopped)) => {
                return Reason::Suspended;
            }
            _ => return Reason::Unreadable,
        };
        match why {
            zpl::Error::NoEntry { .. } => Reason::NotFound,
            zpl::Error::NoXattr { .. } => Reason::NoXattr,
            zpl::Error::NotDirectory { .. } => Reason::NotDirectory,
            zpl::Error::IsDirectory { .. } => Reason::IsDirectory,
            zpl::Error::NotSymlink { .. } => Reason::NotSymlink,
            zpl::Error::ReadOnly { .. } => Reason::ReadOnly,
            zpl::Error::Exists { .. } => Reason::Exists,
            zpl::Error::NotEmpty { .. } => Reason::NotEmpty,
            zpl::Error::ChangedMeanwhile { .. } => Reason::ChangedMeanwhile,
            zpl::Error::NotPermitted { .. } => Reason::NotPermitted,
            zpl::Error::Invalid { .. } => Reason::Invalid,
            zpl::Error::NotSupported { .. } => Reason::NotSupported,
            zpl::Error::NameTooLong { .. } | zpl::Error::NormalizedTooLong { .. } => {
                Reason::NameTooLong
            }
            zpl::Error::NameNotUtf8 { .. } => Reason::NameNotUtf8,
            zpl::Error::ProjectMismatch { .. } => Reason::CrossDevice,
            zpl::Error::TooLarge { .. } => Reason::TooLarge,
            // a directory that compares names without case has space for some thousand that differ by case only
            zpl::Error::NoSpace { .. } | zpl::Error::Zap(zap::Error::Full { .. }) => {
                Reason::NoSpace
            }
            zpl::Error::OverQuota { .. } => Reason::OverQuota,
            zpl::Error::Stopped { .. } | zpl::Error::Zil(zil::Error::Stopped) => Reason::Suspended,
            _ => Reason::Unreadable,
        }
    }
}
