//! The blocks of a pool in a repository: found in the index, read from packs.

use std::collections::HashMap;
use std::sync::Arc;

use ondisk::blkptr::Regular;
use parking_lot::Mutex;
use zio::BlockStore;

use crate::head::Bound;
use crate::{
    BlockKey, BlockLocation, Error, Generation, Head, IndexObject, IndexSummary, Repository,
    Result, StoreError,
};

/// Index objects in memory at most, of 3.5 MiB each.
const MAX_LOADED: usize = 32;

/// The blocks of a pool in a repository.
pub(crate) struct RepositoryBlocks {
    repository: Repository,
    pool: u64,
    index: Mutex<Arc<PoolIndex>>,
}

/// The index of a pool as of one head.
pub(crate) struct PoolIndex {
    repository: Repository,
    generation: Generation,
    /// Sorted by first keys, each with the greatest last key of those up to it.
    objects: Vec<(IndexSummary, Bound)>,
    loaded: Mutex<LoadedObjects>,
}

/// Index objects by their numbers, with the time of their last use.
#[derive(Default)]
struct LoadedObjects {
    objects: HashMap<usize, (Arc<IndexObject>, u64)>,
    clock: u64,
}

impl PoolIndex {
    pub(crate) fn new(repository: Repository, head: &Head, pool: u64) -> Self {
        let objects = head.index.iter().filter(|object| object.pool == pool);
        Self::of_objects(repository, head.generation, objects)
    }

    /// The index that consists of some objects. `generation` is that of the head which they follow.
    pub(crate) fn of_objects<'a>(
        repository: Repository,
        generation: Generation,
        objects: impl IntoIterator<Item = &'a IndexSummary>,
    ) -> Self {
        let mut objects: Vec<&IndexSummary> = objects.into_iter().collect();
        objects.sort_by_key(|object| (object.first, object.last));
        let mut greatest = None;
        let with_greatest = |object: &IndexSummary| {
            let last = greatest.map_or(object.last, |before: Bound| before.max(object.last));
            greatest = Some(last);
            (object.clone(), last)
        };
        let objects = objects.into_iter().map(with_greatest).collect();
        Self { repository, generation, objects, loaded: Mutex::default() }
    }

    /// The numbers of the index objects that may have a key, the one with the last first key first.
    fn candidates(&self, key: &BlockKey) -> Vec<usize> {
        let bound = Bound::from(key);
        let end = self.objects.partition_point(|(object, _)| object.first <= bound);
        let before = self.objects.get(..end).unwrap_or_default().iter().enumerate().rev();
        before
            .take_while(|(_, (_, greatest))| *greatest >= bound)
            .filter(|(_, (object, _))| object.last >= bound)
            .map(|(at, _)| at)
            .collect()
    }

    /// The numbers of the index object and of the record of a block, and its place; none: it is not stored.
    pub(crate) fn find(&self, key: &BlockKey) -> Result<Option<(usize, usize, BlockLocation)>> {
        for number in self.candidates(key) {
            let object = self.object(number)?;
            if let Some(at) = object.find(key)
                && let Some(location) = object.get(at)
            {
                return Ok(Some((number, at, location)));
            }
        }
        Ok(None)
    }

    /// The number of index objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The entry of an index object in the head.
    pub(crate) fn summary(&self, number: usize) -> Option<&IndexSummary> {
        self.objects.get(number).map(|(summary, _)| summary)
    }

    /// Drops the index objects from memory. They are read again when they are needed.
    pub(crate) fn release(&self) {
        self.loaded.lock().objects.clear();
    }

    /// An index object by its number.
    pub(crate) fn object(&self, number: usize) -> Result<Arc<IndexObject>> {
        if let Some(object) = self.loaded.lock().get(number) {
            return Ok(object);
        }
        let Some((summary, _)) = self.objects.get(number) else {
            return Err(self.repository.corrupt("index", "an index object is missing"));
        };
        let object = Arc::new(self.repository.read_index(summary)?);
        self.loaded.lock().insert(number, &object);
        Ok(object)
    }

    /// The stored bytes of a block, with the zeros at their end; their hash is verified.
    pub(crate) fn read(&self, location: &BlockLocation) -> Result<Vec<u8>> {
        let (block, pack) = (&location.block, (location.pack, location.kind));
        let cache = self.repository.pack_cache();
        let mut stored = cache.read(&self.repository, pack, block.position, block.length)?;
        if !block.matches(&stored) {
            // a store may have given less than the whole
            cache.forget(location.pack);
            self.repository.forget(&location.pack.name(crate::head::PACKS));
            stored = cache.read(&self.repository, pack, block.position, block.length)?;
        }
        if !block.matches(&stored) {
            let name = location.pack.name(crate::head::PACKS);
            let why = format!("the block at byte {} has a wrong checksum", block.position);
            return Err(self.repository.corrupt(&name, why));
        }
        stored.resize(units::to_usize(block.key.psize), 0);
        Ok(stored)
    }

    fn fetch(&self, key: &BlockKey) -> Result<Vec<u8>> {
        let Some((_, _, location)) = self.find(key)? else {
            let why = "a block of the snapshot is not in the index";
            return Err(self.repository.corrupt("index", why));
        };
        self.read(&location)
    }
}

impl LoadedObjects {
    fn get(&mut self, number: usize) -> Option<Arc<IndexObject>> {
        self.clock = self.clock.wrapping_add(1);
        let (object, used) = self.objects.get_mut(&number)?;
        *used = self.clock;
        Some(Arc::clone(object))
    }

    fn insert(&mut self, number: usize, object: &Arc<IndexObject>) {
        while self.objects.len() >= MAX_LOADED {
            let oldest = self.objects.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(number, _)| *number) else { break };
            self.objects.remove(&oldest);
        }
        self.objects.insert(number, (Arc::clone(object), self.clock));
    }
}

impl RepositoryBlocks {
    pub(crate) fn new(repository: Repository, pool: u64) -> Self {
        let index = PoolIndex::new(repository.clone(), &repository.head(), pool);
        Self { repository, pool, index: Mutex::new(Arc::new(index)) }
    }

    /// The index as of the newest head that is known.
    pub(crate) fn index(&self) -> Arc<PoolIndex> {
        Arc::clone(&self.index.lock())
    }

    /// The place of a block; none: it is not stored.
    pub(crate) fn find(&self, key: &BlockKey) -> Result<Option<BlockLocation>> {
        Ok(self.index().find(key)?.map(|(_, _, location)| location))
    }

    /// The stored bytes of a block. If a prune moved it meanwhile, the newest head has its
    /// location.
    fn fetch_block(&self, key: &BlockKey) -> Result<Vec<u8>> {
        let index = self.index();
        let why = match index.fetch(key) {
            Err(why) if may_have_moved(&why) => why,
            other => return other,
        };
        let head = self.repository.refresh()?;
        if head.generation == index.generation {
            return Err(why);
        }
        let mut newest = self.index.lock();
        if newest.generation < head.generation {
            *newest = Arc::new(PoolIndex::new(self.repository.clone(), &head, self.pool));
        }
        let newest = Arc::clone(&newest);
        newest.fetch(key)
    }
}

fn may_have_moved(why: &Error) -> bool {
    matches!(why, Error::Corrupt { .. } | Error::Store { why: StoreError::NotFound, .. })
}

impl BlockStore for RepositoryBlocks {
    fn fetch(&self, block: &Regular) -> std::result::Result<Vec<u8>, String> {
        let key = BlockKey::new(block).ok_or("its pointer has no address")?;
        self.fetch_block(&key).map_err(|why| why.to_string())
    }
}
