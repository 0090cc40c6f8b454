//! From errors of file systems to the status of a procedure.

use vfs::{Error, Reason};

use crate::wire::status::Status;

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound => Self::NOENT,
            Error::Stale => Self::STALE,
            Error::AccessDenied => Self::ACCESS,
            Error::WrongOpenMode => Self::OPENMODE,
            Error::ShareConflict(_) => Self::SHARE_DENIED,
            Error::RecallPending(_) | Error::PoolSuspended => Self::DELAY,
            Error::NotDirectory => Self::NOTDIR,
            Error::IsDirectory => Self::ISDIR,
            Error::NotSymlink => Self::INVAL,
            Error::Refused { reason } => from_reason(reason),
            Error::Locked { .. }
            | Error::Unreadable { .. }
            | Error::InoOverflow
            | Error::InoReused { .. } => Self::IO,
        }
    }
}

fn from_reason(reason: Reason) -> Status {
    match reason {
        Reason::NotFound => Status::NOENT,
        Reason::NoXattr => Status::NOXATTR,
        Reason::NotDirectory => Status::NOTDIR,
        Reason::IsDirectory => Status::ISDIR,
        Reason::NotSymlink | Reason::Invalid | Reason::NameNotUtf8 => Status::INVAL,
        Reason::ReadOnly => Status::ROFS,
        Reason::Exists => Status::EXIST,
        Reason::NotEmpty => Status::NOTEMPTY,
        Reason::ChangedMeanwhile => Status::NOT_SYNC,
        Reason::NotPermitted => Status::PERM,
        Reason::NotSupported => Status::NOTSUPP,
        Reason::NameTooLong => Status::NAMETOOLONG,
        Reason::CrossDevice => Status::XDEV,
        Reason::TooLarge => Status::FBIG,
        Reason::NoSpace => Status::NOSPC,
        Reason::OverQuota => Status::DQUOT,
        // with failmode=wait the request has waited until its connection ended
        Reason::Suspended | Reason::NotCommitted | Reason::Locked | Reason::Unreadable => {
            Status::IO
        }
    }
}
