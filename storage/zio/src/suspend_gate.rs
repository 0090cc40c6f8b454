//! Drives that fail past redundancy during a sync: the sync thread may wait until they
//! are back, and try again, so that nothing of the txg is lost.
//!
//! Other threads get an error at once. The thread identifies the sync: lower crates do not
//! know their caller.

use std::cell::Cell;

use crate::Error;

/// Waits until failed drives are worth another try.
pub trait SuspendGate: Send + Sync + std::fmt::Debug {
    /// How many times everything was to be tried again so far.
    fn clear_count(&self) -> u64;

    /// Returns when the failed operation is to be tried again; false: never. `tries` is the count
    /// when it began: if it increased since, the retry is at once.
    fn wait_for_clear(&self, error: &Error, tries: u64) -> bool;
}

thread_local! {
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread writes a group.
pub fn is_syncing_thread() -> bool {
    WRITES.get()
}

/// Does something on a thread that writes a group, or helps one that does.
pub fn while_syncing<R>(writing: bool, work: impl FnOnce() -> R) -> R {
    let before = WRITES.replace(writing);
    let result = work();
    WRITES.set(before);
    result
}

/// Repeats an operation until it succeeds, fails for another reason than missing drives, or
/// the gate gives up waiting.
pub(crate) fn retry_while_suspended<T>(
    patience: Option<&dyn SuspendGate>,
    mut work: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    loop {
        let tries = patience.filter(|_| is_syncing_thread()).map_or(0, SuspendGate::clear_count);
        match (work(), patience) {
            (Err(error), Some(patience))
                if is_syncing_thread()
                    && is_transient(&error)
                    && patience.wait_for_clear(&error, tries) => {}
            (result, _) => return result,
        }
    }
}

/// Whether the drives may be back one day.
pub(crate) fn is_transient(error: &Error) -> bool {
    let away = |error: &vdev::Error| matches!(error, vdev::Error::Unavailable { .. });
    match error {
        Error::Unreadable { faults, .. } => faults.iter().any(|fault| away(&fault.why)),
        Error::WriteFailed { why: error, .. } => away(error),
        _ => false,
    }
}
