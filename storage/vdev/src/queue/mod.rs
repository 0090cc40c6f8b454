//! The queue of a leaf: I/O of users and of the txg sync goes before that of scans and other long work.
//!
//! ```text
//! sync         reads; writes of logs and labels     never waits here
//! async        the txg sync's writes, read-ahead    waits while as many of its class are active as may be
//! background   scan, rebuild, removal, trim, ...    waits for its turn
//! ```
//!
//! While a leaf serves I/O of users, one background I/O at a time is issued: when its share is due, or when it has
//! waited for a tenth of a second. With a share of 25 percent that is after three I/Os of users, and for one of more
//! than 128 KiB after as many more. A leaf without I/O of users for [`IDLE_DELAY`] issues as much background I/O as
//! its class allows, until users are back.
//!
//! A thread says the class of its I/O with [`with_class`]; without that it is that of users. An I/O that locks what
//! users wait for awaits its turn before the lock ([`LeafQueue::await_turn`]).
//!
//! Learnt from: `vdev_queue.c` of OpenZFS 2.3.2. Its scans have three I/Os at a leaf, which it merges; ours are
//! single blocks, and so more of them. Proved by: `tests.rs`.

mod class;
mod stats;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use device::{Device, IoKind};
use parking_lot::{Condvar, Mutex};
use units::MinusOrZero as _;

pub(crate) use class::thread_class;
pub use class::{IoClass, QueueClass, with_class};
pub use stats::{ClassStats, QueueStats, TotalStats};

use class::Limit;
use stats::{ClassCounters, TotalCounters};

/// Background I/Os among a hundred of a busy leaf, unless it is set otherwise.
pub const DEFAULT_BACKGROUND_SHARE: u64 = 25;
/// A leaf without I/O of users for so long is idle.
const IDLE_DELAY: Duration = Duration::from_millis(5);
/// A waiting I/O looks so many times in an idle delay whether it is its turn.
const QUARTERS: u32 = 4;
/// A background I/O waits for so many idle delays at most.
const BACKGROUND_DEADLINE: u32 = 20;
/// An async I/O waits for so many idle delays at most.
const ASYNC_DEADLINE: u32 = 200;
/// A background I/O of so many bytes counts as one I/O of users.
const COST_BYTES: u64 = 128 << 10;

/// The queue of a leaf.
#[derive(Debug)]
pub(crate) struct LeafQueue {
    /// I/Os of users that began.
    started: AtomicU64,
    /// I/Os of users that ended.
    ended: AtomicU64,
    classes: [ClassCounters; QueueClass::ALL.len()],
    /// Of reads and of writes.
    totals: [TotalCounters; 2],
    background: Mutex<BackgroundState>,
    /// Background I/Os that wait.
    waiting: AtomicU64,
    changed: Condvar,
    /// Async I/Os wait here.
    room: (Mutex<()>, Condvar),
    idle_delay: Duration,
    /// Background I/Os among a hundred while users have theirs.
    share: AtomicU64,
}

#[derive(Debug)]
struct BackgroundState {
    /// The leaf was idle when so many I/Os of users had begun.
    idle_at: u64,
    /// I/Os of users that had ended when the last background I/O was issued.
    issued_at: u64,
    /// As how many I/Os that one counts.
    cost: u64,
}

/// An I/O of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedIo<'a> {
    /// Its device has the clock.
    pub(crate) device: &'a dyn Device,
    /// Whether it reads, writes or discards.
    pub(crate) kind: IoKind,
    pub(crate) bytes: u64,
}

/// The turn of an I/O at a leaf, until it is dropped.
#[derive(Debug)]
struct Turn<'a> {
    queue: &'a LeafQueue,
    class: QueueClass,
    has_waited: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queue.leave(self.class);
    }
}

impl Default for BackgroundState {
    fn default() -> Self {
        Self { idle_at: 0, issued_at: 0, cost: 1 }
    }
}

impl Default for LeafQueue {
    fn default() -> Self {
        Self::new(IDLE_DELAY)
    }
}

impl LeafQueue {
    fn new(idle_delay: Duration) -> Self {
        Self {
            started: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            classes: Default::default(),
            totals: Default::default(),
            background: Mutex::default(),
            waiting: AtomicU64::new(0),
            changed: Condvar::new(),
            room: (Mutex::new(()), Condvar::new()),
            idle_delay,
            share: AtomicU64::new(DEFAULT_BACKGROUND_SHARE),
        }
    }

    /// Does an I/O of the thread's class, when it is its turn.
    pub(crate) fn run<R>(&self, io: QueuedIo<'_>, work: impl FnOnce() -> R) -> R {
        let class = QueueClass::new(thread_class(), io.kind);
        let arrived = io.device.now();
        let has_turn = thread_class().awaits_turn_first() && class != QueueClass::Trim;
        let turn = (!has_turn).then(|| self.enter(class, io.cost()));
        let has_waited = turn.as_ref().is_some_and(|turn| turn.has_waited);
        let waited = has_waited.then(|| time_since(io.device, arrived));
        let result = work();
        drop(turn);
        self.classes[class as usize].count(io.bytes, waited);
        let total = match io.kind {
            IoKind::Read => Some(&self.totals[0]),
            IoKind::Write => Some(&self.totals[1]),
            IoKind::Trim | IoKind::Flush => None,
        };
        if let Some(total) = total {
            total.count(time_since(io.device, arrived));
        }
        result
    }

    /// Waits for the turn of an I/O of so many bytes, of a class that awaits its turn first. The I/O is then issued
    /// in any case, and others do not wait for its end: it may wait for a lock that they have.
    pub(crate) fn await_turn(&self, device: &dyn Device, class: IoClass, bytes: u64) {
        assert!(class.awaits_turn_first(), "I/O of {class:?} awaits its turn when it is issued");
        let arrived = device.now();
        let class = QueueClass::new(class, IoKind::Read);
        let turn = self.enter(class, bytes.div_ceil(COST_BYTES));
        if turn.has_waited {
            self.classes[turn.class as usize].count_wait(time_since(device, arrived));
        }
    }

    /// Sets how many of a hundred I/Os are background I/Os while users have theirs: 1 to 50.
    pub(crate) fn set_share(&self, percent: u64) {
        self.share.store(percent, Relaxed);
    }

    /// The counts of all classes.
    pub(crate) fn stats(&self) -> QueueStats {
        QueueStats {
            classes: self.classes.each_ref().map(ClassCounters::stats),
            reads: self.totals[0].stats(),
            writes: self.totals[1].stats(),
        }
    }

    fn enter(&self, class: QueueClass, cost: u64) -> Turn<'_> {
        if !class.is_background() {
            self.started.fetch_add(1, Relaxed);
        }
        let has_waited = match class.limit() {
            Limit::None => {
                self.classes[class as usize].active.fetch_add(1, Relaxed);
                false
            }
            Limit::Users(most) => self.wait_for_room(class, most),
            Limit::Background(most) => self.wait_for_turn(class, most, cost),
        };
        Turn { queue: self, class, has_waited }
    }

    fn leave(&self, class: QueueClass) {
        let counters = &self.classes[class as usize];
        if class.is_background() {
            let state = self.background.lock();
            counters.active.fetch_sub(1, Relaxed);
            drop(state);
            self.changed.notify_all();
            return;
        }
        let before = counters.active.fetch_sub(1, Relaxed);
        assert!(before > 0, "an I/O ends that began");
        self.ended.fetch_add(1, Relaxed);
        if counters.waiting.load(Relaxed) > 0 {
            // whoever looked before now waits, and is woken
            drop(self.room.0.lock());
            self.room.1.notify_all();
        }
        if self.waiting.load(Relaxed) > 0 {
            self.changed.notify_one();
        }
    }

    /// Begins an async I/O while fewer of its class are active than may be; returns whether it had to wait.
    fn wait_for_room(&self, class: QueueClass, most: u32) -> bool {
        let counters = &self.classes[class as usize];
        let begins = || {
            let more = |active| (active < most).then_some(active + 1);
            counters.active.fetch_update(Relaxed, Relaxed, more).is_ok()
        };
        if begins() {
            return false;
        }
        let mut guard = self.room.0.lock();
        counters.waiting.fetch_add(1, Relaxed);
        let mut waits = 0;
        while !begins() {
            if self.room.1.wait_for(&mut guard, self.idle_delay / QUARTERS).timed_out() {
                waits += 1;
            }
            if waits >= ASYNC_DEADLINE * QUARTERS {
                counters.active.fetch_add(1, Relaxed);
                break;
            }
        }
        counters.waiting.fetch_sub(1, Relaxed);
        true
    }

    /// Begins a background I/O when it is its turn; returns whether it had to wait.
    fn wait_for_turn(&self, class: QueueClass, most: u32, cost: u64) -> bool {
        let counters = &self.classes[class as usize];
        let mut state = self.background.lock();
        counters.waiting.fetch_add(1, Relaxed);
        self.waiting.fetch_add(1, Relaxed);
        let (mut waits, mut quiet, mut started) = (0, 0, self.started.load(Relaxed));
        let mut has_waited = false;
        while !self.may_issue(&state, class, most, waits >= BACKGROUND_DEADLINE * QUARTERS) {
            has_waited = true;
            if self.changed.wait_for(&mut state, self.idle_delay / QUARTERS).timed_out() {
                (waits, quiet) = (waits + 1, quiet + 1);
            }
            let now = self.started.load(Relaxed);
            if now != started || self.has_user_io() {
                (started, quiet) = (now, 0);
            }
            if quiet >= QUARTERS {
                state.idle_at = now;
            }
        }
        counters.waiting.fetch_sub(1, Relaxed);
        let active = counters.active.fetch_add(1, Relaxed) + 1;
        assert!(active <= most, "a leaf has no more I/Os of a class than it may");
        self.waiting.fetch_sub(1, Relaxed);
        (state.issued_at, state.cost) = (self.ended.load(Relaxed), cost);
        has_waited
    }

    fn has_user_io(&self) -> bool {
        self.started.load(Relaxed) != self.ended.load(Relaxed)
    }

    fn may_issue(
        &self,
        state: &BackgroundState,
        class: QueueClass,
        most: u32,
        is_overdue: bool,
    ) -> bool {
        let is_idle = state.idle_at == self.started.load(Relaxed);
        let active = |class: QueueClass| self.classes[class as usize].active.load(Relaxed);
        if is_idle {
            return active(class) < most;
        }
        let mut background = QueueClass::ALL.into_iter().filter(|class| class.is_background());
        let is_alone = background.all(|class| active(class) == 0);
        let served = self.ended.load(Relaxed).minus_or_zero(state.issued_at);
        let share = self.share.load(Relaxed);
        let due = 100_u64.minus_or_zero(share).checked_mul(state.cost);
        let is_due =
            served.checked_mul(share).is_none_or(|served| due.is_some_and(|due| served >= due));
        is_alone && (is_due || is_overdue)
    }
}

/// The time since a reading of the device's clock.
fn time_since(device: &dyn Device, earlier: Duration) -> Duration {
    device.now().checked_sub(earlier).unwrap_or_default()
}

impl QueuedIo<'_> {
    /// As how many I/Os of users it counts.
    fn cost(&self) -> u64 {
        match self.kind {
            // the device moves no data
            IoKind::Trim | IoKind::Flush => 1,
            IoKind::Read | IoKind::Write => self.bytes.div_ceil(COST_BYTES),
        }
    }
}

#[cfg(test)]
mod tests;
