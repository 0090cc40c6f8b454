//! Properties that are looked at each time, as they may change while files are open: sync, logbias,
//! readonly, snapdir.

use dsl::Dataset;
use parking_lot::RwLock;
use zil::Log;

use super::{Held, settings};

/// When what was done is made to outlast a power cut (the property sync).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Keeps {
    /// When somebody asks (standard).
    #[default]
    Asked,
    /// Each time, before it is said to be done (always).
    Always,
    /// With its group, whoever asks (disabled).
    Never,
}

/// Whether `.zfs` is there (the property snapdir).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SnapshotFolder {
    /// It is, but is not listed (hidden).
    #[default]
    Hidden,
    /// It is, and is listed (visible).
    Listed,
    /// It is not (disabled).
    Absent,
}

/// How a dataset is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Manner {
    pub(super) keeps: Keeps,
    /// Its intent log spares the log devices (logbias=throughput).
    pub(super) throughput: bool,
    /// It is not (readonly).
    pub(super) read_only: bool,
    /// How it shows its snapshots.
    pub(super) folder: SnapshotFolder,
}

/// How a dataset is changed now.
#[derive(Debug, Default)]
pub(super) struct Manners(RwLock<Manner>);

impl Manners {
    pub(super) fn new(now: Manner, log: &Log) -> Self {
        let manners = Self::default();
        manners.set(now, log);
        manners
    }

    pub(super) fn now(&self) -> Manner {
        *self.0.read()
    }

    /// Has it changed otherwise from now on.
    pub(super) fn set(&self, now: Manner, log: &Log) {
        log.set_throughput(now.throughput);
        *self.0.write() = now;
    }
}

impl Held {
    /// How a dataset is to be changed: as its properties say, and not at all in a pool that is looked at
    /// only.
    pub(super) fn manner_of(&self, dataset: &Dataset) -> Manner {
        let manner = settings::of_promises(dataset);
        Manner { read_only: manner.read_only || self.is_read_only(), ..manner }
    }
}
