//! Requests about locks of bytes, and of whole files (flock).
//!
//! ```text
//! offset  size  field
//!      0     8  handle
//!      8     8  owner of the lock
//!     16     8  first byte, 24 last byte; the largest signed number: to the end of the file
//!     32     4  kind: 0 read, 1 write, 2 none; 36 process
//!     40     4  flags: 1 a lock of the whole file by flock(2); 4 unused
//! ```
//!
//! The answer to GETLK has the 24 bytes from offset 16 on.
//! Learnt from: Linux's `include/uapi/linux/fuse.h` (protocol 7.45).

use crate::reply::Reply;
use crate::wire::FieldReader;

/// The kind of a lock, as fcntl(2) names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of fcntl(2), without F_ and LCK")]
pub enum LockType {
    Read,
    Write,
    None,
}

/// A lock that a program wants to set, to remove, or to know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The handle of the open file.
    pub handle: u64,
    /// The kernel's number for the owner: a process, or an open file.
    pub owner: u64,
    /// The first byte.
    pub start: u64,
    /// The last byte; `i64::MAX`: to the end of the file.
    pub last: u64,
    /// The kind.
    pub kind: LockType,
    /// The process.
    pub pid: u32,
    /// Whether flock(2) was called.
    pub is_flock: bool,
}

const FLOCK_FLAG: u32 = 1;

impl LockType {
    fn from_number(number: u32) -> Option<Self> {
        [Self::Read, Self::Write, Self::None].into_iter().find(|kind| kind.number() == number)
    }

    fn number(self) -> u32 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::None => 2,
        }
    }
}

impl LockRequest {
    /// Reads the body of a message.
    pub(crate) fn parse(mut body: FieldReader<'_>) -> Option<Self> {
        let (handle, owner) = (body.u64()?, body.u64()?);
        let (start, last) = (body.u64()?, body.u64()?);
        let (kind, pid) = (LockType::from_number(body.u32()?)?, body.u32()?);
        let is_flock = body.u32()? & FLOCK_FLAG != 0;
        Some(Self { handle, owner, start, last, kind, pid, is_flock })
    }
}

impl Reply {
    /// The lock that is in the way of another: its first and last byte, its kind, and its process (0: unknown).
    pub fn lock((start, last): (u64, u64), kind: LockType, pid: u32) -> Self {
        Self::build(|to| _ = to.u64(start).u64(last).u32(kind.number()).u32(pid))
    }
}

#[cfg(test)]
mod tests {
    use super::{LockRequest, LockType};
    use crate::wire::FieldReader;

    #[test]
    fn lock_requests_are_parsed() {
        let words = [3_u64, 7, 10, 19].map(u64::to_ne_bytes).concat();
        let rest = [1_u32, 77, 1, 0].map(u32::to_ne_bytes).concat();
        let body = [words, rest].concat();
        let (kind, is_flock) = (LockType::Write, true);
        let wanted =
            LockRequest { handle: 3, owner: 7, start: 10, last: 19, kind, pid: 77, is_flock };
        assert_eq!(LockRequest::parse(FieldReader(&body)), Some(wanted));
        for length in 0..44 {
            assert_eq!(LockRequest::parse(FieldReader(&body[..length])), None, "{length}");
        }
        let mut unknown = body;
        unknown[32..36].copy_from_slice(&3_u32.to_ne_bytes());
        assert_eq!(LockRequest::parse(FieldReader(&unknown)), None);
    }
}
