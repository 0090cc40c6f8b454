//! A pool whose drives fail past redundancy stands still: the one who writes the group waits until
//! the pool is cleared, and then goes on where it was, so that nothing is lost. Everybody else is
//! told at once; what can be read is still read.
//!
//! For that, groups must be written by a thread that does nothing else ([`Owned::serve`]): where
//! there is none, nobody could clear the pool, and the group is given up.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use device::Device;
use parking_lot::{Condvar, Mutex};
use txg::Txgs;
use units::Guid;

use super::Owned;
use crate::Error;

/// Who writes groups, and whether that stands still.
#[derive(Debug)]
pub(crate) struct Standstill {
    groups: Txgs,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The thread that does nothing else than write groups.
    server: Option<ThreadId>,
    /// What failed.
    why: Option<String>,
    /// How many times it was cleared.
    tries: u64,
    /// Nobody waits any more.
    closed: bool,
}

impl Standstill {
    pub(crate) fn new(groups: Txgs) -> Self {
        Self { groups, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Whether another thread writes the groups.
    pub(super) fn is_served(&self) -> bool {
        self.state.lock().server.is_some_and(|server| server != thread::current().id())
    }

    /// Why the pool stands still, if it does.
    pub(super) fn trouble(&self) -> Option<Error> {
        let why = self.state.lock().why.clone()?;
        Some(Error::Standstill { why })
    }

    /// How many times everything was to be tried again so far.
    pub(super) fn tries(&self) -> u64 {
        self.state.lock().tries
    }

    /// Waits until what failed is to be tried again; false: never. What was begun before that was last
    /// told is tried again at once, lest the pool stand still for what is mended.
    pub(super) fn halt(&self, why: &dyn std::fmt::Display, tries: u64) -> bool {
        let mut state = self.state.lock();
        if state.server.is_none() || state.closed {
            return false;
        }
        if state.tries != tries {
            return true;
        }
        // several threads of a crew may come here
        state.why.get_or_insert_with(|| why.to_string());
        self.groups.set_suspended(true);
        while state.why.is_some() && !state.closed {
            self.changed.wait(&mut state);
        }
        !state.closed
    }

    /// Has everything tried again.
    fn clear(&self) {
        let mut state = self.state.lock();
        state.why = None;
        state.tries += 1;
        self.groups.set_suspended(false);
        self.changed.notify_all();
    }

    /// Nobody waits any more: what is being written is given up.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

impl zio::SuspendGate for Standstill {
    fn clear_count(&self) -> u64 {
        self.tries()
    }

    fn wait_for_clear(&self, why: &zio::Error, tries: u64) -> bool {
        self.halt(why, tries)
    }
}

impl Owned {
    /// From now on until `work` is done this thread alone writes the pool's groups, and does
    /// nothing else: others who want one written wait for it.
    pub fn serve<R>(&self, work: impl FnOnce() -> R) -> R {
        self.standstill.state.lock().server = Some(thread::current().id());
        let result = work();
        self.standstill.state.lock().server = None;
        self.groups.wake_waiters();
        result
    }

    /// Whether another thread does so.
    pub fn is_served(&self) -> bool {
        self.standstill.is_served()
    }

    /// Whether no group can be written for now.
    pub fn is_standing_still(&self) -> bool {
        self.standstill.trouble().is_some()
    }

    /// Counts the errors of one drive anew, or of all, and has what failed tried again, on drives that
    /// are opened anew, as they may have been pulled out and put in again. What the pool's last
    /// changes are to come to is known when the next sync is done. Fails where it cannot go on.
    pub fn clear(&self, only: Option<Guid>) -> Result<(), Error> {
        let leaves = self.tree.leaves().into_iter();
        for leaf in leaves.filter(|leaf| only.is_none_or(|guid| leaf.guid() == guid)) {
            if leaf.error_counts().1 > 0 || leaf.write_errors() > 0 {
                self.reopen(&leaf);
            }
            leaf.clear_errors();
        }
        self.space.allocator().retry_unreadable_maps();
        self.clear_caches(only);
        if let Some(trouble) = &*self.trouble.read() {
            return Err(trouble.clone());
        }
        self.standstill.clear();
        Ok(())
    }

    /// Opens drives anew that fail and are not where they were, and are somewhere now; gives which.
    pub fn reopen_failing(&self) -> Vec<Guid> {
        let leaves = self.tree.leaves().into_iter().filter(|leaf| leaf.is_device_gone());
        leaves.filter(|leaf| self.reopen(leaf)).map(|leaf| leaf.guid()).collect()
    }

    /// Opens a drive anew, if it is there and still this one; whether that is so. Else it goes on failing.
    fn reopen(&self, leaf: &vdev::Leaf) -> bool {
        let Some(device) = leaf.device() else { return false };
        let synced = Cell::new(None);
        let is_it = |found: &Arc<dyn Device>| {
            // one that others wrote to meanwhile has blocks that nobody here knows of
            synced
                .set(self.known_by(leaf.guid(), found).filter(|synced| leaf.can_know_txg(*synced)));
            synced.get().is_some()
        };
        let is_there = device.reopen(&is_it).is_ok();
        // an old copy of it lacks what was written since
        if let Some(synced) = synced.get().filter(|_| is_there) {
            leaf.record_reopen(synced, self.groups.synced_txg());
        }
        is_there
    }

    /// Gives up what is being written, and all that waits to be: whoever waits goes home.
    pub fn abandon(&self) {
        self.groups.stop();
        self.standstill.close();
        // the drives may be another's from now on
        self.l2arc.close();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use txg::{TxgLimits, Txgs};
    use units::Txg;

    use super::Standstill;

    #[test]
    fn what_was_begun_before_all_was_to_be_tried_again_does_not_have_the_pool_stand_still() {
        let standstill = Standstill::new(Txgs::new(Txg::new(1), TxgLimits::default()));
        standstill.state.lock().server = Some(thread::current().id());
        let tries = standstill.tries();
        standstill.clear();
        assert!(standstill.halt(&"it failed", tries));
        assert!(standstill.trouble().is_none());
        // and what fails after that does
        thread::scope(|scope| {
            let halted = scope.spawn(|| standstill.halt(&"it failed again", standstill.tries()));
            while standstill.trouble().is_none() {
                thread::yield_now();
            }
            standstill.clear();
            assert!(halted.join().expect("it does not panic"));
        });
    }
}
