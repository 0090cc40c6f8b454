//! Making files of every kind.

use ondisk::ObjectType;
use ondisk::acl::{self, PosixEntry};
use ondisk::sa::Attribute;
use ondisk::zil::{Body, Create, CreateKind};
use ondisk::znode::{device_word, flag};
use parking_lot::MutexGuard;
use txg::Tx;
use units::ObjectId;
use zap::{NewTable, Zap};

use crate::birth::Birth;
use crate::create::names_of;
use crate::sheet::Sheet;
use crate::writer::draft::Draft;
use crate::writer::xattr_dir::Work;
use crate::writer::{Made, SMALL, Writer};
use crate::{Caller, Error, Kind, Need, Promise, Result, posix};

/// What is to be made.
#[derive(Clone, Debug)]
pub struct New<'a> {
    /// What it is.
    pub kind: Kind,
    /// The permissions that are wanted, with set-id and sticky bits: 12 bits.
    pub mode: u32,
    /// Bits that the caller's umask takes away, where the directory has no default ACL.
    pub umask: u32,
    /// Of a device: major and minor.
    pub device: (u32, u32),
    /// Of a symbolic link: where it points.
    pub target: &'a [u8],
}

impl Default for New<'_> {
    fn default() -> Self {
        Self { kind: Kind::File, mode: 0o666, umask: 0o022, device: (0, 0), target: b"" }
    }
}

/// No target is longer.
const LONGEST_TARGET: usize = 4095;
const SET_GROUP: u32 = 0o2000;

/// What a file is to be, worked out before the transaction.
pub(super) struct Plan {
    pub(super) birth: Birth,
    pub(super) sheet: Sheet,
    /// Of something that is made again: its number and its generation.
    pub(super) was: Option<(ObjectId, u64)>,
}

/// A name and what stands under it.
pub(super) type Pair = (&'static [u8], Vec<u8>);

impl Writer {
    /// Makes a file, a directory, a symbolic link, a device, a pipe or a socket.
    pub fn make(&self, caller: &Caller, dir: ObjectId, name: &[u8], new: &New<'_>) -> Result<Made> {
        self.check_name(dir, name)?;
        let _locked = self.fs.inner.locks.write(&[dir]);
        let mut parent = self.directory(dir)?;
        if self.entry(dir, name)?.is_some() {
            return Err(Error::Exists { objset: self.objset(), object: dir });
        }
        let (mut plan, acls) = self.plan(caller, &parent, new)?;
        let tx = self.begin.begin(&plan.need())?;
        let mut object = self.born(&tx, &mut plan)?;
        let entry = (name, object.id(), plan.birth.kind());
        if let Err(why) = self.add_name(&tx, &mut parent, entry, caller.now) {
            self.fs.objset().free(&tx, object.id())?;
            return Err(why);
        }
        parent.store(&tx)?;
        self.promise_made(&tx, &plan, &object, name);
        self.inherit(&tx, caller, &mut object, acls)?;
        Ok(Made { id: object.id(), attributes: object.sheet.attributes() })
    }

    /// Makes a file without a name (O_TMPFILE), and holds it once for the caller. It can be given
    /// a name by [`Writer::link`].
    pub fn make_unnamed(&self, caller: &Caller, dir: ObjectId, new: &New<'_>) -> Result<Made> {
        let _locked = self.fs.inner.locks.write(&[dir]);
        let parent = self.directory(dir)?;
        let (mut plan, acls) = self.plan(caller, &parent, new)?;
        plan.sheet.set_word(Attribute::Links, 0);
        let unlinked = self.fs.inner.locks.unlinked();
        let tx = self.begin.begin(&plan.need())?;
        let mut object = self.born(&tx, &mut plan)?;
        if let Err(why) = self.add_unlinked(&tx, &unlinked, object.id()) {
            self.fs.objset().free(&tx, object.id())?;
            return Err(why);
        }
        self.inherit(&tx, caller, &mut object, acls)?;
        self.held.lock().insert(object.id(), 1);
        Ok(Made { id: object.id(), attributes: object.sheet.attributes() })
    }

    /// Works out what a new file is to be, and what it is to have of extended attributes that have
    /// no room beside the others.
    pub(super) fn plan(
        &self,
        caller: &Caller,
        parent: &Draft,
        new: &New<'_>,
    ) -> Result<(Plan, Option<Work>)> {
        if new.kind == Kind::Symlink && !(1..=LONGEST_TARGET).contains(&new.target.len()) {
            return Err(self.invalid(parent.id(), "a link's target has 1 to 4095 bytes"));
        }
        let has_project = matches!(new.kind, Kind::File | Kind::Directory);
        let inherits = has_project && parent.sheet.has_flag(flag::PROJINHERIT);
        let sets_group = parent.sheet.mode() & SET_GROUP != 0;
        let group = if sets_group { parent.sheet.word(Attribute::Gid) } else { caller.gid.into() };
        let (permissions, acls) = self.permissions(parent, new)?;
        let mut mode = permissions & 0o7777 | u32::from(new.kind.number()) << 12;
        if new.kind == Kind::Directory && sets_group {
            mode |= SET_GROUP;
        } else if mode & 0o2010 == 0o2010 && !caller.keeps_setid && group != u64::from(caller.gid) {
            mode &= !SET_GROUP;
        }
        let settings = self.settings.read();
        let project = if inherits { parent.sheet.word(Attribute::Projid) } else { 0 };
        let birth = Birth {
            mode,
            owner: caller.uid.into(),
            group,
            parent: parent.id(),
            now: caller.now,
            links: if new.kind == Kind::Directory { 2 } else { 1 },
            flags: if inherits { flag::PROJINHERIT } else { 0 },
            project: (has_project && settings.projects).then_some(project),
            rdev: device_word(new.device.0, new.device.1),
            target: new.target.to_vec(),
        };
        let mut sheet = birth.sheet(&self.fs.inner.schema, settings.slots.max(1));
        drop(settings);
        let acls = self.acls_within(&mut sheet, acls);
        let acls: Vec<_> = acls.iter().map(|acl| (acl.0, Some(acl.1.as_slice()))).collect();
        let acls = self.in_directory(caller, &mut sheet, &acls)?;
        if !sheet.fits() {
            return Err(Error::TooLarge { objset: self.objset(), object: parent.id() });
        }
        self.settle(&mut sheet)?;
        Ok((Plan { birth, sheet, was: None }, acls))
    }

    /// The permissions of something new, and the POSIX ACLs that it inherits.
    fn permissions(&self, parent: &Draft, new: &New<'_>) -> Result<(u32, Vec<Pair>)> {
        let masked = (new.mode & !new.umask, Vec::new());
        if new.kind == Kind::Symlink {
            return Ok((0o777, Vec::new()));
        }
        if !self.fs.options().posix_acls {
            return Ok(masked);
        }
        let Some(default) = self.posix_acl(parent, DEFAULT_ACL)? else { return Ok(masked) };
        let (access, mode) = posix::inherit(&default, new.mode);
        let mut acls = Vec::new();
        if new.kind == Kind::Directory {
            acls.push((DEFAULT_ACL, acl::encode_posix(&default)));
        }
        if !posix::is_minimal(&access) {
            acls.push((ACCESS_ACL, acl::encode_posix(&access)));
        }
        Ok((mode, acls))
    }

    /// A POSIX ACL of a file, if it has one.
    pub(super) fn posix_acl(&self, of: &Draft, name: &[u8]) -> Result<Option<Vec<PosixEntry>>> {
        let Some(bytes) = self.xattr_of(of, name)? else { return Ok(None) };
        let entries = acl::parse_posix(&bytes);
        let entries = entries.map_err(|why| self.fs.inner.fault(of.id(), why.into()))?;
        Ok((!entries.is_empty()).then_some(entries))
    }

    /// Makes the object of a plan.
    pub(super) fn born(&self, tx: &Tx, plan: &mut Plan) -> Result<Draft> {
        let generation = plan.was.map_or(tx.txg().get(), |was| was.1);
        plan.sheet.set_word(Attribute::Gen, generation);
        let objset = self.fs.objset();
        let (kind, slots) = (plan.sheet.kind(), plan.sheet.slots());
        let bonus = plan.sheet.bonus();
        let object = if plan.birth.kind() == Kind::Directory {
            let master = self.fs.master();
            let table = NewTable {
                normalization: names_of(master.case, master.normalization),
                salt: self.begin.random(),
                bonus_kind: kind,
                bonus,
                slots,
                ..NewTable::default()
            };
            let kind = ObjectType::DIRECTORY;
            let made = match plan.was {
                Some((id, _)) => Zap::create_at(objset, tx, id, kind, &table)?,
                None => Zap::create(objset, tx, kind, &table)?,
            };
            made.object().clone()
        } else {
            let new = dmu::NewObject { slots, ..dmu::NewObject::new(ObjectType::PLAIN_FILE, 512) };
            let new = new.with_bonus(kind, bonus);
            match plan.was {
                Some((id, _)) => objset.create_at(tx, id, &new)?,
                None => objset.create(tx, &new)?,
            }
        };
        let mut draft = Draft { object, sheet: plan.sheet.clone() };
        if draft.sheet.is_legacy() && plan.birth.kind() == Kind::Symlink {
            draft.put_target(tx, &plan.birth.target)?;
        }
        draft.store(tx)?;
        Ok(draft)
    }

    /// Stores the ACLs that a plan could not put with the other attributes.
    fn inherit(
        &self,
        tx: &Tx,
        caller: &Caller,
        made: &mut Draft,
        acls: Option<Work>,
    ) -> Result<()> {
        let Some(acls) = acls else { return Ok(()) };
        self.change_directory(tx, caller, made, acls)?;
        made.store(tx)
    }

    fn promise_made(&self, tx: &Tx, plan: &Plan, made: &Draft, name: &[u8]) {
        let birth = &plan.birth;
        let kind = match birth.kind() {
            Kind::Directory => CreateKind::Directory,
            Kind::Symlink => CreateKind::Symlink,
            _ => CreateKind::File,
        };
        let attributes = made.sheet.xattrs();
        let told = self.settings.read().logs_packed;
        if !attributes.is_empty() && !told {
            self.begin.must_sync(tx);
        }
        let create = Body::Create(Box::new(record(birth, kind, made, tx, name)));
        self.begin.promise(tx, Promise::Record(create));
        for (name, value) in attributes.into_iter().filter(|_| told) {
            let object = made.id();
            let set = Body::SetXattr { object, name, value };
            // not without it: the group's bits of its mode are those of the mask of its ACL
            self.begin.promise(tx, Promise::Hidden(set));
        }
    }

    /// Adds a file to the set of unlinked ones, under that set's lock.
    pub(super) fn add_unlinked(
        &self,
        tx: &Tx,
        _lock: &MutexGuard<'_, ()>,
        id: ObjectId,
    ) -> Result<()> {
        let set = self.table(self.fs.master().unlinked)?;
        Ok(set.update_u64(tx, unlinked_name(id).as_bytes(), id.get())?)
    }
}

/// The name of an unlinked file in their set.
pub(super) fn unlinked_name(id: ObjectId) -> String {
    format!("{:x}", id.get())
}

/// What the log is told of something new.
pub(super) fn record(
    birth: &Birth,
    kind: CreateKind,
    made: &Draft,
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
/// Of a directory: the ACL of what is made in it.
pub(super) const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

impl Plan {
    pub(super) fn need(&self) -> Need {
        let birth = &self.birth;
        let owners = [birth.owner, birth.group, birth.project.unwrap_or(0)].map(Some);
        Need { bytes: SMALL, objects: 1, owners, ..Need::default() }
    }
}

impl Draft {
    /// A legacy link's target: behind the znode if it is short, else the content.
    fn put_target(&mut self, tx: &Tx, target: &[u8]) -> Result<()> {
        if self.sheet.has_room(target.len()) {
            self.sheet.set_tail(target.to_vec());
            return Ok(());
        }
        let size = u32::try_from(target.len().next_multiple_of(512)).unwrap_or(512);
        self.object.set_block_size(tx, size)?;
        Ok(self.object.write(tx, 0, target)?)
    }
}
