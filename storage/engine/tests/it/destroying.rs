//! Datasets that are destroyed in batches.

use std::sync::Arc;

use device::Device;
use engine::pool::{DestroyPlan, NewDataset, Pool};

use crate::test_pool::{create_memory_pool, environment, verify_pool, write_file};

/// More than one batch.
const MANY: usize = 300;

fn pool() -> (Pool, Arc<dyn Device>) {
    create_memory_pool(128 << 20, &environment())
}

fn make(pool: &Pool, name: &str) {
    let new = NewDataset { name: name.to_owned(), properties: Vec::new() };
    pool.datasets().create_filesystem(&new).unwrap();
}

fn snapshots(pool: &Pool, filesystem: &str) -> Vec<String> {
    let all = pool.snapshots().list(filesystem).unwrap().into_iter();
    all.map(|it| format!("{filesystem}@{}", it.name)).collect()
}

/// Exports the pool and examines it.
fn assert_clean(held: &Pool, drive: Arc<dyn Device>) {
    held.export().unwrap();
    let search = engine::search_devices(&[drive]);
    assert_eq!(verify_pool(&search, "tank"), Vec::<String>::new());
}

#[test]
fn destroy_plan_stops_between_batches() {
    let (held, drive) = pool();
    make(&held, "tank/a");
    for number in 0..MANY {
        if number % 50 == 0 {
            write_file(&held, "tank/a", &format!("file{number}"), &vec![7; 40_000]);
        }
        held.snapshots().create(&[format!("tank/a@{number}")]).unwrap();
    }
    let mut plan = DestroyPlan::new(snapshots(&held, "tank/a"), false);
    held.datasets().destroy_batch(&mut plan).unwrap();
    // the rest is complete, and can be changed by others
    assert!((1..MANY).contains(&plan.done()), "{}", plan.done());
    assert_eq!(snapshots(&held, "tank/a"), plan.names_left());
    let last = plan.names_left().last().unwrap().clone();
    held.datasets().destroy(&last).unwrap();
    held.snapshots().create(std::slice::from_ref(&last)).unwrap();
    while !plan.next_names().is_empty() {
        held.datasets().destroy_batch(&mut plan).unwrap();
    }
    assert_eq!(snapshots(&held, "tank/a"), [last], "it was not there when the plan was made");
    assert_clean(&held, drive);
}

#[test]
fn nothing_is_destroyed_if_the_plan_cannot_be() {
    let (held, drive) = pool();
    make(&held, "tank/a");
    let names: Vec<String> = ["one", "two", "three"].map(|it| format!("tank/a@{it}")).into();
    for name in &names {
        held.snapshots().create(std::slice::from_ref(name)).unwrap();
    }
    let clone = NewDataset { name: "tank/clone".to_owned(), properties: Vec::new() };
    held.snapshots().clone_snapshot("tank/a@two", &clone).unwrap();
    let why = held.datasets().destroy_all(&names, false).unwrap_err().to_string();
    assert!(why.contains("tank/a@two") && why.contains("clones"), "{why}");
    let missing = [names.clone(), vec!["tank/a@four".to_owned()]].concat();
    let why = held.datasets().destroy_all(&missing, true).unwrap_err().to_string();
    assert!(why.contains("tank/a@four"), "{why}");
    assert_eq!(snapshots(&held, "tank/a"), names);
    // those around it go; it goes with its clone
    held.datasets().destroy_all(&names, true).unwrap();
    assert_eq!(snapshots(&held, "tank/a"), ["tank/a@two"]);
    held.datasets().destroy("tank/clone").unwrap();
    assert!(snapshots(&held, "tank/a").is_empty());
    assert_clean(&held, drive);
}

/// The work of destroying that many snapshots of one file system: blocks that are read, from memory or from the drive,
/// and txgs.
fn work_to_destroy(count: usize) -> (u64, u64) {
    let (pool, drive) = pool();
    make(&pool, "tank/a");
    for number in 0..count {
        pool.snapshots().create(&[format!("tank/a@{number}")]).unwrap();
    }
    let read_blocks = || {
        let counts = pool.drives().cache_counts();
        counts.memory_hits + counts.memory_misses
    };
    let (blocks, txg) = (read_blocks(), pool.txg());
    pool.datasets().destroy_all(&snapshots(&pool, "tank/a"), false).unwrap();
    let work = (read_blocks() - blocks, pool.txg() - txg);
    assert_clean(&pool, drive);
    work
}

#[test]
fn destroying_snapshots_takes_work_in_proportion() {
    let ((blocks, txgs), (more_blocks, more_txgs)) = (work_to_destroy(75), work_to_destroy(MANY));
    println!("75: {blocks} blocks, {txgs} txgs; {MANY}: {more_blocks} blocks, {more_txgs} txgs");
    assert!(more_blocks < 6 * blocks, "75 take {blocks} blocks, {MANY} take {more_blocks}");
    assert!(more_txgs <= 4 * txgs, "75 take {txgs} txgs, {MANY} take {more_txgs}");
}
