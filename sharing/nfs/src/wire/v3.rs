//! NFSv3 (RFC 1813): the arguments of each procedure, and the structures that results share.
//!
//! ```text
//! fattr3      type, mode, nlink, uid, gid, size, used, rdev (2 words), fsid, fileid, atime, mtime, ctime
//! nfstime3    seconds and nanoseconds, 32 bits each, unsigned
//! post_op     1 and fattr3, or 0
//! wcc_data    before: 1 and (size, mtime, ctime), or 0; after: post_op
//! diropargs   handle of the directory, name
//! sattr3      mode, uid, gid, size: each optional; atime and mtime: 0 keep, 1 now, 2 and the time
//! ```

use super::xdr::{Reader, Writer};
use super::{Error, MAX_HANDLE, MAX_NAME, Result};

/// The version of the program NFS.
pub const VERSION: u32 = 3;
/// The number of the procedure READ.
pub const READ: u32 = 6;
/// Bytes of the longest target of a symbolic link that is parsed.
const MAX_TARGET: usize = 4096;
/// Bytes of a cookie verifier, a create verifier and a write verifier.
pub const VERIFIER_LEN: usize = 8;

/// A point in time, in the form of NFSv3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Time {
    /// Seconds since 1970, until 2106.
    pub seconds: u32,
    /// Nanoseconds.
    pub nanoseconds: u32,
}

/// The attributes of a file (`fattr3`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// The type: 1 file, 2 directory, 3 block device, 4 character device, 5 symbolic link, 6 socket, 7 pipe.
    pub kind: u32,
    /// Permission bits: 12 bits.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Bytes of the content.
    pub size: u64,
    /// Bytes that the file occupies.
    pub used: u64,
    /// Major and minor number of a device node.
    pub rdev: (u32, u32),
    /// The file system.
    pub fsid: u64,
    /// The inode number.
    pub fileid: u64,
    /// Time of the last read.
    pub atime: Time,
    /// Time of the last change of the content.
    pub mtime: Time,
    /// Time of the last change.
    pub ctime: Time,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetTime {
    /// The time stays.
    #[default]
    Keep,
    /// The time of the server.
    Now,
    /// This time.
    At(Time),
}

/// Attributes to set (`sattr3`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Bytes of the content.
    pub size: Option<u64>,
    /// Time of the last read.
    pub atime: SetTime,
    /// Time of the last change of the content.
    pub mtime: SetTime,
}

/// A name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirName<'a> {
    /// The handle of the directory.
    pub dir: &'a [u8],
    /// The name.
    pub name: &'a [u8],
}

/// How CREATE treats a name that exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateHow {
    /// The file is taken, and gets the attributes.
    Unchecked(SetAttributes),
    /// An error.
    Guarded(SetAttributes),
    /// An error, unless a CREATE with this verifier made the file.
    Exclusive([u8; VERIFIER_LEN]),
}

/// The requested stability of a WRITE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StableHow {
    /// In memory.
    Unstable,
    /// The data on stable storage.
    DataSync,
    /// Data and attributes on stable storage.
    FileSync,
}

/// A node that MKNOD makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewNode {
    /// The type, as in [`Attributes::kind`].
    pub kind: u32,
    /// The attributes.
    pub set: SetAttributes,
    /// Major and minor number of a device node.
    pub rdev: (u32, u32),
}

/// The arguments of READDIR and READDIRPLUS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadDir<'a> {
    /// The handle of the directory.
    pub dir: &'a [u8],
    /// The place to go on at; 0: the beginning.
    pub cookie: u64,
    /// The most bytes of the whole result.
    pub max_bytes: u32,
    /// Whether attributes and handles are wanted (READDIRPLUS).
    pub is_plus: bool,
}

/// A procedure with its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "RFC 1813, section 3.3, explains each")]
pub enum Procedure<'a> {
    Null,
    GetAttributes { file: &'a [u8] },
    SetAttributes { file: &'a [u8], set: SetAttributes, guard: Option<Time> },
    Lookup(DirName<'a>),
    Access { file: &'a [u8], wanted: u32 },
    ReadLink { file: &'a [u8] },
    Read { file: &'a [u8], offset: u64, count: u32 },
    Write { file: &'a [u8], offset: u64, stable: StableHow, data: &'a [u8] },
    Create { at: DirName<'a>, how: CreateHow },
    MakeDir { at: DirName<'a>, set: SetAttributes },
    Symlink { at: DirName<'a>, set: SetAttributes, target: &'a [u8] },
    MakeNode { at: DirName<'a>, node: NewNode },
    Remove(DirName<'a>),
    RemoveDir(DirName<'a>),
    Rename { from: DirName<'a>, to: DirName<'a> },
    Link { file: &'a [u8], at: DirName<'a> },
    ReadDir(ReadDir<'a>),
    FsStat { file: &'a [u8] },
    FsInfo { file: &'a [u8] },
    PathConf { file: &'a [u8] },
    Commit { file: &'a [u8] },
}

impl<'a> Procedure<'a> {
    /// The procedure of a number; none if it does not exist. A WRITE has at most `max_data` bytes.
    pub fn parse(number: u32, arguments: &'a [u8], max_data: usize) -> Result<Option<Self>> {
        let mut reader = Reader::new(arguments);
        let r = &mut reader;
        let parsed = match number {
            0 => Self::Null,
            1 => Self::GetAttributes { file: handle(r)? },
            2 => Self::SetAttributes {
                file: handle(r)?,
                set: SetAttributes::parse(r)?,
                guard: r.optional(Time::parse)?,
            },
            3 => Self::Lookup(DirName::parse(r)?),
            4 => Self::Access { file: handle(r)?, wanted: r.u32()? },
            5 => Self::ReadLink { file: handle(r)? },
            READ => Self::Read { file: handle(r)?, offset: r.u64()?, count: r.u32()? },
            7 => parse_write(r, max_data)?,
            8 => Self::Create { at: DirName::parse(r)?, how: CreateHow::parse(r)? },
            9 => Self::MakeDir { at: DirName::parse(r)?, set: SetAttributes::parse(r)? },
            10 => Self::Symlink {
                at: DirName::parse(r)?,
                set: SetAttributes::parse(r)?,
                target: r.opaque(MAX_TARGET)?,
            },
            11 => Self::MakeNode { at: DirName::parse(r)?, node: NewNode::parse(r)? },
            12 => Self::Remove(DirName::parse(r)?),
            13 => Self::RemoveDir(DirName::parse(r)?),
            14 => Self::Rename { from: DirName::parse(r)?, to: DirName::parse(r)? },
            15 => Self::Link { file: handle(r)?, at: DirName::parse(r)? },
            16 | 17 => Self::ReadDir(ReadDir::parse(r, number == 17)?),
            18 => Self::FsStat { file: handle(r)? },
            19 => Self::FsInfo { file: handle(r)? },
            20 => Self::PathConf { file: handle(r)? },
            21 => {
                let file = handle(r)?;
                // the range: the whole file is committed
                r.u64()?;
                r.u32()?;
                Self::Commit { file }
            }
            _ => return Ok(None),
        };
        reader.finish()?;
        Ok(Some(parsed))
    }

    /// Whether a repetition would do something else than the first time.
    pub fn is_non_idempotent(&self) -> bool {
        matches!(
            self,
            Self::SetAttributes { .. }
                | Self::Create { .. }
                | Self::MakeDir { .. }
                | Self::Symlink { .. }
                | Self::MakeNode { .. }
                | Self::Remove(_)
                | Self::RemoveDir(_)
                | Self::Rename { .. }
                | Self::Link { .. }
        )
    }
}

fn handle<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    reader.opaque(MAX_HANDLE)
}

fn parse_write<'a>(reader: &mut Reader<'a>, max_data: usize) -> Result<Procedure<'a>> {
    let (file, offset, count) = (handle(reader)?, reader.u64()?, reader.u32()?);
    let stable = StableHow::from_number(reader.u32()?)?;
    let data = reader.opaque(max_data)?;
    // the count and the length of the data must be equal
    let count = usize::try_from(count).map_err(|_| Error::TooShort)?;
    let data = data.get(..count).ok_or(Error::TooShort)?;
    Ok(Procedure::Write { file, offset, stable, data })
}

impl StableHow {
    /// The number on the wire.
    pub fn number(self) -> u32 {
        match self {
            Self::Unstable => 0,
            Self::DataSync => 1,
            Self::FileSync => 2,
        }
    }

    /// The stability of a number on the wire.
    pub fn from_number(number: u32) -> Result<Self> {
        match number {
            0 => Ok(Self::Unstable),
            1 => Ok(Self::DataSync),
            2 => Ok(Self::FileSync),
            found => Err(Error::UnknownValue { found }),
        }
    }
}

impl<'a> DirName<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self { dir: handle(reader)?, name: reader.opaque(MAX_NAME)? })
    }
}

impl<'a> ReadDir<'a> {
    fn parse(reader: &mut Reader<'a>, is_plus: bool) -> Result<Self> {
        let (dir, cookie) = (handle(reader)?, reader.u64()?);
        // cookies stay valid while names come and go: the verifier is always 0
        reader.fixed::<VERIFIER_LEN>()?;
        if is_plus {
            // the bytes of names alone; the limit of the whole result is larger
            reader.u32()?;
        }
        Ok(Self { dir, cookie, max_bytes: reader.u32()?, is_plus })
    }
}

impl Time {
    fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { seconds: reader.u32()?, nanoseconds: reader.u32()? })
    }

    fn write(self, writer: &mut Writer) {
        writer.u32(self.seconds);
        writer.u32(self.nanoseconds);
    }
}

impl SetTime {
    fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        match reader.u32()? {
            0 => Ok(Self::Keep),
            1 => Ok(Self::Now),
            2 => Time::parse(reader).map(Self::At),
            found => Err(Error::UnknownValue { found }),
        }
    }

    fn write(self, writer: &mut Writer) {
        match self {
            Self::Keep => writer.u32(0),
            Self::Now => writer.u32(1),
            Self::At(time) => {
                writer.u32(2);
                time.write(writer);
            }
        }
    }
}

impl SetAttributes {
    fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            mode: reader.optional(Reader::u32)?,
            uid: reader.optional(Reader::u32)?,
            gid: reader.optional(Reader::u32)?,
            size: reader.optional(Reader::u64)?,
            atime: SetTime::parse(reader)?,
            mtime: SetTime::parse(reader)?,
        })
    }

    /// Writes the attributes, as clients do.
    pub fn write(&self, writer: &mut Writer) {
        for number in [self.mode, self.uid, self.gid] {
            writer.bool(number.is_some());
            if let Some(number) = number {
                writer.u32(number);
            }
        }
        writer.bool(self.size.is_some());
        if let Some(size) = self.size {
            writer.u64(size);
        }
        self.atime.write(writer);
        self.mtime.write(writer);
    }
}

impl CreateHow {
    fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        match reader.u32()? {
            0 => SetAttributes::parse(reader).map(Self::Unchecked),
            1 => SetAttributes::parse(reader).map(Self::Guarded),
            2 => reader.fixed().map(Self::Exclusive),
            found => Err(Error::UnknownValue { found }),
        }
    }
}

impl NewNode {
    fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        let kind = reader.u32()?;
        // files, directories and symbolic links have procedures of their own: the server refuses them
        let (set, rdev) = match kind {
            3 | 4 => (SetAttributes::parse(reader)?, (reader.u32()?, reader.u32()?)),
            6 | 7 => (SetAttributes::parse(reader)?, (0, 0)),
            _ => (SetAttributes::default(), (0, 0)),
        };
        Ok(Self { kind, set, rdev })
    }
}

impl Attributes {
    /// Writes the attributes.
    pub fn write(&self, writer: &mut Writer) {
        for number in [self.kind, self.mode, self.nlink, self.uid, self.gid] {
            writer.u32(number);
        }
        writer.u64(self.size);
        writer.u64(self.used);
        writer.u32(self.rdev.0);
        writer.u32(self.rdev.1);
        writer.u64(self.fsid);
        writer.u64(self.fileid);
        for time in [self.atime, self.mtime, self.ctime] {
            time.write(writer);
        }
    }

    /// Parses attributes, as clients do.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        let mut numbers = [0; 5];
        for number in &mut numbers {
            *number = reader.u32()?;
        }
        let [kind, mode, nlink, uid, gid] = numbers;
        Ok(Self {
            kind,
            mode,
            nlink,
            uid,
            gid,
            size: reader.u64()?,
            used: reader.u64()?,
            rdev: (reader.u32()?, reader.u32()?),
            fsid: reader.u64()?,
            fileid: reader.u64()?,
            atime: Time::parse(reader)?,
            mtime: Time::parse(reader)?,
            ctime: Time::parse(reader)?,
        })
    }

    /// Writes attributes that may be unknown (`post_op_attr`).
    pub fn write_optional(attributes: Option<&Self>, writer: &mut Writer) {
        writer.bool(attributes.is_some());
        if let Some(attributes) = attributes {
            attributes.write(writer);
        }
    }

    /// Writes the attributes before and after a change (`wcc_data`). Clients drop their caches if
    /// the attributes before differ from theirs.
    pub fn write_change(before: Option<&Self>, after: Option<&Self>, writer: &mut Writer) {
        writer.bool(before.is_some());
        if let Some(before) = before {
            writer.u64(before.size);
            before.mtime.write(writer);
            before.ctime.write(writer);
        }
        Self::write_optional(after, writer);
    }
}
