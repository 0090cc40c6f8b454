//! Setting an NFSv4 ACL.

use ondisk::Order;
use ondisk::acl;
use ondisk::sa::Attribute;
use ondisk::zil::{Acl, Body};
use ondisk::znode::flag;
use posix::{ChangeContext, FileType, acl::Ace, acl::nfs4};
use units::ObjectId;

use crate::new_znode::{encode_for_version, to_legacy_acl};
use crate::sa_table::SaTable;
use crate::writer::FsWriter;
use crate::writer::pending_file::SMALL_NEED;
use crate::{Error, LogRecord, Result};

/// No ACL has more entries.
const MAX_ACL_ENTRIES: usize = 1024;
/// The bytes of entries that fit a legacy znode.
const MAX_LEGACY_ACL: usize = 72;
/// Flags of entries that files in a directory inherit.
const INHERIT_FLAGS: u16 = 0x3;
/// The flags of a file about its ACL.
const ACL_FLAGS: u64 = flag::ACL_TRIVIAL | flag::INHERIT_ACE | flag::ACL_OBJ_ACE;

impl FsWriter {
    /// Sets the NFSv4 ACL of a file; its mode is computed from the ACL.
    pub fn set_acl(&self, caller: &ChangeContext, file: ObjectId, entries: &[Ace]) -> Result<()> {
        if !(1..=MAX_ACL_ENTRIES).contains(&entries.len()) {
            return Err(self.invalid_error(file, "an ACL has 1 to 1024 entries"));
        }
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.load_pending(file)?;
        if self.is_forbidden(&draft.sa, flag::IMMUTABLE) {
            return Err(self.not_permitted(file, "the file is immutable"));
        }
        let external = draft.sa.external_acl();
        self.set_acl_attributes(&mut draft.sa, file, entries)?;
        draft.sa.touch_ctime(caller.now);
        self.resolve_layouts(&mut draft.sa)?;
        let tx = self.transactions.begin_tx(&SMALL_NEED)?;
        draft.store(&tx)?;
        if let Some(external) = external {
            self.fs.objset().free(&tx, external)?;
        }
        let acl = Box::new(Self::acl_record(&draft.sa, entries));
        let body = Body::Acl { object: file, acl };
        self.transactions.log_record(&tx, LogRecord::Record(body));
        Ok(())
    }

    /// The NFSv4 ACL among a file's attributes.
    pub(super) fn stored_acl(&self, sheet: &SaTable, file: ObjectId) -> Result<Vec<Ace>> {
        let bytes = sheet.bytes(Attribute::DaclAces).unwrap_or_default();
        let entries = acl::parse(bytes, sheet.word(Attribute::DaclCount), Order::Little);
        entries.map_err(|why| self.fs.inner.attribute_error(file, why.into()))
    }

    /// The log record of an ACL.
    pub(super) fn acl_record(sheet: &SaTable, entries: &[Ace]) -> Acl {
        Acl {
            count: units::to_u64(entries.len()),
            flags: sheet.word(Attribute::Flags) & ACL_FLAGS,
            entries: acl::encode(entries),
            fuids: Vec::new(),
            domains: Vec::new(),
        }
    }

    pub(super) fn set_acl_attributes(
        &self,
        sheet: &mut SaTable,
        file: ObjectId,
        entries: &[Ace],
    ) -> Result<()> {
        let (objset, object) = (self.objset_id(), file);
        if sheet.is_legacy() {
            let bytes = encode_for_version(self.fs.master().version, entries);
            if bytes.len() > MAX_LEGACY_ACL {
                let rule = "a file of an old file system has an ACL of 72 bytes at most";
                return Err(Error::NotSupported { objset, object, rule });
            }
            sheet.set_legacy_acl(&to_legacy_acl(self.fs.master().version, entries));
        } else {
            sheet.set_word(Attribute::DaclCount, units::to_u64(entries.len()));
            sheet.set(Attribute::DaclAces, acl::encode(entries));
            if !sheet.fits_in_spill() {
                return Err(Error::TooLarge { objset, object });
            }
        }
        let (owner, group) = (sheet.word(Attribute::Uid), sheet.word(Attribute::Gid));
        let (mode, executable) = nfs4::mode_from_acl(entries, sheet.mode(), (owner, group));
        let is_directory = sheet.file_type() == FileType::Directory;
        let inherits = |entry: &Ace| is_directory && entry.flags & INHERIT_FLAGS != 0;
        sheet.set_word(Attribute::Mode, mode.into());
        sheet.set_flags(flag::ACL_TRIVIAL, nfs4::is_trivial(entries));
        sheet.set_flags(flag::INHERIT_ACE, entries.iter().any(inherits));
        let is_object = |entry: &Ace| entry.object.is_some();
        sheet.set_flags(flag::ACL_OBJ_ACE, entries.iter().any(is_object));
        sheet.set_flags(flag::NO_EXECS_DENIED, executable);
        Ok(())
    }
}
