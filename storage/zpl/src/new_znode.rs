//! The attributes of something new.

use std::sync::Arc;

use ondisk::acl::{self, ZnodeAcl};
use ondisk::sa::Attribute;
use ondisk::znode::flag;
use ondisk::{ObjectType, Order};
use posix::{FileType, Time, acl::Ace, acl::nfs4};
use units::{ObjectId, Txg};

use crate::ZnodeAttributes;
use crate::sa_schema::SaSchema;
use crate::sa_table::SaTable;

/// The version of file systems from which on attributes are laid out by tables.
pub(crate) const SA_VERSION: u64 = 5;
/// The version from which on owners have domains, and ACLs entries of their own size.
pub(crate) const FUID_VERSION: u64 = 3;

/// The facts about a new file before its transaction begins.
#[derive(Clone, Debug)]
pub(crate) struct NewZnode {
    /// Type and permissions.
    pub(crate) mode: u32,
    pub(crate) owner: u64,
    pub(crate) group: u64,
    pub(crate) parent: ObjectId,
    pub(crate) now: Time,
    pub(crate) nlink: u64,
    /// Flags besides those that every new file has.
    pub(crate) flags: u64,
    /// Its project, if its type has one.
    pub(crate) project_id: Option<u64>,
    pub(crate) rdev: u64,
    /// Of a symbolic link: where it points.
    pub(crate) target: Vec<u8>,
}

impl NewZnode {
    /// A directory that begins a file system, or holds extended attributes.
    pub(crate) fn directory(permissions: u32, (owner, group): (u64, u64), now: Time) -> Self {
        Self {
            mode: u32::from(FileType::Directory.type_bits()) << 12 | permissions,
            owner,
            group,
            parent: ObjectId::default(),
            now,
            nlink: 2,
            flags: 0,
            project_id: None,
            rdev: 0,
            target: Vec::new(),
        }
    }

    /// Its type.
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_mode(self.mode)
    }

    fn initial_flags(&self, version: u64, executable: bool) -> u64 {
        let mut flags = self.flags | flag::ACL_TRIVIAL;
        if version >= FUID_VERSION {
            flags |= flag::ARCHIVE | flag::AV_MODIFIED;
        }
        if self.project_id.is_some() && version >= SA_VERSION {
            flags |= flag::PROJID;
        }
        if self.kind() == FileType::Directory {
            flags |= flag::ACL_AUTO_INHERIT;
        }
        if executable {
            flags |= flag::NO_EXECS_DENIED;
        }
        flags
    }

    /// Its attributes, but for the txg that makes it.
    pub(crate) fn sa_table(&self, schema: &Arc<SaSchema>, slots: u8) -> SaTable {
        let version = schema.version;
        let is_directory = self.kind() == FileType::Directory;
        let entries = nfs4::acl_from_mode(self.mode, is_directory);
        let (_, executable) = nfs4::mode_from_acl(&entries, self.mode, (self.owner, self.group));
        let flags = self.initial_flags(version, executable);
        if version < SA_VERSION {
            return self.legacy_table(schema, flags, &entries);
        }
        let mut sheet = SaTable::new(schema, ObjectType::SA, slots);
        let mut word = |attribute, word| sheet.set_word(attribute, word);
        word(Attribute::Mode, self.mode.into());
        word(Attribute::Size, self.size());
        word(Attribute::Gen, 0);
        word(Attribute::Uid, self.owner);
        word(Attribute::Gid, self.group);
        word(Attribute::Parent, self.parent.get());
        word(Attribute::Flags, flags);
        for attribute in TIME_ATTRIBUTES {
            sheet.set_time(attribute, self.now);
        }
        sheet.set_word(Attribute::Links, self.nlink);
        if let Some(project) = self.project_id {
            sheet.set_word(Attribute::Projid, project);
        }
        if matches!(self.kind(), FileType::CharDevice | FileType::BlockDevice) {
            sheet.set_word(Attribute::Rdev, self.rdev);
        }
        let count = units::to_u64(entries.len());
        sheet.set_word(Attribute::DaclCount, count);
        sheet.set(Attribute::DaclAces, acl::encode(&entries));
        if self.kind() == FileType::Symlink {
            sheet.set(Attribute::Symlink, self.target.clone());
        }
        sheet
    }

    fn size(&self) -> u64 {
        match self.kind() {
            FileType::Directory => 2,
            FileType::Symlink => units::to_u64(self.target.len()),
            _ => 0,
        }
    }

    fn legacy_table(&self, schema: &Arc<SaSchema>, flags: u64, entries: &[Ace]) -> SaTable {
        let mut attributes = ZnodeAttributes::empty();
        attributes.set_mode(self.mode.into());
        attributes.set_owner(self.owner);
        attributes.set_group(self.group);
        (attributes.size, attributes.nlink, attributes.flags) = (self.size(), self.nlink, flags);
        (attributes.parent, attributes.generation) = (self.parent, Txg::ZERO);
        let acl = to_legacy_acl(schema.version, entries);
        SaTable::new_znode(schema, &attributes, self.now, self.rdev, &acl)
    }
}

/// The times in their order.
pub(crate) const TIME_ATTRIBUTES: [Attribute; 4] =
    [Attribute::Atime, Attribute::Mtime, Attribute::Ctime, Attribute::Crtime];

/// The entries as a file system of this version has them: the old kind is 12 bytes each.
pub(crate) fn encode_for_version(version: u64, entries: &[Ace]) -> Vec<u8> {
    if version >= FUID_VERSION { acl::encode(entries) } else { acl::encode_old(entries) }
}

/// An ACL in the form of a legacy znode. A trivial ACL always fits.
pub(crate) fn to_legacy_acl(version: u64, entries: &[Ace]) -> ZnodeAcl {
    let is_new = version >= FUID_VERSION;
    let bytes = encode_for_version(version, entries);
    let count = units::narrow::<u16>(entries.len());
    let size = units::narrow::<u32>(bytes.len());
    let mut data = [0; 72];
    assert!(bytes.len() <= data.len(), "callers refuse what does not fit");
    for (to, from) in data.iter_mut().zip(&bytes) {
        *to = *from;
    }
    // the first version counts entries where later ones count bytes
    let (size, count) =
        if is_new { (size, count) } else { (count.into(), units::narrow::<u16>(size)) };
    ZnodeAcl { external: 0, size, version: is_new.into(), count, data, order: Order::Little }
}

#[cfg(test)]
mod tests {
    use super::{encode_for_version, to_legacy_acl};
    use posix::acl::nfs4;

    #[test]
    fn trivial_acls_fit_into_a_legacy_znode() {
        for version in 1..=4 {
            for mode in 0..=0o777 {
                for is_directory in [false, true] {
                    let entries = nfs4::acl_from_mode(mode, is_directory);
                    let bytes = encode_for_version(version, &entries);
                    let acl = to_legacy_acl(version, &entries);
                    assert!(acl.data.starts_with(&bytes), "version {version}, mode {mode:o}");
                }
            }
        }
        let longest = nfs4::acl_from_mode(0o007, false);
        let twice = [longest.as_slice(), longest.as_slice()].concat();
        assert!(encode_for_version(2, &twice).len() > 72, "the old kind takes more room");
    }
}
