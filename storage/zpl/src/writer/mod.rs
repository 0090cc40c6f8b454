//! Changes files with the semantics of POSIX.
//!
//! A [`FsWriter`] belongs to one file system on a live object set. Each operation locks the files
//! that it changes ([`crate::Fs`] reads under the same locks), plans the change, begins a
//! transaction, changes, adds the record for the intent log, and ends the transaction. The caller
//! checks permissions, except for the files' own flags.
//!
//! A file that loses its last name is freed at once if it has no holds ([`FsWriter::hold_file`]),
//! or else goes to the unlinked set until the last hold is released.

mod acl;
mod clone;
mod content;
mod create;
mod drain;
mod name_changes;
mod pending_file;
mod remove;
mod rename;
mod replay;
mod rewrite;
mod set_attributes;
mod xattr;
mod xattr_dir;

use std::collections::HashMap;
use std::sync::Arc;

use ondisk::sa::Value;
use parking_lot::{Mutex, RwLock};
use posix::acl::AclPolicy;
use units::ObjectId;
use zap::Zap;

use crate::dir::{MAX_LONG_NAME, MAX_SHORT_NAME};
use crate::sa_table::SaTable;
use crate::{Error, Fs, Result, SpaceNeed, Transactions, ZnodeAttributes, sa_layouts};
pub(crate) use content::first_block_size;
use pending_file::PendingFile;
pub use replay::is_repeatable;
pub use rewrite::RewrittenRange;

/// When reading a file changes its atime (the property atime, and relatime).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AtimeMode {
    /// Never.
    Off,
    /// Always.
    On,
    /// Where it is not newer than the file's other times, or a day old.
    #[default]
    Relative,
}

/// Properties of the dataset that control writes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "features and properties, each on its own")]
pub struct WriteSettings {
    /// The most bytes of a file's block (recordsize): a power of two.
    pub record_size: u32,
    /// Slots of 512 bytes that a new file's dnode takes (dnodesize).
    pub dnode_slots: u8,
    /// Extended attributes are kept with the other attributes where they fit (xattr=sa).
    pub xattr_sa: bool,
    /// Names may have up to 1023 bytes (longname).
    pub has_long_names: bool,
    /// Files have a project, as the pool has the feature project_quota.
    pub has_projects: bool,
    /// Changes of SA attributes may be logged, because the pool has the feature zilsaxattr; else an
    /// fsync waits for their txg.
    pub logs_sa_xattrs: bool,
    /// When reading a file changes its atime.
    pub atime: AtimeMode,
    /// How NFSv4 ACLs are inherited and changed (acltype, aclinherit, aclmode).
    pub acl_policy: AclPolicy,
}

impl Default for WriteSettings {
    fn default() -> Self {
        Self {
            record_size: 128 << 10,
            dnode_slots: 1,
            xattr_sa: true,
            has_long_names: false,
            has_projects: true,
            logs_sa_xattrs: true,
            atime: AtimeMode::default(),
            acl_policy: AclPolicy::default(),
        }
    }
}

/// Something that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreatedInode {
    /// The inode number.
    pub id: ObjectId,
    /// Its attributes.
    pub attributes: ZnodeAttributes,
}

/// Changes files.
pub struct FsWriter {
    fs: Fs,
    transactions: Arc<dyn Transactions>,
    settings: RwLock<WriteSettings>,
    holds: Mutex<HashMap<ObjectId, u64>>,
}

/// The space of an operation on one or two files: their attributes, a leaf or two of a table.
const SMALL_OP_BYTES: u64 = 128 << 10;

impl FsWriter {
    /// A writer for a file system.
    pub fn new(fs: Fs, begin: Arc<dyn Transactions>, settings: WriteSettings) -> Result<Self> {
        if !fs.objset().is_writable() {
            return Err(Error::ReadOnly { objset: fs.objset().id() });
        }
        let (settings, held) = (RwLock::new(settings), Mutex::default());
        Ok(Self { fs, transactions: begin, settings, holds: held })
    }

    /// The file system.
    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    /// Sets the properties that control writes.
    pub fn settings(&self) -> WriteSettings {
        self.settings.read().clone()
    }

    /// How NFSv4 ACLs are treated. A file system that was opened with POSIX ACLs has no others.
    pub fn acl_policy(&self) -> AclPolicy {
        let policy = self.settings.read().acl_policy;
        let has_nfs4_acls = policy.has_nfs4_acls && !self.fs.options().posix_acls;
        AclPolicy { has_nfs4_acls, ..policy }
    }

    /// Steers otherwise from now on.
    pub fn set_settings(&self, settings: WriteSettings) {
        *self.settings.write() = settings;
    }

    /// Keeps a file although it may lose its last name: it is open. Fails if it is gone already.
    pub fn hold_file(&self, id: ObjectId) -> Result<()> {
        let _guard = self.fs.inner.read_lock(id);
        self.fs.inner.attributes(id)?;
        let mut held = self.holds.lock();
        let count = held.entry(id).or_default();
        *count += 1;
        Ok(())
    }

    fn is_held(&self, id: ObjectId) -> bool {
        self.holds.lock().contains_key(&id)
    }

    /// Gives back a hold; with the last one a file without a name goes.
    pub fn release_file(&self, id: ObjectId) -> Result<()> {
        let mut held = self.holds.lock();
        match held.get_mut(&id) {
            Some(count) if *count > 1 => {
                *count -= 1;
                return Ok(());
            }
            _ => held.remove(&id),
        };
        drop(held);
        let guard = self.fs.inner.read_lock(id);
        let links = self.fs.inner.attributes(id)?.nlink;
        drop(guard);
        if links == 0 {
            self.try_free_unlinked(id);
        }
        Ok(())
    }

    fn objset_id(&self) -> units::ObjsetId {
        self.fs.objset().id()
    }

    fn invalid_error(&self, object: ObjectId, rule: &'static str) -> Error {
        Error::Invalid { objset: self.objset_id(), object, rule }
    }

    fn not_permitted(&self, object: ObjectId, rule: &'static str) -> Error {
        Error::NotPermitted { objset: self.objset_id(), object, rule }
    }

    /// Whether one of these flags of a file forbids an operation.
    fn is_forbidden(&self, sheet: &SaTable, flags: u64) -> bool {
        sheet.has_flag(flags) && !self.transactions.is_replay()
    }

    /// A file's attributes, to be changed.
    fn load_pending(&self, id: ObjectId) -> Result<PendingFile> {
        let inner = &self.fs.inner;
        let object = inner.objset.object(id)?;
        let sheet = SaTable::load(&object, &inner.schema);
        Ok(PendingFile { sa: sheet.map_err(|fault| inner.attribute_error(id, fault))?, object })
    }

    /// Sees to it that the attributes can be stored.
    fn resolve_layouts(&self, sheet: &mut SaTable) -> Result<()> {
        let inner = &self.fs.inner;
        let need =
            SpaceNeed { bytes: SMALL_OP_BYTES, is_preparation: true, ..SpaceNeed::default() };
        let mut begin = || self.transactions.begin_tx(&need);
        let mut add = |values: &[Value]| {
            let salt = self.transactions.random_u64();
            sa_layouts::add_layout(&inner.objset, &inner.schema, salt, &mut begin, values)
        };
        sheet.resolve_layouts(&mut add)
    }

    /// The table of a directory, or of the unlinked files.
    fn open_zap(&self, dir: ObjectId) -> Result<Zap> {
        self.fs.inner.open_zap(dir)
    }

    /// A name as it is stored, and its object.
    fn lookup_entry(&self, dir: ObjectId, name: &[u8]) -> Result<Option<(Vec<u8>, ObjectId)>> {
        self.fs.inner.require_directory(dir, &self.fs.inner.attributes(dir)?)?;
        self.fs.inner.lookup_stored_name(dir, name)
    }

    /// The same of a name that must be there.
    fn require_entry(&self, dir: ObjectId, name: &[u8]) -> Result<(Vec<u8>, ObjectId)> {
        let absent = || Error::NoEntry { objset: self.objset_id(), object: dir };
        self.lookup_entry(dir, name)?.ok_or_else(absent)
    }

    /// The most bytes of a name.
    pub fn max_name_len(&self) -> usize {
        if self.settings.read().has_long_names { MAX_LONG_NAME } else { MAX_SHORT_NAME }
    }

    /// Whether a name can be one.
    fn check_name(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        let (objset, most) = (self.objset_id(), self.max_name_len());
        if name.len() > most {
            return Err(Error::NameTooLong { objset, max_len: most });
        }
        if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return Err(self.invalid_error(dir, "a name has no 0 and no /, and is not . or .."));
        }
        if self.fs.master().utf8_only && std::str::from_utf8(name).is_err() {
            return Err(Error::NameNotUtf8 { objset });
        }
        self.fs.inner.check_normalized_length(name)
    }
}
