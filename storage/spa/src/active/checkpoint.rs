//! The checkpoint of a pool: `zpool checkpoint`, its discard, and what is refused meanwhile.
//!
//! ```text
//! create    txg n is on the drives; the first sync task of txg n+1 stores its uberblock in the pool's
//!           directory, before anything of txg n+1 is freed
//! exists    a freed block that was born in txg n or before stays allocated (`space::checkpoint`)
//! discard   a txg removes the uberblock; an activity has later txgs free what only the checkpoint used
//! rewind    an import opens the stored uberblock and commits it as a later txg (`Candidate::open`)
//! ```
//!
//! The feature `zpool_checkpoint` is active from the creation to the end of the discard. Meanwhile no vdev
//! comes, goes or changes place: the labels must fit the configuration of the checkpoint. Adding top-level
//! vdevs is allowed, as the checkpoint does not need them. A resilver may complete: after a rewind, the
//! checkpoint's own DTLs say again what a leaf lacks of it.
//!
//! Learnt from: `spa_checkpoint.c` of OpenZFS 2.3.2. Proved by: the engine's `tests/it/checkpoint.rs`, and
//! OpenZFS, which rewinds and discards checkpoints made here.

use std::sync::atomic::Ordering;

use dsl::write::SyncTaskContext;
use ondisk::history::Entry;
use ondisk::uberblock::Uberblock;
use units::Txg;
use zap::{Zap, ZapValue};

use super::{ActivePool, ExpandError};
use crate::directory::POOL_DIRECTORY;
use crate::features::{self, RefcountChange};
use crate::space::{CHECKPOINT_FEATURE, MapSyncContext};
use crate::{Error, PoolDirectory};

/// The entry of the pool's directory that holds the uberblock, as 64-bit words.
pub(crate) const CHECKPOINT_ENTRY: &[u8] = b"com.delphix:zpool_checkpoint";

/// A checkpoint is not what a command needs it to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The pool has one.
    #[error("checkpoint exists")]
    Exists,
    /// A discard has not ended.
    #[error("currently discarding checkpoint")]
    Discarding,
    /// The pool has none.
    #[error("checkpoint does not exist")]
    Missing,
    /// The pool cannot have one.
    #[error("the feature zpool_checkpoint is not enabled: `zpool upgrade` enables it")]
    FeatureDisabled,
    /// A vdev is too large, or is older than tables of vdevs.
    #[error("device exceeds supported size")]
    VdevTooBig,
}

/// The checkpoint of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// Whether it is being discarded.
    pub is_discarding: bool,
    /// The second of the state that it keeps, since 1970; 0 while it is discarded.
    pub time: u64,
    /// Bytes that only it uses, parity included.
    pub bytes: u64,
}

impl ActivePool {
    /// Makes a checkpoint of all that was changed before this call.
    pub fn create_checkpoint(&self) -> Result<(), Error> {
        self.sync()?;
        // Rule W1: the checkpoint is noted before its txg frees anything. A block freed earlier in the txg would be
        // reused, and a rewind to the checkpoint would find other data in it.
        self.run_early_sync_task(Self::create_checkpoint_sync)?
    }

    fn create_checkpoint_sync(&self, change: &SyncTaskContext<'_>) -> Result<(), Error> {
        self.check_no_checkpoint()?;
        // what the checkpoint leads to would be moved
        if self.expanding_vdev().is_some() {
            return Err(ExpandError::InProgress.into());
        }
        self.check_no_removal()?;
        let directory = PoolDirectory::open(self.mos.clone())?;
        let enabled = features::read(&directory)?;
        if !enabled.iter().any(|feature| feature.guid == CHECKPOINT_FEATURE) {
            return Err(CheckpointError::FeatureDisabled.into());
        }
        if !self.space.can_have_checkpoint() {
            return Err(CheckpointError::VdevTooBig.into());
        }
        let synced = self.uberblock.read().clone();
        let checkpoint = Uberblock { checkpoint_txg: synced.txg, ..synced };
        let words = checkpoint.encode().to_vec();
        let table = Zap::open(self.mos.object(POOL_DIRECTORY)?)?;
        table.insert(change.tx, CHECKPOINT_ENTRY, &words_of_uberblock(&words))?;
        features::update_refcount(
            &self.mos,
            change.tx,
            CHECKPOINT_FEATURE,
            RefcountChange::Delta(1),
        )?;
        let txg = checkpoint.txg;
        self.space.allocator().set_checkpoint(txg);
        *self.checkpoint.write() = Some(checkpoint);
        self.log_checkpoint_event(
            change,
            "spa checkpoint",
            &format!("checkpointed uberblock txg={txg}"),
        );
        Ok(())
    }

    /// Gives the checkpoint up. Returns when the pool cannot go back to it any more;
    /// [`ActivePool::continue_discard`] frees what only it used.
    pub fn discard_checkpoint(&self) -> Result<(), Error> {
        self.run_early_sync_task(Self::discard_checkpoint_sync)?
    }

    fn discard_checkpoint_sync(&self, change: &SyncTaskContext<'_>) -> Result<(), Error> {
        if self.space.is_discarding() {
            return Err(CheckpointError::Discarding.into());
        }
        if self.checkpoint.read().is_none() {
            return Err(CheckpointError::Missing.into());
        }
        let table = Zap::open(self.mos.object(POOL_DIRECTORY)?)?;
        table.remove(change.tx, CHECKPOINT_ENTRY)?;
        *self.checkpoint.write() = None;
        self.space.allocator().clear_checkpoint();
        self.space.set_discarding(true);
        let detail = "started discarding checkpointed state from the pool";
        self.log_checkpoint_event(change, "spa discard checkpoint", detail);
        Ok(())
    }

    /// Frees, with a txg, some of the space that only a discarded checkpoint used. Returns whether there is more.
    pub fn continue_discard(&self) -> Result<bool, Error> {
        if self.is_read_only {
            return Err(Error::ImportedReadOnly);
        }
        if !self.space.is_discarding() {
            return Ok(false);
        }
        self.discard_is_due.store(true, Ordering::Release);
        self.sync()?;
        Ok(self.space.is_discarding())
    }

    /// The part of the txg that is written. It is no sync task: if it fails, the txg must not be committed, as the
    /// map may be shorter by more than was freed.
    pub(super) fn continue_discard_sync(&self, change: &SyncTaskContext<'_>) -> Result<(), Error> {
        let is_due = self.discard_is_due.swap(false, Ordering::AcqRel);
        if !is_due || !self.space.is_discarding() {
            return Ok(());
        }
        let writing = MapSyncContext { mos: &self.mos, tx: change.tx, pass: 1 };
        if !self.space.discard_checkpointed(&writing)? {
            return Ok(());
        }
        features::update_refcount(
            &self.mos,
            change.tx,
            CHECKPOINT_FEATURE,
            RefcountChange::Exact(0),
        )?;
        let left = self.space.allocator().all_checkpointed_bytes();
        assert_eq!(left, 0, "all space of the checkpoint is freed when its discard ends");
        self.space.set_discarding(false);
        let detail = "finished discarding checkpointed state from the pool";
        self.log_checkpoint_event(change, "spa discard checkpoint", detail);
        Ok(())
    }

    fn log_checkpoint_event(&self, change: &SyncTaskContext<'_>, name: &str, detail: &str) {
        self.log_history(change, &Entry::Event { name, detail, dataset: None });
    }

    /// The checkpoint, if the pool has one or discards one.
    pub fn checkpoint_status(&self) -> Option<CheckpointStatus> {
        let time = self.checkpoint.read().as_ref().map(|kept| kept.timestamp);
        let is_discarding = self.space.is_discarding();
        let bytes = self.space.allocator().all_checkpointed_bytes();
        (time.is_some() || is_discarding).then_some(CheckpointStatus {
            is_discarding,
            time: time.unwrap_or(0),
            bytes,
        })
    }

    /// Bytes of a top-level vdev that only the checkpoint uses.
    pub fn vdev_checkpoint_bytes(&self, vdev: units::VdevId) -> u64 {
        self.space.allocator().checkpointed_bytes(vdev)
    }

    /// Refuses what would make the drives differ from the configuration of the checkpoint.
    pub(super) fn check_no_checkpoint(&self) -> Result<(), CheckpointError> {
        if self.checkpoint.read().is_some() {
            return Err(CheckpointError::Exists);
        }
        if self.space.is_discarding() {
            return Err(CheckpointError::Discarding);
        }
        Ok(())
    }

    /// The txg of the checkpoint, if the pool has one.
    pub fn checkpoint_txg(&self) -> Option<Txg> {
        self.space.allocator().checkpoint_txg()
    }
}

/// The value of the entry: the uberblock as 64-bit integers, which a ZAP keeps with their most significant
/// byte first.
fn words_of_uberblock(bytes: &[u8]) -> ZapValue {
    let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok());
    let big = words.map(u64::from_le_bytes).flat_map(u64::to_be_bytes).collect();
    ZapValue::new(8, big)
}
