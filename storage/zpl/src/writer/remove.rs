//! Names given and taken: link, unlink, rmdir.

use ondisk::sa::Attribute;
use ondisk::zil::Body;
use ondisk::znode::flag;
use parking_lot::{MutexGuard, RwLockWriteGuard};
use posix::{ChangeContext, FileType, Time};
use txg::Tx;
use units::{MinusOrZero, ObjectId};

use crate::writer::FsWriter;
use crate::writer::create::unlinked_key;
use crate::writer::pending_file::{PendingFile, SMALL_NEED};
use crate::{Error, LogRecord, Result, SpaceNeed};

/// Locks of files, as long as this lives.
pub(super) type FileGuards<'a> = Vec<RwLockWriteGuard<'a, ()>>;

/// Files of more blocks than this are not freed together with their last name.
const MAX_INLINE_FREE_BLOCKS: u64 = 20480;

/// The fate of a file that loses a name.
pub(super) struct UnlinkPlan<'a> {
    /// It loses its last one.
    is_last_link: bool,
    /// It goes to the set of unlinked files, under this lock.
    unlinked_lock: Option<MutexGuard<'a, ()>>,
    /// It is freed from there at once, because it has no holds.
    is_freed_after: bool,
}

impl FsWriter {
    /// Gives a file one more name.
    pub fn link(
        &self,
        caller: &ChangeContext,
        file: ObjectId,
        dir: ObjectId,
        name: &[u8],
    ) -> Result<()> {
        self.check_name(dir, name)?;
        let _locked = self.fs.inner.locks.write(&[file, dir]);
        let mut target = self.load_pending(file)?;
        let mut parent = self.load_directory(dir)?;
        let objset = self.objset_id();
        if target.is_directory() {
            return Err(self.not_permitted(file, "a directory has one name only"));
        }
        self.check_project(&parent, &target)?;
        if target.sa.has_flag(flag::XATTR) {
            return Err(self.invalid_error(file, "an extended attribute has one name only"));
        }
        if self.is_forbidden(&target.sa, flag::IMMUTABLE | flag::APPENDONLY) {
            return Err(
                self.not_permitted(file, "the file is immutable, or can only be appended to")
            );
        }
        if self.lookup_entry(dir, name)?.is_some() {
            return Err(Error::Exists { objset, object: dir });
        }
        let was_unlinked = target.nlink() == 0;
        target.sa.add_to_word(Attribute::Links, 1);
        target.sa.set_word(Attribute::Parent, dir.get());
        target.sa.touch_ctime(caller.now);
        self.resolve_layouts(&mut target.sa)?;
        let unlinked = was_unlinked.then(|| self.fs.inner.locks.lock_unlinked_set());
        let tx = self.transactions.begin_tx(&SMALL_NEED)?;
        self.change_names(&tx, caller.now, |names| {
            names.add(&mut parent, name, target.dirent())?;
            match &unlinked {
                Some(lock) => self.remove_from_unlinked_set(&tx, lock, file),
                None => Ok(()),
            }
        })?;
        target.store(&tx)?;
        parent.store(&tx)?;
        if was_unlinked {
            // a file without a name has no log records
            self.transactions.require_txg_sync(&tx);
        } else {
            let body = Body::Link { dir, object: file, name: name.to_vec() };
            self.transactions.log_record(&tx, LogRecord::Record(body));
        }
        Ok(())
    }

    /// A tree of a project takes nothing of another one.
    pub(super) fn check_project(&self, dir: &PendingFile, file: &PendingFile) -> Result<()> {
        let [ours, theirs] = [dir, file].map(|draft| draft.sa.word(Attribute::Projid));
        if self.is_forbidden(&dir.sa, flag::PROJINHERIT) && ours != theirs {
            return Err(Error::ProjectMismatch { objset: self.objset_id(), object: dir.id() });
        }
        Ok(())
    }

    /// Locks a directory and the file that has a name in it; gives the name as it is stored.
    fn lock_entry(
        &self,
        dir: ObjectId,
        name: &[u8],
    ) -> Result<(FileGuards<'_>, Vec<u8>, ObjectId)> {
        loop {
            let guard = self.fs.inner.read_lock(dir);
            let found = self.require_entry(dir, name)?;
            drop(guard);
            let locked = self.fs.inner.locks.write(&[dir, found.1]);
            // it may have been given to another file meanwhile
            let now = self.require_entry(dir, name)?;
            if now == found {
                return Ok((locked, now.0, now.1));
            }
        }
    }

    /// Removes a name of a file that is not a directory.
    pub fn unlink(&self, caller: &ChangeContext, dir: ObjectId, name: &[u8]) -> Result<()> {
        let (locked, stored, file) = self.lock_entry(dir, name)?;
        let target = self.load_pending(file)?;
        if target.is_directory() {
            return Err(Error::IsDirectory { objset: self.objset_id(), object: file });
        }
        let body = Body::Remove { dir, name: stored.clone() };
        self.unlink_locked(caller.now, locked, (dir, &stored), target, body)
    }

    /// Removes a directory, which must be empty.
    pub fn rmdir(&self, caller: &ChangeContext, dir: ObjectId, name: &[u8]) -> Result<()> {
        let (locked, stored, file) = self.lock_entry(dir, name)?;
        let target = self.load_pending(file)?;
        if !target.is_directory() {
            return Err(Error::NotDirectory { objset: self.objset_id(), object: file });
        }
        self.require_empty(file)?;
        let body = Body::RemoveDirectory { dir, name: stored.clone() };
        self.unlink_locked(caller.now, locked, (dir, &stored), target, body)
    }

    pub(super) fn require_empty(&self, dir: ObjectId) -> Result<()> {
        match self.open_zap(dir)?.count()? {
            0 => Ok(()),
            _ => Err(Error::NotEmpty { objset: self.objset_id(), object: dir }),
        }
    }

    fn unlink_locked(
        &self,
        now: Time,
        locked: FileGuards<'_>,
        (dir, name): (ObjectId, &[u8]),
        mut target: PendingFile,
        body: Body,
    ) -> Result<()> {
        let mut parent = self.load_any_directory(dir)?;
        self.check_removable(&parent, &target)?;
        let (id, kind) = (target.id(), target.kind());
        let fate = self.plan_unlink(&target);
        let tx = self.transactions.begin_tx(&SpaceNeed { frees_space: true, ..SMALL_NEED })?;
        self.change_names(&tx, now, |names| {
            names.remove(&mut parent, name, kind)?;
            self.drop_link(&tx, &mut target, &fate, now)
        })?;
        parent.store(&tx)?;
        self.transactions.log_record(&tx, LogRecord::Record(body));
        drop(tx);
        let is_reaped = fate.is_freed_after;
        drop((fate, locked));
        if is_reaped {
            self.try_free_unlinked(id);
        }
        Ok(())
    }

    /// Whether flags keep a file where it is.
    pub(super) fn check_removable(&self, parent: &PendingFile, target: &PendingFile) -> Result<()> {
        if self.is_forbidden(&parent.sa, flag::APPENDONLY) {
            return Err(self.not_permitted(parent.id(), "the directory can only be added to"));
        }
        if self.is_forbidden(&target.sa, flag::IMMUTABLE | flag::APPENDONLY | flag::NOUNLINK) {
            return Err(self.not_permitted(target.id(), "the file's flags keep its names"));
        }
        Ok(())
    }

    /// Decides the fate of a file that loses a name. The lock that this may take comes after those
    /// of files, and before the transaction.
    pub(super) fn plan_unlink(&self, target: &PendingFile) -> UnlinkPlan<'_> {
        let is_last = target.is_directory() || target.nlink() <= 1;
        let is_held = self.is_held(target.id());
        let has_xattrs = target.sa.word(Attribute::Xattr) != 0;
        let is_large = target.object.max_block().get() > MAX_INLINE_FREE_BLOCKS;
        let is_kept = is_last && (is_held || has_xattrs || is_large);
        let unlinked = is_kept.then(|| self.fs.inner.locks.lock_unlinked_set());
        UnlinkPlan {
            is_last_link: is_last,
            unlinked_lock: unlinked,
            is_freed_after: is_kept && !is_held,
        }
    }

    /// A file has lost a name: its link count decreases, or it is freed. Steps that can fail come
    /// first, so that the file is unchanged after an error.
    pub(super) fn drop_link(
        &self,
        tx: &Tx,
        target: &mut PendingFile,
        fate: &UnlinkPlan<'_>,
        now: Time,
    ) -> Result<()> {
        assert!(
            !fate.is_freed_after || fate.unlinked_lock.is_some(),
            "a file that is freed later waits in the unlinked set"
        );
        if fate.is_last_link && fate.unlinked_lock.is_none() {
            // a hold needs the lock of the file, which the caller has since before the plan
            assert!(!self.is_held(target.id()), "a file that is open is not freed");
            self.fs.inner.zap_cache.remove(target.id());
            return self.free_file(tx, target);
        }
        if let Some(lock) = &fate.unlinked_lock {
            self.add_to_unlinked_set(tx, lock, target.id())?;
        }
        let links = if fate.is_last_link { 0 } else { target.nlink().minus_or_zero(1) };
        target.sa.set_word(Attribute::Links, links);
        target.sa.touch_ctime(now);
        target.store(tx)
    }

    /// Frees a file and the object that its ACL may be kept in.
    pub(super) fn free_file(&self, tx: &Tx, target: &PendingFile) -> Result<()> {
        if let Some(acl) = target.sa.external_acl() {
            self.fs.objset().free(tx, acl)?;
        }
        self.transactions.forget_log_of(target.id());
        Ok(self.fs.objset().free(tx, target.id())?)
    }

    /// Takes a file out of the set of unlinked ones, under that set's lock.
    pub(super) fn remove_from_unlinked_set(
        &self,
        tx: &Tx,
        _lock: &MutexGuard<'_, ()>,
        id: ObjectId,
    ) -> Result<()> {
        let set = self.open_zap(self.fs.master().unlinked_set)?;
        set.remove(tx, unlinked_key(id).as_bytes())?;
        Ok(())
    }
}

impl UnlinkPlan<'_> {
    /// Whether the file is to be freed when the operation is over.
    pub(super) fn is_freed_after(&self) -> bool {
        self.is_freed_after
    }
}

impl PendingFile {
    /// The type of a name's entry.
    pub(super) fn dirent(&self) -> (ObjectId, FileType) {
        (self.id(), self.kind())
    }
}
