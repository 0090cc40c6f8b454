//! A part of the cache: blocks that were seen once lately, blocks that were seen more often, and the
//! names of those of either kind that had to go (ARC).
//!
//! A block comes in as recent; asked for again after a while, it becomes frequent. If one is asked
//! for whose name is still known, there should have been more room for its kind: so the target,
//! which is how much of the limit the recent ones get, follows what is asked for. Who reads all of
//! a long file once passes through the recent ones and leaves the frequent ones alone.

use std::collections::{BTreeMap, HashMap};

use zio::Trimmed;

use crate::identity::Identity;

/// What a block costs besides its bytes.
const OVERHEAD: usize = 256;
/// The name of a block that had to go counts as its block did, but for no less.
const NAME: usize = 8 << 10;
/// Buffers from here on have room for a power of two.
const ROUNDED: usize = 16 << 10;
/// A block that is asked for again is wanted often if so many others came in meanwhile, or a part
/// of all that are there: sooner, it is one reader who takes it bit by bit, or after read-ahead.
const SOON: u64 = 8;
const SOON_PART: u64 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Recent,
    Frequent,
}

struct Entry {
    kind: Kind,
    /// Its place in the order of its list.
    turn: u64,
    /// How many blocks had come in when it did.
    since: u64,
    size: usize,
    /// None: only its name is known.
    block: Option<Trimmed>,
}

/// Names in the order in which they are to go.
#[derive(Default)]
struct List {
    order: BTreeMap<u64, Identity>,
    bytes: usize,
}

impl List {
    fn add(&mut self, turn: u64, identity: Identity, size: usize) {
        self.order.insert(turn, identity);
        self.bytes += size;
    }

    fn remove(&mut self, turn: u64, size: usize) {
        if self.order.remove(&turn).is_some() {
            self.bytes -= size;
        }
    }
}

/// A part of the cache.
#[derive(Default)]
pub(crate) struct Shard {
    entries: HashMap<Identity, Entry>,
    recent: List,
    frequent: List,
    recent_gone: List,
    frequent_gone: List,
    /// How many bytes recent ones are to have.
    target: usize,
    turns: u64,
    inserts: u64,
}

impl Shard {
    /// The block, if it is here.
    pub(crate) fn find(&mut self, identity: Identity) -> Option<Trimmed> {
        let soon = SOON.max(self.entries.len() as u64 / SOON_PART);
        let entry = self.entries.get_mut(&identity)?;
        let block = entry.block.clone()?;
        let (kind, turn, size) = (entry.kind, entry.turn, entry.size);
        self.turns += 1;
        entry.turn = self.turns;
        if self.inserts - entry.since >= soon {
            entry.kind = Kind::Frequent;
        }
        let now = entry.kind;
        self.list(kind, true).remove(turn, size);
        let turn = self.turns;
        self.list(now, true).add(turn, identity, size);
        Some(block)
    }

    /// Takes a block in, within `limit` bytes, and gives those out that had to make room.
    pub(crate) fn insert(
        &mut self,
        identity: Identity,
        block: Trimmed,
        limit: usize,
    ) -> Vec<Trimmed> {
        let size = cost(block.begin().len());
        if size > limit / 2 {
            return Vec::new();
        }
        let kind = match self.entries.get(&identity) {
            Some(Entry { block: Some(_), .. }) => return Vec::new(),
            Some(_) => self.called_back(identity, size, limit),
            None => Kind::Recent,
        };
        let evicted = self.make_room(limit - size, limit, kind);
        self.turns += 1;
        self.inserts += 1;
        let (turn, since) = (self.turns, self.inserts);
        self.list(kind, true).add(turn, identity, size);
        self.entries.insert(identity, Entry { kind, turn, since, size, block: Some(block) });
        evicted
    }

    /// Gives out what is more than `limit`.
    pub(crate) fn shrink(&mut self, limit: usize) -> Vec<Trimmed> {
        self.make_room(limit, limit, Kind::Recent)
    }

    /// One is asked for that had to go: its kind gets more room.
    fn called_back(&mut self, identity: Identity, size: usize, limit: usize) -> Kind {
        let (recent, frequent) = (self.recent_gone.bytes.max(1), self.frequent_gone.bytes.max(1));
        if let Some(entry) = self.entries.remove(&identity) {
            self.list(entry.kind, false).remove(entry.turn, entry.size.max(NAME));
            self.target = match entry.kind {
                Kind::Recent => (self.target + size.max(size * frequent / recent)).min(limit),
                Kind::Frequent => self.target.saturating_sub(size.max(size * recent / frequent)),
            };
        }
        Kind::Frequent
    }

    /// Puts blocks out until there are no more than `most` bytes, for one of that kind.
    fn make_room(&mut self, most: usize, limit: usize, coming: Kind) -> Vec<Trimmed> {
        let mut evicted = Vec::new();
        while self.recent.bytes + self.frequent.bytes > most {
            let much = self.recent.bytes > self.target
                || (self.recent.bytes == self.target && coming == Kind::Frequent);
            let is_recent = self.frequent.order.is_empty() || much;
            let kind = if is_recent && !self.recent.order.is_empty() {
                Kind::Recent
            } else {
                Kind::Frequent
            };
            let Some(block) = self.put_out(kind) else { break };
            evicted.push(block);
        }
        self.forget_names(limit);
        evicted
    }

    fn forget_names(&mut self, limit: usize) {
        for kind in [Kind::Recent, Kind::Frequent] {
            while self.list(kind, false).bytes > limit / 2 {
                let Some((_, identity)) = self.list(kind, false).order.pop_first() else { break };
                if let Some(entry) = self.entries.remove(&identity) {
                    self.list(kind, false).bytes -= entry.size.max(NAME);
                }
            }
        }
    }

    /// A block, or its name, that nobody will ask for.
    pub(crate) fn forget(&mut self, identity: Identity) -> Option<Trimmed> {
        let Entry { kind, turn, size, block, .. } = self.entries.remove(&identity)?;
        let is_here = block.is_some();
        self.list(kind, is_here).remove(turn, if is_here { size } else { size.max(NAME) });
        block
    }

    /// Whether a block is known by its name alone.
    pub(crate) fn knows(&self, identity: Identity) -> bool {
        self.entries.get(&identity).is_some_and(|entry| entry.block.is_none())
    }

    /// Notes the name of a block that came by and is not taken in.
    pub(crate) fn note(&mut self, identity: Identity, length: usize, limit: usize) {
        if self.entries.contains_key(&identity) {
            return;
        }
        self.turns += 1;
        let (kind, turn, since, size) = (Kind::Recent, self.turns, self.inserts, cost(length));
        self.list(kind, false).add(turn, identity, size.max(NAME));
        self.entries.insert(identity, Entry { kind, turn, since, size, block: None });
        self.forget_names(limit);
    }

    /// The block of a kind that was not asked for the longest goes; its name stays.
    fn put_out(&mut self, kind: Kind) -> Option<Trimmed> {
        let (turn, identity) = self.list(kind, true).order.pop_first()?;
        let entry = self.entries.get_mut(&identity)?;
        let (size, block) = (entry.size, entry.block.take());
        self.list(kind, true).bytes -= size;
        self.list(kind, false).add(turn, identity, size.max(NAME));
        block
    }

    fn list(&mut self, kind: Kind, is_here: bool) -> &mut List {
        match (kind, is_here) {
            (Kind::Recent, true) => &mut self.recent,
            (Kind::Frequent, true) => &mut self.frequent,
            (Kind::Recent, false) => &mut self.recent_gone,
            (Kind::Frequent, false) => &mut self.frequent_gone,
        }
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.recent.bytes + self.frequent.bytes
    }
}

/// The memory that a block takes.
fn cost(length: usize) -> usize {
    let room = if length < ROUNDED { length } else { length.next_power_of_two() };
    room + OVERHEAD
}

#[cfg(test)]
mod tests;
