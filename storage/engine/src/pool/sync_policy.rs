//! Properties that are looked at each time, as they may change while files are open: sync, logbias,
//! readonly, snapdir.

use dsl::Dataset;
use parking_lot::RwLock;
use zil::IntentLog;

use super::{Pool, settings};

/// When changes are made durable (the property sync).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum SyncMode {
    /// At sync requests (standard).
    #[default]
    Standard,
    /// After each change, before it returns (always).
    Always,
    /// With its txg; sync requests are ignored (disabled).
    Disabled,
}

/// Whether `.zfs` is visible (the property snapdir).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Snapdir {
    /// It is, but is not listed (hidden).
    #[default]
    Hidden,
    /// It is, and is listed (visible).
    Visible,
    /// It is not (disabled).
    Disabled,
}

/// How a dataset is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SyncPolicy {
    pub(super) sync: SyncMode,
    /// Its intent log spares the log devices (logbias=throughput).
    pub(super) is_logbias_throughput: bool,
    /// It is not (readonly).
    pub(super) read_only: bool,
    /// How it shows its snapshots.
    pub(super) snapdir: Snapdir,
}

/// How a dataset is changed now.
#[derive(Debug, Default)]
pub(super) struct SharedSyncPolicy(RwLock<SyncPolicy>);

impl SharedSyncPolicy {
    pub(super) fn new(now: SyncPolicy, log: &IntentLog) -> Self {
        let manners = Self::default();
        manners.update(now, log);
        manners
    }

    pub(super) fn current(&self) -> SyncPolicy {
        *self.0.read()
    }

    /// Sets the policy.
    pub(super) fn update(&self, now: SyncPolicy, log: &IntentLog) {
        log.set_throughput(now.is_logbias_throughput);
        *self.0.write() = now;
    }
}

impl Pool {
    /// The policy of a dataset: by its properties, and read-only in a read-only pool.
    pub(super) fn sync_policy(&self, dataset: &Dataset) -> SyncPolicy {
        let manner = settings::sync_policy(dataset);
        SyncPolicy { read_only: manner.read_only || self.is_read_only(), ..manner }
    }
}
