//! The queue before a simulated drive, which serves one I/O at a time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use device::MemoryDevice;

use super::*;

/// A drive that serves one I/O at a time, each as long as the other.
struct SimulatedDrive {
    queue: LeafQueue,
    device: MemoryDevice,
    arm: Mutex<Served>,
    is_stopped: AtomicBool,
}

#[derive(Clone, Copy, Default)]
struct Served {
    users: u64,
    others: u64,
}

const SERVED: u64 = 400;

impl SimulatedDrive {
    fn new() -> Arc<Self> {
        // a busy machine may hold a thread up for long, which must not make the drive idle
        let queue = LeafQueue::new(Duration::from_secs(20));
        let device = MemoryDevice::new("drive", &[0; 512]);
        let (arm, is_stopped) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { queue, device, arm, is_stopped })
    }

    fn serve(&self, class: IoClass, kind: IoKind, bytes: u64) {
        let serve = || {
            let mut arm = self.arm.lock();
            std::thread::sleep(Duration::from_micros(100));
            if QueueClass::new(class, kind).is_background() {
                arm.others += 1;
            } else {
                arm.users += 1;
            }
            if arm.users + arm.others >= SERVED {
                self.is_stopped.store(true, Relaxed);
            }
        };
        if class.awaits_turn_first() {
            self.queue.await_turn(&self.device, class, bytes);
            serve();
            return;
        }
        with_class(class, || self.queue.run(QueuedIo { device: &self.device, kind, bytes }, serve));
    }

    /// Lets a thread whose turn it is come to it: on a busy machine it may be long in waking up.
    fn let_others_begin(&self, class: QueueClass) {
        let Limit::Background(most) = class.limit() else { return };
        let is_due = || {
            let state = self.queue.background.lock();
            self.queue.waiting.load(Relaxed) > 0 && self.queue.may_issue(&state, class, most, false)
        };
        while is_due() && !self.is_stopped.load(Relaxed) {
            self.queue.changed.notify_all();
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn run(&self, class: IoClass, kind: IoKind, work: impl FnOnce()) {
        let io = QueuedIo { device: &self.device, kind, bytes: 512 };
        with_class(class, || self.queue.run(io, work));
    }

    fn active(&self, class: QueueClass) -> u32 {
        self.queue.stats().classes[class as usize].active
    }
}

/// A user and three threads of other work have a drive busy.
fn serve_both(share: u64, (class, kind, bytes): (IoClass, IoKind, u64)) -> Served {
    let drive = SimulatedDrive::new();
    drive.queue.set_share(share);
    drive.serve(IoClass::User, IoKind::Read, 512);
    let user = (IoClass::User, IoKind::Read, 512);
    let other = (class, kind, bytes);
    std::thread::scope(|scope| {
        for (class, kind, bytes) in [user, other, other, other] {
            let drive = Arc::clone(&drive);
            scope.spawn(move || {
                while !drive.is_stopped.load(Relaxed) {
                    drive.serve(class, kind, bytes);
                    if class == IoClass::User && kind == IoKind::Read {
                        drive.let_others_begin(QueueClass::new(other.0, other.1));
                    }
                }
                // those that still wait see that the user has gone
                drive.queue.background.lock().idle_at = drive.queue.started.load(Relaxed);
                drive.queue.changed.notify_all();
            });
        }
    });
    *drive.arm.lock()
}

const BACKGROUND: [(IoClass, IoKind); 6] = [
    (IoClass::Scan, IoKind::Read),
    (IoClass::Rebuild, IoKind::Write),
    (IoClass::Removal, IoKind::Read),
    (IoClass::Expansion, IoKind::Write),
    (IoClass::Initialize, IoKind::Write),
    (IoClass::User, IoKind::Trim),
];

#[test]
fn users_keep_seventy_percent_beside_each_class() {
    for (class, kind) in BACKGROUND {
        let Served { users, others } = serve_both(DEFAULT_BACKGROUND_SHARE, (class, kind, 512));
        let seen = format!("{class:?} {kind:?}: {users} of users, {others} others");
        assert!(users * 10 >= (users + others) * 7, "{seen}");
        // but for the first and the last, one I/O in four
        assert!(others * 100 >= (users + others) * 20, "the work goes on: {seen}");
    }
}

#[test]
fn share_of_background_io_can_be_set() {
    for class in [IoClass::Scan, IoClass::Expansion] {
        let Served { users, others } = serve_both(50, (class, IoKind::Read, 512));
        assert!(others * 100 >= (users + others) * 30, "{users} of users, {others} others");
        let Served { users, others } = serve_both(5, (class, IoKind::Read, 512));
        assert!(users * 100 >= (users + others) * 90, "{users} of users, {others} others");
        assert!(others > 0);
    }
}

#[test]
fn large_background_io_waits_for_more_users() {
    let Served { users, others } = serve_both(25, (IoClass::Scan, IoKind::Read, 512 << 10));
    // each counts as four, and so waits for twelve of users
    assert!(users >= others * 10, "{users} of users, {others} others");
    assert!(others > 0);
}

#[test]
fn idle_leaf_serves_scans_at_once() {
    let drive = SimulatedDrive::new();
    drive.run(IoClass::Scan, IoKind::Read, || {});
    drive.run(IoClass::User, IoKind::Read, || {
        assert_eq!(drive.active(QueueClass::Scan), 0);
        assert_eq!(drive.active(QueueClass::SyncRead), 1);
    });
    let drive = SimulatedDrive { queue: LeafQueue::default(), ..Arc::into_inner(drive).unwrap() };
    drive.run(IoClass::User, IoKind::Read, || {});
    // after the delay it is idle again
    drive.run(IoClass::Scan, IoKind::Read, || assert_eq!(drive.active(QueueClass::Scan), 1));
    assert!(drive.queue.background.lock().idle_at == drive.queue.started.load(Relaxed));
}

#[test]
fn overdue_scan_is_served_beside_stuck_request() {
    let queue = LeafQueue::new(Duration::from_millis(1));
    let drive = SimulatedDrive { queue, ..Arc::into_inner(SimulatedDrive::new()).unwrap() };
    drive.run(IoClass::User, IoKind::Read, || drive.run(IoClass::Scan, IoKind::Read, || {}));
    let stats = drive.queue.stats();
    assert!(stats.classes.iter().all(|class| class.active == 0 && class.waiting == 0));
}

#[test]
fn async_writes_wait_while_ten_are_active() {
    let drive = SimulatedDrive::new();
    let (entered, released) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                drive.run(IoClass::User, IoKind::Write, || {
                    entered.fetch_add(1, Relaxed);
                    while !released.load(Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            });
        }
        let write = QueueClass::AsyncWrite as usize;
        while drive.queue.stats().classes[write].waiting < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!((entered.load(Relaxed), drive.active(QueueClass::AsyncWrite)), (10, 10));
        // reads, and writes for which somebody waits, are served all the same
        drive.run(IoClass::User, IoKind::Read, || {});
        drive.run(IoClass::Sync, IoKind::Write, || {});
        released.store(true, Relaxed);
    });
    let stats = drive.queue.stats();
    let [sync_read, sync_write, _, async_write, ..] = &stats.classes;
    let requests = [sync_read, sync_write, async_write].map(|class| class.requests);
    assert_eq!((requests, async_write.active), ([1, 1, 12], 0));
    assert_eq!((async_write.waits.iter().sum::<u64>(), async_write.sizes[0]), (12, 12));
    assert_eq!(stats.writes.latencies.iter().sum::<u64>(), 13);
}
