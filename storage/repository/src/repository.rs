//! A repository in a store: creating it, finding its newest head, and storing the next one.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use zio::Random;

use crate::blocks::RepositoryBlocks;
use crate::head::{HEADS, INDEX, PACKS, SNAPSHOTS};
use crate::index::MAX_INDEX_SIZE;
use crate::pack::{MAX_PACK_SIZE, PackFooter};
use crate::pack_cache::PackCache;
use crate::{
    Error, Generation, Head, IndexObject, IndexSummary, Manifest, ObjectId, ObjectInfo,
    ObjectStore, Result, SnapshotSummary, StoreError, sealed,
};

/// The object that describes the store.
pub(crate) const REPOSITORY: &str = "repository";
/// The version of the format that this program writes, and the newest that it reads.
const FORMAT: u32 = 1;
/// Heads and manifests are not larger: 100,000 snapshots.
const MAX_JSON_SIZE: u64 = 256 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct RepositoryInfo {
    format: u32,
    id: String,
    created: u64,
}

/// A repository in a store. Cheap to clone.
#[derive(Clone)]
pub struct Repository(Arc<Inner>);

struct Inner {
    store: Arc<dyn ObjectStore>,
    id: String,
    packs: PackCache,
    head: Mutex<Arc<Head>>,
}

impl Repository {
    /// Creates a repository in a store that has none. `now` is in seconds since 1970.
    pub fn create(store: Arc<dyn ObjectStore>, random: &dyn Random, now: u64) -> Result<Self> {
        let mut id = [0; 16];
        random.fill(&mut id);
        let id = format!("{:032x}", u128::from_be_bytes(id));
        let info = RepositoryInfo { format: FORMAT, id: id.clone(), created: now };
        let head = Head {
            repository: id.clone(),
            generation: Generation(1),
            time: now,
            writer: "init".to_owned(),
            snapshots: Vec::new(),
            index: Vec::new(),
        };
        let location = store.location();
        let created = store.create(REPOSITORY, &encode(&location, REPOSITORY, &info)?);
        match created {
            // an init that was cut before its head is taken up again
            Err(StoreError::AlreadyExists) if !has_heads(&*store)? => {
                return finish_init(store, head);
            }
            Err(StoreError::AlreadyExists) => return Err(Error::RepositoryExists { location }),
            other => other.map_err(|why| store_error(&location, "store", REPOSITORY, why))?,
        }
        // a store that ignores the condition would let two writers undo each other's work
        match store.create(REPOSITORY, &encode(&location, REPOSITORY, &info)?) {
            Err(StoreError::AlreadyExists) => {}
            Ok(()) => return Err(Error::NoConditionalWrites { location }),
            Err(why) => return Err(store_error(&location, "store", REPOSITORY, why)),
        }
        let repository = Self::new(store, id, head.clone());
        repository.store_head(&head)?;
        Ok(repository)
    }

    /// Opens the repository of a store in the state of its newest head.
    pub fn open(store: Arc<dyn ObjectStore>) -> Result<Self> {
        let info = read_info(&*store)?;
        let location = store.location();
        let Some(newest) = newest_generation(&*store)? else {
            return Err(Error::NoRepository { location });
        };
        let head = read_head(&*store, &info.id, newest)?;
        Ok(Self::new(store, info.id, head))
    }

    fn new(store: Arc<dyn ObjectStore>, id: String, head: Head) -> Self {
        let packs = PackCache::default();
        Self(Arc::new(Inner { store, id, packs, head: Mutex::new(Arc::new(head)) }))
    }

    /// The repository's ID.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The address of the store.
    pub fn location(&self) -> String {
        self.0.store.location()
    }

    /// The newest head that is known.
    pub fn head(&self) -> Arc<Head> {
        Arc::clone(&self.0.head.lock())
    }

    /// Reads the newest head again, as another writer may have stored one.
    pub fn refresh(&self) -> Result<Arc<Head>> {
        let mut generation = self.head().generation;
        let listed = newest_generation(&*self.0.store)?;
        generation = listed.map_or(generation, |listed| listed.max(generation));
        if generation != self.head().generation {
            let head = read_head(&*self.0.store, &self.0.id, generation)?;
            *self.0.head.lock() = Arc::new(head);
        }
        Ok(self.head())
    }

    /// The blocks of a pool, in the state of the newest head.
    pub(crate) fn blocks(&self, pool: u64) -> Arc<RepositoryBlocks> {
        Arc::new(RepositoryBlocks::new(self.clone(), pool))
    }

    /// The snapshot of that full name, or of that guid; of several the newest backup.
    pub fn find(&self, name: &str) -> Result<SnapshotSummary> {
        let head = self.head();
        let guid: Option<u64> = name.parse().ok();
        let found = head.snapshots.iter().rfind(|it| it.name() == name || Some(it.guid) == guid);
        found.cloned().ok_or_else(|| Error::NoSuchSnapshot {
            location: self.location(),
            name: name.to_owned(),
        })
    }

    /// The manifest of a snapshot.
    pub fn manifest(&self, snapshot: &SnapshotSummary) -> Result<Manifest> {
        let name = snapshot.manifest.name(SNAPSHOTS);
        let object = self.read_whole(&name, MAX_JSON_SIZE)?;
        let manifest = Manifest::parse(&object).map_err(|why| self.forget_corrupt(&name, why))?;
        if manifest.repository != self.0.id || manifest.guid != snapshot.guid {
            return Err(self.corrupt(&name, "it is of another repository or snapshot"));
        }
        Ok(manifest)
    }

    pub(crate) fn store_manifest(&self, id: &ObjectId, manifest: &Manifest) -> Result<()> {
        let name = id.name(SNAPSHOTS);
        self.create_object(&name, &encode(&self.location(), &name, manifest)?)
    }

    pub(crate) fn store_index(&self, id: &ObjectId, object: &[u8]) -> Result<()> {
        self.create_object(&id.name(INDEX), object)
    }

    pub(crate) fn store_pack(&self, id: &ObjectId, object: &[u8]) -> Result<()> {
        self.create_object(&id.name(PACKS), object)
    }

    pub(crate) fn read_index(&self, index: &IndexSummary) -> Result<IndexObject> {
        let name = index.id.name(INDEX);
        let object = self.read_whole(&name, MAX_INDEX_SIZE)?;
        let parsed = IndexObject::parse(&object).map_err(|why| self.forget_corrupt(&name, why))?;
        if parsed.pool() != index.pool || u64::try_from(parsed.len()) != Ok(index.blocks) {
            return Err(self.corrupt(&name, "it is not the object that the head lists"));
        }
        Ok(parsed)
    }

    /// The footer of a pack.
    pub(crate) fn read_footer(&self, name: &str, size: u64) -> Result<PackFooter> {
        let start = size.checked_sub(PackFooter::TRAILER_SIZE).filter(|_| size <= MAX_PACK_SIZE);
        let start = start.ok_or_else(|| self.corrupt(name, "its size is not that of a pack"))?;
        let trailer = self.read_range(name, start..size)?;
        let corrupt = |why| self.corrupt(name, why);
        let start = PackFooter::start(&trailer, size).map_err(corrupt)?;
        PackFooter::parse(&self.read_range(name, start..size)?).map_err(corrupt)
    }

    pub(crate) fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.0.store.list(prefix).map_err(|why| self.store_error("list", prefix, why))
    }

    pub(crate) fn delete(&self, name: &str) -> std::result::Result<(), StoreError> {
        self.0.store.delete(name)
    }

    pub(crate) fn protect_object(
        &self,
        name: &str,
        until: u64,
    ) -> std::result::Result<bool, StoreError> {
        self.0.store.protect(name, until)
    }

    pub(crate) fn remove_leftovers(&self) {
        self.0.store.remove_leftovers();
    }

    pub(crate) fn read_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        self.0.store.read(name, range).map_err(|why| self.store_error("read", name, why))
    }

    pub(crate) fn pack_cache(&self) -> &PackCache {
        &self.0.packs
    }

    /// Makes `next` the newest head. Refused if there is one of its generation already.
    pub(crate) fn publish(&self, next: Head) -> Result<()> {
        self.store_head(&next)?;
        *self.0.head.lock() = Arc::new(next);
        Ok(())
    }

    fn store_head(&self, next: &Head) -> Result<()> {
        let name = next.generation.head_name();
        let object = encode(&self.location(), &name, next)?;
        let why = match self.0.store.create(&name, &object) {
            Ok(()) => return Ok(()),
            Err(why @ (StoreError::AlreadyExists | StoreError::Unavailable { .. })) => why,
            Err(why) => return Err(self.store_error("store", &name, why)),
        };
        // a request that failed may have been done all the same, and a repeated one finds its own work
        let length = crate::bytes::length(&object);
        match self.0.store.read(&name, 0..length + 1) {
            Ok(stored) if stored == object => Ok(()),
            Ok(_) => Err(Error::Conflict { location: self.location() }),
            Err(StoreError::NotFound) => Err(self.store_error("store", &name, why)),
            Err(_) => Err(Error::Undecided { location: self.location(), why }),
        }
    }

    /// Stores an object with a random name. An existing object of that name is the same object,
    /// stored by a repeated request.
    fn create_object(&self, name: &str, object: &[u8]) -> Result<()> {
        match self.0.store.create(name, object) {
            Ok(()) => Ok(()),
            Err(StoreError::AlreadyExists) => {
                let stored = self.read_whole(name, crate::bytes::length(object))?;
                if stored == object { Ok(()) } else { Err(self.corrupt(name, "it differs")) }
            }
            Err(why) => Err(self.store_error("store", name, why)),
        }
    }

    fn read_whole(&self, name: &str, limit: u64) -> Result<Vec<u8>> {
        read_whole(&*self.0.store, name, limit)
    }

    pub(crate) fn store_error(&self, action: &'static str, object: &str, why: StoreError) -> Error {
        store_error(&self.location(), action, object, why)
    }

    /// Drops an object from caches, so that the next read asks the store.
    pub(crate) fn forget(&self, object: &str) {
        self.0.store.forget(object);
    }

    fn forget_corrupt(&self, object: &str, why: impl Into<String>) -> Error {
        self.forget(object);
        self.corrupt(object, why)
    }

    pub(crate) fn corrupt(&self, object: &str, why: impl Into<String>) -> Error {
        corrupt(&self.location(), object, why)
    }
}

fn store_error(location: &str, action: &'static str, object: &str, why: StoreError) -> Error {
    Error::Store { location: location.to_owned(), action, object: object.to_owned(), why }
}

fn corrupt(location: &str, object: &str, why: impl Into<String>) -> Error {
    Error::Corrupt { location: location.to_owned(), object: object.to_owned(), why: why.into() }
}

fn encode<T: Serialize>(location: &str, object: &str, value: &T) -> Result<Vec<u8>> {
    sealed::seal(value).map_err(|why| corrupt(location, object, why))
}

fn read_whole(store: &dyn ObjectStore, name: &str, limit: u64) -> Result<Vec<u8>> {
    let location = store.location();
    let read = store.read(name, 0..limit + 1);
    let object = read.map_err(|why| store_error(&location, "read", name, why))?;
    if crate::bytes::length(&object) > limit {
        return Err(corrupt(&location, name, "it is too large"));
    }
    Ok(object)
}

fn read_info(store: &dyn ObjectStore) -> Result<RepositoryInfo> {
    let location = store.location();
    let object = match read_whole(store, REPOSITORY, MAX_JSON_SIZE) {
        Err(Error::Store { why: StoreError::NotFound, .. }) => {
            return Err(Error::NoRepository { location });
        }
        other => other?,
    };
    let info: RepositoryInfo =
        sealed::open(&object).map_err(|why| corrupt(&location, REPOSITORY, why))?;
    if info.format != FORMAT {
        return Err(Error::Version { location, found: info.format, known: FORMAT });
    }
    Ok(info)
}

fn read_head(store: &dyn ObjectStore, repository: &str, generation: Generation) -> Result<Head> {
    let name = generation.head_name();
    let object = read_whole(store, &name, MAX_JSON_SIZE)?;
    let location = store.location();
    let head = Head::parse(&object).map_err(|why| corrupt(&location, &name, why))?;
    if head.repository != repository || head.generation != generation {
        return Err(corrupt(&location, &name, "it is of another repository or generation"));
    }
    Ok(head)
}

fn has_heads(store: &dyn ObjectStore) -> Result<bool> {
    newest_generation(store).map(|newest| newest.is_some())
}

fn finish_init(store: Arc<dyn ObjectStore>, mut head: Head) -> Result<Repository> {
    let info = read_info(&*store)?;
    head.repository.clone_from(&info.id);
    let repository = Repository::new(store, info.id, head.clone());
    repository.store_head(&head)?;
    Ok(repository)
}

/// The newest generation. A list may be stale, so later generations than the newest listed one are
/// probed by name.
fn newest_generation(store: &dyn ObjectStore) -> Result<Option<Generation>> {
    let location = store.location();
    let listed = store.list(HEADS).map_err(|why| store_error(&location, "list", HEADS, why))?;
    let generations = listed.iter().filter_map(|info| info.name.strip_prefix(HEADS)?.parse().ok());
    let mut newest: Option<Generation> = generations.max();
    loop {
        let next = newest.map_or(Generation(1), Generation::next);
        match store.size(&next.head_name()) {
            Ok(_) => newest = Some(next),
            Err(StoreError::NotFound) => return Ok(newest),
            Err(why) => return Err(store_error(&location, "read", &next.head_name(), why)),
        }
    }
}
