//! Sets attributes of files: mode, owners, times, flags, projects.

use ondisk::acl;
use ondisk::sa::Attribute;
use ondisk::zil::{Attributes as Extra, Body, SetAttr};
use ondisk::znode::flag;
use posix::{ChangeContext, FileFlags, FileType, SetAttributes, Time, acl::nfs4, acl::posix1e};
use units::ObjectId;

use crate::attributes::to_znode_flags;
use crate::new_znode::to_legacy_acl;
use crate::sa_table::SaTable;
use crate::writer::FsWriter;
use crate::writer::create::ACCESS_ACL;
use crate::writer::pending_file::{PendingFile, SMALL_NEED};
use crate::writer::xattr_dir::XattrDirPlan;
use crate::{Error, LogRecord, Result, SpaceNeed};

/// The flags that can be set, each with the bit by which the log knows it.
pub(super) const SETTABLE_FLAGS: [(u64, u64); 15] = crate::replay::ATTR_FLAGS;
const ATTR_PROJECT: u64 = 0x40000;
const ATTR_CREATE_TIME: u64 = 0x1;

impl FsWriter {
    /// Sets attributes of a file.
    pub fn set_attributes(
        &self,
        caller: &ChangeContext,
        file: ObjectId,
        set: &SetAttributes,
    ) -> Result<()> {
        let mut set = *set;
        if let Some(size) = set.size.take() {
            // the truncation changes the ctime, so it takes the guard with it
            self.truncate_if(caller, file, size, set.if_ctime.take())?;
        }
        if set == SetAttributes::default() {
            return Ok(());
        }
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.load_pending(file)?;
        self.check_guard(&draft, set.if_ctime.take())?;
        if set == SetAttributes::default() {
            return Ok(());
        }
        self.check_set_attributes(&draft, &set)?;
        let mode = new_mode(&draft, &set);
        let mut hidden = self.load_xattr_files(&draft, &set)?;
        let acl = draft.sa.external_acl().filter(|_| mode.is_some());
        let need = space_need(&draft, &set);
        self.apply_attributes(&mut draft, &set, mode, caller.now)?;
        let work = match mode {
            Some(mode) => self.apply_mode_to_acl(caller, &mut draft, mode)?,
            None => None,
        };
        self.resolve_layouts(&mut draft.sa)?;
        for each in &mut hidden {
            self.apply_owners(each, &set)?;
            each.sa.touch_ctime(caller.now);
            self.resolve_layouts(&mut each.sa)?;
        }
        let tx = self.transactions.begin_tx(&need)?;
        for each in &mut hidden {
            each.store(&tx)?;
        }
        if let Some(work) = work {
            self.apply_xattr_dir(&tx, caller, &mut draft, work)?;
        }
        draft.store(&tx)?;
        if let Some(acl) = acl {
            self.fs.objset().free(&tx, acl)?;
        }
        let body = Body::SetAttr(Box::new(setattr_record(&draft, &set, mode)));
        self.transactions.log_record(&tx, LogRecord::Record(body));
        Ok(())
    }

    /// Fails if a change was made for another version of the file.
    pub(super) fn check_guard(&self, draft: &PendingFile, if_ctime: Option<Time>) -> Result<()> {
        if if_ctime.is_none_or(|ctime| ctime == draft.sa.attributes().ctime) {
            return Ok(());
        }
        Err(Error::ChangedMeanwhile { objset: self.objset_id(), object: draft.id() })
    }

    fn check_set_attributes(&self, draft: &PendingFile, set: &SetAttributes) -> Result<()> {
        let (objset, object) = (self.objset_id(), draft.id());
        let frees = set.flags.is_some_and(|change| change.clears(FileFlags::IMMUTABLE));
        // in OpenZFS the immutable flag does not protect the project
        let others = SetAttributes { atime: None, flags: None, project_id: None, ..*set };
        if self.is_forbidden(&draft.sa, flag::IMMUTABLE)
            && !frees
            && others != SetAttributes::default()
        {
            return Err(self.not_permitted(object, "the file is immutable"));
        }
        let has_project = matches!(draft.kind(), FileType::File | FileType::Directory)
            && self.settings.read().has_projects
            && !draft.sa.is_legacy();
        let inherits = set.flags.is_some_and(|change| change.sets(FileFlags::PROJECT_INHERIT));
        if (set.project_id.is_some() || inherits) && !has_project {
            let rule = "only files and directories have a project, where the pool has them";
            return Err(Error::NotSupported { objset, object, rule });
        }
        if set.project_id.is_some_and(|project| project >= u32::MAX.into()) {
            return Err(self.invalid_error(object, "a project is a number of 32 bits"));
        }
        Ok(())
    }

    fn apply_attributes(
        &self,
        draft: &mut PendingFile,
        set: &SetAttributes,
        mode: Option<u32>,
        now: Time,
    ) -> Result<()> {
        self.apply_owners(draft, set)?;
        if let Some(mode) = mode {
            self.apply_chmod(draft, mode, set.mode.is_some())?;
        }
        let times = [
            (Attribute::Atime, set.atime.map(|time| time.resolve(now))),
            (Attribute::Mtime, set.mtime.map(|time| time.resolve(now))),
            (Attribute::Crtime, set.crtime),
        ];
        draft.sa.touch_ctime(now);
        for (attribute, time) in times {
            if let Some(time) = time {
                draft.sa.set_time(attribute, time);
            }
        }
        if let Some(change) = set.flags {
            let (mask, values) = (to_znode_flags(change.mask), to_znode_flags(change.values));
            draft.sa.set_flags(mask & values, true);
            draft.sa.set_flags(mask & !values, false);
        }
        Ok(())
    }

    /// The attributes that a file's hidden files share with it.
    fn apply_owners(&self, draft: &mut PendingFile, set: &SetAttributes) -> Result<()> {
        if let Some(uid) = set.uid {
            draft.sa.set_word(Attribute::Uid, uid.into());
        }
        if let Some(gid) = set.gid {
            draft.sa.set_word(Attribute::Gid, gid.into());
        }
        let Some(project) = set.project_id else { return Ok(()) };
        if draft.sa.has_flag(flag::PROJID) {
            draft.sa.set_word(Attribute::Projid, project);
        } else if draft.sa.is_legacy() {
            return Err(self.invalid_error(draft.id(), "a legacy file has no project"));
        } else {
            // accounting looks for it at a fixed place
            draft.sa.insert_after((Attribute::Projid, project), Attribute::Links);
            draft.sa.set_flags(flag::PROJID, true);
        }
        Ok(())
    }

    /// The directory of extended attributes and all that is in it, if they change owner too.
    fn load_xattr_files(
        &self,
        draft: &PendingFile,
        set: &SetAttributes,
    ) -> Result<Vec<PendingFile>> {
        let dir = ObjectId::new(draft.sa.word(Attribute::Xattr));
        let changes = set.uid.is_some() || set.gid.is_some() || set.project_id.is_some();
        if !dir.exists() || !changes {
            return Ok(Vec::new());
        }
        let mut files = vec![dir];
        self.fs.inner.read_dir(dir, None, &mut |entry| {
            files.push(entry.object);
            true
        })?;
        files.into_iter().map(|id| self.load_pending(id)).collect()
    }

    /// Sets the mode. `is_chmod`: the caller set the permission bits, and the property aclmode
    /// decides over an NFSv4 ACL; else only set-ID bits changed.
    fn apply_chmod(&self, draft: &mut PendingFile, mode: u32, is_chmod: bool) -> Result<()> {
        let policy = self.acl_policy();
        if !policy.has_nfs4_acls || draft.sa.is_legacy() || draft.sa.has_flag(flag::ACL_TRIVIAL) {
            self.set_mode(&mut draft.sa, mode);
            return Ok(());
        }
        if !is_chmod {
            draft.sa.set_word(Attribute::Mode, mode.into());
            return Ok(());
        }
        let object = draft.id();
        let entries = self.stored_acl(&draft.sa, object)?;
        let Some(entries) = policy.chmod(&entries, draft.is_directory(), mode) else {
            return Err(self.not_permitted(object, "aclmode=restricted keeps the ACL of the file"));
        };
        draft.sa.set_word(Attribute::Mode, mode.into());
        self.set_acl_attributes(&mut draft.sa, object, &entries)?;
        draft.sa.set_word(Attribute::Mode, mode.into());
        Ok(())
    }

    /// Sets the mode, and the trivial ACL for it.
    pub(super) fn set_mode(&self, sheet: &mut SaTable, mode: u32) {
        let is_directory = sheet.file_type() == FileType::Directory;
        let entries = nfs4::acl_from_mode(mode, is_directory);
        let (_, executable) = nfs4::mode_from_acl(&entries, mode, (0, 0));
        sheet.set_word(Attribute::Mode, mode.into());
        if sheet.is_legacy() {
            let acl = to_legacy_acl(self.fs.master().version, &entries);
            sheet.set_legacy_acl(&acl);
        } else {
            let count = units::to_u64(entries.len());
            sheet.set_word(Attribute::DaclCount, count);
            sheet.set(Attribute::DaclAces, acl::encode(&entries));
        }
        sheet.set_flags(flag::INHERIT_ACE | flag::ACL_OBJ_ACE, false);
        sheet.set_flags(flag::ACL_TRIVIAL, true);
        sheet.set_flags(flag::NO_EXECS_DENIED, executable);
    }

    /// Brings the file's POSIX ACL in line with its mode.
    fn apply_mode_to_acl(
        &self,
        caller: &ChangeContext,
        draft: &mut PendingFile,
        mode: u32,
    ) -> Result<Option<XattrDirPlan>> {
        if !self.fs.options().posix_acls || draft.kind() == FileType::Symlink {
            return Ok(None);
        }
        let Some(entries) = self.read_posix_acl(draft, ACCESS_ACL)? else { return Ok(None) };
        let bytes = acl::encode_posix(&posix1e::apply_chmod(&entries, mode));
        if draft.sa.sa_xattr(ACCESS_ACL).is_some() {
            draft.sa.set_sa_xattr(ACCESS_ACL, Some(&bytes));
            return Ok(None);
        }
        self.plan_xattr_dir(caller, &mut draft.sa, &[(ACCESS_ACL, Some(&bytes))])
    }
}

/// The new owner of a file must have quota for it.
fn space_need(draft: &PendingFile, set: &SetAttributes) -> SpaceNeed {
    let [user, group, project] = draft.owner_ids();
    let new = |to: Option<u64>, was| to.filter(|to| *to != was);
    let (uid, gid) = (set.uid.map(u64::from), set.gid.map(u64::from));
    let owners = [new(uid, user), new(gid, group), new(set.project_id, project)];
    SpaceNeed { objects: 1, quota_owners: owners, ..SMALL_NEED }
}

/// The mode that the file is to have, if it changes. As on Linux a new owner takes set-user and
/// set-group from anything but directories.
fn new_mode(draft: &PendingFile, set: &SetAttributes) -> Option<u32> {
    let old = draft.sa.mode();
    let mut mode = set.mode.map_or(old, |mode| old & !0o7777 | mode & 0o7777);
    if (set.uid.is_some() || set.gid.is_some()) && !draft.is_directory() && set.mode.is_none() {
        mode = posix::mode::without_setid(mode);
    }
    (mode != old || set.mode.is_some()).then_some(mode)
}

/// The log record of the change.
fn setattr_record(draft: &PendingFile, set: &SetAttributes, mode: Option<u32>) -> SetAttr {
    let attributes = draft.sa.attributes();
    let bits = [
        (SetAttr::MODE, mode.is_some()),
        (SetAttr::UID, set.uid.is_some()),
        (SetAttr::GID, set.gid.is_some()),
        (SetAttr::ATIME, set.atime.is_some()),
        (SetAttr::MTIME, set.mtime.is_some()),
        (
            SetAttr::ATTRIBUTES,
            set.flags.is_some() || set.project_id.is_some() || set.crtime.is_some(),
        ),
    ];
    let mask = bits.iter().filter(|bit| bit.1).fold(0, |mask, bit| mask | bit.0);
    SetAttr {
        object: draft.id(),
        mask,
        mode: draft.sa.mode().into(),
        uid: attributes.owner,
        gid: attributes.group,
        size: attributes.size,
        atime: attributes.atime.to_words(),
        mtime: attributes.mtime.to_words(),
        attributes: (mask & SetAttr::ATTRIBUTES != 0).then(|| optional_attributes(set)),
        domains: Vec::new(),
    }
}

fn optional_attributes(set: &SetAttributes) -> Extra {
    let change = set.flags.unwrap_or_default();
    let (which, to) = (to_znode_flags(change.mask), to_znode_flags(change.values));
    let mut requested: u64 =
        SETTABLE_FLAGS.iter().filter(|row| which & row.1 != 0).map(|row| row.0).sum();
    let values = SETTABLE_FLAGS.iter().filter(|row| which & to & row.1 != 0).map(|row| row.0).sum();
    if set.project_id.is_some() {
        requested |= ATTR_PROJECT;
    }
    if set.crtime.is_some() {
        requested |= ATTR_CREATE_TIME;
    }
    let project = set.project_id.unwrap_or(0);
    let mut scanstamp = [0; 32];
    for (to, from) in scanstamp.iter_mut().zip(project.to_le_bytes()) {
        *to = from;
    }
    Extra {
        requested: Extra::words(units::narrow::<u32>(requested)),
        values,
        crtime: set.crtime.unwrap_or_default().to_words(),
        scanstamp,
        project,
    }
}
