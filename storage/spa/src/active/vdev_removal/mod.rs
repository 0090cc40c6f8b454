//! Removal of a top-level vdev with data: `zpool remove POOL VDEV`.
//!
//! ```text
//! 1  begin      nothing is allocated on the vdev any more; the intent logs leave it
//!               one txg: `removing` in the configuration, an empty mapping, the pool directory rewritten
//! 2  copy       many txgs: ranges that blocks have are copied to other vdevs while a txg is open; a sync
//!               task of the same txg adds them to the mapping                          (`copy`)
//! 3  complete   one txg: the vdev is an indirect vdev with that mapping; its space maps are freed;
//!               then the labels of its devices are cleared
//!    or cancel  one txg: what was copied is freed at its new place; the vdev is as it was
//! ```
//!
//! Entry `com.delphix:removing` of the pool directory: see `ondisk::indirect`. Until step 3 blocks are read
//! at their old place. A free during the removal frees both places (`metaslab::removing_vdev`).
//!
//! After a power cut or an import the copying goes on at the mapping's end. It pauses while a device that is
//! to get the data is missing, fails, or lacks data.
//!
//! All that leads to the mapping must be on other vdevs when the vdev is gone: the pool directory and the
//! configuration are rewritten in step 1, and the mapping is written after nothing is allocated there.
//!
//! Learnt from: `vdev_removal.c` of OpenZFS 2.3.2. Proved by: the engine's `tests/it/vdev_removal.rs`, `zdb`.

mod allocating;
mod check;
mod condense;
mod copy;

use dmu::NewObject;
use dsl::write::SyncTaskContext;
use job::Job;
use lock::{Mutex, rank};
use ondisk::history::Entry;
use ondisk::indirect::{MappingHeader, Removing};
use ondisk::label::{Indirect, VdevConfig, VdevKind};
use ondisk::{Dva, ObjectType};
use units::{Ashift, BlockId, ObjectId, VdevId};
use vdev::{EvacuationPause, NodeKind, VdevNode};
use zap::{Zap, ZapValue};

use super::ActivePool;
use super::attach::free_leaf_objects;
use super::device_change::DeviceChangeError;
use crate::directory::POOL_DIRECTORY;
use crate::features::{self, RefcountChange};
use crate::space::{OBSOLETE_COUNTS, RemovalMapping};
use crate::{BackgroundGate, Error, PoolDirectory, commit};

pub use check::RemovalError;
pub use condense::CondenseLimits;
use condense::CondensingState;

/// The feature that counts indirect vdevs, and the one that is being made.
const FEATURE: &str = "com.delphix:device_removal";
/// The entry of the pool directory.
const REMOVING_ENTRY: &[u8] = b"com.delphix:removing";
/// In the vdev's table: each obsolete range is counted.
const PRECISE_ENTRY: &[u8] = b"com.delphix:obsolete_counts_are_precise";
/// In the vdev's table: the property `allocating`.
const ALLOCATING_ENTRY: &[u8] = b"allocating";
/// 64-bit words that are metadata (DMU_OTN_UINT64_METADATA).
const U64_METADATA: ObjectType = ObjectType(0xc3);
/// 32-bit words that are metadata (DMU_OTN_UINT32_METADATA).
const U32_METADATA: ObjectType = ObjectType(0xc2);
/// Bytes of a block of the mapping's objects.
const BLOCK_SIZE: u32 = 128 << 10;
/// Bytes of an entry of a mapping in memory and on the drives.
const ENTRY_BYTES: u64 = 24;
/// How far a removal has come.
#[derive(Default)]
pub(crate) struct RemovalState {
    /// The entry of the pool directory.
    entry: Mutex<Option<Removing>, { rank::REMOVAL_ENTRY }>,
    /// Why copying does not go on for now.
    pause: Mutex<Option<EvacuationPause>, { rank::PAUSE }>,
    /// Held by the thread that copies, and by a cancel.
    work: Mutex<(), { rank::REMOVAL_WORK }>,
    /// The mapping of a removed vdev that is being condensed.
    condensing: CondensingState,
}

impl RemovalState {
    pub(super) fn load(directory: &PoolDirectory) -> Result<Self, Error> {
        let words = directory.lookup_u64s("com.delphix:removing")?;
        let entry = words.and_then(|words| Removing::from_words(&words));
        let condensing = CondensingState::load(directory)?;
        Ok(Self { entry: Mutex::new(entry), condensing, ..Self::default() })
    }
}

/// How a removal goes on, or how the last went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovalStatus {
    /// Which top-level vdev.
    pub vdev: VdevId,
    /// Whether it goes on, is complete, or was cancelled: `Removing::COPYING` and so on.
    pub state: u64,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// When it ended; 0 while it goes on.
    pub ended: u64,
    /// Bytes to copy.
    pub total: u64,
    /// Bytes copied, or freed meanwhile.
    pub copied: u64,
    /// Bytes of memory for the mappings of vdevs that were removed.
    pub mapping_memory: u64,
    /// Why it does not go on for now.
    pub pause: Option<EvacuationPause>,
}

/// How a run of the copying ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemovalEnd {
    /// No vdev is being removed.
    NotRemoving,
    /// The vdev is removed.
    Finished,
    /// The job was cancelled.
    Stopped,
    /// It cannot go on for now.
    Paused(EvacuationPause),
}

impl ActivePool {
    /// The top-level vdev that is being removed.
    pub fn removing_vdev(&self) -> Option<VdevId> {
        let config = self.config.lock();
        let mut tops = config.current.tree.iter().flat_map(|root| &root.children);
        tops.find(|top| top.removing).map(|top| top.id)
    }

    /// Begins the removal of a top-level vdev with data. Returns when the configuration has it;
    /// [`ActivePool::run_removal`] then copies.
    pub fn start_removal(&self, vdev: VdevId) -> Result<(), Error> {
        self.check_removal(vdev)?;
        let allocator = self.space.allocator();
        let was_allocating = self.is_allocating(vdev);
        allocator.set_allocatable(vdev, false)?;
        let begun = self.begin_removal(vdev);
        if begun.is_err() {
            allocator.set_allocatable(vdev, was_allocating)?;
        }
        begun?;
        *self.removal.pause.lock() = None;
        self.refresh_space_limits()
    }

    fn begin_removal(&self, vdev: VdevId) -> Result<(), Error> {
        self.with_emptied_logs(&|| {
            self.run_sync_task(move |active, change| active.begin_removal_sync(change, vdev))?
        })
    }

    fn begin_removal_sync(&self, change: &SyncTaskContext<'_>, vdev: VdevId) -> Result<(), Error> {
        self.check_removal(vdev)?;
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let top = root.children.iter_mut().find(|top| top.id == vdev);
        let top = top.ok_or(DeviceChangeError::NotInPool)?;
        let indirect = self.create_mapping(change, top)?;
        (top.removing, top.non_allocating, top.indirect) = (true, true, Some(indirect));
        let path = top.path.clone();
        let mapping = RemovalMapping::default();
        let allocator = self.space.allocator();
        allocator.begin_removal(vdev, 0, mapping.remap_fn())?;
        self.space.set_removal_mapping(Some(mapping));
        let previous = self.removal.entry.lock().and_then(|last| last.previous);
        let entry = Removing {
            state: Removing::COPYING,
            vdev: Some(vdev.get().into()),
            previous,
            start: change.now.seconds,
            end: 0,
            to_copy: allocator.vdev_usage(vdev)?.allocated,
            copied: 0,
        };
        self.write_removal_entry(change, entry)?;
        rewrite_object(change, POOL_DIRECTORY)?;
        self.set_vdev_tree(root.clone());
        self.log_removal(change, "vdev remove started", vdev, Some(path.as_deref().unwrap_or("-")));
        Ok(())
    }

    /// Makes the objects of the mapping.
    fn create_mapping(
        &self,
        change: &SyncTaskContext<'_>,
        top: &VdevConfig,
    ) -> Result<Indirect, Error> {
        let (mos, tx) = (change.mos, change.tx);
        features::update_refcount(mos, tx, FEATURE, RefcountChange::Delta(1))?;
        let enabled = features::read(&PoolDirectory::open(self.mos.clone())?)?;
        let counts_obsolete = enabled.iter().any(|feature| feature.guid == OBSOLETE_COUNTS);
        let table = top.top_zap.filter(|_| counts_obsolete);
        if let Some(table) = table {
            Zap::open(mos.object(table)?)?.insert_u64(tx, PRECISE_ENTRY, 1)?;
            features::update_refcount(mos, tx, OBSOLETE_COUNTS, RefcountChange::Delta(1))?;
            self.space.track_obsolete(top.id, table);
        }
        let mapping = create_mapping_object(change, table.is_some())?;
        let births = mos.create(tx, &word_object(vec![0; 8]))?.id();
        Ok(Indirect { mapping, births: Some(births), previous: None })
    }

    /// Copies until the vdev is removed, copying must pause, or the job is cancelled. Txgs are
    /// written meanwhile. `gate` suspends the copying.
    pub fn run_removal(&self, job: &Job, gate: &BackgroundGate) -> Result<RemovalEnd, Error> {
        let _work = self.removal.work.lock();
        let Some(vdev) = self.removing_vdev() else { return Ok(RemovalEnd::NotRemoving) };
        let end = match self.copy_to_end(vdev, job, gate) {
            Ok(end) => end,
            Err(Error::Evacuation(pause)) => RemovalEnd::Paused(pause),
            Err(error) => return Err(error),
        };
        *self.removal.pause.lock() = match &end {
            RemovalEnd::Paused(pause) => Some(pause.clone()),
            _ => None,
        };
        Ok(end)
    }

    fn copy_to_end(
        &self,
        vdev: VdevId,
        job: &Job,
        gate: &BackgroundGate,
    ) -> Result<RemovalEnd, Error> {
        let is_ended = || job.cancel.is_cancelled() || self.txgs.is_stopped();
        loop {
            gate.wait(&is_ended);
            if is_ended() {
                return Ok(RemovalEnd::Stopped);
            }
            if !self.copy_batch(vdev, job)? {
                break;
            }
        }
        // a walk over an earlier state may read blocks that were freed before they were copied
        self.space.allocator().wait_for_pins();
        let top = self.tree.top(vdev).ok_or(DeviceChangeError::NotInPool)?;
        self.run_sync_task(move |active, change| active.complete_removal_sync(change, vdev))??;
        for leaf in top.leaves().into_iter().filter(|leaf| leaf.is_writable()) {
            // its labels name the pool still
            let _ = commit::write_removed_labels(leaf);
        }
        self.refresh_space_limits()?;
        Ok(RemovalEnd::Finished)
    }

    fn complete_removal_sync(
        &self,
        change: &SyncTaskContext<'_>,
        vdev: VdevId,
    ) -> Result<(), Error> {
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let guid = self.unused_guid(root, units::Guid::new(0));
        let top = root.children.iter_mut().find(|top| top.id == vdev && top.removing);
        let top = top.ok_or(RemovalError::NotRemoving)?;
        let mapping = self.removal_mapping()?;
        let uncopied = self.in_use_from(vdev, mapping.end())?;
        assert!(uncopied.is_empty(), "nothing is allocated on a vdev that is being removed");
        let mut entry = self.removal.entry.lock().ok_or(RemovalError::NotRemoving)?;
        let previous = entry.previous.and_then(|id| u32::try_from(id).ok()).map(VdevId::new);
        let removed = std::mem::replace(top, indirect_config(top, guid, previous));
        let ashift = removed.ashift.and_then(Ashift::new).unwrap_or(Ashift::MIN);
        self.space.add_removed_vdev(&self.tree, vdev, ashift);
        self.space.allocator().end_removal();
        self.tree
            .set_top(vdev, VdevNode { guid, kind: NodeKind::Indirect(vdev::Indirect::default()) });
        self.tree.set_mapping(vdev, mapping.to_indirect());
        self.space.remove_vdev(change.tx, vdev)?;
        self.space.set_removal_mapping(None);
        let mut dtls = self.synced_dtls.lock();
        for leaf in removed.leaves() {
            dtls.remove(&leaf.guid);
            free_leaf_objects(change, leaf)?;
        }
        drop(dtls);
        (entry.state, entry.end) = (Removing::FINISHED, change.now.seconds);
        entry.previous = Some(vdev.get().into());
        self.write_removal_entry(change, entry)?;
        self.set_vdev_tree(root.clone());
        self.log_removal(change, "vdev remove completed", vdev, None);
        Ok(())
    }

    /// Cancels the removal: what was copied is freed at its new place, and the vdev is used as before. The
    /// thread that copies must have been told to stop.
    pub fn cancel_removal(&self) -> Result<(), Error> {
        let _work = self.removal.work.lock();
        let vdev = self.removing_vdev().ok_or(RemovalError::NotRemoving)?;
        self.run_sync_task(move |active, change| active.cancel_removal_sync(change, vdev))??;
        *self.removal.pause.lock() = None;
        self.refresh_space_limits()
    }

    fn cancel_removal_sync(&self, change: &SyncTaskContext<'_>, vdev: VdevId) -> Result<(), Error> {
        let mut config = self.config();
        let root = config.tree.as_mut().ok_or(DeviceChangeError::NotInPool)?;
        let top = root.children.iter_mut().find(|top| top.id == vdev && top.removing);
        let top = top.ok_or(RemovalError::NotRemoving)?;
        let mapping = self.removal_mapping()?;
        let allocator = self.space.allocator();
        // all is looked up before the first change
        let mut copied = Vec::new();
        for range in self.in_use_between(vdev, 0..mapping.end())? {
            copied.extend(mapping.map_range(range).ok_or(RemovalError::NotRemoving)?);
        }
        for piece in copied {
            let (vdev, offset, asize) = (piece.vdev, piece.offset, piece.length);
            allocator.free(&Dva { vdev, offset, asize, gang: false }, change.tx.txg())?;
        }
        allocator.end_removal();
        self.space.set_removal_mapping(None);
        self.free_mapping(change, top)?;
        let mut entry = self.removal.entry.lock().ok_or(RemovalError::NotRemoving)?;
        (entry.state, entry.end) = (Removing::CANCELED, change.now.seconds);
        self.write_removal_entry(change, entry)?;
        let path = top.path.clone();
        let is_open = !is_allocating_off(change, top)?;
        (top.removing, top.non_allocating, top.indirect) = (false, !is_open, None);
        allocator.set_allocatable(vdev, is_open)?;
        self.set_vdev_tree(root.clone());
        let path = path.as_deref().unwrap_or("-");
        self.log_removal(change, "vdev remove canceled", vdev, Some(path));
        Ok(())
    }

    /// Frees the objects of the mapping of a removal that is cancelled.
    fn free_mapping(&self, change: &SyncTaskContext<'_>, top: &VdevConfig) -> Result<(), Error> {
        let (mos, tx) = (change.mos, change.tx);
        features::update_refcount(mos, tx, FEATURE, RefcountChange::Delta(-1))?;
        let Some(indirect) = top.indirect else { return Ok(()) };
        if let Some(counts) = copy::mapping_header(&mos.object(indirect.mapping)?)?.counts {
            mos.free(tx, counts)?;
            features::update_refcount(mos, tx, OBSOLETE_COUNTS, RefcountChange::Delta(-1))?;
        }
        if let Some(table) = top.top_zap
            && Zap::open(mos.object(table)?)?.remove(tx, PRECISE_ENTRY)?
        {
            features::update_refcount(mos, tx, OBSOLETE_COUNTS, RefcountChange::Delta(-1))?;
        }
        self.space.free_obsolete_map(mos, tx, top.id)?;
        mos.free(tx, indirect.mapping)?;
        if let Some(births) = indirect.births {
            mos.free(tx, births)?;
        }
        Ok(())
    }

    /// Adds what a txg freed before it was copied to the progress: called in each pass of the sync.
    pub(super) fn sync_removal_progress(&self, change: &SyncTaskContext<'_>) -> Result<(), Error> {
        let freed = self.space.allocator().drain_freed_uncopied(change.tx.txg());
        let entry = *self.removal.entry.lock();
        let Some(entry) = entry.filter(|_| freed > 0) else { return Ok(()) };
        self.write_removal_entry(change, Removing { copied: entry.copied + freed, ..entry })
    }

    fn write_removal_entry(
        &self,
        change: &SyncTaskContext<'_>,
        entry: Removing,
    ) -> Result<(), Error> {
        let words = entry.to_words().into_iter().flat_map(u64::to_be_bytes).collect();
        let table = Zap::open(change.mos.object(POOL_DIRECTORY)?)?;
        table.update(change.tx, REMOVING_ENTRY, &ZapValue::new(8, words))?;
        *self.removal.entry.lock() = Some(entry);
        Ok(())
    }

    fn removal_mapping(&self) -> Result<RemovalMapping, RemovalError> {
        self.space.removal_mapping().ok_or(RemovalError::NotRemoving)
    }

    /// How the removal goes on; without one, how the last went.
    pub fn removal_status(&self) -> Option<RemovalStatus> {
        let entry = (*self.removal.entry.lock())?;
        let tops = self.tree.tops();
        let mappings = tops.iter().filter_map(|(_, node)| match &node.kind {
            NodeKind::Indirect(indirect) => indirect.mapping(),
            _ => None,
        });
        let entries: u64 = mappings.map(|mapping| mapping.segments().len() as u64).sum();
        Some(RemovalStatus {
            vdev: VdevId::new(u32::try_from(entry.vdev?).ok()?),
            state: entry.state,
            started: entry.start,
            ended: entry.end,
            total: entry.to_copy,
            copied: entry.copied,
            mapping_memory: entries * ENTRY_BYTES,
            pause: self.removal.pause.lock().clone(),
        })
    }

    fn log_removal(
        &self,
        change: &SyncTaskContext<'_>,
        name: &'static str,
        vdev: VdevId,
        path: Option<&str>,
    ) {
        let mut detail = format!("{} vdev {}", self.name, vdev.get());
        if let Some(path) = path {
            detail = format!("{detail} {path}");
        }
        self.log_history(change, &Entry::Event { name, detail: &detail, dataset: None });
    }
}

/// An object of 64-bit words with a bonus.
fn word_object(bonus: Vec<u8>) -> NewObject {
    NewObject::new(U64_METADATA, BLOCK_SIZE).with_bonus(U64_METADATA, bonus)
}

/// Makes the object of an empty mapping; and one that counts the obsolete bytes of each entry, if the pool has
/// those.
fn create_mapping_object(
    change: &SyncTaskContext<'_>,
    with_counts: bool,
) -> Result<ObjectId, Error> {
    let (mos, tx) = (change.mos, change.tx);
    let mut header = MappingHeader { max_offset: 0, bytes_mapped: 0, entries: 0, counts: None };
    if with_counts {
        header.counts = Some(mos.create(tx, &NewObject::new(U32_METADATA, BLOCK_SIZE))?.id());
        features::update_refcount(mos, tx, OBSOLETE_COUNTS, RefcountChange::Delta(1))?;
    }
    Ok(mos.create(tx, &word_object(header.encode()))?.id())
}

/// The description of a vdev that was removed.
fn indirect_config(top: &VdevConfig, guid: units::Guid, previous: Option<VdevId>) -> VdevConfig {
    let indirect = top.indirect.map(|indirect| Indirect { previous, ..indirect });
    VdevConfig {
        id: top.id,
        guid,
        whole_disk: Some(false),
        metaslab_array: None,
        metaslab_shift: top.metaslab_shift,
        ashift: top.ashift,
        asize: top.asize,
        non_allocating: true,
        create_txg: top.create_txg,
        top_zap: top.top_zap,
        indirect,
        ..VdevConfig::new(VdevKind::Indirect)
    }
}

/// Whether the property `allocating` of a vdev is off.
fn is_allocating_off(change: &SyncTaskContext<'_>, top: &VdevConfig) -> Result<bool, Error> {
    let Some(table) = top.top_zap else { return Ok(false) };
    Ok(Zap::open(change.mos.object(table)?)?.lookup_u64(ALLOCATING_ENTRY)? == Some(0))
}

/// Writes all blocks of an object again, so that they are allocated anew.
fn rewrite_object(change: &SyncTaskContext<'_>, id: ObjectId) -> Result<(), Error> {
    let object = change.mos.object(id)?;
    let size = u64::from(object.block_size());
    for number in 0..=object.max_block().get() {
        if let Some(block) = object.block(BlockId::new(number))? {
            object.write(change.tx, number * size, &block)?;
        }
    }
    Ok(())
}
