//! The attributes of a file.

use dmu::Object;
use ondisk::dnode::Dnode;
use ondisk::sa::Attribute;
use ondisk::znode::{Znode, device, flag};
use ondisk::{ObjectType, Order, Reader, sa};
use posix::{FileFlags, FileType, Time};
use units::{ObjectId, Txg};
use zio::Block;

use crate::sa_schema::SaSchema;

/// Bytes that a file has at most: offsets are signed.
pub(crate) const MAX_FILE_SIZE: u64 = i64::MAX as u64;

/// The attributes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZnodeAttributes {
    /// Its type.
    pub kind: FileType,
    /// Permissions with set-id and sticky bits: 12 bits.
    pub mode: u32,
    /// Owner, as Linux shows it; the whole is `owner`.
    pub uid: u32,
    /// Group, as Linux shows it; the whole is `group`.
    pub gid: u32,
    /// Owner as stored: a number in the lower half, its domain's index in the upper (FUID).
    pub owner: u64,
    /// Group as stored.
    pub group: u64,
    /// Bytes; of a directory its entries with `.` and `..`; of a link its target's length.
    pub size: u64,
    /// How many names it has; of a directory 2 and the directories in it.
    pub nlink: u64,
    /// When it was last read.
    pub atime: Time,
    /// When its content last changed.
    pub mtime: Time,
    /// When anything about it last changed.
    pub ctime: Time,
    /// When it was made.
    pub crtime: Time,
    /// The txg that made it.
    pub generation: Txg,
    /// Of a device node the device: major and minor.
    pub rdev: (u32, u32),
    /// Flags as stored: [`ondisk::znode::flag`].
    pub flags: u64,
    /// The project that it is counted in; 0 by default.
    pub project_id: u64,
    /// The directory that it is in, or one of them.
    pub parent: ObjectId,
    /// The hidden directory of its extended attributes; 0 if it has none.
    pub xattr_dir: ObjectId,
}

/// The bit of a znode's flags that the first flag of [`FileFlags`] has.
const FILE_FLAGS_SHIFT: u32 = 32;

/// The bits of a znode's flags that stand for these flags.
pub(crate) fn to_znode_flags(flags: FileFlags) -> u64 {
    u64::from(flags.bits()) << FILE_FLAGS_SHIFT
}

/// The flags that a znode's flags stand for.
pub(crate) fn from_znode_flags(flags: u64) -> FileFlags {
    FileFlags::from_bits((flags >> FILE_FLAGS_SHIFT) as u32)
}

impl ZnodeAttributes {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Whether the NFSv4 ACL of the file is trivial: it allows exactly what the mode allows.
    pub fn has_trivial_acl(&self) -> bool {
        self.flags & flag::ACL_TRIVIAL != 0
    }

    /// The flags that file protocols show.
    pub fn file_flags(&self) -> FileFlags {
        from_znode_flags(self.flags)
    }

    pub(crate) fn set_mode(&mut self, mode: u64) {
        self.kind = FileType::from_mode((mode & 0xffff) as u32);
        self.mode = (mode & 0o7777) as u32;
    }

    pub(crate) fn set_owner(&mut self, owner: u64) {
        (self.owner, self.uid) = (owner, low_u32(owner));
    }

    pub(crate) fn set_group(&mut self, group: u64) {
        (self.group, self.gid) = (group, low_u32(group));
    }

    /// Empty attributes, of a file that the log creates.
    pub(crate) fn empty() -> Self {
        Self {
            kind: FileType::File,
            mode: 0,
            uid: 0,
            gid: 0,
            owner: 0,
            group: 0,
            size: 0,
            nlink: 1,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            crtime: Time::default(),
            generation: Txg::ZERO,
            rdev: (0, 0),
            flags: 0,
            project_id: 0,
            parent: ObjectId::default(),
            xattr_dir: ObjectId::default(),
        }
    }

    /// Of a file system's object, from its bonus buffer and its spill block.
    pub(crate) fn from_dnode(
        dnode: &Dnode,
        spill: &dyn Fn() -> dmu::Result<Option<Block>>,
        schema: &SaSchema,
    ) -> Result<Self, AttributeError> {
        let read = match dnode.bonus_kind {
            ObjectType::SA => Self::from_sa(dnode, spill, schema)?,
            ObjectType::ZNODE => Self::from_znode(&read_znode(dnode)?),
            _ => return Err(AttributeError::Rule("a file must have attributes")),
        };
        if read.size > MAX_FILE_SIZE {
            return Err(AttributeError::Rule("a file has less than 2^63 bytes"));
        }
        Ok(read)
    }

    fn from_znode(znode: &Znode) -> Self {
        let mut out = Self {
            size: znode.size,
            nlink: znode.links,
            atime: znode.atime,
            mtime: znode.mtime,
            ctime: znode.ctime,
            crtime: znode.crtime,
            generation: Txg::new(znode.gen_txg),
            rdev: device(znode.rdev),
            flags: znode.flags,
            parent: ObjectId::new(znode.parent),
            xattr_dir: ObjectId::new(znode.xattr),
            ..Self::empty()
        };
        out.set_mode(znode.mode);
        out.set_owner(znode.uid);
        out.set_group(znode.gid);
        out
    }

    fn from_sa(
        dnode: &Dnode,
        spill: &dyn Fn() -> dmu::Result<Option<Block>>,
        schema: &SaSchema,
    ) -> Result<Self, AttributeError> {
        let bonus = schema.parse_attributes(&dnode.bonus)?;
        let mut out = Self::empty();
        let found = out.read_sa(&bonus)?;
        // attributes that do not fit the bonus are in the spill block
        if !(found.has_mode && found.has_optional)
            && let Some(block) = spill()?
        {
            let spill = schema.parse_attributes(&block)?;
            let more = out.read_sa(&spill)?;
            if found.has_mode || more.has_mode {
                return Ok(out);
            }
        }
        if found.has_mode { Ok(out) } else { Err(AttributeError::Rule("a file must have a mode")) }
    }

    fn read_sa(&mut self, from: &sa::Attributes<'_>) -> Result<SaPresence, AttributeError> {
        let mut found = SaPresence::default();
        if let Some(mode) = from.word(Attribute::Mode)? {
            self.set_mode(mode);
            found.has_mode = true;
        }
        let words = |attribute| from.word(attribute);
        set_if_some(&mut self.size, words(Attribute::Size)?);
        set_if_some(&mut self.nlink, words(Attribute::Links)?);
        set_if_some(&mut self.flags, words(Attribute::Flags)?);
        set_if_some(&mut self.generation, words(Attribute::Gen)?.map(Txg::new));
        set_if_some(&mut self.parent, words(Attribute::Parent)?.map(ObjectId::new));
        if let Some(owner) = words(Attribute::Uid)? {
            self.set_owner(owner);
        }
        if let Some(group) = words(Attribute::Gid)? {
            self.set_group(group);
        }
        let time =
            |attribute| Ok::<_, AttributeError>(from.words(attribute)?.map(Time::from_words));
        set_if_some(&mut self.atime, time(Attribute::Atime)?);
        set_if_some(&mut self.mtime, time(Attribute::Mtime)?);
        set_if_some(&mut self.ctime, time(Attribute::Ctime)?);
        set_if_some(&mut self.crtime, time(Attribute::Crtime)?);
        let is_device = matches!(self.kind, FileType::CharDevice | FileType::BlockDevice);
        let has_device =
            set_if_some(&mut self.rdev, words(Attribute::Rdev)?.map(device)) || !is_device;
        let has_project = set_if_some(&mut self.project_id, words(Attribute::Projid)?)
            || self.flags & flag::PROJID == 0;
        let has_xattr =
            set_if_some(&mut self.xattr_dir, words(Attribute::Xattr)?.map(ObjectId::new));
        found.has_optional = has_device && has_project && has_xattr;
        Ok(found)
    }
}

/// The attributes of a buffer that may also be in the other one.
#[derive(Clone, Copy, Default)]
struct SaPresence {
    has_mode: bool,
    /// All that not every file has, or needs none of it.
    has_optional: bool,
}

fn set_if_some<T>(slot: &mut T, value: Option<T>) -> bool {
    let is_there = value.is_some();
    if let Some(value) = value {
        *slot = value;
    }
    is_there
}

fn low_u32(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The legacy znode in an object's bonus buffer.
pub(crate) fn read_znode(dnode: &Dnode) -> Result<Znode, AttributeError> {
    Ok(Znode::read(&mut Reader::new("znode", &dnode.bonus, dnode.order))?)
}

/// A variable attribute of an object, from the bonus buffer or the spill block.
pub(crate) fn sa_bytes(
    object: &Object,
    schema: &SaSchema,
    attribute: Attribute,
) -> Result<Option<(Vec<u8>, Order)>, AttributeError> {
    if object.dnode().bonus_kind != ObjectType::SA {
        return Ok(None);
    }
    let bonus = schema.parse_attributes(object.bonus())?;
    if let Some(bytes) = bonus.bytes(attribute)? {
        return Ok(Some((bytes.to_vec(), bonus.order())));
    }
    let Some(block) = object.spill()? else { return Ok(None) };
    let spill = schema.parse_attributes(&block)?;
    Ok(spill.bytes(attribute)?.map(|bytes| (bytes.to_vec(), spill.order())))
}

/// An error in a file's attributes, before the file is added to it.
#[derive(Debug)]
pub(crate) enum AttributeError {
    Format(ondisk::Error),
    Rule(&'static str),
    Dmu(dmu::Error),
}

impl From<ondisk::Error> for AttributeError {
    fn from(why: ondisk::Error) -> Self {
        Self::Format(why)
    }
}

impl From<dmu::Error> for AttributeError {
    fn from(why: dmu::Error) -> Self {
        Self::Dmu(why)
    }
}
