//! The transaction groups of a pool, and holds on them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex, MutexGuard};
use units::Txg;

use crate::TxgLimits;
use crate::gate::{ClosedGate, TxGate};

/// The transaction groups of a pool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Txgs(Arc<TxgsInner>);

/// Has the open group written.
type InlineSync = Box<dyn Fn() + Send + Sync>;

/// Has the pool suspended.
type PanicHook = Box<dyn Fn() + Send + Sync>;

struct TxgsInner {
    limits: TxgLimits,
    /// Bytes that a block takes at least.
    sector_size: AtomicU64,
    /// Syncs the open txg on the thread that waits for it.
    inline_sync: OnceLock<InlineSync>,
    /// Runs when a thread panics that holds a transaction.
    panic_hook: OnceLock<PanicHook>,
    state: Mutex<TxgState>,
    /// Notified when `state` changes in a way that a thread may wait for.
    changed: Condvar,
}

#[derive(Debug)]
struct TxgState {
    open: Txg,
    synced: Txg,
    /// The holds on each txg that has any.
    holds: BTreeMap<Txg, usize>,
    /// Dirty bytes of each group that has any.
    dirty_bytes: BTreeMap<Txg, u64>,
    /// Bytes of each group that are on the drives already.
    written_through: BTreeMap<Txg, u64>,
    /// Blocks freed with each txg by operations that free many.
    freed_blocks: BTreeMap<Txg, u64>,
    /// A sync of this txg was requested.
    requested: Txg,
    /// The number of threads that sync txgs whenever one is due.
    sync_threads: usize,
    /// Stopped: no more txgs, and all waits end.
    is_stopped: bool,
    /// No group can be written for now: the same until that is over.
    is_suspended: bool,
}

impl TxgState {
    fn is_unavailable(&self) -> bool {
        self.is_stopped || self.is_suspended
    }
}

impl std::fmt::Debug for TxgsInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.state.lock())
    }
}

impl TxgState {
    /// Asserts that a txg is held: only then may a change be part of it.
    fn assert_held(&self, txg: Txg) {
        assert!(self.holds.contains_key(&txg), "a change is made while its txg is held");
    }

    fn total_dirty(&self) -> u64 {
        self.dirty_bytes.values().copied().sum()
    }

    fn total_written_through(&self) -> u64 {
        self.written_through.values().copied().sum()
    }

    /// Eagerly written data uses no memory, but the drives may not have flushed it. This limits the
    /// flush at the sync.
    fn is_full(&self, limits: TxgLimits) -> bool {
        self.total_dirty() >= limits.max_dirty
            || self.total_written_through() >= limits.max_dirty * 2
    }
}

/// A hold on a txg: the txg is not synced while the hold exists.
#[derive(Debug)]
pub struct Tx {
    txg: Txg,
    txgs: Option<Txgs>,
}

impl Tx {
    /// The syncing txg, for the thread that writes it. It is not a hold.
    pub const fn syncing(txg: Txg) -> Self {
        Self { txg, txgs: None }
    }

    /// The group.
    pub const fn txg(&self) -> Txg {
        self.txg
    }

    /// Reports this many more dirty bytes in this txg.
    pub fn add_dirty(&self, bytes: u64) {
        if let Some(group) = &self.txgs {
            group.add_dirty(self.txg, bytes);
        }
    }

    /// Reports a dirty block of this many bytes, with the share of its metadata.
    pub fn add_dirty_block(&self, bytes: u64) {
        self.add_dirty(self.allocated_size(bytes));
    }

    /// Bytes of an uncompressed block with its metadata, without parity and extra copies.
    pub fn allocated_size(&self, bytes: u64) -> u64 {
        self.txgs.as_ref().map_or(bytes, |group| group.allocated_size(bytes))
    }

    /// Reports that an operation frees this many blocks with this txg.
    pub fn add_freed(&self, blocks: u64) {
        if let Some(group) = &self.txgs {
            group.add_freed(self.txg, blocks);
        }
    }

    /// Reports this many bytes that were written eagerly, before the sync of this txg.
    pub fn add_written_through(&self, bytes: u64) {
        if let Some(group) = &self.txgs {
            group.add_written_through(self.txg, bytes);
        }
    }
}

/// Registers a thread that syncs txgs whenever one is due.
#[derive(Debug)]
pub struct SyncThreadGuard(Txgs);

impl Drop for SyncThreadGuard {
    fn drop(&mut self) {
        let mut state = self.0.0.state.lock();
        let threads = state.sync_threads;
        assert!(threads > 0 || std::thread::panicking(), "a sync thread ends that was registered");
        state.sync_threads -= 1;
        self.0.0.changed.notify_all();
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        let Some(group) = &self.txgs else { return };
        if std::thread::panicking() {
            // The txg has half a change: the hook runs before the hold ends, so that no thread
            // syncs it.
            group.stop();
            group.0.panic_hook.get().inspect(|hook| hook());
        }
        // Rule: the panic hook runs before the hold ends (W7). The sync thread waits for the hold, and would commit
        // half a change in between; a crash would then leave it in the pool.
        let mut state = group.0.state.lock();
        assert!(
            self.txg > state.synced || std::thread::panicking(),
            "no txg is synced while it is held"
        );
        let holds = state.holds.get_mut(&self.txg);
        // a second panic would end the program
        assert!(holds.is_some() || std::thread::panicking(), "each Tx holds its txg");
        if let Some(holds) = holds {
            *holds -= 1;
            if *holds == 0 {
                state.holds.remove(&self.txg);
                // no thread waits for the holds of the open txg
                if self.txg < state.open {
                    group.0.changed.notify_all();
                }
            }
        }
    }
}

impl Txgs {
    /// For a pool in which `synced` was the last group.
    pub fn new(synced: Txg, limits: TxgLimits) -> Self {
        let state = TxgState {
            open: next_txg(synced),
            synced,
            holds: BTreeMap::new(),
            dirty_bytes: BTreeMap::new(),
            written_through: BTreeMap::new(),
            freed_blocks: BTreeMap::new(),
            requested: Txg::ZERO,
            sync_threads: 0,
            is_stopped: false,
            is_suspended: false,
        };
        let (state, changed, driver) = (Mutex::new(state), Condvar::new(), OnceLock::new());
        let sector_size = AtomicU64::new(limits.sector_size);
        let panic_hook = OnceLock::new();
        let inline_sync = driver;
        Self(Arc::new(TxgsInner { limits, sector_size, inline_sync, panic_hook, state, changed }))
    }

    /// Sets what runs when a thread panics that holds a transaction. The txgs are stopped by then.
    pub fn set_panic_hook(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.panic_hook.set(Box::new(hook));
    }

    /// Sets the function that syncs the open txg on a thread that cannot wait for the sync thread.
    pub fn set_inline_sync(&self, driver: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.inline_sync.set(Box::new(driver));
    }

    /// Syncs the txg, or waits until another thread has.
    fn sync_or_wait(&self, state: &mut MutexGuard<'_, TxgState>) {
        match self.0.inline_sync.get().filter(|_| state.sync_threads == 0) {
            Some(driver) => MutexGuard::unlocked(state, driver),
            None => self.0.changed.wait(state),
        }
    }

    /// Registers a thread that syncs txgs whenever one is due, until the guard is dropped. Waiting
    /// threads then leave the sync to it.
    pub fn register_sync_thread(&self) -> SyncThreadGuard {
        let mut state = self.0.state.lock();
        state.sync_threads += 1;
        SyncThreadGuard(self.clone())
    }

    /// Takes a hold on the open txg. Waits while too much is dirty. Returns `None` once the txgs
    /// are stopped, and while they are halted.
    pub fn begin_tx(&self) -> Option<Tx> {
        let mut state = self.0.state.lock();
        while !state.is_unavailable() && state.is_full(self.0.limits) {
            self.sync_or_wait(&mut state);
        }
        if state.is_unavailable() {
            return None;
        }
        Some(self.hold_open_txg(&mut state))
    }

    /// The same for a dataset behind a gate. Waits also while the gate is closed; `None` also once the gate
    /// is retired.
    pub fn begin_gated_tx(&self, gate: &TxGate) -> Option<Tx> {
        self.begin_tx_behind(&[gate])
    }

    /// The same for a change that depends on several gates. Waits while any of them is closed; `None` also once
    /// any of them is retired.
    pub fn begin_tx_behind(&self, gates: &[&TxGate]) -> Option<Tx> {
        let mut state = self.0.state.lock();
        loop {
            if state.is_unavailable() || gates.iter().any(|gate| gate.is_retired()) {
                return None;
            }
            if gates.iter().any(|gate| gate.is_closed()) {
                self.0.changed.wait(&mut state);
            } else if state.is_full(self.0.limits) {
                self.sync_or_wait(&mut state);
            } else {
                return Some(self.hold_open_txg(&mut state));
            }
        }
    }

    /// Closes a gate until the guard is dropped. Transactions that began behind it belong to the open txg
    /// or an earlier one: a sync of the open txg writes all their changes.
    pub fn close_gate(&self, gate: &Arc<TxGate>) -> ClosedGate {
        // Rule: the gate closes under the lock under which transactions begin. A transaction that passed the gate
        // has its hold already, and the sync of the open txg waits for it.
        let _state = self.0.state.lock();
        gate.close();
        ClosedGate { gate: Arc::clone(gate), txgs: self.clone() }
    }

    fn hold_open_txg(&self, state: &mut TxgState) -> Tx {
        let txg = state.open;
        assert!(txg > state.synced, "the open txg is not on the drives");
        let holds = state.holds.entry(txg).or_default();
        *holds += 1;
        Tx { txg, txgs: Some(self.clone()) }
    }

    /// Waits until many blocks may be freed with the open txg, and requests its sync for that. Call
    /// it before beginning the [`Tx`] that frees them and reports them by [`Tx::add_freed`].
    pub fn throttle_frees(&self) {
        let mut state = self.0.state.lock();
        while !state.is_unavailable()
            && state
                .freed_blocks
                .get(&state.open)
                .is_some_and(|freed| *freed >= self.0.limits.max_freed_blocks)
        {
            if state.requested < state.open {
                state.requested = state.open;
                self.0.changed.notify_all();
            }
            self.sync_or_wait(&mut state);
        }
    }

    fn add_freed(&self, txg: Txg, blocks: u64) {
        let mut state = self.0.state.lock();
        state.assert_held(txg);
        let freed = state.freed_blocks.entry(txg).or_default();
        *freed += blocks;
    }

    fn add_dirty(&self, txg: Txg, bytes: u64) {
        let mut state = self.0.state.lock();
        state.assert_held(txg);
        let before = state.total_dirty();
        let dirty = state.dirty_bytes.entry(txg).or_default();
        *dirty += bytes;
        let after = before + bytes;
        if before < self.0.limits.sync_threshold && after >= self.0.limits.sync_threshold {
            self.0.changed.notify_all();
        }
    }

    fn add_written_through(&self, txg: Txg, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut state = self.0.state.lock();
        let was_due = is_sync_due(&state, self.0.limits);
        state.assert_held(txg);
        let stored = state.written_through.entry(txg).or_default();
        *stored += bytes;
        if !was_due && is_sync_due(&state, self.0.limits) {
            self.0.changed.notify_all();
        }
    }

    /// Sets the least bytes that a block takes, after vdevs were added.
    pub fn set_sector_size(&self, bytes: u64) {
        self.0.sector_size.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of an uncompressed block with its metadata, without parity and extra copies.
    pub fn allocated_size(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.0.sector_size.load(Ordering::Relaxed)).unwrap_or(bytes)
    }

    /// Bytes that wait to be written.
    pub fn dirty_bytes(&self) -> u64 {
        self.0.state.lock().total_dirty()
    }

    /// Bytes that the last txg on the drives does not have: dirty data, and eagerly written data.
    pub fn unsynced_bytes(&self) -> u64 {
        let state = self.0.state.lock();
        state.total_dirty() + state.total_written_through()
    }

    /// The group that is open.
    pub fn open_txg(&self) -> Txg {
        self.0.state.lock().open
    }

    /// The last group that is on the drives.
    pub fn synced_txg(&self) -> Txg {
        self.0.state.lock().synced
    }

    /// Whether someone waits for a sync, or enough is dirty for one.
    pub fn is_sync_due(&self) -> bool {
        let state = self.0.state.lock();
        is_sync_due(&state, self.0.limits)
    }

    /// Waits until a sync is due or the time is over, whichever is first; true if it is due.
    pub fn wait_sync_due(&self, most: std::time::Duration) -> bool {
        let mut state = self.0.state.lock();
        if !is_sync_due(&state, self.0.limits) && !state.is_stopped {
            self.0.changed.wait_while_for(
                &mut state,
                |state| !is_sync_due(state, self.0.limits) && !state.is_stopped,
                most,
            );
        }
        is_sync_due(&state, self.0.limits)
    }

    /// Closes the open group and opens the next; gives the closed one when its last hold is gone.
    /// Only the pool's one writer calls this, and calls [`Txgs::finish_sync`] before it does again.
    ///
    /// # Panics
    /// If an older txg is still held.
    pub fn quiesce(&self) -> Txg {
        let mut state = self.0.state.lock();
        let closed = state.open;
        assert_eq!(
            state.synced.next(),
            closed,
            "a txg is closed after the one before it is synced"
        );
        // Rule: the next txg opens before this thread waits for the holds. A thread with a hold may begin another
        // transaction, and would otherwise wait for itself.
        state.open = next_txg(closed);
        while state.holds.contains_key(&closed) {
            self.0.changed.wait(&mut state);
        }
        let oldest = state.holds.keys().next();
        assert!(oldest.is_none_or(|oldest| *oldest > closed), "a txg is held after it was closed");
        closed
    }

    /// Says that a group is on the drives.
    ///
    /// # Panics
    /// If the txg is not the one that [`Txgs::quiesce`] closed.
    pub fn finish_sync(&self, txg: Txg) {
        let mut state = self.0.state.lock();
        assert!(state.synced < txg && txg < state.open, "txgs are synced in order, once closed");
        assert!(!state.holds.contains_key(&txg), "a synced txg has no holds");
        // Rule: the caller has written the uberblock. Waiting threads acknowledge their changes from here on, and
        // a crash must not take these back.
        state.synced = txg;
        state.dirty_bytes.remove(&txg);
        state.written_through.remove(&txg);
        state.freed_blocks.remove(&txg);
        let oldest = [&state.dirty_bytes, &state.written_through, &state.freed_blocks];
        let oldest = oldest.into_iter().filter_map(|bytes| bytes.first_key_value());
        assert!(oldest.min().is_none_or(|(oldest, _)| *oldest > txg), "no older txg is dirty");
        self.0.changed.notify_all();
    }

    /// Requests a sync of all changes so far, and waits for it. Returns false if the txgs were
    /// stopped first.
    pub fn wait_synced(&self) -> bool {
        let txg = self.open_txg();
        self.wait_txg_synced(txg)
    }

    /// Requests a sync of a txg, and waits for it. Returns false if the txgs were stopped or halted
    /// first.
    pub fn wait_txg_synced(&self, txg: Txg) -> bool {
        // Rule: the caller holds no txg. The sync that it waits for would wait for that hold.
        let mut state = self.0.state.lock();
        state.requested = state.requested.max(txg);
        self.0.changed.notify_all();
        while state.synced < txg && !state.is_unavailable() {
            self.sync_or_wait(&mut state);
        }
        state.synced >= txg
    }

    /// Waits like [`Self::wait_txg_synced`] while another thread syncs txgs, as `there` reports. Returns true
    /// if the txg is synced, and none if no such thread is left.
    pub fn wait_synced_while(&self, txg: Txg, there: &dyn Fn() -> bool) -> Option<bool> {
        let mut state = self.0.state.lock();
        state.requested = state.requested.max(txg);
        self.0.changed.notify_all();
        while state.synced < txg && !state.is_unavailable() {
            if !there() {
                return None;
            }
            self.0.changed.wait(&mut state);
        }
        Some(state.synced >= txg)
    }

    /// Halts or resumes the txgs: while no txg can be synced, all waits end at once.
    pub fn set_suspended(&self, halted: bool) {
        self.0.state.lock().is_suspended = halted;
        self.0.changed.notify_all();
    }

    /// Wakes all waiting threads, which check their conditions again.
    pub fn wake_waiters(&self) {
        // under the lock: a thread that is about to wait would otherwise miss it
        let _state = self.0.state.lock();
        self.0.changed.notify_all();
    }

    /// Stops the txgs: all waits end.
    pub fn stop(&self) {
        self.0.state.lock().is_stopped = true;
        self.0.changed.notify_all();
    }

    /// Whether they were stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.state.lock().is_stopped
    }
}

fn is_sync_due(state: &TxgState, limits: TxgLimits) -> bool {
    state.requested > state.synced
        || state.total_dirty() >= limits.sync_threshold
        || state.total_written_through() >= limits.max_dirty
}

const fn next_txg(txg: Txg) -> Txg {
    txg.next()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use units::Txg;

    use super::Txgs;
    use crate::TxgLimits;

    #[test]
    fn held_txg_is_not_synced() {
        let groups = Txgs::new(Txg::new(7), TxgLimits::default());
        let tx = groups.begin_tx().unwrap();
        assert_eq!(tx.txg(), Txg::new(8));
        let writer = groups.clone();
        let closing = thread::spawn(move || writer.quiesce());
        while groups.open_txg() == Txg::new(8) {
            thread::yield_now();
        }
        let later = groups.begin_tx().unwrap();
        assert_eq!(later.txg(), Txg::new(9));
        assert!(!closing.is_finished());
        drop(tx);
        assert_eq!(closing.join().unwrap(), Txg::new(8));
    }

    #[test]
    fn requested_sync_is_done() {
        let groups = Txgs::new(Txg::new(1), TxgLimits::default());
        assert!(!groups.is_sync_due());
        let waiting = thread::spawn({
            let groups = groups.clone();
            move || groups.wait_synced()
        });
        while !groups.wait_sync_due(Duration::from_secs(1)) {}
        let txg = groups.quiesce();
        groups.finish_sync(txg);
        assert!(waiting.join().unwrap());
        assert_eq!(groups.synced_txg(), Txg::new(2));
    }

    #[test]
    fn freeing_many_blocks_waits_for_the_next_txg() {
        let groups =
            Txgs::new(Txg::new(1), TxgLimits { max_freed_blocks: 10, ..TxgLimits::default() });
        for blocks in [4, 5, 6] {
            groups.throttle_frees();
            let tx = groups.begin_tx().unwrap();
            assert_eq!(tx.txg(), Txg::new(2));
            tx.add_freed(blocks);
        }
        let freeing = thread::spawn({
            let groups = groups.clone();
            move || {
                groups.throttle_frees();
                groups.begin_tx().unwrap().txg()
            }
        });
        while !groups.wait_sync_due(Duration::from_secs(1)) {}
        // others need not wait
        assert_eq!(groups.begin_tx().unwrap().txg(), Txg::new(2));
        groups.finish_sync(groups.quiesce());
        assert_eq!(freeing.join().unwrap(), Txg::new(3));
        groups.set_suspended(true);
        groups.throttle_frees();
    }

    #[test]
    fn waiting_thread_syncs_only_without_sync_thread() {
        let groups = Txgs::new(Txg::new(1), TxgLimits::default());
        let (driven, own) = (Arc::new(AtomicUsize::new(0)), groups.clone());
        let count = Arc::clone(&driven);
        groups.set_inline_sync(move || {
            count.fetch_add(1, Ordering::Relaxed);
            own.finish_sync(own.quiesce());
        });
        let duty = groups.register_sync_thread();
        let waiting = thread::spawn({
            let groups = groups.clone();
            move || groups.wait_synced()
        });
        while !groups.wait_sync_due(Duration::from_secs(1)) {}
        groups.finish_sync(groups.quiesce());
        assert!(waiting.join().unwrap());
        assert_eq!(driven.load(Ordering::Relaxed), 0);
        drop(duty);
        assert!(groups.wait_synced());
        assert_eq!(driven.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn panic_within_a_transaction_stops_the_txgs() {
        let txgs = Txgs::new(Txg::new(1), TxgLimits::default());
        let (calls, seen) = (Arc::new(AtomicUsize::new(0)), txgs.clone());
        let count = Arc::clone(&calls);
        txgs.set_panic_hook(move || {
            assert!(seen.is_stopped());
            count.fetch_add(1, Ordering::Relaxed);
        });
        drop(txgs.begin_tx());
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        let changing = txgs.clone();
        let done = thread::spawn(move || {
            let _tx = changing.begin_tx().unwrap();
            panic!("an assertion of a test");
        });
        assert!(done.join().is_err());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert!(txgs.begin_tx().is_none() && !txgs.wait_synced());
    }

    #[test]
    fn too_much_that_is_dirty_makes_writers_wait() {
        let groups = Txgs::new(Txg::new(1), TxgLimits::with_max_dirty(300));
        let tx = groups.begin_tx().unwrap();
        tx.add_dirty(99);
        assert!(!groups.is_sync_due());
        tx.add_dirty(300);
        assert!(groups.is_sync_due());
        drop(tx);
        let blocked = thread::spawn({
            let groups = groups.clone();
            move || groups.begin_tx().map(|tx| tx.txg())
        });
        let txg = groups.quiesce();
        groups.finish_sync(txg);
        assert_eq!(blocked.join().unwrap(), Some(Txg::new(3)));
        groups.stop();
        assert!(groups.begin_tx().is_none() && !groups.wait_synced());
    }
}
