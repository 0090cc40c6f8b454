//! The order is kept, and the page has it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Mutex, RwLock, rank};

const EARLY: u8 = rank::SYNC;
const LATE: u8 = rank::CONFIG;

#[test]
fn locks_are_taken_in_order_of_ranks() {
    let (early, late) = (Mutex::<u8, EARLY>::new(1), RwLock::<u8, LATE>::new(2));
    let first = early.lock();
    let second = late.write();
    // dropped in another order
    drop(first);
    drop(second);
    assert_eq!((*early.lock(), *late.read()), (1, 2));
}

#[test]
fn wrong_order_fails_on_one_thread() {
    let (early, late) = (Mutex::<u8, EARLY>::new(1), RwLock::<u8, LATE>::new(2));
    let wrong = |take: &dyn Fn()| {
        let held = late.read();
        let failure = catch_unwind(AssertUnwindSafe(take)).unwrap_err();
        drop(held);
        *failure.downcast::<String>().unwrap()
    };
    let said = wrong(&|| drop(early.lock()));
    assert!(said.contains("'sync lock' is taken under the lock 'configuration'"), "{said}");
    // two reads wait for each other if a writer comes in between
    wrong(&|| drop(late.read()));
    // nothing is held after that
    drop((early.lock(), late.write()));
}

#[test]
fn other_threads_hold_their_own() {
    let (early, late) = (Mutex::<u8, EARLY>::new(1), Mutex::<u8, LATE>::new(2));
    let held = late.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| *early.lock() += 1).join().unwrap();
    });
    drop(held);
    assert_eq!(*early.lock(), 2);
}

#[test]
fn page_has_all_ranks_in_order() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/threads-and-locks.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, listed) = page.split_once("## Ranks").unwrap();
    let (_, listed) = listed.split_once("```text\n").unwrap();
    let (listed, _) = listed.split_once("```").unwrap();
    let names: Vec<&str> =
        listed.lines().filter_map(|line| line.get(9..)?.split("  ").next()).collect();
    let known: Vec<&str> = rank::ALL.iter().map(|(_, name)| *name).collect();
    assert_eq!(names, known);
    assert!(rank::ALL.is_sorted_by(|one, other| one.0 < other.0), "each rank is there once");
}
