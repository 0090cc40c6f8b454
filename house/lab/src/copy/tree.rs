//! A tree of files: the source, and the copied part.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::scratch_dir::drop_page_cache;

/// Bytes of a block as file systems count them.
const STAT_BLOCK_SIZE: u64 = 512;

/// The counts of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileTree {
    /// Regular files.
    pub(super) files: u64,
    /// Bytes in them.
    pub(super) bytes: u64,
    /// Their paths, for dropping them from the page cache; empty if not needed.
    paths: Vec<PathBuf>,
}

/// Something in a tree.
pub(super) enum TreeEntry {
    Directory,
    File(fs::Metadata),
    Symlink,
    /// Pipes, sockets, devices.
    Special,
}

/// Visits everything below `root`, folders before their entries; paths are relative.
pub(super) fn walk_tree(
    root: &Path,
    visit: &mut dyn FnMut(&Path, TreeEntry) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let full = root.join(&folder);
        let entries = fs::read_dir(&full).map_err(Error::io(&full, "listed"))?;
        for entry in entries {
            let entry = entry.map_err(Error::io(&full, "listed"))?;
            let path = folder.join(entry.file_name());
            let facts = entry.metadata().map_err(Error::io(&entry.path(), "looked at"))?;
            let kind = facts.file_type();
            if kind.is_dir() {
                visit(&path, TreeEntry::Directory)?;
                folders.push(path);
            } else if kind.is_file() {
                visit(&path, TreeEntry::File(facts))?;
            } else if kind.is_symlink() {
                visit(&path, TreeEntry::Symlink)?;
            } else {
                visit(&path, TreeEntry::Special)?;
            }
        }
    }
    Ok(())
}

impl FileTree {
    /// The entries of a folder.
    pub(super) fn scan(root: &Path) -> Result<Self, Error> {
        let mut tree = Self::default();
        walk_tree(root, &mut |path, entry| {
            if let TreeEntry::File(facts) = entry {
                tree.files += 1;
                tree.bytes += facts.len();
                tree.paths.push(root.join(path));
            }
            Ok(())
        })?;
        Ok(tree)
    }

    /// The copied part in a folder, including files that are still being written.
    pub(super) fn scan_copy(root: &Path, whole: bool) -> Result<Self, Error> {
        let mut tree = Self::default();
        walk_tree(root, &mut |_, entry| {
            if let TreeEntry::File(facts) = entry {
                tree.files += 1;
                let written = facts.blocks().saturating_mul(STAT_BLOCK_SIZE);
                tree.bytes += if whole { facts.len() } else { facts.len().min(written) };
            }
            Ok(())
        })?;
        Ok(tree)
    }

    /// This many files with this many bytes.
    pub(super) fn from_totals(files: u64, bytes: u64) -> Self {
        Self { files, bytes, paths: Vec::new() }
    }

    /// Takes all files out of memory, as far as they are written out.
    pub(super) fn drop_cache(&self) {
        for path in &self.paths {
            // one that is gone since is found out when it is copied
            if let Ok(file) = File::open(path) {
                drop_page_cache(&file);
            }
        }
    }
}
