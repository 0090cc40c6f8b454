//! Examining a fixture's images.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use check::{CheckReport, PoolCheck};
use job::Job;
use spa::{Pool, PoolOpenOptions};

/// Opens the pool whose images are in a folder.
pub(crate) fn open_pool(dir: &Path) -> Pool {
    let found = device::probe(&[dir.to_owned()]);
    let (mut pools, _) = spa::scan_devices(&found.devices);
    assert_eq!(pools.len(), 1, "{}", dir.display());
    pools
        .remove(0)
        .open(&PoolOpenOptions::default())
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
}

/// All that an examination finds.
pub(crate) fn check_dir(dir: &Path, threads: usize) -> CheckReport {
    check_pool(&open_pool(dir), threads, &Arc::default())
}

/// The same of an open pool.
pub(crate) fn check_pool(pool: &Pool, threads: usize, job: &Arc<Job>) -> CheckReport {
    let check = PoolCheck::new(pool, Arc::clone(job)).unwrap();
    loop {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| check.run_worker());
            }
        });
        if !check.start_next_round() {
            break;
        }
    }
    let facts = dsl::PoolInfo { name: pool.name().to_owned(), usable_space: 0 };
    let names = dsl::DatasetTree::open(pool.mos().clone(), facts).unwrap();
    check.report(Some(&names), Duration::ZERO, threads)
}
