//! A pool that is held to be changed.
//!
//! There is one [`Owned`] of a pool in the world. Contents of datasets change at any time, in the
//! open transaction group; the pool's own objects change only while a group is written
//! ([`Owned::sync`]), by the tasks that were handed in for it and by the writing itself.

mod account;
mod auxiliary;
mod away;
mod back;
mod config;
mod drives;
mod early;
mod heal;
mod history;
mod leave;
mod look;
mod policy;
mod room;
mod shared;
mod signs;
mod standstill;
mod sync;
mod tasks;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc::{Cache, L2arc, MemoryBudget};
use dmu::{DnodeChange, Objset};
use dsl::write::Moment;
use ondisk::dnode::Flags;
use ondisk::feature::Feature;
use ondisk::label::PoolConfig;
use ondisk::objset::LogHeader;
use ondisk::uberblock::Uberblock;
use ondisk::version;
use parking_lot::{Mutex, RwLock};
use txg::{Tx, TxgLimits, Txgs};
use units::{Guid, ObjsetId, Txg};
use vdev::{LeafError, TxgRanges, VdevTree};
use zio::{Reader, Source, Writer};

use crate::commit::Commit;
use crate::space::Space;
use crate::{Error, Pool, capacity};

pub(crate) use account::deflated_copy;
pub(crate) use config::put_packed;
pub use drives::{NewSide, Refusal, Stay};
pub(crate) use history::write_down;
pub use look::Look;
pub use policy::{Allowed, Redundant, Settings};
pub use signs::FAILS as SIGNS_MISSED;

/// What of the world outside a pool needs that is changed. It comes in at the door.
#[derive(Clone)]
pub struct World {
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

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({} workers)", self.workers)
    }
}

impl World {
    /// Any number.
    pub fn number(&self) -> u64 {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// What the floors above add to the writing of a dataset: who owns how much.
pub trait Accounts: Send + Sync {
    /// How the objects of a set are marked of which account is kept.
    fn marks(&self, objset: &Objset) -> Flags;

    /// Objects were changed; the tables of what owners use are changed with them, in the same
    /// group.
    fn account(&self, objset: &Objset, tx: &Tx, changed: &[DnodeChange]) -> Result<(), Error>;
}

/// A dataset whose content is being changed.
pub struct Set {
    /// Its content.
    pub objset: Objset,
    /// How it is stored.
    settings: Arc<RwLock<Settings>>,
    /// Its intent log.
    pub log: OnceLock<Arc<zil::IntentLog>>,
    /// Changes to its root block that wait for the next sync.
    edits: Mutex<Vec<Edit>>,
    /// Features that changes of open txgs begin to use.
    features: Mutex<Vec<(Txg, &'static Feature)>>,
    /// Nothing of it is written any more.
    retired: AtomicBool,
}

/// A change to a root block.
type Edit = (Txg, Box<dyn FnOnce(&mut ondisk::objset::ObjsetHeader) + Send>);

impl Set {
    /// Changes the root block of the set with the group of `tx`.
    pub fn edit(
        &self,
        tx: &Tx,
        change: impl FnOnce(&mut ondisk::objset::ObjsetHeader) + Send + 'static,
    ) {
        self.edits.lock().push((tx.txg(), Box::new(change)));
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
    fn take_features(&self, txg: Txg) -> Vec<&'static Feature> {
        let mut features = self.features.lock();
        let (due, later) = features.drain(..).partition(|(known, _)| *known <= txg);
        *features = later;
        due.into_iter().map(|(_, feature)| feature).collect()
    }

    /// Has it stored otherwise from now on; what the pool's features allow, and the key, stay.
    pub fn configure(&self, settings: Settings) {
        let mut now = self.settings.write();
        let key = settings.key.or_else(|| now.key.clone());
        *now = Settings { features: now.features, key, ..settings };
    }

    /// Has promises kept by whole groups, instead of the intent log, or by the log again.
    pub fn pause_log(&self, paused: bool) {
        if let Some(log) = self.log.get() {
            log.set_paused(paused);
        }
    }

    /// Takes no changes any more. What waits to be written may still be.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Whether it takes no changes any more.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    fn is_dirty(&self, txg: Txg) -> bool {
        let logged = self.log.get().is_some_and(|log| log.is_dirty(txg));
        logged
            || self.objset.is_dirty(txg)
            || self.edits.lock().iter().any(|(known, _)| *known == txg)
    }
}

/// A pool that is held to be changed.
pub struct Owned {
    pub(crate) name: String,
    pub(crate) guid: Guid,
    pub(crate) world: World,
    pub(crate) tree: Arc<VdevTree>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) mos: Objset,
    pub(crate) space: Space,
    pub(crate) writer: Arc<Writer>,
    /// What was stored early for nothing.
    pub(crate) unwanted: Arc<early::Unwanted>,
    /// How many long writes are under way.
    writers: Arc<AtomicUsize>,
    pub(crate) shared: Arc<shared::Shared>,
    pub(crate) groups: Txgs,
    /// What its features allow to blocks.
    pub(crate) allowed: Allowed,
    /// Bytes that datasets may use together, if no block had more than one reference.
    bare: u64,
    /// What dedup and cloning add to that, as of the last group on the drives.
    saved: AtomicU64,
    /// How many times its size each copy of what is to be written may take.
    worst: u64,
    pub(crate) config: Mutex<Config>,
    pub(crate) uberblock: RwLock<Uberblock>,
    pub(crate) sets: Mutex<BTreeMap<ObjsetId, Arc<Set>>>,
    pub(crate) tasks: tasks::Tasks,
    /// What the MOS used more in the last group, to be written with the next.
    pub(crate) mos_growth: Mutex<dsl::write::Space>,
    pub(crate) accounts: RwLock<Option<Arc<dyn Accounts>>>,
    /// Held by the one who writes a group.
    pub(crate) writing: Mutex<()>,
    /// Which leaves missed what, as far as it was seen.
    pub(crate) faults: Mutex<Vec<LeafError>>,
    /// What drives missed, as the pool has it noted.
    pub(crate) noted: Mutex<BTreeMap<Guid, TxgRanges>>,
    /// Promises on devices that are not there are given up.
    forgives: AtomicBool,
    /// Why no group will be written any more, if that is so.
    pub(crate) trouble: RwLock<Option<Error>>,
    /// The second level of the cache.
    pub(crate) l2arc: Arc<L2arc>,
    /// Spares, and cache drives.
    pub(crate) auxiliary: Mutex<auxiliary::Kept>,
    /// Signs of life for other hosts.
    pub(crate) signs: signs::Signs,
    /// Whether none can be written for now.
    pub(crate) standstill: Arc<standstill::Standstill>,
    /// What drives gave wrong, to be mended.
    wrongs: Arc<heal::Wrongs>,
    /// Nothing is written, whatever is asked for.
    is_still: bool,
    /// The txg to which the pool was taken back, if it was.
    taken_back: Option<Txg>,
    /// The drives do not know of that yet.
    unsettled: AtomicBool,
}

/// The pool's configuration, and whether the pool and its labels have it.
pub(crate) struct Config {
    pub(crate) now: PoolConfig,
    pub(crate) changed: bool,
    /// As the group that is being written has it, if that is news: its labels are to say the same.
    pub(crate) written: Option<PoolConfig>,
}

impl std::fmt::Debug for Owned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Owned('{}', {}, txg {})", self.name, self.guid, self.groups.synced_txg())
    }
}

impl Owned {
    /// Takes over a pool that was opened on devices that can be written.
    pub fn new(pool: Pool, world: World) -> Result<Self, Error> {
        let mos = pool.mos.to_writable();
        Self::over(pool, mos, world)
    }

    /// The same, its own objects being changed already.
    pub(crate) fn over(mut pool: Pool, mos: Objset, world: World) -> Result<Self, Error> {
        capacity::complete_biases(&mut pool);
        let unsettled = AtomicBool::new(pool.go_on());
        let space = Space::load(&pool, &mos)?;
        Ok(Self { unsettled, ..Self::with(pool, mos, space, world)? })
    }

    /// Holds a pool to be looked at only: its devices need not be such as can be written, and it may be
    /// in the midst of what writing could not go on with.
    pub fn still(mut pool: Pool, world: World) -> Result<Self, Error> {
        capacity::complete_biases(&mut pool);
        let mos = pool.mos.to_writable();
        let space = Space::still(&pool, &mos);
        let owned = Self { is_still: true, ..Self::with(pool, mos, space, world)? };
        owned.groups.stop();
        Ok(owned)
    }

    fn with(pool: Pool, mos: Objset, space: Space, world: World) -> Result<Self, Error> {
        let rounding = account::rounding(&pool);
        let writer = Arc::new(Writer::new(
            Arc::clone(&pool.reader),
            Arc::clone(space.allocator()),
            rounding,
            Arc::clone(&world.random),
        ));
        let leaves = pool.tree.leaves();
        let noted = leaves.iter().map(|leaf| (leaf.guid(), leaf.dtl())).collect();
        let shared = Arc::new(shared::Shared::load(&pool, &mos, &world)?);
        writer.set_shared_blocks(Arc::clone(&shared) as Arc<dyn zio::SharedBlocks>);
        // what a leaf missed while it was away is known; from now on it takes part
        for leaf in pool.tree.writable_leaves() {
            leaf.rejoin(pool.uberblock.txg);
        }
        let (bare, usable) = (capacity::bare(&pool), capacity::usable(&pool));
        mos.pin_synced();
        let signs = signs::Signs::of(&pool.directory)?;
        let limits = TxgLimits { sector_size: room::sector(&pool), ..world.limits };
        let groups = Txgs::new(pool.uberblock.txg, limits);
        let standstill = Arc::new(standstill::Standstill::new(groups.clone()));
        pool.reader.set_suspend_gate(Arc::clone(&standstill) as Arc<dyn zio::SuspendGate>);
        let settled = groups.clone();
        let l2arc = Arc::new(L2arc::new(pool.guid, &world.cache, move || settled.synced_txg()));
        pool.reader.set_secondary_cache(Arc::clone(&l2arc) as Arc<dyn zio::SecondaryCache>);
        let wrongs = Arc::<heal::Wrongs>::default();
        pool.reader.set_self_healer(Arc::clone(&wrongs) as Arc<dyn zio::SelfHealer>);
        let auxiliary = Mutex::new(auxiliary::Kept::of(&pool.directory)?);
        Ok(Self {
            groups,
            allowed: Allowed::of(&pool.features, pool.uberblock.version),
            bare,
            worst: room::worst(&pool),
            saved: AtomicU64::new(usable.saturating_sub(bare)),
            name: pool.name,
            guid: pool.guid,
            world,
            tree: pool.tree,
            reader: pool.reader,
            cache: pool.cache,
            mos,
            space,
            writer,
            unwanted: Arc::default(),
            writers: Arc::default(),
            shared,
            config: Mutex::new(Config { now: pool.config, changed: false, written: None }),
            uberblock: RwLock::new(pool.uberblock),
            sets: Mutex::default(),
            tasks: tasks::Tasks::default(),
            mos_growth: Mutex::default(),
            accounts: RwLock::new(None),
            writing: Mutex::new(()),
            faults: Mutex::default(),
            noted: Mutex::new(noted),
            forgives: AtomicBool::new(false),
            trouble: RwLock::new(None),
            l2arc,
            auxiliary,
            signs,
            standstill,
            wrongs,
            is_still: false,
            taken_back: pool.taken_back,
            unsettled: AtomicBool::new(false),
        })
    }

    /// Whether packed attributes may stand in intent logs: the pool had the feature zilsaxattr when it
    /// was opened.
    pub fn may_log_packed(&self) -> bool {
        self.allowed.packed_logs
    }

    /// Whether it is held to be looked at only.
    pub fn is_still(&self) -> bool {
        self.is_still
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its labels have another name.
    pub fn is_called_otherwise(&self) -> bool {
        self.config.lock().now.name.as_ref().is_some_and(|name| *name != self.name)
    }

    /// Its identity.
    pub fn guid(&self) -> Guid {
        self.guid
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
    pub fn cache_counts(&self) -> (u64, u64) {
        self.cache.hit_counts()
    }

    /// What writes its blocks.
    pub fn writer(&self) -> &Arc<Writer> {
        &self.writer
    }

    /// What it says of itself.
    pub fn config(&self) -> PoolConfig {
        self.config.lock().now.clone()
    }

    /// Its transaction groups.
    pub fn groups(&self) -> &Txgs {
        &self.groups
    }

    /// A hold on the open group; waits while too much is dirty.
    pub fn begin(&self) -> Result<Tx, Error> {
        let otherwise = if self.is_still { Error::Still } else { Error::Closed };
        self.groups.begin_tx().ok_or_else(|| self.trouble().unwrap_or(otherwise))
    }

    /// Tells who accounts for owners.
    pub fn set_accounts(&self, accounts: Arc<dyn Accounts>) {
        for set in self.sets.lock().values() {
            set.objset.set_accounted_flags(accounts.marks(&set.objset));
        }
        *self.accounts.write() = Some(accounts);
    }

    /// Takes a dataset's content in, to be changed. `objset` is live.
    pub fn adopt(&self, objset: Objset, settings: Settings) -> Arc<Set> {
        let id = objset.id();
        if let Some(accounts) = &*self.accounts.read() {
            objset.set_accounted_flags(accounts.marks(&objset));
        }
        let settings = Settings { features: self.allowed, ..settings };
        let settings = Arc::new(RwLock::new(settings));
        objset.set_write_through(Arc::new(early::Ahead {
            writer: Arc::clone(&self.writer),
            settings: Arc::clone(&settings),
            unwanted: Arc::clone(&self.unwanted),
            writers: Arc::clone(&self.writers),
            workers: self.world.workers,
        }));
        let set = Arc::new(Set {
            objset,
            settings,
            log: OnceLock::new(),
            edits: Mutex::default(),
            features: Mutex::default(),
            retired: AtomicBool::new(false),
        });
        self.sets.lock().insert(id, Arc::clone(&set));
        set
    }

    /// The txg to which the pool was taken back when it was taken over, if it was.
    pub fn taken_back(&self) -> Option<Txg> {
        self.taken_back
    }

    /// Whether the intent log of a dataset whose key is not there can wait for it.
    pub fn log_can_wait(&self, objset: &Objset) -> bool {
        let header = &objset.header().log;
        let first = self
            .taken_back
            .map_or_else(|| self.groups.open_txg(), |txg| Txg::new(txg.get().saturating_add(1)));
        zil::can_defer_replay(&self.reader, objset.id(), header, first)
    }

    /// What intent logs may promise on devices that are not there is given up from now on.
    pub fn forgive(&self) {
        self.forgives.store(true, Ordering::Release);
    }

    /// Gives a dataset its intent log: what an import finds in it is claimed, lest anything take
    /// its place. To be done before anything of the pool is changed. Where nothing is, what it holds
    /// is left alone.
    pub fn begin_log(&self, set: &Set) -> Result<Arc<zil::IntentLog>, Error> {
        if let Some(log) = set.log.get() {
            return Ok(Arc::clone(log));
        }
        let found = || set.objset.synced().header().log.clone();
        let header = if self.is_still { LogHeader::default() } else { found() };
        let first = self.groups.open_txg();
        let forgives = self.forgives.load(Ordering::Acquire);
        let claimed = zil::claim_log(&self.writer, set.objset.id(), &header, (first, forgives))?;
        let (writer, groups) = (Arc::clone(&self.writer), self.groups.clone());
        let log = zil::IntentLog::new(writer, groups, set.objset.clone(), claimed);
        if self.uberblock.read().version < version::SLIM_ZIL {
            log.disable();
        }
        Ok(Arc::clone(set.log.get_or_init(|| Arc::new(log))))
    }

    /// The content of a dataset that was taken in.
    pub fn set(&self, id: ObjsetId) -> Option<Arc<Set>> {
        self.sets.lock().get(&id).cloned()
    }

    /// Lets go of a dataset's content. What waits to be written is lost.
    pub fn forget(&self, id: ObjsetId) {
        if let Some(set) = self.sets.lock().remove(&id) {
            set.retire();
            set.objset.discard_dirty();
        }
    }

    /// Which leaves missed what since this was last asked.
    pub fn take_faults(&self) -> Vec<LeafError> {
        std::mem::take(&mut self.faults.lock())
    }

    /// Takes all past from the devices, before the first commit.
    pub(crate) fn blank_labels(&self) -> Result<(), Error> {
        let mut faults = Vec::new();
        let result = self.commit().blank(&mut faults);
        self.faults.lock().append(&mut faults);
        result
    }

    fn commit(&self) -> Commit<'_> {
        let config = self.config.lock();
        let tops = config.now.tree.iter().flat_map(|root| &root.children);
        let logs = tops.filter(|top| top.is_log).map(|top| top.guid).collect();
        Commit { tree: &self.tree, logs, multihost: self.gives_signs() }
    }
}
