//! Setting what is known of files: mode, owners, times, flags, projects.

use ondisk::acl;
use ondisk::sa::Attribute;
use ondisk::zil::{Attributes as Extra, Body, SetAttr};
use ondisk::znode::{Time, flag};
use units::ObjectId;

use crate::birth::legacy_acl;
use crate::sheet::Sheet;
use crate::writer::Writer;
use crate::writer::draft::{Draft, SMALL_NEED};
use crate::writer::make::ACCESS_ACL;
use crate::writer::xattr_dir::Work;
use crate::{Caller, Error, Kind, Need, Promise, Result, posix, trivial, without_set_id};

/// What is to be set; nothing by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Set {
    /// Permissions with set-id and sticky bits: 12 bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size in bytes.
    pub size: Option<u64>,
    /// When it was last read.
    pub atime: Option<Time>,
    /// When its content last changed.
    pub mtime: Option<Time>,
    /// When it was made.
    pub crtime: Option<Time>,
    /// Flags ([`flag`]): those that are to change, and as what.
    pub flags: Option<(u64, u64)>,
    /// The project.
    pub project: Option<u64>,
}

/// The flags that can be set, each with the bit by which the log knows it.
pub(super) const FLAGS: [(u64, u64); 15] = crate::replay::EXTRA;
const PROJECT: u64 = 0x40000;
const CREATE_TIME: u64 = 0x1;

impl Writer {
    /// Sets attributes of a file.
    pub fn set(&self, caller: &Caller, file: ObjectId, set: &Set) -> Result<()> {
        if let Some(size) = set.size {
            self.truncate(caller, file, size)?;
        }
        let set = Set { size: None, ..*set };
        if set == Set::default() {
            return Ok(());
        }
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.draft(file)?;
        self.may_set(&draft, &set)?;
        let mode = new_mode(&draft, &set);
        let mut hidden = self.hidden_of(&draft, &set)?;
        let acl = draft.sheet.external_acl().filter(|_| mode.is_some());
        let need = need(&draft, &set);
        self.apply(&mut draft, &set, mode, caller.now)?;
        let work = match mode {
            Some(mode) => self.put_mode_in_acl(caller, &mut draft, mode)?,
            None => None,
        };
        self.settle(&mut draft.sheet)?;
        for each in &mut hidden {
            self.apply_owners(each, &set)?;
            each.sheet.touch_status(caller.now);
            self.settle(&mut each.sheet)?;
        }
        let tx = self.begin.begin(&need)?;
        for each in &mut hidden {
            each.store(&tx)?;
        }
        if let Some(work) = work {
            self.change_directory(&tx, caller, &mut draft, work)?;
        }
        draft.store(&tx)?;
        if let Some(acl) = acl {
            self.fs.objset().free(&tx, acl)?;
        }
        let body = Body::SetAttr(Box::new(promise(&draft, &set, mode)));
        self.begin.promise(&tx, Promise::Record(body));
        Ok(())
    }

    fn may_set(&self, draft: &Draft, set: &Set) -> Result<()> {
        let (objset, object) = (self.objset(), draft.id());
        let frees = set.flags.is_some_and(|(which, to)| which & !to & flag::IMMUTABLE != 0);
        // as OpenZFS has it, a project is no part of what must not change
        let others = Set { atime: None, flags: None, project: None, ..*set };
        if self.forbids(&draft.sheet, flag::IMMUTABLE) && !frees && others != Set::default() {
            return Err(self.forbidden(object, "the file is immutable"));
        }
        let has_project = matches!(draft.kind(), Kind::File | Kind::Directory)
            && self.settings.read().projects
            && !draft.sheet.is_legacy();
        let inherits = set.flags.is_some_and(|(which, to)| which & to & flag::PROJINHERIT != 0);
        if (set.project.is_some() || inherits) && !has_project {
            let rule = "only files and directories have a project, where the pool has them";
            return Err(Error::NotSupported { objset, object, rule });
        }
        if set.project.is_some_and(|project| project >= u32::MAX.into()) {
            return Err(self.invalid(object, "a project is a number of 32 bits"));
        }
        Ok(())
    }

    fn apply(&self, draft: &mut Draft, set: &Set, mode: Option<u32>, now: Time) -> Result<()> {
        self.apply_owners(draft, set)?;
        if let Some(mode) = mode {
            self.put_mode(&mut draft.sheet, mode);
        }
        let times = [
            (Attribute::Atime, set.atime),
            (Attribute::Mtime, set.mtime),
            (Attribute::Crtime, set.crtime),
        ];
        draft.sheet.touch_status(now);
        for (attribute, time) in times {
            if let Some(time) = time {
                draft.sheet.set_time(attribute, time);
            }
        }
        if let Some((which, to)) = set.flags {
            let known = FLAGS.iter().fold(0, |all, row| all | row.1);
            draft.sheet.set_flags(which & to & known, true);
            draft.sheet.set_flags(which & !to & known, false);
        }
        Ok(())
    }

    /// What a file's hidden files share with it.
    fn apply_owners(&self, draft: &mut Draft, set: &Set) -> Result<()> {
        if let Some(uid) = set.uid {
            draft.sheet.set_word(Attribute::Uid, uid.into());
        }
        if let Some(gid) = set.gid {
            draft.sheet.set_word(Attribute::Gid, gid.into());
        }
        let Some(project) = set.project else { return Ok(()) };
        if draft.sheet.has_flag(flag::PROJID) {
            draft.sheet.set_word(Attribute::Projid, project);
        } else if draft.sheet.is_legacy() {
            return Err(self.invalid(draft.id(), "a legacy file has no project"));
        } else {
            // accounting looks for it at a fixed place
            draft.sheet.set_behind((Attribute::Projid, project), Attribute::Links);
            draft.sheet.set_flags(flag::PROJID, true);
        }
        Ok(())
    }

    /// The directory of extended attributes and all that is in it, if they change owner too.
    fn hidden_of(&self, draft: &Draft, set: &Set) -> Result<Vec<Draft>> {
        let dir = ObjectId::new(draft.sheet.word(Attribute::Xattr));
        let changes = set.uid.is_some() || set.gid.is_some() || set.project.is_some();
        if !dir.exists() || !changes {
            return Ok(Vec::new());
        }
        let mut files = vec![dir];
        self.fs.inner.read_dir(dir, None, &mut |entry| {
            files.push(entry.object);
            true
        })?;
        files.into_iter().map(|id| self.draft(id)).collect()
    }

    /// Sets the mode, and the ACL that says just what it says.
    pub(super) fn put_mode(&self, sheet: &mut Sheet, mode: u32) {
        let is_directory = sheet.file_kind() == Kind::Directory;
        let entries = trivial::of_mode(mode, is_directory);
        let (_, executable) = trivial::mode_of(&entries, mode, 0, 0);
        sheet.set_word(Attribute::Mode, mode.into());
        if sheet.is_legacy() {
            let acl = legacy_acl(self.fs.master().version, &entries);
            sheet.put_legacy_acl(&acl);
        } else {
            let count = u64::try_from(entries.len()).unwrap_or(0);
            sheet.set_word(Attribute::DaclCount, count);
            sheet.set(Attribute::DaclAces, acl::encode(&entries));
        }
        sheet.set_flags(flag::INHERIT_ACE | flag::ACL_OBJ_ACE, false);
        sheet.set_flags(flag::ACL_TRIVIAL, true);
        sheet.set_flags(flag::NO_EXECS_DENIED, executable);
    }

    /// Brings the file's POSIX ACL in line with its mode.
    fn put_mode_in_acl(
        &self,
        caller: &Caller,
        draft: &mut Draft,
        mode: u32,
    ) -> Result<Option<Work>> {
        if !self.fs.options().posix_acls || draft.kind() == Kind::Symlink {
            return Ok(None);
        }
        let Some(entries) = self.posix_acl(draft, ACCESS_ACL)? else { return Ok(None) };
        let bytes = acl::encode_posix(&posix::after_chmod(&entries, mode));
        if draft.sheet.xattr(ACCESS_ACL).is_some() {
            draft.sheet.put_xattr(ACCESS_ACL, Some(&bytes));
            return Ok(None);
        }
        self.in_directory(caller, &mut draft.sheet, &[(ACCESS_ACL, Some(&bytes))])
    }
}

/// Who is given a file must have room for it.
fn need(draft: &Draft, set: &Set) -> Need {
    let [user, group, project] = draft.owners();
    let new = |to: Option<u64>, was| to.filter(|to| *to != was);
    let (uid, gid) = (set.uid.map(u64::from), set.gid.map(u64::from));
    let owners = [new(uid, user), new(gid, group), new(set.project, project)];
    Need { objects: 1, owners, ..SMALL_NEED }
}

/// The mode that the file is to have, if it changes. As on Linux a new owner takes set-user and
/// set-group from anything but directories.
fn new_mode(draft: &Draft, set: &Set) -> Option<u32> {
    let old = draft.sheet.mode();
    let mut mode = set.mode.map_or(old, |mode| old & !0o7777 | mode & 0o7777);
    if (set.uid.is_some() || set.gid.is_some()) && !draft.is_directory() && set.mode.is_none() {
        mode = without_set_id(mode);
    }
    (mode != old || set.mode.is_some()).then_some(mode)
}

/// What the log is told.
fn promise(draft: &Draft, set: &Set, mode: Option<u32>) -> SetAttr {
    let attributes = draft.sheet.attributes();
    let bits = [
        (SetAttr::MODE, mode.is_some()),
        (SetAttr::UID, set.uid.is_some()),
        (SetAttr::GID, set.gid.is_some()),
        (SetAttr::ATIME, set.atime.is_some()),
        (SetAttr::MTIME, set.mtime.is_some()),
        (SetAttr::ATTRIBUTES, set.flags.is_some() || set.project.is_some() || set.crtime.is_some()),
    ];
    let mask = bits.iter().filter(|bit| bit.1).fold(0, |mask, bit| mask | bit.0);
    SetAttr {
        object: draft.id(),
        mask,
        mode: draft.sheet.mode().into(),
        uid: attributes.owner,
        gid: attributes.group,
        size: attributes.size,
        atime: attributes.atime.to_words(),
        mtime: attributes.mtime.to_words(),
        attributes: (mask & SetAttr::ATTRIBUTES != 0).then(|| extra(set)),
        domains: Vec::new(),
    }
}

fn extra(set: &Set) -> Extra {
    let (which, to) = set.flags.unwrap_or_default();
    let mut requested: u64 = FLAGS.iter().filter(|row| which & row.1 != 0).map(|row| row.0).sum();
    let values = FLAGS.iter().filter(|row| which & to & row.1 != 0).map(|row| row.0).sum();
    if set.project.is_some() {
        requested |= PROJECT;
    }
    if set.crtime.is_some() {
        requested |= CREATE_TIME;
    }
    let project = set.project.unwrap_or(0);
    let mut scanstamp = [0; 32];
    for (to, from) in scanstamp.iter_mut().zip(project.to_le_bytes()) {
        *to = from;
    }
    Extra {
        requested: Extra::words(u32::try_from(requested).unwrap_or(0)),
        values,
        crtime: set.crtime.unwrap_or_default().to_words(),
        scanstamp,
        project,
    }
}
