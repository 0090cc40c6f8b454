//! The queue of a leaf: I/O of users and of the txg sync goes before that of scans and other long work.
//!
//! ```text
//! foreground   reads and writes of users, the txg sync       never waits here
//! background   scan (scrub, resilver), removal, initialize   waits for its turn
//! ```
//!
//! While a leaf serves foreground I/O, one background I/O at a time is issued: when its share is due, or when it has
//! waited for a tenth of a second. With a share of 25 percent that is after three foreground I/Os. A leaf without
//! foreground I/O for [`IDLE_DELAY`] issues as much background I/O as its class allows, until users are back.
//!
//! A thread says the class of its I/O with [`with_class`]; without that it is foreground.
//!
//! Learnt from: `vdev_queue.c` of OpenZFS 2.3.2. Its scans have three I/Os at a leaf, which it merges; ours are
//! single blocks, and so more of them. Proved by: the tests below.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use units::MinusOrZero as _;

/// Background I/Os among a hundred of a busy leaf, unless it is set otherwise.
pub const DEFAULT_BACKGROUND_SHARE: u64 = 25;
/// A leaf without foreground I/O for so long is idle.
const IDLE_DELAY: Duration = Duration::from_millis(5);
/// A waiting background I/O looks so many times in an idle delay whether it is its turn.
const QUARTERS: u32 = 4;
/// A background I/O waits for so many idle delays at most.
const DEADLINE: u32 = 20;

/// The class of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoClass {
    /// Of users and of the txg sync.
    #[default]
    Foreground,
    /// Of scrubs and resilvers.
    Scan,
    /// Of the removal of a vdev.
    Removal,
    /// Of writing free space.
    Initialize,
}

/// Classes of background I/O.
const BACKGROUND: usize = 3;

impl IoClass {
    /// The index of a background class.
    const fn background(self) -> Option<usize> {
        match self {
            Self::Foreground => None,
            Self::Scan => Some(0),
            Self::Removal => Some(1),
            Self::Initialize => Some(2),
        }
    }
}

/// I/Os of a background class that an idle leaf issues at once, by class.
const MAX_ACTIVE: [u32; BACKGROUND] = [10, 2, 1];

thread_local! {
    static CLASS: Cell<IoClass> = const { Cell::new(IoClass::Foreground) };
}

/// Does something, and counts the I/O of this thread as of that class meanwhile.
pub fn with_class<R>(class: IoClass, work: impl FnOnce() -> R) -> R {
    struct Restore(IoClass);
    impl Drop for Restore {
        fn drop(&mut self) {
            CLASS.set(self.0);
        }
    }
    let _restore = Restore(CLASS.replace(class));
    work()
}

/// I/Os of a class at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClassCounts {
    /// Those that wait for their turn.
    pub waiting: u32,
    /// Those that the device has.
    pub active: u32,
}

/// The queue of a leaf.
#[derive(Debug)]
pub(crate) struct LeafQueue {
    /// Foreground I/Os that began.
    started: AtomicU64,
    /// Foreground I/Os that ended.
    ended: AtomicU64,
    background: Mutex<BackgroundState>,
    /// Background I/Os that wait.
    waiting: AtomicU32,
    changed: Condvar,
    idle_delay: Duration,
    /// Background I/Os among a hundred while users have theirs.
    share: AtomicU64,
}

#[derive(Debug, Default)]
struct BackgroundState {
    classes: [ClassCounts; BACKGROUND],
    /// The leaf was idle when so many foreground I/Os had begun.
    idle_at: u64,
    /// Foreground I/Os that had ended when the last background I/O was issued.
    issued_at: u64,
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
            background: Mutex::default(),
            waiting: AtomicU32::new(0),
            changed: Condvar::new(),
            idle_delay,
            share: AtomicU64::new(DEFAULT_BACKGROUND_SHARE),
        }
    }

    /// Does an I/O of the thread's class, when it is its turn.
    pub(crate) fn run<R>(&self, io: impl FnOnce() -> R) -> R {
        let Some(class) = CLASS.get().background() else {
            self.started.fetch_add(1, Relaxed);
            let result = io();
            self.ended.fetch_add(1, Relaxed);
            if self.waiting.load(Relaxed) > 0 {
                self.changed.notify_one();
            }
            return result;
        };
        self.wait_for_turn(class);
        let result = io();
        self.background.lock().classes[class].active -= 1;
        self.changed.notify_all();
        result
    }

    /// Sets how many of a hundred I/Os are background I/Os while users have theirs: 1 to 50.
    pub(crate) fn set_share(&self, percent: u64) {
        self.share.store(percent, Relaxed);
    }

    /// I/Os of each background class: scan, removal, initialize.
    pub(crate) fn counts(&self) -> [ClassCounts; BACKGROUND] {
        self.background.lock().classes
    }

    fn wait_for_turn(&self, class: usize) {
        let mut state = self.background.lock();
        state.classes[class].waiting += 1;
        self.waiting.fetch_add(1, Relaxed);
        let (mut waits, mut quiet, mut started) = (0, 0, self.started.load(Relaxed));
        while !self.may_issue(&state, class, waits >= DEADLINE * QUARTERS) {
            if self.changed.wait_for(&mut state, self.idle_delay / QUARTERS).timed_out() {
                (waits, quiet) = (waits + 1, quiet + 1);
            }
            let now = self.started.load(Relaxed);
            if now != started || self.has_foreground() {
                (started, quiet) = (now, 0);
            }
            if quiet >= QUARTERS {
                state.idle_at = now;
            }
        }
        let counts = &mut state.classes[class];
        counts.waiting -= 1;
        counts.active += 1;
        assert!(
            counts.active <= MAX_ACTIVE[class],
            "a leaf has no more I/Os of a class than it may"
        );
        let waiting = self.waiting.fetch_sub(1, Relaxed);
        assert!(waiting > 0, "an I/O of class {class} waited before its turn");
        state.issued_at = self.ended.load(Relaxed);
    }

    fn has_foreground(&self) -> bool {
        self.started.load(Relaxed) != self.ended.load(Relaxed)
    }

    fn may_issue(&self, state: &BackgroundState, class: usize, is_overdue: bool) -> bool {
        let is_idle = state.idle_at == self.started.load(Relaxed);
        if is_idle {
            return state.classes[class].active < MAX_ACTIVE[class];
        }
        let is_alone = state.classes.iter().all(|counts| counts.active == 0);
        let served = self.ended.load(Relaxed).minus_or_zero(state.issued_at);
        let share = self.share.load(Relaxed);
        let is_due = served.checked_mul(share).is_none_or(|due| due + share >= 100);
        is_alone && (is_due || is_overdue)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A drive that serves one I/O at a time, each as long as the other.
    struct SimulatedDrive {
        queue: LeafQueue,
        arm: Mutex<Served>,
        is_stopped: AtomicBool,
    }

    #[derive(Clone, Copy, Default)]
    struct Served {
        users: u64,
        scans: u64,
    }

    const SERVED: u64 = 400;

    impl SimulatedDrive {
        fn new() -> Arc<Self> {
            // a busy machine may hold a thread up for long, which must not make the drive idle
            let queue = LeafQueue::new(Duration::from_secs(20));
            let (arm, is_stopped) = (Mutex::default(), AtomicBool::new(false));
            Arc::new(Self { queue, arm, is_stopped })
        }

        fn serve(&self, class: IoClass) {
            with_class(class, || {
                self.queue.run(|| {
                    let mut arm = self.arm.lock();
                    std::thread::sleep(Duration::from_micros(100));
                    match class {
                        IoClass::Foreground => arm.users += 1,
                        _ => arm.scans += 1,
                    }
                    if arm.users + arm.scans >= SERVED {
                        self.is_stopped.store(true, Relaxed);
                    }
                });
            });
        }
    }

    #[test]
    fn users_keep_seventy_percent_of_a_busy_leaf() {
        let Served { users, scans } = serve_both(DEFAULT_BACKGROUND_SHARE);
        assert!(users * 10 >= (users + scans) * 7, "{users} of users, {scans} of scans");
        assert!(scans * 10 >= users, "the scan goes on: {scans} beside {users}");
    }

    #[test]
    fn share_of_scans_can_be_set() {
        let Served { users, scans } = serve_both(50);
        assert!(scans * 100 >= (users + scans) * 30, "{users} of users, {scans} of scans");
        let Served { users, scans } = serve_both(5);
        assert!(users * 100 >= (users + scans) * 90, "{users} of users, {scans} of scans");
        assert!(scans > 0);
    }

    /// A user and three threads of a scan have a drive busy.
    fn serve_both(share: u64) -> Served {
        let drive = SimulatedDrive::new();
        drive.queue.set_share(share);
        drive.serve(IoClass::Foreground);
        std::thread::scope(|scope| {
            for class in [IoClass::Foreground, IoClass::Scan, IoClass::Scan, IoClass::Scan] {
                let drive = Arc::clone(&drive);
                scope.spawn(move || {
                    while !drive.is_stopped.load(Relaxed) {
                        drive.serve(class);
                    }
                    // those that still wait see that the user has gone
                    drive.queue.background.lock().idle_at = drive.queue.started.load(Relaxed);
                    drive.queue.changed.notify_all();
                });
            }
        });
        *drive.arm.lock()
    }

    #[test]
    fn idle_leaf_serves_scans_at_once() {
        let queue = LeafQueue::default();
        with_class(IoClass::Scan, || queue.run(|| {}));
        queue.run(|| assert_eq!(queue.counts(), [ClassCounts::default(); BACKGROUND]));
        // after the delay it is idle again
        with_class(IoClass::Scan, || {
            queue.run(|| assert_eq!(queue.counts()[0], ClassCounts { waiting: 0, active: 1 }));
        });
        assert!(queue.background.lock().idle_at == queue.started.load(Relaxed));
    }

    #[test]
    fn overdue_scan_is_served_beside_a_stuck_request() {
        let queue = LeafQueue::new(Duration::from_millis(1));
        queue.run(|| with_class(IoClass::Scan, || queue.run(|| {})));
        assert_eq!(queue.counts(), [ClassCounts::default(); BACKGROUND]);
    }
}
