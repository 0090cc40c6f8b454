//! Moving names: rename with all that Linux adds to it.

use ondisk::sa::Attribute;
use ondisk::zil::{Body, Rename, RenameKind, Whiteout};
use ondisk::znode::flag;
use txg::Tx;
use units::ObjectId;

use crate::writer::draft::{Draft, SMALL_NEED};
use crate::writer::make::Plan;
use crate::writer::names::Names;
use crate::writer::remove::{Fate, Locked};
use crate::writer::{New, Writer};
use crate::{Caller, Error, Kind, Need, Promise, Result};

/// What becomes of the names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MoveKind {
    /// A file that had the new name loses it.
    #[default]
    Replace,
    /// The new name must be free (RENAME_NOREPLACE).
    NoReplace,
    /// Both files are there, and change names (RENAME_EXCHANGE).
    Exchange,
    /// As `Replace`; a whiteout is left at the old name (RENAME_WHITEOUT).
    Whiteout,
}

/// From where a file goes where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move<'a> {
    /// The directory of the old name.
    pub from_dir: ObjectId,
    /// The old name.
    pub from: &'a [u8],
    /// The directory of the new name.
    pub to_dir: ObjectId,
    /// The new name.
    pub to: &'a [u8],
    /// What becomes of the names.
    pub kind: MoveKind,
}

type Entry = (Vec<u8>, ObjectId);

/// The names of a move as they are stored, and whose they are.
#[derive(PartialEq, Eq)]
struct Ends {
    source: Entry,
    target: Option<Entry>,
}

/// The files of a move. Where both directories are one it stands in `from`.
struct Files {
    from: Draft,
    to: Option<Draft>,
    source: Draft,
    target: Option<Draft>,
}

impl Files {
    fn to(&mut self) -> &mut Draft {
        self.to.as_mut().unwrap_or(&mut self.from)
    }

    /// What was moved is told where it is now.
    fn tell(&mut self, tx: &Tx, caller: &Caller, how: &Move<'_>) -> Result<()> {
        let into = self.to().sheet.has_flag(flag::PROJINHERIT);
        let moved = &mut self.source;
        moved.sheet.set_flags(flag::AV_MODIFIED, true);
        if into {
            moved.sheet.set_flags(flag::PROJINHERIT, true);
        }
        moved.sheet.set_word(Attribute::Parent, how.to_dir.get());
        moved.sheet.touch_status(caller.now);
        moved.store(tx)?;
        if how.kind != MoveKind::Exchange {
            return Ok(());
        }
        let Some(target) = &mut self.target else { return Ok(()) };
        target.sheet.set_word(Attribute::Parent, how.from_dir.get());
        target.sheet.touch_status(caller.now);
        target.store(tx)
    }
}

/// No tree is deeper: a bound for what a damaged one may ask.
const DEEPEST: u32 = 1 << 20;

impl Writer {
    /// Moves a name.
    pub fn rename(&self, caller: &Caller, how: &Move<'_>) -> Result<()> {
        self.rename_as(caller, how, None)
    }

    /// The same; a whiteout that is made again becomes what it was.
    pub(super) fn rename_as(
        &self,
        caller: &Caller,
        how: &Move<'_>,
        was: Option<(ObjectId, u64)>,
    ) -> Result<()> {
        self.check_name(how.to_dir, how.to)?;
        // the shape of the tree must hold still if a directory goes elsewhere
        let _tree = (how.from_dir != how.to_dir).then(|| self.fs.inner.locks.tree());
        let (locked, ends) = self.lock_ends(how)?;
        let is_same = ends.target.as_ref().is_some_and(|target| target.1 == ends.source.1);
        let is_respelled = is_same
            && how.from_dir == how.to_dir
            && ends.target.as_ref().is_some_and(|target| target.0 == ends.source.0)
            && how.to != ends.source.0;
        match how.kind {
            MoveKind::NoReplace if ends.target.is_some() && !is_respelled => {
                return Err(Error::Exists { objset: self.objset(), object: how.to_dir });
            }
            // two names of one file: POSIX wants both to stay
            _ if is_same && !is_respelled => return Ok(()),
            _ => {}
        }
        let ends = if is_respelled { Ends { target: None, ..ends } } else { ends };
        let mut files = self.files(how, &ends)?;
        self.check_move(how, &mut files)?;
        let whiteout = match how.kind {
            MoveKind::Whiteout => {
                let (plan, _) = self.plan(caller, &files.from, &WHITEOUT)?;
                Some(Plan { was, ..plan })
            }
            _ => None,
        };
        self.move_names(caller, how, (locked, &ends), files, whiteout)
    }

    fn ends(&self, how: &Move<'_>) -> Result<Ends> {
        let source = self.existing(how.from_dir, how.from)?;
        Ok(Ends { source, target: self.entry(how.to_dir, how.to)? })
    }

    fn lock_ends(&self, how: &Move<'_>) -> Result<(Locked<'_>, Ends)> {
        loop {
            let guard = self.fs.inner.locks.write(&[how.from_dir, how.to_dir]);
            let found = self.ends(how)?;
            drop(guard);
            let mut files = vec![how.from_dir, how.to_dir, found.source.1];
            files.extend(found.target.as_ref().map(|target| target.1));
            let locked = self.fs.inner.locks.write(&files);
            if self.ends(how)? == found {
                return Ok((locked, found));
            }
        }
    }

    fn files(&self, how: &Move<'_>, ends: &Ends) -> Result<Files> {
        let from = self.directory(how.from_dir)?;
        let to = if how.from_dir == how.to_dir { None } else { Some(self.directory(how.to_dir)?) };
        let source = self.draft(ends.source.1)?;
        let target = match &ends.target {
            Some(target) => Some(self.draft(target.1)?),
            None => None,
        };
        Ok(Files { from, to, source, target })
    }

    fn check_move(&self, how: &Move<'_>, files: &mut Files) -> Result<()> {
        let (objset, is_exchange) = (self.objset(), how.kind == MoveKind::Exchange);
        self.may_go(&files.from, &files.source)?;
        self.check_project(files.to.as_ref().unwrap_or(&files.from), &files.source)?;
        if files.to.is_some() && files.source.is_directory() {
            self.must_not_hold(files.source.id(), how.to_dir)?;
        }
        let Some(target) = &files.target else {
            return if is_exchange {
                Err(Error::NoEntry { objset, object: how.to_dir })
            } else {
                Ok(())
            };
        };
        self.may_go(files.to.as_ref().unwrap_or(&files.from), target)?;
        if is_exchange {
            self.check_project(&files.from, target)?;
            if files.to.is_some() && target.is_directory() {
                self.must_not_hold(target.id(), how.from_dir)?;
            }
            return Ok(());
        }
        match (files.source.is_directory(), target.is_directory()) {
            (true, false) => Err(Error::NotDirectory { objset, object: target.id() }),
            (false, true) => Err(Error::IsDirectory { objset, object: target.id() }),
            (true, true) => self.must_be_empty(target.id()),
            (false, false) => Ok(()),
        }
    }

    /// A directory cannot be moved into one that is below it.
    fn must_not_hold(&self, dir: ObjectId, below: ObjectId) -> Result<()> {
        let (mut at, root) = (below, self.fs.master().root);
        for _ in 0..DEEPEST {
            if at == dir {
                return Err(self.invalid(dir, "a directory cannot be moved into itself"));
            }
            if at == root {
                return Ok(());
            }
            at = self.fs.inner.attributes(at)?.parent;
        }
        let rule = "a directory must be below the root";
        Err(Error::Rule { objset: self.objset(), object: below, rule })
    }

    fn move_names(
        &self,
        caller: &Caller,
        how: &Move<'_>,
        (locked, ends): (Locked<'_>, &Ends),
        mut files: Files,
        mut whiteout: Option<Plan>,
    ) -> Result<()> {
        let replaced = files.target.as_ref().filter(|_| how.kind != MoveKind::Exchange);
        let reaped = replaced.map(Draft::id);
        let fate = replaced.map(|target| self.fate(target));
        let is_reaped = fate.as_ref().is_some_and(Fate::is_reaped);
        let need = whiteout.as_ref().map_or(SMALL_NEED, Plan::need);
        let tx = self.begin.begin(&Need { frees: fate.is_some(), ..need })?;
        let left = match &mut whiteout {
            Some(plan) => Some(self.whiteout(&tx, how.from_dir, plan)?),
            None => None,
        };
        let made = left.as_ref().map(|left| (left.object, Kind::CharDevice));
        let moved = self.all_names(&tx, caller.now, |names| {
            names.swap(how, ends, &mut files, made)?;
            match (&mut files.target, &fate) {
                (Some(target), Some(fate)) => self.lose_name(&tx, target, fate, caller.now),
                _ => Ok(()),
            }
        });
        if let Err(why) = moved {
            if let Some((id, _)) = made {
                self.fs.objset().free(&tx, id)?;
            }
            return Err(why);
        }
        files.tell(&tx, caller, how)?;
        let kind = match left {
            Some(left) => RenameKind::Whiteout(left),
            None if how.kind == MoveKind::Exchange => RenameKind::Exchange,
            None => RenameKind::Plain,
        };
        files.from.store(&tx)?;
        if let Some(to) = &mut files.to {
            to.store(&tx)?;
        }
        self.begin.renamed(files.source.id());
        if let (Some(target), RenameKind::Exchange) = (&files.target, &kind) {
            self.begin.renamed(target.id());
        }
        let rename = Rename {
            kind,
            source_dir: how.from_dir,
            target_dir: how.to_dir,
            source: ends.source.0.clone(),
            target: how.to.to_vec(),
        };
        self.begin.promise(&tx, Promise::Record(Body::Rename(Box::new(rename))));
        drop((tx, fate, locked));
        if let Some(id) = reaped.filter(|_| is_reaped) {
            self.try_to_reap(id);
        }
        Ok(())
    }

    /// Makes what is left at the old name.
    fn whiteout(&self, tx: &Tx, dir: ObjectId, plan: &mut Plan) -> Result<Whiteout> {
        plan.birth.parent = dir;
        let made = self.born(tx, plan)?;
        let birth = &plan.birth;
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

impl Names<'_> {
    /// Gives the new names, and takes the old ones away or gives them to others.
    fn swap(
        &mut self,
        how: &Move<'_>,
        ends: &Ends,
        files: &mut Files,
        whiteout: Option<(ObjectId, Kind)>,
    ) -> Result<()> {
        let source = files.source.named();
        let other = files.target.as_ref().map(Draft::named);
        match (&ends.target, other) {
            (Some((stored, _)), Some((_, was))) => {
                self.turn_as(files.to(), (stored, how.to), was, source)?;
            }
            _ => self.add(files.to(), how.to, source)?,
        }
        let old = &ends.source.0;
        let heir = if how.kind == MoveKind::Exchange { other } else { whiteout };
        match heir {
            Some(heir) => self.turn(&mut files.from, old, source.1, heir),
            None => self.take(&mut files.from, old, source.1),
        }
    }
}

/// A whiteout: the device 0, 0.
const WHITEOUT: New<'static> =
    New { kind: Kind::CharDevice, mode: 0, umask: 0, device: (0, 0), target: b"" };
