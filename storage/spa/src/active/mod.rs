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
mod failure;
mod history;
mod identity;
mod leaf_activity;
mod log_vdevs;
mod mmp;
mod offline;
mod open_dataset;
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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc::{Cache, L2arc, MemoryBudget};
use dmu::{DnodeChange, Objset};
use dsl::write::Moment;
use lock::{Mutex, RwLock, rank};
use ondisk::dnode::Flags;
use ondisk::label::PoolConfig;
use ondisk::objset::LogHeader;
use ondisk::uberblock::Uberblock;
use ondisk::version;
use txg::{Tx, TxGate, TxgLimits, Txgs};
use units::{Guid, ObjsetId, Txg};
use vdev::{LeafError, TxgRanges, VdevTree};
use zio::{Reader, Source, Writer};

use crate::commit::TxgCommitter;
use crate::scan::{ErrorLog, ScanState, SortMemory};
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
pub use leaf_activity::{ActivityCommand, ActivityKind, ActivityStep, LeafProgress};
pub use mmp::FAIL_INTERVALS as SIGNS_MISSED;
pub use offline::{OfflineResult, out_of_service_leaves};
pub use open_dataset::OpenDataset;
pub use policy::{EnabledFeatures, RedundantMetadata, StorageSettings};
pub use raidz_expand::{ExpandError, ExpansionStatus, ReflowEnd};
pub use rebuild::RebuildStatus;
pub use space_limits::SpaceTurn;
pub use split::{SplitDevice, SplitError};
pub use synced_mos::SyncedMos;
pub use vdev_removal::{CondenseLimits, RemovalEnd, RemovalError, RemovalStatus};

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

/// A pool that is held to be changed.
pub struct ActivePool {
    name: String,
    /// Changes only while a txg is written.
    guid: AtomicU64,
    environment: Environment,
    tree: Arc<VdevTree>,
    reader: Arc<Reader>,
    cache: Arc<Cache>,
    mos: Objset,
    space: PoolSpace,
    writer: Arc<Writer>,
    /// What was stored early for nothing.
    orphans: Arc<write_through::OrphanBlocks>,
    /// How many long writes are under way.
    active_writers: Arc<AtomicUsize>,
    block_refs: Arc<block_refs::BlockRefs>,
    txgs: Txgs,
    /// Holds clones from snapshots back while a sync task may destroy snapshots.
    snapshot_gate: Arc<TxGate>,
    /// What its features allow to blocks.
    features: EnabledFeatures,
    /// Bytes that datasets may use together, if no block had more than one reference.
    base_space: AtomicU64,
    /// What dedup and cloning add to that, as of the last group on the drives.
    saved_space: AtomicU64,
    /// How many times its size each copy of what is to be written may take.
    asize_inflation: AtomicU64,
    /// Writers that wait for space, one at a time.
    space_queue: space_limits::SpaceQueue,
    config: Mutex<ConfigState, { rank::CONFIG }>,
    uberblock: RwLock<Uberblock, { rank::UBERBLOCK }>,
    /// The uberblock of the checkpoint, if the pool has one.
    checkpoint: RwLock<Option<Uberblock>, { rank::CHECKPOINT }>,
    /// Whether the next txg frees some of the space of a discarded checkpoint.
    discard_is_due: AtomicBool,
    open_datasets: open_dataset::OpenDatasets,
    tasks: tasks::SyncTasks,
    /// What goes over the free space of leaves.
    activities: leaf_activity::LeafActivities,
    /// Held by the one who writes a group.
    sync_lock: Mutex<(), { rank::SYNC }>,
    /// Which leaves missed what, as far as it was seen.
    faults: Mutex<Vec<LeafError>, { rank::FAULTS }>,
    /// What drives missed, as the pool has it noted.
    synced_dtls: Mutex<BTreeMap<Guid, TxgRanges>, { rank::SYNCED_DTLS }>,
    /// Promises on devices that are not there are given up.
    allow_missing_logs: AtomicBool,
    /// Why no group will be written any more, if that is so.
    fatal_error: failure::FatalError,
    /// The second level of the cache.
    l2arc: Arc<L2arc>,
    /// Spares, and cache drives.
    auxiliary: Mutex<auxiliary::AuxiliaryDevices, { rank::AUXILIARY }>,
    /// Signs of life for other hosts.
    heartbeat: mmp::Heartbeat,
    /// Whether none can be written for now.
    suspension: Arc<suspend::Suspension>,
    /// What drives gave wrong, to be mended.
    repair_queue: Arc<self_heal::RepairQueue>,
    /// How far the scan has come.
    scan_state: ScanState,
    /// Blocks that could not be repaired.
    error_log: ErrorLog,
    /// How a raidz expansion goes on.
    reflow: raidz_expand::ReflowProgress,
    /// The sequential rebuilds that go on, and the last ones.
    rebuilds: rebuild::Rebuilds,
    /// The vdev removal that goes on, or the last one.
    removal: vdev_removal::RemovalState,
    /// Memory for the blocks that a scan sorts.
    scan_memory: SortMemory,
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
        let active = Self::assemble(pool, mos, space, world)?;
        active.unspare_returned();
        Ok(Self { rewind_pending: unsettled, ..active })
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
        let wrongs = Arc::<self_heal::RepairQueue>::default();
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
            discard_is_due: AtomicBool::new(false),
            open_datasets: open_dataset::OpenDatasets::default(),
            tasks: tasks::SyncTasks::default(),
            activities,
            sync_lock: Mutex::new(()),
            faults: Mutex::default(),
            allow_missing_logs: AtomicBool::new(false),
            fatal_error: failure::FatalError::default(),
            l2arc,
            auxiliary: Mutex::new(auxiliary::AuxiliaryDevices::load(&pool.directory)?),
            heartbeat: mmp::Heartbeat::load(&pool.directory)?,
            suspension: standstill,
            repair_queue: wrongs,
            scan_state: ScanState::load(&pool.directory),
            error_log: ErrorLog::default(),
            reflow: raidz_expand::ReflowProgress::default(),
            rebuilds,
            removal: vdev_removal::RemovalState::load(&pool.directory)?,
            scan_memory: SortMemory::default(),
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

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// How far the scan has come.
    pub(crate) fn scan_state(&self) -> &ScanState {
        &self.scan_state
    }

    /// Blocks that could not be repaired.
    pub(crate) fn error_log(&self) -> &ErrorLog {
        &self.error_log
    }

    /// Memory for the blocks that a scan sorts.
    pub(crate) fn scan_memory(&self) -> &SortMemory {
        &self.scan_memory
    }

    /// Does something while no txg is written.
    pub(crate) fn between_txgs<T>(&self, work: impl FnOnce() -> T) -> T {
        let _no_txg_is_written = self.sync_lock.lock();
        work()
    }

    /// Has the next txg write the configuration.
    pub(crate) fn touch_config(&self) {
        self.config.lock().is_dirty = true;
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
        let begun = self.txgs.begin_gated_tx(dataset.gate());
        begun.ok_or_else(|| self.suspend_error().unwrap_or(otherwise))
    }

    /// Tells who accounts for owners.
    pub fn set_owner_accounting(&self, accounts: Arc<dyn OwnerAccounting>) {
        self.open_datasets.set_accounting(accounts);
    }

    /// Takes a dataset's content in, to be changed. `objset` is live.
    pub fn open_dataset(&self, objset: Objset, settings: StorageSettings) -> Arc<OpenDataset> {
        let settings = StorageSettings { features: self.features, ..settings };
        let settings = Arc::new(RwLock::new(settings));
        objset.set_write_through(Arc::new(write_through::DatasetWriteThrough {
            writer: Arc::clone(&self.writer),
            settings: Arc::clone(&settings),
            orphans: Arc::clone(&self.orphans),
            active_writers: Arc::clone(&self.active_writers),
            workers: self.environment.workers,
        }));
        let set = Arc::new(OpenDataset::new(objset, settings));
        self.open_datasets.insert(&set);
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
        if let Some(log) = set.log() {
            return Ok(Arc::clone(log));
        }
        let found = || set.objset().synced().header().log.clone();
        let header = if self.is_read_only { LogHeader::default() } else { found() };
        let first = self.txgs.open_txg();
        let forgives = self.allow_missing_logs.load(Ordering::Acquire);
        let claimed = zil::claim_log(&self.writer, set.objset().id(), &header, (first, forgives))?;
        let (writer, groups) = (Arc::clone(&self.writer), self.txgs.clone());
        let log = zil::IntentLog::new(writer, groups, set.objset().clone(), claimed);
        if self.uberblock.read().version < version::SLIM_ZIL {
            log.disable();
        }
        Ok(set.set_log(log))
    }

    /// The content of a dataset that was taken in.
    pub fn dataset(&self, id: ObjsetId) -> Option<Arc<OpenDataset>> {
        self.open_datasets.find(id)
    }

    /// Lets go of a dataset's content. What waits to be written is lost.
    pub fn close_dataset(&self, id: ObjsetId) {
        if let Some(set) = self.open_datasets.remove(id) {
            set.retire();
            set.objset().discard_dirty();
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
