//! Backup repositories: snapshots as raw blocks in a folder or a bucket.
//!
//! [`Streams::back_up`](crate::pool::Streams::back_up) adds snapshots of an imported pool. A [`BackupRepository`] is read without
//! any pool: it lists snapshots, opens them like datasets ([`crate::files::DatasetCatalog`]), verifies and
//! prunes them.

mod catalog;
mod keys;
mod send;

use std::sync::Arc;

use arc::{Cache, MemoryBudget};
use job::Job;
use parking_lot::Mutex;
pub use repository::{
    BackupCounts, CheckOptions, CheckReport, Damage, ObjectInfo, ObjectStore, ProtectReport,
    PruneOptions, PruneReport, SnapshotSummary, StoreError, memory::Faults, memory::MemoryStore,
    memory::SingleFault,
};

use crate::pool::{FillRandom, Random};
use crate::{Error, Result};
use keys::LoadedKeys;
pub use send::RepositorySend;
pub(crate) use send::feature_names;

/// Bytes of decoded blocks that a repository keeps in memory, most of them metadata.
const CACHE_BYTES: usize = 128 << 20;

/// A backup repository. Cheap to clone.
#[derive(Clone)]
pub struct BackupRepository(Arc<Inner>);

struct Inner {
    repository: repository::Repository,
    keys: LoadedKeys,
    budget: MemoryBudget,
    /// The caches before the blocks of pools, by the guids of these.
    caches: Mutex<Vec<(u64, Arc<Cache>)>>,
}

impl BackupRepository {
    /// Creates a repository in a store that has none. `now` is in seconds since 1970.
    pub fn create(store: Arc<dyn ObjectStore>, random: &Arc<FillRandom>, now: u64) -> Result<Self> {
        let random = Random(Arc::clone(random));
        Ok(Self::new(
            repository::Repository::create(store, &random, now)
                .map_err(Error::from_repository_error)?,
        ))
    }

    /// Opens the repository in a store.
    pub fn open(store: Arc<dyn ObjectStore>) -> Result<Self> {
        repository::Repository::open(store).map(Self::new).map_err(Error::from_repository_error)
    }

    fn new(repository: repository::Repository) -> Self {
        let (keys, caches) = Default::default();
        let budget = MemoryBudget::with_bytes(CACHE_BYTES);
        Self(Arc::new(Inner { repository, keys, budget, caches }))
    }

    /// The manifest of a snapshot.
    fn manifest(&self, snapshot: &SnapshotSummary) -> Result<repository::Manifest> {
        self.0.repository.manifest(snapshot).map_err(Error::from_repository_error)
    }

    pub(crate) fn inner(&self) -> &repository::Repository {
        &self.0.repository
    }

    /// The repository's ID.
    pub fn id(&self) -> &str {
        self.0.repository.id()
    }

    /// The address of the store.
    pub fn location(&self) -> String {
        self.0.repository.location()
    }

    /// The snapshots, by dataset and age.
    pub fn snapshots(&self) -> Vec<SnapshotSummary> {
        let mut snapshots = self.0.repository.head().snapshots.clone();
        snapshots.sort_by(|a, b| (&a.dataset, a.pool, a.txg).cmp(&(&b.dataset, b.pool, b.txg)));
        snapshots
    }

    /// Bytes of blocks in the repository.
    pub fn stored_bytes(&self) -> u64 {
        self.0.repository.head().index.iter().map(|object| object.bytes).sum()
    }

    /// Verifies every block that a snapshot needs.
    pub fn check(&self, options: CheckOptions, job: &Job) -> Result<CheckReport> {
        self.0.repository.check(options, job).map_err(Error::from_repository_error)
    }

    /// Protects all objects that the snapshots need from deletion until a time in seconds since 1970 (object lock).
    pub fn protect(&self, until: u64, job: &Job) -> Result<ProtectReport> {
        self.0.repository.protect(until, job).map_err(Error::from_repository_error)
    }

    /// Removes the snapshots that `is_removed` names, and the blocks that no other snapshot needs. `now` is in
    /// seconds since 1970.
    pub fn prune(
        &self,
        is_removed: &dyn Fn(&SnapshotSummary) -> bool,
        options: PruneOptions,
        random: &Arc<FillRandom>,
        now: u64,
        job: &Job,
    ) -> Result<PruneReport> {
        let random: Arc<dyn zio::Random> = Arc::new(Random(Arc::clone(random)));
        let pruned = self.0.repository.prune(is_removed, options, &random, now, job);
        pruned.map_err(Error::from_repository_error)
    }
}

impl Error {
    /// Something of a repository that failed.
    pub(crate) fn from_repository_error(error: repository::Error) -> Self {
        match error {
            repository::Error::Cancelled => Self::Interrupted,
            repository::Error::NoSuchSnapshot { name, location } => {
                Self::NotFound { what: format!("snapshot '{name}' in {location}") }
            }
            repository::Error::Corrupt { location, object, why } => {
                let subject = format!("the object '{object}' of {location}");
                Self::Unreadable { subject, why }
            }
            repository::Error::Block { snapshot, why } => {
                Self::Unreadable { subject: format!("'{snapshot}'"), why: why.to_string() }
            }
            repository::Error::Version { .. } => Self::Unsupported { what: error.to_string() },
            other => Self::Refused { what: other.to_string() },
        }
    }
}
