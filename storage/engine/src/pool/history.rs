//! The command history of an imported pool: changes are recorded in it.

use dsl::PropertyValue;
use dsl::write::{self, SyncTaskContext};
use ondisk::history::Entry;
use spa::{ActivePool, PoolDirectory};
use units::ObjsetId;

use crate::Result;
use crate::inspect::Facts;
use crate::pool::handles::History;

/// The dataset of a name, before it is destroyed or renamed.
pub(super) fn dataset_id(change: &SyncTaskContext<'_>, name: &str) -> ObjsetId {
    write::dataset_id(change, name).unwrap_or_default()
}

/// Records a change of a dataset.
pub(super) fn record_dataset_event(
    active: &ActivePool,
    change: &SyncTaskContext<'_>,
    what: &str,
    name: &str,
    detail: &str,
) {
    record_event_with_id(active, change, what, (name, dataset_id(change, name)), detail);
}

/// The same of one that may be destroyed.
pub(super) fn record_event_with_id(
    active: &ActivePool,
    change: &SyncTaskContext<'_>,
    what: &str,
    dataset: (&str, ObjsetId),
    detail: &str,
) {
    active.log_history(change, &Entry::Event { name: what, detail, dataset: Some(dataset) });
}

/// Records a change of the pool.
pub(super) fn record_pool_event(
    active: &ActivePool,
    change: &SyncTaskContext<'_>,
    what: &str,
    detail: &str,
) {
    active.log_history(change, &Entry::Event { name: what, detail, dataset: None });
}

/// The value of a property in the form of histories.
pub(super) fn format_assignment(property: &str, setting: &PropertyValue) -> String {
    match setting {
        PropertyValue::Number(number) => format!("{property}={number}"),
        PropertyValue::Text(text) => format!("{property}={text}"),
    }
}

impl History<'_> {
    /// Writes a command down that a user gave, with the next group.
    pub fn record(self, line: &str, user: u32) {
        self.pool.0.spa.log_command(line, user.into());
    }

    /// Writes down, with the next group, that this program took the pool over: "import", or "open"
    /// where it had it before.
    pub fn record_import(self, how: &'static str) {
        self.pool.0.spa.log_import(how);
    }

    /// The history of the pool, with internal events (`internal`), as
    /// [`crate::RescuePool::inspect_history`] returns it. Pending records are synced first.
    pub fn entries(self, internal: bool) -> Result<Facts> {
        // a suspended pool shows the synced records
        let _ = self.pool.sync();
        let look = self.pool.0.spa.synced_mos();
        let directory = PoolDirectory::open(look.clone());
        let directory = directory.map_err(|error| self.pool.explain_error(&error))?;
        crate::inspect::read_history(self.pool.name(), &directory, internal)
    }
}
