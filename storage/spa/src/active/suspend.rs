//! A pool whose drives fail past redundancy is suspended: the thread that syncs the txg waits until
//! the pool is cleared, and then continues where it was, so that nothing is lost. All other threads
//! get an error at once; readable data is still read.
//!
//! For that, a thread of its own must sync txgs ([`ActivePool::run_as_sync_thread`]): without
//! one, no thread could clear the pool, and the txg fails.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use device::Device;
use parking_lot::{Condvar, Mutex};
use txg::Txgs;
use units::Guid;

use super::ActivePool;
use crate::Error;

/// The sync thread, and whether it is suspended.
#[derive(Debug)]
pub(crate) struct Suspension {
    txgs: Txgs,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The thread that does nothing else than write groups.
    sync_thread: Option<ThreadId>,
    /// The failure.
    why: Option<String>,
    /// How many times it was cleared.
    clear_count: u64,
    /// No thread waits any more.
    is_closed: bool,
}

impl Suspension {
    pub(crate) fn new(txgs: Txgs) -> Self {
        Self { txgs, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Whether another thread writes the groups.
    pub(super) fn has_sync_thread(&self) -> bool {
        self.state.lock().sync_thread.is_some_and(|server| server != thread::current().id())
    }

    /// The reason of the suspension, if suspended.
    pub(super) fn suspend_error(&self) -> Option<Error> {
        let why = self.state.lock().why.clone()?;
        Some(Error::Suspended { why })
    }

    /// How many times everything was to be tried again so far.
    pub(super) fn current_clear_count(&self) -> u64 {
        self.state.lock().clear_count
    }

    /// Waits until the failed operation is to be tried again; false: never. An operation that began
    /// before the last clear is tried again at once: otherwise the pool would be suspended for a
    /// repaired failure.
    pub(super) fn wait_until_cleared(&self, why: &dyn std::fmt::Display, tries: u64) -> bool {
        let mut state = self.state.lock();
        if state.sync_thread.is_none() || state.is_closed {
            return false;
        }
        if state.clear_count != tries {
            return true;
        }
        // several threads of a crew may come here
        state.why.get_or_insert_with(|| why.to_string());
        self.txgs.set_suspended(true);
        while state.why.is_some() && !state.is_closed {
            self.changed.wait(&mut state);
        }
        !state.is_closed
    }

    /// Has everything tried again.
    fn clear(&self) {
        let mut state = self.state.lock();
        state.why = None;
        state.clear_count += 1;
        self.txgs.set_suspended(false);
        self.changed.notify_all();
    }

    /// Ends all waits: the syncing txg fails.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }
}

impl zio::SuspendGate for Suspension {
    fn clear_count(&self) -> u64 {
        self.current_clear_count()
    }

    fn wait_for_clear(&self, error: &zio::Error, tries: u64) -> bool {
        self.wait_until_cleared(error, tries)
    }
}

impl ActivePool {
    /// From now on until `work` is done this thread alone syncs the pool's txgs, and does
    /// nothing else: other threads that need a txg wait for it.
    pub fn run_as_sync_thread<R>(&self, work: impl FnOnce() -> R) -> R {
        self.suspension.state.lock().sync_thread = Some(thread::current().id());
        let result = work();
        self.suspension.state.lock().sync_thread = None;
        self.txgs.wake_waiters();
        result
    }

    /// Whether another thread does so.
    pub fn has_sync_thread(&self) -> bool {
        self.suspension.has_sync_thread()
    }

    /// Whether no group can be written for now.
    pub fn is_suspended(&self) -> bool {
        self.suspension.suspend_error().is_some()
    }

    /// Clears the errors of one drive, or of all, reopens failed drives, which may have been pulled
    /// out and put in again, and retries the failed operation. The result for the pool's last
    /// changes is known when the next sync is done. Fails if the pool cannot resume.
    pub fn clear(&self, only: Option<Guid>) -> Result<(), Error> {
        let leaves = self.tree.leaves().into_iter();
        for leaf in leaves.filter(|leaf| only.is_none_or(|guid| leaf.guid() == guid)) {
            if leaf.error_counts().1 > 0 || leaf.write_errors() > 0 {
                self.reopen_leaf(&leaf);
            }
            leaf.clear_errors();
        }
        self.space.allocator().retry_unreadable_maps();
        self.clear_cache_errors(only);
        self.fatal_error.check()?;
        self.suspension.clear();
        Ok(())
    }

    /// Reopens failed drives that are not at their old paths, if they are found; returns them.
    pub fn reopen_failed_devices(&self) -> Vec<Guid> {
        let leaves = self.tree.leaves().into_iter().filter(|leaf| leaf.is_device_gone());
        leaves.filter(|leaf| self.reopen_leaf(leaf)).map(|leaf| leaf.guid()).collect()
    }

    /// Reopens a drive, if it is there and still the same; returns whether it is. Else it keeps
    /// failing.
    fn reopen_leaf(&self, leaf: &vdev::Leaf) -> bool {
        let Some(device) = leaf.device() else { return false };
        let synced = Cell::new(None);
        let is_it = |found: &Arc<dyn Device>| {
            // a drive that another host wrote has unknown blocks
            synced.set(
                self.newest_known_txg(leaf.guid(), found)
                    .filter(|synced| leaf.can_know_txg(*synced)),
            );
            synced.get().is_some()
        };
        let is_there = device.reopen(&is_it).is_ok();
        // an old copy of it lacks the writes since
        if let Some(synced) = synced.get().filter(|_| is_there) {
            leaf.record_reopen(synced, self.txgs.synced_txg());
        }
        is_there
    }

    /// Discards the syncing txg and all dirty data: all waiting threads get errors.
    pub fn abort_txgs(&self) {
        self.txgs.stop();
        self.suspension.close();
        // the drives may be another's from now on
        self.l2arc.close();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use txg::{TxgLimits, Txgs};
    use units::Txg;

    use super::Suspension;

    #[test]
    fn failure_from_before_a_clear_does_not_suspend() {
        let standstill = Suspension::new(Txgs::new(Txg::new(1), TxgLimits::default()));
        standstill.state.lock().sync_thread = Some(thread::current().id());
        let tries = standstill.current_clear_count();
        standstill.clear();
        assert!(standstill.wait_until_cleared(&"it failed", tries));
        assert!(standstill.suspend_error().is_none());
        // and what fails after that does
        thread::scope(|scope| {
            let halted = scope.spawn(|| {
                standstill.wait_until_cleared(&"it failed again", standstill.current_clear_count())
            });
            while standstill.suspend_error().is_none() {
                thread::yield_now();
            }
            standstill.clear();
            assert!(halted.join().expect("it does not panic"));
        });
    }
}
