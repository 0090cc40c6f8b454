//! Copies between units: shared blocks, and what cannot be shared.

use engine::pool::{NewDataset, Pool};
use lun::{Durability, Error, Lun, LunOptions, Reservations, SnapshotLun, VolumeLun};

use crate::volume_pool::{SIZE, VOLUME, VOLUME_BLOCK, create_pool};
use crate::volumes::open;

const BLOCK: u64 = VOLUME_BLOCK as u64;
const OTHER: &str = "tank/other";
const CACHED: Durability = Durability::Cached;

/// Bytes that compress to nothing smaller.
pub(crate) fn noise(length: u64) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn open_other(pool: &Pool, block_size: u32) -> VolumeLun {
    let new = NewDataset { name: OTHER.to_owned(), properties: Vec::new() };
    pool.volumes().create(&new, SIZE, block_size, true).unwrap();
    VolumeLun::open(pool, OTHER, LunOptions::default(), Reservations::default()).unwrap()
}

fn content(unit: &dyn Lun, from: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    unit.read(from, &mut bytes).unwrap();
    bytes
}

/// Syncs the pool. Returns its allocated bytes.
fn allocated(pool: &Pool) -> u64 {
    pool.sync().unwrap();
    pool.status().allocated
}

#[test]
fn copies_share_blocks_of_the_pool() {
    let (_storage, pool) = create_pool();
    let (unit, data) = (open(&pool), noise(1 << 20));
    let other = open_other(&pool, VOLUME_BLOCK);
    unit.write(0, &data, CACHED).unwrap();
    let before = allocated(&pool);
    // another volume, then this one
    lun::copy(&unit, 0..1 << 20, (&other, 4 * BLOCK), CACHED).unwrap();
    lun::copy(&unit, 0..1 << 20, (&unit, 1 << 20), Durability::Durable).unwrap();
    assert!(content(&other, 4 * BLOCK, 1 << 20) == data);
    assert!(content(&unit, 1 << 20, 1 << 20) == data);
    assert!(allocated(&pool) < before + (256 << 10), "copies of 2 MiB take no space");
    // a change of one does not change the others
    other.write(5 * BLOCK, &[9; 512], CACHED).unwrap();
    pool.sync().unwrap();
    assert!(content(&unit, 0, 1 << 20) == data);
    assert!(content(&unit, 1 << 20, 1 << 20) == data);
    drop((unit, other));
    pool.close().unwrap();
}

#[test]
fn copies_out_of_snapshots_share_blocks() {
    let (_storage, pool) = create_pool();
    let (unit, data) = (open(&pool), noise(1 << 20));
    unit.write(0, &data, CACHED).unwrap();
    let name = format!("{VOLUME}@before");
    pool.snapshots().create(std::slice::from_ref(&name)).unwrap();
    unit.write(0, &vec![7; 1 << 20], CACHED).unwrap();
    let past = SnapshotLun::open(&pool, &name, LunOptions::default()).unwrap();
    let before = allocated(&pool);
    lun::copy(&past, 0..1 << 20, (&unit, 0), CACHED).unwrap();
    assert!(content(&unit, 0, 1 << 20) == data);
    assert!(allocated(&pool) < before + (256 << 10), "the blocks are those of the snapshot");
    drop((unit, past));
    pool.close().unwrap();
}

#[test]
fn unshareable_ranges_are_copied() {
    let (_storage, pool) = create_pool();
    let (unit, data) = (open(&pool), noise(1 << 20));
    let other = open_other(&pool, 16 << 10);
    unit.write(0, &data, CACHED).unwrap();
    unit.write_zeroes(8 * BLOCK..16 * BLOCK, CACHED).unwrap();
    let expected = content(&unit, 0, 1 << 20);
    // dirty blocks, another volblocksize, half a block
    lun::copy(&unit, 0..1 << 20, (&unit, 1 << 20), CACHED).unwrap();
    lun::copy(&unit, 0..1 << 20, (&other, 0), CACHED).unwrap();
    pool.sync().unwrap();
    lun::copy(&unit, 512..(1 << 20) - 512, (&other, 1 << 20), CACHED).unwrap();
    assert!(content(&unit, 1 << 20, 1 << 20) == expected);
    assert!(content(&other, 0, 1 << 20) == expected);
    assert!(content(&other, 1 << 20, (1 << 20) - 1024) == expected[512..(1 << 20) - 512]);
    let hole = other.extent(8 * BLOCK..16 * BLOCK).unwrap();
    assert_eq!((hole.range, hole.is_mapped), (8 * BLOCK..16 * BLOCK, false));
    // the ends of both units, and a read-only destination
    let beyond = lun::copy(&unit, 0..BLOCK, (&other, SIZE), CACHED);
    let out_of_range = Error::OutOfRange { end: SIZE + BLOCK, size: SIZE };
    assert_eq!(beyond, Err(lun::CopyError::Write(out_of_range)));
    pool.properties().set(OTHER, "readonly", "on").unwrap();
    let refused = lun::copy(&unit, 0..BLOCK, (&other, 0), CACHED);
    assert_eq!(refused, Err(lun::CopyError::Write(Error::ReadOnly)));
    drop((unit, other));
    pool.close().unwrap();
}

#[test]
fn long_copies_share_dirty_blocks() {
    const LENGTH: u64 = 5 << 20;
    let (_storage, pool) = create_pool();
    pool.properties().set(VOLUME, "volsize", &(4 * LENGTH).to_string()).unwrap();
    let (unit, data) = (open(&pool), noise(LENGTH));
    let before = allocated(&pool);
    unit.write(0, &data, CACHED).unwrap();
    lun::copy(&unit, 0..LENGTH, (&unit, LENGTH), CACHED).unwrap();
    // a part of the next is dirty again
    unit.write(LENGTH / 2 / BLOCK * BLOCK, &data[..3 * 8192], CACHED).unwrap();
    let changed = content(&unit, 0, LENGTH);
    lun::copy(&unit, 0..LENGTH, (&unit, 2 * LENGTH), CACHED).unwrap();
    assert!(content(&unit, LENGTH, LENGTH) == data);
    assert!(content(&unit, 2 * LENGTH, LENGTH) == changed);
    let used = allocated(&pool) - before;
    assert!(used < LENGTH + (2 << 20), "three times 5 MiB take {used} bytes");
    drop(unit);
    pool.close().unwrap();
}
