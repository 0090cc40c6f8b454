//! A pool that is imported for writing. Datasets change in the open txg, its own objects in [`ActivePool::sync`].

mod add;
mod assertions;
mod attach;
mod autotrim;
mod auxiliary;
mod block_refs;
mod checkpoint;
mod clone_source;
mod config;
mod deflate;
mod device_change;
mod dtl;
mod export;
mod history;
mod identity;
mod leaf_activity;
mod log_vdevs;
mod mmp;
mod offline;
mod policy;
mod raidz_expand;
mod reattach;
mod rebuild;
mod self_heal;
mod space_limits;
mod spares;
mod split;
mod suspend;
mod sync;
mod synced_mos;
mod tasks;
mod vdev_removal;
mod write_through;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc::{Cache, L2arc, MemoryBudget};
use dmu::{DnodeChange, Objset};
use dsl::write::{Moment, SyncTaskContext};
use ondisk::dnode::Flags;
use ondisk::feature::Feature;
use ondisk::label::PoolConfig;
use ondisk::objset::LogHeader;
use ondisk::uberblock::Uberblock;
use ondisk::version;
use parking_lot::{Mutex, RwLock};
use txg::{Tx, TxGate, TxgLimits, Txgs};
use units::{Guid, ObjsetId, Txg};
use vdev::{LeafError, TxgRanges, VdevTree};
use zio::{Reader, Source, Writer};

use crate::commit::TxgCommitter;
use crate::scan::{ErrorLog, ScanState};
use crate::space::PoolSpace;
use crate::{Error, Pool, capacity};

pub use add::NewTop;
pub use attach::{AttachMode, NewChild, Reconstruction};
pub use checkpoint::{CheckpointError, CheckpointStatus};
pub(crate) use config::{ConfigState, write_packed_nvlist};
pub(crate) use deflate::dva_dsize;
pub use device_change::DeviceChangeError;
pub(crate) use history::append_entry;
pub use identity::FEATURES_VERSION;
pub use leaf_activity::{ActivityCommand, ActivityKind, ActivityStep};
pub use mmp::FAIL_INTERVALS as SIGNS_MISSED;
pub use offline::out_of_service_leaves;
pub use policy::{EnabledFeatures, RedundantMetadata, StorageSettings};
pub use raidz_expand::{ExpandError, ExpansionStatus, ReflowEnd};
pub use rebuild::RebuildStatus;
pub use space_limits::SpaceTurn;
pub use split::{SplitDevice, SplitError};
pub use synced_mos::SyncedMos;
pub use vdev_removal::{RemovalEnd, RemovalError, RemovalStatus};

/// What of the world outside a pool needs that is changed. It comes in at the door.
#[derive(Clone)]
pub struct Environment {
    /// Random bytes.
    pub random: Arc<dyn zio::Random>,
    /// The time.
    pub now: Arc<dyn Fn() -> Moment + Send + Sync>,
    /// How many threads may work on a sync.
    pub workers: usize,
    /// How much may be dirty.
    pub limits: TxgLimits,
    /// Of what memory the cache of a new pool takes its share.
    pub cache: MemoryBudget,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({} workers)", self.workers)
    }
}

impl Environment {
    /// Any number.
    pub fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// What the floors above add to the writing of a dataset: who owns how much.
pub trait OwnerAccounting: Send + Sync {
    /// How the objects of a set are marked of which account is kept.
    fn accounting_flags(&self, objset: &Objset) -> Flags;

    /// Updates the tables of what owners use for changed objects, in the same txg.
    fn update_usage(&self, objset: &Objset, tx: &Tx, changed: &[DnodeChange]) -> Result<(), Error>;
}

/// A dataset whose content is being changed.
pub struct OpenDataset {
    /// Its content.
    pub objset: Objset,
    /// How it is stored.
    settings: Arc<RwLock<StorageSettings>>,
    /// Its intent log.
    pub log: OnceLock<Arc<zil::IntentLog>>,
    /// Changes to its root block that wait for the next sync.
    header_edits: Mutex<Vec<HeaderEdit>>,
    /// Features that changes of open txgs begin to use.
    features: Mutex<Vec<(Txg, &'static Feature)>>,
    /// Runs with each sync of the dataset.
    sync_hook: OnceLock<DatasetSyncHook>,
    /// Holds its transactions back while its head is exchanged; retired with the dataset.
    gate: Arc<TxGate>,
}

/// A function that runs with each sync of a dataset, after its content was written.
type DatasetSyncHook = Box<dyn Fn(&SyncTaskContext<'_>) -> Result<(), dsl::Error> + Send + Sync>;

/// A change to a root block.
type HeaderEdit = (Txg, Box<dyn FnOnce(&mut ondisk::objset::ObjsetHeader) + Send>);

impl OpenDataset {
    /// Changes the root block of the set with the group of `tx`.
    pub fn edit_header(
        &self,
        tx: &Tx,
        change: impl FnOnce(&mut ondisk::objset::ObjsetHeader) + Send + 'static,
    ) {
        self.header_edits.lock().push((tx.txg(), Box::new(change)));
    }

    /// Notes that a change in the txg of `tx` uses a per-dataset feature that no block pointer and no
    /// dnode tells of. The sync of that txg makes the feature active for the dataset.
    pub fn activate_feature(&self, tx: &Tx, feature: &'static Feature) {
        let new = (tx.txg(), feature);
        let mut features = self.features.lock();
        if !features.contains(&new) {
            features.push(new);
        }
    }

    /// Removes and returns the features that changes up to a txg use.
    fn drain_features(&self, txg: Txg) -> Vec<&'static Feature> {
        let mut features = self.features.lock();
        let (due, later) = features.drain(..).partition(|(known, _)| *known <= txg);
        *features = later;
        due.into_iter().map(|(_, feature)| feature).collect()
    }

    /// Has a function run with each sync of the dataset. There is one at most.
    pub fn set_sync_hook(
        &self,
        hook: impl Fn(&SyncTaskContext<'_>) -> Result<(), dsl::Error> + Send + Sync + 'static,
    ) {
        let _ = self.sync_hook.set(Box::new(hook));
    }

    /// Has it stored otherwise from now on; what the pool's features allow, and the key, stay.
    pub fn update_settings(&self, settings: StorageSettings) {
        let mut now = self.settings.write();
        // a raw receive does without the key, even if it is loaded meanwhile
        let key = settings.key.or_else(|| now.key.clone()).filter(|_| !now.keyless);
        let (features, keyless) = (now.features, now.keyless);
        *now = StorageSettings { key, keyless, features, ..settings };
    }

    /// Has promises kept by whole groups, instead of the intent log, or by the log again.
    pub fn pause_log(&self, paused: bool) {
        if let Some(log) = self.log.get() {
            log.set_paused(paused);
        }
    }

    /// Takes no changes any more. What waits to be written may still be.
    pub fn retire(&self) {
        self.gate.retire();
    }

    /// Whether it takes no changes any more.
    pub fn is_retired(&self) -> bool {
        self.gate.is_retired()
    }

    /// The gate of its transactions.
    pub const fn gate(&self) -> &Arc<TxGate> {
        &self.gate
    }

    fn is_dirty(&self, txg: Txg) -> bool {
        let logged = self.log.get().is_some_and(|log| log.is_dirty(txg));
        logged
            || self.objset.is_dirty(txg)
            || self.header_edits.lock().iter().any(|(known, _)| *known == txg)
    }
}

/// A pool that is held to be changed.
pub struct ActivePool {
    pub(crate) name: String,
    /// Changes only while a txg is written.
    guid: AtomicU64,
    pub(crate) environment: Environment,
    pub(crate) tree: Arc<VdevTree>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) mos: Objset,
    pub(crate) space: PoolSpace,
    pub(crate) writer: Arc<Writer>,
    /// What was stored early for nothing.
    pub(crate) orphans: Arc<write_through::OrphanBlocks>,
    /// How many long writes are under way.
    active_writers: Arc<AtomicUsize>,
    pub(crate) block_refs: Arc<block_refs::BlockRefs>,
    pub(crate) txgs: Txgs,
    /// Holds clones from snapshots back while a sync task may destroy snapshots.
    snapshot_gate: Arc<TxGate>,
    /// What its features allow to blocks.
    pub(crate) features: EnabledFeatures,
    /// Bytes that datasets may use together, if no block had more than one reference.
    base_space: AtomicU64,
    /// What dedup and cloning add to that, as of the last group on the drives.
    saved_space: AtomicU64,
    /// How many times its size each copy of what is to be written may take.
    asize_inflation: AtomicU64,
    /// Writers that wait for space, one at a time.
    space_queue: space_limits::SpaceQueue,
    pub(crate) config: Mutex<ConfigState>,
    pub(crate) uberblock: RwLock<Uberblock>,
    /// The uberblock of the checkpoint, if the pool has one.
    checkpoint: RwLock<Option<Uberblock>>,
    pub(crate) open_datasets: Mutex<BTreeMap<ObjsetId, Arc<OpenDataset>>>,
    pub(crate) tasks: tasks::SyncTasks,
    pub(crate) owner_accounting: RwLock<Option<Arc<dyn OwnerAccounting>>>,
    /// What goes over the free space of leaves.
    activities: leaf_activity::LeafActivities,
    /// Held by the one who writes a group.
    pub(crate) sync_lock: Mutex<()>,
    /// Which leaves missed what, as far as it was seen.
    pub(crate) faults: Mutex<Vec<LeafError>>,
    /// What drives missed, as the pool has it noted.
    pub(crate) synced_dtls: Mutex<BTreeMap<Guid, TxgRanges>>,
    /// Promises on devices that are not there are given up.
    allow_missing_logs: AtomicBool,
    /// Why no group will be written any more, if that is so.
    pub(crate) fatal_error: RwLock<Option<Error>>,
    /// The second level of the cache.
    pub(crate) l2arc: Arc<L2arc>,
    /// Spares, and cache drives.
    pub(crate) auxiliary: Mutex<auxiliary::AuxiliaryDevices>,
    /// Signs of life for other hosts.
    pub(crate) heartbeat: mmp::Heartbeat,
    /// Whether none can be written for now.
    pub(crate) suspension: Arc<suspend::Suspension>,
    /// What drives gave wrong, to be mended.
    repair_queue: Arc<self_heal::RepairQueue>,
    /// How far the scan has come.
    pub(crate) scan_state: ScanState,
    /// Blocks that could not be repaired.
    pub(crate) error_log: Arc<ErrorLog>,
    /// How a raidz expansion goes on.
    pub(crate) reflow: raidz_expand::ReflowProgress,
    /// The sequential rebuilds that go on, and the last ones.
    rebuilds: rebuild::Rebuilds,
    /// The vdev removal that goes on, or the last one.
    removal: vdev_removal::RemovalState,
    /// Nothing is written, whatever is asked for.
    is_read_only: bool,
    /// The txg to which the pool was taken back, if it was.
    rewound_to: Option<Txg>,
    /// The drives do not know of that yet.
    rewind_pending: AtomicBool,
}

impl std::fmt::Debug for ActivePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Owned('{}', {}, txg {})", self.name, self.guid(), self.txgs.synced_txg())
    }
}

impl ActivePool {
    /// Takes over a pool that was opened on devices that can be written.
    pub fn new(pool: Pool, world: Environment) -> Result<Self, Error> {
        let mos = pool.mos.to_writable();
        Self::with_mos(pool, mos, world)
    }

    /// The same, its own objects being changed already.
    pub(crate) fn with_mos(mut pool: Pool, mos: Objset, world: Environment) -> Result<Self, Error> {
        capacity::fill_biases(&mut pool);
        if let Some(root) = &pool.config.tree {
            offline::drop_out_of_service_devices(&pool.tree, root, pool.uberblock.txg);
        }
        let unsettled = AtomicBool::new(pool.continue_after_newest());
        let space = PoolSpace::load(&pool, &mos)?;
        Ok(Self { rewind_pending: unsettled, ..Self::assemble(pool, mos, space, world)? })
    }

    /// Holds a pool to be looked at only: its devices need not be such as can be written, and it may be
    /// in the midst of what writing could not go on with.
    pub fn new_read_only(mut pool: Pool, world: Environment) -> Result<Self, Error> {
        capacity::fill_biases(&mut pool);
        let mos = pool.mos.to_writable();
        let space = PoolSpace::open_read_only(&pool, &mos);
        let active = Self { is_read_only: true, ..Self::assemble(pool, mos, space, world)? };
        active.txgs.stop();
        Ok(active)
    }

    fn assemble(
        pool: Pool,
        mos: Objset,
        space: PoolSpace,
        world: Environment,
    ) -> Result<Self, Error> {
        let writer = Arc::new(new_writer(&pool, &space, &world));
        let shared = Arc::new(block_refs::BlockRefs::load(&pool, &mos, &world)?);
        writer.set_shared_blocks(Arc::clone(&shared) as Arc<dyn zio::SharedBlocks>);
        let checkpoint = pool.checkpoint()?;
        let activities = leaf_activity::LeafActivities::load(&mos, pool.config.tree.as_ref());
        let rebuilds = rebuild::Rebuilds::load(&pool);
        mos.pin_synced();
        let limits = TxgLimits { sector_size: space_limits::min_allocation(&pool), ..world.limits };
        let groups = Txgs::new(pool.uberblock.txg, limits);
        let standstill = Arc::new(suspend::Suspension::new(groups.clone()));
        pool.reader.set_suspend_gate(Arc::clone(&standstill) as Arc<dyn zio::SuspendGate>);
        let settled = groups.clone();
        let l2arc = Arc::new(L2arc::new(pool.guid, &world.cache, move || settled.synced_txg()));
        pool.reader.set_secondary_cache(Arc::clone(&l2arc) as Arc<dyn zio::SecondaryCache>);
        let error_log = Arc::<ErrorLog>::default();
        let wrongs = Arc::new(self_heal::RepairQueue::new(&error_log));
        pool.reader.set_self_healer(Arc::clone(&wrongs) as Arc<dyn zio::SelfHealer>);
        Ok(Self {
            txgs: groups,
            features: EnabledFeatures::from_pool(&pool.features, pool.uberblock.version),
            base_space: AtomicU64::new(capacity::base_space(&pool)),
            asize_inflation: AtomicU64::new(space_limits::asize_inflation(&pool)),
            saved_space: AtomicU64::new(capacity::saved_space(&pool)),
            synced_dtls: Mutex::new(dtl::rejoin_leaves(&pool)),
            space_queue: space_limits::SpaceQueue::default(),
            name: pool.name,
            guid: AtomicU64::new(pool.guid.get()),
            environment: world,
            tree: pool.tree,
            reader: pool.reader,
            cache: pool.cache,
            mos,
            space,
            writer,
            orphans: Arc::default(),
            active_writers: Arc::default(),
            snapshot_gate: Arc::default(),
            block_refs: shared,
            config: Mutex::new(ConfigState::new(pool.config)),
            uberblock: RwLock::new(pool.uberblock),
            checkpoint: RwLock::new(checkpoint),
            open_datasets: Mutex::default(),
            tasks: tasks::SyncTasks::default(),
            owner_accounting: RwLock::new(None),
            activities,
            sync_lock: Mutex::new(()),
            faults: Mutex::default(),
            allow_missing_logs: AtomicBool::new(false),
            fatal_error: RwLock::new(None),
            l2arc,
            auxiliary: Mutex::new(auxiliary::AuxiliaryDevices::load(&pool.directory)?),
            heartbeat: mmp::Heartbeat::load(&pool.directory)?,
            suspension: standstill,
            repair_queue: wrongs,
            scan_state: ScanState::load(&pool.directory),
            error_log,
            reflow: raidz_expand::ReflowProgress::default(),
            rebuilds,
            removal: vdev_removal::RemovalState::load(&pool.directory)?,
            is_read_only: false,
            rewound_to: pool.rewound_to,
            rewind_pending: AtomicBool::new(false),
        })
    }

    /// Whether packed attributes may stand in intent logs: the pool had the feature zilsaxattr when it
    /// was opened.
    pub fn can_log_saxattr(&self) -> bool {
        self.features.zilsaxattr
    }

    /// Whether it is held to be looked at only.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its labels have another name.
    pub fn has_temporary_name(&self) -> bool {
        self.config.lock().current.name.as_ref().is_some_and(|name| *name != self.name)
    }

    /// Its identity.
    pub fn guid(&self) -> Guid {
        Guid::new(self.guid.load(Ordering::Acquire))
    }

    /// The pool's own object set.
    pub fn mos(&self) -> &Objset {
        &self.mos
    }

    /// Its vdevs.
    pub fn tree(&self) -> &Arc<VdevTree> {
        &self.tree
    }

    /// Where its blocks are read.
    pub fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.cache) as Arc<dyn Source>
    }

    /// How many reads its cache in memory answered, and how many it passed on.
    pub fn cache_hit_counts(&self) -> (u64, u64) {
        self.cache.hit_counts()
    }

    /// Reads its blocks from the drives, past the cache.
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// What writes its blocks.
    pub fn writer(&self) -> &Arc<Writer> {
        &self.writer
    }

    /// What it says of itself.
    pub fn config(&self) -> PoolConfig {
        self.config.lock().current.clone()
    }

    /// Its transaction groups.
    pub fn txgs(&self) -> &Txgs {
        &self.txgs
    }

    /// A hold on the open group; waits while too much is dirty.
    pub fn begin_tx(&self) -> Result<Tx, Error> {
        let otherwise = if self.is_read_only { Error::ImportedReadOnly } else { Error::Closed };
        self.txgs.begin_tx().ok_or_else(|| self.suspend_error().unwrap_or(otherwise))
    }

    /// A hold on the open txg for a change of one dataset. Waits also while the dataset's head is exchanged,
    /// and fails once the dataset is retired.
    pub fn begin_dataset_tx(&self, dataset: &OpenDataset) -> Result<Tx, Error> {
        let otherwise = if self.is_read_only { Error::ImportedReadOnly } else { Error::Closed };
        let begun = self.txgs.begin_gated_tx(&dataset.gate);
        begun.ok_or_else(|| self.suspend_error().unwrap_or(otherwise))
    }

    /// Tells who accounts for owners.
    pub fn set_owner_accounting(&self, accounts: Arc<dyn OwnerAccounting>) {
        for set in self.open_datasets.lock().values() {
            set.objset.set_accounted_flags(accounts.accounting_flags(&set.objset));
        }
        *self.owner_accounting.write() = Some(accounts);
    }

    /// Takes a dataset's content in, to be changed. `objset` is live.
    pub fn open_dataset(&self, objset: Objset, settings: StorageSettings) -> Arc<OpenDataset> {
        let id = objset.id();
        if let Some(accounts) = &*self.owner_accounting.read() {
            objset.set_accounted_flags(accounts.accounting_flags(&objset));
        }
        let settings = StorageSettings { features: self.features, ..settings };
        let settings = Arc::new(RwLock::new(settings));
        objset.set_write_through(Arc::new(write_through::DatasetWriteThrough {
            writer: Arc::clone(&self.writer),
            settings: Arc::clone(&settings),
            orphans: Arc::clone(&self.orphans),
            active_writers: Arc::clone(&self.active_writers),
            workers: self.environment.workers,
        }));
        let set = Arc::new(OpenDataset {
            objset,
            settings,
            log: OnceLock::new(),
            header_edits: Mutex::default(),
            features: Mutex::default(),
            sync_hook: OnceLock::new(),
            gate: Arc::default(),
        });
        self.open_datasets.lock().insert(id, Arc::clone(&set));
        set
    }

    /// The txg to which the pool was taken back when it was taken over, if it was.
    pub fn rewound_to(&self) -> Option<Txg> {
        self.rewound_to
    }

    /// Whether the intent log of a dataset whose key is not there can wait for it.
    pub fn can_defer_log(&self, objset: &Objset) -> bool {
        let header = &objset.header().log;
        let first = self.rewound_to.map_or_else(|| self.txgs.open_txg(), Txg::next);
        zil::can_defer_replay(&self.reader, objset.id(), header, first)
    }

    /// What intent logs may promise on devices that are not there is given up from now on.
    pub fn allow_missing_logs(&self) {
        self.allow_missing_logs.store(true, Ordering::Release);
    }

    /// Gives a dataset its intent log: what an import finds in it is claimed, lest anything take
    /// its place. To be done before anything of the pool is changed. Where nothing is, what it holds
    /// is left alone.
    pub fn open_log(&self, set: &OpenDataset) -> Result<Arc<zil::IntentLog>, Error> {
        if let Some(log) = set.log.get() {
            return Ok(Arc::clone(log));
        }
        let found = || set.objset.synced().header().log.clone();
        let header = if self.is_read_only { LogHeader::default() } else { found() };
        let first = self.txgs.open_txg();
        let forgives = self.allow_missing_logs.load(Ordering::Acquire);
        let claimed = zil::claim_log(&self.writer, set.objset.id(), &header, (first, forgives))?;
        let (writer, groups) = (Arc::clone(&self.writer), self.txgs.clone());
        let log = zil::IntentLog::new(writer, groups, set.objset.clone(), claimed);
        if self.uberblock.read().version < version::SLIM_ZIL {
            log.disable();
        }
        Ok(Arc::clone(set.log.get_or_init(|| Arc::new(log))))
    }

    /// The content of a dataset that was taken in.
    pub fn dataset(&self, id: ObjsetId) -> Option<Arc<OpenDataset>> {
        self.open_datasets.lock().get(&id).cloned()
    }

    /// Lets go of a dataset's content. What waits to be written is lost.
    pub fn close_dataset(&self, id: ObjsetId) {
        if let Some(set) = self.open_datasets.lock().remove(&id) {
            set.retire();
            set.objset.discard_dirty();
        }
    }

    /// Which leaves missed what since this was last asked.
    pub fn drain_faults(&self) -> Vec<LeafError> {
        std::mem::take(&mut self.faults.lock())
    }

    /// Takes all past from the devices, before the first commit.
    pub(crate) fn clear_labels(&self) -> Result<(), Error> {
        let mut faults = Vec::new();
        let result = self.committer().clear_labels(&mut faults);
        self.faults.lock().append(&mut faults);
        result
    }

    fn committer(&self) -> TxgCommitter<'_> {
        let config = self.config.lock();
        let tops = config.current.tree.iter().flat_map(|root| &root.children);
        let logs = tops.filter(|top| top.is_log).map(|top| top.guid).collect();
        TxgCommitter { tree: &self.tree, logs, multihost: self.has_heartbeat() }
    }
}

/// The writer of blocks. RAID-Z sizes are rounded as the pool's deflate table says.
fn new_writer(pool: &Pool, space: &PoolSpace, environment: &Environment) -> Writer {
    Writer::new(
        Arc::clone(&pool.reader),
        Arc::clone(space.allocator()),
        deflate::rounding(pool),
        Arc::clone(&environment.random),
    )
}
