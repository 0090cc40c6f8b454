//! Datasets that can be read by their names, wherever their blocks are.

use super::{Content, DatasetSpace, FileSystemReader, HeadDataset, IntentLogSummary};
use crate::{RescuePool, Result};

/// Datasets that can be read by their names: those of a pool, or the snapshots in a backup repository.
pub trait DatasetCatalog: Send + Sync {
    /// The name of the whole, as it is shown among mounts.
    fn title(&self) -> String;

    /// Opens a file system or a snapshot of one by its full name.
    fn open_filesystem(&self, name: &str) -> Result<(FileSystemReader, IntentLogSummary)>;

    /// Opens a volume or a snapshot of one by its full name.
    fn open_volume(&self, name: &str) -> Result<(Content, IntentLogSummary)>;

    /// A dataset's name and those of all file systems and volumes below it, sorted, parents before
    /// their children. Unreadable ones are left out.
    fn heads_below(&self, target: &str) -> Vec<HeadDataset>;

    /// The names of a dataset's snapshots behind the `@`, oldest first.
    fn snapshot_names(&self, dataset: &str) -> Result<Vec<String>>;

    /// The names of the file systems just below a dataset, by name.
    fn child_filesystems(&self, name: &str) -> Vec<String>;

    /// The space of a dataset; zeros where it is not known.
    fn space(&self, dataset: &str) -> DatasetSpace;

    /// Bytes that a dataset refers to, before compression; 0 where that is not known.
    fn logical_size(&self, name: &str) -> u64;
}

impl DatasetCatalog for RescuePool {
    fn title(&self) -> String {
        self.name().to_owned()
    }

    fn open_filesystem(&self, name: &str) -> Result<(FileSystemReader, IntentLogSummary)> {
        Self::open_filesystem(self, name)
    }

    fn open_volume(&self, name: &str) -> Result<(Content, IntentLogSummary)> {
        Self::open_volume(self, name)
    }

    fn heads_below(&self, target: &str) -> Vec<HeadDataset> {
        Self::heads_below(self, target)
    }

    fn snapshot_names(&self, dataset: &str) -> Result<Vec<String>> {
        Self::snapshot_names(self, dataset)
    }

    fn child_filesystems(&self, name: &str) -> Vec<String> {
        Self::child_filesystems(self, name)
    }

    fn space(&self, dataset: &str) -> DatasetSpace {
        Self::space(self, dataset)
    }

    fn logical_size(&self, name: &str) -> u64 {
        Self::logical_size(self, name)
    }
}
