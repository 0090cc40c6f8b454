//! Requests of the kernel.
//!
//! A message is a header, a body of fields that depends on the request, and trailing data: names,
//! each ended by a zero byte, or bytes. All numbers are in the machine's byte order.
//!
//! ```text
//! offset  size  field
//!      0     4  length of all
//!      4     4  what is asked
//!      8     8  number of the question; the answer bears it
//!     16     8  of which node
//!     24     4  user, 28 group, 32 process of who asks
//!     36     2  length of extensions at the end, in eights; 2 unused
//! ```
//!
//! /dev/fuse gives head, body and the rest in one piece, a ring apart.
//! Learnt from: Linux's `include/uapi/linux/fuse.h` (protocol 7.45).

use crate::init::InitFlags;
use crate::lock_request::LockRequest;
use crate::wire::FieldReader;

/// Bytes of a message's head.
pub(crate) const HEADER_LEN: usize = 40;

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHeader {
    pub(crate) length: u32,
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) nodeid: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

impl RequestHeader {
    /// Reads a head; none if the bytes do not suffice.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(bytes);
        let (length, code) = (fields.u32()?, fields.u32()?);
        let (unique, node) = (fields.u64()?, fields.u64()?);
        let (uid, gid, pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
        Some(Self { length, opcode: code, unique, nodeid: node, uid, gid, pid })
    }
}

/// A time that is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time at which the request is handled.
    Now,
    /// Seconds since 1970, and nanoseconds.
    At(i64, u32),
}

/// Attributes that are to be set; none: that one stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SetattrRequest {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// The open file that the caller used (ftruncate).
    pub handle: Option<u64>,
}

/// A request. Handles are those of earlier open replies; names have no zero byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the arguments of the system calls of these names")]
pub enum Request<'a> {
    Lookup {
        name: &'a [u8],
    },
    Getattr,
    Statx,
    Setattr(SetattrRequest),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_dir: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        old_nodeid: u64,
        name: &'a [u8],
    },
    Open {
        flags: i32,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Write {
        handle: u64,
        offset: u64,
        data: &'a [u8],
        write_flags: u32,
        open_flags: i32,
    },
    Statfs,
    /// `flock_owner` loses its lock of the whole file.
    Release {
        handle: u64,
        flock_owner: Option<u64>,
    },
    Fsync,
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: i32,
        /// It is an ACL, set by a caller that may not keep the file's set-group-ID bit.
        kill_sgid: bool,
    },
    Getxattr {
        name: &'a [u8],
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    /// A program closes a descriptor, and `lock_owner` loses its locks of the file.
    Flush {
        lock_owner: u64,
    },
    /// The lock that is in the way of another, if any.
    Getlk(LockRequest),
    Setlk {
        lock: LockRequest,
        /// The program waits until the lock can be had.
        waits: bool,
    },
    Opendir {
        flags: i32,
    },
    Readdir {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Readdirplus {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Releasedir {
        handle: u64,
    },
    Fsyncdir,
    Access {
        mask: u32,
    },
    Create {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        flags: i32,
    },
    /// A file without a name, in the request's directory.
    Tmpfile {
        mode: u32,
        umask: u32,
        flags: i32,
    },
    /// `given` are the bytes of the request; the reply may have this many.
    Ioctl {
        command: u32,
        input: &'a [u8],
        output_size: u32,
    },
    Fallocate {
        handle: u64,
        offset: u64,
        length: u64,
        mode: i32,
    },
    Lseek {
        handle: u64,
        offset: i64,
        whence: i32,
    },
    CopyFileRange {
        handle: u64,
        offset: u64,
        out_handle: u64,
        out_offset: u64,
        length: u64,
        has_64bit_reply: bool,
    },
    /// All that was done to the file system is to outlast a power cut.
    Syncfs,
}

const RELEASE_FLOCK_UNLOCK: u32 = 2;

mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const READLINK: u32 = 5;
    pub(super) const SYMLINK: u32 = 6;
    pub(super) const MKNOD: u32 = 8;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const RMDIR: u32 = 11;
    pub(super) const RENAME: u32 = 12;
    pub(super) const LINK: u32 = 13;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const SETXATTR: u32 = 21;
    pub(super) const GETXATTR: u32 = 22;
    pub(super) const LISTXATTR: u32 = 23;
    pub(super) const REMOVEXATTR: u32 = 24;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const FSYNCDIR: u32 = 30;
    pub(super) const GETLK: u32 = 31;
    pub(super) const SETLK: u32 = 32;
    pub(super) const SETLKW: u32 = 33;
    pub(super) const ACCESS: u32 = 34;
    pub(super) const CREATE: u32 = 35;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const IOCTL: u32 = 39;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
    pub(super) const READDIRPLUS: u32 = 44;
    pub(super) const RENAME2: u32 = 45;
    pub(super) const LSEEK: u32 = 46;
    pub(super) const COPY_FILE_RANGE: u32 = 47;
    pub(super) const SYNCFS: u32 = 50;
    pub(super) const TMPFILE: u32 = 51;
    pub(super) const STATX: u32 = 52;
    pub(super) const COPY_FILE_RANGE_64: u32 = 53;
}

/// The first message of all.
pub(crate) const INIT: u32 = opcode::INIT;
/// The request for a file system's figures.
pub(crate) const STATFS: u32 = opcode::STATFS;

/// Whether a message expects no reply: a FORGET or an INTERRUPT.
pub(crate) fn has_no_reply(code: u32) -> bool {
    [opcode::FORGET, opcode::BATCH_FORGET, opcode::INTERRUPT].contains(&code)
}

/// The number of the interrupted request, if the message is an INTERRUPT (8 bytes).
pub(crate) fn interrupted_request(code: u32, rest: &[u8]) -> Option<u64> {
    FieldReader(if code == opcode::INTERRUPT { rest } else { &[] }).u64()
}

/// A node that the kernel has dropped from its inode cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForgottenNode {
    /// The node.
    pub nodeid: u64,
    /// Replies with the node that the kernel had until then. It may have got more since.
    pub lookups: u64,
}

/// The nodes of a FORGET (8 bytes: lookups) or a BATCH_FORGET message (4 bytes: count, 4 unused; of each 8
/// bytes: nodeid, 8: lookups).
pub(crate) fn forgotten_nodes<'a>(
    head: &RequestHeader,
    rest: &'a [u8],
) -> impl Iterator<Item = ForgottenNode> + use<'a> {
    let lookups = FieldReader(if head.opcode == opcode::FORGET { rest } else { &[] }).u64();
    let nodeid = head.nodeid;
    let single = lookups.map(|lookups| ForgottenNode { nodeid, lookups });
    let mut rest = FieldReader(if head.opcode == opcode::BATCH_FORGET { rest } else { &[] });
    let count = rest.u32().unwrap_or(0);
    let _ = rest.skip(4);
    let many = (0..count).map_while(move |_| {
        let (nodeid, lookups) = (rest.u64()?, rest.u64()?);
        Some(ForgottenNode { nodeid, lookups })
    });
    single.into_iter().chain(many)
}

/// Bytes of the fields in front of names and data, with a kernel of which that was wanted.
pub(crate) fn body_size(code: u32, agreed: InitFlags) -> usize {
    match code {
        opcode::SETXATTR if agreed.contains(InitFlags::SETXATTR_EXT) => 16,
        opcode::LINK
        | opcode::OPEN
        | opcode::OPENDIR
        | opcode::MKDIR
        | opcode::ACCESS
        | opcode::RENAME
        | opcode::SETXATTR
        | opcode::GETXATTR
        | opcode::LISTXATTR
        | opcode::SYNCFS => 8,
        opcode::GETATTR
        | opcode::MKNOD
        | opcode::RENAME2
        | opcode::FSYNC
        | opcode::FSYNCDIR
        | opcode::CREATE
        | opcode::TMPFILE => 16,
        opcode::RELEASE | opcode::RELEASEDIR | opcode::FLUSH | opcode::LSEEK | opcode::STATX => 24,
        opcode::IOCTL | opcode::FALLOCATE => 32,
        opcode::READ | opcode::WRITE | opcode::READDIR | opcode::READDIRPLUS => 40,
        opcode::GETLK | opcode::SETLK | opcode::SETLKW => 48,
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => 56,
        opcode::SETATTR => 88,
        _ => 0,
    }
}

impl<'a> Request<'a> {
    /// Parses a request; none for unknown or truncated ones.
    pub(crate) fn parse(code: u32, body: &[u8], rest: &'a [u8]) -> Option<Self> {
        let (body, rest) = (FieldReader(body), FieldReader(rest));
        Self::parse_name_request(code, body, rest)
            .or_else(|| Self::parse_handle_request(code, body, rest))
            .or_else(|| Self::parse_node_request(code, body, rest))
    }

    /// Questions about names in directories.
    fn parse_name_request(
        code: u32,
        mut body: FieldReader<'_>,
        mut rest: FieldReader<'a>,
    ) -> Option<Self> {
        Some(match code {
            opcode::LOOKUP => Self::Lookup { name: rest.c_string()? },
            opcode::SYMLINK => Self::Symlink { name: rest.c_string()?, target: rest.c_string()? },
            opcode::MKNOD => {
                let (mode, device, umask) = (body.u32()?, body.u32()?, body.u32()?);
                Self::Mknod { name: rest.c_string()?, mode, umask, rdev: device }
            }
            opcode::MKDIR => {
                let (mode, umask) = (body.u32()?, body.u32()?);
                Self::Mkdir { name: rest.c_string()?, mode, umask }
            }
            opcode::UNLINK => Self::Unlink { name: rest.c_string()? },
            opcode::RMDIR => Self::Rmdir { name: rest.c_string()? },
            opcode::RENAME | opcode::RENAME2 => {
                let dir = body.u64()?;
                let flags = if code == opcode::RENAME2 { body.u32()? } else { 0 };
                Self::Rename {
                    name: rest.c_string()?,
                    new_dir: dir,
                    new_name: rest.c_string()?,
                    flags,
                }
            }
            opcode::LINK => Self::Link { old_nodeid: body.u64()?, name: rest.c_string()? },
            opcode::CREATE | opcode::TMPFILE => {
                let (flags, mode, umask) = (body.i32()?, body.u32()?, body.u32()?);
                match code {
                    opcode::CREATE => Self::Create { name: rest.c_string()?, mode, umask, flags },
                    _ => Self::Tmpfile { mode, umask, flags },
                }
            }
            _ => return None,
        })
    }

    /// Requests about open handles.
    fn parse_handle_request(
        code: u32,
        mut body: FieldReader<'_>,
        mut rest: FieldReader<'a>,
    ) -> Option<Self> {
        Some(match code {
            opcode::OPEN => Self::Open { flags: body.i32()? },
            opcode::OPENDIR => Self::Opendir { flags: body.i32()? },
            opcode::READ | opcode::READDIR | opcode::READDIRPLUS => {
                let (handle, offset, size) = (body.u64()?, body.u64()?, body.u32()?);
                match code {
                    opcode::READ => Self::Read { handle, offset, size },
                    opcode::READDIR => Self::Readdir { handle, offset, size },
                    _ => Self::Readdirplus { handle, offset, size },
                }
            }
            opcode::WRITE => {
                let (handle, offset) = (body.u64()?, body.u64()?);
                let (size, how) = (body.u32()?, body.u32()?);
                body.skip(8)?;
                let data = rest.bytes(usize::try_from(size).ok()?)?;
                Self::Write { handle, offset, data, write_flags: how, open_flags: body.i32()? }
            }
            opcode::RELEASE => {
                let handle = body.u64()?;
                body.skip(4)?;
                let (flags, owner) = (body.u32()?, body.u64()?);
                let has_flock = flags & RELEASE_FLOCK_UNLOCK != 0;
                Self::Release { handle, flock_owner: has_flock.then_some(owner) }
            }
            opcode::RELEASEDIR => Self::Releasedir { handle: body.u64()? },
            opcode::FLUSH => {
                body.skip(16)?;
                Self::Flush { lock_owner: body.u64()? }
            }
            opcode::GETLK => Self::Getlk(LockRequest::parse(body)?),
            opcode::SETLK | opcode::SETLKW => {
                let waits = code == opcode::SETLKW;
                Self::Setlk { lock: LockRequest::parse(body)?, waits }
            }
            opcode::FSYNC => Self::Fsync,
            opcode::FSYNCDIR => Self::Fsyncdir,
            opcode::FALLOCATE => {
                let (handle, offset, length) = (body.u64()?, body.u64()?, body.u64()?);
                Self::Fallocate { handle, offset, length, mode: body.i32()? }
            }
            opcode::LSEEK => {
                let (handle, offset) = (body.u64()?, body.u64()?.cast_signed());
                Self::Lseek { handle, offset, whence: body.i32()? }
            }
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
                let (handle, offset) = (body.u64()?, body.u64()?);
                body.skip(8)?;
                let out_handle = body.u64()?;
                let (to, length) = (body.u64()?, body.u64()?);
                let is_long = code == opcode::COPY_FILE_RANGE_64;
                Self::CopyFileRange {
                    handle,
                    offset,
                    out_handle,
                    out_offset: to,
                    length,
                    has_64bit_reply: is_long,
                }
            }
            _ => return None,
        })
    }

    /// Questions about a node itself.
    fn parse_node_request(
        code: u32,
        mut body: FieldReader<'_>,
        mut rest: FieldReader<'a>,
    ) -> Option<Self> {
        Some(match code {
            opcode::GETATTR => Self::Getattr,
            opcode::STATX => Self::Statx,
            opcode::SETATTR => Self::Setattr(parse_setattr(body)?),
            opcode::READLINK => Self::Readlink,
            opcode::STATFS => Self::Statfs,
            opcode::SYNCFS => Self::Syncfs,
            opcode::ACCESS => Self::Access { mask: body.u32()? },
            opcode::SETXATTR => {
                let (size, flags) = (body.u32()?, body.i32()?);
                // kernels before 5.14 do not set it
                let drops_set_group = body.u32().unwrap_or(0) & 1 != 0;
                let name = rest.c_string()?;
                let value = rest.bytes(usize::try_from(size).ok()?)?;
                Self::Setxattr { name, value, flags, kill_sgid: drops_set_group }
            }
            opcode::GETXATTR => Self::Getxattr { name: rest.c_string()?, size: body.u32()? },
            opcode::LISTXATTR => Self::Listxattr { size: body.u32()? },
            opcode::REMOVEXATTR => Self::Removexattr { name: rest.c_string()? },
            opcode::IOCTL => {
                body.skip(12)?;
                let command = body.u32()?;
                body.skip(8)?;
                let (size, room) = (body.u32()?, body.u32()?);
                let given = rest.bytes(usize::try_from(size).ok()?)?;
                Self::Ioctl { command, input: given, output_size: room }
            }
            _ => return None,
        })
    }
}

/// ```text
/// offset  size  field
///      0     4  which are set: 1 mode, 2 user, 4 group, 8 size, 16 atime, 32 mtime, 64 handle,
///               128 atime as it is now, 256 mtime as it is now
///      8     8  handle
///     16     8  size
///     32     8  atime, 40 mtime, 48 ctime: seconds
///     56     4  atime, 60 mtime, 64 ctime: nanoseconds
///     68     4  mode, 4 unused
///     76     4  user, 80 group, 4 unused
/// ```
fn parse_setattr(mut body: FieldReader<'_>) -> Option<SetattrRequest> {
    let bits = body.u32()?;
    body.skip(4)?;
    let (handle, size) = (body.u64()?, body.u64()?);
    body.skip(8)?;
    let seconds = [body.u64()?, body.u64()?, body.u64()?].map(u64::cast_signed);
    let parts = [body.u32()?, body.u32()?, body.u32()?];
    let mode = body.u32()?;
    body.skip(4)?;
    let (uid, gid) = (body.u32()?, body.u32()?);
    let time = |bit, now, index: usize| match (bits & bit, bits & now) {
        (0, _) => None,
        (_, 0) => Some(SetTime::At(*seconds.get(index)?, *parts.get(index)?)),
        _ => Some(SetTime::Now),
    };
    Some(SetattrRequest {
        mode: (bits & 1 != 0).then_some(mode),
        uid: (bits & 2 != 0).then_some(uid),
        gid: (bits & 4 != 0).then_some(gid),
        size: (bits & 8 != 0).then_some(size),
        atime: time(16, 128, 0),
        mtime: time(32, 256, 1),
        handle: (bits & 64 != 0).then_some(handle),
    })
}
