//! Which blocks are on which drive of the cache, and where.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use ondisk::Dva;
use ondisk::blkptr::Regular;
use units::Txg;

/// The memory of an index entry: twice its entry of the table, because the table has free space,
/// and its place in the ring.
const ENTRY_MEMORY: usize = 160;

/// The key of a block: the first address and the birth.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct BlockKey {
    vdev: u32,
    offset: u64,
    birth: u64,
}

impl BlockKey {
    pub(super) fn new(dva: Dva, birth: Txg) -> Self {
        Self { vdev: dva.vdev.get(), offset: dva.offset, birth: birth.get() }
    }

    pub(super) fn from_block(block: &Regular) -> Option<Self> {
        block.dvas[0].map(|dva| Self::new(dva, block.birth_physical))
    }
}

/// Where a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CacheLocation {
    pub(super) device_id: u64,
    /// Bytes from the drive's start.
    pub(super) offset: u64,
    pub(super) size: u32,
}

/// A block in the order of its drive.
struct CachedBlock {
    key: BlockKey,
    offset: u64,
    size: u32,
}

/// The entries of one device, in the order in which they were written.
#[derive(Default)]
struct WriteOrder {
    blocks: VecDeque<CachedBlock>,
    bytes: u64,
}

/// Which blocks are on which drive, and where.
#[derive(Default)]
pub(super) struct Index {
    locations: HashMap<BlockKey, CacheLocation>,
    write_orders: HashMap<u64, WriteOrder>,
}

impl Index {
    pub(super) fn find(&self, name: BlockKey) -> Option<CacheLocation> {
        self.locations.get(&name).copied()
    }

    /// A block was written to a drive.
    pub(super) fn insert(&mut self, drive: u64, name: BlockKey, at: u64, size: u32) {
        assert!(size > 0, "a block at {at} of cache device {drive} has bytes");
        self.locations.insert(name, CacheLocation { device_id: drive, offset: at, size });
        let order = self.write_orders.entry(drive).or_default();
        order.blocks.push_back(CachedBlock { key: name, offset: at, size });
        order.bytes += u64::from(size);
    }

    /// Adds a block found on a device; it is older than all known ones.
    pub(super) fn insert_older(&mut self, drive: u64, name: BlockKey, at: u64, size: u32) {
        if self.locations.contains_key(&name) {
            return;
        }
        self.locations.insert(name, CacheLocation { device_id: drive, offset: at, size });
        let order = self.write_orders.entry(drive).or_default();
        order.blocks.push_front(CachedBlock { key: name, offset: at, size });
        order.bytes += u64::from(size);
    }

    /// The block is not there, or not right. False: this was known already.
    pub(super) fn remove(&mut self, name: BlockKey, spot: CacheLocation) -> bool {
        let known = self.locations.get(&name) == Some(&spot);
        if known {
            self.locations.remove(&name);
        }
        known
    }

    /// Removes the entries in an overwritten range of a device; they are its oldest.
    pub(super) fn evict_range(&mut self, drive: u64, range: &Range<u64>) {
        while let Some(first) = self.write_orders.get(&drive).and_then(|order| order.blocks.front())
            && range.contains(&first.offset)
        {
            self.evict_oldest(drive);
        }
    }

    fn evict_oldest(&mut self, drive: u64) {
        let Some(order) = self.write_orders.get_mut(&drive) else { return };
        let Some(CachedBlock { key: name, offset: at, size }) = order.blocks.pop_front() else {
            return;
        };
        order.bytes -= u64::from(size);
        assert!(
            !order.blocks.is_empty() || order.bytes == 0,
            "a device has the bytes of its blocks"
        );
        // it may have been written again since
        self.remove(name, CacheLocation { device_id: drive, offset: at, size });
    }

    /// Removes all entries of a device.
    pub(super) fn remove_device(&mut self, drive: u64) {
        self.write_orders.remove(&drive);
        self.locations.retain(|_, spot| spot.device_id != drive);
    }

    /// Forgets the oldest until it takes no more than `most` bytes of memory.
    pub(super) fn shrink(&mut self, most: usize) {
        while self.memory_used() > most {
            let longest = self.write_orders.iter().max_by_key(|(_, order)| order.blocks.len());
            let Some(drive) = longest.map(|(drive, _)| *drive) else { return };
            self.evict_oldest(drive);
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory_used(&self) -> usize {
        self.write_orders.values().map(|order| order.blocks.len()).sum::<usize>() * ENTRY_MEMORY
    }

    /// Whether there is memory for more, of `most` bytes.
    pub(super) fn can_grow(&self, most: usize) -> bool {
        self.memory_used() + ENTRY_MEMORY <= most
    }

    /// How many blocks are known.
    pub(super) fn len(&self) -> u64 {
        self.locations.len() as u64
    }

    /// Bytes of the blocks on a drive.
    pub(super) fn bytes_on(&self, drive: u64) -> u64 {
        self.write_orders.get(&drive).map_or(0, |order| order.bytes)
    }
}
