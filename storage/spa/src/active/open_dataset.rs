//! The datasets that are open for changes: each with its settings, its intent log and the changes of its next sync.
//!
//! No lock of this file is held while another is taken, nor during I/O. The table of datasets is copied before its
//! entries are used.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use dmu::Objset;
use dsl::write::SyncTaskContext;
use lock::{Mutex, RwLock, rank};
use ondisk::feature::Feature;
use ondisk::objset::ObjsetHeader;
use txg::{Tx, TxGate};
use units::{ObjsetId, Txg};

use super::{OwnerAccounting, StorageSettings};

/// A dataset that is open for changes.
pub struct OpenDataset {
    /// Its content.
    objset: Objset,
    /// How it is stored.
    settings: SharedSettings,
    /// Its intent log.
    log: OnceLock<Arc<zil::IntentLog>>,
    /// Changes to its root block that wait for the next sync.
    header_edits: Mutex<Vec<HeaderEdit>, { rank::HEADER_EDITS }>,
    /// Features that changes of open txgs begin to use.
    features: Mutex<Vec<(Txg, &'static Feature)>, { rank::DATASET_FEATURES }>,
    /// Runs with each sync of the dataset.
    sync_hook: OnceLock<DatasetSyncHook>,
    /// Holds its transactions back while its head is exchanged; retired with the dataset.
    gate: Arc<TxGate>,
}

/// How a dataset is stored, as the writers of its blocks see it too.
pub(super) type SharedSettings = Arc<RwLock<StorageSettings, { rank::SETTINGS }>>;

/// A function that runs with each sync of a dataset, after its content was written.
type DatasetSyncHook = Box<dyn Fn(&SyncTaskContext<'_>) -> Result<(), dsl::Error> + Send + Sync>;

/// A change to a root block.
type HeaderEdit = (Txg, Box<dyn FnOnce(&mut ObjsetHeader) + Send>);

impl OpenDataset {
    pub(super) fn new(objset: Objset, settings: SharedSettings) -> Self {
        Self {
            objset,
            settings,
            log: OnceLock::new(),
            header_edits: Mutex::default(),
            features: Mutex::default(),
            sync_hook: OnceLock::new(),
            gate: Arc::default(),
        }
    }

    /// Its content.
    pub const fn objset(&self) -> &Objset {
        &self.objset
    }

    /// Its intent log, if it was opened.
    pub(super) fn log(&self) -> Option<&Arc<zil::IntentLog>> {
        self.log.get()
    }

    /// Gives it its intent log, unless it has one. Returns the one that it has.
    pub(super) fn set_log(&self, log: zil::IntentLog) -> Arc<zil::IntentLog> {
        Arc::clone(self.log.get_or_init(|| Arc::new(log)))
    }

    /// How it is stored at this moment.
    pub(super) fn settings(&self) -> StorageSettings {
        self.settings.read().clone()
    }

    /// Changes the root block of the set with the group of `tx`.
    pub fn edit_header(&self, tx: &Tx, change: impl FnOnce(&mut ObjsetHeader) + Send + 'static) {
        self.header_edits.lock().push((tx.txg(), Box::new(change)));
    }

    /// Removes the changes to the root block of txgs up to that one, and returns them.
    pub(super) fn drain_header_edits(&self, txg: Txg) -> Vec<HeaderEdit> {
        let mut edits = self.header_edits.lock();
        let (due, later) = edits.drain(..).partition(|(known, _)| *known <= txg);
        *edits = later;
        due
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
    pub(super) fn drain_features(&self, txg: Txg) -> Vec<&'static Feature> {
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

    pub(super) fn run_sync_hook(&self, change: &SyncTaskContext<'_>) -> Result<(), dsl::Error> {
        self.sync_hook.get().map_or(Ok(()), |hook| hook(change))
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

    /// Whether it has changes of a txg.
    pub(super) fn is_dirty(&self, txg: Txg) -> bool {
        let logged = self.log.get().is_some_and(|log| log.is_dirty(txg));
        logged
            || self.objset.is_dirty(txg)
            || self.header_edits.lock().iter().any(|(known, _)| *known == txg)
    }
}

/// The open datasets of a pool, and who accounts for the owners of their files.
#[derive(Default)]
pub(super) struct OpenDatasets {
    sets: Mutex<BTreeMap<ObjsetId, Arc<OpenDataset>>, { rank::OPEN_DATASETS }>,
    accounting: RwLock<Option<Arc<dyn OwnerAccounting>>, { rank::ACCOUNTING }>,
}

impl OpenDatasets {
    pub(super) fn find(&self, id: ObjsetId) -> Option<Arc<OpenDataset>> {
        self.sets.lock().get(&id).cloned()
    }

    /// All of them, in the order of their object sets.
    pub(super) fn all(&self) -> Vec<Arc<OpenDataset>> {
        self.sets.lock().values().cloned().collect()
    }

    /// Adds one; it takes the place of an earlier one of the same object set.
    pub(super) fn insert(&self, set: &Arc<OpenDataset>) {
        if let Some(accounting) = self.accounting() {
            set.objset.set_accounted_flags(accounting.accounting_flags(&set.objset));
        }
        self.sets.lock().insert(set.objset.id(), Arc::clone(set));
    }

    pub(super) fn remove(&self, id: ObjsetId) -> Option<Arc<OpenDataset>> {
        self.sets.lock().remove(&id)
    }

    pub(super) fn accounting(&self) -> Option<Arc<dyn OwnerAccounting>> {
        self.accounting.read().clone()
    }

    /// Says who accounts for owners, also of the datasets that are open already.
    pub(super) fn set_accounting(&self, accounting: Arc<dyn OwnerAccounting>) {
        for set in self.all() {
            set.objset.set_accounted_flags(accounting.accounting_flags(&set.objset));
        }
        *self.accounting.write() = Some(accounting);
    }
}
