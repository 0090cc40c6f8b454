//! Changing files, as POSIX has it.
//!
//! A [`Writer`] belongs to one file system on a live object set. Each operation locks the files
//! that it changes ([`crate::Fs`] reads under the same locks), works out what is to be stored,
//! begins a transaction, changes, takes down the promise for the intent log, and is done when the
//! transaction is let go. Who may do what is the caller's to check, but for what the files' own
//! flags forbid.
//!
//! A file that loses its last name goes at once if nobody holds it ([`Writer::hold`]), or else
//! into the set of unlinked files, until it is released.

mod acl;
mod content;
mod draft;
mod make;
mod names;
mod reap;
mod remove;
mod rename;
mod replay;
mod set;
mod share;
mod xattr;
mod xattr_dir;

use std::collections::HashMap;
use std::sync::Arc;

use ondisk::sa::Value;
use parking_lot::{Mutex, RwLock};
use units::ObjectId;
use zap::Zap;

use crate::dir::{LONG_NAME, SHORT_NAME};
use crate::sheet::Sheet;
use crate::{Attributes, Begin, Error, Fs, Need, Result, layouts};
pub(crate) use content::block_size;
pub use content::{Position, without_set_id};
use draft::Draft;
pub use make::New;
pub use rename::{Move, MoveKind};
pub use replay::can_repeat;
pub use set::Set;
pub use share::Stretch;
pub use xattr::XattrMode;

/// When reading a file changes its atime (the property atime, and relatime).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atime {
    /// Never.
    Off,
    /// Always.
    On,
    /// Where it is not newer than the file's other times, or a day old.
    #[default]
    Relative,
}

/// What steers how files are written: properties of the dataset.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "features and properties, each on its own")]
pub struct Settings {
    /// The most bytes of a file's block (recordsize): a power of two.
    pub record_size: u32,
    /// Slots of 512 bytes that a new file's dnode takes (dnodesize).
    pub slots: u8,
    /// Extended attributes are kept with the other attributes where they fit (xattr=sa).
    pub xattr_sa: bool,
    /// Names may have up to 1023 bytes (longname).
    pub long_names: bool,
    /// Files have a project, as the pool has the feature project_quota.
    pub projects: bool,
    /// Attributes that are kept with the others may be promised in the intent log, as the pool has
    /// the feature zilsaxattr; else who wants them to last waits for their group.
    pub logs_packed: bool,
    /// When reading a file changes its atime.
    pub atime: Atime,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            record_size: 128 << 10,
            slots: 1,
            xattr_sa: true,
            long_names: false,
            projects: true,
            logs_packed: true,
            atime: Atime::default(),
        }
    }
}

/// Something that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// Its number.
    pub id: ObjectId,
    /// What there is to know of it.
    pub attributes: Attributes,
}

/// Changes files.
pub struct Writer {
    fs: Fs,
    begin: Arc<dyn Begin>,
    settings: RwLock<Settings>,
    held: Mutex<HashMap<ObjectId, u64>>,
}

/// What an operation on one or two files may take: their attributes, a leaf or two of a table.
const SMALL: u64 = 128 << 10;

impl Writer {
    /// For the one who is to change the files.
    pub fn new(fs: Fs, begin: Arc<dyn Begin>, settings: Settings) -> Result<Self> {
        if !fs.objset().is_writable() {
            return Err(Error::ReadOnly { objset: fs.objset().id() });
        }
        let (settings, held) = (RwLock::new(settings), Mutex::default());
        Ok(Self { fs, begin, settings, held })
    }

    /// The file system.
    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    /// What steers how files are written.
    pub fn settings(&self) -> Settings {
        self.settings.read().clone()
    }

    /// Steers otherwise from now on.
    pub fn set_settings(&self, settings: Settings) {
        *self.settings.write() = settings;
    }

    /// Keeps a file although it may lose its last name: it is open. Fails if it is gone already.
    pub fn hold(&self, id: ObjectId) -> Result<()> {
        let _guard = self.fs.inner.guard(id);
        self.fs.inner.attributes(id)?;
        let mut held = self.held.lock();
        let count = held.entry(id).or_default();
        *count = count.saturating_add(1);
        Ok(())
    }

    fn is_held(&self, id: ObjectId) -> bool {
        self.held.lock().contains_key(&id)
    }

    /// Gives back a hold; with the last one a file without a name goes.
    pub fn release(&self, id: ObjectId) -> Result<()> {
        let mut held = self.held.lock();
        match held.get_mut(&id) {
            Some(count) if *count > 1 => {
                *count = count.saturating_sub(1);
                return Ok(());
            }
            _ => held.remove(&id),
        };
        drop(held);
        let guard = self.fs.inner.guard(id);
        let links = self.fs.inner.attributes(id)?.links;
        drop(guard);
        if links == 0 {
            self.try_to_reap(id);
        }
        Ok(())
    }

    fn objset(&self) -> units::ObjsetId {
        self.fs.objset().id()
    }

    fn invalid(&self, object: ObjectId, rule: &'static str) -> Error {
        Error::Invalid { objset: self.objset(), object, rule }
    }

    fn forbidden(&self, object: ObjectId, rule: &'static str) -> Error {
        Error::NotPermitted { objset: self.objset(), object, rule }
    }

    /// Whether one of these flags of a file keeps somebody from what they want.
    fn forbids(&self, sheet: &Sheet, flags: u64) -> bool {
        sheet.has_flag(flags) && !self.begin.is_again()
    }

    /// A file's attributes, to be changed.
    fn draft(&self, id: ObjectId) -> Result<Draft> {
        let inner = &self.fs.inner;
        let object = inner.objset.object(id)?;
        let sheet = Sheet::load(&object, &inner.schema);
        Ok(Draft { sheet: sheet.map_err(|fault| inner.fault(id, fault))?, object })
    }

    /// Sees to it that the attributes can be stored.
    fn settle(&self, sheet: &mut Sheet) -> Result<()> {
        let inner = &self.fs.inner;
        let need = Need { bytes: SMALL, ahead: true, ..Need::default() };
        let mut begin = || self.begin.begin(&need);
        let mut add = |values: &[Value]| {
            let salt = self.begin.random();
            layouts::add(&inner.objset, &inner.schema, salt, &mut begin, values)
        };
        sheet.settle(&mut add)
    }

    /// The table of a directory, or of the unlinked files.
    fn table(&self, dir: ObjectId) -> Result<Zap> {
        self.fs.inner.table(dir)
    }

    /// A name as it is stored, and its object.
    fn entry(&self, dir: ObjectId, name: &[u8]) -> Result<Option<(Vec<u8>, ObjectId)>> {
        self.fs.inner.must_be_directory(dir, &self.fs.inner.attributes(dir)?)?;
        self.fs.inner.lookup_stored_name(dir, name)
    }

    /// The same of a name that must be there.
    fn existing(&self, dir: ObjectId, name: &[u8]) -> Result<(Vec<u8>, ObjectId)> {
        let absent = || Error::NoEntry { objset: self.objset(), object: dir };
        self.entry(dir, name)?.ok_or_else(absent)
    }

    /// The most bytes of a name.
    pub fn longest_name(&self) -> usize {
        if self.settings.read().long_names { LONG_NAME } else { SHORT_NAME }
    }

    /// Whether a name can be one.
    fn check_name(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        let (objset, most) = (self.objset(), self.longest_name());
        if name.len() > most {
            return Err(Error::NameTooLong { objset, most });
        }
        if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return Err(self.invalid(dir, "a name has no 0 and no /, and is not . or .."));
        }
        if self.fs.master().utf8_only && std::str::from_utf8(name).is_err() {
            return Err(Error::NameNotUtf8 { objset });
        }
        self.fs.inner.check_folded(name)
    }
}
