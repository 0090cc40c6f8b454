//! Doing again what the intent log promised, after a crash.
//!
//! What a record makes gets the number and the generation that it had. Times that a record does
//! not tell become that of the replay. Nobody else may use the file system meanwhile.

use ondisk::acl;
use ondisk::sa::Attribute;
use ondisk::zil::{Attributes as Extra, Body, Create, CreateKind, Rename, RenameKind, SetAttr};
use ondisk::znode::{Time, flag};
use ondisk::{Blkptr, Order};
use units::{BlockId, Level, ObjectId, Place};

use crate::attributes::Fault;
use crate::birth::Birth;
use crate::replay::needed;
use crate::writer::make::Plan;
use crate::writer::set::FLAGS;
use crate::writer::{Move, MoveKind, Position, Set, Writer};
use crate::{Caller, Error, Kind, Result};

const CREATE_TIME: u64 = 0x1;
const PROJECT: u64 = 0x40000;

/// Whether what a record says can be done once more when it was done already, or in part, and nothing
/// that comes after it. Where it cannot, one transaction does all of it.
pub fn can_repeat(entry: &zil::Entry) -> bool {
    match &entry.record.body {
        Body::Remove { .. }
        | Body::RemoveDirectory { .. }
        | Body::Link { .. }
        | Body::Rename(_) => false,
        Body::Write(_) => entry.block.is_none(),
        _ => true,
    }
}

impl Writer {
    /// Does what a record says.
    pub fn replay(&self, now: Time, entry: &zil::Entry) -> Result<()> {
        let (record, caller) = (&entry.record, caller(0, 0, now));
        if let Some(object) = needed(&record.body)
            && !self.exists(object)?
        {
            return Ok(());
        }
        match &record.body {
            Body::Create(create) => self.create_again(create, record.order),
            Body::Remove { dir, name } => self.unlink(&caller, *dir, name),
            Body::RemoveDirectory { dir, name } => self.rmdir(&caller, *dir, name),
            Body::Link { dir, object, name } => self.link(&caller, *object, *dir, name),
            Body::Rename(rename) => self.rename_again(now, rename),
            Body::Write(write) => match (&write.data, &entry.block) {
                (Some(data), _) => {
                    let at = Position::At(write.offset);
                    self.write(&caller, write.object, at, data).map(drop)
                }
                (None, Some(block)) => {
                    let end = write.offset.saturating_add(write.length);
                    self.write_block(&caller, write.object, (block.offset, end), &block.content)
                }
                (None, None) => {
                    let end = write.offset.saturating_add(write.length);
                    self.punch(&caller, write.object, write.offset..end)?;
                    self.extend(&caller, write.object, end)
                }
            },
            Body::WritePlaced { object, offset, length } => {
                self.extend(&caller, *object, offset.saturating_add(*length))
            }
            Body::Truncate { object, offset, length } => {
                self.free_again(&caller, *object, *offset, *length)
            }
            Body::SetAttr(set) => self.set_again(&caller, set),
            Body::OldAcl { object, count, entries } => {
                self.acl_again(&caller, *object, acl::parse_old(entries, *count, record.order))
            }
            Body::Acl { object, acl } => {
                let entries = acl::parse(&acl.entries, acl.count, record.order);
                self.acl_again(&caller, *object, entries)
            }
            Body::SetXattr { object, name, value } => {
                let value = Some(value.as_slice()).filter(|value| !value.is_empty());
                self.set_packed_again(&caller, *object, name, value)
            }
            Body::Clone { object, offset, length, block_size, pointers } => {
                let range = (*offset, offset.saturating_add(*length));
                self.copy_again(&caller, *object, range, *block_size, pointers)
            }
        }
    }

    fn exists(&self, id: ObjectId) -> Result<bool> {
        match self.fs.objset().dnode(id) {
            Ok(_) => Ok(true),
            Err(why) if why.is_not_found() => Ok(false),
            Err(why) => Err(why.into()),
        }
    }

    fn create_again(&self, create: &Create, order: Order) -> Result<()> {
        let now = Time::from_words(create.crtime);
        if !self.is_made(create)? {
            self.make_again(create, now)?;
        }
        let caller = caller(create.uid, create.gid, now);
        if let Some(extra) = &create.attributes {
            self.set(&caller, create.object, &set_of(extra))?;
        }
        match &create.acl {
            Some(acl) => {
                let entries = acl::parse(&acl.entries, acl.count, order);
                self.acl_again(&caller, create.object, entries)
            }
            None => Ok(()),
        }
    }

    /// Whether it is there already: the power failed once more after it was made, and maybe before what
    /// else the record says was done.
    fn is_made(&self, create: &Create) -> Result<bool> {
        let there = if create.kind == CreateKind::XattrDirectory {
            let dir = self.draft(create.dir)?.sheet.word(Attribute::Xattr);
            Some(ObjectId::new(dir)).filter(|dir| dir.exists())
        } else {
            self.entry(create.dir, &create.name)?.map(|(_, object)| object)
        };
        let Some(object) = there else { return Ok(false) };
        let generation = |object| Ok::<_, Error>(self.draft(object)?.sheet.word(Attribute::Gen));
        if object != create.object || generation(object)? != create.generation {
            return Err(Error::Exists { objset: self.objset(), object: create.dir });
        }
        Ok(true)
    }

    fn make_again(&self, create: &Create, now: Time) -> Result<()> {
        let _locked = self.fs.inner.locks.write(&[create.dir]);
        let mut parent = self.draft(create.dir)?;
        let mut plan = self.plan_again(create, &parent.sheet)?;
        let is_hidden = create.kind == CreateKind::XattrDirectory;
        if is_hidden {
            parent.sheet.set_word(Attribute::Xattr, create.object.get());
        }
        self.settle(&mut parent.sheet)?;
        let tx = self.begin.begin(&plan.need())?;
        let made = self.born(&tx, &mut plan)?;
        if !is_hidden {
            self.add_name(&tx, &mut parent, (&create.name, made.id(), made.kind()), now)?;
        }
        parent.store(&tx)
    }

    /// What something was, as its record and its directory tell.
    fn plan_again(&self, create: &Create, parent: &crate::sheet::Sheet) -> Result<Plan> {
        let mode = u32::try_from(create.mode & 0xffff).unwrap_or(0);
        let kind = Kind::from_number((mode >> 12 & 0xf) as u8);
        let has_project = matches!(kind, Kind::File | Kind::Directory);
        let inherits = has_project && parent.has_flag(flag::PROJINHERIT);
        let is_hidden = create.kind == CreateKind::XattrDirectory || parent.has_flag(flag::XATTR);
        let project = if inherits { parent.word(Attribute::Projid) } else { 0 };
        let flags = [(inherits, flag::PROJINHERIT), (is_hidden, flag::XATTR)];
        let birth = Birth {
            mode,
            owner: create.uid,
            group: create.gid,
            parent: create.dir,
            now: Time::from_words(create.crtime),
            links: if kind == Kind::Directory { 2 } else { 1 },
            flags: flags.iter().filter(|flag| flag.0).map(|flag| flag.1).sum(),
            project: (has_project && self.settings.read().projects).then_some(project),
            rdev: create.rdev,
            target: create.target.clone(),
        };
        let slots = u8::try_from(create.slots).unwrap_or(1).max(1);
        let mut sheet = birth.sheet(&self.fs.inner.schema, slots);
        self.settle(&mut sheet)?;
        Ok(Plan { birth, sheet, was: Some((create.object, create.generation)) })
    }

    fn rename_again(&self, now: Time, rename: &Rename) -> Result<()> {
        let (kind, caller, was) = match &rename.kind {
            RenameKind::Plain => (MoveKind::Replace, caller(0, 0, now), None),
            RenameKind::Exchange => (MoveKind::Exchange, caller(0, 0, now), None),
            RenameKind::Whiteout(left) => {
                let caller = caller(left.uid, left.gid, Time::from_words(left.crtime));
                (MoveKind::Whiteout, caller, Some((left.object, left.generation)))
            }
        };
        let how = Move {
            from_dir: rename.source_dir,
            from: &rename.source,
            to_dir: rename.target_dir,
            to: &rename.target,
            kind,
        };
        self.rename_as(&caller, &how, was)
    }

    fn free_again(&self, caller: &Caller, file: ObjectId, offset: u64, length: u64) -> Result<()> {
        let end = offset.saturating_add(length);
        if length == 0 {
            return self.truncate(caller, file, offset);
        }
        self.punch(caller, file, offset..end)?;
        self.extend(caller, file, end)
    }

    fn set_again(&self, caller: &Caller, record: &SetAttr) -> Result<()> {
        let has = |bit| record.mask & bit != 0;
        let when = |bit, words| has(bit).then(|| Time::from_words(words));
        let extra = record.attributes.as_ref().map(set_of).unwrap_or_default();
        let id = |bit, word: u64| has(bit).then(|| lower_half(word));
        let set = Set {
            mode: has(SetAttr::MODE).then(|| u32::try_from(record.mode & 0o7777).unwrap_or(0)),
            uid: id(SetAttr::UID, record.uid),
            gid: id(SetAttr::GID, record.gid),
            size: has(SetAttr::SIZE).then_some(record.size),
            atime: when(SetAttr::ATIME, record.atime),
            // a new size comes with a new mtime
            mtime: when(SetAttr::MTIME | SetAttr::SIZE, record.mtime),
            ..extra
        };
        self.set(caller, record.object, &set)
    }

    fn acl_again(
        &self,
        caller: &Caller,
        file: ObjectId,
        entries: ondisk::Result<Vec<acl::Entry>>,
    ) -> Result<()> {
        let entries = entries.map_err(|why| self.fs.inner.fault(file, Fault::Format(why)))?;
        self.set_acl(caller, file, &entries)
    }

    /// Blocks that were cloned are copied.
    fn copy_again(
        &self,
        caller: &Caller,
        file: ObjectId,
        (offset, end): (u64, u64),
        block_size: u64,
        pointers: &[Blkptr],
    ) -> Result<()> {
        let objset = self.fs.objset();
        let mut at = offset;
        for pointer in pointers {
            let next = at.saturating_add(block_size).min(end);
            if pointer.is_hole() {
                self.free_again(caller, file, at, next.saturating_sub(at))?;
            } else {
                let number = BlockId::new(at.checked_div(block_size).unwrap_or(0));
                let place = Place::new(objset.id(), file, Level::new(0), number);
                let block = objset.source().read(pointer, place, objset.key());
                let block = block.map_err(dmu::Error::from)?;
                let count = usize::try_from(next.saturating_sub(at)).unwrap_or(usize::MAX);
                let bytes = block.get(..count.min(block.len())).unwrap_or_default();
                self.write(caller, file, Position::At(at), bytes)?;
            }
            at = next;
        }
        Ok(())
    }
}

/// Who is nobody in particular, and may do everything.
fn caller(uid: u64, gid: u64, now: Time) -> Caller {
    Caller { uid: lower_half(uid), gid: lower_half(gid), now, keeps_setid: true }
}

fn lower_half(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

/// The flags, the time of making and the project that a record sets.
fn set_of(extra: &Extra) -> Set {
    let requested = extra.requested.first().copied().map_or(0, u64::from);
    let flags = |bits: u64| FLAGS.iter().filter(|row| bits & row.0 != 0).map(|row| row.1).sum();
    let (which, to): (u64, u64) = (flags(requested), flags(requested & extra.values));
    Set {
        flags: (which != 0).then_some((which, to)),
        crtime: (requested & CREATE_TIME != 0).then(|| Time::from_words(extra.crtime)),
        project: (requested & PROJECT != 0).then_some(extra.project),
        ..Set::default()
    }
}
