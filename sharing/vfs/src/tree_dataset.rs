//! A dataset of a tree, opened at the first access.

use std::sync::OnceLock;

use engine::files::{Content, DatasetCatalog, FileSystemReader};

use crate::vnode::{DatasetIndex, Vnode};
use crate::{Error, Result};

/// A file system, a snapshot of one, or a volume.
pub(crate) struct TreeDataset {
    pub(crate) name: String,
    pub(crate) index: DatasetIndex,
    /// A snapshot has no `.zfs` and nothing below it.
    pub(crate) is_snapshot: bool,
    /// The file systems just below it, by the last part of their names.
    pub(crate) children: Vec<(Vec<u8>, DatasetIndex)>,
    /// The volumes just below it.
    pub(crate) volumes: Vec<(Vec<u8>, DatasetIndex)>,
    files: OnceLock<Result<FileSystemReader>>,
    content: OnceLock<Result<Content>>,
    snapshots: OnceLock<Result<Vec<String>>>,
}

impl TreeDataset {
    pub(crate) fn new(name: String, index: DatasetIndex) -> Self {
        Self {
            is_snapshot: name.contains('@'),
            name,
            index,
            children: Vec::new(),
            volumes: Vec::new(),
            files: OnceLock::new(),
            content: OnceLock::new(),
            snapshots: OnceLock::new(),
        }
    }

    /// Its files. Unreadable parts of its intent log are reported to `trouble`, once.
    pub(crate) fn files(
        &self,
        catalog: &dyn DatasetCatalog,
        trouble: &dyn Fn(&str),
    ) -> Result<&FileSystemReader> {
        let open = || {
            let (files, log) = catalog.open_filesystem(&self.name)?;
            if let Some(why) = log.error {
                trouble(&format!("{}: {why}", self.name));
            }
            Ok(files)
        };
        self.files.get_or_init(open).as_ref().map_err(Error::clone)
    }

    /// Its content, if it is a volume.
    pub(crate) fn content(
        &self,
        catalog: &dyn DatasetCatalog,
        trouble: &dyn Fn(&str),
    ) -> Result<&Content> {
        let open = || {
            let (content, log) = catalog.open_volume(&self.name)?;
            if let Some(why) = log.error {
                trouble(&format!("{}: {why}", self.name));
            }
            Ok(content)
        };
        self.content.get_or_init(open).as_ref().map_err(Error::clone)
    }

    /// The names of its snapshots.
    pub(crate) fn snapshots(&self, catalog: &dyn DatasetCatalog) -> Result<&[String]> {
        let list = || Ok(catalog.snapshot_names(&self.name)?);
        let listed = self.snapshots.get_or_init(list);
        listed.as_ref().map(Vec::as_slice).map_err(Error::clone)
    }

    /// The file system below it of that name.
    pub(crate) fn child(&self, name: &[u8]) -> Option<DatasetIndex> {
        find_by_name(&self.children, name)
    }

    /// The volume below it of that name.
    pub(crate) fn volume(&self, name: &[u8]) -> Option<DatasetIndex> {
        find_by_name(&self.volumes, name)
    }

    /// Where its root is, if it can be opened or not.
    pub(crate) fn root(&self, catalog: &dyn DatasetCatalog, trouble: &dyn Fn(&str)) -> Vnode {
        match self.files(catalog, trouble) {
            Ok(files) => Vnode::File(self.index, files.root_object()),
            Err(_) => Vnode::Unopened(self.index),
        }
    }
}

fn find_by_name(among: &[(Vec<u8>, DatasetIndex)], name: &[u8]) -> Option<DatasetIndex> {
    let at = among.binary_search_by(|(known, _)| known.as_slice().cmp(name)).ok()?;
    among.get(at).map(|(_, place)| *place)
}
