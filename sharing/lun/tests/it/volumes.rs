//! Volumes served as logical units: content compared with a model under concurrent requests, and events.

use std::sync::Arc;

use engine::pool::Pool;
use lun::{
    Compared, Durability, Error, EventCallback, Lun, LunEvent, LunOptions, Reservations,
    SnapshotLun, VolumeLun,
};
use proptest::prelude::*;

use crate::copies::noise;
use crate::volume_pool::{SIZE, VOLUME, VOLUME_BLOCK, create_pool, environment};

const BLOCK: u64 = 512;

pub(crate) fn open(pool: &Pool) -> VolumeLun {
    VolumeLun::open(pool, VOLUME, LunOptions::default(), Reservations::default()).expect("a unit")
}

#[derive(Clone, Debug)]
enum Op {
    Write { block: u64, count: u64, fill: u8, durable: bool },
    Zero { block: u64, count: u64 },
    Unmap { block: u64, count: u64 },
    Compare { block: u64, fill: u8, differs: bool },
    Count,
    Flush,
}

/// Logical blocks that one thread alone changes.
const OWN_BLOCKS: u64 = 256;
const THREADS: u64 = 3;
/// The block that all threads count in, beside blocks that one of them writes.
const COUNTER: u64 = OWN_BLOCKS * THREADS;

fn any_op() -> impl Strategy<Value = Op> {
    let parts = (0..9_u8, 0..OWN_BLOCKS, 1..60_u64, any::<u8>(), any::<bool>());
    parts.prop_map(|(what, block, count, fill, flag)| {
        let count = count.min(OWN_BLOCKS - block);
        match what {
            0..=2 => Op::Write { block, count, fill, durable: flag && fill < 16 },
            3 => Op::Zero { block, count },
            4 => Op::Unmap { block, count },
            5 => Op::Compare { block, fill, differs: flag },
            6 | 7 => Op::Count,
            _ => Op::Flush,
        }
    })
}

/// The bytes that an operation writes: no two blocks are the same.
fn content(block: u64, count: u64, fill: u8) -> Vec<u8> {
    let of = |block: u64| {
        let salt = u8::try_from(block % 251).unwrap();
        std::iter::repeat_n(fill.wrapping_mul(7) ^ salt, 512)
    };
    (block..block + count).flat_map(of).collect()
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// Adds one to the shared counter by compare-and-write.
fn count_once(unit: &VolumeLun) {
    loop {
        let mut found = [0; 512];
        unit.read(COUNTER * BLOCK, &mut found).unwrap();
        let mut next = found;
        let value = u64::from_le_bytes(*found.first_chunk().unwrap());
        next[..8].copy_from_slice(&(value + 1).to_le_bytes());
        let done =
            unit.compare_and_write(COUNTER * BLOCK, &found, &next, Durability::Cached).unwrap();
        if done == Compared::Written {
            return;
        }
    }
}

/// Runs the operations of a thread; returns what its blocks hold then, and how often it counted.
fn run_thread(unit: &VolumeLun, thread: u64, ops: &[Op]) -> (Vec<u8>, u64) {
    let (first, mut model, mut counted) =
        (thread * OWN_BLOCKS, vec![0; index(OWN_BLOCKS * BLOCK)], 0);
    let bytes = |block: u64, count: u64| index(block * BLOCK)..index((block + count) * BLOCK);
    for op in ops {
        match *op {
            Op::Write { block, count, fill, durable } => {
                let data = content(block, count, fill);
                let how = if durable { Durability::Durable } else { Durability::Cached };
                unit.write((first + block) * BLOCK, &data, how).unwrap();
                model[bytes(block, count)].copy_from_slice(&data);
            }
            Op::Zero { block, count } => {
                let start = (first + block) * BLOCK;
                unit.write_zeroes(start..start + count * BLOCK, Durability::Cached).unwrap();
                model[bytes(block, count)].fill(0);
            }
            Op::Unmap { block, count } => {
                let start = (first + block) * BLOCK;
                unit.unmap(start..start + count * BLOCK).unwrap();
                // threads own whole blocks of the volume; only those within the range are freed
                let per = u64::from(VOLUME_BLOCK) / BLOCK;
                let (from, to) = (block.next_multiple_of(per), (block + count) / per * per);
                if from < to {
                    model[bytes(from, to - from)].fill(0);
                }
            }
            Op::Compare { block, fill, differs } => {
                let mut expected = model[bytes(block, 1)].to_vec();
                let wanted = if differs {
                    expected[300] ^= 1;
                    Compared::Differs { at: 300 }
                } else {
                    Compared::Written
                };
                let (data, at) = (content(block, 1, fill), (first + block) * BLOCK);
                let done = unit.compare_and_write(at, &expected, &data, Durability::Cached);
                assert_eq!(done, Ok(wanted));
                if !differs {
                    model[bytes(block, 1)].copy_from_slice(&data);
                }
            }
            Op::Count => {
                count_once(unit);
                // the neighbour in the same block of the volume
                let near = (COUNTER + 1 + thread) * BLOCK;
                unit.write(near, &content(thread, 1, 1), Durability::Cached).unwrap();
                counted += 1;
            }
            Op::Flush => unit.flush().unwrap(),
        }
    }
    (model, counted)
}

/// Checks that the extents cover the unit, and that unmapped ranges are zeros.
fn check_extents(unit: &VolumeLun, whole: &[u8]) {
    let mut at = 0;
    while at < SIZE {
        let extent = unit.extent(at..SIZE).unwrap();
        assert_eq!(extent.range.start, at);
        let first = unit.extent(at..at + BLOCK).unwrap();
        assert_eq!((first.range, first.is_mapped), (at..at + BLOCK, extent.is_mapped));
        assert!(extent.range.end > at && extent.range.end.is_multiple_of(BLOCK));
        let bytes = &whole[index(at)..index(extent.range.end)];
        assert!(extent.is_mapped || bytes.iter().all(|byte| *byte == 0));
        at = extent.range.end;
    }
    assert_eq!(at, SIZE);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn concurrent_requests_match_a_model(
        ops in prop::collection::vec(prop::collection::vec(any_op(), 0..40), 3),
    ) {
        let (storm, pool) = create_pool();
        let unit = open(&pool);
        let results: Vec<_> = std::thread::scope(|threads| {
            let spawn = |(thread, ops): (u64, &Vec<Op>)| {
                let (unit, ops) = (unit.clone(), ops.clone());
                threads.spawn(move || run_thread(&unit, thread, &ops))
            };
            let running: Vec<_> = (0..THREADS).zip(&ops).map(spawn).collect();
            running.into_iter().map(|thread| thread.join().expect("a thread")).collect()
        });
        let mut whole = vec![0; index(SIZE)];
        unit.read(0, &mut whole).unwrap();
        let models: Vec<u8> = results.iter().flat_map(|(model, _)| model).copied().collect();
        prop_assert!(whole[..models.len()] == models);
        let counter = *whole[index(COUNTER * BLOCK)..].first_chunk().unwrap();
        let counted: u64 = results.iter().map(|(_, counted)| counted).sum();
        prop_assert_eq!(u64::from_le_bytes(counter), counted);
        check_extents(&unit, &whole);
        drop(unit);
        pool.export().unwrap();
        let found = engine::pool::import_devices(&storm.devices(), "tank", &environment());
        let pool = found.expect("the pool again");
        let mut again = vec![0; index(SIZE)];
        open(&pool).read(0, &mut again).unwrap();
        prop_assert!(again == whole);
        pool.export().unwrap();
    }
}

#[test]
fn concurrent_compare_and_writes_lose_no_count() {
    const ROUNDS: u64 = 400;
    let (_storm, pool) = create_pool();
    let unit = open(&pool);
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| (0..ROUNDS).for_each(|_| count_once(&unit)));
        }
    });
    let mut found = [0; 512];
    unit.read(COUNTER * BLOCK, &mut found).unwrap();
    assert_eq!(u64::from_le_bytes(*found.first_chunk().unwrap()), THREADS * ROUNDS);
    pool.export().unwrap();
}

type Events = Arc<parking_lot::Mutex<Vec<LunEvent>>>;

fn subscribe(unit: &VolumeLun) -> (EventCallback, Events) {
    let events = Events::default();
    let log = Arc::clone(&events);
    let callback: EventCallback = Arc::new(move |event| log.lock().push(event));
    unit.subscribe(&callback);
    (callback, events)
}

#[test]
fn resize_notifies_initiators() {
    let (_storm, pool) = create_pool();
    let unit = open(&pool);
    let (_callback, events) = subscribe(&unit);
    let end = SIZE - BLOCK;
    unit.write(end, &[7; 512], Durability::Cached).unwrap();
    pool.properties().set(VOLUME, "volsize", &(SIZE / 2).to_string()).unwrap();
    let error = Error::OutOfRange { end: SIZE, size: SIZE / 2 };
    assert_eq!(unit.read(end, &mut [0; 512]), Err(error.clone()));
    assert_eq!(unit.write(end, &[7; 512], Durability::Cached), Err(error));
    pool.properties().set(VOLUME, "volsize", &(SIZE * 2).to_string()).unwrap();
    assert_eq!(unit.geometry().blocks, SIZE * 2 / BLOCK);
    let mut bytes = [1; 512];
    unit.read(end, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 512]);
    let sizes = [SIZE / 2, SIZE * 2];
    assert_eq!(*events.lock(), sizes.map(|size| LunEvent::Resized { size }));
    pool.export().unwrap();
}

#[test]
fn units_follow_renames_and_rollbacks() {
    let (_storm, pool) = create_pool();
    let unit = open(&pool);
    let (_callback, events) = subscribe(&unit);
    unit.write(0, &[1; 512], Durability::Cached).unwrap();
    pool.snapshots().create(&[format!("{VOLUME}@before")]).unwrap();
    unit.write(0, &[2; 512], Durability::Cached).unwrap();
    pool.datasets().rename(VOLUME, "tank/other", false).unwrap();
    let mut bytes = [0; 512];
    unit.read(0, &mut bytes).unwrap();
    assert_eq!((bytes, events.lock().len()), ([2; 512], 0));
    // it is busy as long as it is served
    assert!(pool.datasets().destroy("tank/other@before").is_ok());
    assert!(pool.datasets().destroy("tank/other").is_err());
    pool.snapshots().create(&["tank/other@now".to_owned()]).unwrap();
    unit.write(0, &[3; 512], Durability::Cached).unwrap();
    pool.snapshots().rollback("tank/other").unwrap();
    unit.read(0, &mut bytes).unwrap();
    assert_eq!((bytes, &events.lock()[..]), ([2; 512], &[LunEvent::Reverted][..]));
    unit.write(0, &[4; 512], Durability::Durable).unwrap();
    assert!(unit.space().unwrap().available > 0);
    pool.export().unwrap();
}

#[test]
fn snapshots_are_read_only_units() {
    let (_storm, pool) = create_pool();
    let unit = open(&pool);
    let block = u64::from(VOLUME_BLOCK);
    unit.write(block, &[1; 512], Durability::Cached).unwrap();
    let (name, options) = (format!("{VOLUME}@before"), LunOptions::default());
    pool.snapshots().create(std::slice::from_ref(&name)).unwrap();
    unit.write(block, &[2; 512], Durability::Cached).unwrap();
    pool.properties().set(VOLUME, "volsize", &(SIZE * 2).to_string()).unwrap();
    let past = SnapshotLun::open(&pool, &name, options).unwrap();
    let mut bytes = [0; 512];
    past.read(block, &mut bytes).unwrap();
    assert_eq!((bytes, past.geometry().size()), ([1; 512], SIZE));
    assert!(past.geometry().is_read_only && past.space().unwrap().used > 0);
    let extents: Vec<_> = [0, block, 2 * block]
        .map(|from| past.extent(from..SIZE).map(|found| (found.range, found.is_mapped)).unwrap())
        .into();
    let ranges = [(0..block, false), (block..2 * block, true), (2 * block..SIZE, false)];
    assert_eq!(extents, ranges);
    assert_eq!(past.write(0, &[3; 512], Durability::Cached), Err(Error::ReadOnly));
    assert_eq!(past.unmap(0..block), Err(Error::ReadOnly));
    assert_eq!(past.flush(), Ok(()));
    let end = SIZE + 512;
    assert_eq!(past.read(SIZE, &mut bytes), Err(Error::OutOfRange { end, size: SIZE }));
    // it is busy, also for a deferred destroy, until it is no longer served
    drop(unit);
    let names = [name.clone()];
    assert!(
        pool.datasets().destroy_all(&names, false).is_err()
            && pool.datasets().destroy_all(&names, true).is_err()
    );
    drop(past);
    pool.datasets().destroy(&name).unwrap();
    assert!(matches!(SnapshotLun::open(&pool, &name, options), Err(Error::Open { .. })));
    assert!(matches!(SnapshotLun::open(&pool, VOLUME, options), Err(Error::Open { .. })));
    pool.snapshots().create(&[name.clone(), "tank@files".to_owned()]).unwrap();
    assert!(matches!(SnapshotLun::open(&pool, "tank@files", options), Err(Error::Open { .. })));
    let past = SnapshotLun::open(&pool, &name, options).unwrap();
    pool.export().unwrap();
    assert_eq!(past.read(0, &mut bytes), Err(Error::Gone));
    assert_eq!(past.write(0, &bytes, Durability::Cached), Err(Error::Gone));
}

#[test]
fn exported_volumes_give_errors() {
    let (_storm, pool) = create_pool();
    let unit = open(&pool);
    let (_callback, events) = subscribe(&unit);
    pool.export().unwrap();
    assert_eq!(*events.lock(), [LunEvent::Gone]);
    let (cached, range) = (Durability::Cached, 0..SIZE);
    assert_eq!(unit.read(0, &mut [0; 512]), Err(Error::Gone));
    assert_eq!(unit.write(0, &[0; 512], cached), Err(Error::Gone));
    assert_eq!(unit.unmap(range.clone()), Err(Error::Gone));
    assert_eq!(unit.write_zeroes(range, cached), Err(Error::Gone));
    assert_eq!(unit.flush(), Err(Error::Gone));
    assert_eq!(unit.compare_and_write(0, &[0; 512], &[1; 512], cached), Err(Error::Gone));
    assert_eq!(unit.extent(0..SIZE), Err(Error::Gone));
    assert!(unit.space().is_err());
    assert_eq!(unit.geometry().block_size, 512);
    assert_eq!(events.lock().len(), 1);
}

#[test]
fn bad_ranges_and_options_are_refused() {
    let (_storm, pool) = create_pool();
    let unit = open(&pool);
    let far = u64::MAX - 511;
    let error = Error::OutOfRange { end: u64::MAX, size: SIZE };
    assert_eq!(unit.read(far, &mut [0; 1024]), Err(error));
    assert_eq!(unit.read(1, &mut [0; 512]), Err(Error::Unaligned { block_size: 512 }));
    assert_eq!(unit.read(0, &mut [0; 511]), Err(Error::Unaligned { block_size: 512 }));
    let (start, end) = (1024, 512);
    assert_eq!(unit.unmap(start..end), Err(Error::OutOfRange { end, size: SIZE }));
    let pair = unit.compare_and_write(0, &[0; 512], &[0; 1024], Durability::Cached);
    assert_eq!(pair, Err(Error::LengthMismatch));
    for block_size in [0, 1024, 8192] {
        let options = LunOptions { block_size, ..LunOptions::default() };
        let refused = VolumeLun::open(&pool, VOLUME, options, Reservations::default()).err();
        assert_eq!(refused, Some(Error::BlockSize { block_size, volume_block: VOLUME_BLOCK }));
    }
    let options = LunOptions { block_size: 4096, read_only: true };
    let other = VolumeLun::open(&pool, VOLUME, options, Reservations::default()).unwrap();
    assert_eq!(other.write(0, &[0; 4096], Durability::Cached), Err(Error::ReadOnly));
    assert!(other.geometry().is_read_only && other.guid() == unit.guid());
    pool.properties().set(VOLUME, "readonly", "on").unwrap();
    assert_eq!(unit.write(0, &[0; 512], Durability::Cached), Err(Error::ReadOnly));
    let missing = VolumeLun::open(&pool, "tank", LunOptions::default(), Reservations::default());
    assert!(matches!(missing.err(), Some(Error::Open { .. })));
    assert_eq!([unit.geometry().size(), other.geometry().size()], [SIZE; 2]);
    pool.export().unwrap();
}

#[test]
fn reads_from_memory_find_the_content() {
    let (_storm, pool) = create_pool();
    let unit = open(&pool);
    let block = u64::from(VOLUME_BLOCK);
    let from_memory = |offset: u64, length: usize| -> Option<Vec<u8>> {
        let parts = unit.parts_in_memory(offset, length)?;
        Some(parts.slices().flatten().copied().collect())
    };
    let read = |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        unit.read(offset, &mut bytes).unwrap();
        bytes
    };
    // dirty blocks and holes, across their borders
    unit.write(block - 512, &noise(40 * 512), Durability::Cached).unwrap();
    let ranges =
        [(0, 512), (block - 512, 1024), (512, 5 * 8192), (40 * block, 100_000 / 512 * 512)];
    for (offset, length) in ranges {
        assert!(from_memory(offset, length) == Some(read(offset, length)), "{offset} {length}");
    }
    // after a sync the blocks are in the cache
    pool.sync().unwrap();
    let until_cached = || {
        (0..9).find_map(|_| {
            let wanted = read(block, 512);
            from_memory(block, 512).map(|found| found == wanted)
        })
    };
    assert_eq!(until_cached(), Some(true));
    // a write supersedes the block in the cache
    unit.write(block, &[9; 512], Durability::Cached).unwrap();
    assert_eq!(from_memory(block, 512), Some(vec![9; 512]));
    pool.sync().unwrap();
    assert!(from_memory(block, 512).is_none_or(|found| found == [9; 512]));
    unit.unmap(0..block * 2).unwrap();
    assert!(from_memory(0, 8192) == Some(vec![0; 8192]));
    assert!(from_memory(SIZE - 512, 1024).is_none() && from_memory(1, 512).is_none());
    assert!(from_memory(u64::MAX - 511, 512).is_none());
    pool.properties().set(VOLUME, "volsize", &(SIZE / 2).to_string()).unwrap();
    assert!(from_memory(SIZE / 2, 512).is_none(), "behind the new end");
}
