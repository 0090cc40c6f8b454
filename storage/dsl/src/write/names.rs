//! Names of datasets, looked up in the live MOS, and which names are allowed.

use std::collections::HashMap;

use ondisk::dsl::Dataset as DatasetPhys;
use units::{ObjectId, ObjsetId};
use zap::{Matching, Zap, ZapEntry};

use super::Change;
use crate::{Error, Result};

/// A directory and its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) dir: ObjectId,
    pub(crate) dataset: ObjectId,
}

/// Bytes of a name, with the names of all above it.
const LONGEST: usize = 255;
/// Directories below one another.
const DEEPEST: usize = 50;

impl Change<'_> {
    /// The topmost directory.
    pub(crate) fn root(&self) -> Result<ObjectId> {
        let root = self.number(super::change::DIRECTORY, "root_dataset")?;
        root.map(ObjectId::new).ok_or(Error::Missing { name: "root_dataset" })
    }

    /// A directory by its path.
    pub(crate) fn find_dir(&self, path: &str) -> Result<ObjectId> {
        let missing = || Error::NoSuchDataset { name: path.to_owned() };
        let mut parts = path.split('/');
        if parts.next() != Some(self.pool) {
            return Err(missing());
        }
        let mut at = self.root()?;
        for part in parts {
            let children = self.dir(at)?.children;
            at = self.number(children, part)?.map(ObjectId::new).ok_or_else(missing)?;
        }
        Ok(at)
    }

    /// A head by its path.
    pub(crate) fn find_head(&self, path: &str) -> Result<Head> {
        let dir = self.find_dir(path)?;
        let dataset = self.dir(dir)?.head;
        if !dataset.exists() {
            return Err(Error::NoContent { name: path.to_owned() });
        }
        Ok(Head { dir, dataset })
    }

    /// A snapshot by its name, with its head.
    pub(crate) fn find_snapshot(&self, name: &str) -> Result<(Head, ObjectId)> {
        let missing = || Error::NoSuchDataset { name: name.to_owned() };
        let (path, part) = name.split_once('@').ok_or_else(missing)?;
        let head = self.find_head(path)?;
        let found = self.snapshot_of(head.dataset, part)?;
        Ok((head, found.ok_or_else(missing)?))
    }

    /// A snapshot of a head by the part after the `@`.
    pub(crate) fn snapshot_of(&self, head: ObjectId, part: &str) -> Result<Option<ObjectId>> {
        let found = self.part_of(head, self.dataset(head)?.snapshot_names, part)?;
        Ok(found.and_then(|entry| entry.value.u64()).map(ObjectId::new))
    }

    /// An entry in one of a head's tables of snapshots or bookmarks. Where names of files are
    /// compared without case these are, too: of two that differ in nothing else, the real system
    /// would take either.
    pub(crate) fn part_of(
        &self,
        head: ObjectId,
        table: ObjectId,
        part: &str,
    ) -> Result<Option<ZapEntry>> {
        if !table.exists() {
            return Ok(None);
        }
        let table = Zap::open(self.object(table)?)?;
        Ok(table.lookup_normalized(part.as_bytes(), matching(&self.dataset(head)?))?)
    }

    /// The names of a head's snapshots after the `@`.
    pub(crate) fn snapshot_parts(&self, head: ObjectId) -> Result<HashMap<ObjectId, String>> {
        let entries = self.entries(self.dataset(head)?.snapshot_names)?;
        let part = |entry: &ZapEntry| {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            Some((ObjectId::new(entry.value.u64()?), name))
        };
        Ok(entries.iter().filter_map(part).collect())
    }

    /// The name of a snapshot after the `@`.
    pub(crate) fn snapshot_part(&self, snapshot: ObjectId) -> Result<String> {
        let dir = self.dataset(snapshot)?.dir;
        let mut parts = self.snapshot_parts(self.dir(dir)?.head)?;
        let missing = || Error::NoSuchDataset { name: format!("object {snapshot}") };
        parts.remove(&snapshot).ok_or_else(missing)
    }

    /// A dataset that has a predecessor, and that.
    pub(crate) fn previous_of(
        &self,
        dataset: &DatasetPhys,
    ) -> Result<Option<(ObjectId, DatasetPhys)>> {
        let id = dataset.previous;
        if id.exists() { Ok(Some((id, self.dataset(id)?))) } else { Ok(None) }
    }

    /// The name of a directory in the one above it.
    pub(crate) fn own_name(&self, dir: ObjectId) -> Result<String> {
        let parent = self.dir(dir)?.parent;
        if !parent.exists() {
            return Ok(self.pool.to_owned());
        }
        let mut entries = self.entries(self.dir(parent)?.children)?.into_iter();
        let found = entries.find(|entry| entry.value.u64() == Some(dir.get()));
        let missing = || Error::NoSuchDataset { name: format!("directory {dir}") };
        Ok(String::from_utf8_lossy(&found.ok_or_else(missing)?.name).into_owned())
    }
}

/// When two names of a head's snapshots or bookmarks are one.
pub(crate) const fn matching(head: &DatasetPhys) -> Matching {
    if head.flags & DatasetPhys::CASELESS != 0 { Matching::Normalized } else { Matching::Exact }
}

/// The dataset that is the head of this name.
pub fn head_of(change: &Change<'_>, name: &str) -> Result<ObjsetId> {
    Ok(ObjsetId::new(change.find_head(name)?.dataset.get()))
}

/// The dataset of this name: a head or a snapshot.
pub fn dataset_of(change: &Change<'_>, name: &str) -> Result<ObjsetId> {
    if !name.contains('@') {
        return head_of(change, name);
    }
    Ok(ObjsetId::new(change.find_snapshot(name)?.1.get()))
}

/// The path of what is above, and the last part of a path.
pub(crate) fn split_last(path: &str) -> Result<(&str, &str)> {
    path.rsplit_once('/').ok_or_else(|| bad(path, "the pool's own dataset cannot be one"))
}

/// Whether a path may be that of a file system or volume.
pub(crate) fn judge_path(path: &str) -> Result<()> {
    judge_length(path)?;
    path.split('/').try_for_each(|part| judge_part(path, part))
}

/// Whether a name is short enough, and not of something too deep in the tree.
pub(crate) fn judge_length(name: &str) -> Result<()> {
    if name.len() > LONGEST {
        return Err(bad(name, "it is longer than 255 bytes"));
    }
    if name.split('/').count() > DEEPEST {
        return Err(bad(name, "it lies more than 50 levels deep"));
    }
    Ok(())
}

/// Whether a name may be that of a snapshot or bookmark of `path`.
pub(crate) fn judge_snapshot(path: &str, part: &str) -> Result<()> {
    let name = format!("{path}@{part}");
    judge_length(&name)?;
    judge_part(&name, part)
}

fn judge_part(name: &str, part: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.: ".contains(&byte);
    if part.is_empty() {
        return Err(bad(name, "a part of it is empty"));
    }
    if part == "." || part == ".." {
        return Err(bad(name, "a part of it is . or .."));
    }
    if !part.bytes().all(allowed) {
        return Err(bad(name, "it has a letter other than a-z, A-Z, 0-9, - _ . : and space"));
    }
    Ok(())
}

pub(crate) fn bad(name: &str, why: &'static str) -> Error {
    Error::BadName { name: name.to_owned(), why }
}
