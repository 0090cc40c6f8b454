//! Extended attributes: set and removed; POSIX ACLs among them.
//!
//! Where the dataset wants it (xattr=sa) they are a packed list among the other attributes, as
//! long as that does not grow too long; otherwise, and then, they are files in a hidden directory.
//! A name is in one place only. What Linux calls `user.x` may be stored as `x` by other systems:
//! setting it takes that away.

use ondisk::acl;
use ondisk::nvlist::{Encoding, Nvlist, Value};
use ondisk::sa::Attribute;
use ondisk::zil::{Body, SetAttr};
use ondisk::znode::flag;
use txg::Tx;
use units::ObjectId;

use crate::sheet::Sheet;
use crate::writer::Writer;
use crate::writer::content::set_promise;
use crate::writer::draft::{Draft, SMALL_NEED};
use crate::writer::make::{ACCESS_ACL, DEFAULT_ACL};
use crate::xattr::{name_elsewhere, pairs};
use crate::{Caller, Error, Kind, Need, Promise, Result, posix};

/// Whether an extended attribute may be there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrMode {
    /// It does not matter.
    #[default]
    Any,
    /// It must be new (XATTR_CREATE).
    New,
    /// It must be there (XATTR_REPLACE).
    There,
}

/// Where an attribute is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// Wherever attributes may be.
    Everywhere,
    /// Among the other attributes only, unless it has no room there.
    Packed,
}

/// Linux refuses larger values.
const LARGEST: usize = 64 << 10;
const LONGEST_NAME: usize = 255;
/// No larger value is kept with the other attributes.
const LARGEST_PACKED: usize = 32 << 10;

impl Writer {
    /// Sets an extended attribute by its name as Linux has it, or removes it if there is no value.
    pub fn set_xattr(
        &self,
        caller: &Caller,
        file: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let objset = self.objset();
        if name.is_empty() || name.contains(&0) {
            return Err(self.invalid(file, "an extended attribute's name has no 0"));
        }
        if name.len() > LONGEST_NAME {
            return Err(Error::NameTooLong { objset, most: LONGEST_NAME });
        }
        self.fs.inner.judge_xattr(file, name)?;
        if value.is_some_and(|value| value.len() > LARGEST) {
            return Err(Error::TooLarge { objset, object: file });
        }
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.draft(file)?;
        if self.forbids(&draft.sheet, flag::IMMUTABLE | flag::APPENDONLY) {
            return Err(self.forbidden(file, "the file is immutable, or can only be appended to"));
        }
        if name == ACCESS_ACL || name == DEFAULT_ACL {
            return self.set_posix_acl(caller, draft, name, value, Reach::Everywhere);
        }
        let is_there = self.xattr_of(&draft, name)?.is_some();
        match (is_there, mode, value) {
            (true, XattrMode::New, _) => return Err(Error::Exists { objset, object: file }),
            (false, XattrMode::There, _) | (false, _, None) => {
                return Err(Error::NoXattr { objset, object: file });
            }
            _ => {}
        }
        self.store_xattr(caller, &mut draft, name, (value, false), Reach::Everywhere)
    }

    /// Does again what a record tells of an attribute that was kept with the others, or taken away
    /// from there. What became of files in the hidden directory other records tell, and they may
    /// have come before, though it was done after.
    pub(super) fn set_packed_again(
        &self,
        caller: &Caller,
        file: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.draft(file)?;
        if value.is_some() && (name == ACCESS_ACL || name == DEFAULT_ACL) {
            return self.set_posix_acl(caller, draft, name, value, Reach::Packed);
        }
        self.store_xattr(caller, &mut draft, name, (value, false), Reach::Packed)
    }

    /// Puts an attribute where it belongs, and takes it away where it does not; a new mode of the file
    /// may come with it.
    fn store_xattr(
        &self,
        caller: &Caller,
        draft: &mut Draft,
        name: &[u8],
        (value, sets_mode): (Option<&[u8]>, bool),
        reach: Reach,
    ) -> Result<()> {
        self.must_be_list(draft)?;
        let packs = self.settings.read().xattr_sa && !draft.sheet.is_legacy();
        let before = draft.sheet.xattrs().len();
        if let Some(plain) = name_elsewhere(name) {
            draft.sheet.put_xattr(plain, None);
        }
        let packed = match value {
            Some(value) if packs => draft.sheet.put_xattr(name, Some(value)),
            _ => false,
        };
        if !packed {
            draft.sheet.put_xattr(name, None);
        }
        let rest = value.filter(|_| !packed);
        let moves = rest.is_some() && draft.sheet.xattrs().len() < before;
        let mut changes = Vec::new();
        if reach == Reach::Everywhere || rest.is_some() {
            changes.push((name, rest));
            changes.extend(name_elsewhere(name).map(|plain| (plain, None)));
        }
        let work = self.in_directory(caller, &mut draft.sheet, &changes)?;
        draft.sheet.touch_status(caller.now);
        self.settle(&mut draft.sheet)?;
        // what is a file of its own counts for its owners
        let need = match &work {
            Some(work) if work.writes() => {
                Need { objects: work.new_files(), ..draft.need_of_owners() }
            }
            _ => SMALL_NEED,
        };
        let bytes = need.bytes.saturating_add(u64::try_from(LARGEST).unwrap_or(0));
        let need = Need { bytes, frees: value.is_none(), ..need };
        let tx = self.begin.begin(&need)?;
        // a record without a value tells that the attribute goes
        let told = self.settings.read().logs_packed;
        let untold = (packed && value.is_some_and(<[u8]>::is_empty))
            || (!told && (packed || rest.is_none() || moves));
        if untold {
            self.begin.must_sync(&tx);
        }
        if moves && told {
            self.promise_xattr(&tx, draft, name, b"");
        }
        if let Some(work) = work {
            self.change_directory(&tx, caller, draft, work)?;
        }
        draft.store(&tx)?;
        if !untold && (packed || rest.is_none()) {
            self.promise_xattr(&tx, draft, name, value.unwrap_or_default());
        }
        if sets_mode {
            self.begin.promise(&tx, Promise::Record(set_promise(draft, SetAttr::MODE)));
        }
        Ok(())
    }

    /// A damaged list is not to be replaced by one that has only what is set now.
    fn must_be_list(&self, of: &Draft) -> Result<()> {
        let packed = of.sheet.bytes(Attribute::Dxattr).unwrap_or_default();
        if packed.is_empty() {
            return Ok(());
        }
        let list = Nvlist::decode(packed);
        list.map(drop).map_err(|why| self.fs.inner.fault(of.id(), why.into()))
    }

    /// Promises an attribute that is kept with the others; one without a value goes.
    fn promise_xattr(&self, tx: &Tx, draft: &Draft, name: &[u8], value: &[u8]) {
        let (name, value) = (name.to_vec(), value.to_vec());
        let set = Body::SetXattr { object: draft.id(), name, value };
        self.begin.promise(tx, Promise::Record(set));
    }

    /// The value of an attribute, by its name as Linux has it.
    pub(super) fn xattr_of(&self, of: &Draft, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let plain = name_elsewhere(name);
        for name in [Some(name), plain].into_iter().flatten() {
            if let Some(value) = of.sheet.xattr(name) {
                return Ok(Some(value));
            }
            if let Some(value) = self.xattr_file(&of.sheet, name)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    fn set_posix_acl(
        &self,
        caller: &Caller,
        mut draft: Draft,
        name: &[u8],
        value: Option<&[u8]>,
        reach: Reach,
    ) -> Result<()> {
        let (objset, object) = (self.objset(), draft.id());
        if !self.fs.options().posix_acls || draft.kind() == Kind::Symlink {
            let rule = "it can have no POSIX ACL";
            return Err(Error::NotSupported { objset, object, rule });
        }
        if name == DEFAULT_ACL && !draft.is_directory() {
            return match value {
                Some(_) => Err(self.forbidden(object, "only directories have default ACLs")),
                None => Ok(()),
            };
        }
        let entries = value.map(|bytes| acl::parse_posix(bytes).unwrap_or_default());
        if entries.as_ref().is_some_and(|entries| !posix::is_valid(entries)) {
            return Err(self.invalid(object, "it is no POSIX ACL"));
        }
        let (mut kept, mut sets_mode) = (value, false);
        if let Some(entries) = entries.filter(|_| name == ACCESS_ACL) {
            let mode = posix::mode_of(&entries, draft.sheet.mode());
            sets_mode = mode != draft.sheet.mode();
            if sets_mode {
                self.put_mode(&mut draft.sheet, mode);
            }
            kept = value.filter(|_| !posix::is_minimal(&entries));
        }
        self.store_xattr(caller, &mut draft, name, (kept, sets_mode), reach)
    }

    /// What of some attributes has room with the others is put there; the rest is given back.
    pub(super) fn acls_within(
        &self,
        sheet: &mut Sheet,
        acls: Vec<(&'static [u8], Vec<u8>)>,
    ) -> Vec<(&'static [u8], Vec<u8>)> {
        let packs = self.settings.read().xattr_sa && !sheet.is_legacy();
        let stays = |acl: &(&[u8], Vec<u8>)| !(packs && sheet.put_xattr(acl.0, Some(&acl.1)));
        acls.into_iter().filter(stays).collect()
    }
}

impl Sheet {
    fn packed(&self) -> Nvlist {
        let bytes = self.bytes(Attribute::Dxattr).unwrap_or_default();
        Nvlist::decode(bytes).unwrap_or_else(|_| Nvlist::new())
    }

    /// An extended attribute that is kept with the others.
    pub(super) fn xattr(&self, name: &[u8]) -> Option<Vec<u8>> {
        let list = self.packed();
        pairs(&list).find(|pair| pair.0 == name).map(|pair| pair.1.to_vec())
    }

    /// All extended attributes that are kept with the others.
    pub(super) fn xattrs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        pairs(&self.packed()).map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    }

    /// Keeps an extended attribute with the others, or takes it away; false where there is no room
    /// for it, and then nothing has changed.
    pub(super) fn put_xattr(&mut self, name: &[u8], value: Option<&[u8]>) -> bool {
        if value.is_none() && self.xattr(name).is_none() {
            return true;
        }
        if value.is_some_and(|value| value.len() > LARGEST_PACKED) {
            return false;
        }
        let mut list = Nvlist::new();
        for (known, value) in self.packed().iter_bytes().filter(|pair| pair.0 != name) {
            list.push_bytes(known, value.clone());
        }
        if let Some(value) = value {
            list.push_bytes(name, Value::Bytes(value.to_vec()));
        }
        let before = self.clone();
        self.set(Attribute::Dxattr, list.encode(Encoding::Xdr));
        let fits = self.fits();
        if !fits {
            *self = before;
        }
        fits
    }
}
