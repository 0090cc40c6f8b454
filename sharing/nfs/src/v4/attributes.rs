//! Attributes of NFSv4: from files to their values, and from values to what is set.

use posix::acl::{Ace, AceWho};
use posix::{Attributes, SetAttributes, SetTime};
use vfs::Limits;

use crate::attributes::{NodeAttributes, from_v4_time, to_v4_time, type_number};
use crate::node::{FileNode, Node};
use crate::request::{Request, Result};
use crate::v3::files::{MAX_FILE_SIZE, space, total_space};
use crate::wire::status::Status;
use crate::wire::v4::{self, AclEntry, Bitmap, attr};
use crate::wire::xdr::Writer;

/// The attributes that every file has.
const SUPPORTED: Bitmap = Bitmap::of(&[
    attr::SUPPORTED_ATTRS,
    attr::TYPE,
    attr::FH_EXPIRE_TYPE,
    attr::CHANGE,
    attr::SIZE,
    attr::LINK_SUPPORT,
    attr::SYMLINK_SUPPORT,
    attr::NAMED_ATTR,
    attr::FSID,
    attr::UNIQUE_HANDLES,
    attr::LEASE_TIME,
    attr::RDATTR_ERROR,
    attr::ACL,
    attr::ACLSUPPORT,
    attr::CANSETTIME,
    attr::CASE_INSENSITIVE,
    attr::CASE_PRESERVING,
    attr::CHOWN_RESTRICTED,
    attr::FILEHANDLE,
    attr::FILEID,
    attr::HOMOGENEOUS,
    attr::MAXFILESIZE,
    attr::MAXLINK,
    attr::MAXNAME,
    attr::MAXREAD,
    attr::MAXWRITE,
    attr::MODE,
    attr::NO_TRUNC,
    attr::NUMLINKS,
    attr::OWNER,
    attr::OWNER_GROUP,
    attr::RAWDEV,
    attr::SPACE_AVAIL,
    attr::SPACE_FREE,
    attr::SPACE_TOTAL,
    attr::SPACE_USED,
    attr::TIME_ACCESS,
    attr::TIME_ACCESS_SET,
    attr::TIME_CREATE,
    attr::TIME_DELTA,
    attr::TIME_METADATA,
    attr::TIME_MODIFY,
    attr::TIME_MODIFY_SET,
    attr::MOUNTED_ON_FILEID,
    attr::SUPPATTR_EXCLCREAT,
]);
/// Those that minor version 2 adds.
const SUPPORTED_V42: Bitmap = Bitmap::of(&[
    attr::CLONE_BLKSIZE,
    attr::CHANGE_ATTR_TYPE,
    attr::MODE_UMASK,
    attr::XATTR_SUPPORT,
]);
/// Attributes that can only be set.
const WRITE_ONLY: Bitmap =
    Bitmap::of(&[attr::TIME_ACCESS_SET, attr::TIME_MODIFY_SET, attr::MODE_UMASK]);
/// Attributes of a file system's space.
const SPACE: Bitmap = Bitmap::of(&[attr::SPACE_AVAIL, attr::SPACE_FREE, attr::SPACE_TOTAL]);
/// ACLs have entries that allow and that deny.
const ACL_SUPPORT: u32 = 3;
/// The change attribute is a time (RFC 7862, section 12.2.3).
const CHANGE_IS_TIME_METADATA: u32 = 4;
/// The flag of an entry for a group that has a name.
const GROUP_FLAG: u32 = 0x40;
const MAX_LINKS: u32 = i32::MAX.cast_unsigned();
/// Bytes of a block that can be cloned by itself: that of a file is a multiple.
const CLONE_BLOCK: u32 = 512;

/// Attributes that a client asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestedAttributes {
    pub(super) bitmap: Bitmap,
    pub(super) minor_version: u32,
}

/// A file whose attributes are written.
struct Subject<'a> {
    request: &'a Request<'a>,
    node: &'a Node,
    attributes: NodeAttributes,
    mounted_on: Option<u64>,
    minor_version: u32,
}

/// The attributes that a minor version has.
fn supported(minor_version: u32) -> Bitmap {
    match minor_version {
        0 => SUPPORTED.without(&Bitmap::of(&[attr::SUPPATTR_EXCLCREAT])),
        1 => SUPPORTED,
        _ => SUPPORTED.union(&SUPPORTED_V42),
    }
}

impl RequestedAttributes {
    /// Writes the attributes of a file.
    pub(super) fn write(
        &self,
        request: &Request<'_>,
        node: &Node,
        writer: &mut Writer,
    ) -> Result<()> {
        self.write_with(request, node, None, writer)
    }

    /// Writes the attributes of an entry of a directory. `fileid` is that of the entry itself, which differs from that
    /// of its file at a crossing.
    pub(super) fn write_entry(
        &self,
        request: &Request<'_>,
        node: &Result<Node>,
        fileid: u64,
        writer: &mut Writer,
    ) -> Result<()> {
        let written = match node {
            Ok(node) => {
                let start = writer.len();
                let written = self.write_with(request, node, Some(fileid), writer);
                written.inspect_err(|_| writer.truncate(start))
            }
            Err(status) => Err(*status),
        };
        match written {
            Err(status) if self.bitmap.has(attr::RDATTR_ERROR) => {
                Bitmap::of(&[attr::RDATTR_ERROR]).write(writer);
                writer.count(4);
                writer.u32(status.number());
                Ok(())
            }
            written => written,
        }
    }

    fn write_with(
        &self,
        request: &Request<'_>,
        node: &Node,
        mounted_on: Option<u64>,
        writer: &mut Writer,
    ) -> Result<()> {
        let attributes = request.attributes(node)?;
        let minor_version = self.minor_version;
        let subject = Subject { request, node, attributes, mounted_on, minor_version };
        let known = supported(minor_version).without(&WRITE_ONLY);
        let written = self.bitmap.intersection(&known);
        written.write(writer);
        let length = writer.placeholder();
        let space = written.intersection(&SPACE);
        let space = if space.is_empty() { None } else { Some(space_of(&subject)?) };
        for attribute in written.iter() {
            match (attribute, space) {
                (attr::SPACE_AVAIL | attr::SPACE_FREE, Some((_, free))) => writer.u64(free),
                (attr::SPACE_TOTAL, Some((total, _))) => writer.u64(total),
                _ => subject.write_value(attribute, writer)?,
            }
        }
        let size = u32::try_from(writer.len_behind(length)).expect("attributes below 4 GiB");
        writer.set(length, size);
        Ok(())
    }
}

/// Bytes of the dataset, and how many are free.
fn space_of(subject: &Subject<'_>) -> Result<(u64, u64)> {
    let space = space(subject.request, subject.node)?;
    Ok((total_space(space), space.available))
}

impl Subject<'_> {
    fn write_value(&self, attribute: u32, writer: &mut Writer) -> Result<()> {
        let stat = &self.attributes.stat;
        match attribute {
            attr::TYPE => writer.u32(type_number(stat.kind)),
            attr::CHANGE => writer.u64(self.attributes.change),
            attr::SIZE => writer.u64(stat.size),
            attr::FSID => {
                writer.u64(self.attributes.fsid);
                writer.u64(0);
            }
            attr::FILEHANDLE => writer.opaque(&self.request.handle(self.node)?),
            attr::FILEID => writer.u64(self.attributes.fileid),
            attr::MODE => writer.u32(stat.mode),
            attr::NUMLINKS => writer.u32(self.attributes.nlink()),
            attr::OWNER => writer.opaque(stat.uid.to_string().as_bytes()),
            attr::OWNER_GROUP => writer.opaque(stat.gid.to_string().as_bytes()),
            attr::RAWDEV => {
                writer.u32(stat.rdev.0);
                writer.u32(stat.rdev.1);
            }
            attr::SPACE_USED => writer.u64(stat.allocated),
            attr::TIME_ACCESS => to_v4_time(stat.atime).write(writer),
            attr::TIME_CREATE => to_v4_time(stat.crtime).write(writer),
            attr::TIME_METADATA => to_v4_time(stat.ctime).write(writer),
            attr::TIME_MODIFY => to_v4_time(stat.mtime).write(writer),
            attr::MOUNTED_ON_FILEID => {
                let id = self.mounted_on.or_else(|| self.request.mounted_on_fileid(self.node));
                writer.u64(id.unwrap_or(self.attributes.fileid));
            }
            attr::ACL => write_acl(&self.acl(stat)?, writer),
            attr::RDATTR_ERROR => writer.u32(0),
            other => self.write_filesystem_value(other, writer)?,
        }
        Ok(())
    }

    /// Writes an attribute that all files of a file system share.
    fn write_filesystem_value(&self, attribute: u32, writer: &mut Writer) -> Result<()> {
        let limits = self.limits();
        let options = &self.request.core.options;
        match attribute {
            attr::SUPPORTED_ATTRS => supported(self.minor_version).write(writer),
            // handles are persistent
            attr::FH_EXPIRE_TYPE => writer.u32(0),
            attr::LINK_SUPPORT
            | attr::SYMLINK_SUPPORT
            | attr::UNIQUE_HANDLES
            | attr::CANSETTIME
            | attr::CASE_PRESERVING
            | attr::CHOWN_RESTRICTED
            | attr::HOMOGENEOUS
            | attr::NO_TRUNC => writer.bool(true),
            attr::XATTR_SUPPORT => writer.bool(matches!(self.node, Node::File(_))),
            attr::NAMED_ATTR => writer.bool(false),
            attr::CASE_INSENSITIVE => writer.bool(!limits.has_exact_names),
            attr::LEASE_TIME => {
                let seconds = u32::try_from(options.lease.as_secs());
                writer.u32(seconds.expect("the options were checked"));
            }
            attr::ACLSUPPORT => writer.u32(if limits.has_nfs4_acls { ACL_SUPPORT } else { 0 }),
            attr::MAXFILESIZE => writer.u64(MAX_FILE_SIZE),
            attr::MAXLINK => writer.u32(MAX_LINKS),
            attr::MAXNAME => writer.count(limits.max_name_len),
            attr::MAXREAD | attr::MAXWRITE => {
                writer.u64(u64::try_from(options.max_io_bytes).expect("a limit of 16 MiB"));
            }
            attr::TIME_DELTA => v4::Time { seconds: 0, nanoseconds: 1 }.write(writer),
            attr::SUPPATTR_EXCLCREAT => exclusive_attributes().write(writer),
            attr::CLONE_BLKSIZE => writer.u32(CLONE_BLOCK),
            attr::CHANGE_ATTR_TYPE => writer.u32(CHANGE_IS_TIME_METADATA),
            _ => return Err(Status::SERVERFAULT),
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        match self.node {
            Node::File(file) => file.export.filesystem.limits(),
            Node::Pseudo(_) => Limits {
                max_name_len: 255,
                has_exact_names: true,
                has_posix_acls: false,
                has_nfs4_acls: false,
                is_read_only: true,
            },
        }
    }

    /// The ACL; that of the mode if the file has none of its own.
    fn acl(&self, stat: &Attributes) -> Result<Vec<Ace>> {
        match self.node {
            Node::File(file) => {
                let context = self.request.context(file);
                Ok(file.export.filesystem.nfs4_acl(&context, file.ino)?)
            }
            Node::Pseudo(_) => {
                Ok(posix::acl::nfs4::acl_from_mode(stat.mode, stat.kind.is_directory()))
            }
        }
    }
}

/// Attributes that an exclusive create can set. The times hold its verifier.
fn exclusive_attributes() -> Bitmap {
    let times = [attr::TIME_ACCESS_SET, attr::TIME_MODIFY_SET];
    v4::SetAttributes::SETTABLE.without(&Bitmap::of(&times))
}

fn write_acl(entries: &[Ace], writer: &mut Writer) {
    writer.count(entries.len());
    for entry in entries {
        let (who, group) = match entry.who {
            AceWho::Owner => ("OWNER@".to_owned(), 0),
            AceWho::Group => ("GROUP@".to_owned(), GROUP_FLAG),
            AceWho::Everyone => ("EVERYONE@".to_owned(), 0),
            AceWho::User(id) => (id.to_string(), 0),
            AceWho::NamedGroup(id) => (id.to_string(), GROUP_FLAG),
        };
        let (kind, flags) = (u32::from(entry.kind), u32::from(entry.flags) | group);
        AclEntry { kind, flags, mask: entry.mask, who: who.into_bytes() }.write(writer);
    }
}

/// The entries of an ACL that a client sets.
pub(super) fn to_acl(entries: &[AclEntry]) -> Result<Vec<Ace>> {
    let convert = |entry: &AclEntry| {
        let is_group = entry.flags & GROUP_FLAG != 0;
        let who = match &entry.who[..] {
            b"OWNER@" => AceWho::Owner,
            b"GROUP@" => AceWho::Group,
            b"EVERYONE@" => AceWho::Everyone,
            name if is_group => AceWho::NamedGroup(parse_id(name)?.into()),
            name => AceWho::User(parse_id(name)?.into()),
        };
        let kind = u16::try_from(entry.kind).ok().filter(|kind| *kind <= 1);
        let kind = kind.ok_or(Status::ATTRNOTSUPP)?;
        let flags = u16::try_from(entry.flags & !GROUP_FLAG).map_err(|_| Status::INVAL)?;
        Ok(Ace { who, kind, flags, mask: entry.mask, object: None })
    };
    entries.iter().map(convert).collect()
}

/// The number of a user or group. Names belong to domains that the server does not know.
fn parse_id(name: &[u8]) -> Result<u32> {
    let digits = name.split(|byte| *byte == b'@').next().unwrap_or_default();
    let text = std::str::from_utf8(digits).map_err(|_| Status::BADOWNER)?;
    if name.is_empty() {
        return Err(Status::INVAL);
    }
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Status::BADOWNER);
    }
    text.parse().map_err(|_| Status::BADOWNER)
}

/// The attributes to set, without the ACL.
pub(super) fn to_set_attributes(set: &v4::SetAttributes) -> Result<SetAttributes> {
    if set.has_unsupported {
        let is_read_only = set.set.without(&v4::SetAttributes::SETTABLE).intersection(&SUPPORTED);
        return Err(if is_read_only.is_empty() { Status::ATTRNOTSUPP } else { Status::INVAL });
    }
    let time = |time| match time {
        v4::SetTime::Now => Ok(SetTime::Now),
        v4::SetTime::At(time) if time.nanoseconds >= 1_000_000_000 => Err(Status::INVAL),
        v4::SetTime::At(time) => Ok(SetTime::At(from_v4_time(time))),
    };
    if set.mode.is_some_and(|mode| mode & !posix::mode::PERMISSIONS != 0) {
        return Err(Status::INVAL);
    }
    Ok(SetAttributes {
        mode: set.mode,
        uid: set.owner.as_deref().map(parse_id).transpose()?,
        gid: set.group.as_deref().map(parse_id).transpose()?,
        size: set.size,
        atime: set.atime.map(time).transpose()?,
        mtime: set.mtime.map(time).transpose()?,
        crtime: set.crtime.map(from_v4_time),
        ..SetAttributes::default()
    })
}

impl Request<'_> {
    /// The inode number of the directory that an export hides: its mount point. None: the node is no crossing.
    fn mounted_on_fileid(&self, node: &Node) -> Option<u64> {
        let path = match node {
            Node::Pseudo(path) => path,
            Node::File(file) if file.is_export_root() => &file.export.path,
            Node::File(_) => return None,
        };
        let above = self.find_path(crate::export::parent(path)?).ok()?;
        Some(self.entry_fileid(&above, path.rsplit('/').next()?))
    }
}

impl super::compound::Compound<'_> {
    /// Sets the ACL that a client wants, if any.
    pub(super) fn set_acl(&self, file: &FileNode, set: &v4::SetAttributes) -> Result<()> {
        let Some(entries) = &set.acl else { return Ok(()) };
        let fs = &file.export.filesystem;
        if !fs.limits().has_nfs4_acls {
            return Err(Status::ATTRNOTSUPP);
        }
        fs.set_nfs4_acl(&self.request.context(file), file.ino, &to_acl(entries)?)?;
        self.request.commit(file)
    }
}
