//! Replays the intent log after a crash.
//!
//! A created file gets its old number and generation. Times that are not in a record become those
//! of the replay. The file system has no other user meanwhile.

use ondisk::acl;
use ondisk::sa::Attribute;
use ondisk::zil::{Attributes as Extra, Body, Create, CreateKind, Rename, RenameKind, SetAttr};
use ondisk::znode::flag;
use ondisk::{Blkptr, Order};
use posix::{
    Capability, ChangeContext, Credentials, FileType, FlagChange, RenameMode, RenameRequest,
    SetAttributes, SetTime, Time, WriteOffset, acl::Ace,
};
use units::{BlockId, Level, ObjectId, Zbookmark};

use crate::attributes::{AttributeError, from_znode_flags};
use crate::new_znode::NewZnode;
use crate::replay::required_object;
use crate::writer::FsWriter;
use crate::writer::create::CreatePlan;
use crate::writer::set_attributes::SETTABLE_FLAGS;
use crate::{Error, Result};

const ATTR_CREATE_TIME: u64 = 0x1;
const ATTR_PROJECT: u64 = 0x40000;

/// Whether a record can be replayed again after a complete or partial replay, with no later record
/// replayed. If not, one transaction replays it as a whole.
pub fn is_repeatable(entry: &zil::ReplayEntry) -> bool {
    match &entry.record.body {
        Body::Remove { .. }
        | Body::RemoveDirectory { .. }
        | Body::Link { .. }
        | Body::Rename(_) => false,
        Body::Write(_) => entry.block.is_none(),
        _ => true,
    }
}

impl FsWriter {
    /// Replays a record.
    pub fn replay_record(&self, now: Time, entry: &zil::ReplayEntry) -> Result<()> {
        let (record, caller) = (&entry.record, replay_credentials(0, 0, now));
        if let Some(object) = required_object(&record.body)
            && !self.object_exists(object)?
        {
            return Ok(());
        }
        match &record.body {
            Body::Create(create) => self.replay_create(create, record.order),
            Body::Remove { dir, name } => self.unlink(&caller, *dir, name),
            Body::RemoveDirectory { dir, name } => self.rmdir(&caller, *dir, name),
            Body::Link { dir, object, name } => self.link(&caller, *object, *dir, name),
            Body::Rename(rename) => self.replay_rename(now, rename),
            Body::Write(write) => match (&write.data, &entry.block) {
                (Some(data), _) => {
                    let at = WriteOffset::At(write.offset);
                    self.write(&caller, write.object, at, data).map(drop)
                }
                (None, Some(block)) => {
                    let end = write.offset.saturating_add(write.length);
                    self.replay_write_block(
                        &caller,
                        write.object,
                        (block.offset, end),
                        &block.content,
                    )
                }
                (None, None) => {
                    let end = write.offset.saturating_add(write.length);
                    self.punch_hole(&caller, write.object, write.offset..end)?;
                    self.extend(&caller, write.object, end)
                }
            },
            Body::WriteSynced { object, offset, length } => {
                self.extend(&caller, *object, offset.saturating_add(*length))
            }
            Body::Truncate { object, offset, length } => {
                self.replay_truncate(&caller, *object, *offset, *length)
            }
            Body::SetAttr(set) => self.replay_setattr(&caller, set),
            Body::OldAcl { object, count, entries } => {
                self.replay_acl(&caller, *object, acl::parse_old(entries, *count, record.order))
            }
            Body::Acl { object, acl } => {
                let entries = acl::parse(&acl.entries, acl.count, record.order);
                self.replay_acl(&caller, *object, entries)
            }
            Body::SetXattr { object, name, value } => {
                let value = Some(value.as_slice()).filter(|value| !value.is_empty());
                self.replay_sa_xattr(&caller, *object, name, value)
            }
            Body::Clone { object, offset, length, block_size, pointers } => {
                let range = (*offset, offset.saturating_add(*length));
                self.replay_clone(&caller, *object, range, *block_size, pointers)
            }
        }
    }

    fn object_exists(&self, id: ObjectId) -> Result<bool> {
        match self.fs.objset().dnode(id) {
            Ok(_) => Ok(true),
            Err(why) if why.is_not_found() => Ok(false),
            Err(why) => Err(why.into()),
        }
    }

    fn replay_create(&self, create: &Create, order: Order) -> Result<()> {
        let now = Time::from_words(create.crtime);
        if !self.is_already_created(create)? {
            self.recreate(create, now)?;
        }
        let caller = replay_credentials(create.uid, create.gid, now);
        if let Some(extra) = &create.attributes {
            self.set_attributes(&caller, create.object, &to_set_attributes(extra))?;
        }
        match &create.acl {
            Some(acl) => {
                let entries = acl::parse(&acl.entries, acl.count, order);
                self.replay_acl(&caller, create.object, entries)
            }
            None => Ok(()),
        }
    }

    /// Whether the file exists already: the power failed again after its creation, and maybe before
    /// the other changes of the record.
    fn is_already_created(&self, create: &Create) -> Result<bool> {
        let there = if create.kind == CreateKind::XattrDirectory {
            let dir = self.load_pending(create.dir)?.sa.word(Attribute::Xattr);
            Some(ObjectId::new(dir)).filter(|dir| dir.exists())
        } else {
            self.lookup_entry(create.dir, &create.name)?.map(|(_, object)| object)
        };
        let Some(object) = there else { return Ok(false) };
        let generation =
            |object| Ok::<_, Error>(self.load_pending(object)?.sa.word(Attribute::Gen));
        if object != create.object || generation(object)? != create.generation {
            return Err(Error::Exists { objset: self.objset_id(), object: create.dir });
        }
        Ok(true)
    }

    fn recreate(&self, create: &Create, now: Time) -> Result<()> {
        let _locked = self.fs.inner.locks.write(&[create.dir]);
        let mut parent = self.load_pending(create.dir)?;
        let mut plan = self.plan_recreate(create, &parent.sa)?;
        let is_hidden = create.kind == CreateKind::XattrDirectory;
        if is_hidden {
            parent.sa.set_word(Attribute::Xattr, create.object.get());
        }
        self.resolve_layouts(&mut parent.sa)?;
        let tx = self.transactions.begin_tx(&plan.space_need())?;
        let made = self.create_object(&tx, &mut plan)?;
        if !is_hidden {
            self.add_dir_entry(&tx, &mut parent, (&create.name, made.id(), made.kind()), now)?;
        }
        parent.store(&tx)
    }

    /// The creation options from a record and its directory.
    fn plan_recreate(
        &self,
        create: &Create,
        parent: &crate::sa_table::SaTable,
    ) -> Result<CreatePlan> {
        let mode = u32::try_from(create.mode & 0xffff).unwrap_or(0);
        let kind = FileType::from_mode(mode);
        let has_project = matches!(kind, FileType::File | FileType::Directory);
        let inherits = has_project && parent.has_flag(flag::PROJINHERIT);
        let is_hidden = create.kind == CreateKind::XattrDirectory || parent.has_flag(flag::XATTR);
        let project = if inherits { parent.word(Attribute::Projid) } else { 0 };
        let flags = [(inherits, flag::PROJINHERIT), (is_hidden, flag::XATTR)];
        let birth = NewZnode {
            mode,
            owner: create.uid,
            group: create.gid,
            parent: create.dir,
            now: Time::from_words(create.crtime),
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            flags: flags.iter().filter(|flag| flag.0).map(|flag| flag.1).sum(),
            project_id: (has_project && self.settings.read().has_projects).then_some(project),
            rdev: create.rdev,
            target: create.target.clone(),
        };
        let slots = u8::try_from(create.slots).unwrap_or(1).max(1);
        let mut sheet = birth.sa_table(&self.fs.inner.schema, slots);
        self.resolve_layouts(&mut sheet)?;
        Ok(CreatePlan {
            acl: None,
            znode: birth,
            sa: sheet,
            replayed_id: Some((create.object, create.generation)),
        })
    }

    fn replay_rename(&self, now: Time, rename: &Rename) -> Result<()> {
        let (kind, caller, was) = match &rename.kind {
            RenameKind::Plain => (RenameMode::Replace, replay_credentials(0, 0, now), None),
            RenameKind::Exchange => (RenameMode::Exchange, replay_credentials(0, 0, now), None),
            RenameKind::Whiteout(left) => {
                let caller = replay_credentials(left.uid, left.gid, Time::from_words(left.crtime));
                (RenameMode::Whiteout, caller, Some((left.object, left.generation)))
            }
        };
        let how = RenameRequest {
            from_dir: rename.source_dir,
            from_name: &rename.source,
            to_dir: rename.target_dir,
            to_name: &rename.target,
            mode: kind,
        };
        self.rename_with_whiteout(&caller, &how, was)
    }

    fn replay_truncate(
        &self,
        caller: &ChangeContext,
        file: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let end = offset.saturating_add(length);
        if length == 0 {
            return self.truncate(caller, file, offset);
        }
        self.punch_hole(caller, file, offset..end)?;
        self.extend(caller, file, end)
    }

    fn replay_setattr(&self, caller: &ChangeContext, record: &SetAttr) -> Result<()> {
        let has = |bit| record.mask & bit != 0;
        let when = |bit, words| has(bit).then(|| SetTime::At(Time::from_words(words)));
        let extra = record.attributes.as_ref().map(to_set_attributes).unwrap_or_default();
        let id = |bit, word: u64| has(bit).then(|| low_u32(word));
        let set = SetAttributes {
            mode: has(SetAttr::MODE).then(|| u32::try_from(record.mode & 0o7777).unwrap_or(0)),
            uid: id(SetAttr::UID, record.uid),
            gid: id(SetAttr::GID, record.gid),
            size: has(SetAttr::SIZE).then_some(record.size),
            atime: when(SetAttr::ATIME, record.atime),
            // a new size comes with a new mtime
            mtime: when(SetAttr::MTIME | SetAttr::SIZE, record.mtime),
            ..extra
        };
        self.set_attributes(caller, record.object, &set)
    }

    fn replay_acl(
        &self,
        caller: &ChangeContext,
        file: ObjectId,
        entries: ondisk::Result<Vec<Ace>>,
    ) -> Result<()> {
        let entries = entries
            .map_err(|why| self.fs.inner.attribute_error(file, AttributeError::Format(why)))?;
        self.set_acl(caller, file, &entries)
    }

    /// Blocks that were cloned are copied.
    fn replay_clone(
        &self,
        caller: &ChangeContext,
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
                self.replay_truncate(caller, file, at, next.saturating_sub(at))?;
            } else {
                let number = BlockId::new(at.checked_div(block_size).unwrap_or(0));
                let place = Zbookmark::new(objset.id(), file, Level::new(0), number);
                let block = objset.source().read(pointer, place, objset.key());
                let block = block.map_err(dmu::Error::from)?;
                let count = units::to_usize(next.saturating_sub(at));
                let bytes = block.get(..count.min(block.len())).unwrap_or_default();
                self.write(caller, file, WriteOffset::At(at), bytes)?;
            }
            at = next;
        }
        Ok(())
    }
}

/// A caller with all rights.
fn replay_credentials(uid: u64, gid: u64, now: Time) -> ChangeContext {
    let credentials = Credentials::new(low_u32(uid), low_u32(gid));
    ChangeContext { credentials: credentials.with_capability(Capability::FileSetId), now }
}

fn low_u32(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

/// The flags, the time of making and the project that a record sets.
fn to_set_attributes(extra: &Extra) -> SetAttributes {
    let requested = extra.requested.first().copied().map_or(0, u64::from);
    let flags =
        |bits: u64| SETTABLE_FLAGS.iter().filter(|row| bits & row.0 != 0).map(|row| row.1).sum();
    let (which, to): (u64, u64) = (flags(requested), flags(requested & extra.values));
    SetAttributes {
        flags: (which != 0)
            .then_some(FlagChange { mask: from_znode_flags(which), values: from_znode_flags(to) }),
        crtime: (requested & ATTR_CREATE_TIME != 0).then(|| Time::from_words(extra.crtime)),
        project_id: (requested & ATTR_PROJECT != 0).then_some(extra.project),
        ..SetAttributes::default()
    }
}
