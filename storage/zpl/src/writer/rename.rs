//! Moving names: rename with all that Linux adds to it.

use ondisk::sa::Attribute;
use ondisk::zil::{Body, Rename, RenameKind, Whiteout};
use ondisk::znode::flag;
use posix::{ChangeContext, FileType, NewInode, RenameMode, RenameRequest};
use txg::Tx;
use units::ObjectId;

use crate::writer::FsWriter;
use crate::writer::create::CreatePlan;
use crate::writer::name_changes::NameChanges;
use crate::writer::pending_file::{PendingFile, SMALL_NEED};
use crate::writer::remove::{FileGuards, UnlinkPlan};
use crate::{Error, LogRecord, Result, SpaceNeed};

type StoredEntry = (Vec<u8>, ObjectId);

/// The names of a rename in their stored form, and their directories.
#[derive(PartialEq, Eq)]
struct RenameEntries {
    source: StoredEntry,
    target: Option<StoredEntry>,
}

/// The files of a move. Where both directories are one it stands in `from`.
struct RenameFiles {
    from_dir: PendingFile,
    to_dir: Option<PendingFile>,
    source: PendingFile,
    target: Option<PendingFile>,
}

impl RenameFiles {
    fn to_dir_mut(&mut self) -> &mut PendingFile {
        self.to_dir.as_mut().unwrap_or(&mut self.from_dir)
    }

    /// The moved file gets its new parent.
    fn update_moved(
        &mut self,
        tx: &Tx,
        caller: &ChangeContext,
        how: &RenameRequest<'_, ObjectId>,
    ) -> Result<()> {
        let into = self.to_dir_mut().sa.has_flag(flag::PROJINHERIT);
        let moved = &mut self.source;
        moved.sa.set_flags(flag::AV_MODIFIED, true);
        if into {
            moved.sa.set_flags(flag::PROJINHERIT, true);
        }
        moved.sa.set_word(Attribute::Parent, how.to_dir.get());
        moved.sa.touch_ctime(caller.now);
        moved.store(tx)?;
        if how.mode != RenameMode::Exchange {
            return Ok(());
        }
        let Some(target) = &mut self.target else { return Ok(()) };
        target.sa.set_word(Attribute::Parent, how.from_dir.get());
        target.sa.touch_ctime(caller.now);
        target.store(tx)
    }
}

/// The deepest tree; it bounds the walk over a damaged one.
const MAX_DEPTH: u32 = 1 << 20;

impl FsWriter {
    /// Moves a name.
    pub fn rename(&self, caller: &ChangeContext, how: &RenameRequest<'_, ObjectId>) -> Result<()> {
        self.rename_with_whiteout(caller, how, None)
    }

    /// The same for a replay, with the old whiteout.
    pub(super) fn rename_with_whiteout(
        &self,
        caller: &ChangeContext,
        how: &RenameRequest<'_, ObjectId>,
        was: Option<(ObjectId, u64)>,
    ) -> Result<()> {
        self.check_name(how.to_dir, how.to_name)?;
        // the shape of the tree must hold still if a directory goes elsewhere
        let _tree = (how.from_dir != how.to_dir).then(|| self.fs.inner.locks.lock_tree());
        let (locked, ends) = self.lock_entries(how)?;
        let is_same = ends.target.as_ref().is_some_and(|target| target.1 == ends.source.1);
        let is_respelled = is_same
            && how.from_dir == how.to_dir
            && ends.target.as_ref().is_some_and(|target| target.0 == ends.source.0)
            && how.to_name != ends.source.0;
        match how.mode {
            RenameMode::NoReplace if ends.target.is_some() && !is_respelled => {
                return Err(Error::Exists { objset: self.objset_id(), object: how.to_dir });
            }
            // two names of one file: POSIX wants both to stay
            _ if is_same && !is_respelled => return Ok(()),
            _ => {}
        }
        let ends = if is_respelled { RenameEntries { target: None, ..ends } } else { ends };
        let mut files = self.load_files(how, &ends)?;
        self.check_rename(how, &mut files)?;
        let whiteout = match how.mode {
            RenameMode::Whiteout => {
                let (plan, _) = self.plan_create(caller, &files.from_dir, &WHITEOUT)?;
                Some(CreatePlan { replayed_id: was, ..plan })
            }
            _ => None,
        };
        self.apply_rename(caller, how, (locked, &ends), files, whiteout)
    }

    fn lookup_entries(&self, how: &RenameRequest<'_, ObjectId>) -> Result<RenameEntries> {
        let source = self.require_entry(how.from_dir, how.from_name)?;
        Ok(RenameEntries { source, target: self.lookup_entry(how.to_dir, how.to_name)? })
    }

    fn lock_entries(
        &self,
        how: &RenameRequest<'_, ObjectId>,
    ) -> Result<(FileGuards<'_>, RenameEntries)> {
        loop {
            let guard = self.fs.inner.locks.write(&[how.from_dir, how.to_dir]);
            let found = self.lookup_entries(how)?;
            drop(guard);
            let mut files = vec![how.from_dir, how.to_dir, found.source.1];
            files.extend(found.target.as_ref().map(|target| target.1));
            let locked = self.fs.inner.locks.write(&files);
            if self.lookup_entries(how)? == found {
                return Ok((locked, found));
            }
        }
    }

    fn load_files(
        &self,
        how: &RenameRequest<'_, ObjectId>,
        ends: &RenameEntries,
    ) -> Result<RenameFiles> {
        let from = self.load_directory(how.from_dir)?;
        let to =
            if how.from_dir == how.to_dir { None } else { Some(self.load_directory(how.to_dir)?) };
        let source = self.load_pending(ends.source.1)?;
        let target = match &ends.target {
            Some(target) => Some(self.load_pending(target.1)?),
            None => None,
        };
        Ok(RenameFiles { from_dir: from, to_dir: to, source, target })
    }

    fn check_rename(
        &self,
        how: &RenameRequest<'_, ObjectId>,
        files: &mut RenameFiles,
    ) -> Result<()> {
        let (objset, is_exchange) = (self.objset_id(), how.mode == RenameMode::Exchange);
        self.check_removable(&files.from_dir, &files.source)?;
        self.check_project(files.to_dir.as_ref().unwrap_or(&files.from_dir), &files.source)?;
        if files.to_dir.is_some() && files.source.is_directory() {
            self.check_not_descendant(files.source.id(), how.to_dir)?;
        }
        let Some(target) = &files.target else {
            return if is_exchange {
                Err(Error::NoEntry { objset, object: how.to_dir })
            } else {
                Ok(())
            };
        };
        self.check_removable(files.to_dir.as_ref().unwrap_or(&files.from_dir), target)?;
        if is_exchange {
            self.check_project(&files.from_dir, target)?;
            if files.to_dir.is_some() && target.is_directory() {
                self.check_not_descendant(target.id(), how.from_dir)?;
            }
            return Ok(());
        }
        match (files.source.is_directory(), target.is_directory()) {
            (true, false) => Err(Error::NotDirectory { objset, object: target.id() }),
            (false, true) => Err(Error::IsDirectory { objset, object: target.id() }),
            (true, true) => self.require_empty(target.id()),
            (false, false) => Ok(()),
        }
    }

    /// A directory cannot be moved into one that is below it.
    fn check_not_descendant(&self, dir: ObjectId, below: ObjectId) -> Result<()> {
        let (mut at, root) = (below, self.fs.master().root);
        for _ in 0..MAX_DEPTH {
            if at == dir {
                return Err(self.invalid_error(dir, "a directory cannot be moved into itself"));
            }
            if at == root {
                return Ok(());
            }
            at = self.fs.inner.attributes(at)?.parent;
        }
        let rule = "a directory must be below the root";
        Err(Error::Malformed { objset: self.objset_id(), object: below, rule })
    }

    fn apply_rename(
        &self,
        caller: &ChangeContext,
        how: &RenameRequest<'_, ObjectId>,
        (locked, ends): (FileGuards<'_>, &RenameEntries),
        mut files: RenameFiles,
        mut whiteout: Option<CreatePlan>,
    ) -> Result<()> {
        let replaced = files.target.as_ref().filter(|_| how.mode != RenameMode::Exchange);
        let reaped = replaced.map(PendingFile::id);
        let fate = replaced.map(|target| self.plan_unlink(target));
        let is_reaped = fate.as_ref().is_some_and(UnlinkPlan::is_freed_after);
        let need = whiteout.as_ref().map_or(SMALL_NEED, CreatePlan::space_need);
        let tx = self.transactions.begin_tx(&SpaceNeed { frees_space: fate.is_some(), ..need })?;
        let left = match &mut whiteout {
            Some(plan) => Some(self.create_whiteout(&tx, how.from_dir, plan)?),
            None => None,
        };
        let made = left.as_ref().map(|left| (left.object, FileType::CharDevice));
        let moved = self.change_names(&tx, caller.now, |names| {
            names.rename_entries(how, ends, &mut files, made)?;
            match (&mut files.target, &fate) {
                (Some(target), Some(fate)) => self.drop_link(&tx, target, fate, caller.now),
                _ => Ok(()),
            }
        });
        if let Err(why) = moved {
            if let Some((id, _)) = made {
                self.fs.objset().free(&tx, id)?;
            }
            return Err(why);
        }
        files.update_moved(&tx, caller, how)?;
        let kind = match left {
            Some(left) => RenameKind::Whiteout(left),
            None if how.mode == RenameMode::Exchange => RenameKind::Exchange,
            None => RenameKind::Plain,
        };
        files.from_dir.store(&tx)?;
        if let Some(to) = &mut files.to_dir {
            to.store(&tx)?;
        }
        self.transactions.on_rename(files.source.id());
        if let (Some(target), RenameKind::Exchange) = (&files.target, &kind) {
            self.transactions.on_rename(target.id());
        }
        let rename = Rename {
            kind,
            source_dir: how.from_dir,
            target_dir: how.to_dir,
            source: ends.source.0.clone(),
            target: how.to_name.to_vec(),
        };
        self.transactions.log_record(&tx, LogRecord::Record(Body::Rename(Box::new(rename))));
        drop((tx, fate, locked));
        if let Some(id) = reaped.filter(|_| is_reaped) {
            self.try_free_unlinked(id);
        }
        Ok(())
    }

    /// Creates the whiteout at the old name.
    fn create_whiteout(&self, tx: &Tx, dir: ObjectId, plan: &mut CreatePlan) -> Result<Whiteout> {
        plan.znode.parent = dir;
        let made = self.create_object(tx, plan)?;
        let birth = &plan.znode;
        Ok(Whiteout {
            object: made.id(),
            mode: birth.mode.into(),
            uid: birth.owner,
            gid: birth.group,
            generation: tx.txg().get(),
            crtime: birth.now.to_words(),
            rdev: birth.rdev,
        })
    }
}

impl NameChanges<'_> {
    /// Adds the new names, and removes or exchanges the old ones.
    fn rename_entries(
        &mut self,
        how: &RenameRequest<'_, ObjectId>,
        ends: &RenameEntries,
        files: &mut RenameFiles,
        whiteout: Option<(ObjectId, FileType)>,
    ) -> Result<()> {
        let source = files.source.dirent();
        let other = files.target.as_ref().map(PendingFile::dirent);
        match (&ends.target, other) {
            (Some((stored, _)), Some((_, was))) => {
                self.replace_respelled(files.to_dir_mut(), (stored, how.to_name), was, source)?;
            }
            _ => self.add(files.to_dir_mut(), how.to_name, source)?,
        }
        let old = &ends.source.0;
        let heir = if how.mode == RenameMode::Exchange { other } else { whiteout };
        match heir {
            Some(heir) => self.replace(&mut files.from_dir, old, source.1, heir),
            None => self.remove(&mut files.from_dir, old, source.1),
        }
    }
}

/// A whiteout: the device 0, 0.
const WHITEOUT: NewInode<'static> = NewInode {
    kind: FileType::CharDevice,
    mode: 0,
    umask: 0,
    rdev: (0, 0),
    target: b"",
    times: None,
};
