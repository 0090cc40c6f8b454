//! A clock that jumps: what a pool keeps does not depend on the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::pool::Environment;

use crate::test_pool::{create_memory_pool, environment, read_file, verify_pool, write_file};

const NOW: u64 = 1_700_000_000;
const HOUR: u64 = 3600;

#[test]
fn pools_bear_a_clock_that_jumps() {
    let clock = Arc::new(AtomicU64::new(NOW));
    let shown = Arc::clone(&clock);
    let environment =
        Environment { now: Arc::new(move || (shown.load(Ordering::SeqCst), 0)), ..environment() };
    let (pool, drive) = create_memory_pool(128 << 20, &environment);
    write_file(&pool, "tank", "before", b"one");
    pool.snapshots().create(&["tank@before".to_owned()]).unwrap();
    // within a txg
    write_file(&pool, "tank", "during", b"two");
    clock.store(NOW - HOUR, Ordering::SeqCst);
    write_file(&pool, "tank", "after", b"three");
    pool.sync().unwrap();
    pool.snapshots().create(&["tank@after".to_owned()]).unwrap();
    let names = |pool: &engine::pool::Pool| {
        let all = pool.snapshots().list("tank").unwrap().into_iter();
        all.map(|snapshot| snapshot.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&pool), ["before", "after"], "their order is that of their txgs");
    pool.export().unwrap();
    // at an import, to before the pool was created and far ahead
    for time in [NOW - 10 * HOUR, NOW + 100_000 * HOUR, 0] {
        clock.store(time, Ordering::SeqCst);
        let pool =
            engine::pool::import_devices(&[Arc::clone(&drive)], "tank", &environment).unwrap();
        for (name, content) in [("before", "one"), ("during", "two"), ("after", "three")] {
            assert_eq!(read_file(&pool, "tank", name), content.as_bytes());
        }
        write_file(&pool, "tank", &format!("at{time}"), b"four");
        pool.snapshots().create(&[format!("tank@at{time}")]).unwrap();
        pool.export().unwrap();
    }
    assert_eq!(verify_pool(&engine::search_devices(&[drive]), "tank"), Vec::<String>::new());
}
