//! The lock between copying within a vdev and the I/O of others to it: a raidz expansion, a sequential rebuild.
//!
//! ```text
//! readers, writers   shared lock on the sectors of their blocks, as long as the I/O runs
//! reflow             exclusive lock on the sectors that it copies, and on those whose place changes
//! ```
//!
//! With a rebuild only writers take locks: one that wrote to the new leaf first must not be overwritten by what
//! the rebuild had read before.
//!
//! The position is read together with the shared lock. It changes only under an exclusive lock on the
//! sectors for which that matters, so that a block is never read at a place that is being overwritten.
//!
//! Proved by: the tests below, and the engine's `tests/it/raidz_expand.rs`.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use geometry::ReflowPosition;
use parking_lot::{Condvar, Mutex};

/// How often the gate looks whether I/O has ended that began before the expansion.
const DRAIN_POLL: Duration = Duration::from_millis(1);

/// The gate of an expansion: with its position.
pub(crate) type ReflowGate = RangeGate<ReflowPosition>;

/// The gate of a sequential rebuild.
pub(crate) type RebuildGate = RangeGate<()>;

/// Locks on ranges of a vdev, and the position that is read together with them.
#[derive(Debug)]
pub(crate) struct RangeGate<P> {
    state: Mutex<GateState<P>>,
    released: Condvar,
    /// Held by I/O that began before the gate was there, and takes no locks.
    earlier_io: Arc<()>,
}

#[derive(Debug)]
struct GateState<P> {
    position: P,
    /// Each I/O under way: its number, and the range from its first byte to its last.
    shared: Vec<(u64, Range<u64>)>,
    /// The ranges that are copied.
    exclusive: Vec<Range<u64>>,
    /// How many shared locks were taken.
    requests: u64,
}

/// A shared lock; released on drop.
pub(crate) struct SharedLock<P = ReflowPosition>
where
    P: Copy,
{
    gate: Arc<RangeGate<P>>,
    number: u64,
    /// The position of the expansion, as long as the lock is held.
    pub(crate) position: P,
}

/// The exclusive lock; released on drop.
pub(crate) struct ExclusiveLock<'a, P = ReflowPosition>(&'a RangeGate<P>, Range<u64>);

impl<P: Copy> RangeGate<P> {
    /// A gate; `earlier_io` is shared with the I/O that began before it.
    pub(crate) fn new(position: impl Into<P>, earlier_io: Arc<()>) -> Self {
        let state = GateState {
            position: position.into(),
            shared: Vec::new(),
            exclusive: Vec::new(),
            requests: 0,
        };
        Self { state: Mutex::new(state), released: Condvar::new(), earlier_io }
    }

    /// Locks a range for I/O; waits while the reflow has some of it.
    pub(crate) fn lock_shared(gate: &Arc<Self>, range: Range<u64>) -> SharedLock<P> {
        let mut state = gate.state.lock();
        while state.exclusive.iter().any(|locked| overlaps(locked, &range)) {
            gate.released.wait(&mut state);
        }
        state.requests += 1;
        let number = state.requests;
        state.shared.push((number, range));
        SharedLock { gate: Arc::clone(gate), number, position: state.position }
    }

    /// Locks a range for copying; waits for the I/O in it.
    pub(crate) fn lock_exclusive(&self, range: Range<u64>) -> ExclusiveLock<'_, P> {
        let mut state = self.state.lock();
        while state.exclusive.iter().any(|locked| overlaps(locked, &range)) {
            self.released.wait(&mut state);
        }
        // Rule: the range is taken before the I/O in it ends. Later I/O waits, so that the copy begins at all; in
        // the other order a busy range would never be free.
        state.exclusive.push(range.clone());
        while state.shared.iter().any(|(_, locked)| overlaps(locked, &range)) {
            self.released.wait(&mut state);
        }
        ExclusiveLock(self, range)
    }

    /// Waits for the I/O that began before the gate was there.
    pub(crate) fn wait_for_earlier_io(&self) {
        // one count is the gate's own
        while Arc::strong_count(&self.earlier_io) > 1 {
            std::thread::sleep(DRAIN_POLL);
        }
    }

    pub(crate) fn position(&self) -> P {
        self.state.lock().position
    }
}

impl ReflowGate {
    /// Copying advanced to, or went back to, `next`.
    pub(crate) fn set_next(&self, next: u64) {
        self.state.lock().position.next = next;
    }
}

impl ExclusiveLock<'_> {
    /// Changes the position. The lock covers all sectors whose place depends on it.
    pub(crate) fn set_position(&self, position: ReflowPosition) {
        assert!(position.synced <= position.next, "copying is ahead of the uberblock");
        self.0.state.lock().position = position;
    }
}

impl<P: Copy> Drop for SharedLock<P> {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        let before = state.shared.len();
        state.shared.retain(|(number, _)| *number != self.number);
        assert!(
            state.shared.len() + 1 == before || std::thread::panicking(),
            "shared lock {} is released once",
            self.number
        );
        drop(state);
        self.gate.released.notify_all();
    }
}

impl<P> Drop for ExclusiveLock<'_, P> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        let before = state.exclusive.len();
        state.exclusive.retain(|locked| *locked != self.1);
        assert!(
            state.exclusive.len() < before || std::thread::panicking(),
            "the exclusive lock on {:?} is held until it is released",
            self.1
        );
        drop(state);
        self.0.released.notify_all();
    }
}

fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use geometry::Reflow;

    use super::ReflowGate;

    fn gate() -> Arc<ReflowGate> {
        let reflow = Reflow { offset: 0, scratch: false };
        Arc::new(ReflowGate::new(reflow, Arc::default()))
    }

    #[test]
    fn exclusive_lock_waits_for_io_in_range() {
        let gate = gate();
        let inside = ReflowGate::lock_shared(&gate, 10..20);
        let _outside = ReflowGate::lock_shared(&gate, 30..40);
        let is_released = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let _lock = gate.lock_exclusive(15..30);
                is_released.load(Ordering::SeqCst)
            });
            is_released.store(true, Ordering::SeqCst);
            drop(inside);
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn shared_lock_sees_position_set_under_exclusive_lock() {
        let gate = gate();
        let lock = gate.lock_exclusive(0..100);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| ReflowGate::lock_shared(&gate, 50..60).position.synced);
            let position = geometry::ReflowPosition { synced: 100, next: 100, scratch: false };
            lock.set_position(position);
            drop(lock);
            assert_eq!(reader.join().unwrap(), 100);
        });
    }
}
