//! The bodies of intent-log records, kind by kind.
//!
//! ```text
//! kind   name                  fields from offset 32 on (8 bytes each if not said otherwise)
//! 1-4    create, mkdir,        see create.rs; also 14-19 with ACL, attributes or both
//!        mkxattr, symlink
//! 5, 6   remove, rmdir         directory; name
//! 7      link                  directory, object; name
//! 8      rename                source directory, target directory; both names
//! 9      write                 object, offset, length, unused, block pointer (128); data, if the
//!                              record is longer than 192 bytes, else the pointer has it
//! 10     truncate              object, offset, length
//! 11     setattr               object, mask, mode, uid, gid, size, atime (16), mtime (16);
//!                              attributes if bit 31 of the mask is set, domains
//! 12     acl of old            object, count; entries
//! 13     acl                   object, count, domains, fuids, bytes, flags; entries, fuids, domains
//! 20     write, data in place  as write, without data
//! 21     setsaxattr            object, value size; name, value
//! 22     rename, exchange      as rename
//! 23     rename, whiteout      source directory, target directory, new object, mode, uid, gid,
//!                              generation, crtime (16), rdev; both names
//! 24     clone range           object, offset, length, block size, count; block pointers
//! ```
//!
//! Attributes:
//!
//! ```text
//! offset  size  field       meaning
//!      0     4  words       how many words of requested bits follow
//!      4    4n  requested   which attributes are set
//!   4+4n     8  values      bits
//!  12+4n    16  crtime      seconds, nanoseconds
//!  28+4n    32  scanstamp   or the project in the first 8 bytes
//!  60+4n
//! ```
//!
//! There are three words, of which the first is used: OpenZFS expects the values behind three
//! words, regardless of the count.
//!
//! Learnt from: `zdb -ivv` of the fixtures `intent-log*`. Proved by: `golden_records`.

use units::ObjectId;

use super::create::{Create, CreateKind};
use crate::{Blkptr, Error, Reader, Result};

/// A change to a dataset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Something was made.
    Create(Box<Create>),
    /// A name of a file or other non-directory was removed (`TX_REMOVE`).
    Remove {
        /// The directory.
        dir: ObjectId,
        /// The name.
        name: Vec<u8>,
    },
    /// A directory was removed (`TX_RMDIR`).
    RemoveDirectory {
        /// The directory that it was in.
        dir: ObjectId,
        /// Its name.
        name: Vec<u8>,
    },
    /// An object was given another name (`TX_LINK`).
    Link {
        /// The directory of the new name.
        dir: ObjectId,
        /// The object.
        object: ObjectId,
        /// The new name.
        name: Vec<u8>,
    },
    /// A name was changed (`TX_RENAME*`).
    Rename(Box<Rename>),
    /// Data was written (`TX_WRITE`).
    Write(Box<Write>),
    /// Data was written and is already in the dataset but for the size (`TX_WRITE2`).
    WriteSynced {
        /// The file.
        object: ObjectId,
        /// From which byte.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// A range was freed; a length of 0 means to the end (`TX_TRUNCATE`).
    Truncate {
        /// The file.
        object: ObjectId,
        /// From which byte.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// Attributes were set (`TX_SETATTR`).
    SetAttr(Box<SetAttr>),
    /// An ACL of the form before version 3 was set (`TX_ACL_V0`).
    OldAcl {
        /// The object.
        object: ObjectId,
        /// How many entries.
        count: u64,
        /// The entries.
        entries: Vec<u8>,
    },
    /// An ACL was set (`TX_ACL`).
    Acl {
        /// The object.
        object: ObjectId,
        /// The ACL.
        acl: Box<Acl>,
    },
    /// An extended attribute was set, or removed if the value is empty (`TX_SETSAXATTR`).
    SetXattr {
        /// The object.
        object: ObjectId,
        /// The attribute's name with its prefix.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// Blocks of another file were cloned into this one (`TX_CLONE_RANGE`).
    Clone {
        /// The file.
        object: ObjectId,
        /// To which byte.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// Bytes of one block.
        block_size: u64,
        /// The blocks, one after the other.
        pointers: Vec<Blkptr>,
    },
}

/// A write (`lr_write_t`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The file or volume data object (`lr_foid`).
    pub object: ObjectId,
    /// From which byte (`lr_offset`).
    pub offset: u64,
    /// How many bytes (`lr_length`).
    pub length: u64,
    /// The block that has the data, if the record has not (`lr_blkptr`).
    pub pointer: Blkptr,
    /// The data, `length` bytes, unless `pointer` leads to it.
    pub data: Option<Vec<u8>>,
}

/// A change of name (`lr_rename_t`, `lr_rename_whiteout_t`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rename {
    /// The effect on the old name.
    pub kind: RenameKind,
    /// The directory of the old name (`lr_sdoid`).
    pub source_dir: ObjectId,
    /// The directory of the new name (`lr_tdoid`).
    pub target_dir: ObjectId,
    /// The old name.
    pub source: Vec<u8>,
    /// The new name.
    pub target: Vec<u8>,
}

/// The effect on the old name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameKind {
    /// It goes (`TX_RENAME`).
    Plain,
    /// It goes to the file that had the new name (`TX_RENAME_EXCHANGE`).
    Exchange,
    /// It is given to a new whiteout device (`TX_RENAME_WHITEOUT`).
    Whiteout(Whiteout),
}

/// The device that is left at an old name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whiteout {
    /// The new object.
    pub object: ObjectId,
    /// Type and permissions.
    pub mode: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// The txg that made it.
    pub generation: u64,
    /// Seconds and nanoseconds since 1970.
    pub crtime: [u64; 2],
    /// Device numbers.
    pub rdev: u64,
}

/// A change of attributes (`lr_setattr_t`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAttr {
    /// The object (`lr_foid`).
    pub object: ObjectId,
    /// Which of the following are set: [`SetAttr::MODE`] and others (`lr_mask`).
    pub mask: u64,
    /// Type and permissions (`lr_mode`).
    pub mode: u64,
    /// Owner (`lr_uid`).
    pub uid: u64,
    /// Group (`lr_gid`).
    pub gid: u64,
    /// Bytes of the file (`lr_size`).
    pub size: u64,
    /// Seconds and nanoseconds since 1970 (`lr_atime`).
    pub atime: [u64; 2],
    /// Seconds and nanoseconds since 1970 (`lr_mtime`).
    pub mtime: [u64; 2],
    /// The extended optional attributes, beyond POSIX.
    pub attributes: Option<Attributes>,
    /// Domains that uid and gid refer to.
    pub domains: Vec<Vec<u8>>,
}

/// The extended optional attributes, beyond POSIX (`lr_attr_t`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// The bits of the attributes to set.
    pub requested: Vec<u32>,
    /// Their values, as bits of their own numbering (`XAT0_*`).
    pub values: u64,
    /// Seconds and nanoseconds since 1970.
    pub crtime: [u64; 2],
    /// The virus scanner's stamp, or in its first 8 bytes the project.
    pub scanstamp: [u8; 32],
    /// The project, if the stamp field holds it.
    pub project: u64,
}

impl Attributes {
    /// The bits of the attributes to set, in the number of words that OpenZFS expects.
    pub fn words(requested: u32) -> Vec<u32> {
        vec![requested, 0, 0]
    }
}

/// An ACL in the form of a log record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    /// How many entries.
    pub count: u64,
    /// The ACL's flags.
    pub flags: u64,
    /// The entries, as the machine that wrote them lays them out.
    pub entries: Vec<u8>,
    /// Users and groups of the entries that have a domain, by index into `domains`.
    pub fuids: Vec<u64>,
    /// The domains.
    pub domains: Vec<Vec<u8>>,
}

impl Body {
    pub(super) fn read(kind: u64, reader: &mut Reader<'_>) -> Result<Self> {
        use CreateKind::{Directory, File, Symlink, XattrDirectory};
        let create = match kind {
            1 => Some((File, false, false)),
            2 => Some((Directory, false, false)),
            3 => Some((XattrDirectory, false, false)),
            4 => Some((Symlink, false, false)),
            14 => Some((File, true, false)),
            15 => Some((File, false, true)),
            16 => Some((File, true, true)),
            17 => Some((Directory, true, false)),
            18 => Some((Directory, false, true)),
            19 => Some((Directory, true, true)),
            _ => None,
        };
        if let Some((what, acl, attributes)) = create {
            return Ok(Self::Create(Box::new(Create::read(what, acl, attributes, reader)?)));
        }
        Ok(match kind {
            5 => Self::Remove { dir: object(reader)?, name: string(reader)? },
            6 => Self::RemoveDirectory { dir: object(reader)?, name: string(reader)? },
            7 => {
                Self::Link { dir: object(reader)?, object: object(reader)?, name: string(reader)? }
            }
            8 | 22 | 23 => Self::Rename(Box::new(Rename::read(kind, reader)?)),
            9 => Self::Write(Box::new(Write::read(reader)?)),
            10 => Self::Truncate {
                object: object(reader)?,
                offset: reader.u64()?,
                length: reader.u64()?,
            },
            11 => Self::SetAttr(Box::new(SetAttr::read(reader)?)),
            12 => Self::OldAcl {
                object: object(reader)?,
                count: reader.u64()?,
                entries: reader.rest().to_vec(),
            },
            13 => {
                let object = object(reader)?;
                let counts = reader.words()?;
                Self::Acl { object, acl: Box::new(Acl::read(counts, reader)?) }
            }
            20 => Self::WriteSynced {
                object: object(reader)?,
                offset: reader.u64()?,
                length: reader.u64()?,
            },
            21 => {
                let object = object(reader)?;
                let size = length(reader)?;
                let name = string(reader)?;
                Self::SetXattr { object, name, value: reader.bytes(size)?.to_vec() }
            }
            24 => Self::read_clone(reader)?,
            found => return Err(Error::Unknown { structure: "log record", field: "kind", found }),
        })
    }

    fn read_clone(reader: &mut Reader<'_>) -> Result<Self> {
        let (object, offset) = (object(reader)?, reader.u64()?);
        let (bytes, block_size) = (reader.u64()?, reader.u64()?);
        let count = checked_count(reader.u64()?, Blkptr::SIZE, reader)?;
        let pointers = (0..count).map(|_| Blkptr::read(reader)).collect::<Result<_>>()?;
        Ok(Self::Clone { object, offset, length: bytes, block_size, pointers })
    }

    /// The object that the record changes, for kinds whose records need no order among each other.
    /// Such an object may be gone, and the replay then skips the record.
    pub fn changed_object(&self) -> Option<ObjectId> {
        match self {
            Self::Write(write) => Some(write.object),
            Self::SetAttr(set) => Some(set.object),
            Self::WriteSynced { object, .. }
            | Self::Truncate { object, .. }
            | Self::OldAcl { object, .. }
            | Self::Acl { object, .. }
            | Self::SetXattr { object, .. }
            | Self::Clone { object, .. } => Some(*object),
            _ => None,
        }
    }
}

impl Write {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let (object, offset, bytes) = (object(reader)?, reader.u64()?, reader.u64()?);
        reader.skip(8)?;
        if reader.remaining() == Blkptr::SIZE {
            let pointer = Blkptr::read(reader)?;
            return Ok(Self { object, offset, length: bytes, pointer, data: None });
        }
        // the pointer of a record with inline data is unused; its bytes are ignored
        reader.skip(Blkptr::SIZE)?;
        let count = checked_count(bytes, 1, reader)?;
        let data = Some(reader.bytes(count)?.to_vec());
        Ok(Self { object, offset, length: bytes, pointer: Blkptr::EMPTY, data })
    }
}

impl Rename {
    fn read(kind: u64, reader: &mut Reader<'_>) -> Result<Self> {
        let (source_dir, target_dir) = (object(reader)?, object(reader)?);
        let kind = match kind {
            22 => RenameKind::Exchange,
            23 => RenameKind::Whiteout(Whiteout {
                object: object(reader)?,
                mode: reader.u64()?,
                uid: reader.u64()?,
                gid: reader.u64()?,
                generation: reader.u64()?,
                crtime: reader.words()?,
                rdev: reader.u64()?,
            }),
            _ => RenameKind::Plain,
        };
        Ok(Self { kind, source_dir, target_dir, source: string(reader)?, target: string(reader)? })
    }
}

/// The bits of `mask` are those of Linux (`zdb` prints another system's names for them).
impl SetAttr {
    /// Permissions are set.
    pub const MODE: u64 = 1 << 0;
    /// The owner is set.
    pub const UID: u64 = 1 << 1;
    /// The group is set.
    pub const GID: u64 = 1 << 2;
    /// The size is set.
    pub const SIZE: u64 = 1 << 3;
    /// The time of access is set.
    pub const ATIME: u64 = 1 << 4;
    /// The time of change is set.
    pub const MTIME: u64 = 1 << 5;
    /// Extended optional attributes are set.
    pub const ATTRIBUTES: u64 = 1 << 31;

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let mut set = Self {
            object: object(reader)?,
            mask: reader.u64()?,
            mode: reader.u64()?,
            uid: reader.u64()?,
            gid: reader.u64()?,
            size: reader.u64()?,
            atime: reader.words()?,
            mtime: reader.words()?,
            attributes: None,
            domains: Vec::new(),
        };
        if set.mask & Self::ATTRIBUTES != 0 {
            set.attributes = Some(Attributes::read(reader)?);
        }
        while reader.remaining() > 0 {
            match string(reader) {
                Ok(domain) if !domain.is_empty() => set.domains.push(domain),
                _ => break, // padding
            }
        }
        Ok(set)
    }
}

impl Attributes {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let words = reader.u32()?;
        let words = checked_count(u64::from(words), 4, reader)?;
        let requested = (0..words).map(|_| reader.u32()).collect::<Result<_>>()?;
        let values = reader.u64()?;
        let crtime = reader.words()?;
        let project = reader.clone().u64()?;
        Ok(Self { requested, values, crtime, scanstamp: reader.array()?, project })
    }
}

impl Acl {
    /// `counts`: entries, domains, fuids, bytes of entries, flags.
    pub(super) fn read(counts: [u64; 5], reader: &mut Reader<'_>) -> Result<Self> {
        let [count, domain_count, fuid_count, bytes, flags] = counts;
        let size = checked_count(bytes, 1, reader)?;
        let entries = reader.bytes(size)?.to_vec();
        // an old record may end with the entries, without their padding
        reader.bytes(size.next_multiple_of(8).saturating_sub(size).min(reader.remaining()))?;
        let fuid_count = checked_count(fuid_count, 8, reader)?;
        let fuids = (0..fuid_count).map(|_| reader.u64()).collect::<Result<_>>()?;
        Ok(Self { count, flags, entries, fuids, domains: domains(domain_count, reader)? })
    }
}

fn object(reader: &mut Reader<'_>) -> Result<ObjectId> {
    reader.u64().map(|word| ObjectId::new(word & ((1 << 48) - 1)))
}

/// A count of elements of `size` bytes that must fit into the rest of the record.
pub(super) fn checked_count(count: u64, size: usize, reader: &Reader<'_>) -> Result<usize> {
    let room = reader.remaining().checked_div(size).unwrap_or(0);
    let fits = usize::try_from(count).ok().filter(|count| *count <= room);
    fits.ok_or_else(|| reader.corrupt_field(8, "a count must fit the record", count))
}

fn length(reader: &mut Reader<'_>) -> Result<usize> {
    let count = reader.u64()?;
    checked_count(count, 1, reader)
}

/// Bytes up to a NUL, which is passed over.
pub(super) fn string(reader: &mut Reader<'_>) -> Result<Vec<u8>> {
    let ahead = reader.clone().rest();
    let end = ahead.iter().position(|byte| *byte == 0);
    let end = end.ok_or_else(|| reader.corrupt_field(0, "a name must end with a NUL", 0))?;
    let bytes = reader.bytes(end)?.to_vec();
    reader.skip(1)?;
    Ok(bytes)
}

/// This many strings.
pub(super) fn domains(count: u64, reader: &mut Reader<'_>) -> Result<Vec<Vec<u8>>> {
    let count = checked_count(count, 1, reader)?;
    (0..count).map(|_| string(reader)).collect()
}
