//! Extended attributes as files in a hidden directory.
//!
//! All that is to be made is worked out before the transaction, and made within one.

use ondisk::Blkptr;
use ondisk::sa::Attribute;
use ondisk::zil::{Body, CreateKind, Write};
use ondisk::znode::flag;
use txg::Tx;
use units::ObjectId;

use crate::birth::Birth;
use crate::sheet::Sheet;
use crate::writer::Writer;
use crate::writer::draft::Draft;
use crate::writer::make::{Plan, record};
use crate::{Caller, Kind, Promise, Result};

/// What is to change in a file's directory of extended attributes.
pub(super) struct Work {
    /// The directory, if it is yet to be made.
    new: Option<Plan>,
    changes: Vec<Change>,
}

struct Change {
    /// The name, as it is or will be stored.
    name: Vec<u8>,
    value: Option<Vec<u8>>,
    /// The file that has the name.
    file: Option<ObjectId>,
    /// The file that is to have it.
    new: Option<Plan>,
}

impl Work {
    /// How many files come to be with it.
    pub(super) fn new_files(&self) -> u64 {
        let files = self.changes.iter().map(|change| &change.new).chain([&self.new]);
        u64::try_from(files.filter(|new| new.is_some()).count()).unwrap_or(u64::MAX)
    }

    /// Whether anything is written, or all of it only goes.
    pub(super) fn writes(&self) -> bool {
        self.changes.iter().any(|change| change.value.is_some())
    }
}

impl Writer {
    /// The value of an attribute that is a file.
    pub(super) fn xattr_file(&self, of: &Sheet, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let dir = ObjectId::new(of.word(Attribute::Xattr));
        if !dir.exists() {
            return Ok(None);
        }
        let Some((_, file)) = self.entry(dir, name)? else { return Ok(None) };
        let file = self.draft(file)?;
        let mut value = vec![0; usize::try_from(file.size().min(LARGEST)).unwrap_or(0)];
        file.object.read(0, &mut value)?;
        Ok(Some(value))
    }

    /// Works out what to change: names with their new values, or none. Readies the attributes of
    /// the file for a directory where there is none yet.
    pub(super) fn in_directory(
        &self,
        caller: &Caller,
        of: &mut Sheet,
        wanted: &[(&[u8], Option<&[u8]>)],
    ) -> Result<Option<Work>> {
        let dir = ObjectId::new(of.word(Attribute::Xattr));
        let owners = (of.word(Attribute::Uid), of.word(Attribute::Gid));
        let mut changes = Vec::new();
        for (name, value) in wanted {
            let known = if dir.exists() { self.entry(dir, name)? } else { None };
            let (name, file) = match known {
                Some((stored, file)) => (stored, Some(file)),
                None if value.is_none() => continue,
                None => (name.to_vec(), None),
            };
            let new = if file.is_none() {
                let mode = u32::from(Kind::File.number()) << 12 | 0o644;
                let birth = Birth { mode, links: 1, ..Birth::directory(0, owners, caller.now) };
                Some(self.hidden(of, birth)?)
            } else {
                None
            };
            changes.push(Change { name, value: value.map(<[u8]>::to_vec), file, new });
        }
        if changes.is_empty() {
            return Ok(None);
        }
        let new = if dir.exists() {
            None
        } else {
            of.set_word(Attribute::Xattr, 0);
            Some(self.hidden(of, Birth::directory(0o1777, owners, caller.now))?)
        };
        Ok(Some(Work { new, changes }))
    }

    /// Something hidden of a file, that is not in a tree of names.
    fn hidden(&self, of: &Sheet, birth: Birth) -> Result<Plan> {
        let inherits = of.has_flag(flag::PROJINHERIT);
        let project = if inherits { of.word(Attribute::Projid) } else { 0 };
        let settings = self.settings();
        let flags = flag::XATTR | if inherits { flag::PROJINHERIT } else { 0 };
        let birth = Birth { project: settings.projects.then_some(project), flags, ..birth };
        let mut sheet = birth.sheet(&self.fs.inner.schema, settings.slots.max(1));
        self.settle(&mut sheet)?;
        Ok(Plan { birth, sheet, was: None })
    }

    /// Does what was worked out. The file's own attributes are the caller's to store. Nothing is
    /// promised of a file without a name: it goes with a crash, and could not be added to then.
    pub(super) fn change_directory(
        &self,
        tx: &Tx,
        caller: &Caller,
        of: &mut Draft,
        work: Work,
    ) -> Result<()> {
        let has_name = of.links() != 0;
        let promise = |promise: Promise<'_>| {
            if has_name {
                self.begin.promise(tx, promise);
            }
        };
        if let Some(mut plan) = work.new {
            let made = self.born_in(tx, &mut plan, of.id())?;
            of.sheet.set_word(Attribute::Xattr, made.id().get());
            let create = record(&plan.birth, CreateKind::XattrDirectory, &made, tx, b"");
            promise(Promise::Record(Body::Create(Box::new(create))));
        }
        let mut dir = self.draft(ObjectId::new(of.sheet.word(Attribute::Xattr)))?;
        for change in work.changes {
            self.change_hidden(tx, caller, &mut dir, change, &promise)?;
        }
        dir.store(tx)
    }

    fn born_in(&self, tx: &Tx, plan: &mut Plan, parent: ObjectId) -> Result<Draft> {
        plan.birth.parent = parent;
        plan.sheet.set_word(Attribute::Parent, parent.get());
        self.born(tx, plan)
    }

    fn change_hidden(
        &self,
        tx: &Tx,
        caller: &Caller,
        dir: &mut Draft,
        change: Change,
        promise: &dyn Fn(Promise<'_>),
    ) -> Result<()> {
        let Change { name, value, file, new } = change;
        let mut draft = match (file, new) {
            (Some(file), _) => self.draft(file)?,
            (None, Some(mut plan)) => {
                let made = self.born_in(tx, &mut plan, dir.id())?;
                let entry = (name.as_slice(), made.id(), Kind::File);
                self.add_name(tx, dir, entry, caller.now)?;
                let create = record(&plan.birth, CreateKind::File, &made, tx, &name);
                promise(Promise::Record(Body::Create(Box::new(create))));
                made
            }
            (None, None) => return Ok(()),
        };
        let Some(value) = value else {
            self.take_name(tx, dir, (&name, Kind::File), caller.now)?;
            let body = Body::Remove { dir: dir.id(), name };
            promise(Promise::Record(body));
            return Ok(self.fs.objset().free(tx, draft.id())?);
        };
        draft.object.free_range(tx, 0..u64::MAX)?;
        let end = u64::try_from(value.len()).unwrap_or(u64::MAX);
        self.grow_block(tx, &draft, end)?;
        draft.object.write(tx, 0, &value)?;
        draft.sheet.set_word(Attribute::Size, end);
        draft.sheet.touch_content(caller.now);
        draft.store(tx)?;
        let (object, pointer) = (draft.id(), Blkptr::EMPTY);
        let write = Write { object, offset: 0, length: end, pointer, data: Some(value) };
        let truncate = Body::Truncate { object, offset: end, length: 0 };
        promise(Promise::Hidden(truncate));
        promise(Promise::Hidden(Body::Write(Box::new(write))));
        Ok(())
    }
}

/// No value is larger; a damaged size must not ask for all memory.
const LARGEST: u64 = 64 << 20;
