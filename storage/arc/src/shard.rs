//! A shard of the cache: blocks seen once lately, blocks seen more often, and the keys of evicted
//! blocks of either kind (ARC).
//!
//! A block enters as recent; a later read makes it frequent. A read of an evicted block whose key
//! is still known shows that its kind had too little space. So the target, which is the share of
//! the recent blocks, follows the reads. A single pass over a long file goes through the recent
//! blocks and leaves the frequent ones alone.

use std::collections::{BTreeMap, HashMap};

use units::MinusOrZero as _;
use zio::Trimmed;

use crate::identity::BlockIdentity;

/// The memory of a block besides its bytes.
const ENTRY_OVERHEAD: usize = 256;
/// The name of a block that had to go counts as its block did, but for no less.
const MIN_GHOST_SIZE: usize = 8 << 10;
/// The capacity of buffers from this size on is a power of two.
const ROUNDED_FROM: usize = 16 << 10;
/// A block becomes frequent only if this many others entered since its first read, or a part of all
/// blocks. A sooner read is one reader that takes it bit by bit, or follows its read-ahead.
const MIN_REUSE_DISTANCE: u64 = 8;
const REUSE_DISTANCE_FRACTION: u64 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListKind {
    Mru,
    Mfu,
}

struct CacheEntry {
    kind: ListKind,
    /// Its place in the order of its list.
    seq: u64,
    /// How many blocks had come in when it did.
    inserted_at: u64,
    size: usize,
    /// None: only its name is known.
    block: Option<Trimmed>,
}

/// Names in the order in which they are to go.
#[derive(Default)]
struct LruList {
    order: BTreeMap<u64, BlockIdentity>,
    bytes: usize,
}

impl LruList {
    fn add(&mut self, turn: u64, identity: BlockIdentity, size: usize) {
        let known = self.order.insert(turn, identity);
        assert_eq!(known, None, "each block has a place of its own");
        self.bytes += size;
    }

    fn remove(&mut self, turn: u64, size: usize) {
        let known = self.order.remove(&turn);
        assert!(known.is_some(), "a block is in the list of its kind");
        self.bytes -= size;
        self.assert_bytes();
    }

    /// Asserts that an empty list has no bytes.
    fn assert_bytes(&self) {
        assert!(!self.order.is_empty() || self.bytes == 0, "a list has the bytes of its blocks");
    }
}

/// A part of the cache.
#[derive(Default)]
pub(crate) struct Shard {
    entries: HashMap<BlockIdentity, CacheEntry>,
    mru: LruList,
    mfu: LruList,
    mru_ghost: LruList,
    mfu_ghost: LruList,
    /// How many bytes recent ones are to have.
    mru_target: usize,
    last_seq: u64,
    insert_count: u64,
}

impl Shard {
    /// The block, if it is here.
    pub(crate) fn lookup(&mut self, identity: BlockIdentity) -> Option<Trimmed> {
        let soon = MIN_REUSE_DISTANCE.max(self.entries.len() as u64 / REUSE_DISTANCE_FRACTION);
        let entry = self.entries.get_mut(&identity)?;
        let block = entry.block.clone()?;
        let (kind, turn, size) = (entry.kind, entry.seq, entry.size);
        self.last_seq += 1;
        entry.seq = self.last_seq;
        if self.insert_count - entry.inserted_at >= soon {
            entry.kind = ListKind::Mfu;
        }
        let now = entry.kind;
        self.list(kind, true).remove(turn, size);
        let turn = self.last_seq;
        self.list(now, true).add(turn, identity, size);
        Some(block)
    }

    /// Inserts a block within `limit` bytes, and returns the evicted ones.
    pub(crate) fn insert(
        &mut self,
        identity: BlockIdentity,
        block: Trimmed,
        limit: usize,
    ) -> Vec<Trimmed> {
        let size = entry_size(block.begin().len());
        if size > limit / 2 {
            return Vec::new();
        }
        let kind = match self.entries.get(&identity) {
            Some(CacheEntry { block: Some(_), .. }) => return Vec::new(),
            Some(_) => self.hit_ghost(identity, size, limit),
            None => ListKind::Mru,
        };
        let evicted = self.evict_to(limit - size, limit, kind);
        self.last_seq += 1;
        self.insert_count += 1;
        let (turn, since) = (self.last_seq, self.insert_count);
        self.list(kind, true).add(turn, identity, size);
        self.entries.insert(
            identity,
            CacheEntry { kind, seq: turn, inserted_at: since, size, block: Some(block) },
        );
        assert!(self.bytes() <= limit, "{} bytes are cached of {limit}", self.bytes());
        evicted
    }

    /// Evicts down to `limit`, and returns the blocks.
    pub(crate) fn shrink(&mut self, limit: usize) -> Vec<Trimmed> {
        self.evict_to(limit, limit, ListKind::Mru)
    }

    /// A read of an evicted block: the target moves towards its kind.
    fn hit_ghost(&mut self, identity: BlockIdentity, size: usize, limit: usize) -> ListKind {
        let (recent, frequent) = (self.mru_ghost.bytes.max(1), self.mfu_ghost.bytes.max(1));
        if let Some(entry) = self.entries.remove(&identity) {
            self.list(entry.kind, false).remove(entry.seq, entry.size.max(MIN_GHOST_SIZE));
            self.mru_target = match entry.kind {
                ListKind::Mru => (self.mru_target + size.max(size * frequent / recent)).min(limit),
                ListKind::Mfu => self.mru_target.minus_or_zero(size.max(size * recent / frequent)),
            };
        }
        ListKind::Mfu
    }

    /// Evicts blocks of one kind until it has no more than `most` bytes.
    fn evict_to(&mut self, most: usize, limit: usize, coming: ListKind) -> Vec<Trimmed> {
        let mut evicted = Vec::new();
        while self.mru.bytes + self.mfu.bytes > most {
            let much = self.mru.bytes > self.mru_target
                || (self.mru.bytes == self.mru_target && coming == ListKind::Mfu);
            let is_recent = self.mfu.order.is_empty() || much;
            let kind =
                if is_recent && !self.mru.order.is_empty() { ListKind::Mru } else { ListKind::Mfu };
            let Some(block) = self.evict_one(kind) else { break };
            evicted.push(block);
        }
        assert!(self.bytes() <= most, "{} bytes are left of {most}", self.bytes());
        self.trim_ghosts(limit);
        evicted
    }

    fn trim_ghosts(&mut self, limit: usize) {
        for kind in [ListKind::Mru, ListKind::Mfu] {
            while self.list(kind, false).bytes > limit / 2 {
                let Some((_, identity)) = self.list(kind, false).order.pop_first() else { break };
                let entry = self.entries.remove(&identity);
                assert!(entry.is_some(), "a name in a list is known");
                if let Some(entry) = entry {
                    self.list(kind, false).bytes -= entry.size.max(MIN_GHOST_SIZE);
                }
            }
            self.list(kind, false).assert_bytes();
        }
        let lists = [&self.mru, &self.mfu, &self.mru_ghost, &self.mfu_ghost];
        let listed = lists.map(|list| list.order.len()).into_iter().sum::<usize>();
        assert_eq!(listed, self.entries.len(), "each block is in one list");
    }

    /// A block, or its key, that will not be read again.
    pub(crate) fn remove(&mut self, identity: BlockIdentity) -> Option<Trimmed> {
        let CacheEntry { kind, seq: turn, size, block, .. } = self.entries.remove(&identity)?;
        let is_here = block.is_some();
        self.list(kind, is_here)
            .remove(turn, if is_here { size } else { size.max(MIN_GHOST_SIZE) });
        block
    }

    /// Whether a block is known by its name alone.
    pub(crate) fn is_ghost(&self, identity: BlockIdentity) -> bool {
        self.entries.get(&identity).is_some_and(|entry| entry.block.is_none())
    }

    /// Notes the name of a block that came by and is not taken in.
    pub(crate) fn insert_ghost(&mut self, identity: BlockIdentity, length: usize, limit: usize) {
        if self.entries.contains_key(&identity) {
            return;
        }
        self.last_seq += 1;
        let (kind, turn, since, size) =
            (ListKind::Mru, self.last_seq, self.insert_count, entry_size(length));
        self.list(kind, false).add(turn, identity, size.max(MIN_GHOST_SIZE));
        self.entries.insert(
            identity,
            CacheEntry { kind, seq: turn, inserted_at: since, size, block: None },
        );
        self.trim_ghosts(limit);
    }

    /// Evicts the least recently read block of a kind; its key stays.
    fn evict_one(&mut self, kind: ListKind) -> Option<Trimmed> {
        let (turn, identity) = self.list(kind, true).order.pop_first()?;
        let entry = self.entries.get_mut(&identity)?;
        let (size, block) = (entry.size, entry.block.take());
        assert!(block.is_some(), "a block that is evicted was here");
        self.list(kind, true).bytes -= size;
        self.list(kind, true).assert_bytes();
        self.list(kind, false).add(turn, identity, size.max(MIN_GHOST_SIZE));
        block
    }

    fn list(&mut self, kind: ListKind, is_here: bool) -> &mut LruList {
        match (kind, is_here) {
            (ListKind::Mru, true) => &mut self.mru,
            (ListKind::Mfu, true) => &mut self.mfu,
            (ListKind::Mru, false) => &mut self.mru_ghost,
            (ListKind::Mfu, false) => &mut self.mfu_ghost,
        }
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.mru.bytes + self.mfu.bytes
    }
}

/// The memory that a block takes.
fn entry_size(length: usize) -> usize {
    let room = if length < ROUNDED_FROM { length } else { length.next_power_of_two() };
    room + ENTRY_OVERHEAD
}

#[cfg(test)]
mod tests;
