//! Names given and taken: link, unlink, rmdir.

use ondisk::sa::Attribute;
use ondisk::zil::Body;
use ondisk::znode::{Time, flag};
use parking_lot::{MutexGuard, RwLockWriteGuard};
use txg::Tx;
use units::ObjectId;

use crate::writer::Writer;
use crate::writer::draft::{Draft, SMALL_NEED};
use crate::writer::make::unlinked_name;
use crate::{Caller, Error, Kind, Need, Promise, Result};

/// Locks of files, as long as this lives.
pub(super) type Locked<'a> = Vec<RwLockWriteGuard<'a, ()>>;

/// Files of more blocks than this are not freed together with their last name.
const FEW_BLOCKS: u64 = 20480;

/// What becomes of a file that loses a name.
pub(super) struct Fate<'a> {
    /// It loses its last one.
    is_last: bool,
    /// It goes to the set of unlinked files, under this lock.
    unlinked: Option<MutexGuard<'a, ()>>,
    /// And from there at once, as nobody holds it.
    is_reaped: bool,
}

impl Writer {
    /// Gives a file one more name.
    pub fn link(&self, caller: &Caller, file: ObjectId, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.check_name(dir, name)?;
        let _locked = self.fs.inner.locks.write(&[file, dir]);
        let mut target = self.draft(file)?;
        let mut parent = self.directory(dir)?;
        let objset = self.objset();
        if target.is_directory() {
            return Err(self.forbidden(file, "a directory has one name only"));
        }
        self.check_project(&parent, &target)?;
        if target.sheet.has_flag(flag::XATTR) {
            return Err(self.invalid(file, "an extended attribute has one name only"));
        }
        if self.forbids(&target.sheet, flag::IMMUTABLE | flag::APPENDONLY) {
            return Err(self.forbidden(file, "the file is immutable, or can only be appended to"));
        }
        if self.entry(dir, name)?.is_some() {
            return Err(Error::Exists { objset, object: dir });
        }
        let was_unlinked = target.links() == 0;
        target.sheet.add(Attribute::Links, 1);
        target.sheet.set_word(Attribute::Parent, dir.get());
        target.sheet.touch_status(caller.now);
        self.settle(&mut target.sheet)?;
        let unlinked = was_unlinked.then(|| self.fs.inner.locks.unlinked());
        let tx = self.begin.begin(&SMALL_NEED)?;
        self.all_names(&tx, caller.now, |names| {
            names.add(&mut parent, name, target.named())?;
            match &unlinked {
                Some(lock) => self.remove_unlinked(&tx, lock, file),
                None => Ok(()),
            }
        })?;
        target.store(&tx)?;
        parent.store(&tx)?;
        if was_unlinked {
            // nothing was promised of a file while it had no name
            self.begin.must_sync(&tx);
        } else {
            let body = Body::Link { dir, object: file, name: name.to_vec() };
            self.begin.promise(&tx, Promise::Record(body));
        }
        Ok(())
    }

    /// A tree of a project takes nothing of another one.
    pub(super) fn check_project(&self, dir: &Draft, file: &Draft) -> Result<()> {
        let [ours, theirs] = [dir, file].map(|draft| draft.sheet.word(Attribute::Projid));
        if self.forbids(&dir.sheet, flag::PROJINHERIT) && ours != theirs {
            return Err(Error::OtherProject { objset: self.objset(), object: dir.id() });
        }
        Ok(())
    }

    /// Locks a directory and the file that has a name in it; gives the name as it is stored.
    fn lock_entry(&self, dir: ObjectId, name: &[u8]) -> Result<(Locked<'_>, Vec<u8>, ObjectId)> {
        loop {
            let guard = self.fs.inner.guard(dir);
            let found = self.existing(dir, name)?;
            drop(guard);
            let locked = self.fs.inner.locks.write(&[dir, found.1]);
            // it may have been given to another file meanwhile
            let now = self.existing(dir, name)?;
            if now == found {
                return Ok((locked, now.0, now.1));
            }
        }
    }

    /// Takes a name from a file that is no directory.
    pub fn unlink(&self, caller: &Caller, dir: ObjectId, name: &[u8]) -> Result<()> {
        let (locked, stored, file) = self.lock_entry(dir, name)?;
        let target = self.draft(file)?;
        if target.is_directory() {
            return Err(Error::IsDirectory { objset: self.objset(), object: file });
        }
        let body = Body::Remove { dir, name: stored.clone() };
        self.take(caller.now, locked, (dir, &stored), target, body)
    }

    /// Removes a directory, which must be empty.
    pub fn rmdir(&self, caller: &Caller, dir: ObjectId, name: &[u8]) -> Result<()> {
        let (locked, stored, file) = self.lock_entry(dir, name)?;
        let target = self.draft(file)?;
        if !target.is_directory() {
            return Err(Error::NotDirectory { objset: self.objset(), object: file });
        }
        self.must_be_empty(file)?;
        let body = Body::RemoveDirectory { dir, name: stored.clone() };
        self.take(caller.now, locked, (dir, &stored), target, body)
    }

    pub(super) fn must_be_empty(&self, dir: ObjectId) -> Result<()> {
        match self.table(dir)?.count()? {
            0 => Ok(()),
            _ => Err(Error::NotEmpty { objset: self.objset(), object: dir }),
        }
    }

    fn take(
        &self,
        now: Time,
        locked: Locked<'_>,
        (dir, name): (ObjectId, &[u8]),
        mut target: Draft,
        body: Body,
    ) -> Result<()> {
        let mut parent = self.any_directory(dir)?;
        self.may_go(&parent, &target)?;
        let (id, kind) = (target.id(), target.kind());
        let fate = self.fate(&target);
        let tx = self.begin.begin(&Need { frees: true, ..SMALL_NEED })?;
        self.all_names(&tx, now, |names| {
            names.take(&mut parent, name, kind)?;
            self.lose_name(&tx, &mut target, &fate, now)
        })?;
        parent.store(&tx)?;
        self.begin.promise(&tx, Promise::Record(body));
        drop(tx);
        let is_reaped = fate.is_reaped;
        drop((fate, locked));
        if is_reaped {
            self.try_to_reap(id);
        }
        Ok(())
    }

    /// Whether flags keep a file where it is.
    pub(super) fn may_go(&self, parent: &Draft, target: &Draft) -> Result<()> {
        if self.forbids(&parent.sheet, flag::APPENDONLY) {
            return Err(self.forbidden(parent.id(), "the directory can only be added to"));
        }
        if self.forbids(&target.sheet, flag::IMMUTABLE | flag::APPENDONLY | flag::NOUNLINK) {
            return Err(self.forbidden(target.id(), "the file's flags keep its names"));
        }
        Ok(())
    }

    /// What will become of a file that loses a name. The lock that this may take comes after those
    /// of files, and before the transaction.
    pub(super) fn fate(&self, target: &Draft) -> Fate<'_> {
        let is_last = target.is_directory() || target.links() <= 1;
        let is_held = self.is_held(target.id());
        let has_xattrs = target.sheet.word(Attribute::Xattr) != 0;
        let is_large = target.object.max_block().get() > FEW_BLOCKS;
        let is_kept = is_last && (is_held || has_xattrs || is_large);
        let unlinked = is_kept.then(|| self.fs.inner.locks.unlinked());
        Fate { is_last, unlinked, is_reaped: is_kept && !is_held }
    }

    /// A file has lost a name: it has a link less, or goes. What can fail comes first, so that the
    /// file is what it was then.
    pub(super) fn lose_name(
        &self,
        tx: &Tx,
        target: &mut Draft,
        fate: &Fate<'_>,
        now: Time,
    ) -> Result<()> {
        if fate.is_last && fate.unlinked.is_none() {
            self.fs.inner.tables.forget(target.id());
            return self.free_whole(tx, target);
        }
        if let Some(lock) = &fate.unlinked {
            self.add_unlinked(tx, lock, target.id())?;
        }
        let links = if fate.is_last { 0 } else { target.links().saturating_sub(1) };
        target.sheet.set_word(Attribute::Links, links);
        target.sheet.touch_status(now);
        target.store(tx)
    }

    /// Frees a file and the object that its ACL may be kept in.
    pub(super) fn free_whole(&self, tx: &Tx, target: &Draft) -> Result<()> {
        if let Some(acl) = target.sheet.external_acl() {
            self.fs.objset().free(tx, acl)?;
        }
        self.begin.gone(target.id());
        Ok(self.fs.objset().free(tx, target.id())?)
    }

    /// Takes a file out of the set of unlinked ones, under that set's lock.
    pub(super) fn remove_unlinked(
        &self,
        tx: &Tx,
        _lock: &MutexGuard<'_, ()>,
        id: ObjectId,
    ) -> Result<()> {
        let set = self.table(self.fs.master().unlinked)?;
        set.remove(tx, unlinked_name(id).as_bytes())?;
        Ok(())
    }
}

impl Fate<'_> {
    /// Whether the file is to be freed when the operation is over.
    pub(super) fn is_reaped(&self) -> bool {
        self.is_reaped
    }
}

impl Draft {
    /// What a name says that it names.
    pub(super) fn named(&self) -> (ObjectId, Kind) {
        (self.id(), self.kind())
    }
}
