//! The blocks that a backup run has stored, in bounded memory.
//!
//! The newest blocks are in a hash table. A full table goes to the store as sorted index objects, which the next
//! head lists. A filter in memory remembers the keys of each such run of objects: 2 bytes a block. So most
//! lookups of a block that is not there read nothing.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use zio::Random;

use crate::backup::{new_id, store_index};
use crate::blocks::PoolIndex;
use crate::{BlockKey, BlockLocation, Head, IndexSummary, Repository, Result};

/// Blocks in the table at most: about 60 MB.
const MAX_RECENT: usize = 1 << 18;
/// Runs of index objects that are kept in memory at most, of 14 MB each.
const MAX_LOADED_RUNS: usize = 4;

/// The blocks that a run has stored.
pub(crate) struct NewBlocks {
    repository: Repository,
    pool: u64,
    head: Arc<Head>,
    random: Arc<dyn Random>,
    max_recent: usize,
    recent: HashMap<BlockKey, BlockLocation>,
    runs: Vec<Run>,
    /// The runs that may have objects in memory, the last used one last.
    loaded: Vec<usize>,
    hasher: RandomState,
}

/// Index objects that were stored together.
struct Run {
    filter: KeyFilter,
    index: PoolIndex,
    summaries: Vec<IndexSummary>,
}

impl NewBlocks {
    pub(crate) fn new(
        repository: Repository,
        pool: u64,
        head: Arc<Head>,
        random: Arc<dyn Random>,
    ) -> Self {
        let (recent, runs, loaded, hasher) = Default::default();
        let max_recent = MAX_RECENT;
        Self { repository, pool, head, random, max_recent, recent, runs, loaded, hasher }
    }

    /// The place of a block; none: this run has not stored it.
    pub(crate) fn find(&mut self, key: &BlockKey) -> Result<Option<BlockLocation>> {
        if let Some(location) = self.recent.get(key) {
            return Ok(Some(*location));
        }
        let hash = self.hasher.hash_one(key);
        for number in 0..self.runs.len() {
            let Some(run) = self.runs.get(number).filter(|run| run.filter.may_contain(hash)) else {
                continue;
            };
            let found = run.index.find(key)?;
            self.note_loaded(number);
            if let Some((_, _, location)) = found {
                return Ok(Some(location));
            }
        }
        Ok(None)
    }

    /// Notes that a run has objects in memory, and drops those of the run that was used longest ago.
    fn note_loaded(&mut self, number: usize) {
        if self.loaded.last() == Some(&number) {
            return;
        }
        self.loaded.retain(|loaded| *loaded != number);
        self.loaded.push(number);
        if self.loaded.len() > MAX_LOADED_RUNS {
            let oldest = self.loaded.remove(0);
            if let Some(run) = self.runs.get(oldest) {
                run.index.release();
            }
        }
    }

    /// Adds a block that is not there yet.
    pub(crate) fn insert(&mut self, location: BlockLocation) -> Result<()> {
        self.recent.insert(location.block.key, location);
        if self.recent.len() >= self.max_recent { self.store_recent() } else { Ok(()) }
    }

    /// Moves the table into index objects.
    fn store_recent(&mut self) -> Result<()> {
        let mut locations: Vec<BlockLocation> =
            std::mem::take(&mut self.recent).into_values().collect();
        locations.sort_unstable_by_key(|location| location.block.key);
        let mut filter = KeyFilter::new(locations.len());
        for location in &locations {
            let hash = self.hasher.hash_one(location.block.key);
            filter.insert(hash);
            debug_assert!(filter.may_contain(hash), "a filter never misses a key");
        }
        let summaries = store_index(&self.repository, self.pool, &locations, &mut || {
            new_id(&*self.random, &self.head)
        })?;
        let generation = self.head.generation;
        let index = PoolIndex::of_objects(self.repository.clone(), generation, &summaries);
        self.runs.push(Run { filter, index, summaries });
        Ok(())
    }

    /// Stores the rest. Returns the index objects of the run.
    pub(crate) fn finish(mut self) -> Result<Vec<IndexSummary>> {
        self.store_recent()?;
        Ok(self.runs.into_iter().flat_map(|run| run.summaries).collect())
    }
}

/// A Bloom filter.
struct KeyFilter {
    bits: Vec<u64>,
}

impl KeyFilter {
    /// Bits a key; with [`Self::PROBES`] probes one of 1,000 absent keys seems to be there.
    const BITS: usize = 16;
    const PROBES: u64 = 6;

    fn new(keys: usize) -> Self {
        Self { bits: vec![0; (keys * Self::BITS).div_ceil(64).max(1)] }
    }

    /// The words and bits of a key.
    fn places(&self, hash: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        let count = units::to_u64(self.bits.len()) * 64;
        // two halves of a hash give any number of independent ones
        let step = hash.rotate_left(32) | 1;
        (0..Self::PROBES).map(move |probe| {
            let bit = hash.wrapping_add(probe.wrapping_mul(step)).checked_rem(count).unwrap_or(0);
            (units::to_usize(bit / 64), 1_u64 << (bit % 64))
        })
    }

    fn insert(&mut self, hash: u64) {
        for (word, bit) in self.places(hash) {
            if let Some(word) = self.bits.get_mut(word) {
                *word |= bit;
            }
        }
    }

    fn may_contain(&self, hash: u64) -> bool {
        self.places(hash).all(|(word, bit)| self.bits.get(word).is_some_and(|it| it & bit != 0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{KeyFilter, NewBlocks};
    use crate::memory::MemoryStore;
    use crate::{
        BlockKey, BlockLocation, Generation, ObjectId, ObjectStore, PackKind, Repository,
        StoredBlock,
    };

    struct Counter(parking_lot::Mutex<u8>);

    impl zio::Random for Counter {
        fn fill(&self, bytes: &mut [u8]) {
            let mut next = self.0.lock();
            *next += 1;
            bytes.fill(*next);
        }
    }

    fn location(number: u64) -> BlockLocation {
        // no order, and no number twice
        let birth = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let key = BlockKey { birth, offset: number << 12, psize: 4096, ..BlockKey::default() };
        let pack = ObjectId { generation: Generation(1), id: [1; 16] };
        let block = StoredBlock { key, hash: number, position: 0, length: 4096 };
        BlockLocation { block, pack, kind: PackKind::Data }
    }

    #[test]
    fn blocks_of_stored_runs_are_found() {
        let store = Arc::new(MemoryStore::default());
        let random: Arc<dyn zio::Random> = Arc::new(Counter(parking_lot::Mutex::new(0)));
        let shared = Arc::clone(&store) as Arc<dyn ObjectStore>;
        let repository = Repository::create(shared, &*random, 0).unwrap();
        let head = repository.head();
        let mut blocks = NewBlocks::new(repository.clone(), 7, head, random);
        blocks.max_recent = 100;
        (0..1050).for_each(|number| blocks.insert(location(number)).unwrap());
        assert_eq!((blocks.runs.len(), blocks.recent.len()), (10, 50));
        for number in 0..1050 {
            let expected = location(number);
            assert_eq!(blocks.find(&expected.block.key).unwrap(), Some(expected));
        }
        assert_eq!(blocks.loaded.len(), super::MAX_LOADED_RUNS);
        store.set_faults(crate::memory::Faults::default());
        for number in 1050..3050 {
            assert_eq!(blocks.find(&location(number).block.key).unwrap(), None);
        }
        assert!(store.requests() < 100, "{} requests", store.requests());
        let objects = blocks.finish().unwrap();
        assert_eq!(objects.iter().map(|object| object.blocks).sum::<u64>(), 1050);
        for object in &objects {
            assert_eq!(repository.read_index(object).unwrap().pool(), 7);
        }
    }

    #[test]
    fn filter_has_all_keys_and_few_others() {
        let hash = |number: u64| number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut filter = KeyFilter::new(10_000);
        (0..10_000).for_each(|number| filter.insert(hash(number)));
        assert!((0..10_000).all(|number| filter.may_contain(hash(number))));
        let wrong = (10_000..110_000).filter(|number| filter.may_contain(hash(*number))).count();
        assert!(wrong < 1000, "{wrong} of 100,000");
    }
}
