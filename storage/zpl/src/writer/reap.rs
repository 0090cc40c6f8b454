//! Freeing files that have no name any more.

use ondisk::sa::Attribute;
use ondisk::znode::flag;
use units::ObjectId;

use crate::writer::Writer;
use crate::writer::draft::{Draft, SMALL_NEED};
use crate::{Kind, Need, Result};

/// So many files of a directory of extended attributes are freed within one transaction.
const FILES_AT_ONCE: usize = 64;

impl Writer {
    /// Frees all files that were unlinked and are held by nobody: what a crash left. One that cannot
    /// be freed, as it is damaged, stays, and the others go all the same.
    pub fn drain(&self) -> Result<()> {
        let mut waiting = Vec::new();
        let guard = self.fs.inner.locks.unlinked();
        self.fs.unlinked(&mut |id| {
            waiting.push(id);
            true
        })?;
        drop(guard);
        for id in waiting {
            self.try_to_reap(id);
        }
        Ok(())
    }

    /// Frees a file that lost its last name. Where that cannot be done now (the pool is too full
    /// even for it, a drive fails) the file stays in the set of unlinked ones, and goes with the
    /// next [`Writer::drain`]: its name is gone all the same.
    pub(super) fn try_to_reap(&self, id: ObjectId) {
        drop(self.reap(id));
    }

    /// Frees a file of the set of unlinked ones, unless somebody holds it. What it had of extended
    /// attributes goes to the set, and is freed next.
    pub(super) fn reap(&self, id: ObjectId) -> Result<()> {
        let mut next = Some(id);
        while let Some(id) = next {
            next = self.reap_one(id)?;
        }
        Ok(())
    }

    fn reap_one(&self, id: ObjectId) -> Result<Option<ObjectId>> {
        let _locked = self.fs.inner.locks.write(&[id]);
        let draft = match self.draft(id) {
            Ok(draft) => draft,
            Err(crate::Error::Dmu(why)) if why.is_not_found() => return Ok(None),
            Err(why) => return Err(why),
        };
        if draft.links() != 0 || self.is_held(id) {
            return Ok(None);
        }
        if draft.is_directory() && draft.sheet.has_flag(flag::XATTR) {
            self.empty(&draft)?;
        }
        if draft.kind() == Kind::File {
            self.free_behind(&draft, 0, &|_| {})?;
        }
        let xattrs = ObjectId::new(draft.sheet.word(Attribute::Xattr));
        let hidden = if xattrs.exists() { Some(self.draft(xattrs)?) } else { None };
        // whatever a damaged file says, nothing else is freed
        let is_hidden = |dir: &Draft| dir.is_directory() && dir.sheet.has_flag(flag::XATTR);
        let hidden = hidden.filter(is_hidden);
        let next = hidden.as_ref().map(Draft::id);
        self.fs.inner.tables.forget(id);
        let unlinked = self.fs.inner.locks.unlinked();
        let tx = self.begin.begin(&Need { frees: true, ..SMALL_NEED })?;
        if let Some(mut hidden) = hidden {
            hidden.sheet.set_word(Attribute::Links, 0);
            hidden.store(&tx)?;
            self.add_unlinked(&tx, &unlinked, xattrs)?;
        }
        self.remove_unlinked(&tx, &unlinked, id)?;
        self.free_whole(&tx, &draft)?;
        Ok(next)
    }

    /// Frees the files in a directory of extended attributes that has lost its owner.
    fn empty(&self, dir: &Draft) -> Result<()> {
        loop {
            let mut files = Vec::new();
            self.fs.inner.read_dir(dir.id(), None, &mut |entry| {
                files.push((entry.name, entry.object));
                files.len() < FILES_AT_ONCE
            })?;
            if files.is_empty() {
                return Ok(());
            }
            let tx = self.begin.begin(&Need { frees: true, ..SMALL_NEED })?;
            for (name, file) in files {
                self.table(dir.id())?.remove(&tx, &name)?;
                self.begin.gone(file);
                match self.fs.objset().free(&tx, file) {
                    Err(why) if !why.is_not_found() => return Err(why.into()),
                    _ => {}
                }
            }
        }
    }
}
