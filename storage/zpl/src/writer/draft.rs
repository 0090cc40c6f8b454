//! A file that is being changed.

use dmu::Object;
use ondisk::sa::Attribute;
use ondisk::znode::{Time, flag};
use txg::Tx;
use units::ObjectId;

use crate::sheet::Sheet;
use crate::writer::Writer;
use crate::{Error, Kind, Need, Result, dir};

/// A file and its attributes, not stored yet.
pub(super) struct Draft {
    pub(super) object: Object,
    pub(super) sheet: Sheet,
}

impl Draft {
    pub(super) fn id(&self) -> ObjectId {
        self.object.id()
    }

    pub(super) fn kind(&self) -> Kind {
        self.sheet.file_kind()
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind() == Kind::Directory
    }

    pub(super) fn store(&mut self, tx: &Tx) -> Result<()> {
        self.sheet.store(tx, &self.object)
    }

    pub(super) fn links(&self) -> u64 {
        self.sheet.word(Attribute::Links)
    }

    pub(super) fn size(&self) -> u64 {
        self.sheet.word(Attribute::Size)
    }

    /// A directory below it counts as a link of it.
    pub(super) fn count_directory(&mut self, kind: Kind, delta: i64) {
        if kind == Kind::Directory {
            self.sheet.add(Attribute::Links, delta);
        }
    }

    /// What belongs to it counts for these: user, group and project.
    pub(super) fn owners(&self) -> [u64; 3] {
        OWNERS.map(|one| self.sheet.word(one))
    }

    /// A change that adds to what the file's owners use.
    pub(super) fn need_of_owners(&self) -> Need {
        Need { owners: self.owners().map(Some), ..SMALL_NEED }
    }
}

/// A small change of a file that makes nothing new: whoever is over a quota may do that.
pub(super) const SMALL_NEED: Need = Need {
    bytes: super::SMALL,
    piece: 0,
    shared: 0,
    objects: 0,
    frees: false,
    blocks: 0,
    owners: [None; 3],
    ahead: false,
};

/// User, group and project.
const OWNERS: [Attribute; 3] = [Attribute::Uid, Attribute::Gid, Attribute::Projid];

impl Writer {
    /// A directory in which names are to change.
    pub(super) fn directory(&self, id: ObjectId) -> Result<Draft> {
        let dir = self.any_directory(id)?;
        if dir.sheet.has_flag(flag::XATTR) {
            return Err(self.invalid(id, "it holds extended attributes"));
        }
        Ok(dir)
    }

    /// The same, or one that holds extended attributes.
    pub(super) fn any_directory(&self, id: ObjectId) -> Result<Draft> {
        let dir = self.draft(id)?;
        let (objset, object) = (self.objset(), id);
        if !dir.is_directory() {
            return Err(Error::NotDirectory { objset, object });
        }
        if dir.links() == 0 {
            return Err(Error::Gone { objset, object });
        }
        if self.forbids(&dir.sheet, flag::IMMUTABLE) {
            return Err(self.forbidden(id, "the directory is immutable"));
        }
        Ok(dir)
    }

    /// Adds a name to a directory, which is not stored yet.
    pub(super) fn add_name(
        &self,
        tx: &Tx,
        dir: &mut Draft,
        (name, id, kind): (&[u8], ObjectId, Kind),
        now: Time,
    ) -> Result<()> {
        let word = dir::join(id, kind, self.fs.master().version);
        self.table(dir.id())?.insert_u64(tx, name, word)?;
        if name.len() > SHORT_NAME {
            self.begin.has_long_name(tx);
        }
        dir.sheet.add(Attribute::Size, 1);
        dir.count_directory(kind, 1);
        dir.sheet.touch_content(now);
        Ok(())
    }

    /// Takes a name, as it is stored, out of a directory, which is not stored yet.
    pub(super) fn take_name(
        &self,
        tx: &Tx,
        dir: &mut Draft,
        (name, kind): (&[u8], Kind),
        now: Time,
    ) -> Result<()> {
        self.table(dir.id())?.remove(tx, name)?;
        dir.sheet.add(Attribute::Size, -1);
        dir.count_directory(kind, -1);
        dir.sheet.touch_content(now);
        Ok(())
    }
}

/// Longer names need the feature longname.
const SHORT_NAME: usize = 255;
