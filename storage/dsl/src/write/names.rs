//! Names of datasets, looked up in the live MOS, and which names are allowed.

use std::collections::HashMap;

use ondisk::dsl::Dataset as DatasetPhys;
use units::{ObjectId, ObjsetId};
use zap::{Matching, Zap, ZapEntry};

use super::SyncTaskContext;
use crate::{Error, Result};

/// A directory and its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeadIds {
    pub(crate) dir: ObjectId,
    pub(crate) dataset: ObjectId,
}

/// Bytes of a name, with the names of all above it.
const MAX_NAME_LEN: usize = 255;
/// Directories below one another.
const MAX_DEPTH: usize = 50;

impl SyncTaskContext<'_> {
    /// The topmost directory.
    pub(crate) fn root_dir(&self) -> Result<ObjectId> {
        let root = self.lookup_u64(super::context::POOL_DIRECTORY, "root_dataset")?;
        root.map(ObjectId::new).ok_or(Error::NoDirectoryEntry { name: "root_dataset" })
    }

    /// A directory by its path.
    pub(crate) fn find_dir(&self, path: &str) -> Result<ObjectId> {
        let missing = || Error::NoSuchDataset { name: path.to_owned() };
        if path.contains('$') {
            // the pool's own directories ($MOS, $ORIGIN, $FREE) belong to no user
            return Err(invalid_name(path, "invalid character '$' in name"));
        }
        let mut parts = path.split('/');
        if parts.next() != Some(self.pool) {
            return Err(missing());
        }
        let mut at = self.root_dir()?;
        for part in parts {
            let children = self.dir_phys(at)?.children;
            at = self.lookup_u64(children, part)?.map(ObjectId::new).ok_or_else(missing)?;
        }
        Ok(at)
    }

    /// A head by its path.
    pub(crate) fn find_head(&self, path: &str) -> Result<HeadIds> {
        let dir = self.find_dir(path)?;
        let dataset = self.dir_phys(dir)?.head;
        if !dataset.exists() {
            return Err(Error::NoContent { name: path.to_owned() });
        }
        Ok(HeadIds { dir, dataset })
    }

    /// A snapshot by its name, with its head.
    pub(crate) fn find_snapshot(&self, name: &str) -> Result<(HeadIds, ObjectId)> {
        let missing = || Error::NoSuchDataset { name: name.to_owned() };
        let (path, part) = name.split_once('@').ok_or_else(missing)?;
        let head = self.find_head(path)?;
        let found = self.find_snapshot_id(head.dataset, part)?;
        Ok((head, found.ok_or_else(missing)?))
    }

    /// A snapshot of a head by the part after the `@`.
    pub(crate) fn find_snapshot_id(&self, head: ObjectId, part: &str) -> Result<Option<ObjectId>> {
        let found = self.find_entry(head, self.dataset_phys(head)?.snapshot_names, part)?;
        Ok(found.and_then(|entry| entry.value.u64()).map(ObjectId::new))
    }

    /// An entry in one of a head's tables of snapshots or bookmarks. Where names of files are
    /// compared without case these are, too: of two that differ in nothing else, the real system
    /// would take either.
    pub(crate) fn find_entry(
        &self,
        head: ObjectId,
        table: ObjectId,
        part: &str,
    ) -> Result<Option<ZapEntry>> {
        if !table.exists() {
            return Ok(None);
        }
        let table = Zap::open(self.object(table)?)?;
        Ok(table.lookup_normalized(part.as_bytes(), name_matching(&self.dataset_phys(head)?))?)
    }

    /// The names of a head's snapshots after the `@`.
    pub(crate) fn snapshot_names(&self, head: ObjectId) -> Result<HashMap<ObjectId, String>> {
        let entries = self.zap_entries(self.dataset_phys(head)?.snapshot_names)?;
        let part = |entry: &ZapEntry| {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            Some((ObjectId::new(entry.value.u64()?), name))
        };
        Ok(entries.iter().filter_map(part).collect())
    }

    /// The name of a snapshot after the `@`.
    pub(crate) fn snapshot_name(&self, snapshot: ObjectId) -> Result<String> {
        let dir = self.dataset_phys(snapshot)?.dir;
        let mut parts = self.snapshot_names(self.dir_phys(dir)?.head)?;
        let missing = || Error::NoSuchDataset { name: format!("object {snapshot}") };
        parts.remove(&snapshot).ok_or_else(missing)
    }

    /// A dataset that has a predecessor, and that.
    pub(crate) fn previous_snapshot(
        &self,
        dataset: &DatasetPhys,
    ) -> Result<Option<(ObjectId, DatasetPhys)>> {
        let id = dataset.previous;
        if id.exists() { Ok(Some((id, self.dataset_phys(id)?))) } else { Ok(None) }
    }

    /// The name of a directory in the one above it.
    pub(crate) fn dir_name(&self, dir: ObjectId) -> Result<String> {
        let parent = self.dir_phys(dir)?.parent;
        if !parent.exists() {
            return Ok(self.pool.to_owned());
        }
        let mut entries = self.zap_entries(self.dir_phys(parent)?.children)?.into_iter();
        let found = entries.find(|entry| entry.value.u64() == Some(dir.get()));
        let missing = || Error::NoSuchDataset { name: format!("directory {dir}") };
        Ok(String::from_utf8_lossy(&found.ok_or_else(missing)?.name).into_owned())
    }
}

/// When two names of a head's snapshots or bookmarks are one.
pub(crate) const fn name_matching(head: &DatasetPhys) -> Matching {
    if head.flags & DatasetPhys::CASELESS != 0 { Matching::Normalized } else { Matching::Exact }
}

/// The dataset that is the head of this name.
pub fn head_id(change: &SyncTaskContext<'_>, name: &str) -> Result<ObjsetId> {
    Ok(ObjsetId::new(change.find_head(name)?.dataset.get()))
}

/// The dataset of this name: a head or a snapshot.
pub fn dataset_id(change: &SyncTaskContext<'_>, name: &str) -> Result<ObjsetId> {
    if !name.contains('@') {
        return head_id(change, name);
    }
    Ok(ObjsetId::new(change.find_snapshot(name)?.1.get()))
}

/// The path of the parent, and the last component of a path.
pub(crate) fn split_parent(path: &str) -> Result<(&str, &str)> {
    path.rsplit_once('/').ok_or_else(|| invalid_name(path, "missing dataset name"))
}

/// Whether a path may be that of a file system or volume.
pub(crate) fn check_path(path: &str) -> Result<()> {
    check_length(path)?;
    path.split('/').try_for_each(|part| check_component(path, part))
}

/// Whether a name is short enough, and not of something too deep in the tree.
pub(crate) fn check_length(name: &str) -> Result<()> {
    if name.len() > MAX_NAME_LEN {
        return Err(invalid_name(name, "name is too long"));
    }
    if name.split('/').count() > MAX_DEPTH {
        return Err(invalid_name(name, "it lies more than 50 levels deep"));
    }
    Ok(())
}

/// Whether a name may be that of a snapshot or bookmark of `path`.
pub(crate) fn check_snapshot_name(path: &str, part: &str) -> Result<()> {
    let name = format!("{path}@{part}");
    check_not_hidden(&name)?;
    check_length(&name)?;
    check_component(&name, part)
}

/// Refuses the hidden clone of an interrupted receive (`%recv`). A receive may end it or go on with
/// it, and `zfs destroy` may remove it; nothing else may change it.
pub(crate) fn check_not_hidden(name: &str) -> Result<()> {
    if name.contains('%') {
        return Err(invalid_name(name, "invalid character '%' in name"));
    }
    Ok(())
}

fn check_component(name: &str, part: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.: ".contains(&byte);
    if part.is_empty() {
        return Err(invalid_name(name, "empty component or misplaced '@', '#' or '/' in name"));
    }
    if part == "." {
        return Err(invalid_name(name, "self reference, '.' is found in name"));
    }
    if part == ".." {
        return Err(invalid_name(name, "parent reference, '..' is found in name"));
    }
    if part.contains(['@', '#']) {
        return Err(invalid_name(name, "multiple '@' and/or '#' delimiters in name"));
    }
    if !part.bytes().all(allowed) {
        return Err(invalid_name(
            name,
            "invalid character in name; it may have letters, digits, - _ . : and spaces",
        ));
    }
    Ok(())
}

pub(crate) fn invalid_name(name: &str, why: &'static str) -> Error {
    Error::InvalidName { name: name.to_owned(), why }
}
