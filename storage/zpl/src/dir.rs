//! Directories: names looked up, names listed.
//!
//! A directory is a table from names to words: bits 0-47 the file's object, 60-63 its type (0 in
//! file systems of version 1: then the file has it). `.` and `..` are not in it.

use std::borrow::Cow;
use std::ops::Bound::{Excluded, Unbounded};

use posix::FileType;
use units::ObjectId;
use zap::{Matching, Normalization};

use crate::create::dir_normalization;
use crate::fs::FsInner;
use crate::{CaseSensitivity, Error, Fs, Inode, Result, ZnodeAttributes};

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The name: any bytes but 0 and `/`.
    pub name: Vec<u8>,
    /// The file's inode number.
    pub object: ObjectId,
    /// The file's type.
    pub kind: FileType,
    /// The position after this name, for a later listing.
    pub cursor: DirCursor,
}

/// A place between the names of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirCursor {
    /// Behind one of the dataset's own names.
    Stored(zap::ZapCursor),
    /// Behind a name that the intent log brought: these come last.
    Logged(Vec<u8>),
}

/// The most bytes of a name.
pub(crate) const MAX_SHORT_NAME: usize = 255;

/// The same where names may be long (the property longname).
pub(crate) const MAX_LONG_NAME: usize = 1023;

/// The most names of a changing directory that one step lists.
const READDIR_BATCH: usize = 256;

/// The word of an entry in a file system of a version.
pub(crate) fn encode_dirent(object: ObjectId, kind: FileType, version: u64) -> u64 {
    let kind = if version >= DIRENT_TYPE_VERSION { u64::from(kind.type_bits()) << 60 } else { 0 };
    object.get() | kind
}

/// The version from which on entries have the file's type.
const DIRENT_TYPE_VERSION: u64 = 2;

/// The object and the kind in an entry's word; no kind in file systems of version 1.
fn decode_dirent(word: u64) -> (ObjectId, Option<FileType>) {
    let number = (word >> 60) as u8;
    let kind = (number != 0).then(|| FileType::from_type_bits(number));
    (ObjectId::new(word & ((1 << 48) - 1)), kind)
}

impl Fs {
    /// The file of that name in a directory; `None` if there is none. Names are compared as the
    /// dataset wants it: with or without case, normalized or not.
    pub fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<Inode>> {
        self.inner.require_directory(dir.id(), dir.attributes())?;
        match name {
            b"." | b"" => return Ok(Some(dir.clone())),
            b".." if dir.id() == self.inner.master.root => return Ok(Some(dir.clone())),
            b".." => {
                let parent = self.attributes(dir.id())?.parent;
                return self.inode(parent).map(Some);
            }
            _ => {}
        }
        let guard = self.inner.read_lock(dir.id());
        let found = self.inner.lookup(dir.id(), name)?;
        drop(guard);
        match found {
            Some(id) => self.inode(id).map(Some),
            None => Ok(None),
        }
    }

    /// Follows a path of names from the root. Symbolic links are not followed.
    pub fn find_path(&self, path: &[u8]) -> Result<Option<Inode>> {
        let mut node = self.root()?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            match self.lookup(&node, name)? {
                Some(found) => node = found,
                None => return Ok(None),
            }
        }
        Ok(Some(node))
    }

    /// Calls `visit` with the names of a directory, in the table's order, until it returns false;
    /// after `from`, if that is given. `.` and `..` are not among them.
    pub fn read_dir(
        &self,
        dir: &Inode,
        from: Option<&DirCursor>,
        visit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        self.inner.require_directory(dir.id(), dir.attributes())?;
        if !self.inner.objset.is_writable() {
            return self.inner.read_dir(dir.id(), from, visit);
        }
        let mut from = from.cloned();
        // the visitor may look at the file: nothing may be locked by then
        loop {
            let entries = self.read_dir_batch(dir.id(), from.as_ref())?;
            let Some(last) = entries.last() else { return Ok(()) };
            from = Some(last.cursor.clone());
            if !entries.into_iter().all(&mut *visit) {
                return Ok(());
            }
        }
    }

    /// The next names in a directory.
    fn read_dir_batch(&self, dir: ObjectId, from: Option<&DirCursor>) -> Result<Vec<DirEntry>> {
        let _guard = self.inner.read_lock(dir);
        let mut entries = Vec::new();
        self.inner.read_dir(dir, from, &mut |entry| {
            entries.push(entry);
            entries.len() < READDIR_BATCH
        })?;
        Ok(entries)
    }

    /// All names in a directory at once; for directories that are known to be small.
    pub fn list_dir(&self, dir: &Inode) -> Result<Vec<DirEntry>> {
        let mut out = Vec::new();
        self.read_dir(dir, None, &mut |entry| {
            out.push(entry);
            true
        })?;
        Ok(out)
    }
}

impl FsInner {
    pub(crate) fn require_directory(
        &self,
        object: ObjectId,
        attributes: &ZnodeAttributes,
    ) -> Result<()> {
        if attributes.is_directory() {
            return Ok(());
        }
        Err(Error::NotDirectory { objset: self.objset.id(), object })
    }

    /// The object of a name.
    pub(crate) fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        Ok(self.lookup_stored_name(dir, name)?.map(|found| found.1))
    }

    /// A stored name, which may differ in case or normal form from the requested one; and its
    /// object.
    pub(crate) fn lookup_stored_name(
        &self,
        dir: ObjectId,
        name: &[u8],
    ) -> Result<Option<(Vec<u8>, ObjectId)>> {
        let matching = self.name_matching();
        let Some(change) = self.log_overlay.get(dir) else {
            return self.lookup_base(dir, name, matching);
        };
        if let Some((object, _)) = change.dir_names.added.get(name) {
            return Ok(Some((name.to_vec(), *object)));
        }
        if matching != Matching::Exact {
            let wanted = self.normalize_name(name);
            let mut added = change.dir_names.added.iter();
            if let Some((stored, (object, _))) =
                added.find(|row| self.normalize_name(row.0) == wanted)
            {
                return Ok(Some((stored.clone(), *object)));
            }
        }
        if change.is_new {
            return Ok(None);
        }
        let found = self.lookup_base(dir, name, matching)?;
        Ok(found.filter(|found| !change.dir_names.removed.contains(&found.0)))
    }

    fn lookup_base(
        &self,
        dir: ObjectId,
        name: &[u8],
        matching: Matching,
    ) -> Result<Option<(Vec<u8>, ObjectId)>> {
        let zap = self.open_zap(dir)?;
        let found = match matching {
            Matching::Exact => zap.lookup(name)?.map(|value| (name.to_vec(), value)),
            _ => zap.lookup_normalized(name, matching)?.map(|entry| (entry.name, entry.value)),
        };
        let Some((name, value)) = found else { return Ok(None) };
        let Some(word) = value.integers().next() else {
            return Err(self.bad_dirent(dir));
        };
        Ok(Some((name, decode_dirent(word).0)))
    }

    fn bad_dirent(&self, object: ObjectId) -> Error {
        let rule = "a directory's entry must be a number";
        Error::Malformed { objset: self.objset.id(), object, rule }
    }

    fn name_matching(&self) -> Matching {
        match (self.master.case, self.master.normalization) {
            (CaseSensitivity::Sensitive, 0) => Matching::Exact,
            (CaseSensitivity::Mixed, _) => Matching::NormalizedCase,
            _ => Matching::Normalized,
        }
    }

    /// Whether the hashed form and the compared form of a name each fit the space for the name
    /// itself. OpenZFS finds no other names.
    pub(crate) fn check_normalized_length(&self, name: &[u8]) -> Result<()> {
        if self.name_matching() == Matching::Exact {
            return Ok(());
        }
        let most = if name.len() > MAX_SHORT_NAME { MAX_LONG_NAME } else { MAX_SHORT_NAME };
        let hashed =
            zap::normalize(name, dir_normalization(self.master.case, self.master.normalization));
        if hashed.len().max(self.normalize_name(name).len()) > most {
            return Err(Error::NormalizedTooLong { objset: self.objset.id(), max_len: most });
        }
        Ok(())
    }

    /// A name as it is compared.
    fn normalize_name<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        let form = Normalization(self.master.normalization);
        let how = match self.master.case {
            CaseSensitivity::Insensitive => Normalization(form.0 | Normalization::UPPER.0),
            CaseSensitivity::Sensitive | CaseSensitivity::Mixed => form,
        };
        zap::normalize(name, how)
    }

    pub(crate) fn read_dir(
        &self,
        dir: ObjectId,
        from: Option<&DirCursor>,
        visit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let change = self.log_overlay.get(dir);
        let is_new = change.is_some_and(|change| change.is_new);
        if !is_new && !matches!(from, Some(DirCursor::Logged(_))) {
            let zap = self.open_zap(dir)?;
            let from = match from {
                Some(DirCursor::Stored(cursor)) => *cursor,
                _ => zap::ZapCursor::default(),
            };
            for entry in zap.entries_from(from) {
                let entry = entry?;
                if change.is_some_and(|change| change.dir_names.removed.contains(&entry.name)) {
                    continue;
                }
                let word = entry.value.integers().next();
                let word = word.ok_or_else(|| self.bad_dirent(dir))?;
                let (object, kind) = decode_dirent(word);
                let kind = match kind {
                    Some(kind) => kind,
                    None => self.file_type_of(object)?,
                };
                let cursor = DirCursor::Stored(entry.cursor.after());
                if !visit(DirEntry { name: entry.name, object, kind, cursor }) {
                    return Ok(());
                }
            }
        }
        let Some(change) = change else { return Ok(()) };
        let after = match from {
            Some(DirCursor::Logged(name)) => Excluded(name.as_slice()),
            _ => Unbounded,
        };
        for (name, (object, kind)) in change.dir_names.added.range::<[u8], _>((after, Unbounded)) {
            let cursor = DirCursor::Logged(name.clone());
            let (name, object, kind) = (name.clone(), *object, *kind);
            if !visit(DirEntry { name, object, kind, cursor }) {
                break;
            }
        }
        Ok(())
    }

    fn file_type_of(&self, object: ObjectId) -> Result<FileType> {
        Ok(self.attributes(object)?.kind)
    }
}
