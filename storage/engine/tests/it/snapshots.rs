//! Snapshots that are taken while others write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::Device;
use engine::pool::{self, NewDataset, Pool};
use posix::WriteOffset;
use units::ObjectId;

use crate::test_pool::{create_memory_pool, credentials, environment, verify_pool, write_file};

/// Writes and commits, over and over.
fn write_and_fsync(pool: &Pool, name: &str, stop: &AtomicBool) {
    write_file(pool, "tank", name, b"begun");
    let fs = pool.datasets().filesystem("tank").unwrap();
    let file = fs.reader().find(name.as_bytes()).unwrap().unwrap();
    let number = ObjectId::new(file.ino());
    for round in 0_u64.. {
        if stop.load(Ordering::Acquire) {
            return;
        }
        fs.write(&credentials(), number, WriteOffset::At(round % 100 * 4000), &[7; 4000]).unwrap();
        fs.fsync(Some(number.get())).unwrap();
    }
}

fn create_pool(world: &pool::Environment) -> (Pool, Arc<dyn Device>) {
    create_memory_pool(256 << 20, world)
}

/// Blocks of the synced tree are read from the drives, while much more is written to them.
#[test]
fn a_listing_that_takes_long_finds_all() {
    // nothing is kept in memory
    let (held, _) = create_pool(&pool::Environment {
        cache: pool::MemoryBudget::with_bytes(0),
        ..environment()
    });
    let property = |value: &str| ("user:fact".to_owned(), value.to_owned());
    for number in 0..60 {
        let name = format!("tank/{number}");
        let new = NewDataset { name, properties: vec![property(&"first".repeat(99))] };
        held.datasets().create_filesystem(&new).unwrap();
    }
    held.sync().unwrap();
    let (mut found, mut trouble) = (0, Vec::new());
    let wanted = engine::dataset::DatasetQuery::default();
    let show = &mut |_| {
        if found == 0 {
            for round in 0..12 {
                for number in 0..60 {
                    let value = format!("{round}").repeat(500);
                    held.properties().set(&format!("tank/{number}"), "user:fact", &value).unwrap();
                }
                held.sync().unwrap();
            }
        }
        found += 1;
    };
    held.datasets().list("tank", &wanted, show, &mut |event| trouble.push(event)).unwrap();
    assert_eq!((found, trouble.len()), (61, 0), "{trouble:?}");
}

#[test]
fn commits_do_not_affect_snapshots() {
    let (pool, drive) = create_pool(&environment());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in ["one", "two", "three"] {
            scope.spawn(|| write_and_fsync(&pool, name, &stop));
        }
        for round in 0..60 {
            let snapshot = format!("tank@{round}");
            pool.snapshots().create(std::slice::from_ref(&snapshot)).unwrap();
            if round % 4 == 0 {
                let name = format!("tank/{round}");
                let new = NewDataset { name, properties: Vec::new() };
                pool.snapshots().clone_snapshot(&snapshot, &new).unwrap();
            }
        }
        stop.store(true, Ordering::Release);
    });
    pool.export().unwrap();
    drop(pool);
    assert_eq!(verify_pool(&engine::search_devices(&[drive]), "tank"), Vec::<String>::new());
}
