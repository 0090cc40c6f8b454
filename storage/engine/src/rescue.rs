//! An open pool.

use std::sync::Arc;

use dsl::DatasetTree;
use units::Txg;

use crate::{Error, Event, Result};

/// As of when a pool is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImportPoint {
    /// The newest state.
    #[default]
    Newest,
    /// That transaction group.
    Txg(u64),
    /// The newest state with which the pool can be opened.
    Rewind,
    /// The pool's checkpoint.
    Checkpoint,
}

/// How a pool is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// As of when.
    pub import_point: ImportPoint,
    /// Whether intent logs that a crash left are ignored.
    pub no_zil: bool,
}

impl OpenOptions {
    pub(crate) fn to_spa(self) -> spa::PoolOpenOptions {
        let choice = match self.import_point {
            ImportPoint::Newest => spa::ImportPoint::Newest,
            ImportPoint::Txg(txg) => spa::ImportPoint::Txg(Txg::new(txg)),
            ImportPoint::Rewind => spa::ImportPoint::Rewind,
            ImportPoint::Checkpoint => spa::ImportPoint::Checkpoint,
        };
        spa::PoolOpenOptions { import_point: choice, ..spa::PoolOpenOptions::default() }
    }
}

/// An open pool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RescuePool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: spa::Pool,
    tree: DatasetTree,
    events: Vec<Event>,
    no_zil: bool,
}

impl RescuePool {
    pub(crate) fn new(
        pool: spa::Pool,
        tree: DatasetTree,
        mut events: Vec<Event>,
        options: &OpenOptions,
    ) -> Self {
        for (dataset, error) in tree.errors() {
            events.push(Event::UnreadableDataset {
                dataset: dataset.clone(),
                why: error.to_string(),
            });
        }
        Self(Arc::new(Inner { pool, tree, events, no_zil: options.no_zil }))
    }

    /// Only while it is not shared yet.
    pub(crate) fn add_event(&mut self, event: Event) {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.events.push(event);
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.pool.name()
    }

    /// Its guid.
    pub fn guid(&self) -> u64 {
        self.0.pool.guid().get()
    }

    /// The transaction group as of which it is read.
    pub fn txg(&self) -> u64 {
        self.0.pool.txg().get()
    }

    /// Whether intent logs are ignored: on request, or because their records apply to later states.
    pub fn ignores_logs(&self) -> bool {
        self.0.no_zil || self.0.pool.rewound_to().is_some()
    }

    /// Events that the user should know.
    pub fn events(&self) -> &[Event] {
        &self.0.events
    }

    pub(crate) fn spa(&self) -> &spa::Pool {
        &self.0.pool
    }

    pub(crate) fn tree(&self) -> &DatasetTree {
        &self.0.tree
    }

    /// A name with the pool's name in place of its guid.
    pub(crate) fn full_name(&self, name: &str) -> String {
        let end = name.find(['/', '@', '#']).unwrap_or(name.len());
        let (pool, rest) = name.split_at_checked(end).unwrap_or((name, ""));
        if pool == self.guid().to_string() && pool != self.name() {
            return format!("{}{rest}", self.name());
        }
        name.to_owned()
    }

    /// A dataset by its full name.
    pub(crate) fn find_dataset(&self, name: &str) -> Result<dsl::Dataset> {
        let name = self.full_name(name);
        self.tree().find(&name).map_err(|error| Error::from_dsl_error(&name, &error))
    }
}
