//! Making files of every kind.

use ondisk::ObjectType;
use ondisk::acl;
use ondisk::sa::Attribute;
use ondisk::zil::{Body, Create, CreateKind, SetAttr};
use ondisk::znode::{device_word, flag};
use parking_lot::MutexGuard;
use posix::{
    Capability, ChangeContext, FileType, NewInode, acl::Ace, acl::PosixAclEntry, acl::posix1e,
};
use txg::Tx;
use units::ObjectId;
use zap::{NewZap, Zap};

use crate::create::dir_normalization;
use crate::new_znode::NewZnode;
use crate::sa_table::SaTable;
use crate::writer::content::implied_setattr_record;
use crate::writer::pending_file::PendingFile;
use crate::writer::xattr_dir::XattrDirPlan;
use crate::writer::{CreatedInode, FsWriter, SMALL_OP_BYTES};
use crate::{Error, LogRecord, Result, SpaceNeed};

/// No target is longer.
const MAX_SYMLINK_TARGET: usize = 4095;
const S_ISGID: u32 = 0o2000;

/// The plan of a new file, before the transaction.
pub(super) struct CreatePlan {
    pub(super) znode: NewZnode,
    pub(super) sa: SaTable,
    /// The NFSv4 ACL, unless it is trivial.
    pub(super) acl: Option<Vec<Ace>>,
    /// Of something that is made again: its number and its generation.
    pub(super) replayed_id: Option<(ObjectId, u64)>,
}

/// A name and its entry.
pub(super) type XattrPair = (&'static [u8], Vec<u8>);

impl FsWriter {
    /// Makes a file, a directory, a symbolic link, a device, a pipe or a socket.
    pub fn create(
        &self,
        caller: &ChangeContext,
        dir: ObjectId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<CreatedInode> {
        self.check_name(dir, name)?;
        let _locked = self.fs.inner.locks.write(&[dir]);
        let mut parent = self.load_directory(dir)?;
        if self.lookup_entry(dir, name)?.is_some() {
            return Err(Error::Exists { objset: self.objset_id(), object: dir });
        }
        let (mut plan, acls) = self.plan_create(caller, &parent, new)?;
        let tx = self.transactions.begin_tx(&plan.space_need())?;
        let mut object = self.create_object(&tx, &mut plan)?;
        let entry = (name, object.id(), plan.znode.kind());
        if let Err(why) = self.add_dir_entry(&tx, &mut parent, entry, caller.now) {
            self.fs.objset().free(&tx, object.id())?;
            return Err(why);
        }
        parent.store(&tx)?;
        self.log_create(&tx, &plan, &object, name);
        if new.times.is_some() {
            // the record of a creation has no times
            let times = implied_setattr_record(&object, SetAttr::ATIME | SetAttr::MTIME);
            self.transactions.log_record(&tx, LogRecord::Record(times));
        }
        self.store_inherited_acls(&tx, caller, &mut object, acls)?;
        Ok(CreatedInode { id: object.id(), attributes: object.sa.attributes() })
    }

    /// Makes a file without a name (O_TMPFILE), and holds it once for the caller. It can be given
    /// a name by [`FsWriter::link`].
    pub fn create_tmpfile(
        &self,
        caller: &ChangeContext,
        dir: ObjectId,
        new: &NewInode<'_>,
    ) -> Result<CreatedInode> {
        let _locked = self.fs.inner.locks.write(&[dir]);
        let parent = self.load_directory(dir)?;
        let (mut plan, acls) = self.plan_create(caller, &parent, new)?;
        plan.sa.set_word(Attribute::Links, 0);
        let unlinked = self.fs.inner.locks.lock_unlinked_set();
        let tx = self.transactions.begin_tx(&plan.space_need())?;
        let mut object = self.create_object(&tx, &mut plan)?;
        if let Err(why) = self.add_to_unlinked_set(&tx, &unlinked, object.id()) {
            self.fs.objset().free(&tx, object.id())?;
            return Err(why);
        }
        self.store_inherited_acls(&tx, caller, &mut object, acls)?;
        self.holds.lock().insert(object.id(), 1);
        Ok(CreatedInode { id: object.id(), attributes: object.sa.attributes() })
    }

    /// Plans a new file, and the extended attributes that do not fit beside the others.
    pub(super) fn plan_create(
        &self,
        caller: &ChangeContext,
        parent: &PendingFile,
        new: &NewInode<'_>,
    ) -> Result<(CreatePlan, Option<XattrDirPlan>)> {
        if new.kind == FileType::Symlink && !(1..=MAX_SYMLINK_TARGET).contains(&new.target.len()) {
            return Err(self.invalid_error(parent.id(), "a link's target has 1 to 4095 bytes"));
        }
        let has_project = matches!(new.kind, FileType::File | FileType::Directory);
        let inherits = has_project && parent.sa.has_flag(flag::PROJINHERIT);
        let sets_group = parent.sa.mode() & S_ISGID != 0;
        let group =
            if sets_group { parent.sa.word(Attribute::Gid) } else { caller.credentials.gid.into() };
        let (permissions, acls) = self.inherit_permissions(parent, new)?;
        let inherited = self.inherit_nfs4_acl(parent, new.kind, permissions)?;
        let permissions = inherited.as_ref().map_or(permissions, |new| new.1);
        let mut mode = permissions & 0o7777 | u32::from(new.kind.type_bits()) << 12;
        if new.kind == FileType::Directory && sets_group {
            mode |= S_ISGID;
        } else if mode & 0o2010 == 0o2010
            && !caller.credentials.has(Capability::FileSetId)
            && !u32::try_from(group).is_ok_and(|group| caller.credentials.is_in_group(group))
        {
            mode &= !S_ISGID;
        }
        let settings = self.settings.read();
        let project = if inherits { parent.sa.word(Attribute::Projid) } else { 0 };
        let birth = NewZnode {
            mode,
            owner: caller.credentials.uid.into(),
            group,
            parent: parent.id(),
            now: caller.now,
            nlink: if new.kind == FileType::Directory { 2 } else { 1 },
            flags: if inherits { flag::PROJINHERIT } else { 0 },
            project_id: (has_project && settings.has_projects).then_some(project),
            rdev: device_word(new.rdev.0, new.rdev.1),
            target: new.target.to_vec(),
        };
        let mut sheet = birth.sa_table(&self.fs.inner.schema, settings.dnode_slots.max(1));
        drop(settings);
        if let Some([atime, mtime]) = new.times {
            sheet.set_time(Attribute::Atime, atime);
            sheet.set_time(Attribute::Mtime, mtime);
        }
        let acl = inherited.map(|new| new.0);
        if let Some(entries) = &acl {
            self.set_acl_attributes(&mut sheet, parent.id(), entries)?;
            // the rights of a named entry do not change the mode, even for the owner
            sheet.set_word(Attribute::Mode, mode.into());
        }
        let acls = self.pack_acls(&mut sheet, acls);
        let acls: Vec<_> = acls.iter().map(|acl| (acl.0, Some(acl.1.as_slice()))).collect();
        let acls = self.plan_xattr_dir(caller, &mut sheet, &acls)?;
        if !sheet.fits_in_spill() {
            return Err(Error::TooLarge { objset: self.objset_id(), object: parent.id() });
        }
        self.resolve_layouts(&mut sheet)?;
        Ok((CreatePlan { znode: birth, sa: sheet, acl, replayed_id: None }, acls))
    }

    /// The permissions of something new, and the POSIX ACLs that it inherits.
    fn inherit_permissions(
        &self,
        parent: &PendingFile,
        new: &NewInode<'_>,
    ) -> Result<(u32, Vec<XattrPair>)> {
        let masked = (new.mode & !new.umask, Vec::new());
        if new.kind == FileType::Symlink {
            return Ok((0o777, Vec::new()));
        }
        if !self.fs.options().posix_acls {
            return Ok(masked);
        }
        let Some(default) = self.read_posix_acl(parent, DEFAULT_ACL)? else { return Ok(masked) };
        let (access, mode) = posix1e::inherit_default(&default, new.mode);
        let mut acls = Vec::new();
        if new.kind == FileType::Directory {
            acls.push((DEFAULT_ACL, acl::encode_posix(&default)));
        }
        if !posix1e::is_minimal(&access) {
            acls.push((ACCESS_ACL, acl::encode_posix(&access)));
        }
        Ok((mode, acls))
    }

    /// The NFSv4 ACL that something new inherits, and its permission bits; none if it inherits nothing.
    fn inherit_nfs4_acl(
        &self,
        parent: &PendingFile,
        kind: FileType,
        permissions: u32,
    ) -> Result<Option<(Vec<Ace>, u32)>> {
        let policy = self.acl_policy();
        let inherits = policy.has_nfs4_acls
            && kind != FileType::Symlink
            && !parent.sa.is_legacy()
            && parent.sa.has_flag(flag::INHERIT_ACE);
        if !inherits {
            return Ok(None);
        }
        let entries = self.stored_acl(&parent.sa, parent.id())?;
        Ok(policy.inherit(&entries, kind.is_directory(), permissions))
    }

    /// A POSIX ACL of a file, if it has one.
    pub(super) fn read_posix_acl(
        &self,
        of: &PendingFile,
        name: &[u8],
    ) -> Result<Option<Vec<PosixAclEntry>>> {
        let Some(bytes) = self.read_xattr(of, name)? else { return Ok(None) };
        let entries = acl::parse_posix(&bytes);
        let entries = entries.map_err(|why| self.fs.inner.attribute_error(of.id(), why.into()))?;
        Ok((!entries.is_empty()).then_some(entries))
    }

    /// Makes the object of a plan.
    pub(super) fn create_object(&self, tx: &Tx, plan: &mut CreatePlan) -> Result<PendingFile> {
        let generation = plan.replayed_id.map_or(tx.txg().get(), |was| was.1);
        plan.sa.set_word(Attribute::Gen, generation);
        let objset = self.fs.objset();
        let (kind, slots) = (plan.sa.bonus_kind(), plan.sa.slots());
        let bonus = plan.sa.encode_bonus();
        let object = if plan.znode.kind() == FileType::Directory {
            let master = self.fs.master();
            let table = NewZap {
                normalization: dir_normalization(master.case, master.normalization),
                salt: self.transactions.random_u64(),
                bonus_kind: kind,
                bonus,
                slots,
                ..NewZap::default()
            };
            let kind = ObjectType::DIRECTORY;
            let made = match plan.replayed_id {
                Some((id, _)) => Zap::create_at(objset, tx, id, kind, &table)?,
                None => Zap::create(objset, tx, kind, &table)?,
            };
            made.object().clone()
        } else {
            let new = dmu::NewObject { slots, ..dmu::NewObject::new(ObjectType::PLAIN_FILE, 512) };
            let new = new.with_bonus(kind, bonus);
            match plan.replayed_id {
                Some((id, _)) => objset.create_at(tx, id, &new)?,
                None => objset.create(tx, &new)?,
            }
        };
        let mut draft = PendingFile { object, sa: plan.sa.clone() };
        if draft.sa.is_legacy() && plan.znode.kind() == FileType::Symlink {
            draft.store_link_target(tx, &plan.znode.target)?;
        }
        draft.store(tx)?;
        Ok(draft)
    }

    /// Stores the ACLs that a plan could not put with the other attributes.
    fn store_inherited_acls(
        &self,
        tx: &Tx,
        caller: &ChangeContext,
        made: &mut PendingFile,
        acls: Option<XattrDirPlan>,
    ) -> Result<()> {
        let Some(acls) = acls else { return Ok(()) };
        self.apply_xattr_dir(tx, caller, made, acls)?;
        made.store(tx)
    }

    fn log_create(&self, tx: &Tx, plan: &CreatePlan, made: &PendingFile, name: &[u8]) {
        let birth = &plan.znode;
        let kind = match birth.kind() {
            FileType::Directory => CreateKind::Directory,
            FileType::Symlink => CreateKind::Symlink,
            _ => CreateKind::File,
        };
        let attributes = made.sa.sa_xattrs();
        let told = self.settings.read().logs_sa_xattrs;
        if !attributes.is_empty() && !told {
            self.transactions.require_txg_sync(tx);
        }
        let mut create = create_record(birth, kind, made, tx, name);
        create.acl = plan.acl.as_ref().map(|entries| Self::acl_record(&made.sa, entries));
        let create = Body::Create(Box::new(create));
        self.transactions.log_record(tx, LogRecord::Record(create));
        for (name, value) in attributes.into_iter().filter(|_| told) {
            let object = made.id();
            let set = Body::SetXattr { object, name, value };
            // the ACL is required: the group bits of the mode are those of its mask
            self.transactions.log_record(tx, LogRecord::WithNextCommit(set));
        }
    }

    /// Adds a file to the set of unlinked ones, under that set's lock.
    pub(super) fn add_to_unlinked_set(
        &self,
        tx: &Tx,
        _lock: &MutexGuard<'_, ()>,
        id: ObjectId,
    ) -> Result<()> {
        let set = self.open_zap(self.fs.master().unlinked_set)?;
        Ok(set.update_u64(tx, unlinked_key(id).as_bytes(), id.get())?)
    }
}

/// The name of an unlinked file in their set.
pub(super) fn unlinked_key(id: ObjectId) -> String {
    format!("{:x}", id.get())
}

/// The log record of a new file.
pub(super) fn create_record(
    birth: &NewZnode,
    kind: CreateKind,
    made: &PendingFile,
    tx: &Tx,
    name: &[u8],
) -> Create {
    Create {
        kind,
        dir: birth.parent,
        object: made.id(),
        slots: made.object.dnode().slots.into(),
        mode: birth.mode.into(),
        uid: birth.owner,
        gid: birth.group,
        generation: tx.txg().get(),
        crtime: birth.now.to_words(),
        rdev: birth.rdev,
        name: name.to_vec(),
        target: birth.target.clone(),
        attributes: None,
        acl: None,
        domains: Vec::new(),
    }
}

/// The ACL that permissions are part of.
pub(super) const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// Of a directory: the default ACL for new files in it.
pub(super) const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

impl CreatePlan {
    pub(super) fn space_need(&self) -> SpaceNeed {
        let birth = &self.znode;
        let owners = [birth.owner, birth.group, birth.project_id.unwrap_or(0)].map(Some);
        SpaceNeed {
            bytes: SMALL_OP_BYTES,
            objects: 1,
            quota_owners: owners,
            ..SpaceNeed::default()
        }
    }
}

impl PendingFile {
    /// A legacy link's target: behind the znode if it is short, else the content.
    fn store_link_target(&mut self, tx: &Tx, target: &[u8]) -> Result<()> {
        if self.sa.fits_in_tail(target.len()) {
            self.sa.set_znode_tail(target.to_vec());
            return Ok(());
        }
        let size = units::narrow::<u32>(target.len().next_multiple_of(512));
        self.object.set_block_size(tx, size)?;
        Ok(self.object.write(tx, 0, target)?)
    }
}
