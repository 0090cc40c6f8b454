//! The threads that take requests from io_uring, for all mounts of the process.
//!
//! A slot of each processor's queue waits in the ring of one thread, the watch, which handles no
//! request itself and so never blocks one. A slot that gets a request goes to a worker: a new
//! thread bound to the queue's processor. The worker keeps the slot in a ring of its own, so that
//! the next request wakes it at once, on the processor of the calling program. An idle mount uses
//! no thread. One in use has one for each processor from which it is used, and more for concurrent
//! requests.
//!
//! Whenever the last waiting slot of a queue gets a request, another one is registered, until there
//! are many; requests marked as slow do not count.
//!
//! The kernel makes a slot that becomes free take waiting requests, but not a new one. So if all
//! others may be slow, a request of our own (a kick) is sent too, after whose reply the new slot
//! takes them.
//!
//! The kernel gives a slot back only with a request. So the watch kicks queues that have been idle
//! for a while, and a worker that gets a kick returns its slot with the reply to the watch. The
//! kernel chooses the slot with the latest reply: a kick that comes to a slot of the watch is
//! passed on, and answered a moment later, when the next slot has taken the next kick. With many
//! workers, new ones return their slot at once.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::kick::{is_kicker, kick};
use crate::reply::{self, Reply, ReplyBody};
use crate::request::{self, RequestHeader};
use crate::ring::{Event, FuseRing, Payload, RingEntry};
use crate::session::{DataTarget, Lane, ReplyData, Session};

/// Slots of a queue of one mount that may be busy at a time.
const MAX_SLOTS: usize = 16;
/// Workers that keep their slot.
const MAX_WORKERS: usize = 64;
/// How often the watch looks for idle queues. If kicks do not reach the workers, because
/// the folder shows another mount, it waits twice as long each time, up to this many times.
const SWEEP: Duration = Duration::from_secs(3);
const MAX_SKIPPED_SWEEPS: u32 = 256;
/// The delay of a kick that is passed on.
const HOLD: Duration = Duration::from_millis(20);
/// How long to wait before something is tried again for which the system has no means at the moment.
const RETRY: Duration = Duration::from_millis(50);
/// Requests that the watch submits at once.
const ENTRIES: u32 = 256;

static WATCH: OnceLock<Watch> = OnceLock::new();

/// How many workers keep a slot.
static WORKERS: AtomicUsize = AtomicUsize::new(0);

/// The slots of one queue of a session.
#[derive(Default)]
pub(crate) struct RingQueue(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    slots: usize,
    /// Of those, how many wait for a request.
    waiting: usize,
    /// And how many have one that may take long.
    slow: usize,
    /// Workers that keep a slot.
    workers: usize,
    /// Of those, how many wait for a request.
    parked: usize,
    /// Only kicks came since the last sweep of the watch.
    is_quiet: bool,
}

impl Counts {
    /// Counts one more slot if none waits and there are few.
    fn grow(&mut self) -> bool {
        let grows = self.waiting == 0 && self.slots < MAX_SLOTS + self.slow;
        if grows {
            self.slots += 1;
            self.waiting += 1;
        }
        grows
    }
}

impl RingQueue {
    fn has_slow(&self) -> bool {
        self.0.lock().slow > 0
    }

    /// Whether there are workers that are to give their slots back.
    fn has_idlers(&self) -> bool {
        let counts = self.0.lock();
        counts.parked > 0 && counts.is_quiet
    }

    /// A worker begins to wait for a request.
    fn park(&self) {
        self.0.lock().parked += 1;
    }

    /// A worker got a request; returns whether it is to give its slot back.
    fn wake(&self, is_kick: bool) -> bool {
        let mut counts = self.0.lock();
        counts.parked -= 1;
        counts.is_quiet &= is_kick;
        counts.is_quiet
    }

    /// The slot could not be made that was counted.
    fn shrink(&self) {
        let mut counts = self.0.lock();
        counts.slots -= 1;
        counts.waiting -= 1;
    }
}

/// A message to the watch about a slot.
enum Job {
    /// It is new.
    Register(RingEntry),
    /// It has a reply.
    Response(RingEntry),
}

/// The thread that holds the slots that no worker keeps.
pub(crate) struct Watch {
    jobs: Mutex<Vec<Job>>,
    wake: OwnedFd,
    /// Queues with workers, some of which may have ended.
    busy: Mutex<Vec<BusyQueue>>,
}

/// A queue that has workers, as the watch knows it.
struct BusyQueue {
    session: Weak<Session>,
    number: u16,
    /// For how many sweeps it is left alone, and how many of those are left.
    skips: (u32, u32),
}

impl BusyQueue {
    /// Kicks the queue if it was idle since the last sweep; returns whether it has workers.
    fn sweep(&mut self) -> bool {
        let Some(session) = self.session.upgrade() else { return false };
        let Some(queue) = session.queue(self.number) else { return false };
        let mut counts = queue.0.lock();
        let (is_quiet, rests) = (counts.is_quiet, counts.parked > 0);
        let has_workers = counts.workers > 0;
        counts.is_quiet = true;
        drop(counts);
        if !is_quiet {
            self.skips = (0, 0);
        } else if self.skips.1 > 0 {
            self.skips.1 -= 1;
        } else if rests {
            let skips = (2 * self.skips.0 + 1).min(MAX_SKIPPED_SWEEPS);
            self.skips = (skips, skips);
            kick(&session, self.number);
        }
        end_elsewhere(session);
        has_workers
    }
}

impl Watch {
    /// That of this process, which is started if needed; an error: the kernel has no rings.
    pub(crate) fn of_process() -> io::Result<&'static Self> {
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock();
        if let Some(watch) = WATCH.get() {
            return Ok(watch);
        }
        FuseRing::new(1)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let thread = std::thread::Builder::new().name("fuse rings".to_owned());
        thread.spawn(|| WATCH.wait().run())?;
        Ok(WATCH.get_or_init(|| Self { jobs: Mutex::default(), wake, busy: Mutex::default() }))
    }

    /// Makes the first slots of a session known to the kernel.
    pub(crate) fn register(&self, slots: impl Iterator<Item = RingEntry>) {
        let counted = slots.inspect(|slot| {
            if let Some(queue) = slot.session.queue(slot.qid) {
                queue.0.lock().grow();
            }
        });
        let jobs: Vec<Job> = counted.map(Job::Register).collect();
        self.send_jobs(jobs);
    }

    /// Commits a slot's reply, and makes it wait for the next request.
    fn answer(&self, slot: RingEntry) {
        self.send_jobs([Job::Response(slot)]);
    }

    fn send_jobs(&self, jobs: impl IntoIterator<Item = Job>) {
        self.jobs.lock().extend(jobs);
        // it fails only where the watch is to be woken already
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn run(&'static self) {
        let mut ring = loop {
            match FuseRing::new(ENTRIES) {
                Ok(ring) => break ring,
                Err(_) => std::thread::sleep(RETRY),
            }
        };
        let (mut is_polled, mut swept) = (false, Instant::now());
        let mut unstarted = Vec::new();
        loop {
            is_polled = is_polled || ring.wake_by(&self.wake).is_ok();
            for job in std::mem::take(&mut *self.jobs.lock()) {
                do_job(&mut ring, job);
            }
            unstarted = unstarted.into_iter().filter_map(|slot| start_worker(self, slot)).collect();
            let is_busy = self.sweep(&mut swept);
            let timeout = if unstarted.is_empty() && is_polled { is_busy } else { Some(RETRY) };
            match ring.next(timeout) {
                Ok(Event::Entry(slot, Ok(()))) => unstarted.extend(start_worker(self, slot)),
                Ok(Event::Entry(slot, Err(_))) => {
                    slot.session.refuse_rings();
                    drop_elsewhere(slot);
                }
                Ok(Event::Woken) => {
                    is_polled = false;
                    let _ = rustix::io::read(&self.wake, &mut [0; 8]);
                }
                Ok(Event::TimedOut) => {}
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }
}

impl Watch {
    /// Looks for idle queues if it is time; returns how long to wait before it is again, if any queue has workers.
    fn sweep(&self, last: &mut Instant) -> Option<Duration> {
        let mut busy = self.busy.lock();
        if busy.is_empty() {
            *last = Instant::now();
            return None;
        }
        if last.elapsed() >= SWEEP {
            *last = Instant::now();
            busy.retain_mut(BusyQueue::sweep);
        }
        Some(SWEEP.saturating_sub(last.elapsed()))
    }
}

/// Handles messages to the watch. If a ring accepts nothing, its slots' sessions end when they are
/// unmounted.
fn do_job(ring: &mut FuseRing, job: Job) {
    match job {
        Job::Register(slot) => {
            let (session, number) = (Arc::clone(&slot.session), slot.qid);
            let is_registered = ring.register_entry(slot).is_ok() && ring.flush().is_ok();
            let has_slow = || session.queue(number).is_some_and(RingQueue::has_slow);
            if is_registered && has_slow() {
                kick(&session, number);
            }
            end_elsewhere(session);
        }
        Job::Response(slot) => {
            let _ = ring.commit_reply(slot);
        }
    }
}

/// Drops a slot. Where it is the last thing that holds its session, another thread ends that: it may take long.
fn drop_elsewhere(slot: RingEntry) {
    let session = Arc::clone(&slot.session);
    drop(slot);
    end_elsewhere(session);
}

fn end_elsewhere(session: Arc<Session>) {
    if let Some(last) = Arc::into_inner(session) {
        let thread = std::thread::Builder::new().name("fuse end".to_owned());
        let _ = thread.spawn(move || drop(last));
    }
}

/// Starts a worker for a slot that has a request; returns the slot if no thread can be started.
fn start_worker(watch: &'static Watch, slot: RingEntry) -> Option<RingEntry> {
    let name = format!("fuse ring {}", slot.qid);
    let handed = Arc::new(Mutex::new(Some(slot)));
    let taken = Arc::clone(&handed);
    let work = move || {
        if let Some(slot) = taken.lock().take() {
            work(watch, slot);
        }
    };
    match std::thread::Builder::new().name(name).spawn(work) {
        Ok(_) => None,
        Err(_) => handed.lock().take(),
    }
}

/// A worker that keeps its slot.
struct Keeper<'a>(&'a RingQueue);

impl<'a> Keeper<'a> {
    /// None: there are many.
    fn new(watch: &Watch, session: &'a Arc<Session>, number: u16) -> Option<Self> {
        let queue = session.queue(number)?;
        let more = |count: usize| (count < MAX_WORKERS).then_some(count + 1);
        WORKERS.fetch_update(SeqCst, SeqCst, more).ok()?;
        let mut busy = watch.busy.lock();
        let is_first = {
            let mut counts = queue.0.lock();
            counts.workers += 1;
            counts.is_quiet = false;
            counts.workers == 1
        };
        if is_first {
            let session = Arc::downgrade(session);
            // one that had workers before may be there still
            busy.retain(|queue| queue.number != number || !queue.session.ptr_eq(&session));
            let is_woken = !busy.is_empty();
            busy.push(BusyQueue { session, number, skips: (0, 0) });
            drop(busy);
            if !is_woken {
                watch.send_jobs([]);
            }
        }
        Some(Self(queue))
    }
}

impl Drop for Keeper<'_> {
    fn drop(&mut self) {
        self.0.0.lock().workers -= 1;
        WORKERS.fetch_sub(1, SeqCst);
    }
}

/// Binds the thread to the processor of a queue. Where that is not for us, any will do.
pub(crate) fn pin_to_cpu(queue: u16) {
    let (mut processor, number) = (CpuSet::new(), usize::from(queue));
    if number < CpuSet::MAX_CPU {
        processor.set(number);
        let _ = sched_setaffinity(None, &processor);
    }
}

/// Whether the request in a slot is a kick.
fn is_kick(slot: &mut RingEntry) -> bool {
    let head = RequestHeader::parse(slot.request_parts().0);
    head.is_some_and(|head| head.opcode == request::STATFS && is_kicker(head.pid))
}

/// Handles the request in a slot and the following ones, until a kick.
fn work(watch: &'static Watch, mut slot: RingEntry) {
    let (session, number) = (Arc::clone(&slot.session), slot.qid);
    let Some(queue) = session.queue(number) else { return };
    pin_to_cpu(number);
    let is_kick = is_kick(&mut slot);
    if is_kick && queue.has_idlers() {
        kick(&session, number);
        std::thread::sleep(HOLD);
    }
    let slot = answer(watch, slot);
    let keeper = if is_kick { None } else { Keeper::new(watch, &session, number) };
    let (Some(keeper), Ok(ring)) = (keeper, FuseRing::new(1)) else { return watch.answer(slot) };
    let served = serve(watch, ring, slot, queue);
    drop(keeper);
    let Some(mut slot) = served else { return };
    if queue.has_idlers() {
        kick(&session, number);
    }
    slot.release_pages(slot.reply_length());
    watch.answer(slot);
}

/// Commits the reply in a slot and handles the following requests in a ring; returns the slot with
/// the reply to a kick after which it is to be returned. None: the file system is unmounted.
fn serve(
    watch: &'static Watch,
    mut ring: FuseRing,
    slot: RingEntry,
    queue: &RingQueue,
) -> Option<RingEntry> {
    queue.park();
    ring.commit_reply(slot).ok()?;
    loop {
        match ring.next(None) {
            Ok(Event::Entry(mut slot, Ok(()))) => {
                let gives_back = queue.wake(is_kick(&mut slot));
                let slot = answer(watch, slot);
                if gives_back {
                    return Some(slot);
                }
                queue.park();
                ring.commit_reply(slot).ok()?;
            }
            Ok(Event::Entry(_, Err(_))) => {
                queue.wake(true);
                return None;
            }
            Ok(Event::Woken | Event::TimedOut) => {}
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

/// Handles the request in a slot; the reply is then to be committed.
fn answer(watch: &'static Watch, mut slot: RingEntry) -> RingEntry {
    let session = Arc::clone(&slot.session);
    let Some(request) = RingRequest::begin(watch, &session, slot.qid) else { return slot };
    let (head, body, memory, length) = slot.request_parts();
    let Some(head) = RequestHeader::parse(head) else { return slot };
    let (rest, room) = memory.split_at_mut(length);
    let mut out = ReplyData(DataTarget::RingEntry { buffer: room, used: 0 });
    let told = session.handle_ring_request(&request, &head, (body, rest), &mut out);
    let given = if let DataTarget::RingEntry { used, .. } = out.0 { used } else { 0 };
    let memory = slot.payload();
    let (error, told) = match told {
        Ok(Reply(ReplyBody::Sent)) => {
            memory.copy_within(length..length + given, 0);
            (0, given)
        }
        Ok(Reply(ReplyBody::Bytes(bytes))) => match memory.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(&bytes);
                (0, bytes.len())
            }
            None => (-Errno::RANGE.raw_os_error(), 0),
        },
        Err(why) => (-why.raw_os_error(), 0),
    };
    slot.set_reply(&reply::encode_header(head.unique, error, told), told);
    slot
}

/// A request that came by a ring, while it is handled.
struct RingRequest<'a> {
    watch: &'static Watch,
    session: &'a Arc<Session>,
    number: u16,
    queue: &'a RingQueue,
}

impl<'a> RingRequest<'a> {
    fn begin(watch: &'static Watch, session: &'a Arc<Session>, number: u16) -> Option<Self> {
        let queue = session.queue(number)?;
        let request = Self { watch, session, number, queue };
        let grows = {
            let mut counts = queue.0.lock();
            counts.waiting -= 1;
            counts.grow()
        };
        if grows {
            request.add_slot();
        }
        Some(request)
    }

    /// Has the slot made that was counted.
    fn add_slot(&self) {
        match Payload::new() {
            Ok(payload) => {
                let slot = RingEntry::new(Arc::clone(self.session), self.number, payload);
                self.watch.send_jobs([Job::Register(slot)]);
            }
            // without it, the existing slots serve the queue
            Err(_) => self.queue.shrink(),
        }
    }
}

impl Lane for RingRequest<'_> {
    fn pause(&self) {
        let grows = {
            let mut counts = self.queue.0.lock();
            counts.slow += 1;
            counts.grow()
        };
        if grows {
            self.add_slot();
        } else {
            kick(self.session, self.number);
        }
    }

    fn resume(&self) {
        self.queue.0.lock().slow -= 1;
    }
}

impl Drop for RingRequest<'_> {
    fn drop(&mut self) {
        let mut counts = self.queue.0.lock();
        if std::thread::panicking() {
            // its slot goes with the thread
            counts.slots -= 1;
        } else {
            counts.waiting += 1;
        }
    }
}
