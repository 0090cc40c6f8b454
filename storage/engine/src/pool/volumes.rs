//! Volumes that can be written.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use dmu::Objset;
use dsl::write;
use ondisk::objset::Kind;
use parking_lot::Mutex;
use spa::{ActivePool, OpenDataset};
use units::{MinusOrZero, ObjsetId};
use zil::{IntentLog, LogReader};
use zio::MemoryParts;
use zpl::SpaceNeed;
use zvol::NewVolume;

use super::accounting::has_feature;
use super::datasets::{check_properties, destroy_on_error, record_encryption, set_properties};
use super::encryption::DatasetEncryption;
use super::history::record_dataset_event;
use super::refreservation::VolumeGeometry;
use super::space::SpaceCheck;
use super::sync_policy::{SharedSyncPolicy, SyncMode};
use super::{NewDataset, Pool, VolumeSnapshot, settings};
use crate::pool::handles::Volumes;
use crate::{Error, Result, files};

/// A volume of an imported pool. Cheap to clone.
#[derive(Clone)]
pub struct OpenVolume(Arc<Inner>);

struct Inner {
    guid: u64,
    volume: zvol::WritableVolume,
    spa: Arc<ActivePool>,
    dataset: Arc<OpenDataset>,
    log: Arc<IntentLog>,
    space: SpaceCheck,
    sync_policy: SharedSyncPolicy,
    watchers: Watchers,
}

/// Functions that are called when a volume was resized or retired.
type Watchers = Mutex<Vec<Weak<dyn Fn() + Send + Sync>>>;

/// The largest block of pools without the feature large_blocks.
const OLD_MAX_BLOCK_SIZE: u32 = 128 << 10;
/// The metadata share of a write's space.
const METADATA_ALLOWANCE: u64 = 128 << 10;

impl OpenVolume {
    /// Distinguishes it from an earlier volume of its name.
    pub fn guid(&self) -> u64 {
        self.0.guid
    }

    pub(super) fn objset_id(&self) -> ObjsetId {
        self.0.dataset.objset().id()
    }

    /// Bytes of it.
    pub fn size(&self) -> u64 {
        self.0.volume.size()
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.0.volume.block_size()
    }

    /// Reads from byte `offset` on; returns the number of bytes, less than requested at the end.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> files::Result<usize> {
        Ok(self.0.volume.read(offset, into)?)
    }

    /// The bytes from `offset` on as parts of blocks, if all of them are in memory: waits neither for a drive nor for
    /// another thread.
    pub fn parts_in_memory(&self, offset: u64, length: usize) -> Option<MemoryParts> {
        self.0.volume.parts_in_memory(offset, length)
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> files::Result<()> {
        let count = units::to_u64(bytes.len());
        let piece = self.block_size().into();
        self.check_write(SpaceNeed {
            bytes: count + METADATA_ALLOWANCE,
            block_size: piece,
            ..SpaceNeed::default()
        })?;
        self.0.volume.write(offset, bytes)?;
        self.flush_if_sync_always()
    }

    /// Discards a range.
    pub fn discard(&self, range: std::ops::Range<u64>) -> files::Result<()> {
        self.check_write(SpaceNeed { frees_space: true, ..SpaceNeed::default() })?;
        self.0.volume.discard(range)?;
        self.flush_if_sync_always()
    }

    /// Makes zeros of a range, which take no space where they are whole blocks.
    pub fn write_zeros(&self, range: std::ops::Range<u64>) -> files::Result<()> {
        self.check_write(SpaceNeed { bytes: METADATA_ALLOWANCE, ..SpaceNeed::default() })?;
        self.0.volume.write_zeros(range)?;
        self.flush_if_sync_always()
    }

    /// Returns when all that was written will outlast a power cut, unless the volume does without
    /// (sync=disabled).
    pub fn flush(&self) -> files::Result<()> {
        match self.0.sync_policy.current().sync {
            SyncMode::Disabled => Ok(()),
            _ => Ok(self.0.volume.flush()?),
        }
    }

    /// Shares blocks of a range of another volume, of this one or of a snapshot with the blocks from byte `to` on.
    /// Returns the number of bytes from the start of the range that are shared. The rest has to be copied.
    pub fn clone_blocks(
        &self,
        source: &BlockSource,
        from: std::ops::Range<u64>,
        to: u64,
    ) -> files::Result<u64> {
        let (spa, dataset) = (&self.0.spa, &self.0.dataset);
        if !Arc::ptr_eq(spa, source.spa()) || !spa.can_clone() {
            return Ok(0);
        }
        let cloned_bytes = from.end.minus_or_zero(from.start);
        let need = SpaceNeed { bytes: METADATA_ALLOWANCE, cloned_bytes, ..SpaceNeed::default() };
        self.check_write(need)?;
        let begin_tx =
            |objset: &Objset| spa.begin_clone_tx(dataset, objset).map_err(|_| zvol::Error::Stopped);
        let shared = self.0.volume.clone_blocks(source.volume(), from, to, begin_tx)?;
        self.flush_if_sync_always()?;
        Ok(shared)
    }

    /// First byte from `from` on that takes space or waits to be written; none: the rest is not mapped.
    pub fn next_data(&self, from: u64) -> files::Result<Option<u64>> {
        Ok(self.0.volume.next_data(from)?)
    }

    /// First byte of a range that is not mapped; the end of the range or of the volume if there is none.
    pub fn next_hole(&self, range: std::ops::Range<u64>) -> files::Result<u64> {
        Ok(self.0.volume.next_hole(range)?)
    }

    /// Whether this handle is of no use any more: the volume was destroyed, rolled back, or its pool closed. A
    /// volume that was rolled back can be opened again.
    pub fn is_retired(&self) -> bool {
        self.0.dataset.is_retired() || self.0.spa.txgs().is_stopped()
    }

    /// Has `watcher` called after the volume was resized or retired, for as long as the caller keeps it.
    pub fn watch(&self, watcher: &Arc<dyn Fn() + Send + Sync>) {
        let mut watchers = self.0.watchers.lock();
        watchers.retain(|known| known.strong_count() > 0);
        watchers.push(Arc::downgrade(watcher));
    }

    /// Calls the watchers. The caller holds no lock that a watcher may need.
    pub(super) fn notify_watchers(&self) {
        let watchers = self.0.watchers.lock().clone();
        watchers.iter().filter_map(Weak::upgrade).for_each(|watcher| watcher());
    }

    /// Whether nothing of it may be changed (readonly=on).
    pub fn is_read_only(&self) -> bool {
        self.0.sync_policy.current().read_only
    }

    /// Makes it longer or shorter.
    pub fn resize(&self, bytes: u64) -> files::Result<()> {
        let resized = self.0.volume.resize(bytes);
        // also after an error: the size may have changed before the txg failed
        self.notify_watchers();
        Ok(resized?)
    }

    fn check_write(&self, need: SpaceNeed) -> files::Result<()> {
        if self.0.dataset.is_retired() {
            return Err(zpl::Error::Stopped { objset: self.0.dataset.objset().id() }.into());
        }
        if self.is_read_only() {
            return Err(zpl::Error::ReadOnly { objset: self.0.dataset.objset().id() }.into());
        }
        Ok(self.0.space.check_space(&self.0.spa, &self.0.dataset, &need)?)
    }

    fn flush_if_sync_always(&self) -> files::Result<()> {
        match self.0.sync_policy.current().sync {
            SyncMode::Always => Ok(self.0.volume.flush()?),
            _ => Ok(()),
        }
    }
}

/// A volume or a snapshot whose blocks other volumes can share.
#[derive(Clone)]
pub enum BlockSource {
    /// A volume that can be changed.
    Volume(OpenVolume),
    /// A snapshot of a volume.
    Snapshot(Arc<VolumeSnapshot>),
}

impl BlockSource {
    fn spa(&self) -> &Arc<ActivePool> {
        match self {
            Self::Volume(volume) => &volume.0.spa,
            Self::Snapshot(snapshot) => snapshot.spa(),
        }
    }

    /// Whether the pool can share blocks.
    pub fn can_share(&self) -> bool {
        self.spa().can_clone()
    }

    fn volume(&self) -> zvol::CloneSource<'_> {
        match self {
            Self::Volume(volume) => zvol::CloneSource::Volume(&volume.0.volume),
            Self::Snapshot(snapshot) => zvol::CloneSource::Snapshot(snapshot.volume()),
        }
    }
}

impl Volumes<'_> {
    /// Makes a volume of `size` bytes in blocks of `block_size`; one that is not `sparse` has its
    /// space reserved.
    pub fn create(self, new: &NewDataset, size: u64, block_size: u32, sparse: bool) -> Result<()> {
        self.pool.volumes().create_with(new, (size, block_size), sparse, None)
    }

    /// The same, with a user's key of its own if there is a secret. `shape`: bytes of it, and of a
    /// block.
    pub fn create_with(
        self,
        new: &NewDataset,
        shape: (u64, u32),
        sparse: bool,
        secret: Option<&[u8]>,
    ) -> Result<()> {
        let (size, block_size) = shape;
        check_volume_size(&new.name, size, block_size)?;
        self.pool.check_large_blocks(&new.name, block_size)?;
        let mut new = new.clone();
        if !sparse {
            let reserved = self
                .pool
                .volume_refreservation(VolumeGeometry { size, block_size: block_size.into() });
            // the properties set here count
            let asked = |(name, _): &(String, String)| name == "refreservation";
            if !new.properties.iter().any(asked) {
                new.properties.push(("refreservation".to_owned(), reserved.to_string()));
            }
        }
        self.pool.with_opens_blocked(|| self.pool.create_volume_locked(new, shape, secret))
    }
}

impl Pool {
    /// Creates a volume with validated properties. The lock keeps the parent's key until this
    /// returns.
    fn create_volume_locked(
        &self,
        mut new: NewDataset,
        (size, block_size): (u64, u32),
        secret: Option<&[u8]>,
    ) -> Result<()> {
        let (source, salt) = (self.0.spa.source(), self.0.environment.random_u64());
        let keying = self.child_encryption(&mut new, secret)?;
        check_properties(&new, dsl::DatasetKind::Volume)?;
        let (name, user) =
            (new.name.clone(), keying.as_ref().and_then(DatasetEncryption::user_key));
        let make = move |active: &ActivePool, change: &write::SyncTaskContext<'_>| {
            let failed = |error: dsl::Error| Error::from_dsl_error(&new.name, &error);
            let id = write::create_dataset(change, &new.name).map_err(failed)?;
            destroy_on_error(active, change, &new.name, || {
                let key = record_encryption(change, id, keying.as_ref()).map_err(failed)?;
                record_dataset_event(active, change, "create", &new.name, "");
                set_properties(active, change, &new, dsl::DatasetKind::Volume).map_err(failed)?;
                let blank = Objset::new_empty(Arc::clone(&source), id, Kind::Volume, key.clone());
                let set = active.open_dataset(
                    blank,
                    spa::StorageSettings { key, ..spa::StorageSettings::default() },
                );
                NewVolume { size, block_size, salt }
                    .create(set.objset(), change.tx)
                    .map_err(|why| Error::Refused { what: why.to_string() })?;
                Ok(id)
            })
        };
        self.run_sync_task(make).map(|id: ObjsetId| self.0.spa.close_dataset(id))?;
        self.store_user_key(&name, user)
    }

    /// Whether the pool has the features of such blocks. Nothing could be written to the volume
    /// otherwise, nor to the pool then.
    pub(super) fn check_large_blocks(&self, name: &str, block_size: u32) -> Result<()> {
        if block_size <= OLD_MAX_BLOCK_SIZE || has_feature(&self.0.spa.synced_mos(), "large_blocks")
        {
            return Ok(());
        }
        let why = "blocks above 128K take the feature large_blocks, which the pool has not enabled";
        Err(Error::Refused { what: format!("'{name}': {why}") })
    }
}

impl Volumes<'_> {
    /// A volume by its full name, to be read and written.
    pub fn get(self, name: &str) -> Result<OpenVolume> {
        self.pool.volume_from(&mut self.pool.0.volumes.lock(), name)
    }
}

impl Pool {
    /// The same, among the open ones.
    pub(super) fn volume_from(
        &self,
        open: &mut HashMap<String, OpenVolume>,
        name: &str,
    ) -> Result<OpenVolume> {
        if let Some(volume) = open.get(name) {
            return Ok(volume.clone());
        }
        let dataset = self.find_dataset(name)?;
        let failed = |error: dsl::Error| Error::from_dsl_error(name, &error);
        let Some(id) = dataset.id().filter(|_| !dataset.is_snapshot()) else {
            return Err(Error::Usage {
                what: format!("'{name}' is not a volume that can be changed"),
            });
        };
        if dataset.key_status().map_err(failed)? == Some(dsl::KeyStatus::Unavailable) {
            return Err(crate::keys::locked_error(&dataset));
        }
        let active = &self.0.spa;
        let set = self.open_dataset(&dataset, id)?;
        let log = active.open_log(&set).map_err(|why| self.explain_error(&why))?;
        let unreadable = |why: &dyn std::fmt::Display| Error::Unreadable {
            subject: format!("'{name}'"),
            why: why.to_string(),
        };
        let txgs = txg::GatedTxgs::new(active.txgs().clone(), Arc::clone(set.gate()));
        let volume = zvol::WritableVolume::open(set.objset().clone(), txgs, Arc::clone(&log))
            .map_err(|why| unreadable(&why))?;
        if let Some(found) = log.unreplayed_header() {
            let (source, key) = (Arc::clone(set.objset().source()), set.objset().key().cloned());
            let synced = active.txgs().synced_txg();
            let mut records = LogReader::new(source, id, &found, key, synced);
            volume.replay_log(&mut records).map_err(|why| unreadable(&why))?;
        }
        let manners = SharedSyncPolicy::new(self.sync_policy(&dataset), &log);
        let (active, rooms) = (Arc::clone(active), SpaceCheck::default());
        let guid = dataset.guid().get();
        let inner = Inner {
            guid,
            volume,
            spa: active,
            dataset: set,
            log,
            space: rooms,
            sync_policy: manners,
            watchers: Mutex::default(),
        };
        let volume = OpenVolume(Arc::new(inner));
        open.insert(name.to_owned(), volume.clone());
        Ok(volume)
    }
}

impl Pool {
    /// Passes the present properties to open volumes.
    pub(super) fn refresh_volumes(&self) {
        let open: Vec<(String, OpenVolume)> =
            self.0.volumes.lock().iter().map(|(name, open)| (name.clone(), open.clone())).collect();
        for (name, OpenVolume(open)) in open {
            let Ok(dataset) = self.find_dataset(&name) else { continue };
            open.dataset.update_settings(settings::block_settings(&dataset));
            let caching = settings::l2arc_policy(&dataset);
            self.0.spa.l2arc().set_policy(open.dataset.objset().id(), caching);
            open.sync_policy.update(self.sync_policy(&dataset), &open.log);
        }
    }
}

/// Volumes have whole blocks, of sizes that can be.
pub(super) fn check_volume_size(name: &str, size: u64, block_size: u32) -> Result<()> {
    let refuse = |why: &str| Err(Error::Usage { what: format!("volume '{name}': {why}") });
    if !block_size.is_power_of_two() || !(512..=16 << 20).contains(&block_size) {
        return refuse("its blocks are a power of two from 512 to 16M");
    }
    if size == 0 || !size.is_multiple_of(block_size.into()) {
        return refuse(&format!("its size is a multiple of its block size, {block_size}"));
    }
    if i64::try_from(size).is_err() { refuse("it is too large") } else { Ok(()) }
}
