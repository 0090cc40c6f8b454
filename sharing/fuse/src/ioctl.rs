//! Flags and projects of files, as ioctl(2) gives and takes them: lsattr, chattr, `zfs project`.
//!
//! ```text
//! FS_IOC_GETFLAGS, FS_IOC_SETFLAGS: a word of flags (4 bytes; a long is asked for, its rest is 0)
//!     0x10 immutable, 0x20 append only, 0x40 no dump, 0x20000000 the project is inherited
//!
//! FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR: struct fsxattr, of the machine's byte order
//! offset  size  field
//!      0     4  flags: 8 immutable, 0x10 append only, 0x80 no dump, 0x200 the project is inherited
//!      4     8  extent size, extents: 0
//!     12     4  project
//!     16    12  extent size of copies, unused: 0
//! ```
//!
//! Learnt from: Linux's `include/uapi/linux/fs.h`; what OpenZFS takes of it, from trying.

use fusedev::Reply;
use posix::{Attributes, Credentials, FileFlags, FlagChange, SetAttributes};
use rustix::io::Errno;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC32_GETFLAGS: u32 = 0x8004_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC32_SETFLAGS: u32 = 0x4004_6602;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

/// The flag bits of one interface, and those of the other.
const FLAG_MAP: [(u32, u32); 4] = [(0x10, 0x8), (0x20, 0x10), (0x40, 0x80), (0x2000_0000, 0x200)];
const PROJECT_OFFSET: usize = 12;

/// Handles an ioctl that changes nothing; none: it is another.
pub(crate) fn handle_get_ioctl(of: &Attributes, command: u32, room: u32) -> Option<Reply> {
    match command {
        FS_IOC_GETFLAGS | FS_IOC32_GETFLAGS => {
            let mut flags = of.flags.to_linux().to_ne_bytes().to_vec();
            flags.resize(units::to_usize(room).clamp(4, 8), 0);
            Some(Reply::ioctl(&flags))
        }
        FS_IOC_FSGETXATTR => Some(Reply::ioctl(&encode_fsxattr(of))),
        _ => None,
    }
}

/// The attributes that an ioctl sets on a file with these attributes; none: no change.
pub(crate) fn parse_set_ioctl(
    by: &Credentials,
    of: &Attributes,
    command: u32,
    given: &[u8],
) -> Result<Option<SetAttributes>, Errno> {
    let word = |at: usize| {
        let bytes = given.get(at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    let first = || word(0).ok_or(Errno::INVAL);
    let (flags, project) = match command {
        FS_IOC_SETFLAGS | FS_IOC32_SETFLAGS => {
            (translate_flags(first()?, |pair| (pair.0, pair.0)), None)
        }
        FS_IOC_FSSETXATTR => {
            let project = word(PROJECT_OFFSET).ok_or(Errno::INVAL)?;
            (translate_flags(first()?, |pair| (pair.1, pair.0)), Some(project))
        }
        _ => return Err(Errno::NOTTY),
    };
    let flags = flags.ok_or(Errno::OPNOTSUPP)?;
    // kernels before 5.13 leave the permission check to the server
    let is_for_root = {
        let guarded = FileFlags::IMMUTABLE.union(FileFlags::APPEND_ONLY).to_linux();
        (flags ^ of.flags.to_linux()) & guarded != 0
    };
    if by.uid != 0 && (by.uid != of.uid || is_for_root) {
        return Err(Errno::PERM);
    }
    let project = project.map(u64::from).filter(|project| *project != of.project_id);
    let flags = Some(flags).filter(|flags| *flags != of.flags.to_linux());
    let flags = flags.map(FlagChange::from_linux);
    let set = SetAttributes { flags, project_id: project, ..SetAttributes::default() };
    Ok(Some(set).filter(|set| *set != SetAttributes::default()))
}

/// Translates flags between two interfaces; `way` gives the bits of a flag in both. None: there are
/// unknown flags among them.
fn translate_flags(word: u32, way: impl Fn((u32, u32)) -> (u32, u32)) -> Option<u32> {
    let (known, out) = FLAG_MAP.into_iter().map(way).fold((0, 0), |(known, out), (from, to)| {
        (known | from, if word & from != 0 { out | to } else { out })
    });
    (word & !known == 0).then_some(out)
}

fn encode_fsxattr(of: &Attributes) -> [u8; 28] {
    let flags = translate_flags(of.flags.to_linux(), |pair| pair).unwrap_or(0);
    let project = u32::try_from(of.project_id).unwrap_or(u32::MAX);
    let mut out = [0; 28];
    for (at, word) in [(0, flags), (PROJECT_OFFSET, project)] {
        for (slot, byte) in out.iter_mut().skip(at).zip(word.to_ne_bytes()) {
            *slot = byte;
        }
    }
    out
}
