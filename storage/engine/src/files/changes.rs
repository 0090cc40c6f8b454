//! The files that differ between a snapshot and a later one, or the file system, by their paths.

use std::collections::HashMap;

use posix::{FileType, Time};

use super::{FileSystemReader, ObjectKind, Result};

/// Directories within directories, at most. A loop of parents exists only where the pool is damaged.
const MAX_DEPTH: usize = 4096;

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The change.
    pub kind: FileChangeKind,
    /// The path from the root of the file system; of a removed or renamed file the one before.
    pub path: Vec<u8>,
    /// The type of the file.
    pub file_type: FileType,
    /// When anything about the file last changed (ctime).
    pub time: Time,
}

/// How a file differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChangeKind {
    /// The file exists in the later one only.
    Added,
    /// The file exists in the earlier one only.
    Removed,
    /// The content or the attributes changed.
    Modified,
    /// The file has another path.
    Renamed {
        /// The new path.
        to: Vec<u8>,
    },
}

/// Finds the paths of files, and keeps the names of the directories on the way.
struct PathFinder<'a> {
    reader: &'a FileSystemReader,
    names: HashMap<u64, HashMap<u64, Vec<u8>>>,
}

impl<'a> PathFinder<'a> {
    fn new(reader: &'a FileSystemReader) -> Self {
        Self { reader, names: HashMap::new() }
    }

    /// The path of a file; `None`: it has none, as an attribute's file or one that was unlinked.
    fn path(&mut self, id: u64) -> Result<Option<Vec<u8>>> {
        let root = self.reader.root()?.ino();
        let (mut parts, mut at) = (Vec::new(), id);
        while at != root {
            let parent = self.reader.stat(at)?.parent;
            let Some(name) = self.name_in(parent, at)? else { return Ok(None) };
            parts.push(name);
            at = parent;
            if parts.len() > MAX_DEPTH {
                return Ok(None);
            }
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        Ok(Some(if path.is_empty() { b"/".to_vec() } else { path }))
    }

    fn name_in(&mut self, dir: u64, id: u64) -> Result<Option<Vec<u8>>> {
        if let Some(names) = self.names.get(&dir) {
            return Ok(names.get(&id).cloned());
        }
        let mut names = HashMap::new();
        let is_directory = self.reader.stat(dir).is_ok_and(|stat| stat.is_directory());
        if is_directory {
            self.reader.read_dir(&self.reader.file(dir)?, &mut |entry| {
                names.insert(entry.ino, entry.name);
                true
            })?;
        }
        let found = names.get(&id).cloned();
        self.names.insert(dir, names);
        Ok(found)
    }
}

impl FileSystemReader {
    /// The files that differ in `later`, in the order of their numbers. Neither may be one that is being changed.
    pub fn file_changes(&self, later: &Self) -> Result<Vec<FileChange>> {
        let mut finders = [PathFinder::new(self), PathFinder::new(later)];
        let mut changes = Vec::new();
        for changed in self.changed_objects(later)? {
            let mut sides = [None, None];
            for ((side, finder), kind) in sides.iter_mut().zip(&mut finders).zip(changed.kinds) {
                if kind == ObjectKind::None {
                    continue;
                }
                let stat = finder.reader.stat(changed.id)?;
                *side = finder.path(changed.id)?.map(|path| (path, stat));
            }
            changes.extend(compare(sides));
        }
        Ok(changes)
    }
}

/// The changes of one object: before and after.
fn compare(sides: [Option<(Vec<u8>, super::FileStat)>; 2]) -> Vec<FileChange> {
    let change = |kind, path, stat: &super::FileStat| FileChange {
        kind,
        path,
        file_type: stat.kind,
        time: stat.ctime,
    };
    match sides {
        [None, None] => Vec::new(),
        [Some((path, stat)), None] => vec![change(FileChangeKind::Removed, path, &stat)],
        [None, Some((path, stat))] => vec![change(FileChangeKind::Added, path, &stat)],
        [Some((old, before)), Some((new, after))] => {
            if before.generation != after.generation {
                // the number was given to another file
                vec![
                    change(FileChangeKind::Removed, old, &before),
                    change(FileChangeKind::Added, new, &after),
                ]
            } else if old == new {
                vec![change(FileChangeKind::Modified, new, &after)]
            } else {
                vec![change(FileChangeKind::Renamed { to: new }, old, &after)]
            }
        }
    }
}
