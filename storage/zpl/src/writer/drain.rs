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
            if self.is_unlinked_xattr_dir(id)? {
                self.empty_xattr_dir(id)?;
            }
            next = self.free_unlinked_one(id)?;
        }
        Ok(())
    }

    fn is_unlinked_xattr_dir(&self, id: ObjectId) -> Result<bool> {
        let _locked = self.fs.inner.read_lock(id);
        let is_hidden = |dir: PendingFile| dir.is_directory() && dir.sa.has_flag(flag::XATTR);
        Ok(self.load_unlinked(id)?.is_some_and(is_hidden))
    }

    /// A file that has lost its last name and its last hold.
    fn load_unlinked(&self, id: ObjectId) -> Result<Option<PendingFile>> {
        let draft = match self.load_pending(id) {
            Ok(draft) => draft,
            Err(crate::Error::Dmu(why)) if why.is_not_found() => return Ok(None),
            Err(why) => return Err(why),
        };
        Ok(Some(draft).filter(|draft| draft.nlink() == 0 && !self.is_held(id)))
    }

    fn free_unlinked_one(&self, id: ObjectId) -> Result<Option<ObjectId>> {
        let _locked = self.fs.inner.locks.write(&[id]);
        let Some(draft) = self.load_unlinked(id)? else { return Ok(None) };
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

    /// Frees the files in a directory of extended attributes that has lost its owner. Nothing is added to the
    /// directory any more.
    fn empty_xattr_dir(&self, dir: ObjectId) -> Result<()> {
        loop {
            let files = self.first_xattr_files(dir)?;
            if files.is_empty() {
                return Ok(());
            }
            let locked: Vec<ObjectId> = files.iter().map(|(_, file)| *file).chain([dir]).collect();
            let _locked = self.fs.inner.locks.write(&locked);
            let tx = self.transactions.begin_tx(&SpaceNeed { frees_space: true, ..SMALL_NEED })?;
            for (name, file) in files {
                // another thread may have removed the entry, and freed the file, before this one had the locks
                let is_freed = self.is_free_xattr_file(file)?;
                let is_there = self.open_zap(dir)?.remove(&tx, &name)?;
                if is_there && is_freed {
                    self.transactions.forget_log_of(file);
                    self.fs.objset().free(&tx, file)?;
                }
            }
        }
    }

    fn first_xattr_files(&self, dir: ObjectId) -> Result<Vec<(Vec<u8>, ObjectId)>> {
        let _locked = self.fs.inner.read_lock(dir);
        let mut files = Vec::new();
        self.fs.inner.read_dir(dir, None, &mut |entry| {
            files.push((entry.name, entry.object));
            files.len() < MAX_TX_FREED_FILES
        })?;
        Ok(files)
    }

    /// Whether an object is a hidden file without holds. An entry of a damaged directory may name any object, also
    /// a file of the tree that is open: that file must stay.
    fn is_free_xattr_file(&self, file: ObjectId) -> Result<bool> {
        match self.load_pending(file) {
            Ok(file) => Ok(file.sa.has_flag(flag::XATTR) && !self.is_held(file.id())),
            Err(crate::Error::Dmu(why)) if why.is_not_found() => Ok(false),
            Err(why) => Err(why),
        }
    }
}
