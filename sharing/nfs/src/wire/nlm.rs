//! The Network Lock Manager, version 4 (X/Open XNFS, chapters 14 and 15): byte-range locks and share reservations for
//! clients of NFSv3.
//!
//! ```text
//! lock       caller name<1024>, handle<128>, owner<1024>, process ID (4), offset (8), length (8; 0: to the end)
//! TEST       cookie<1024>, is exclusive, lock
//! LOCK       cookie<1024>, may wait, is exclusive, lock, is reclaim, state of the client (4)
//! CANCEL     cookie<1024>, may wait, is exclusive, lock
//! UNLOCK     cookie<1024>, lock
//! GRANTED    cookie<1024>, is exclusive, lock                     the server calls the client
//! SHARE      cookie<1024>, caller name<1024>, handle<128>, owner<1024>, deny (4), access (4), is reclaim
//! FREE_ALL   caller name<1024>, state of the client (4)
//! result     cookie<1024>, status (4)
//! TEST's     cookie<1024>, status (4), if DENIED: is exclusive, process ID (4), owner<1024>, offset (8), length (8)
//! SHARE's    cookie<1024>, status (4), sequence (4)
//! ```
//!
//! A procedure with the suffix MSG has the same arguments. Its reply is empty, and the server calls the procedure with
//! the suffix RES at the client with the result.

use std::ops::Range;

use super::xdr::{Reader, Writer};
use super::{Error, MAX_HANDLE, Result};

/// The number of the program.
pub const PROGRAM: u32 = 100_021;
/// The only version that the server has: that of NFSv3.
pub const VERSION: u32 = 4;
/// GRANTED, which the server calls at clients.
pub const GRANTED: u32 = 5;
/// Bytes of the longest cookie, owner or name.
pub const MAX_OBJECT: usize = 1024;

/// The number of TEST_MSG; those of LOCK_MSG, CANCEL_MSG and UNLOCK_MSG follow.
const TEST_MSG: u32 = 6;
/// The difference between the numbers of a procedure with the suffix MSG and of that with the suffix RES.
const MSG_TO_RES: u32 = 5;

/// The status of a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockStatus {
    /// The request was carried out.
    Granted = 0,
    /// Another owner holds a lock.
    Denied = 1,
    /// The server has no resources for the lock, or the caller has no right to it.
    DeniedNoLocks = 2,
    /// The request waits: the server calls GRANTED later.
    Blocked = 3,
    /// Clients reclaim their locks after a restart: the client tries again later.
    DeniedGracePeriod = 4,
    /// The wait would never end.
    Deadlock = 5,
    /// The file system is read-only.
    ReadOnly = 6,
    /// There is no file of that handle.
    StaleHandle = 7,
    /// The range ends behind the largest file.
    TooBig = 8,
    /// Another failure.
    Failed = 9,
}

/// A lock that a client names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock<'a> {
    /// The name of the client.
    pub caller: &'a [u8],
    /// The handle of the file.
    pub handle: &'a [u8],
    /// The owner, as the client names it.
    pub owner: &'a [u8],
    /// The process of the client that owns the lock.
    pub process: u32,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes; 0: to the end of the file.
    pub length: u64,
}

/// A share reservation (DOS): the access of an open, and the access that it denies to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share<'a> {
    /// The name of the client.
    pub caller: &'a [u8],
    /// The handle of the file.
    pub handle: &'a [u8],
    /// The owner, as the client names it.
    pub owner: &'a [u8],
    /// The access denied to others: bit 0 read, bit 1 write.
    pub deny: u32,
    /// The access of the owner: bit 0 read, bit 1 write.
    pub access: u32,
}

/// The lock that a result of TEST shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Whether it is exclusive.
    pub is_exclusive: bool,
    /// The process of the client that owns it; 0: it is not a lock of NLM.
    pub process: u32,
    /// The bytes. `u64::MAX` as the end is the end of the file.
    pub range: Range<u64>,
}

/// The arguments of a procedure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation<'a> {
    /// Finds a lock that another would conflict with.
    Test {
        /// Whether the lock is exclusive.
        is_exclusive: bool,
        /// The lock.
        lock: Lock<'a>,
    },
    /// Locks bytes.
    Lock {
        /// Whether the request waits if it conflicts.
        may_wait: bool,
        /// Whether the lock is exclusive.
        is_exclusive: bool,
        /// The lock.
        lock: Lock<'a>,
        /// Whether the client had the lock before the server restarted.
        is_reclaim: bool,
        /// Whether the server notifies the client after a restart. False for NM_LOCK.
        is_monitored: bool,
    },
    /// Ends a wait.
    Cancel {
        /// Whether the lock is exclusive.
        is_exclusive: bool,
        /// The lock.
        lock: Lock<'a>,
    },
    /// Unlocks bytes.
    Unlock {
        /// The lock.
        lock: Lock<'a>,
    },
    /// Opens a file with a share reservation.
    Share {
        /// The reservation.
        share: Share<'a>,
        /// Whether the client had it before the server restarted.
        is_reclaim: bool,
    },
    /// Ends a share reservation.
    Unshare {
        /// The reservation.
        share: Share<'a>,
    },
}

/// A call to the lock manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Procedure<'a> {
    /// NULL: does nothing.
    Null,
    /// An operation whose result is in the reply, or is sent by a call with this number.
    Operation {
        /// The number by which the result repeats the request.
        cookie: &'a [u8],
        /// The arguments.
        operation: Operation<'a>,
        /// The procedure to call at the client with the result; none: the reply has the result.
        result_call: Option<u32>,
    },
    /// A client ends all its locks that are not monitored.
    FreeAll {
        /// The name of the client.
        caller: &'a [u8],
    },
    /// GRANTED_MSG, or the result of a call that the server never makes.
    Ignored,
}

impl<'a> Procedure<'a> {
    /// The procedure of a number; none if it does not exist.
    pub fn parse(number: u32, arguments: &'a [u8]) -> Result<Option<Self>> {
        let mut reader = Reader::new(arguments);
        let base = match number {
            0 => return Ok(Some(Self::Null)),
            1..=4 | 20..=22 => number,
            TEST_MSG..=9 => number.wrapping_sub(MSG_TO_RES),
            // GRANTED and GRANTED_MSG are for clients, and so are results
            GRANTED | 10..=15 => return Ok(Some(Self::Ignored)),
            23 => {
                let caller = reader.opaque(MAX_OBJECT)?;
                return Ok(Some(Self::FreeAll { caller }));
            }
            _ => return Ok(None),
        };
        let result_call = (base != number).then(|| number.wrapping_add(MSG_TO_RES));
        let cookie = reader.opaque(MAX_OBJECT)?;
        let operation = Operation::parse(base, &mut reader)?;
        Ok(Some(Self::Operation { cookie, operation, result_call }))
    }
}

impl<'a> Operation<'a> {
    fn parse(number: u32, reader: &mut Reader<'a>) -> Result<Self> {
        Ok(match number {
            1 => Self::Test { is_exclusive: reader.bool()?, lock: Lock::parse(reader)? },
            2 | 22 => {
                let (may_wait, is_exclusive) = (reader.bool()?, reader.bool()?);
                let lock = Lock::parse(reader)?;
                let is_reclaim = reader.bool()?;
                let _state_of_client = reader.u32()?;
                let is_monitored = number == 2;
                // a client that is not monitored is not called either
                let may_wait = may_wait && is_monitored;
                Self::Lock { may_wait, is_exclusive, lock, is_reclaim, is_monitored }
            }
            3 => {
                let (_may_wait, is_exclusive) = (reader.bool()?, reader.bool()?);
                Self::Cancel { is_exclusive, lock: Lock::parse(reader)? }
            }
            4 => Self::Unlock { lock: Lock::parse(reader)? },
            20 => Self::Share { share: Share::parse(reader)?, is_reclaim: reader.bool()? },
            21 => Self::Unshare { share: Share::parse(reader)? },
            found => return Err(Error::UnknownValue { found }),
        })
    }
}

impl<'a> Lock<'a> {
    /// Parses the fields.
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self {
            caller: reader.opaque(MAX_OBJECT)?,
            handle: reader.opaque(MAX_HANDLE)?,
            owner: reader.opaque(MAX_OBJECT)?,
            process: reader.u32()?,
            offset: reader.u64()?,
            length: reader.u64()?,
        })
    }

    /// Writes the fields.
    pub fn write(&self, writer: &mut Writer) {
        for bytes in [self.caller, self.handle, self.owner] {
            writer.opaque(bytes);
        }
        writer.u32(self.process);
        writer.u64(self.offset);
        writer.u64(self.length);
    }

    /// The bytes; none: they end behind the largest offset.
    pub fn range(&self) -> Option<Range<u64>> {
        match self.length {
            // clients write the end of the largest file as either
            0 | u64::MAX => Some(self.offset..u64::MAX),
            length => Some(self.offset..self.offset.checked_add(length)?),
        }
    }
}

impl<'a> Share<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self {
            caller: reader.opaque(MAX_OBJECT)?,
            handle: reader.opaque(MAX_HANDLE)?,
            owner: reader.opaque(MAX_OBJECT)?,
            deny: reader.u32()?,
            access: reader.u32()?,
        })
    }
}

/// Writes the result of a procedure other than TEST and SHARE.
pub fn write_result(writer: &mut Writer, cookie: &[u8], status: LockStatus) {
    writer.opaque(cookie);
    writer.u32(status as u32);
}

/// Writes the result of TEST. The holder follows if a lock is in the way.
pub fn write_test_result(writer: &mut Writer, cookie: &[u8], result: TestResult) {
    let status = match &result {
        Ok(None) => LockStatus::Granted,
        Ok(Some(_)) => LockStatus::Denied,
        Err(status) => *status,
    };
    write_result(writer, cookie, status);
    let Ok(Some(holder)) = result else { return };
    writer.bool(holder.is_exclusive);
    writer.u32(holder.process);
    writer.count(0);
    writer.u64(holder.range.start);
    let is_to_end = holder.range.end == u64::MAX;
    writer.u64(if is_to_end { 0 } else { holder.range.end.wrapping_sub(holder.range.start) });
}

/// The lock that is in the way, if there is one, or a failure.
pub type TestResult = std::result::Result<Option<Holder>, LockStatus>;

/// Writes the result of SHARE and UNSHARE.
pub fn write_share_result(writer: &mut Writer, cookie: &[u8], status: LockStatus) {
    write_result(writer, cookie, status);
    // the sequence number, which has no use
    writer.u32(0);
}

/// Writes the arguments of GRANTED.
pub fn write_granted(writer: &mut Writer, cookie: &[u8], is_exclusive: bool, lock: &Lock<'_>) {
    writer.opaque(cookie);
    writer.bool(is_exclusive);
    lock.write(writer);
}

/// The status in the result of a procedure.
pub fn parse_result(reader: &mut Reader<'_>) -> Result<u32> {
    reader.opaque(MAX_OBJECT)?;
    reader.u32()
}
