//! What is wrong, in the words of file protocols.

use super::Error;

/// What is wrong, in the words of file protocols.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// There is no such file or name, or no more.
    NotFound,
    /// There is no such extended attribute.
    NoXattr,
    /// Only a directory could answer.
    NotDirectory,
    /// A directory cannot do that.
    IsDirectory,
    /// Only a symbolic link could answer.
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
    /// The file's flags, or what it is, forbid it.
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
    /// The pool stands still, or is on its way out.
    Suspended,
    /// The same, but it is done, and goes on with the pool: only a power cut could undo it.
    NotCommitted,
    /// The disks could not give it, or what they gave breaks a rule.
    Unreadable,
}

impl Error {
    /// What is wrong, in the words of file protocols.
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
            zpl::Error::NoSpace { .. } => Reason::NoSpace,
            zpl::Error::OverQuota { .. } => Reason::OverQuota,
            zpl::Error::Stopped { .. } | zpl::Error::Zil(zil::Error::Stopped) => Reason::Suspended,
            _ => Reason::Unreadable,
        }
    }
}
