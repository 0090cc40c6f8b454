//! A pool in memory with a volume. The tests of lun and of the protocols above it share this file.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::pool::{
    Environment, MemoryBudget, NewDataset, NewPool, NewVdev, Pool, VdevLayout, VdevRole,
};
use sim::DiskArray;

/// The volume's name.
pub(crate) const VOLUME: &str = "tank/disk";
/// Its volblocksize, in bytes.
pub(crate) const VOLUME_BLOCK: u32 = 8192;
/// Its size, in bytes.
pub(crate) const SIZE: u64 = 2 << 20;

pub(crate) fn environment() -> Environment {
    let state = AtomicU64::new(0x9e37_79b9);
    Environment {
        random: Arc::new(move |bytes| {
            for byte in bytes {
                let next = state.load(Ordering::Relaxed).wrapping_mul(0x5851_f42d_4c95_7f2d);
                state.store(next.wrapping_add(0x1405), Ordering::Relaxed);
                *byte = next.to_be_bytes()[0];
            }
        }),
        now: Arc::new(|| (1_700_000_000, 0)),
        workers: 2,
        max_dirty: 64 << 20,
        cache: MemoryBudget::default(),
        host: (0x1234, "here".to_owned()),
    }
}

/// A pool with a volume in memory.
pub(crate) fn create_pool() -> (DiskArray, Pool) {
    let storm = DiskArray::new(&[128 << 20]);
    let drives = vec![PathBuf::from("/disk")];
    let vdevs = vec![NewVdev { layout: VdevLayout::Single, drives, role: VdevRole::Data }];
    let (name, properties) = ("tank".to_owned(), Vec::new());
    let new = NewPool { name, vdevs, ashift: None, properties, force: false };
    let pool =
        engine::pool::create_on_devices(&new, &storm.devices(), &environment()).expect("a pool");
    let new = NewDataset { name: VOLUME.to_owned(), properties: Vec::new() };
    pool.volumes().create(&new, SIZE, VOLUME_BLOCK, true).expect("a volume");
    (storm, pool)
}
