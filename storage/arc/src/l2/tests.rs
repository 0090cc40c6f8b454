//! Blocks of a pool in memory, read through cache drives that are damaged, fail and fill up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use device::{Device, MemoryDevice as Bytes};
use ondisk::{Blkptr, Compression, ObjectType};
use sim::{DiskArray, Fault, Random};
use units::{Ashift, Guid, Level, ObjsetId, Txg, Zbookmark};
use zio::memory::MemoryVdevs;
use zio::{Reader, Sink, Source, WritePolicy, WriteRequest, Writer};

use super::{L2arc, SecondaryCachePolicy};
use crate::MemoryBudget;
use crate::memory_budget::MemoryUser;

const POOL_GUID: Guid = Guid::new(77);
const DEVICE_GUID: Guid = Guid::new(88);
const TXG: Txg = Txg::new(50);
const DEVICE_SIZE: u64 = 24 << 20;
const SECTOR_SHIFT: u64 = 12;

fn ashift() -> Ashift {
    Ashift::new(SECTOR_SHIFT).unwrap()
}

/// A pool with blocks in it.
struct TestPool {
    writer: Writer,
    blocks: Vec<(Blkptr, Vec<u8>)>,
}

impl TestPool {
    fn new() -> Self {
        Self { writer: MemoryVdevs::new(2, 96 << 20, ashift()).writer(), blocks: Vec::new() }
    }

    /// Blocks of all sizes, half of which can be compressed.
    fn with_blocks(count: u64, largest: u64) -> Self {
        let mut pool = Self::new();
        let mut seed = Random::new(count);
        for number in 0..count {
            let sectors = usize::try_from(1 + seed.next_below(largest / 512)).unwrap();
            let mut data: Vec<u8> =
                (0..sectors * 64).flat_map(|_| seed.next_u64().to_le_bytes()).collect();
            if number.is_multiple_of(2) {
                let half = data.len() / 2;
                data[half..].fill(number.to_le_bytes()[0]);
            }
            pool.add_block(data, ObjectType::PLAIN_FILE);
        }
        pool
    }

    fn add_block(&mut self, data: Vec<u8>, kind: ObjectType) {
        let policy = WritePolicy { compression: Compression::Lz4, ..WritePolicy::default() };
        let pointer = self.writer.write(&WriteRequest {
            data: &data,
            kind,
            level: Level::new(0),
            fill: 1,
            txg: TXG,
            policy: &policy,
            previous: &Blkptr::EMPTY,
            zbookmark: Zbookmark::default(),
            raw: None,
        });
        self.blocks.push((pointer.unwrap(), data));
    }

    fn reader(&self, l2: &Arc<L2arc>) -> Reader {
        let reader = Reader::new(Arc::clone(self.writer.reader().tree()));
        reader.set_secondary_cache(Arc::clone(l2) as Arc<dyn zio::SecondaryCache>);
        reader
    }

    /// Reads all blocks, which must be right; how many came from the cache.
    fn read_all(&self, l2: &Arc<L2arc>) -> u64 {
        let (reader, before) = (self.reader(l2), l2.stats().hits);
        for (pointer, data) in &self.blocks {
            assert!(reader.read(pointer, Zbookmark::default(), None).unwrap()[..] == data[..]);
        }
        l2.stats().hits - before
    }
}

fn l2arc_synced_to(settled: Txg) -> Arc<L2arc> {
    Arc::new(L2arc::new(POOL_GUID, &MemoryBudget::with_bytes(256 << 20), move || settled))
}

/// With one drive, whose log blocks have few entries.
fn l2arc_on_device(device: Arc<dyn Device>, per_log: u64) -> Arc<L2arc> {
    let l2 = l2arc_synced_to(TXG);
    assert!(l2.add_device(DEVICE_GUID, ashift(), device));
    l2.devices.read()[0].writer.lock().entries_per_log = per_log;
    l2
}

fn cache_device(size: u64) -> Arc<dyn Device> {
    Arc::new(Bytes::zeroed("cache", size))
}

fn feed_all(l2: &L2arc) {
    while l2.feed(usize::MAX) > 0 {}
}

#[test]
fn second_read_comes_from_the_cache_device() {
    let pool = TestPool::with_blocks(100, 100 << 10);
    let l2 = l2arc_on_device(cache_device(DEVICE_SIZE), 5);
    assert_eq!(pool.read_all(&l2), 0);
    feed_all(&l2);
    assert_eq!(pool.read_all(&l2), 100);
    let counts = l2.stats();
    assert_eq!((counts.hits, counts.misses, counts.blocks), (100, 100, 100));
    let [drive] = &l2.device_stats()[..] else { panic!("one drive") };
    assert_eq!(drive.allocated, counts.bytes_written);
    assert!(drive.checksum_errors == 0 && !drive.is_failed);
    // without its drive it has nothing
    assert!(l2.remove_device(DEVICE_GUID).is_some());
    assert_eq!((pool.read_all(&l2), l2.stats().blocks), (0, 0));
}

#[test]
fn single_use_and_excluded_blocks_are_not_stored() {
    let mut pool = TestPool::with_blocks(10, 4096);
    let once = l2arc_on_device(cache_device(DEVICE_SIZE), 5);
    let reader = pool.reader(&once);
    for (pointer, _) in &pool.blocks {
        reader.read_once(pointer, Zbookmark::default(), None).unwrap();
    }
    feed_all(&once);
    assert_eq!(once.stats().blocks, 0, "read once");
    // of a group that is not on the drives yet, another content may be born after a power cut
    let early = l2arc_synced_to(Txg::new(TXG.get() - 1));
    assert!(early.add_device(DEVICE_GUID, ashift(), cache_device(DEVICE_SIZE)));
    pool.read_all(&early);
    feed_all(&early);
    assert_eq!(early.stats().blocks, 0, "not settled");
    pool.add_block(vec![3; 4096], ObjectType::DIRECTORY);
    pool.blocks.last_mut().unwrap().1[..].iter().for_each(|byte| assert_eq!(*byte, 3));
    for (kept, blocks) in [
        (SecondaryCachePolicy::None, 0),
        (SecondaryCachePolicy::Metadata, 1),
        (SecondaryCachePolicy::All, 11),
    ] {
        let some = l2arc_on_device(cache_device(DEVICE_SIZE), 5);
        some.set_policy(ObjsetId::new(0), kept);
        pool.read_all(&some);
        feed_all(&some);
        assert_eq!(some.stats().blocks, blocks, "{kept:?}");
    }
}

#[test]
fn wrong_blocks_of_the_device_are_never_returned() {
    let pool = TestPool::with_blocks(200, 30 << 10);
    let storm = DiskArray::new(&[DEVICE_SIZE]);
    let l2 = l2arc_on_device(storm.devices().remove(0), 5);
    pool.read_all(&l2);
    feed_all(&l2);
    storm.disks()[0].flip_bits(4 << 20..12 << 20, 400, &mut Random::new(1));
    let hits = pool.read_all(&l2);
    let wrong = l2.device_stats()[0].checksum_errors;
    assert!(hits < 200 && wrong > 0, "{hits} hits, {wrong} wrong");
    assert_eq!(hits + wrong, 200, "a wrong block is read once");
    // wrong blocks were read from the pool, and queued again
    feed_all(&l2);
    assert_eq!(pool.read_all(&l2), 200);
}

#[test]
fn failed_device_is_unused_until_cleared() {
    let pool = TestPool::with_blocks(100, 30 << 10);
    let all = 0..DEVICE_SIZE;
    for fault in [Fault::Read(all.clone()), Fault::Write(all), Fault::Removed, Fault::Flush] {
        let storm = DiskArray::new(&[DEVICE_SIZE]);
        let l2 = l2arc_on_device(storm.devices().remove(0), 5);
        pool.read_all(&l2);
        if matches!(fault, Fault::Read(_) | Fault::Removed) {
            feed_all(&l2);
        }
        storm.disks()[0].add_fault(fault.clone());
        for _ in 0..20 {
            assert_eq!(pool.read_all(&l2), 0, "{fault:?}");
            feed_all(&l2);
        }
        let found = l2.device_stats().remove(0);
        assert!(found.is_failed, "{fault:?}: {found:?}");
        assert_eq!(found.read_errors + found.write_errors, 10, "{fault:?}");
        storm.disks()[0].clear_faults();
        l2.clear_errors(None);
        pool.read_all(&l2);
        feed_all(&l2);
        assert_eq!(pool.read_all(&l2), 100, "{fault:?}");
    }
}

#[test]
fn a_drive_fills_up_and_goes_round() {
    let l2 = l2arc_on_device(cache_device(DEVICE_SIZE), 7);
    let mut pools = Vec::new();
    for round in 0..12 {
        pools.push(TestPool::with_blocks(60 + round, 128 << 10));
        let pool = pools.last().unwrap();
        // pools differ only by their blocks: a part of the addresses is unique to each
        let l2_before = l2.stats().bytes_written;
        pool.read_all(&l2);
        feed_all(&l2);
        assert!(l2.stats().bytes_written > l2_before, "round {round}");
        let again = pool.read_all(&l2);
        assert!(again > 50, "round {round}: {again}");
        let found = l2.device_stats().remove(0);
        assert!(found.allocated <= found.size, "{found:?}");
    }
    assert!(!l2.is_warming_up(), "it went round");
}

/// The blocks of the index, read from the device.
fn indexed_count(l2: &L2arc, pool: &TestPool) -> usize {
    let index = l2.index.lock();
    let known = pool.blocks.iter().filter(|(pointer, _)| {
        let Blkptr::Regular(block) = pointer else { return false };
        index.find(super::BlockKey::from_block(block).unwrap()).is_some()
    });
    known.count()
}

#[test]
fn index_is_rebuilt_from_the_device() {
    let device = cache_device(DEVICE_SIZE);
    let pool = TestPool::with_blocks(500, 60 << 10);
    for round in 1..6 {
        let l2 = l2arc_on_device(Arc::clone(&device), 5);
        // it is looked at before it is written
        l2.feed(0);
        let found = indexed_count(&l2, &pool);
        if round == 1 {
            assert_eq!(found, 0);
        } else {
            assert!(found > 100, "round {round}: {found}");
            assert_eq!(pool.read_all(&l2), found as u64, "round {round}: all are right");
        }
        pool.read_all(&l2);
        feed_all(&l2);
        let whole = pool.read_all(&l2);
        assert!(whole > 100, "{whole}");
    }
}

#[test]
fn foreign_or_damaged_header_starts_empty() {
    let pool = TestPool::with_blocks(100, 30 << 10);
    let device = Bytes::zeroed("cache", DEVICE_SIZE);
    let first = l2arc_on_device(Arc::new(device.clone()), 5);
    pool.read_all(&first);
    let used: Arc<dyn Device> = first.devices.read()[0].device.clone();
    feed_all(&first);
    let mut bytes = vec![0; usize::try_from(DEVICE_SIZE).unwrap()];
    used.read_at(0, &mut bytes).unwrap();
    let copy = || Arc::new(Bytes::new("cache", &bytes)) as Arc<dyn Device>;
    let found = |guid: Guid, pool_guid: Guid, per_log: u64, device: Arc<dyn Device>| {
        let l2 = L2arc::new(pool_guid, &MemoryBudget::with_bytes(256 << 20), || TXG);
        assert!(l2.add_device(guid, ashift(), device));
        l2.devices.read()[0].writer.lock().entries_per_log = per_log;
        l2.feed(0);
        indexed_count(&l2, &pool)
    };
    assert_eq!(found(DEVICE_GUID, POOL_GUID, 5, copy()), 100);
    assert_eq!(found(Guid::new(1), POOL_GUID, 5, copy()), 0);
    assert_eq!(found(DEVICE_GUID, Guid::new(1), 5, copy()), 0);
    assert_eq!(found(DEVICE_GUID, POOL_GUID, 6, copy()), 0);
    let damaged = copy();
    damaged.write_at((4 << 20) + 100, &[9]).unwrap();
    assert_eq!(found(DEVICE_GUID, POOL_GUID, 5, Arc::clone(&damaged)), 0);
    // and none of the old content is used from then on
    assert_eq!(found(DEVICE_GUID, POOL_GUID, 5, damaged), 0);
    // blocks of a past that did not happen
    let early = Arc::new(L2arc::new(POOL_GUID, &MemoryBudget::with_bytes(256 << 20), || {
        Txg::new(TXG.get() - 1)
    }));
    assert!(early.add_device(DEVICE_GUID, ashift(), copy()));
    early.devices.read()[0].writer.lock().entries_per_log = 5;
    early.feed(0);
    assert_eq!(indexed_count(&early, &pool), 0);
    let device = early.remove_device(DEVICE_GUID).unwrap();
    assert_eq!(found(DEVICE_GUID, POOL_GUID, 5, device), 0, "not later either");
}

/// Headers of a device with log blocks of five entries, changed at random, with right checksums.
fn corrupt_device(seed: u64, image: &Bytes) -> Arc<dyn Device> {
    use ondisk::l2arc::LogBlock;
    let mut seed = Random::new(seed);
    let device = Arc::new(image.clone());
    let drive = super::CacheDevice::new(0, DEVICE_GUID, ashift(), device.clone()).unwrap();
    let mut header = drive.read_header().unwrap();
    let anywhere = |seed: &mut Random| match seed.next_below(4) {
        0 => seed.next_u64(),
        1 => seed.next_below(DEVICE_SIZE),
        2 => seed.next_below(DEVICE_SIZE) & !4095,
        _ => header.logs[0].offset,
    };
    let (first, second) = (anywhere(&mut seed), anywhere(&mut seed));
    let (third, flag) = (anywhere(&mut seed), seed.chance_percent(50));
    match seed.next_below(5) {
        0 => header.evict = first,
        1 => (header.evict, header.first_sweep) = (first, flag),
        2 => header.logs[0].payload_start = first,
        3 => (header.logs[1].offset, header.logs[1].payload_start) = (first, second),
        _ => {
            // a log block with random pointers, also to itself, and random entries
            let pointer = &mut header.logs[0];
            let mut stored = vec![0; pointer.psize as usize];
            device.read_at(pointer.offset, &mut stored).unwrap();
            let mut plain = vec![0; LogBlock::SIZE];
            let method = pointer.compression.unwrap();
            transform::compress::decompress(method, &stored, &mut plain).unwrap();
            let mut block = LogBlock::parse(&plain, 5).unwrap();
            (block.previous.offset, block.previous.payload_start) = (first, second);
            block.entries[2].offset = third;
            block.entries[3].psize = 16 << 20;
            let short = transform::compress::compress(method, 0, &block.encode(), stored.len());
            stored.fill(0);
            let short = short.unwrap();
            stored[..short.len()].copy_from_slice(&short);
            device.write_at(pointer.offset, &stored).unwrap();
            pointer.sum = super::writer::log_checksum(&stored);
        }
    }
    drive.write_header(&header);
    device
}

#[test]
fn hostile_header_and_log_never_give_wrong_data() {
    let pool = TestPool::with_blocks(200, 30 << 10);
    let image = Arc::new(Bytes::zeroed("cache", DEVICE_SIZE));
    let l2 = l2arc_on_device(image.clone(), 5);
    pool.read_all(&l2);
    feed_all(&l2);
    let mut found = 0;
    for seed in 0..400 {
        let l2 = l2arc_on_device(corrupt_device(seed, &image), 5);
        l2.feed(0);
        found += pool.read_all(&l2);
        feed_all(&l2);
        assert_eq!(pool.read_all(&l2), 200, "seed {seed}");
    }
    assert!(found > 1000, "{found}");
}

#[test]
fn drives_come_and_go_while_many_read() {
    let pool = TestPool::with_blocks(100, 60 << 10);
    let l2 = l2arc_on_device(cache_device(DEVICE_SIZE), 5);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..20).map(|_| pool.read_all(&l2)).sum::<u64>());
        }
        let feeder = scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                l2.feed(1 << 20);
                l2.device_stats();
            }
        });
        for round in 0..30 {
            let guid = Guid::new(round + 1000);
            assert!(l2.add_device(guid, ashift(), cache_device(DEVICE_SIZE)));
            l2.clear_errors(None);
            std::thread::yield_now();
            assert!(l2.remove_device(guid).is_some());
        }
        ended.store(true, Ordering::Release);
        feeder.join().unwrap();
    });
    feed_all(&l2);
    pool.read_all(&l2);
    feed_all(&l2);
    assert_eq!(pool.read_all(&l2), 100);
    assert_eq!(l2.device_stats()[0].checksum_errors, 0);
    l2.close();
    assert_eq!((l2.device_stats().len(), l2.stats().blocks, pool.read_all(&l2)), (0, 0, 0));
    assert_eq!(l2.index.lock().memory_used(), 0);
}

#[test]
fn the_header_is_openzfs_s_own() {
    let real = include_bytes!("../../../ondisk/tests/golden/cache-header.bin");
    let device = Arc::new(Bytes::zeroed("cache", 64 << 20));
    device.write_at(4 << 20, real).unwrap();
    let drive = super::CacheDevice::new(0, DEVICE_GUID, ashift(), device.clone()).unwrap();
    let header = drive.read_header().expect("its checksum is right");
    device.write_at(4 << 20, &[0; 4096]).unwrap();
    assert!(drive.write_header(&header));
    let mut ours = [0; 4096];
    device.read_at(4 << 20, &mut ours).unwrap();
    assert_eq!(ours, *real);
    let pen = drive.writer.lock();
    assert_eq!((header.start, header.end), (pen.ring.start, pen.ring.end));
    assert_eq!(pen.header(header.pool, header.device), header, "so it begins");
}

#[test]
fn power_cut_never_gives_wrong_data() {
    let storm = DiskArray::new(&[DEVICE_SIZE]);
    let pools: Vec<_> = (0..4).map(|round| TestPool::with_blocks(300 + round, 60 << 10)).collect();
    let l2 = l2arc_on_device(storm.devices().remove(0), 5);
    for pool in &pools {
        pool.read_all(&l2);
        feed_all(&l2);
    }
    let journal = storm.journal();
    let (mut hits, mut cuts) = (HashMap::new(), 0);
    for at in (0..journal.len()).step_by(3) {
        for seed in 0..5 {
            let device = journal.cut_power(at, seed).remove(0);
            let l2 = l2arc_on_device(Arc::new(device), 5);
            l2.feed(0);
            for (round, pool) in pools.iter().enumerate() {
                *hits.entry(round).or_insert(0) += pool.read_all(&l2);
            }
            cuts += 1;
        }
    }
    assert!(cuts > 20 && hits.values().sum::<u64>() > 1000, "{cuts} cuts, {hits:?}");
}

#[test]
fn too_small_device_is_refused() {
    assert!(!l2arc_synced_to(TXG).add_device(DEVICE_GUID, ashift(), cache_device(1 << 20)));
    assert!(!l2arc_synced_to(TXG).add_device(DEVICE_GUID, ashift(), cache_device(0)));
}

/// A share that records its last limit.
struct ShrinkRecorder(AtomicUsize);

impl MemoryUser for ShrinkRecorder {
    fn shrink(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

#[test]
fn index_memory_is_part_of_the_limit() {
    let memory = MemoryBudget::with_bytes(64 << 20);
    let told = Arc::new(ShrinkRecorder(AtomicUsize::new(0)));
    let holder: Weak<ShrinkRecorder> = Arc::downgrade(&told);
    let share = memory.add_user(holder);
    assert_eq!(share.bytes(), 64 << 20);
    let l2 = Arc::new(L2arc::new(POOL_GUID, &memory, || TXG));
    l2.add_device(DEVICE_GUID, ashift(), cache_device(DEVICE_SIZE));
    assert_eq!(share.bytes(), 60 << 20);
    assert_eq!(told.0.load(Ordering::Relaxed), 60 << 20, "blocks free memory at once");
    l2.remove_device(DEVICE_GUID);
    assert_eq!(share.bytes(), 64 << 20);
}
