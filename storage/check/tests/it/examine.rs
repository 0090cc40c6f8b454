//! Examining a fixture's images.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use check::{Check, Report};
use job::Job;
use spa::{Options, Pool};

/// Opens the pool whose images lie in a folder.
pub(crate) fn open(dir: &Path) -> Pool {
    let found = device::probe(&[dir.to_owned()]);
    let (mut pools, _) = spa::scan(&found.devices);
    assert_eq!(pools.len(), 1, "{}", dir.display());
    pools.remove(0).open(&Options::default()).unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
}

/// All that an examination finds.
pub(crate) fn examine(dir: &Path, threads: usize) -> Report {
    examine_pool(&open(dir), threads, &Arc::default())
}

/// The same of an open pool.
pub(crate) fn examine_pool(pool: &Pool, threads: usize, job: &Arc<Job>) -> Report {
    let check = Check::new(pool, Arc::clone(job)).unwrap();
    loop {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| check.work());
            }
        });
        if !check.next_round() {
            break;
        }
    }
    let facts = dsl::PoolFacts { name: pool.name().to_owned(), usable: 0 };
    let names = dsl::Tree::open(pool.mos().clone(), facts).unwrap();
    check.report(Some(&names), Duration::ZERO, threads)
}
