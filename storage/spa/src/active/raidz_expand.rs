//! A raidz that gets one more drive: `zpool attach POOL raidzN-M DRIVE`.
//!
//! ```text
//! 1  attach     one txg: the new leaf, `raidz_expanding` in the label, the feature's count, the vdev's ZAP
//! 2  scratch    one txg: the first sectors by way of the boot areas (see `vdev::reflow`)
//!       uberblock of the last txg again, scratch copy valid      in the slot before its own
//!       uberblock of the last txg again, first sectors in place  in its own slot
//! 3  reflow     many txgs: the reflow thread copies a batch and flushes; a sync task puts its end into the
//!               uberblock of that txg; when that is on the drives, the next batch may overwrite more
//! 4  complete   one txg: `raidz_expand_txgs` has that txg + 3, the vdev grows, the uberblock's word is 0
//! ```
//!
//! Entries of the top-level vdev's ZAP, all `org.openzfs:raidz_expand_`...:
//!
//! ```text
//! state          1 reflow runs, 2 finished
//! start_time     seconds since 1970
//! end_time       the same; there when it has finished
//! bytes_copied   bytes that steps after the scratch copy have copied
//! ```
//!
//! After a power cut or an import the reflow goes on at the uberblock's offset. It pauses while a device of
//! the vdev is missing, lacks data or is being replaced.
//!
//! Learnt from: `vdev_raidz.c`, `spa_vdev_attach` of OpenZFS 2.3.2. Proved by: the engine's
//! `tests/it/raidz_expand.rs`, `zdb`.

use std::sync::Arc;

use dsl::write::SyncTaskContext;
use geometry::BOOT_SIZE;
use job::Job;
use lock::{Mutex, rank};
use ondisk::history::Entry;
use ondisk::label::{VdevConfig, VdevKind};
use ondisk::uberblock::{Reflow, Scratch, Uberblock};
use units::{Ashift, Guid, ObjectId, Txg, VdevId};
use vdev::{Leaf, NodeKind, ReflowChunk, ReflowPause, VdevNode, overwrite_limit, scratch_size};
use zap::Zap;

use super::attach::{NewChild, check_device_size, create_vdev_zap};
use super::device_change::DeviceChangeError;
use super::{ActivePool, CheckpointError};
use crate::features::{self, RefcountChange};
use crate::vdev_layout::leaf_config;
use crate::{Error, PoolDirectory, commit};

/// The feature that counts the expanded vdevs.
const FEATURE: &str = "org.openzfs:raidz_expansion";
const STATE_ENTRY: &[u8] = b"org.openzfs:raidz_expand_state";
const START_ENTRY: &[u8] = b"org.openzfs:raidz_expand_start_time";
const END_ENTRY: &[u8] = b"org.openzfs:raidz_expand_end_time";
const COPIED_ENTRY: &[u8] = b"org.openzfs:raidz_expand_bytes_copied";
/// States of the ZAP entry.
const STATE_RUNNING: u64 = 1;
const STATE_FINISHED: u64 = 2;

/// Blocks of so many txgs may be allocated before the end of an expansion is on the drives.
const CONCURRENT_TXGS: u64 = 3;
/// Bytes copied while the same blocks cannot be read or written.
const CHUNK_BYTES: u64 = 4 << 20;
/// Bytes copied before the uberblock records it.
const BATCH_BYTES: u64 = 256 << 20;
/// Metaslabs of so many bytes are loaded at a time.
const LOAD_WINDOW: u64 = 16 << 30;
/// No array has more children.
const MAX_CHILDREN: usize = 255;

/// Why a raidz cannot get one more drive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// The feature is not enabled.
    #[error(
        "the raidz_expansion feature must be enabled in order to attach a device to raidz: run \
         `zpool upgrade`"
    )]
    FeatureDisabled,
    /// Another expansion runs.
    #[error("raidz expansion in progress: wait for it with `zpool wait -t raidz_expand`")]
    InProgress,
    /// A vdev is being removed.
    #[error("a device removal is in progress: wait for it, or cancel it with `zpool remove -s`")]
    RemovalInProgress,
    /// The pool has a checkpoint, whose blocks would move.
    #[error("the pool has a checkpoint: discard it first with `zpool checkpoint -d`")]
    CheckpointExists,
    /// A device of the vdev is missing or being replaced.
    #[error("all devices of a raidz must be online and none being replaced: {0}")]
    NotHealthy(ReflowPause),
    /// The array has as many children as it can have, or the scratch copy cannot hold its first row.
    #[error("the raidz cannot have more devices")]
    TooWide,
}

/// What the reflow has to tell the txg sync thread and others.
#[derive(Default)]
pub(crate) struct ReflowProgress {
    /// What the next uberblock records of it, if that is news.
    pub(super) next: parking_lot::Mutex<Option<Reflow>>,
    /// Why it does not go on for now.
    pause: Mutex<Option<ReflowPause>, { rank::PAUSE }>,
}

/// How an expansion goes on, or how the last went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpansionStatus {
    /// Which top-level vdev.
    pub vdev: VdevId,
    /// Whether it is complete.
    pub is_finished: bool,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// When it ended, if it has.
    pub ended: u64,
    /// Bytes that are copied.
    pub copied: u64,
    /// Bytes allocated on the vdev.
    pub allocated: u64,
    /// Why it does not go on for now.
    pub pause: Option<ReflowPause>,
}

/// How a run of the reflow ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReflowEnd {
    /// No vdev is being expanded.
    NotExpanding,
    /// The expansion is complete.
    Finished,
    /// The job was cancelled.
    Stopped,
    /// It cannot go on for now.
    Paused(ReflowPause),
}

impl ActivePool {
    /// Attaches a device to a raidz. Returns when the configuration has it; [`ActivePool::run_reflow`] then
    /// copies.
    pub fn attach_to_raidz(&self, raidz: Guid, new: NewChild) -> Result<(), Error> {
        self.check_raidz_attach(raidz, &new)?;
        let blank = Leaf::new(raidz, String::new(), Some(Arc::clone(&new.device)), Txg::ZERO);
        commit::clear_leaf_labels(&blank).map_err(|_| Error::NoDeviceWritten)?;
        self.run_sync_task(move |active, change| {
            active.check_raidz_attach(raidz, &new)?;
            active.attach_to_raidz_sync(change, raidz, &new)
        })?
    }

    /// The top-level vdev that is being expanded.
    pub fn expanding_vdev(&self) -> Option<VdevId> {
        let config = self.config.lock();
        let tops = config.current.tree.iter().flat_map(|root| &root.children);
        tops.into_iter().find(|top| top.raidz_expanding).map(|top| top.id)
    }

    fn check_raidz_attach(&self, raidz: Guid, new: &NewChild) -> Result<(), Error> {
        let config = self.config();
        let root = config.tree.as_ref().ok_or(DeviceChangeError::NotInPool)?;
        let top = root.children.iter().find(|top| top.guid == raidz);
        let top = top.ok_or(DeviceChangeError::NotInPool)?;
        let node = self.tree.top(top.id).ok_or(DeviceChangeError::NotInPool)?;
        let NodeKind::Raidz(array, children) = &node.kind else {
            return Err(DeviceChangeError::CannotMirror.into());
        };
        let directory = PoolDirectory::open(self.mos.clone())?;
        let features = features::read(&directory)?;
        if !features.iter().any(|feature| feature.guid == FEATURE) {
            return Err(ExpandError::FeatureDisabled.into());
        }
        match self.check_no_checkpoint() {
            Err(CheckpointError::Exists) => return Err(ExpandError::CheckpointExists.into()),
            other => other?,
        }
        if self.expanding_vdev().is_some() {
            return Err(ExpandError::InProgress.into());
        }
        if root.children.iter().any(|top| top.removing) {
            return Err(ExpandError::RemovalInProgress.into());
        }
        check_children(children)?;
        let wider = array.start_expansion().map_err(|_| ExpandError::TooWide)?;
        let row = (children.len() as u64 + 1) << array.current().ashift().get();
        if children.len() >= MAX_CHILDREN
            || row > BOOT_SIZE
            || scratch_size(&wider) > vdev::min_asize(top)
        {
            return Err(ExpandError::TooWide.into());
        }
        Ok(check_device_size(&node, top, new.device.size())?)
    }

    fn attach_to_raidz_sync(
        &self,
        change: &SyncTaskContext<'_>,
        raidz: Guid,
        new: &NewChild,
    ) -> Result<(), Error> {
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let guid = self.unused_guid(root, Guid::new(0));
        let top = root.children.iter_mut().find(|top| top.guid == raidz);
        let top = top.ok_or(DeviceChangeError::NotInPool)?;
        let node = self.tree.top(top.id).ok_or(DeviceChangeError::NotInPool)?;
        let NodeKind::Raidz(array, mut children) = node.kind.clone() else {
            return Err(DeviceChangeError::CannotMirror.into());
        };
        let mut leaf = leaf_config(&new.spec);
        leaf.guid = guid;
        leaf.id = VdevId::new(units::narrow::<u32>(top.children.len()));
        leaf.create_txg = top.create_txg;
        if config.has_vdev_zaps {
            leaf.leaf_zap = Some(create_vdev_zap(change)?);
        }
        let (path, device) = (new.spec.path.clone(), Some(Arc::clone(&new.device)));
        let ashift = top.ashift.and_then(Ashift::new).unwrap_or(Ashift::MIN);
        let device = Leaf::new(guid, path, device, Txg::new(u64::MAX)).with_ashift(ashift);
        children.push(VdevNode { guid, kind: NodeKind::Leaf(Arc::new(device)) });
        let wider = array.start_expansion().map_err(|_| ExpandError::TooWide)?;
        top.children.push(leaf);
        top.raidz_expanding = true;
        let (id, width, zap) = (top.id, top.children.len(), top.top_zap);
        self.tree.set_top(
            id,
            VdevNode { guid: raidz, kind: NodeKind::Raidz(Box::new(wider), children) },
        );
        self.set_vdev_tree(root.clone());
        features::update_refcount(change.mos, change.tx, FEATURE, RefcountChange::Delta(1))?;
        if let Some(table) = self.open_vdev_zap(zap)? {
            table.update_u64(change.tx, STATE_ENTRY, STATE_RUNNING)?;
            table.update_u64(change.tx, START_ENTRY, change.now.seconds)?;
            table.remove(change.tx, END_ENTRY)?;
            table.remove(change.tx, COPIED_ENTRY)?;
        }
        self.log_expansion(change, "raidz vdev expansion started", (id, width));
        Ok(())
    }

    /// Copies sectors until the expansion is complete, must pause, or the job is cancelled. To be
    /// called by one thread at a time; txgs are written meanwhile.
    pub fn run_reflow(&self, job: &Job) -> Result<ReflowEnd, Error> {
        let Some(vdev) = self.expanding_vdev() else { return Ok(ReflowEnd::NotExpanding) };
        let end = match self.reflow_to_end(vdev, job) {
            Ok(end) => end,
            Err(Error::Reflow(pause)) => {
                self.tree.reset_reflow(vdev);
                ReflowEnd::Paused(pause)
            }
            Err(error) => return Err(error),
        };
        *self.reflow.pause.lock() = match &end {
            ReflowEnd::Paused(pause) => Some(pause.clone()),
            _ => None,
        };
        Ok(end)
    }

    fn reflow_to_end(&self, vdev: VdevId, job: &Job) -> Result<ReflowEnd, Error> {
        let top = self.top_config(vdev)?;
        let end = vdev::min_asize(&top);
        let position = self.tree.reflow_position(vdev).ok_or(ReflowPause::NotExpanding)?;
        if position.synced == 0 || position.scratch {
            self.tree.check_reflow(vdev)?;
            self.run_sync_task(move |active, change| active.reflow_scratch_sync(change, vdev))??;
        }
        while let Some(position) = self.tree.reflow_position(vdev)
            && position.synced < end
        {
            if job.cancel.is_cancelled() || self.txgs.is_stopped() {
                return Ok(ReflowEnd::Stopped);
            }
            self.reflow_batch(vdev, end, job)?;
        }
        self.run_sync_task(move |active, change| active.complete_expansion_sync(change, vdev))??;
        self.refresh_space_limits()?;
        Ok(ReflowEnd::Finished)
    }

    /// Copies what may be overwritten now, or a part of it, and has the uberblock record that.
    fn reflow_batch(&self, vdev: VdevId, end: u64, job: &Job) -> Result<(), Error> {
        let leaves = self.tree.check_reflow(vdev)?;
        let node = self.tree.top(vdev).ok_or(ReflowPause::NotExpanding)?;
        let NodeKind::Raidz(raidz, _) = &node.kind else {
            return Err(ReflowPause::NotExpanding.into());
        };
        let start = self.tree.reflow_position(vdev).ok_or(ReflowPause::NotExpanding)?;
        let limit = overwrite_limit(raidz, start.synced).min(end);
        let allocator = self.space.allocator();
        let (mut next, mut copied) = (start.next, 0);
        while next < limit && copied < BATCH_BYTES && !job.cancel.is_cancelled() {
            let window = limit.min(next + LOAD_WINDOW);
            let birth = self.txgs.open_txg();
            // a map that cannot be read is no reason to stop: all of its metaslab is copied
            let _ = allocator.load_range(vdev, &(next..window), birth);
            let allocated = |range: std::ops::Range<u64>| {
                allocator.allocated_ranges(vdev, &range).unwrap_or_else(|_| vec![range])
            };
            let chunk = ReflowChunk { end: window, max_bytes: CHUNK_BYTES, birth };
            let bytes = self.tree.copy_reflow_chunk(vdev, &leaves, chunk, &allocated)?;
            copied += bytes;
            job.progress.add(bytes, 0);
            next = self.tree.reflow_position(vdev).ok_or(ReflowPause::NotExpanding)?.next;
        }
        self.tree.flush_reflow(vdev, &leaves)?;
        self.run_sync_task(move |active, change| {
            active.record_reflow_sync(change, vdev, next, copied)
        })??;
        Ok(self.tree.advance_reflow(vdev, next)?)
    }

    fn reflow_scratch_sync(&self, change: &SyncTaskContext<'_>, vdev: VdevId) -> Result<(), Error> {
        let mut failed = None;
        let mut record = |offset, in_use| {
            let scratch = if in_use { Scratch::Valid } else { Scratch::InvalidSynced };
            let written = self.amend_uberblock(Reflow { offset, scratch });
            failed = written.err();
            failed.is_none()
        };
        let done = self.tree.reflow_by_scratch(vdev, change.tx.txg(), &mut record);
        if let Some(error) = failed {
            return Err(error);
        }
        done?;
        let offset = self.uberblock.read().reflow.offset;
        *self.reflow.next.lock() = Some(Reflow { offset, scratch: Scratch::InvalidSyncedReflow });
        Ok(())
    }

    /// Writes the uberblock of the last txg again, with another state of the reflow.
    fn amend_uberblock(&self, reflow: Reflow) -> Result<(), Error> {
        let last = self.uberblock.read().clone();
        // later than any heartbeat of that txg
        let timestamp = last.timestamp.max((self.environment.now)().seconds).saturating_add(1);
        let uberblock = Uberblock { reflow, timestamp, ..last };
        self.commit_until_written(&uberblock, None)?;
        *self.uberblock.write() = uberblock;
        Ok(())
    }

    fn record_reflow_sync(
        &self,
        change: &SyncTaskContext<'_>,
        vdev: VdevId,
        offset: u64,
        copied: u64,
    ) -> Result<(), Error> {
        *self.reflow.next.lock() = Some(Reflow { offset, scratch: Scratch::InvalidSyncedReflow });
        if let Some(table) = self.open_vdev_zap(self.top_config(vdev)?.top_zap)? {
            let before = table.lookup_u64(COPIED_ENTRY)?.unwrap_or(0);
            table.update_u64(change.tx, COPIED_ENTRY, before.saturating_add(copied))?;
        }
        Ok(())
    }

    fn complete_expansion_sync(
        &self,
        change: &SyncTaskContext<'_>,
        vdev: VdevId,
    ) -> Result<(), Error> {
        let first = Txg::new(change.tx.txg().get() + CONCURRENT_TXGS);
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let top = root.children.iter_mut().find(|top| top.id == vdev);
        let top = top.ok_or(DeviceChangeError::NotInPool)?;
        let mut node = (*self.tree.top(vdev).ok_or(DeviceChangeError::NotInPool)?).clone();
        if let NodeKind::Raidz(raidz, _) = &mut node.kind {
            **raidz = raidz.finish_expansion(first);
        }
        top.raidz_expanding = false;
        top.raidz_expand_txgs.push(first);
        self.tree.set_top(vdev, node);
        if let Some(asize) = self.possible_asize(top, &|device| device.size()) {
            let shift = top.metaslab_shift.unwrap_or(0).min(63);
            if asize >> shift > top.asize.unwrap_or(0) >> shift {
                self.space.grow_vdev(change.tx, vdev, asize)?;
                top.asize = Some(asize);
                top.expansion_time = Some(change.now.seconds);
            }
        }
        let (width, zap) = (top.children.len(), top.top_zap);
        self.set_vdev_tree(root.clone());
        if let Some(table) = self.open_vdev_zap(zap)? {
            table.update_u64(change.tx, STATE_ENTRY, STATE_FINISHED)?;
            table.update_u64(change.tx, END_ENTRY, change.now.seconds)?;
        }
        *self.reflow.next.lock() = Some(Reflow::default());
        self.log_expansion(change, "raidz vdev expansion completed", (vdev, width));
        Ok(())
    }

    /// How the expansion goes on; without one, how the last went.
    pub fn expansion_status(&self) -> Result<Option<ExpansionStatus>, Error> {
        let _pin = self.pin();
        let (config, mos) = (self.config(), self.synced_mos());
        let mut last: Option<ExpansionStatus> = None;
        for top in config.tree.iter().flat_map(|root| &root.children) {
            if top.kind != VdevKind::Raidz {
                continue;
            }
            let Some(zap) = top.top_zap else { continue };
            let table = Zap::open(mos.object(zap)?)?;
            let number = |name| table.lookup_u64(name).map(|found| found.unwrap_or(0));
            // the configuration is ahead of the synced state until the txg of the end is on the drives
            let is_running = top.raidz_expanding || number(STATE_ENTRY)? == STATE_RUNNING;
            let status = ExpansionStatus {
                vdev: top.id,
                is_finished: !is_running,
                started: number(START_ENTRY)?,
                ended: number(END_ENTRY)?,
                copied: number(COPIED_ENTRY)?,
                allocated: self.vdev_space_usage(top.id).2,
                pause: None,
            };
            if is_running {
                let pause = self.reflow.pause.lock().clone();
                return Ok(Some(ExpansionStatus { pause, ..status }));
            }
            if status.ended > last.as_ref().map_or(0, |last| last.ended) {
                last = Some(status);
            }
        }
        Ok(last)
    }

    pub(super) fn top_config(&self, vdev: VdevId) -> Result<VdevConfig, Error> {
        let config = self.config();
        let tops = config.tree.map(|root| root.children).unwrap_or_default();
        let top = tops.into_iter().find(|top| top.id == vdev);
        top.ok_or_else(|| DeviceChangeError::NotInPool.into())
    }

    fn open_vdev_zap(&self, zap: Option<ObjectId>) -> Result<Option<Zap>, Error> {
        zap.map(|zap| Ok(Zap::open(self.mos.object(zap)?)?)).transpose()
    }

    fn log_expansion(
        &self,
        change: &SyncTaskContext<'_>,
        name: &'static str,
        (vdev, width): (VdevId, usize),
    ) {
        let detail = format!("{} vdev {} new width {width}", self.name, vdev.get());
        self.log_history(change, &Entry::Event { name, detail: &detail, dataset: None });
    }
}

/// Refuses children that are missing, or are not devices.
fn check_children(children: &[VdevNode]) -> Result<(), ExpandError> {
    for child in children {
        let NodeKind::Leaf(leaf) = &child.kind else {
            return Err(ExpandError::NotHealthy(ReflowPause::ChildReplacing));
        };
        if !leaf.is_writable() || leaf.is_failing() {
            let path = leaf.path().to_owned();
            return Err(ExpandError::NotHealthy(ReflowPause::DeviceUnavailable { path }));
        }
    }
    Ok(())
}
