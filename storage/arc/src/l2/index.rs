//! Which blocks are on which drive of the cache, and where.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use ondisk::Dva;
use ondisk::blkptr::Regular;
use units::Txg;

/// What a block that is on a drive costs in memory: twice its entry of the table, which is not
/// full, and its place in the ring.
const COST: usize = 160;

/// What names a block: the first address, and when it was written there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Name {
    vdev: u32,
    offset: u64,
    birth: u64,
}

impl Name {
    pub(super) fn new(dva: Dva, birth: Txg) -> Self {
        Self { vdev: dva.vdev.get(), offset: dva.offset, birth: birth.get() }
    }

    pub(super) fn of(block: &Regular) -> Option<Self> {
        block.dvas[0].map(|dva| Self::new(dva, block.birth_physical))
    }
}

/// Where a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spot {
    pub(super) drive: u64,
    /// Bytes from the drive's start.
    pub(super) at: u64,
    pub(super) size: u32,
}

/// A block in the order of its drive.
struct Turn {
    name: Name,
    at: u64,
    size: u32,
}

/// What is on one drive, in the order in which it was written.
#[derive(Default)]
struct Order {
    turns: VecDeque<Turn>,
    bytes: u64,
}

/// Which blocks are on which drive, and where.
#[derive(Default)]
pub(super) struct Index {
    spots: HashMap<Name, Spot>,
    orders: HashMap<u64, Order>,
}

impl Index {
    pub(super) fn find(&self, name: Name) -> Option<Spot> {
        self.spots.get(&name).copied()
    }

    /// A block was written to a drive.
    pub(super) fn put(&mut self, drive: u64, name: Name, at: u64, size: u32) {
        self.spots.insert(name, Spot { drive, at, size });
        let order = self.orders.entry(drive).or_default();
        order.turns.push_back(Turn { name, at, size });
        order.bytes += u64::from(size);
    }

    /// A block turns out to be on a drive, and was there before all that are known of it.
    pub(super) fn put_older(&mut self, drive: u64, name: Name, at: u64, size: u32) {
        if self.spots.contains_key(&name) {
            return;
        }
        self.spots.insert(name, Spot { drive, at, size });
        let order = self.orders.entry(drive).or_default();
        order.turns.push_front(Turn { name, at, size });
        order.bytes += u64::from(size);
    }

    /// The block is not there, or not right. False: this was known already.
    pub(super) fn forget(&mut self, name: Name, spot: Spot) -> bool {
        let known = self.spots.get(&name) == Some(&spot);
        if known {
            self.spots.remove(&name);
        }
        known
    }

    /// What begins within the range of a drive is overwritten; it is the oldest there.
    pub(super) fn evict(&mut self, drive: u64, range: &Range<u64>) {
        while let Some(first) = self.orders.get(&drive).and_then(|order| order.turns.front())
            && range.contains(&first.at)
        {
            self.evict_oldest(drive);
        }
    }

    fn evict_oldest(&mut self, drive: u64) {
        let Some(order) = self.orders.get_mut(&drive) else { return };
        let Some(Turn { name, at, size }) = order.turns.pop_front() else { return };
        order.bytes -= u64::from(size);
        // it may have been written again since
        self.forget(name, Spot { drive, at, size });
    }

    /// Nothing of a drive is there any more.
    pub(super) fn forget_drive(&mut self, drive: u64) {
        self.orders.remove(&drive);
        self.spots.retain(|_, spot| spot.drive != drive);
    }

    /// Forgets the oldest until it takes no more than `most` bytes of memory.
    pub(super) fn shrink(&mut self, most: usize) {
        while self.memory() > most {
            let longest = self.orders.iter().max_by_key(|(_, order)| order.turns.len());
            let Some(drive) = longest.map(|(drive, _)| *drive) else { return };
            self.evict_oldest(drive);
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory(&self) -> usize {
        self.orders.values().map(|order| order.turns.len()).sum::<usize>() * COST
    }

    /// Whether there is memory for more, of `most` bytes.
    pub(super) fn has_room(&self, most: usize) -> bool {
        self.memory() + COST <= most
    }

    /// How many blocks are known.
    pub(super) fn len(&self) -> u64 {
        self.spots.len() as u64
    }

    /// Bytes of the blocks on a drive.
    pub(super) fn bytes_on(&self, drive: u64) -> u64 {
        self.orders.get(&drive).map_or(0, |order| order.bytes)
    }
}
