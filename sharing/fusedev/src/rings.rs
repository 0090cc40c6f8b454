//! The threads that take requests from io_uring, for all mounts of the process.
//!
//! A slot of each processor's queue waits in the ring of one thread, the watch, which answers nothing itself and so
//! never keeps anybody waiting. A slot to which a request comes goes to a worker: a new thread bound to the queue's
//! processor, which keeps the slot in a ring of its own, so that the next request wakes it at once, on the processor
//! of the program that asks. A mount at rest takes no thread; one in use takes one for each processor from which
//! it is used, and more where several requests are answered at a time.
//!
//! Whenever the last waiting slot of a queue gets a request, another one is registered, until there are many;
//! requests that say that they may take long do not count.
//!
//! The kernel has a slot that becomes free look for requests that wait, but not one that is new: so where all
//! others may take long, a request of our own is sent along (a kick), after whose answer it looks.
//!
//! The kernel gives a slot back only with a request. So a worker that has been idle for a while kicks its queue, and
//! gives the slot with its answer to the watch. The kernel chooses the slot that was answered last: a kick that comes
//! to a slot of the watch is passed on, and answered a moment later, when the next slot has taken the next kick.
//! Where there are many workers, new ones give their slot back at once.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::answer::{self, Answer, Told};
use crate::ask::{self, Head};
use crate::ring::{Event, Payload, Ring, Slot};
use crate::session::{Lane, Out, Session, Way};

/// Slots of a queue of one mount that may be answered at a time.
const MOST_SLOTS: usize = 16;
/// Workers that keep their slot.
const MOST_WORKERS: usize = 64;
/// How long a worker keeps an idle slot. Where the kernel gives it none of the requests that are sent for it, it waits
/// twice as long each time.
const IDLE: Duration = Duration::from_secs(5);
const LONGEST_IDLE: Duration = Duration::from_mins(10);
/// How long a kick is held that is passed on.
const HOLD: Duration = Duration::from_millis(20);
/// How long to wait before something is tried again for which the system has no means at the moment.
const RETRY: Duration = Duration::from_millis(50);
/// Requests that the watch submits at once.
const ENTRIES: u32 = 256;

static WATCH: OnceLock<Watch> = OnceLock::new();

/// The threads that kick a queue at the moment.
static KICKERS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

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
    /// Workers that would give their slot back.
    givers: usize,
}

impl Counts {
    /// Counts one more slot if none waits and there are few.
    fn grow(&mut self) -> bool {
        let grows = self.waiting == 0 && self.slots < MOST_SLOTS + self.slow;
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

    fn has_givers(&self) -> bool {
        self.0.lock().givers > 0
    }

    /// The slot could not be made that was counted.
    fn shrink(&self) {
        let mut counts = self.0.lock();
        counts.slots -= 1;
        counts.waiting -= 1;
    }
}

/// What the watch is to do with a slot.
enum Job {
    /// It is new.
    Register(Slot),
    /// It has an answer.
    Answer(Slot),
}

/// The thread that holds the slots that no worker keeps.
pub(crate) struct Watch {
    jobs: Mutex<Vec<Job>>,
    wake: OwnedFd,
}

impl Watch {
    /// That of this process, which is started if need be; an error: there are no rings here.
    pub(crate) fn of_process() -> io::Result<&'static Self> {
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock();
        if let Some(watch) = WATCH.get() {
            return Ok(watch);
        }
        Ring::new(1)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let thread = std::thread::Builder::new().name("fuse rings".to_owned());
        thread.spawn(|| WATCH.wait().run())?;
        Ok(WATCH.get_or_init(|| Self { jobs: Mutex::default(), wake }))
    }

    /// Makes the first slots of a session known to the kernel.
    pub(crate) fn register(&self, slots: impl Iterator<Item = Slot>) {
        let counted = slots.inspect(|slot| {
            if let Some(queue) = slot.session.queue(slot.queue) {
                queue.0.lock().grow();
            }
        });
        let jobs: Vec<Job> = counted.map(Job::Register).collect();
        self.give(jobs);
    }

    /// Gives a slot's answer, and has it wait for the next request.
    fn answer(&self, slot: Slot) {
        self.give([Job::Answer(slot)]);
    }

    fn give(&self, jobs: impl IntoIterator<Item = Job>) {
        self.jobs.lock().extend(jobs);
        // it fails only where the watch is to be woken already
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn run(&'static self) {
        let mut ring = loop {
            match Ring::new(ENTRIES) {
                Ok(ring) => break ring,
                Err(_) => std::thread::sleep(RETRY),
            }
        };
        let mut is_polled = false;
        let mut unstarted = Vec::new();
        loop {
            is_polled = is_polled || ring.wake_by(&self.wake).is_ok();
            for job in std::mem::take(&mut *self.jobs.lock()) {
                do_job(&mut ring, job);
            }
            unstarted = unstarted.into_iter().filter_map(|slot| start_worker(self, slot)).collect();
            let timeout = (!unstarted.is_empty() || !is_polled).then_some(RETRY);
            match ring.next(timeout) {
                Ok(Event::Slot(slot, Ok(()))) => unstarted.extend(start_worker(self, slot)),
                Ok(Event::Slot(slot, Err(_))) => {
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

/// Does what the watch is told. Where a ring takes nothing, its slots' sessions end when they are unmounted.
fn do_job(ring: &mut Ring, job: Job) {
    match job {
        Job::Register(slot) => {
            let (session, number) = (Arc::clone(&slot.session), slot.queue);
            let is_registered = ring.register(slot).is_ok() && ring.flush().is_ok();
            let has_slow = || session.queue(number).is_some_and(RingQueue::has_slow);
            if is_registered && has_slow() {
                kick(&session, number);
            }
            end_elsewhere(session);
        }
        Job::Answer(slot) => {
            let _ = ring.answer(slot);
        }
    }
}

/// Drops a slot. Where it is the last thing that holds its session, another thread ends that: it may take long.
fn drop_elsewhere(slot: Slot) {
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

/// Starts a worker for a slot that has a request; gives the slot back if there is no thread to be had.
fn start_worker(watch: &'static Watch, slot: Slot) -> Option<Slot> {
    let name = format!("fuse ring {}", slot.queue);
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

/// The place of a worker that keeps its slot.
struct Place;

impl Place {
    /// None: there are many.
    fn take() -> Option<Self> {
        let more = |count: usize| (count < MOST_WORKERS).then_some(count + 1);
        WORKERS.fetch_update(SeqCst, SeqCst, more).ok().map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        WORKERS.fetch_sub(1, SeqCst);
    }
}

/// Binds the thread to the processor of a queue. Where that is not for us, any will do.
pub(crate) fn stay_on(queue: u16) {
    let (mut processor, number) = (CpuSet::new(), usize::from(queue));
    if number < CpuSet::MAX_CPU {
        processor.set(number);
        let _ = sched_setaffinity(None, &processor);
    }
}

/// Has a request sent by a queue: a slot of it then looks for requests that wait there.
fn kick(session: &Session, queue: u16) {
    let dir = session.dir().to_owned();
    let ask = move || {
        stay_on(queue);
        let myself = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        KICKERS.lock().push(myself);
        // whatever the answer is
        let _ = rustix::fs::statfs(&dir);
        KICKERS.lock().retain(|thread| *thread != myself);
    };
    let _ = std::thread::Builder::new().name("fuse kick".to_owned()).spawn(ask);
}

/// Whether the request in a slot is a kick.
fn is_kick(slot: &mut Slot) -> bool {
    let head = Head::read(slot.question().0);
    head.is_some_and(|head| head.code == ask::STATFS && KICKERS.lock().contains(&head.pid))
}

/// A worker that would give its slot back, of which its queue knows.
struct Giver<'a>(&'a RingQueue);

impl<'a> Giver<'a> {
    fn new(queue: &'a RingQueue) -> Self {
        queue.0.lock().givers += 1;
        Self(queue)
    }
}

impl Drop for Giver<'_> {
    fn drop(&mut self) {
        self.0.0.lock().givers -= 1;
    }
}

/// Answers the request in a slot and those that follow, as long as they do.
fn work(watch: &'static Watch, mut slot: Slot) {
    let (session, number) = (Arc::clone(&slot.session), slot.queue);
    let Some(queue) = session.queue(number) else { return };
    stay_on(number);
    let is_kick = is_kick(&mut slot);
    if is_kick && queue.has_givers() {
        kick(&session, number);
        std::thread::sleep(HOLD);
    }
    let slot = answer(watch, slot);
    let place = if is_kick { None } else { Place::take() };
    let (Some(_place), Ok(ring)) = (place, Ring::new(1)) else { return watch.answer(slot) };
    let Some(mut slot) = serve(watch, ring, slot, queue) else { return };
    slot.release_pages(slot.answer_length());
    watch.answer(slot);
}

/// Gives the answer in a slot and takes the requests that follow in a ring; returns the slot with the answer to the
/// last one when there were none for a while. None: nothing is mounted any more.
fn serve(watch: &'static Watch, mut ring: Ring, slot: Slot, queue: &RingQueue) -> Option<Slot> {
    let (session, number) = (Arc::clone(&slot.session), slot.queue);
    let (mut idle, mut giver, mut last) = (IDLE, None, Instant::now());
    ring.answer(slot).ok()?;
    loop {
        match ring.next(Some(idle)) {
            Ok(Event::Slot(mut slot, Ok(()))) => {
                // a kick that another worker sent does as well
                let is_kick = is_kick(&mut slot);
                let gives_back = giver.take().is_some() || is_kick && last.elapsed() > IDLE / 2;
                if is_kick && queue.has_givers() {
                    kick(&session, number);
                }
                let slot = answer(watch, slot);
                if gives_back {
                    return Some(slot);
                }
                ring.answer(slot).ok()?;
                if !is_kick {
                    (idle, last) = (IDLE, Instant::now());
                }
            }
            Ok(Event::TimedOut) => {
                idle = LONGEST_IDLE.min(if giver.is_some() { idle * 2 } else { idle });
                giver.get_or_insert_with(|| Giver::new(queue));
                kick(&session, number);
            }
            Ok(Event::Slot(_, Err(_))) => return None,
            Ok(Event::Woken) => {}
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

/// Answers the request in a slot; the kernel is to be given the answer.
fn answer(watch: &'static Watch, mut slot: Slot) -> Slot {
    let session = Arc::clone(&slot.session);
    let Some(request) = RingRequest::begin(watch, &session, slot.queue) else { return slot };
    let (head, body, memory, length) = slot.question();
    let Some(head) = Head::read(head) else { return slot };
    let (rest, room) = memory.split_at_mut(length);
    let mut out = Out(Way::Slot { room, used: 0 });
    let told = session.answer(&request, &head, (body, rest), &mut out);
    let given = if let Way::Slot { used, .. } = out.0 { used } else { 0 };
    let memory = slot.payload();
    let (error, told) = match told {
        Ok(Answer(Told::Given)) => {
            memory.copy_within(length..length + given, 0);
            (0, given)
        }
        Ok(Answer(Told::Bytes(bytes))) => match memory.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(&bytes);
                (0, bytes.len())
            }
            None => (-Errno::RANGE.raw_os_error(), 0),
        },
        Err(why) => (-why.raw_os_error(), 0),
    };
    slot.answer(&answer::head(head.unique, error, told), told);
    slot
}

/// A request that came by a ring, while it is answered.
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
                let slot = Slot::new(Arc::clone(self.session), self.number, payload);
                self.watch.give([Job::Register(slot)]);
            }
            // without it, the slots there are answer
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
