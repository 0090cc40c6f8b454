//! Attributes that a client sets (`fattr4`), and the numbers of all attributes.

use super::Bitmap;
use crate::wire::xdr::{Reader, Writer};
use crate::wire::{Error, Result};

/// The numbers of attributes (RFC 5661, section 5; RFC 7862, section 12; RFC 8275; RFC 8276).
#[expect(missing_docs, reason = "the RFCs explain each")]
pub mod attr {
    pub const SUPPORTED_ATTRS: u32 = 0;
    pub const TYPE: u32 = 1;
    pub const FH_EXPIRE_TYPE: u32 = 2;
    pub const CHANGE: u32 = 3;
    pub const SIZE: u32 = 4;
    pub const LINK_SUPPORT: u32 = 5;
    pub const SYMLINK_SUPPORT: u32 = 6;
    pub const NAMED_ATTR: u32 = 7;
    pub const FSID: u32 = 8;
    pub const UNIQUE_HANDLES: u32 = 9;
    pub const LEASE_TIME: u32 = 10;
    pub const RDATTR_ERROR: u32 = 11;
    pub const ACL: u32 = 12;
    pub const ACLSUPPORT: u32 = 13;
    pub const CANSETTIME: u32 = 15;
    pub const CASE_INSENSITIVE: u32 = 16;
    pub const CASE_PRESERVING: u32 = 17;
    pub const CHOWN_RESTRICTED: u32 = 18;
    pub const FILEHANDLE: u32 = 19;
    pub const FILEID: u32 = 20;
    pub const HOMOGENEOUS: u32 = 26;
    pub const MAXFILESIZE: u32 = 27;
    pub const MAXLINK: u32 = 28;
    pub const MAXNAME: u32 = 29;
    pub const MAXREAD: u32 = 30;
    pub const MAXWRITE: u32 = 31;
    pub const MODE: u32 = 33;
    pub const NO_TRUNC: u32 = 34;
    pub const NUMLINKS: u32 = 35;
    pub const OWNER: u32 = 36;
    pub const OWNER_GROUP: u32 = 37;
    pub const RAWDEV: u32 = 41;
    pub const SPACE_AVAIL: u32 = 42;
    pub const SPACE_FREE: u32 = 43;
    pub const SPACE_TOTAL: u32 = 44;
    pub const SPACE_USED: u32 = 45;
    pub const TIME_ACCESS: u32 = 47;
    pub const TIME_ACCESS_SET: u32 = 48;
    pub const TIME_CREATE: u32 = 50;
    pub const TIME_DELTA: u32 = 51;
    pub const TIME_METADATA: u32 = 52;
    pub const TIME_MODIFY: u32 = 53;
    pub const TIME_MODIFY_SET: u32 = 54;
    pub const MOUNTED_ON_FILEID: u32 = 55;
    pub const SUPPATTR_EXCLCREAT: u32 = 75;
    pub const CLONE_BLKSIZE: u32 = 77;
    pub const CHANGE_ATTR_TYPE: u32 = 79;
    pub const MODE_UMASK: u32 = 81;
    pub const XATTR_SUPPORT: u32 = 82;
    /// Attributes that a client cannot compare: they can only be set, or tell the error of an entry.
    pub const WITHOUT_VALUE: [u32; 3] = [RDATTR_ERROR, TIME_ACCESS_SET, TIME_MODIFY_SET];
}

/// A point in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds.
    pub nanoseconds: u32,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The time of the server.
    Now,
    /// This time.
    At(Time),
}

/// An entry of an ACL (`nfsace4`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclEntry {
    /// 0 allow, 1 deny, 2 audit, 3 alarm.
    pub kind: u32,
    /// The flags.
    pub flags: u32,
    /// The permissions.
    pub mask: u32,
    /// `OWNER@`, `GROUP@`, `EVERYONE@`, or the number of a user or group.
    pub who: Vec<u8>,
}

/// Attributes to set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SetAttributes {
    /// The attributes that are set.
    pub set: Bitmap,
    /// Whether there are attributes that cannot be set, or are unknown.
    pub has_unsupported: bool,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Bits that are cleared in the mode of a new file, unless its directory has a default ACL.
    pub umask: Option<u32>,
    /// The owner, as text.
    pub owner: Option<Vec<u8>>,
    /// The group, as text.
    pub group: Option<Vec<u8>>,
    /// Bytes of the content.
    pub size: Option<u64>,
    /// Time of the last read.
    pub atime: Option<SetTime>,
    /// Time of the last change of the content.
    pub mtime: Option<SetTime>,
    /// Time of the creation.
    pub crtime: Option<Time>,
    /// The ACL.
    pub acl: Option<Vec<AclEntry>>,
}

/// Bytes of the values of attributes.
const MAX_VALUES: usize = 1 << 18;
const MAX_OWNER_NAME: usize = 1024;
/// Entries of an ACL.
const MAX_ACL: usize = 1024;

impl Time {
    /// Parses a time.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { seconds: reader.i64()?, nanoseconds: reader.u32()? })
    }

    /// Writes the time.
    pub fn write(self, writer: &mut Writer) {
        writer.i64(self.seconds);
        writer.u32(self.nanoseconds);
    }
}

impl SetTime {
    fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        match reader.u32()? {
            0 => Ok(Self::Now),
            1 => Time::parse(reader).map(Self::At),
            found => Err(Error::UnknownValue { found }),
        }
    }
}

impl AclEntry {
    fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            kind: reader.u32()?,
            flags: reader.u32()?,
            mask: reader.u32()?,
            who: reader.opaque(MAX_OWNER_NAME)?.to_vec(),
        })
    }

    /// Writes the entry.
    pub fn write(&self, writer: &mut Writer) {
        for number in [self.kind, self.flags, self.mask] {
            writer.u32(number);
        }
        writer.opaque(&self.who);
    }
}

impl SetAttributes {
    /// The attributes that can be set.
    pub const SETTABLE: Bitmap = Bitmap::of(&[
        attr::SIZE,
        attr::ACL,
        attr::MODE,
        attr::OWNER,
        attr::OWNER_GROUP,
        attr::TIME_ACCESS_SET,
        attr::TIME_CREATE,
        attr::TIME_MODIFY_SET,
        attr::MODE_UMASK,
    ]);

    /// Parses attributes with their values.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        let (set, has_more) = Bitmap::parse_exact(reader)?;
        let values = reader.opaque(MAX_VALUES)?;
        let mut parsed = Self { set, has_unsupported: has_more, ..Self::default() };
        if has_more || !set.without(&Self::SETTABLE).is_empty() {
            // the values cannot be told from each other
            parsed.has_unsupported = true;
            return Ok(parsed);
        }
        let mut values = Reader::new(values);
        for attribute in set.iter() {
            parsed.parse_value(attribute, &mut values)?;
        }
        values.finish()?;
        Ok(parsed)
    }

    fn parse_value(&mut self, attribute: u32, values: &mut Reader<'_>) -> Result<()> {
        match attribute {
            attr::SIZE => self.size = Some(values.u64()?),
            attr::ACL => self.acl = Some(values.list(MAX_ACL, AclEntry::parse)?),
            attr::MODE => self.mode = Some(values.u32()?),
            attr::OWNER => self.owner = Some(values.opaque(MAX_OWNER_NAME)?.to_vec()),
            attr::OWNER_GROUP => self.group = Some(values.opaque(MAX_OWNER_NAME)?.to_vec()),
            attr::TIME_ACCESS_SET => self.atime = Some(SetTime::parse(values)?),
            attr::TIME_MODIFY_SET => self.mtime = Some(SetTime::parse(values)?),
            attr::TIME_CREATE => self.crtime = Some(Time::parse(values)?),
            attr::MODE_UMASK => {
                self.mode = Some(values.u32()?);
                self.umask = Some(values.u32()?);
            }
            found => return Err(Error::UnknownValue { found }),
        }
        Ok(())
    }
}
