//! Blocks that wait to be written to a drive of the cache.

use std::collections::{HashSet, VecDeque};

use device::buffer;
use ondisk::blkptr::{Protection, Regular};
use ondisk::l2arc::Entry;

use super::index::Name;

/// A block that waits.
pub(super) struct Offer {
    pub(super) name: Name,
    /// What the log will say of it; where it is is not known yet.
    pub(super) entry: Entry,
    /// Its bytes.
    pub(super) stored: Vec<u8>,
}

impl Offer {
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
            at: 0,
        };
        let mut copy = buffer::take(stored.len());
        copy.copy_from_slice(stored);
        Some(Self { name: Name::of(block)?, entry, stored: copy })
    }
}

/// Blocks that wait, within a limit.
pub(super) struct Offers {
    queue: VecDeque<Offer>,
    names: HashSet<Name>,
    bytes: usize,
    limit: usize,
}

impl Offers {
    /// Up to so many bytes of them.
    pub(super) fn of(limit: usize) -> Self {
        Self { queue: VecDeque::new(), names: HashSet::new(), bytes: 0, limit }
    }

    /// Bytes that may wait.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether there is room for a block of so many bytes, and it is not here.
    pub(super) fn wants(&self, name: Name, bytes: usize) -> bool {
        self.bytes + bytes <= self.limit && !self.names.contains(&name)
    }

    /// One more.
    pub(super) fn add(&mut self, offer: Offer) {
        if self.names.insert(offer.name) {
            self.bytes += offer.stored.len();
            self.queue.push_back(offer);
        }
    }

    /// The first of them, up to so many bytes, but one at least.
    pub(super) fn take(&mut self, most: usize) -> Vec<Offer> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(next) = self.queue.front()
            && (taken.is_empty() || bytes + next.stored.len() <= most)
        {
            bytes += next.stored.len();
            taken.extend(self.queue.pop_front());
        }
        self.bytes -= bytes;
        for offer in &taken {
            self.names.remove(&offer.name);
        }
        taken
    }
}
