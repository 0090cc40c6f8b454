//! Extended attributes as files in a hidden directory.
//!
//! All that is to be made is worked out before the transaction, and made within one.

use ondisk::Blkptr;
use ondisk::sa::Attribute;
use ondisk::zil::{Body, CreateKind, Write};
use ondisk::znode::flag;
use posix::{ChangeContext, FileType};
use txg::Tx;
use units::ObjectId;

use crate::new_znode::NewZnode;
use crate::sa_table::SaTable;
use crate::writer::FsWriter;
use crate::writer::create::{CreatePlan, create_record};
use crate::writer::pending_file::PendingFile;
use crate::{LogRecord, Result};

/// The planned change of a file's attribute directory.
pub(super) struct XattrDirPlan {
    /// The directory, if it is yet to be made.
    new_dir: Option<CreatePlan>,
    changes: Vec<XattrChange>,
}

struct XattrChange {
    /// The name, as it is or will be stored.
    name: Vec<u8>,
    value: Option<Vec<u8>>,
    /// The file that has the name.
    file: Option<ObjectId>,
    /// The file that owns it.
    new_file: Option<CreatePlan>,
}

impl XattrDirPlan {
    /// The number of files that are created with it.
    pub(super) fn new_file_count(&self) -> u64 {
        let files = self.changes.iter().map(|change| &change.new_file).chain([&self.new_dir]);
        units::to_u64(files.filter(|new| new.is_some()).count())
    }

    /// Whether anything is written, or all of it only goes.
    pub(super) fn has_writes(&self) -> bool {
        self.changes.iter().any(|change| change.value.is_some())
    }
}

impl FsWriter {
    /// The value of an attribute that is a file.
    pub(super) fn read_xattr_file(&self, of: &SaTable, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let dir = ObjectId::new(of.word(Attribute::Xattr));
        if !dir.exists() {
            return Ok(None);
        }
        let Some((_, file)) = self.lookup_entry(dir, name)? else { return Ok(None) };
        let file = self.load_pending(file)?;
        let mut value = vec![0; units::to_usize(file.size().min(MAX_XATTR_FILE))];
        file.object.read(0, &mut value)?;
        Ok(Some(value))
    }

    /// Works out what to change: names with their new values, or none. Readies the attributes of
    /// the file for a directory where there is none yet.
    pub(super) fn plan_xattr_dir(
        &self,
        caller: &ChangeContext,
        of: &mut SaTable,
        wanted: &[(&[u8], Option<&[u8]>)],
    ) -> Result<Option<XattrDirPlan>> {
        let dir = ObjectId::new(of.word(Attribute::Xattr));
        let owners = (of.word(Attribute::Uid), of.word(Attribute::Gid));
        let mut changes = Vec::new();
        for (name, value) in wanted {
            let known = if dir.exists() { self.lookup_entry(dir, name)? } else { None };
            let (name, file) = match known {
                Some((stored, file)) => (stored, Some(file)),
                None if value.is_none() => continue,
                None => (name.to_vec(), None),
            };
            let new = if file.is_none() {
                let mode = u32::from(FileType::File.type_bits()) << 12 | 0o644;
                let birth =
                    NewZnode { mode, nlink: 1, ..NewZnode::directory(0, owners, caller.now) };
                Some(self.plan_hidden_file(of, birth)?)
            } else {
                None
            };
            changes.push(XattrChange {
                name,
                value: value.map(<[u8]>::to_vec),
                file,
                new_file: new,
            });
        }
        if changes.is_empty() {
            return Ok(None);
        }
        let new = if dir.exists() {
            None
        } else {
            of.set_word(Attribute::Xattr, 0);
            Some(self.plan_hidden_file(of, NewZnode::directory(0o1777, owners, caller.now))?)
        };
        Ok(Some(XattrDirPlan { new_dir: new, changes }))
    }

    /// Something hidden of a file, that is not in a tree of names.
    fn plan_hidden_file(&self, of: &SaTable, birth: NewZnode) -> Result<CreatePlan> {
        let inherits = of.has_flag(flag::PROJINHERIT);
        let project = if inherits { of.word(Attribute::Projid) } else { 0 };
        let settings = self.settings();
        let flags = flag::XATTR | if inherits { flag::PROJINHERIT } else { 0 };
        let birth =
            NewZnode { project_id: settings.has_projects.then_some(project), flags, ..birth };
        let mut sheet = birth.sa_table(&self.fs.inner.schema, settings.dnode_slots.max(1));
        self.resolve_layouts(&mut sheet)?;
        Ok(CreatePlan { znode: birth, sa: sheet, acl: None, replayed_id: None })
    }

    /// Applies the plan. The caller stores the file's own attributes. A file without a name has no
    /// log records: a crash frees it, and the replay could not add to it.
    pub(super) fn apply_xattr_dir(
        &self,
        tx: &Tx,
        caller: &ChangeContext,
        of: &mut PendingFile,
        work: XattrDirPlan,
    ) -> Result<()> {
        let has_name = of.nlink() != 0;
        let promise = |promise: LogRecord<'_>| {
            if has_name {
                self.transactions.log_record(tx, promise);
            }
        };
        if let Some(mut plan) = work.new_dir {
            let made = self.create_object_in(tx, &mut plan, of.id())?;
            of.sa.set_word(Attribute::Xattr, made.id().get());
            let create = create_record(&plan.znode, CreateKind::XattrDirectory, &made, tx, b"");
            promise(LogRecord::Record(Body::Create(Box::new(create))));
        }
        let mut dir = self.load_pending(ObjectId::new(of.sa.word(Attribute::Xattr)))?;
        for change in work.changes {
            self.apply_xattr_change(tx, caller, &mut dir, change, &promise)?;
        }
        dir.store(tx)
    }

    fn create_object_in(
        &self,
        tx: &Tx,
        plan: &mut CreatePlan,
        parent: ObjectId,
    ) -> Result<PendingFile> {
        plan.znode.parent = parent;
        plan.sa.set_word(Attribute::Parent, parent.get());
        self.create_object(tx, plan)
    }

    fn apply_xattr_change(
        &self,
        tx: &Tx,
        caller: &ChangeContext,
        dir: &mut PendingFile,
        change: XattrChange,
        promise: &dyn Fn(LogRecord<'_>),
    ) -> Result<()> {
        let XattrChange { name, value, file, new_file: new } = change;
        let mut draft = match (file, new) {
            (Some(file), _) => self.load_pending(file)?,
            (None, Some(mut plan)) => {
                let made = self.create_object_in(tx, &mut plan, dir.id())?;
                let entry = (name.as_slice(), made.id(), FileType::File);
                self.add_dir_entry(tx, dir, entry, caller.now)?;
                let create = create_record(&plan.znode, CreateKind::File, &made, tx, &name);
                promise(LogRecord::Record(Body::Create(Box::new(create))));
                made
            }
            (None, None) => return Ok(()),
        };
        let Some(value) = value else {
            self.remove_dir_entry(tx, dir, (&name, FileType::File), caller.now)?;
            let body = Body::Remove { dir: dir.id(), name };
            promise(LogRecord::Record(body));
            return Ok(self.fs.objset().free(tx, draft.id())?);
        };
        draft.object.free_range(tx, 0..u64::MAX)?;
        let end = units::to_u64(value.len());
        self.grow_first_block(tx, &draft, end)?;
        draft.object.write(tx, 0, &value)?;
        draft.sa.set_word(Attribute::Size, end);
        draft.sa.touch_mtime(caller.now);
        draft.store(tx)?;
        let (object, pointer) = (draft.id(), Blkptr::EMPTY);
        let write = Write { object, offset: 0, length: end, pointer, data: Some(value) };
        let truncate = Body::Truncate { object, offset: end, length: 0 };
        promise(LogRecord::WithNextCommit(truncate));
        promise(LogRecord::WithNextCommit(Body::Write(Box::new(write))));
        Ok(())
    }
}

/// The largest value; a damaged size must not claim all memory.
const MAX_XATTR_FILE: u64 = 64 << 20;
