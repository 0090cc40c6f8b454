//! Blocks that wait to be written to a drive of the cache.

use std::collections::{HashSet, VecDeque};

use device::buffer;
use ondisk::blkptr::{Protection, Regular};
use ondisk::l2arc::Entry;

use super::index::BlockKey;

/// A block that waits.
pub(super) struct QueuedBlock {
    pub(super) key: BlockKey,
    /// The log entry; its address is not known yet.
    pub(super) entry: Entry,
    /// Its bytes.
    pub(super) stored: Vec<u8>,
}

impl QueuedBlock {
    /// A copy of a block; none where it has no address.
    pub(super) fn new(block: &Regular, metadata: bool, stored: &[u8]) -> Option<Self> {
        let entry = Entry {
            dva: block.dvas[0]?,
            birth: block.birth_physical,
            lsize: block.lsize,
            psize: block.psize,
            compression: Some(block.compression),
            metadata,
            protected: !matches!(block.protection, Protection::None | Protection::Indirect { .. }),
            offset: 0,
        };
        let mut copy = buffer::alloc(stored.len());
        copy.copy_from_slice(stored);
        Some(Self { key: BlockKey::from_block(block)?, entry, stored: copy })
    }
}

/// Blocks that wait, within a limit.
pub(super) struct FeedQueue {
    queue: VecDeque<QueuedBlock>,
    keys: HashSet<BlockKey>,
    bytes: usize,
    limit: usize,
}

impl FeedQueue {
    /// The capacity in bytes.
    pub(super) fn with_limit(limit: usize) -> Self {
        Self { queue: VecDeque::new(), keys: HashSet::new(), bytes: 0, limit }
    }

    /// Bytes that may wait.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether a block of this many bytes fits and is not in the queue.
    pub(super) fn accepts(&self, name: BlockKey, bytes: usize) -> bool {
        self.bytes + bytes <= self.limit && !self.keys.contains(&name)
    }

    /// One more.
    pub(super) fn push(&mut self, offer: QueuedBlock) {
        if self.keys.insert(offer.key) {
            self.bytes += offer.stored.len();
            self.queue.push_back(offer);
        }
    }

    /// The first blocks up to this many bytes, but at least one.
    pub(super) fn drain_up_to(&mut self, most: usize) -> Vec<QueuedBlock> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(next) = self.queue.front()
            && (taken.is_empty() || bytes + next.stored.len() <= most)
        {
            bytes += next.stored.len();
            taken.extend(self.queue.pop_front());
        }
        self.bytes -= bytes;
        for offer in &taken {
            self.keys.remove(&offer.key);
        }
        assert_eq!(self.keys.len(), self.queue.len(), "each queued block has its key once");
        assert!(!self.queue.is_empty() || self.bytes == 0, "an empty queue has no bytes");
        taken
    }
}
