//! Extended attributes: set and removed; POSIX ACLs among them.
//!
//! With xattr=sa they are a packed list among the other attributes, up to a size limit. Otherwise
//! and beyond it they are files in a hidden directory. A name is in one place only. Other systems
//! may store Linux's `user.x` as `x`: setting it removes that one.

use ondisk::acl;
use ondisk::nvlist::{Encoding, Nvlist, Value};
use ondisk::sa::Attribute;
use ondisk::zil::{Body, SetAttr};
use ondisk::znode::flag;
use posix::{ChangeContext, FileType, XattrMode, acl::posix1e};
use txg::Tx;
use units::ObjectId;

use crate::sa_table::SaTable;
use crate::writer::FsWriter;
use crate::writer::content::implied_setattr_record;
use crate::writer::create::{ACCESS_ACL, DEFAULT_ACL};
use crate::writer::pending_file::{PendingFile, SMALL_NEED};
use crate::xattr::{foreign_name, xattr_pairs};
use crate::{Error, LogRecord, Result, SpaceNeed};

/// Where an attribute is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum XattrScope {
    /// Wherever attributes may be.
    Everywhere,
    /// Only among the other attributes, unless it does not fit there.
    SaOnly,
}

/// Linux refuses larger values.
const MAX_XATTR_VALUE: usize = 64 << 10;
const MAX_XATTR_NAME: usize = 255;
/// No larger value is kept with the other attributes.
const MAX_SA_XATTR_VALUE: usize = 32 << 10;

impl FsWriter {
    /// Sets an extended attribute by its Linux name, or removes it if there is no value.
    pub fn set_xattr(
        &self,
        caller: &ChangeContext,
        file: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let objset = self.objset_id();
        if name.is_empty() || name.contains(&0) {
            return Err(self.invalid_error(file, "an extended attribute's name has no 0"));
        }
        if name.len() > MAX_XATTR_NAME {
            return Err(Error::NameTooLong { objset, max_len: MAX_XATTR_NAME });
        }
        self.fs.inner.check_xattr_name(file, name)?;
        if value.is_some_and(|value| value.len() > MAX_XATTR_VALUE) {
            return Err(Error::TooLarge { objset, object: file });
        }
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.load_pending(file)?;
        if self.is_forbidden(&draft.sa, flag::IMMUTABLE | flag::APPENDONLY) {
            return Err(
                self.not_permitted(file, "the file is immutable, or can only be appended to")
            );
        }
        if name == ACCESS_ACL || name == DEFAULT_ACL {
            return self.set_posix_acl(caller, draft, name, value, XattrScope::Everywhere);
        }
        let is_there = self.read_xattr(&draft, name)?.is_some();
        match (is_there, mode, value) {
            (true, XattrMode::Create, _) => return Err(Error::Exists { objset, object: file }),
            (false, XattrMode::Replace, _) | (false, _, None) => {
                return Err(Error::NoXattr { objset, object: file });
            }
            _ => {}
        }
        self.store_xattr(caller, &mut draft, name, (value, false), XattrScope::Everywhere)
    }

    /// Replays a record about an attribute among the others: set or removed there. Other records
    /// have the changes of files in the hidden directory. They may precede this one, although they
    /// were done after it.
    pub(super) fn replay_sa_xattr(
        &self,
        caller: &ChangeContext,
        file: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.load_pending(file)?;
        if value.is_some() && (name == ACCESS_ACL || name == DEFAULT_ACL) {
            return self.set_posix_acl(caller, draft, name, value, XattrScope::SaOnly);
        }
        self.store_xattr(caller, &mut draft, name, (value, false), XattrScope::SaOnly)
    }

    /// Stores an attribute in its place, and removes it from the other; may also set a new mode of
    /// the file.
    fn store_xattr(
        &self,
        caller: &ChangeContext,
        draft: &mut PendingFile,
        name: &[u8],
        (value, sets_mode): (Option<&[u8]>, bool),
        reach: XattrScope,
    ) -> Result<()> {
        self.check_sa_xattrs(draft)?;
        let packs = self.settings.read().xattr_sa && !draft.sa.is_legacy();
        let before = draft.sa.sa_xattrs().len();
        if let Some(plain) = foreign_name(name) {
            draft.sa.set_sa_xattr(plain, None);
        }
        let packed = match value {
            Some(value) if packs => draft.sa.set_sa_xattr(name, Some(value)),
            _ => false,
        };
        if !packed {
            draft.sa.set_sa_xattr(name, None);
        }
        let rest = value.filter(|_| !packed);
        let moves = rest.is_some() && draft.sa.sa_xattrs().len() < before;
        let mut changes = Vec::new();
        if reach == XattrScope::Everywhere || rest.is_some() {
            changes.push((name, rest));
            changes.extend(foreign_name(name).map(|plain| (plain, None)));
        }
        let work = self.plan_xattr_dir(caller, &mut draft.sa, &changes)?;
        draft.sa.touch_ctime(caller.now);
        self.resolve_layouts(&mut draft.sa)?;
        // an attribute in a file of its own is charged to the owners
        let need = match &work {
            Some(work) if work.has_writes() => {
                SpaceNeed { objects: work.new_file_count(), ..draft.quota_need() }
            }
            _ => SMALL_NEED,
        };
        let bytes = need.bytes + units::to_u64(MAX_XATTR_VALUE);
        let need = SpaceNeed { bytes, frees_space: value.is_none(), ..need };
        let tx = self.transactions.begin_tx(&need)?;
        // a record without a value means the removal
        let told = self.settings.read().logs_sa_xattrs;
        let untold = (packed && value.is_some_and(<[u8]>::is_empty))
            || (!told && (packed || rest.is_none() || moves));
        if untold {
            self.transactions.require_txg_sync(&tx);
        }
        if moves && told {
            self.log_xattr(&tx, draft, name, b"");
        }
        if let Some(work) = work {
            self.apply_xattr_dir(&tx, caller, draft, work)?;
        }
        draft.store(&tx)?;
        if !untold && (packed || rest.is_none()) {
            self.log_xattr(&tx, draft, name, value.unwrap_or_default());
        }
        if sets_mode {
            self.transactions
                .log_record(&tx, LogRecord::Record(implied_setattr_record(draft, SetAttr::MODE)));
        }
        Ok(())
    }

    /// A damaged list must not be replaced by one with only the new attribute.
    fn check_sa_xattrs(&self, of: &PendingFile) -> Result<()> {
        let packed = of.sa.bytes(Attribute::Dxattr).unwrap_or_default();
        if packed.is_empty() {
            return Ok(());
        }
        let list = Nvlist::decode(packed);
        list.map(drop).map_err(|why| self.fs.inner.attribute_error(of.id(), why.into()))
    }

    /// Logs an attribute among the others; one without a value is removed.
    fn log_xattr(&self, tx: &Tx, draft: &PendingFile, name: &[u8], value: &[u8]) {
        let (name, value) = (name.to_vec(), value.to_vec());
        let set = Body::SetXattr { object: draft.id(), name, value };
        self.transactions.log_record(tx, LogRecord::Record(set));
    }

    /// The value of an attribute, by its Linux name.
    pub(super) fn read_xattr(&self, of: &PendingFile, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let plain = foreign_name(name);
        for name in [Some(name), plain].into_iter().flatten() {
            if let Some(value) = of.sa.sa_xattr(name) {
                return Ok(Some(value));
            }
            if let Some(value) = self.read_xattr_file(&of.sa, name)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    fn set_posix_acl(
        &self,
        caller: &ChangeContext,
        mut draft: PendingFile,
        name: &[u8],
        value: Option<&[u8]>,
        reach: XattrScope,
    ) -> Result<()> {
        let (objset, object) = (self.objset_id(), draft.id());
        if !self.fs.options().posix_acls || draft.kind() == FileType::Symlink {
            let rule = "it can have no POSIX ACL";
            return Err(Error::NotSupported { objset, object, rule });
        }
        if name == DEFAULT_ACL && !draft.is_directory() {
            return match value {
                Some(_) => Err(self.not_permitted(object, "only directories have default ACLs")),
                None => Ok(()),
            };
        }
        let entries = value.map(|bytes| acl::parse_posix(bytes).unwrap_or_default());
        if entries.as_ref().is_some_and(|entries| !posix1e::is_valid(entries)) {
            return Err(self.invalid_error(object, "it is no POSIX ACL"));
        }
        let (mut kept, mut sets_mode) = (value, false);
        if let Some(entries) = entries.filter(|_| name == ACCESS_ACL) {
            let mode = posix1e::mode_from_acl(&entries, draft.sa.mode());
            sets_mode = mode != draft.sa.mode();
            if sets_mode {
                self.set_mode(&mut draft.sa, mode);
            }
            kept = value.filter(|_| !posix1e::is_minimal(&entries));
        }
        self.store_xattr(caller, &mut draft, name, (kept, sets_mode), reach)
    }

    /// Puts those attributes among the others that fit; returns the rest.
    pub(super) fn pack_acls(
        &self,
        sheet: &mut SaTable,
        acls: Vec<(&'static [u8], Vec<u8>)>,
    ) -> Vec<(&'static [u8], Vec<u8>)> {
        let packs = self.settings.read().xattr_sa && !sheet.is_legacy();
        let stays = |acl: &(&[u8], Vec<u8>)| !(packs && sheet.set_sa_xattr(acl.0, Some(&acl.1)));
        acls.into_iter().filter(stays).collect()
    }
}

impl SaTable {
    fn sa_xattr_list(&self) -> Nvlist {
        let bytes = self.bytes(Attribute::Dxattr).unwrap_or_default();
        Nvlist::decode(bytes).unwrap_or_else(|_| Nvlist::new())
    }

    /// An extended attribute that is kept with the others.
    pub(super) fn sa_xattr(&self, name: &[u8]) -> Option<Vec<u8>> {
        let list = self.sa_xattr_list();
        xattr_pairs(&list).find(|pair| pair.0 == name).map(|pair| pair.1.to_vec())
    }

    /// All extended attributes that are kept with the others.
    pub(super) fn sa_xattrs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        xattr_pairs(&self.sa_xattr_list())
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect()
    }

    /// Stores an extended attribute among the others, or removes it; false if it does not fit, and
    /// then nothing has changed.
    pub(super) fn set_sa_xattr(&mut self, name: &[u8], value: Option<&[u8]>) -> bool {
        if value.is_none() && self.sa_xattr(name).is_none() {
            return true;
        }
        if value.is_some_and(|value| value.len() > MAX_SA_XATTR_VALUE) {
            return false;
        }
        let mut list = Nvlist::new();
        for (known, value) in self.sa_xattr_list().iter_bytes().filter(|pair| pair.0 != name) {
            list.push_bytes(known, value.clone());
        }
        if let Some(value) = value {
            list.push_bytes(name, Value::Bytes(value.to_vec()));
        }
        let before = self.clone();
        self.set(Attribute::Dxattr, list.encode(Encoding::Xdr));
        let fits = self.fits_in_spill();
        if !fits {
            *self = before;
        }
        fits
    }
}
