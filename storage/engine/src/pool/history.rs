//! What is done to a held pool is written down in it.

use dsl::PropertyValue;
use dsl::write::{self, SyncTaskContext};
use ondisk::history::Entry;
use spa::{ActivePool, PoolDirectory};
use units::ObjsetId;

use super::Pool;
use crate::Result;
use crate::inspect::Facts;

/// The dataset of a name, before it is done away with.
pub(super) fn dataset_id(change: &SyncTaskContext<'_>, name: &str) -> ObjsetId {
    write::dataset_id(change, name).unwrap_or_default()
}

/// Writes down what was done to a dataset.
pub(super) fn record_dataset_event(
    active: &ActivePool,
    change: &SyncTaskContext<'_>,
    what: &str,
    name: &str,
    detail: &str,
) {
    record_event_with_id(active, change, what, (name, dataset_id(change, name)), detail);
}

/// The same of one that may be no more.
pub(super) fn record_event_with_id(
    active: &ActivePool,
    change: &SyncTaskContext<'_>,
    what: &str,
    dataset: (&str, ObjsetId),
    detail: &str,
) {
    active.log_history(change, &Entry::Event { name: what, detail, dataset: Some(dataset) });
}

/// Writes down what was done to the pool.
pub(super) fn record_pool_event(
    active: &ActivePool,
    change: &SyncTaskContext<'_>,
    what: &str,
    detail: &str,
) {
    active.log_history(change, &Entry::Event { name: what, detail, dataset: None });
}

/// What a property is set to, as histories have it.
pub(super) fn format_assignment(property: &str, setting: &PropertyValue) -> String {
    match setting {
        PropertyValue::Number(number) => format!("{property}={number}"),
        PropertyValue::Text(text) => format!("{property}={text}"),
    }
}

impl Pool {
    /// Writes a command down that a user gave, with the next group.
    pub fn record_command(&self, line: &str, user: u32) {
        self.0.spa.log_command(line, user.into());
    }

    /// Writes down, with the next group, that this program took the pool over: "import", or "open"
    /// where it had it before.
    pub fn record_import(&self, how: &'static str) {
        self.0.spa.log_import(how);
    }

    /// What was done to the pool, and what it did itself (`internal`), as
    /// [`crate::RescuePool::inspect_history`] gives it. What waits to be written is written first.
    pub fn history(&self, internal: bool) -> Result<Facts> {
        // one that stands still shows what it has
        let _ = self.sync();
        let look = self.0.spa.synced_mos();
        let directory = PoolDirectory::open(look.clone());
        let directory = directory.map_err(|error| self.explain_error(&error))?;
        crate::inspect::read_history(self.name(), &directory, internal)
    }
}
