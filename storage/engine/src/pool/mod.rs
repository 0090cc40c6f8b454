//! An imported pool: created here or imported, to be changed.
//!
//! [`create`] makes a pool, [`import`] imports one from drives; both return a [`Pool`], which
//! changes datasets and opens file systems that can be written ([`OpenFileSystem`]). Changes are
//! on the drives after [`Pool::sync`]. A thread of its own must run
//! [`Background::run_txg_sync`](crate::pool::Background::run_txg_sync),
//! so that dirty data does not pile up.

mod accounting;
mod activity;
mod activity_status;
mod add;
mod auxiliary;
mod background_gates;
mod backup;
mod cache;
mod checkpoint;
mod compatibility;
mod corrective_receive;
mod create;
mod create_options;
mod data_errors;
mod datasets;
mod delegation;
mod destroy;
mod diagnosis;
mod drive;
mod drive_recovery;
mod drives;
mod dry_run;
mod encryption;
mod environment;
mod file_ops;
mod filesystem_upgrade;
mod filesystems;
mod handles;
mod head_send;
mod history;
mod holds;
mod incomplete;
mod io_stats;
mod key_probe;
mod latency;
mod leaf_activity;
mod multihost;
mod name_rules;
mod offline;
mod open_volumes;
mod owner_quotas;
mod pool_name;
mod properties;
mod raidz_expand;
mod raw_receive;
mod receive;
mod receive_begin;
mod receive_checks;
mod receive_encryption;
mod receive_records;
mod received_properties;
mod redact;
mod refreservation;
mod rekey;
mod replay_failures;
#[cfg(test)]
mod replay_order_tests;
#[cfg(test)]
mod replay_tests;
mod retire;
mod rewind;
mod rewrite;
mod saved_send;
mod scan;
mod send;
mod send_plan;
mod settings;
mod snapshots;
mod space;
mod spares;
mod split;
mod status;
mod stream_input;
mod sync_policy;
mod transactions;
mod upgrade;
mod vdev_mismatch;
mod vdev_properties;
mod vdev_removal;
mod vdev_settings;
mod volume_snapshots;
mod volumes;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dsl::DatasetTree;
use ondisk::label::PoolState;
use parking_lot::Mutex;
use spa::ActivePool;

use crate::event::Event;
use crate::{CachefileEntry, Error, Result};
pub use activity_status::{ActivityStatus, LongWork};
pub use add::AddOptions;
pub use arc::{MemoryBudget, MemoryReservation};
pub use background_gates::GatedWork;
pub use backup::{BackedUp, BackupRequest};
pub use cache::CacheCounts;
pub use checkpoint::CheckpointStatus;
pub use corrective_receive::Healed;
pub use create::{
    ImportOptions, NewPool, NewVdev, check_create, create, create_encrypted, create_on_devices,
    create_on_devices_with, create_with_options, import, import_devices, import_devices_with,
    import_with, open_unused_drive, preview_rewind,
};
pub use create_options::CreateOptions;
pub use datasets::{NewDataset, check_new_dataset};
pub use delegation::check_permission_name;
pub use destroy::DestroyPlan;
pub use device::OwnVolume;
pub use diagnosis::DiagnosedDrive;
pub use drive::{Drive, open_drive};
pub use dry_run::NewVolumeShape;
pub use dsl::write::DelegationEntries;
pub use dsl::{DelegationTarget, DelegationUser, Delegations};
pub use encryption::is_encryption_property;
pub(crate) use environment::Random;
pub use environment::{Environment, FillRandom};
pub use filesystem_upgrade::{FILESYSTEM_VERSION, FilesystemUpgrade};
pub use filesystems::OpenFileSystem;
pub use handles::{
    Activities, Background, Datasets, Drives, History, Keys, Permissions, Properties, Scans,
    Snapshots, Streams, Vdevs, Volumes,
};
pub use head_send::{busy_head_error, sent_head};
pub use holds::Hold;
pub use io_stats::{
    ClassIoStats, DriveIoStats, DriveQueueStats, LatencyStats, PoolIoStats, RequestStats, SlowDrive,
};
pub use key_probe::{KeyProbe, encryption_roots, try_keys};
pub use leaf_activity::{ActivityCommand, ActivityKind};
pub use offline::OfflineOptions;
pub use ondisk::dsl::{DelegationKey, DelegationScope, Grantee};
pub use ondisk::stream::{Package, PackagedDataset, PackagedValue};
pub use open_volumes::DatasetHold;
pub use pool_name::check_pool_name;
pub use properties::PoolProperty;
pub use raidz_expand::ExpansionStatus;
pub use receive::{ExchangeHead, ReceiveRequest, Received};
pub use receive_encryption::UserSecret;
pub use received_properties::ReceiveProperties;
pub use replay_failures::ReplayFailure;
pub use rewind::{Rewind, RewindProbe, RewindProgress, RewindTarget};
pub use rewrite::{FileRewrite, RewriteFilter, RewriteRequest, RewriteSums};
pub use scan::{ScanKind, ScanProgress, ScanResult, ScanStatus, ScrubRange};
pub use send::SendRequest;
pub(crate) use send::send_error;
pub use send_plan::{SendPlan, SendStep};
pub use snapshots::{Bookmark, Snapshot};
pub use spa::auxiliary::AuxiliaryRole;
pub use spa::vdev_layout::{DraidLayout, VdevLayout, VdevRole};
pub use spares::ActivatedSpare;
pub use split::{SplitOptions, SplitVdev};
pub use status::{DedupBucket, PoolStatus, VdevActivity, VdevStatus};
pub use stream_input::{StreamHeader, StreamInput};
pub use sync_policy::Snapdir;
pub use upgrade::{UpgradeResult, UpgradeStatus, supported_features};
pub use vdev_properties::VdevProperties;
pub use vdev_removal::{CondenseLimits, RemovalMemory, RemovalStatus};
pub use volume_snapshots::VolumeSnapshot;
pub use volumes::{BlockSource, OpenVolume};
pub use zio::MemoryParts;
pub use zpl::RewrittenRange;

/// The loaded keys of an imported pool, for a later import of the same pool.
#[derive(Clone, Debug)]
pub struct LoadedKeys(Arc<dsl::Keyring>);

/// Frees the memory that pools keep for blocks to come. A pool in use takes it again as it needs it.
pub fn free_buffers() {
    device::buffer::free_all();
}

/// An imported pool. Cheap to clone.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    spa: Arc<ActivePool>,
    environment: Environment,
    filesystems: Mutex<HashMap<String, OpenFileSystem>>,
    volumes: Mutex<HashMap<String, OpenVolume>>,
    /// The datasets that are in use.
    dataset_holds: open_volumes::DatasetHolds,
    /// The keys that were given.
    keys: Arc<dsl::Keyring>,
    /// Changes of a suspended pool fail at once instead of waiting (failmode=continue).
    is_failmode_continue: AtomicBool,
    /// The running scan, or the last one.
    scan_control: scan::ScanControl,
    /// Runs scans and all other long work.
    scheduler: activity::Scheduler,
    activities: activity::ActivitySet,
    background_gates: Mutex<background_gates::BackgroundGates>,
    /// The errors of its drives in the last minutes.
    diagnosis: Mutex<diagnosis::Diagnosis>,
    /// The state to which it was rewound.
    rewind_target: Option<RewindTarget>,
    /// Failures to report to the user.
    replay_failures: Mutex<Vec<ReplayFailure>>,
    /// Findings of the import to report to the user.
    events: Mutex<Vec<Event>>,
    /// The datasets of the last requested txg.
    tree: Mutex<Option<DatasetTree>>,
    /// Random, and another one after each import.
    import_nonce: u64,
    /// When it was imported.
    imported_at: Instant,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({:?})", self.0.spa)
    }
}

impl Pool {
    fn new(active: ActivePool, world: Environment, keys: Option<LoadedKeys>) -> Self {
        Self::with_rewind(None, active, world, keys)
    }

    fn with_rewind(
        rewound: Option<RewindTarget>,
        active: ActivePool,
        world: Environment,
        keys: Option<LoadedKeys>,
    ) -> Self {
        let (files, volumes) = (Mutex::default(), Mutex::default());
        device::buffer::raise_limit(usize::try_from(world.max_dirty).unwrap_or(usize::MAX));
        active.set_owner_accounting(Arc::new(accounting::ZplAccounting::new(&active, &world)));
        let active = Arc::new(active);
        let weak = Arc::downgrade(&active);
        // a thread that waits for a txg syncs it itself if there is no sync thread
        active.txgs().set_inline_sync(move || {
            if let Some(active) = weak.upgrade() {
                drop(active.sync());
            }
        });
        active.stop_on_panics();
        let goes_on = AtomicBool::new(false);
        let keys = keys.map(|known| known.0).unwrap_or_default();
        let scans = scan::ScanControl::default();
        let import_nonce = world.random_u64();
        let synced = active.txgs().synced_txg();
        let pool = Self(Arc::new(Inner {
            spa: active,
            environment: world,
            import_nonce,
            imported_at: Instant::now(),
            filesystems: files,
            volumes,
            dataset_holds: open_volumes::DatasetHolds::default(),
            keys,
            is_failmode_continue: goes_on,
            scan_control: scans,
            scheduler: activity::Scheduler::default(),
            activities: activity::ActivitySet::new(synced),
            background_gates: Mutex::default(),
            diagnosis: Mutex::default(),
            rewind_target: rewound,
            replay_failures: Mutex::default(),
            events: Mutex::default(),
            tree: Mutex::default(),
        }));
        pool.load_failmode();
        pool
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.spa.name()
    }

    /// Whether that is its name only until it is exported.
    pub fn has_temporary_name(&self) -> bool {
        self.0.spa.has_temporary_name()
    }

    /// Whether both are handles of one imported pool.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Its identity.
    pub fn guid(&self) -> u64 {
        self.0.spa.guid().get()
    }

    /// A random number that is made when the pool is created or imported: data that was written but not committed
    /// cannot have been lost while it stays the same.
    pub fn import_nonce(&self) -> u64 {
        self.0.import_nonce
    }

    /// The state to which the import rewound it, if it did.
    pub fn rewind_target(&self) -> Option<RewindTarget> {
        self.0.rewind_target
    }

    fn add_events(&self, events: Vec<Event>) {
        self.0.events.lock().extend(events);
    }

    /// Findings of the import that were not reported yet.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.events.lock())
    }

    /// The last transaction group that is on the drives.
    pub fn txg(&self) -> u64 {
        self.0.spa.txgs().synced_txg().get()
    }

    /// Has everything that was changed so far written, and waits for that.
    pub fn sync(&self) -> Result<()> {
        self.0.spa.sync().map_err(|error| self.explain_error(&error))
    }
}

impl Scans<'_> {
    /// The same, and blocks that could not be read so far enter the error log.
    pub fn sync_with_errors(self) -> Result<()> {
        self.pool.0.spa.repair_blocks().map_err(|error| self.pool.explain_error(&error))?;
        self.pool.sync()
    }
}

impl Background<'_> {
    /// Syncs dirty data, every `interval` and when there is enough of it, until stopped. For a
    /// thread of its own.
    pub fn run_txg_sync(self, interval: Duration, stop: &AtomicBool) -> Result<()> {
        self.pool.0.spa.run_as_sync_thread(|| self.pool.sync_txgs(interval, stop))
    }

    /// Whether a thread does so: drives that fail past redundancy are waited for from then on.
    pub fn has_sync_thread(self) -> bool {
        self.pool.0.spa.has_sync_thread()
    }
}

impl Pool {
    fn sync_txgs(&self, interval: Duration, stop: &AtomicBool) -> Result<()> {
        let groups = self.0.spa.txgs();
        let _duty = groups.register_sync_thread();
        while !stop.load(Ordering::Acquire) && !groups.is_stopped() {
            let due = groups.wait_sync_due(interval);
            // Before the sync: the last txg still refers to blocks of files that this one removes. A block that cannot
            // be repaired now is found again by the next reader, or a scrub.
            let _ = self.0.spa.repair_blocks();
            if due || self.0.spa.is_dirty() {
                self.sync()?;
            }
        }
        Ok(())
    }

    /// Syncs and closes the pool without exporting it: this host imports it again when it comes
    /// back. All handles become invalid.
    pub fn close(&self) -> Result<()> {
        self.stop_activities();
        self.0.filesystems.lock().clear();
        let volumes = std::mem::take(&mut *self.0.volumes.lock());
        let done = self.sync();
        self.0.spa.abort_txgs();
        volumes.values().for_each(OpenVolume::notify_watchers);
        done
    }

    /// Clears the errors of a drive (by path or guid), or of all, and resumes a pool that is
    /// suspended: the interrupted sync is tried again, and nothing is lost. Returns when all
    /// waiting data is on the drives. Failed or missing drives are searched at their paths, and
    /// elsewhere in the same folders.
    pub fn clear_errors(&self, drive: Option<&str>) -> Result<()> {
        let only = drive.map(|name| self.find_any_drive(name)).transpose()?;
        if let Some(name) = drive
            && self.find_available_spare(Path::new(name)).is_some()
        {
            return Err(Error::Usage { what: format!("'{name}' is reserved as a hot spare") });
        }
        self.reopen_auxiliary();
        if !self.is_suspended() {
            self.clear_faulted(only)?;
            self.drives().reopen();
        }
        self.0.spa.clear(only).map_err(|error| self.explain_error(&error))?;
        self.0.diagnosis.lock().clear(only);
        self.sync()?;
        self.0.spa.unspare_cleared(only).map_err(|error| self.explain_error(&error))?;
        self.update_device_paths();
        Ok(())
    }
}

impl Keys<'_> {
    /// The keys that were given to it.
    pub fn loaded(self) -> LoadedKeys {
        LoadedKeys(Arc::clone(&self.pool.0.keys))
    }
}

impl Drives<'_> {
    /// The paths of the drives that are there.
    pub fn list(self) -> Vec<PathBuf> {
        let config = self.pool.0.spa.config();
        let leaves = config.tree.iter().flat_map(ondisk::label::VdevConfig::leaves);
        let found =
            leaves.filter_map(|leaf| self.pool.0.spa.tree().leaf(leaf.guid)?.device().cloned());
        let found = found.map(|device| PathBuf::from(device.name()));
        found.chain(self.pool.auxiliary_drives()).collect()
    }

    /// The same, and where those are to be that are not.
    pub fn known(self) -> Vec<PathBuf> {
        let missing = self.pool.drives().missing().into_iter().map(|(_, path)| path);
        self.pool.drives().list().into_iter().chain(missing).collect()
    }
}

impl Pool {
    /// The pool's configuration for a cache file. It has the pool's own name, also while a temporary one is used.
    pub fn cachefile_entry(&self) -> CachefileEntry {
        let config = self.0.spa.config();
        let name = config.name.clone().unwrap_or_else(|| self.name().to_owned());
        CachefileEntry { name, guid: self.guid(), config: config.to_list() }
    }

    /// Gives the pool up, so that others can import it. All handles are of no use afterwards.
    pub fn export(&self) -> Result<()> {
        self.close_with_state(PoolState::Exported)
    }

    /// Destroys the pool: its labels get that state. Its data stays until the drives are used
    /// again.
    pub fn destroy_pool(&self) -> Result<()> {
        self.close_with_state(PoolState::Destroyed)
    }

    fn close_with_state(&self, state: PoolState) -> Result<()> {
        self.stop_activities();
        self.0.filesystems.lock().clear();
        let volumes = std::mem::take(&mut *self.0.volumes.lock());
        let done = self.0.spa.export(state).map_err(|error| self.explain_error(&error));
        volumes.values().for_each(OpenVolume::notify_watchers);
        done
    }

    /// A guard that keeps everything readable that the last synced txg refers to, however
    /// many more are synced. It should be held briefly.
    fn pin(&self) -> spa::Pin {
        self.0.spa.pin()
    }

    /// The datasets on the drives. Read once per txg: with a thousand datasets that
    /// takes longer than most requests, each of which needs them several times.
    fn tree(&self) -> Result<DatasetTree> {
        let look = self.0.spa.synced_mos();
        let facts =
            dsl::PoolInfo { name: self.name().to_owned(), usable_space: self.0.spa.usable_space() };
        let mut known = self.0.tree.lock();
        let is_same =
            |tree: &&DatasetTree| tree.mos().root() == look.root() && *tree.pool_info() == facts;
        if let Some(tree) = known.as_ref().filter(is_same) {
            return Ok(tree.clone());
        }
        let keys = Arc::clone(&self.0.keys);
        let tree = DatasetTree::open_with_keys(look.clone(), facts, keys).map_err(|error| {
            Error::DamagedPool { pool: self.name().to_owned(), why: error.to_string() }
        })?;
        // what cannot be read now may be readable the next time
        *known = Some(&tree).filter(|tree| tree.errors().is_empty()).cloned();
        Ok(tree)
    }

    fn find_dataset(&self, name: &str) -> Result<dsl::Dataset> {
        let _pin = self.pin();
        self.tree()?.find(name).map_err(|error| Error::from_dsl_error(name, &error))
    }

    /// Whether it was imported read-only: nothing of it is ever written.
    pub fn is_read_only(&self) -> bool {
        self.0.spa.is_read_only()
    }

    /// Refuses if it was.
    pub fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            Err(self.explain_error(&spa::Error::ImportedReadOnly))
        } else {
            Ok(())
        }
    }

    fn explain_error(&self, error: &spa::Error) -> Error {
        if matches!(error, spa::Error::ImportedReadOnly) {
            let what = format!(
                "pool '{}' is imported read-only: export it, and import it without \
                 -o readonly=on, to change it",
                self.name()
            );
            return Error::Refused { what };
        }
        Error::Suspended { pool: self.name().to_owned(), why: error.to_string() }
    }
}
