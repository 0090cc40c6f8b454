//! A model of a file system in plain maps, with the effects of every operation.

use std::collections::BTreeMap;

use posix::{FileType, RenameMode};
use units::ObjectId;

/// Why an operation fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ModelError {
    Exists,
    NoEntry,
    NotEmpty,
    IsDirectory,
    NotDirectory,
    NotPermitted,
    Invalid,
    NoXattr,
    ProjectMismatch,
}

pub(crate) type Outcome = Result<(), ModelError>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ModelFile {
    pub(crate) kind: FileType,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) nlink: u64,
    pub(crate) content: Vec<u8>,
    pub(crate) names: BTreeMap<Vec<u8>, ObjectId>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) parent: ObjectId,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
    pub(crate) project_id: u64,
    /// New files in it get its project.
    pub(crate) inherits_project: bool,
}

impl ModelFile {
    pub(crate) fn new(kind: FileType, mode: u32, now: i64) -> Self {
        Self {
            kind,
            mode,
            uid: 1000,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            content: Vec::new(),
            names: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            parent: ObjectId::new(0),
            mtime: now,
            ctime: now,
            project_id: 0,
            inherits_project: false,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        match self.kind {
            FileType::Directory => self.names.len() as u64 + 2,
            _ => self.content.len() as u64,
        }
    }

    fn touch(&mut self, now: i64) {
        (self.mtime, self.ctime) = (now, now);
    }
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) root: ObjectId,
    pub(crate) files: BTreeMap<ObjectId, ModelFile>,
    pub(crate) holds: BTreeMap<ObjectId, u64>,
}

impl Model {
    pub(crate) fn new(root: ObjectId, now: i64) -> Self {
        let top =
            ModelFile { uid: 0, parent: root, ..ModelFile::new(FileType::Directory, 0o755, now) };
        Self { root, files: [(root, top)].into(), holds: BTreeMap::new() }
    }

    pub(crate) fn file(&mut self, id: ObjectId) -> &mut ModelFile {
        self.files.get_mut(&id).expect("a file of the model")
    }

    pub(crate) fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<ObjectId, ModelError> {
        self.files[&dir].names.get(name).copied().ok_or(ModelError::NoEntry)
    }

    pub(crate) fn check_create(&self, dir: ObjectId, name: &[u8]) -> Outcome {
        self.lookup(dir, name).map_or(Ok(()), |_| Err(ModelError::Exists))
    }

    fn is_directory(&self, id: ObjectId) -> bool {
        self.files[&id].kind == FileType::Directory
    }

    fn add_name(&mut self, dir: ObjectId, name: &[u8], id: ObjectId, now: i64) {
        let sub = u64::from(self.is_directory(id));
        let parent = self.file(dir);
        parent.names.insert(name.to_vec(), id);
        parent.nlink += sub;
        parent.touch(now);
        self.file(id).parent = dir;
    }

    fn remove_name(&mut self, dir: ObjectId, name: &[u8], id: ObjectId, now: i64) {
        let sub = u64::from(self.is_directory(id));
        let parent = self.file(dir);
        parent.names.remove(name);
        parent.nlink -= sub;
        parent.touch(now);
    }

    pub(crate) fn create(
        &mut self,
        dir: ObjectId,
        name: &[u8],
        id: ObjectId,
        file: ModelFile,
        now: i64,
    ) {
        let parent = &self.files[&dir];
        let inherits =
            parent.inherits_project && matches!(file.kind, FileType::File | FileType::Directory);
        let project = if inherits { parent.project_id } else { 0 };
        let old = self
            .files
            .insert(id, ModelFile { project_id: project, inherits_project: inherits, ..file });
        assert!(old.is_none(), "{id} was in use");
        self.add_name(dir, name, id, now);
    }

    fn check_project(&self, dir: ObjectId, id: ObjectId) -> Outcome {
        let (dir, file) = (&self.files[&dir], &self.files[&id]);
        let differs = dir.inherits_project && dir.project_id != file.project_id;
        if differs { Err(ModelError::ProjectMismatch) } else { Ok(()) }
    }

    pub(crate) fn link(&mut self, id: ObjectId, dir: ObjectId, name: &[u8], now: i64) -> Outcome {
        if self.is_directory(id) {
            return Err(ModelError::NotPermitted);
        }
        self.check_project(dir, id)?;
        self.check_create(dir, name)?;
        self.add_name(dir, name, id, now);
        let file = self.file(id);
        file.nlink += 1;
        file.ctime = now;
        Ok(())
    }

    fn drop_link(&mut self, id: ObjectId, now: i64) {
        let is_directory = self.is_directory(id);
        let file = self.file(id);
        file.nlink = if is_directory { 0 } else { file.nlink - 1 };
        file.ctime = now;
        self.free_unlinked(id);
    }

    fn free_unlinked(&mut self, id: ObjectId) {
        if self.files[&id].nlink == 0 && !self.holds.contains_key(&id) {
            self.files.remove(&id);
        }
    }

    pub(crate) fn remove(
        &mut self,
        dir: ObjectId,
        name: &[u8],
        directory: bool,
        now: i64,
    ) -> Outcome {
        let id = self.lookup(dir, name)?;
        match (self.is_directory(id), directory) {
            (true, false) => return Err(ModelError::IsDirectory),
            (false, true) => return Err(ModelError::NotDirectory),
            _ => {}
        }
        if !self.files[&id].names.is_empty() {
            return Err(ModelError::NotEmpty);
        }
        self.remove_name(dir, name, id, now);
        self.drop_link(id, now);
        Ok(())
    }

    fn is_below(&self, below: ObjectId, dir: ObjectId) -> bool {
        let mut at = below;
        while at != dir && at != self.root {
            at = self.files[&at].parent;
        }
        at == dir
    }

    pub(crate) fn rename(
        &mut self,
        (from_dir, from): (ObjectId, &[u8]),
        (to_dir, to): (ObjectId, &[u8]),
        kind: RenameMode,
        now: i64,
    ) -> Outcome {
        let source = self.lookup(from_dir, from)?;
        let target = self.lookup(to_dir, to).ok();
        if kind == RenameMode::NoReplace && target.is_some() {
            return Err(ModelError::Exists);
        }
        if target == Some(source) {
            return Ok(());
        }
        self.check_project(to_dir, source)?;
        if self.is_directory(source) && self.is_below(to_dir, source) {
            return Err(ModelError::Invalid);
        }
        let is_exchange = kind == RenameMode::Exchange;
        match target {
            None if is_exchange => return Err(ModelError::NoEntry),
            Some(target) if is_exchange => {
                self.check_project(from_dir, target)?;
                if self.is_directory(target) && self.is_below(from_dir, target) {
                    return Err(ModelError::Invalid);
                }
            }
            Some(target) => match (self.is_directory(source), self.is_directory(target)) {
                (true, false) => return Err(ModelError::NotDirectory),
                (false, true) => return Err(ModelError::IsDirectory),
                _ if !self.files[&target].names.is_empty() => return Err(ModelError::NotEmpty),
                _ => {}
            },
            None => {}
        }
        self.remove_name(from_dir, from, source, now);
        if let Some(target) = target {
            self.remove_name(to_dir, to, target, now);
        }
        self.add_name(to_dir, to, source, now);
        self.file(source).ctime = now;
        if self.files[&to_dir].inherits_project {
            self.file(source).inherits_project = true;
        }
        match target {
            Some(target) if is_exchange => {
                self.add_name(from_dir, from, target, now);
                self.file(target).ctime = now;
            }
            Some(target) => self.drop_link(target, now),
            None => {}
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, id: ObjectId, offset: usize, bytes: &[u8], now: i64) -> Outcome {
        self.require_file(id)?;
        let file = self.file(id);
        let end = offset + bytes.len();
        if file.content.len() < end {
            file.content.resize(end, 0);
        }
        file.content[offset..end].copy_from_slice(bytes);
        file.touch(now);
        file.clear_setid();
        Ok(())
    }

    fn require_file(&self, id: ObjectId) -> Outcome {
        match self.files[&id].kind {
            FileType::File => Ok(()),
            FileType::Directory => Err(ModelError::IsDirectory),
            _ => Err(ModelError::Invalid),
        }
    }

    pub(crate) fn truncate(&mut self, id: ObjectId, size: usize, now: i64) -> Outcome {
        self.require_file(id)?;
        let file = self.file(id);
        file.content.resize(size, 0);
        file.touch(now);
        file.clear_setid();
        Ok(())
    }

    pub(crate) fn punch_hole(
        &mut self,
        id: ObjectId,
        range: std::ops::Range<usize>,
        now: i64,
    ) -> Outcome {
        self.require_file(id)?;
        let file = self.file(id);
        let end = range.end.min(file.content.len());
        if range.start < end {
            file.content[range.start..end].fill(0);
            file.touch(now);
            file.clear_setid();
        }
        Ok(())
    }

    pub(crate) fn release(&mut self, id: ObjectId) {
        let count = self.holds.get_mut(&id).expect("held");
        *count -= 1;
        if *count == 0 {
            self.holds.remove(&id);
            self.free_unlinked(id);
        }
    }
}

impl ModelFile {
    fn clear_setid(&mut self) {
        self.mode &= !0o4000;
        if self.mode & 0o010 != 0 {
            self.mode &= !0o2000;
        }
    }

    pub(crate) fn chown(&mut self, uid: u32) {
        self.uid = uid;
        if self.kind != FileType::Directory {
            self.clear_setid();
        }
    }
}
