//! The read cache.
//!
//! A block's address, birth and checksum identify its content: no block of a txg on disk is ever
//! changed in place. So the cache needs no invalidation; it only has to stay within its limit. It
//! adapts to the reads (`shard.rs`): metadata, which is read again and again, stays while long
//! files pass through.
//!
//! The limit is that of a [`MemoryBudget`], which several caches share.
//!
//! [`L2arc`] is the second level: devices that hold blocks evicted from memory, beside the pool's
//! own.
#![forbid(unsafe_code)]

mod caching_sink;
mod identity;
mod l2;
mod memory_budget;
mod shard;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use ondisk::Blkptr;
use parking_lot::Mutex;
use units::Zbookmark;
use zio::{Block, BlockRead, Error, Key, Source, Trimmed};

pub use caching_sink::CachingSink;
use identity::BlockIdentity;
pub use l2::{L2DeviceStats, L2Stats, L2arc, SecondaryCachePolicy};
pub use memory_budget::{MemoryBudget, MemoryReservation};
use memory_budget::{MemoryShare, MemoryUser};
use shard::Shard;

/// The number of shards; each has its own lock.
const MAX_SHARDS: usize = 16;
/// A part that is smaller could not hold the largest blocks.
const MIN_SHARD_SIZE: usize = 40 << 20;

/// A cache before another source of blocks.
pub struct Cache {
    source: Arc<dyn Source>,
    share: MemoryShare,
    shards: Arc<Shards>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The parts of a cache.
struct Shards(Vec<Mutex<Shard>>);

impl MemoryUser for Shards {
    fn shrink(&self, bytes: usize) {
        for shard in &self.0 {
            let evicted = shard.lock().shrink(bytes / self.0.len());
            drop(evicted);
        }
    }
}

impl Cache {
    /// Before `below`, with a share of `memory`.
    pub fn new(source: Arc<dyn Source>, memory: &MemoryBudget) -> Self {
        let count = (memory.bytes() / MIN_SHARD_SIZE).clamp(1, MAX_SHARDS);
        let shards = Arc::new(Shards((0..count).map(|_| Mutex::default()).collect()));
        let holder: Weak<Shards> = Arc::downgrade(&shards);
        Self {
            source,
            share: memory.add_user(holder),
            shards,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The number of hits and misses.
    pub fn hit_counts(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.shards.0.iter().map(|shard| shard.lock().bytes()).sum()
    }

    fn shard(&self, identity: BlockIdentity) -> &Mutex<Shard> {
        &self.shards.0[identity.shard_index(self.shards.0.len())]
    }

    /// The limit of each shard.
    fn shard_limit(&self) -> usize {
        self.share.bytes() / self.shards.0.len()
    }

    /// A block that was a miss and is cached from now on.
    fn read_and_insert(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Block, Error> {
        let block = self.source.read(pointer, zbookmark, key)?;
        if let Some(identity) = BlockIdentity::from_pointer(pointer) {
            self.insert(identity, Trimmed::of(&block));
        }
        Ok(block)
    }

    fn insert(&self, identity: BlockIdentity, block: Trimmed) {
        // dropped outside of the lock, since that gives memory back
        let evicted = self.shard(identity).lock().insert(identity, block, self.shard_limit());
        drop(evicted);
    }

    fn remove(&self, identity: BlockIdentity) {
        let forgotten = self.shard(identity).lock().remove(identity);
        drop(forgotten);
    }

    /// The block, if it is cached; none for pointers that need no read.
    fn lookup(&self, pointer: &Blkptr) -> Option<Trimmed> {
        let identity = BlockIdentity::from_pointer(pointer)?;
        let found = self.shard(identity).lock().lookup(identity);
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }
}

impl Source for Cache {
    fn read(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Block, Error> {
        if let Some(block) = self.lookup(pointer) {
            return Ok(block.to_block());
        }
        self.read_and_insert(pointer, zbookmark, key)
    }

    fn read_into(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
        into: &mut [u8],
    ) -> Result<usize, Error> {
        if let Some(block) = self.lookup(pointer) {
            return Ok(block.copy_to(into));
        }
        match BlockIdentity::from_pointer(pointer) {
            Some(identity) if !self.shard(identity).lock().is_ghost(identity) => {
                let length = self.source.read_into(pointer, zbookmark, key, into)?;
                self.shard(identity).lock().insert_ghost(identity, length, self.shard_limit());
                Ok(length)
            }
            _ => self.read_and_insert(pointer, zbookmark, key).map(|block| block.copy_to(into)),
        }
    }

    /// A miss is counted by the read that follows it.
    fn read_cached(&self, pointer: &Blkptr) -> Option<Trimmed> {
        let identity = BlockIdentity::from_pointer(pointer)?;
        let found = self.shard(identity).lock().lookup(identity)?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    /// A block seen a second time is left, so that it is cached.
    fn read_blocks(&self, blocks: &mut [BlockRead<'_>]) {
        let (mut dones, mut new) = (Vec::new(), Vec::new());
        for wanted in blocks.iter_mut() {
            let Some(identity) = BlockIdentity::from_pointer(wanted.pointer) else { continue };
            let BlockRead { pointer, zbookmark: place, into, is_done: done } = wanted;
            let mut shard = self.shard(identity).lock();
            if let Some(block) = shard.lookup(identity) {
                drop(shard);
                self.hits.fetch_add(1, Ordering::Relaxed);
                *done = block.copy_to(into) == into.len();
                continue;
            }
            if shard.is_ghost(identity) {
                continue;
            }
            drop(shard);
            new.push(BlockRead { pointer, zbookmark: *place, into, is_done: false });
            dones.push((done, identity));
        }
        self.source.read_blocks(&mut new);
        for (wanted, (done, identity)) in new.iter().zip(dones).filter(|(wanted, _)| wanted.is_done)
        {
            *done = true;
            self.misses.fetch_add(1, Ordering::Relaxed);
            self.shard(identity).lock().insert_ghost(
                identity,
                wanted.into.len(),
                self.shard_limit(),
            );
        }
    }

    fn read_once(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Block, Error> {
        match self.lookup(pointer) {
            Some(block) => Ok(block.to_block()),
            None => self.source.read_once(pointer, zbookmark, key),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use ondisk::{Blkptr, Order};
    use units::Zbookmark;
    use zio::{Block, BlockRead, Error, Key, Source};

    use super::{Cache, MemoryBudget};

    struct CountingSource(AtomicU64);

    impl Source for CountingSource {
        fn read(&self, pointer: &Blkptr, _: Zbookmark, _: Option<&Key>) -> Result<Block, Error> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let Blkptr::Regular(block) = pointer else { panic!("only blocks are read") };
            let mark = block.dvas[0].unwrap().offset.to_le_bytes()[1];
            Ok(Block::new(vec![mark; 4096], Order::Little))
        }

        fn read_blocks(&self, blocks: &mut [BlockRead<'_>]) {
            for wanted in blocks {
                wanted.is_done =
                    self.read_into(wanted.pointer, wanted.zbookmark, None, wanted.into).is_ok();
            }
        }
    }

    pub(crate) fn pointer(sector: u64) -> Blkptr {
        let mut words = [0_u64; 16];
        words[0] = 8;
        words[1] = sector;
        words[6] = (1 << 63) | (10 << 48) | (7 << 40) | (2 << 32) | (7 << 16) | 7;
        words[10] = 5;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Blkptr::parse(&bytes, Order::Little).unwrap()
    }

    #[test]
    fn block_overwritten_in_place_is_a_miss() {
        let below = Arc::new(CountingSource(AtomicU64::new(0)));
        let cache = Cache::new(below.clone(), &MemoryBudget::default());
        let Blkptr::Regular(first) = pointer(8) else { panic!("a block") };
        for word in 0..4 {
            let mut again = first.clone();
            again.sum[word] = 1;
            cache.read(&Blkptr::Regular(again), Zbookmark::default(), None).unwrap();
        }
        cache.read(&Blkptr::Regular(first), Zbookmark::default(), None).unwrap();
        assert_eq!(below.0.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn each_block_is_read_once_within_the_limit() {
        let below = Arc::new(CountingSource(AtomicU64::new(0)));
        let memory = MemoryBudget::with_bytes(1 << 20);
        let cache = Cache::new(below.clone(), &memory);
        for round in 0..3 {
            for sector in 1..100 {
                let block = cache.read(&pointer(sector * 8), Zbookmark::default(), None).unwrap();
                assert_eq!(block[0], (sector * 8 * 512).to_le_bytes()[1]);
            }
            assert_eq!(below.0.load(Ordering::Relaxed), 99, "round {round}");
        }
        for sector in 1..10_000 {
            cache.read(&pointer(sector * 8), Zbookmark::default(), None).unwrap();
        }
        assert_eq!(below.0.load(Ordering::Relaxed), 9999);
        for _ in 0..2 {
            cache.read_once(&pointer(20_000 * 8), Zbookmark::default(), None).unwrap();
            cache.read_once(&pointer(9_999 * 8), Zbookmark::default(), None).unwrap();
        }
        assert_eq!(
            below.0.load(Ordering::Relaxed),
            9999 + 2,
            "cached blocks are hits, and nothing is added"
        );
        let held = cache.bytes();
        assert!(held <= memory.bytes(), "{held} bytes are cached");
        assert!(held >= memory.bytes() / 2, "only {held} bytes are cached");
        // a single pass leaves only names; a second one soon after is cached
        let (stretch, asked) = (30_000..30_020_u64, || below.0.load(Ordering::Relaxed));
        for (pass, wanted) in [20, 20, 0].into_iter().enumerate() {
            let (before, bytes) = (asked(), cache.bytes());
            for sector in stretch.clone() {
                let mut into = vec![0; 4096];
                let pointer = pointer(sector * 8);
                cache.read_into(&pointer, Zbookmark::default(), None, &mut into).unwrap();
                assert!(into.iter().all(|byte| *byte == (sector * 8 * 512).to_le_bytes()[1]));
            }
            assert_eq!(asked() - before, wanted, "pass {pass}");
            assert!(pass > 0 || cache.bytes() == bytes);
        }
        // blocks of a run that are seen again are left; new ones are remembered
        let (held, new) = (pointer(30_000 * 8), pointer(40_000 * 8));
        for wanted in [[true, true], [true, false]] {
            let mut into = [vec![0; 4096], vec![0; 4096]];
            let mut run: Vec<BlockRead<'_>> = ([&held, &new].into_iter().zip(&mut into))
                .map(|(pointer, into)| BlockRead {
                    pointer,
                    zbookmark: Zbookmark::default(),
                    into,
                    is_done: false,
                })
                .collect();
            cache.read_blocks(&mut run);
            assert_eq!([run[0].is_done, run[1].is_done], wanted);
        }
        // the first one gets no reads any more
        let other = Cache::new(below, &memory);
        assert!(cache.bytes() <= memory.bytes() / 2, "{} bytes are kept", cache.bytes());
        for sector in 1..1000 {
            other.read(&pointer(sector * 8), Zbookmark::default(), None).unwrap();
        }
        assert!(cache.bytes() + other.bytes() <= memory.bytes(), "two share what there is");
        assert!(cache.bytes() > 0 && other.bytes() > memory.bytes() / 4);
        for sector in 1..1000 {
            for cache in [&cache, &other] {
                cache.read(&pointer(sector * 8), Zbookmark::default(), None).unwrap();
            }
        }
        assert!(cache.bytes() + other.bytes() <= memory.bytes(), "two share what there is");
    }
}
