//! Freeing files that have no name any more.

use ondisk::sa::Attribute;
use ondisk::znode::flag;
use posix::FileType;
use units::ObjectId;

use crate::writer::FsWriter;
use crate::writer::pending_file::{PendingFile, SMALL_NEED};
use crate::{Result, SpaceNeed};

/// The most files of an attribute directory freed within one transaction.
const MAX_TX_FREED_FILES: usize = 64;

impl FsWriter {
    /// Frees all unlinked files without holds, which a crash left. A damaged file that cannot
    /// be freed stays, and the others are freed all the same.
    pub fn drain_unlinked(&self) -> Result<()> {
        let mut waiting = Vec::new();
        let guard = self.fs.inner.locks.lock_unlinked_set();
        self.fs.for_each_unlinked(&mut |id| {
            waiting.push(id);
            true
        })?;
        drop(guard);
        for id in waiting {
            self.try_free_unlinked(id);
        }
        Ok(())
    }

    /// Frees a file that lost its last name. Where that cannot be done now (the pool is too full
    /// even for it, a drive fails) the file stays in the set of unlinked ones, and goes with the
    /// next [`FsWriter::drain_unlinked`]: its name is gone all the same.
    pub(super) fn try_free_unlinked(&self, id: ObjectId) {
        drop(self.free_unlinked(id));
    }

    /// Frees a file of the unlinked set, unless it has a hold. Its extended attributes go to the
    /// set, and are freed next.
    pub(super) fn free_unlinked(&self, id: ObjectId) -> Result<()> {
        let mut next = Some(id);
        while let Some(id) = next {
            next = self.free_unlinked_one(id)?;
        }
        Ok(())
    }

    fn free_unlinked_one(&self, id: ObjectId) -> Result<Option<ObjectId>> {
        let _locked = self.fs.inner.locks.write(&[id]);
        let draft = match self.load_pending(id) {
            Ok(draft) => draft,
            Err(crate::Error::Dmu(why)) if why.is_not_found() => return Ok(None),
            Err(why) => return Err(why),
        };
        if draft.nlink() != 0 || self.is_held(id) {
            return Ok(None);
        }
        if draft.is_directory() && draft.sa.has_flag(flag::XATTR) {
            self.empty_xattr_dir(&draft)?;
        }
        if draft.kind() == FileType::File {
            self.free_tail(&draft, 0, &|_| {})?;
        }
        let xattrs = ObjectId::new(draft.sa.word(Attribute::Xattr));
        let hidden = if xattrs.exists() { Some(self.load_pending(xattrs)?) } else { None };
        // whatever a damaged file refers to, nothing else is freed
        let is_hidden = |dir: &PendingFile| dir.is_directory() && dir.sa.has_flag(flag::XATTR);
        let hidden = hidden.filter(is_hidden);
        let next = hidden.as_ref().map(PendingFile::id);
        self.fs.inner.zap_cache.remove(id);
        let unlinked = self.fs.inner.locks.lock_unlinked_set();
        let tx = self.transactions.begin_tx(&SpaceNeed { frees_space: true, ..SMALL_NEED })?;
        if let Some(mut hidden) = hidden {
            hidden.sa.set_word(Attribute::Links, 0);
            hidden.store(&tx)?;
            self.add_to_unlinked_set(&tx, &unlinked, xattrs)?;
        }
        assert!(!self.is_held(id), "a file that is open is not freed");
        self.remove_from_unlinked_set(&tx, &unlinked, id)?;
        self.free_file(&tx, &draft)?;
        Ok(next)
    }

    /// Frees the files in a directory of extended attributes that has lost its owner.
    fn empty_xattr_dir(&self, dir: &PendingFile) -> Result<()> {
        loop {
            let mut files = Vec::new();
            self.fs.inner.read_dir(dir.id(), None, &mut |entry| {
                files.push((entry.name, entry.object));
                files.len() < MAX_TX_FREED_FILES
            })?;
            if files.is_empty() {
                return Ok(());
            }
            let tx = self.transactions.begin_tx(&SpaceNeed { frees_space: true, ..SMALL_NEED })?;
            for (name, file) in files {
                self.open_zap(dir.id())?.remove(&tx, &name)?;
                self.transactions.forget_log_of(file);
                match self.fs.objset().free(&tx, file) {
                    Err(why) if !why.is_not_found() => return Err(why.into()),
                    _ => {}
                }
            }
        }
    }
}
