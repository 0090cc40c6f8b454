//! Events: what happened to pools, datasets, mounts, devices and jobs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, JobState, Method, pool_of};

/// Lists events, the oldest first. With `wait` the call waits for the first one (long poll).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListEvents {
    /// Only events with greater sequence numbers; none: all that the daemon keeps.
    #[serde(default)]
    pub after: Option<u64>,
    /// Wait at most this many seconds (0 to 60) for an event.
    #[serde(default)]
    pub wait: u64,
}

impl Call for ListEvents {
    type Response = EventPage;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/events";
    const CHANGES: bool = false;
}

/// Events in the order of their sequence numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventPage {
    /// The events.
    pub events: Vec<EventRecord>,
    /// The sequence number for `after` of the next call.
    pub last: u64,
    /// Whether events between `after` and the first one are no longer kept.
    pub missed: bool,
}

/// An event with its number and time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Sequence number. It grows by one per event, and also grows over restarts of the daemon.
    pub sequence: u64,
    /// Seconds since 1970.
    pub time: u64,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields name pools, datasets and devices")]
pub enum Event {
    /// A pool was created.
    PoolCreated { pool: String },
    /// A pool was imported, or opened again when the daemon started.
    PoolImported { pool: String },
    /// A pool was exported.
    PoolExported { pool: String },
    /// A pool was destroyed.
    PoolDestroyed { pool: String },
    /// A pool suspended its writes.
    PoolSuspended { pool: String, reason: String },
    /// `zpool clear` reset a pool's errors, and resumed it if it was suspended.
    PoolCleared { pool: String },
    /// A device of a pool changed its state.
    DeviceStateChanged { pool: String, device: String, state: String },
    /// A hot spare stands in for a device that failed.
    SpareActivated { pool: String, device: String, spare: String },
    /// A scrub or resilver started.
    ScanStarted { pool: String, scan: String },
    /// A scrub or resilver ended; `state` is "finished" or "canceled".
    ScanFinished { pool: String, scan: String, state: String, errors: u64 },
    /// A file system or volume was created.
    DatasetCreated { dataset: String },
    /// A file system or volume was destroyed.
    DatasetDestroyed { dataset: String },
    /// A dataset and its children, or a snapshot, have another name.
    DatasetRenamed { from: String, to: String },
    /// A dataset was rolled back.
    DatasetRolledBack { dataset: String, snapshot: String },
    /// A property was set; without a value it is inherited again.
    PropertySet { dataset: String, property: String, value: Option<String> },
    /// A snapshot was created.
    SnapshotCreated { snapshot: String },
    /// A snapshot was destroyed.
    SnapshotDestroyed { snapshot: String },
    /// A bookmark was created.
    BookmarkCreated { bookmark: String },
    /// A bookmark was destroyed.
    BookmarkDestroyed { bookmark: String },
    /// The key of an encryption root was loaded.
    KeyLoaded { dataset: String },
    /// The key of an encryption root was unloaded.
    KeyUnloaded { dataset: String },
    /// A file system was mounted.
    Mounted { dataset: String, directory: PathBuf },
    /// A file system was unmounted.
    Unmounted { dataset: String, directory: PathBuf },
    /// A job started or ended.
    JobChanged { id: u64, job: String, subject: String, state: JobState },
    /// An alert is new, worse or over.
    AlertChanged { alert: String, severity: String, title: String },
    /// A power failure reached another stage; "normal": line power is back.
    PowerStageChanged { stage: String },
    /// The machine goes to sleep, until this time in seconds since 1970 if nobody wakes it.
    MachineSleeps { until: u64 },
    /// The machine is awake again, or did not sleep: the log has the reason.
    MachineWoke {},
    /// The daemon read its configuration file again.
    ConfigReloaded {},
}

impl Event {
    /// The name of the kind, as in JSON.
    pub fn kind(&self) -> String {
        let value = serde_json::to_value(self).ok();
        let kind = value.as_ref().and_then(|value| value.get("kind")?.as_str());
        kind.unwrap_or_default().to_owned()
    }

    /// The pool that the event concerns.
    pub fn pool(&self) -> Option<&str> {
        match self {
            Self::PoolCreated { pool }
            | Self::PoolImported { pool }
            | Self::PoolExported { pool }
            | Self::PoolDestroyed { pool }
            | Self::PoolSuspended { pool, .. }
            | Self::PoolCleared { pool }
            | Self::DeviceStateChanged { pool, .. }
            | Self::SpareActivated { pool, .. }
            | Self::ScanStarted { pool, .. }
            | Self::ScanFinished { pool, .. } => Some(pool),
            Self::DatasetCreated { dataset: name }
            | Self::DatasetDestroyed { dataset: name }
            | Self::DatasetRenamed { from: name, .. }
            | Self::DatasetRolledBack { dataset: name, .. }
            | Self::PropertySet { dataset: name, .. }
            | Self::SnapshotCreated { snapshot: name }
            | Self::SnapshotDestroyed { snapshot: name }
            | Self::BookmarkCreated { bookmark: name }
            | Self::BookmarkDestroyed { bookmark: name }
            | Self::KeyLoaded { dataset: name }
            | Self::KeyUnloaded { dataset: name }
            | Self::Mounted { dataset: name, .. }
            | Self::Unmounted { dataset: name, .. } => Some(pool_of(name)),
            Self::JobChanged { .. }
            | Self::AlertChanged { .. }
            | Self::PowerStageChanged { .. }
            | Self::MachineSleeps { .. }
            | Self::MachineWoke {}
            | Self::ConfigReloaded {} => None,
        }
    }

    /// The event of a dataset, snapshot or bookmark that was destroyed.
    pub fn destroyed(name: &str) -> Self {
        let name = name.to_owned();
        match name.find(['@', '#']).and_then(|at| name.as_bytes().get(at)) {
            Some(b'@') => Self::SnapshotDestroyed { snapshot: name },
            Some(_) => Self::BookmarkDestroyed { bookmark: name },
            None => Self::DatasetDestroyed { dataset: name },
        }
    }
}
