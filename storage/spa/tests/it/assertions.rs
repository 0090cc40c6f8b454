//! Failed assertions: the pool writes nothing more, and the last synced txg is intact.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use spa::Error;
use spa::vdev_layout::VdevLayout;

use crate::create::{create_test_pool, open_pool};

/// Nothing is committed from here on.
fn check_stopped(pool: &spa::ActivePool) {
    assert!(pool.txgs().is_stopped() && pool.txgs().begin_tx().is_none());
    let refused = pool.run_sync_task(|_, _| ());
    assert!(matches!(refused, Err(Error::AssertionFailed { .. })), "{refused:?}");
    assert!(pool.suspend_error().is_some_and(|why| why.to_string().contains("zpool clear")));
}

#[test]
fn failed_assertion_in_a_sync_commits_nothing() {
    let (folder, made) = create_test_pool("assertion", VdevLayout::Mirror, 2, 12);
    made.pool.set_comment(Some("before".to_owned()));
    made.pool.sync().unwrap();
    let before = made.pool.txgs().synced_txg();
    let count = Arc::new(AtomicUsize::new(1));
    let one = Arc::clone(&count);
    let done = made.pool.run_sync_task(move |active, _| {
        active.set_comment(Some("half a change".to_owned()));
        // as an overflow does: 1 - 2 with checks
        let rest = one.load(Ordering::Relaxed).checked_sub(2);
        rest.expect("the blocks of a dataset are as many as it frees");
    });
    let Err(Error::AssertionFailed { what }) = done else { panic!("{done:?}") };
    assert!(what.contains("as many as it frees"), "{what}");
    check_stopped(&made.pool);
    drop(made);
    let pool = open_pool(&folder);
    assert_eq!(pool.txg(), before);
    assert_eq!(pool.config().comment.as_deref(), Some("before"));
}

#[test]
fn panic_within_a_transaction_is_never_synced() {
    let (folder, made) = create_test_pool("half-change", VdevLayout::Mirror, 2, 12);
    let before = made.pool.txgs().synced_txg();
    let pool = Arc::new(made.pool);
    pool.stop_on_panics();
    let changing = Arc::clone(&pool);
    let changed = thread::spawn(move || {
        let _tx = changing.txgs().begin_tx().expect("the pool is open");
        changing.set_comment(Some("half a change".to_owned()));
        panic!("an assertion of a test");
    });
    assert!(changed.join().is_err());
    assert!(matches!(pool.sync(), Err(Error::AssertionFailed { .. })));
    check_stopped(&pool);
    drop(pool);
    assert_eq!(open_pool(&folder).txg(), before);
}
