//! The expected content of a pool: file systems and their snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::tree::Tree;

/// A file system.
#[derive(Clone, Debug)]
pub(crate) struct DatasetModel {
    pub(crate) tree: Arc<Tree>,
    /// Its snapshots, oldest first.
    pub(crate) snapshots: Vec<(String, Arc<Tree>)>,
    /// The snapshot that it began as, by its full name.
    pub(crate) origin: Option<String>,
}

/// The expected content of a pool: its datasets by their full names.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) datasets: BTreeMap<String, DatasetModel>,
}

impl DatasetModel {
    pub(crate) fn new(tree: Arc<Tree>, origin: Option<String>) -> Self {
        Self { tree, snapshots: Vec::new(), origin }
    }
}

impl Model {
    /// A pool with its root file system alone, made at `now`.
    pub(crate) fn new(pool: &str, now: i64) -> Self {
        let root = DatasetModel::new(Arc::new(Tree::new(now)), None);
        Self { datasets: [(pool.to_owned(), root)].into() }
    }

    pub(crate) fn tree(&self, set: &str) -> &Tree {
        &self.datasets[set].tree
    }

    pub(crate) fn dataset_mut(&mut self, set: &str) -> &mut DatasetModel {
        self.datasets.get_mut(set).expect("operations name datasets that are there")
    }

    /// Whether a clone depends on a snapshot.
    pub(crate) fn has_clones(&self, snapshot: &str) -> bool {
        self.datasets.values().any(|set| set.origin.as_deref() == Some(snapshot))
    }

    /// All file systems and snapshots by their full names.
    pub(crate) fn all_trees(&self) -> BTreeMap<String, &Arc<Tree>> {
        let mut all = BTreeMap::new();
        for (name, set) in &self.datasets {
            all.insert(name.clone(), &set.tree);
            for (snapshot, tree) in &set.snapshots {
                all.insert(format!("{name}@{snapshot}"), tree);
            }
        }
        all
    }
}
