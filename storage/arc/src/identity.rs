//! A bounded queue of blocks in which those that are asked for again get a second turn (CLOCK).

use std::collections::{HashMap, VecDeque};

use ondisk::Blkptr;
use zio::Block;

/// What names a block's content for good: its first address, when it was written there, and its
/// whole checksum, since a block born in the syncing txg may be written there again. (The first
/// word alone is a plain sum: compressed, two versions of a table may well have the same.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity {
    vdev: u32,
    offset: u64,
    birth: u64,
    size: u32,
    sum: [u64; 4],
}

impl Identity {
    /// None for pointers that need no reading.
    pub(crate) fn of(pointer: &Blkptr) -> Option<Self> {
        let Blkptr::Regular(block) = pointer else { return None };
        let dva = block.dvas[0]?;
        Some(Self {
            vdev: dva.vdev.get(),
            offset: dva.offset,
            birth: block.birth_physical.get(),
            size: block.lsize,
            sum: block.sum,
        })
    }

    pub(crate) fn shard(self, shards: usize) -> usize {
        // addresses are multiples of some sector size: spread them
        let mixed = (self.offset >> 9 ^ u64::from(self.vdev)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize::try_from(mixed >> 40).unwrap_or(0) % shards
    }
}

struct Entry {
    block: Block,
    again: bool,
}

/// Blocks, within a limit of bytes.
pub(crate) struct Queue {
    limit: usize,
    bytes: usize,
    entries: HashMap<Identity, Entry>,
    turns: VecDeque<Identity>,
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, entries: HashMap::new(), turns: VecDeque::new() }
    }

    pub(crate) fn find(&mut self, identity: Identity) -> Option<Block> {
        let entry = self.entries.get_mut(&identity)?;
        entry.again = true;
        Some(entry.block.clone())
    }

    /// Takes a block in and gives those out that had to make room.
    pub(crate) fn insert(&mut self, identity: Identity, block: Block) -> Vec<Block> {
        let mut evicted = Vec::new();
        if block.len() > self.limit || self.entries.contains_key(&identity) {
            return evicted;
        }
        self.bytes += block.len();
        self.entries.insert(identity, Entry { block, again: false });
        self.turns.push_back(identity);
        while self.bytes > self.limit {
            let Some(oldest) = self.turns.pop_front() else { break };
            match self.entries.get_mut(&oldest) {
                Some(entry) if entry.again => {
                    entry.again = false;
                    self.turns.push_back(oldest);
                }
                _ => {
                    if let Some(entry) = self.entries.remove(&oldest) {
                        self.bytes -= entry.block.len();
                        evicted.push(entry.block);
                    }
                }
            }
        }
        evicted
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
