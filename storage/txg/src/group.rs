//! The groups of a pool, and holds on them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex, MutexGuard};
use units::Txg;

use crate::Limits;

/// The transaction groups of a pool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Groups(Arc<Inner>);

/// Has the open group written.
type Driver = Box<dyn Fn() + Send + Sync>;

struct Inner {
    limits: Limits,
    /// Writes the open group, on the thread of who waits for that.
    driver: OnceLock<Driver>,
    state: Mutex<State>,
    /// Something in `state` changed that somebody may wait for.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    open: Txg,
    synced: Txg,
    /// Holds on each group that has any.
    holds: BTreeMap<Txg, usize>,
    /// Dirty bytes of each group that has any.
    dirty: BTreeMap<Txg, u64>,
    /// Bytes of each group that are on the drives already.
    stored: BTreeMap<Txg, u64>,
    /// Blocks that are freed with each group, of those who free many.
    freed: BTreeMap<Txg, u64>,
    /// A sync of this group was asked for.
    wanted: Txg,
    /// How many are there who write groups whenever one is due.
    writers: usize,
    /// No more groups: everyone who waits goes home.
    stopped: bool,
    /// No group can be written for now: the same until that is over.
    halted: bool,
}

impl State {
    fn ends(&self) -> bool {
        self.stopped || self.halted
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.state.lock())
    }
}

impl State {
    fn dirty(&self) -> u64 {
        self.dirty.values().copied().fold(0, u64::saturating_add)
    }

    fn stored(&self) -> u64 {
        self.stored.values().copied().fold(0, u64::saturating_add)
    }

    /// What is stored takes no memory, but drives may not have it for good yet: a group that waits
    /// for that is not to take forever.
    fn is_full(&self, limits: Limits) -> bool {
        self.dirty() >= limits.dirty || self.stored() >= limits.dirty.saturating_mul(2)
    }
}

/// A hold on a group: as long as it lives the group is not written.
#[derive(Debug)]
pub struct Tx {
    txg: Txg,
    group: Option<Groups>,
}

impl Tx {
    /// The group that is being written, for the one who writes it. No hold.
    pub const fn syncing(txg: Txg) -> Self {
        Self { txg, group: None }
    }

    /// The group.
    pub const fn txg(&self) -> Txg {
        self.txg
    }

    /// Tells that so many bytes more wait to be written with this group.
    pub fn dirtied(&self, bytes: u64) {
        if let Some(group) = &self.group {
            group.dirtied(self.txg, bytes);
        }
    }

    /// Tells that a block of so many bytes more waits to be written: it counts as what it takes.
    pub fn dirtied_block(&self, bytes: u64) {
        self.dirtied(self.on_drive(bytes));
    }

    /// Bytes that a block of so many takes where it is not compressed, parity and copies left aside.
    pub fn on_drive(&self, bytes: u64) -> u64 {
        self.group.as_ref().map_or(bytes, |group| group.on_drive(bytes))
    }

    /// Tells that so many blocks are freed with this group, of somebody who frees many.
    pub fn freed(&self, blocks: u64) {
        if let Some(group) = &self.group {
            group.freed(self.txg, blocks);
        }
    }

    /// Tells that so many bytes more are on the drives before this group is.
    pub fn stored(&self, bytes: u64) {
        if let Some(group) = &self.group {
            group.stored(self.txg, bytes);
        }
    }
}

/// Somebody who writes groups whenever one is due.
#[derive(Debug)]
pub struct OnDuty(Groups);

impl Drop for OnDuty {
    fn drop(&mut self) {
        let mut state = self.0.0.state.lock();
        state.writers = state.writers.saturating_sub(1);
        self.0.0.changed.notify_all();
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        let Some(group) = &self.group else { return };
        let mut state = group.0.state.lock();
        if let Some(holds) = state.holds.get_mut(&self.txg) {
            *holds = holds.saturating_sub(1);
            if *holds == 0 {
                state.holds.remove(&self.txg);
                // nobody waits for the holds of the group that is open
                if self.txg < state.open {
                    group.0.changed.notify_all();
                }
            }
        }
    }
}

impl Groups {
    /// For a pool in which `synced` was the last group.
    pub fn new(synced: Txg, limits: Limits) -> Self {
        let state = State {
            open: next(synced),
            synced,
            holds: BTreeMap::new(),
            dirty: BTreeMap::new(),
            stored: BTreeMap::new(),
            freed: BTreeMap::new(),
            wanted: Txg::ZERO,
            writers: 0,
            stopped: false,
            halted: false,
        };
        let (state, changed, driver) = (Mutex::new(state), Condvar::new(), OnceLock::new());
        Self(Arc::new(Inner { limits, driver, state, changed }))
    }

    /// Tells how the open group is written by whoever cannot wait for another to do it.
    pub fn set_driver(&self, driver: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.driver.set(Box::new(driver));
    }

    /// Has something written, or waits until somebody has.
    fn drive(&self, state: &mut MutexGuard<'_, State>) {
        match self.0.driver.get().filter(|_| state.writers == 0) {
            Some(driver) => MutexGuard::unlocked(state, driver),
            None => self.0.changed.wait(state),
        }
    }

    /// Tells that the caller writes a group whenever one is due, until this is dropped: who waits
    /// for one can leave that to the caller.
    pub fn writer(&self) -> OnDuty {
        let mut state = self.0.state.lock();
        state.writers = state.writers.saturating_add(1);
        OnDuty(self.clone())
    }

    /// A hold on the open group. Waits while too much waits to be written; `None` once the groups
    /// are stopped, and while they are halted.
    pub fn begin(&self) -> Option<Tx> {
        let mut state = self.0.state.lock();
        while !state.ends() && state.is_full(self.0.limits) {
            self.drive(&mut state);
        }
        if state.ends() {
            return None;
        }
        let txg = state.open;
        let holds = state.holds.entry(txg).or_default();
        *holds = holds.saturating_add(1);
        Some(Tx { txg, group: Some(self.clone()) })
    }

    /// Waits until many blocks may be freed with the open group; it is written for that. Called before the
    /// [`Tx`] is begun that frees them, and tells of them by [`Tx::freed`].
    pub fn wait_to_free(&self) {
        let mut state = self.0.state.lock();
        while !state.ends()
            && state.freed.get(&state.open).is_some_and(|freed| *freed >= self.0.limits.freed)
        {
            if state.wanted < state.open {
                state.wanted = state.open;
                self.0.changed.notify_all();
            }
            self.drive(&mut state);
        }
    }

    fn freed(&self, txg: Txg, blocks: u64) {
        let mut state = self.0.state.lock();
        let freed = state.freed.entry(txg).or_default();
        *freed = freed.saturating_add(blocks);
    }

    fn dirtied(&self, txg: Txg, bytes: u64) {
        let mut state = self.0.state.lock();
        let before = state.dirty();
        let dirty = state.dirty.entry(txg).or_default();
        *dirty = dirty.saturating_add(bytes);
        let after = before.saturating_add(bytes);
        if before < self.0.limits.start && after >= self.0.limits.start {
            self.0.changed.notify_all();
        }
    }

    fn stored(&self, txg: Txg, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut state = self.0.state.lock();
        let was_due = due(&state, self.0.limits);
        let stored = state.stored.entry(txg).or_default();
        *stored = stored.saturating_add(bytes);
        if !was_due && due(&state, self.0.limits) {
            self.0.changed.notify_all();
        }
    }

    /// Bytes that a block of so many takes where it is not compressed, parity and copies left aside.
    pub fn on_drive(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.0.limits.sector).unwrap_or(bytes)
    }

    /// Bytes that wait to be written.
    pub fn dirty(&self) -> u64 {
        self.0.state.lock().dirty()
    }

    /// Bytes that the last group on the drives knows nothing of: those that wait to be written,
    /// and those that are stored already.
    pub fn unsynced(&self) -> u64 {
        let state = self.0.state.lock();
        state.dirty().saturating_add(state.stored())
    }

    /// The group that is open.
    pub fn open(&self) -> Txg {
        self.0.state.lock().open
    }

    /// The last group that is on the drives.
    pub fn synced(&self) -> Txg {
        self.0.state.lock().synced
    }

    /// Whether someone waits for a sync, or enough is dirty for one.
    pub fn is_due(&self) -> bool {
        let state = self.0.state.lock();
        due(&state, self.0.limits)
    }

    /// Waits until a sync is due or the time is over, whichever is first; true if it is due.
    pub fn wait_due(&self, most: std::time::Duration) -> bool {
        let mut state = self.0.state.lock();
        if !due(&state, self.0.limits) && !state.stopped {
            self.0.changed.wait_while_for(
                &mut state,
                |state| !due(state, self.0.limits) && !state.stopped,
                most,
            );
        }
        due(&state, self.0.limits)
    }

    /// Closes the open group and opens the next; gives the closed one when its last hold is gone.
    /// Only the pool's one writer calls this, and calls [`Groups::finish`] before it does again.
    pub fn quiesce(&self) -> Txg {
        let mut state = self.0.state.lock();
        let closed = state.open;
        state.open = next(closed);
        while state.holds.contains_key(&closed) {
            self.0.changed.wait(&mut state);
        }
        closed
    }

    /// Says that a group is on the drives.
    pub fn finish(&self, txg: Txg) {
        let mut state = self.0.state.lock();
        state.synced = txg;
        state.dirty.remove(&txg);
        state.stored.remove(&txg);
        state.freed.remove(&txg);
        self.0.changed.notify_all();
    }

    /// Asks for a sync of all that was changed so far, and waits for it. False if the groups were
    /// stopped before.
    pub fn wait_synced(&self) -> bool {
        let txg = self.open();
        self.wait_for(txg)
    }

    /// Asks for a sync of a group, and waits for it. False if the groups were stopped or halted
    /// before.
    pub fn wait_for(&self, txg: Txg) -> bool {
        let mut state = self.0.state.lock();
        state.wanted = state.wanted.max(txg);
        self.0.changed.notify_all();
        while state.synced < txg && !state.ends() {
            self.drive(&mut state);
        }
        state.synced >= txg
    }

    /// The same, for as long as there is somebody else who writes groups: `there` says so. True if
    /// it is written; none if nobody is there any more.
    pub fn wait_while(&self, txg: Txg, there: &dyn Fn() -> bool) -> Option<bool> {
        let mut state = self.0.state.lock();
        state.wanted = state.wanted.max(txg);
        self.0.changed.notify_all();
        while state.synced < txg && !state.ends() {
            if !there() {
                return None;
            }
            self.0.changed.wait(&mut state);
        }
        Some(state.synced >= txg)
    }

    /// No group can be written for now, or again: everyone who waits is let go meanwhile.
    pub fn halt(&self, halted: bool) {
        self.0.state.lock().halted = halted;
        self.0.changed.notify_all();
    }

    /// Everyone who waits looks again.
    pub fn stir(&self) {
        // under the lock, lest someone who is about to wait miss it
        let _state = self.0.state.lock();
        self.0.changed.notify_all();
    }

    /// No more groups: everyone who waits is let go.
    pub fn stop(&self) {
        self.0.state.lock().stopped = true;
        self.0.changed.notify_all();
    }

    /// Whether they were stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.state.lock().stopped
    }
}

fn due(state: &State, limits: Limits) -> bool {
    state.wanted > state.synced || state.dirty() >= limits.start || state.stored() >= limits.dirty
}

const fn next(txg: Txg) -> Txg {
    Txg::new(txg.get().saturating_add(1))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use units::Txg;

    use super::Groups;
    use crate::Limits;

    #[test]
    fn a_group_is_not_written_while_it_is_held() {
        let groups = Groups::new(Txg::new(7), Limits::default());
        let tx = groups.begin().unwrap();
        assert_eq!(tx.txg(), Txg::new(8));
        let writer = groups.clone();
        let closing = thread::spawn(move || writer.quiesce());
        while groups.open() == Txg::new(8) {
            thread::yield_now();
        }
        let later = groups.begin().unwrap();
        assert_eq!(later.txg(), Txg::new(9));
        assert!(!closing.is_finished());
        drop(tx);
        assert_eq!(closing.join().unwrap(), Txg::new(8));
    }

    #[test]
    fn who_asks_for_a_sync_gets_it() {
        let groups = Groups::new(Txg::new(1), Limits::default());
        assert!(!groups.is_due());
        let waiting = thread::spawn({
            let groups = groups.clone();
            move || groups.wait_synced()
        });
        while !groups.wait_due(Duration::from_secs(1)) {}
        let txg = groups.quiesce();
        groups.finish(txg);
        assert!(waiting.join().unwrap());
        assert_eq!(groups.synced(), Txg::new(2));
    }

    #[test]
    fn who_frees_much_goes_on_with_the_next_group() {
        let groups = Groups::new(Txg::new(1), Limits { freed: 10, ..Limits::default() });
        for blocks in [4, 5, 6] {
            groups.wait_to_free();
            let tx = groups.begin().unwrap();
            assert_eq!(tx.txg(), Txg::new(2));
            tx.freed(blocks);
        }
        let freeing = thread::spawn({
            let groups = groups.clone();
            move || {
                groups.wait_to_free();
                groups.begin().unwrap().txg()
            }
        });
        while !groups.wait_due(Duration::from_secs(1)) {}
        // others need not wait
        assert_eq!(groups.begin().unwrap().txg(), Txg::new(2));
        groups.finish(groups.quiesce());
        assert_eq!(freeing.join().unwrap(), Txg::new(3));
        groups.halt(true);
        groups.wait_to_free();
    }

    #[test]
    fn who_waits_writes_only_if_nobody_is_on_duty() {
        let groups = Groups::new(Txg::new(1), Limits::default());
        let (driven, own) = (Arc::new(AtomicUsize::new(0)), groups.clone());
        let count = Arc::clone(&driven);
        groups.set_driver(move || {
            count.fetch_add(1, Ordering::Relaxed);
            own.finish(own.quiesce());
        });
        let duty = groups.writer();
        let waiting = thread::spawn({
            let groups = groups.clone();
            move || groups.wait_synced()
        });
        while !groups.wait_due(Duration::from_secs(1)) {}
        groups.finish(groups.quiesce());
        assert!(waiting.join().unwrap());
        assert_eq!(driven.load(Ordering::Relaxed), 0);
        drop(duty);
        assert!(groups.wait_synced());
        assert_eq!(driven.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn too_much_that_is_dirty_makes_writers_wait() {
        let groups = Groups::new(Txg::new(1), Limits::of(300));
        let tx = groups.begin().unwrap();
        tx.dirtied(99);
        assert!(!groups.is_due());
        tx.dirtied(300);
        assert!(groups.is_due());
        drop(tx);
        let blocked = thread::spawn({
            let groups = groups.clone();
            move || groups.begin().map(|tx| tx.txg())
        });
        let txg = groups.quiesce();
        groups.finish(txg);
        assert_eq!(blocked.join().unwrap(), Some(Txg::new(3)));
        groups.stop();
        assert!(groups.begin().is_none() && !groups.wait_synced());
    }
}
