//! A file that is being changed.

use dmu::Object;
use ondisk::sa::Attribute;
use ondisk::znode::flag;
use posix::{FileType, Time};
use txg::Tx;
use units::ObjectId;

use crate::sa_table::SaTable;
use crate::writer::FsWriter;
use crate::{Error, Result, SpaceNeed, dir};

/// A file and its attributes, not stored yet.
pub(super) struct PendingFile {
    pub(super) object: Object,
    pub(super) sa: SaTable,
}

impl PendingFile {
    pub(super) fn id(&self) -> ObjectId {
        self.object.id()
    }

    pub(super) fn kind(&self) -> FileType {
        self.sa.file_type()
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind() == FileType::Directory
    }

    pub(super) fn store(&mut self, tx: &Tx) -> Result<()> {
        self.sa.store(tx, &self.object)
    }

    pub(super) fn nlink(&self) -> u64 {
        self.sa.word(Attribute::Links)
    }

    pub(super) fn size(&self) -> u64 {
        self.sa.word(Attribute::Size)
    }

    /// A directory below it counts as a link of it.
    pub(super) fn adjust_dir_links(&mut self, kind: FileType, delta: i64) {
        if kind == FileType::Directory {
            self.sa.add_to_word(Attribute::Links, delta);
        }
    }

    /// Its data is charged to these: user, group and project.
    pub(super) fn owner_ids(&self) -> [u64; 3] {
        OWNER_ATTRIBUTES.map(|one| self.sa.word(one))
    }

    /// A change that adds to the usage of the file's owners.
    pub(super) fn quota_need(&self) -> SpaceNeed {
        SpaceNeed { quota_owners: self.owner_ids().map(Some), ..SMALL_NEED }
    }
}

/// A small change of a file without new data: an owner over quota may do it.
pub(super) const SMALL_NEED: SpaceNeed = SpaceNeed {
    bytes: super::SMALL_OP_BYTES,
    block_size: 0,
    cloned_bytes: 0,
    objects: 0,
    frees_space: false,
    freed_blocks: 0,
    quota_owners: [None; 3],
    is_preparation: false,
};

/// User, group and project.
const OWNER_ATTRIBUTES: [Attribute; 3] = [Attribute::Uid, Attribute::Gid, Attribute::Projid];

impl FsWriter {
    /// A directory in which names are to change.
    pub(super) fn load_directory(&self, id: ObjectId) -> Result<PendingFile> {
        let dir = self.load_any_directory(id)?;
        if dir.sa.has_flag(flag::XATTR) {
            return Err(self.invalid_error(id, "it holds extended attributes"));
        }
        Ok(dir)
    }

    /// The same, or one that holds extended attributes.
    pub(super) fn load_any_directory(&self, id: ObjectId) -> Result<PendingFile> {
        let dir = self.load_pending(id)?;
        let (objset, object) = (self.objset_id(), id);
        if !dir.is_directory() {
            return Err(Error::NotDirectory { objset, object });
        }
        if dir.nlink() == 0 {
            return Err(Error::NotFound { objset, object });
        }
        if self.is_forbidden(&dir.sa, flag::IMMUTABLE) {
            return Err(self.not_permitted(id, "the directory is immutable"));
        }
        Ok(dir)
    }

    /// Adds a name to a directory, which is not stored yet.
    pub(super) fn add_dir_entry(
        &self,
        tx: &Tx,
        dir: &mut PendingFile,
        (name, id, kind): (&[u8], ObjectId, FileType),
        now: Time,
    ) -> Result<()> {
        let word = dir::encode_dirent(id, kind, self.fs.master().version);
        self.open_zap(dir.id())?.insert_u64(tx, name, word)?;
        if name.len() > MAX_SHORT_NAME {
            self.transactions.activate_long_names(tx);
        }
        dir.sa.add_to_word(Attribute::Size, 1);
        dir.adjust_dir_links(kind, 1);
        dir.sa.touch_mtime(now);
        Ok(())
    }

    /// Takes a name, as it is stored, out of a directory, which is not stored yet.
    pub(super) fn remove_dir_entry(
        &self,
        tx: &Tx,
        dir: &mut PendingFile,
        (name, kind): (&[u8], FileType),
        now: Time,
    ) -> Result<()> {
        self.open_zap(dir.id())?.remove(tx, name)?;
        dir.sa.add_to_word(Attribute::Size, -1);
        dir.adjust_dir_links(kind, -1);
        dir.sa.touch_mtime(now);
        Ok(())
    }
}

/// Longer names need the feature longname.
const MAX_SHORT_NAME: usize = 255;
