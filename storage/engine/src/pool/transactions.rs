//! The source of file systems' transactions, and the receiver of their log records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dmu::Objset;
use ondisk::Blkptr;
use ondisk::feature::Feature;
use ondisk::zil::{Body, Write};
use spa::{ActivePool, OpenDataset};
use txg::Tx;
use units::{MinusOrZero, ObjectId};
use zil::{IntentLog, Itx, ReplayEntry};
use zpl::{Error, LogRecord, SpaceNeed, Transactions};

use super::Environment;
use super::space::SpaceCheck;
use super::sync_policy::SharedSyncPolicy;

/// Begins transactions of one file system.
pub(super) struct FileSystemTransactions {
    pub(super) spa: Arc<ActivePool>,
    pub(super) dataset: Arc<OpenDataset>,
    pub(super) log: Arc<IntentLog>,
    pub(super) environment: Environment,
    /// The available space.
    pub(super) space: SpaceCheck,
    /// How it is changed.
    pub(super) sync_policy: SharedSyncPolicy,
    /// The record that is being replayed.
    pub(super) replay: ReplayState,
}

/// The record of the intent log that is being replayed.
#[derive(Default)]
pub(super) struct ReplayState {
    /// The record's number plus one; 0: none, the change is new.
    next_seq: AtomicU64,
    /// It can be done once more.
    is_repeatable: AtomicBool,
}

impl ReplayState {
    /// From now on this one is, or none.
    pub(super) fn set_record(&self, entry: Option<&ReplayEntry>) {
        self.is_repeatable.store(entry.is_some_and(zpl::is_repeatable), Ordering::Release);
        let next = entry.map_or(0, |entry| entry.record.seq.saturating_add(1));
        self.next_seq.store(next, Ordering::Release);
    }

    fn is_active(&self) -> bool {
        self.next_seq.load(Ordering::Acquire) != 0
    }

    /// The last record that is replayed when a transaction is on the drives; none: nothing is
    /// replayed. A repeatable record of several transactions counts as replayed with those of the
    /// next one.
    fn replayed_seq(&self, need: &SpaceNeed) -> Option<u64> {
        let seq = self.next_seq.load(Ordering::Acquire).checked_sub(1)?;
        let is_last = !need.is_preparation && !self.is_repeatable.load(Ordering::Acquire);
        Some(if is_last { seq } else { seq.minus_or_zero(1) })
    }
}

impl FileSystemTransactions {
    /// Refuses a change that cannot be made, and waits for space.
    fn check_change(&self, need: &SpaceNeed) -> zpl::Result<()> {
        let objset = self.dataset.objset().id();
        if self.dataset.is_retired() {
            return Err(Error::Stopped { objset });
        }
        // the logged changes were checked before they were logged
        if !self.replay.is_active() {
            if self.sync_policy.current().read_only {
                return Err(Error::ReadOnly { objset });
            }
            // Rule: wait for space before the hold. A thread that waited within a hold would stop the sync
            // that frees the space.
            self.space.check_space(&self.spa, &self.dataset, need)?;
        }
        if need.freed_blocks > 0 {
            self.spa.txgs().throttle_frees();
        }
        Ok(())
    }

    fn stopped(&self) -> Error {
        Error::Stopped { objset: self.dataset.objset().id() }
    }
}

impl Transactions for FileSystemTransactions {
    fn begin_tx(&self, need: &SpaceNeed) -> zpl::Result<Tx> {
        self.check_change(need)?;
        let tx = self.spa.begin_dataset_tx(&self.dataset).map_err(|_| self.stopped())?;
        tx.add_freed(need.freed_blocks);
        if let Some(seq) = self.replay.replayed_seq(need) {
            self.log.record_replayed(&tx, seq);
        }
        Ok(tx)
    }

    fn begin_clone_tx(&self, need: &SpaceNeed, source: &Objset) -> zpl::Result<Option<Tx>> {
        self.check_change(need)?;
        self.spa.begin_clone_tx(&self.dataset, source).map_err(|_| self.stopped())
    }

    fn log_record(&self, tx: &Tx, promise: LogRecord<'_>) {
        if self.replay.is_active() {
            return;
        }
        let item = match promise {
            // its bytes are read from the file at the commit
            LogRecord::Write { object, offset, bytes } => {
                let length = units::to_u64(bytes.len());
                let (pointer, data) = (Blkptr::EMPTY, None);
                let write = Write { object, offset, length, pointer, data };
                Itx::new_per_object(Body::Write(Box::new(write)))
            }
            LogRecord::Record(body) if body.changed_object().is_some() => Itx::new_per_object(body),
            LogRecord::Record(body) | LogRecord::WithNextCommit(body) => Itx::new_ordered(body),
        };
        self.log.add_itx(tx, item);
    }

    fn require_txg_sync(&self, tx: &Tx) {
        if !self.replay.is_active() {
            self.log.add_unlogged(tx);
        }
    }

    fn on_rename(&self, object: ObjectId) {
        self.log.on_rename(object);
    }

    fn is_replay(&self) -> bool {
        self.replay.is_active()
    }

    fn forget_log_of(&self, object: ObjectId) {
        self.log.forget_object(object);
    }

    fn activate_long_names(&self, tx: &Tx) {
        if let Some(feature) = Feature::by_name("longname") {
            self.dataset.activate_feature(tx, feature);
        }
    }

    fn random_u64(&self) -> u64 {
        self.environment.random_u64()
    }
}
