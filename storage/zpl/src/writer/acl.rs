//! Setting an NFSv4 ACL.

use ondisk::acl::{self, Entry};
use ondisk::sa::Attribute;
use ondisk::zil::{Acl, Body};
use ondisk::znode::flag;
use units::ObjectId;

use crate::birth::legacy_acl;
use crate::sheet::Sheet;
use crate::writer::Writer;
use crate::writer::draft::SMALL_NEED;
use crate::{Caller, Error, Kind, Promise, Result, trivial};

/// No ACL has more entries.
const MOST_ENTRIES: usize = 1024;
/// So many bytes of entries have room in a legacy znode.
const LEGACY_BYTES: usize = 72;
/// Flags of entries that files in a directory inherit.
const INHERITED: u16 = 0x3;
/// What a file's flags say of its ACL.
const ACL_FLAGS: u64 = flag::ACL_TRIVIAL | flag::INHERIT_ACE | flag::ACL_OBJ_ACE;

impl Writer {
    /// Sets the NFSv4 ACL of a file; its mode becomes what the ACL says.
    pub fn set_acl(&self, caller: &Caller, file: ObjectId, entries: &[Entry]) -> Result<()> {
        if !(1..=MOST_ENTRIES).contains(&entries.len()) {
            return Err(self.invalid(file, "an ACL has 1 to 1024 entries"));
        }
        let _locked = self.fs.inner.locks.write(&[file]);
        let mut draft = self.draft(file)?;
        if self.forbids(&draft.sheet, flag::IMMUTABLE) {
            return Err(self.forbidden(file, "the file is immutable"));
        }
        let external = draft.sheet.external_acl();
        self.put_acl(&mut draft.sheet, file, entries)?;
        draft.sheet.touch_status(caller.now);
        self.settle(&mut draft.sheet)?;
        let tx = self.begin.begin(&SMALL_NEED)?;
        draft.store(&tx)?;
        if let Some(external) = external {
            self.fs.objset().free(&tx, external)?;
        }
        let acl = Acl {
            count: u64::try_from(entries.len()).unwrap_or(0),
            flags: draft.sheet.word(Attribute::Flags) & ACL_FLAGS,
            entries: acl::encode(entries),
            fuids: Vec::new(),
            domains: Vec::new(),
        };
        let body = Body::Acl { object: file, acl: Box::new(acl) };
        self.begin.promise(&tx, Promise::Record(body));
        Ok(())
    }

    fn put_acl(&self, sheet: &mut Sheet, file: ObjectId, entries: &[Entry]) -> Result<()> {
        let (objset, object) = (self.objset(), file);
        let bytes = acl::encode(entries);
        if sheet.is_legacy() {
            if bytes.len() > LEGACY_BYTES {
                let rule = "a file of an old file system has an ACL of 72 bytes at most";
                return Err(Error::NotSupported { objset, object, rule });
            }
            sheet.put_legacy_acl(&legacy_acl(self.fs.master().version, entries));
        } else {
            sheet.set_word(Attribute::DaclCount, u64::try_from(entries.len()).unwrap_or(0));
            sheet.set(Attribute::DaclAces, bytes);
            if !sheet.fits() {
                return Err(Error::TooLarge { objset, object });
            }
        }
        let (owner, group) = (sheet.word(Attribute::Uid), sheet.word(Attribute::Gid));
        let (mode, executable) = trivial::mode_of(entries, sheet.mode(), owner, group);
        let is_directory = sheet.file_kind() == Kind::Directory;
        let inherits = |entry: &Entry| is_directory && entry.flags & INHERITED != 0;
        sheet.set_word(Attribute::Mode, mode.into());
        sheet.set_flags(flag::ACL_TRIVIAL, trivial::is_trivial(entries));
        sheet.set_flags(flag::INHERIT_ACE, entries.iter().any(inherits));
        let is_object = |entry: &Entry| entry.object.is_some();
        sheet.set_flags(flag::ACL_OBJ_ACE, entries.iter().any(is_object));
        sheet.set_flags(flag::NO_EXECS_DENIED, executable);
        Ok(())
    }
}
