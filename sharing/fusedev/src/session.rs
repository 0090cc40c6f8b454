//! What is mounted, and the way of one request through it.
//!
//! A session ends when its file system is unmounted or its connection aborted and the last of its requests is
//! answered: every thread and every slot that still has to do with it holds a reference, and the last one that
//! is dropped ends it. Threads and rings belong to the process (`readers`, `rings`), not to a session.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::answer::Answer;
use crate::ask::{self, Ask, Head};
use crate::device::{self, Message, Received};
use crate::init::{Ability, Offer};
use crate::readers::Readers;
use crate::ring::{Payload, Slot};
use crate::rings::{RingQueue, Watch};

/// Requests of one mount that reader threads answer at a time. Those that say that they may take long do not
/// count; the others wait in the kernel, which costs other mounts nothing.
const MOST_UNDERWAY: usize = 16;
/// Where Linux tells how many processors there can ever be.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Who answers.
pub trait Answers: Send + Sync + 'static {
    /// What is wanted of what the kernel offers.
    fn wishes(&self, offered: Ability) -> Ability;

    /// Answers a question. What is read may be given to `out` piece by piece instead.
    fn answer(&self, asker: &Asker<'_>, ask: Ask<'_>, out: &mut Out<'_>) -> Result<Answer, Errno>;

    /// The kernel knows a node no more. It tells so some time later, when it may have come to know it
    /// again.
    fn forget(&self, _node: u64) {}

    /// Nobody will ask any more.
    fn end(&self) {}
}

impl<T: Answers> Answers for Arc<T> {
    fn wishes(&self, offered: Ability) -> Ability {
        T::wishes(self, offered)
    }

    fn answer(&self, asker: &Asker<'_>, ask: Ask<'_>, out: &mut Out<'_>) -> Result<Answer, Errno> {
        T::answer(self, asker, ask, out)
    }

    fn forget(&self, node: u64) {
        T::forget(self, node);
    }

    fn end(&self) {
        T::end(self);
    }
}

/// Who asks, and of which node.
pub struct Asker<'a> {
    /// The node; 1 is the root.
    pub node: u64,
    /// Who asks.
    pub uid: u32,
    /// And for which group.
    pub gid: u32,
    /// The thread that asks; 0: the kernel itself.
    pub pid: u32,
    lane: &'a dyn Lane,
    is_over: &'a AtomicBool,
}

/// The way by which a request came: other requests take the same.
pub(crate) trait Lane {
    /// The request takes any time from now on: it no longer counts among those that are answered at a time.
    fn pause(&self);
    /// It counts again.
    fn resume(&self);
}

impl Asker<'_> {
    /// Whether nothing is mounted any more, so that nobody hears the answer.
    pub fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    /// Does something that may take any time; others take its place meanwhile.
    pub fn at_leisure<T>(&self, work: impl FnOnce() -> T) -> T {
        self.lane.pause();
        let done = work();
        self.lane.resume();
        done
    }
}

/// Where bytes that were asked for go.
pub struct Out<'a>(pub(crate) Way<'a>);

pub(crate) enum Way<'a> {
    /// To the device, at once.
    Device { device: &'a File, unique: u64 },
    /// To the memory where the kernel looks for them: the room there is, and how much of it is used.
    Slot { room: &'a mut [u8], used: usize },
}

impl Out<'_> {
    /// Has `fill` put bytes into a stretch of at most `length`; so many as it says are the answer.
    pub fn fill<E>(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Answer, E> {
        if let Way::Slot { room, used } = &mut self.0 {
            let length = length.min(room.len());
            let (room, _) = room.split_at_mut(length);
            *used = fill(room)?.min(length);
            return Ok(Answer::given());
        }
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.len() < length {
                scratch.resize(length, 0);
            }
            let (room, _) = scratch.split_at_mut(length);
            let count = fill(room)?;
            Ok(self.give(room.get(..count).unwrap_or_default()))
        })
    }

    /// Gives all bytes at once; what comes after that is lost.
    pub fn give(&mut self, bytes: &[u8]) -> Answer {
        match &mut self.0 {
            Way::Device { device, unique } => device::answer(device, *unique, Ok(bytes)),
            Way::Slot { room, used } => {
                let length = bytes.len().min(room.len());
                if let (Some(to), Some(from)) = (room.get_mut(..length), bytes.get(..length)) {
                    to.copy_from_slice(from);
                }
                *used = length;
            }
        }
        Answer::given()
    }
}

thread_local! {
    /// The touch of fresh pages costs more than the copying.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Frees the memory into which this thread read data.
pub(crate) fn free_scratch() {
    SCRATCH.take();
}

/// The requests of a session that reader threads answer at the moment.
#[derive(Default)]
struct Underway {
    count: usize,
    /// The device is polled, or a thread is about to see to that.
    is_polled: bool,
}

/// A mounted file system.
pub(crate) struct Session {
    answers: Box<dyn Answers>,
    /// What was negotiated with the kernel.
    agreed: Ability,
    /// Where it is mounted.
    dir: PathBuf,
    device: Arc<File>,
    /// What the readers know it by.
    pub(crate) token: u64,
    underway: Mutex<Underway>,
    /// Of each processor; none: requests come by the device only.
    queues: Vec<RingQueue>,
    /// The kernel refused a slot, so requests come by the device.
    is_refused: AtomicBool,
    /// Nothing is mounted any more.
    is_over: AtomicBool,
    /// Dropped last: whoever waits for the end then knows that the answers are dropped, too.
    _ended: Sender<io::Result<()>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.answers.end();
    }
}

/// Has the requests for what is mounted on a folder answered until it is unmounted; `rings`: by io_uring, if that
/// can be had. The receiver is disconnected when the session has ended.
pub fn serve(
    device: Arc<File>,
    dir: &Path,
    answers: Box<dyn Answers>,
    rings: bool,
) -> io::Result<Receiver<io::Result<()>>> {
    static TOKENS: AtomicU64 = AtomicU64::new(1);
    let readers = Readers::of_process()?;
    let prepared = if rings { prepare_rings() } else { None };
    let (sender, ended) = channel();
    let Some(agreed) = negotiate(&device, answers.as_ref(), prepared.is_some())? else {
        return Ok(ended);
    };
    let prepared = prepared.filter(|_| agreed.has(Ability::OVER_IO_URING));
    let queues = prepared.as_ref().map_or(0, |(_, payloads)| payloads.len());
    fcntl_setfl(&device, fcntl_getfl(&device)? | OFlags::NONBLOCK)?;
    let session = Arc::new(Session {
        answers,
        agreed,
        dir: dir.to_owned(),
        device,
        token: TOKENS.fetch_add(1, SeqCst),
        underway: Mutex::new(Underway { count: 0, is_polled: true }),
        queues: (0..queues).map(|_| RingQueue::default()).collect(),
        is_refused: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
        _ended: sender,
    });
    readers.add(&session)?;
    if let Some((watch, payloads)) = prepared {
        let slots = (0_u16..).zip(payloads);
        watch.register(
            slots.map(|(queue, payload)| Slot::new(Arc::clone(&session), queue, payload)),
        );
    }
    Ok(ended)
}

/// The thread that holds slots, and memory for a slot of each processor; none: requests come by the device.
fn prepare_rings() -> Option<(&'static Watch, Vec<Payload>)> {
    let watch = Watch::of_process().ok()?;
    let processors = processors()?;
    let payloads = (0..processors).map(|_| Payload::new()).collect::<io::Result<Vec<_>>>();
    payloads.ok().map(|payloads| (watch, payloads))
}

/// How many processors there can be, if Linux tells.
fn processors() -> Option<u16> {
    let text = std::fs::read_to_string(POSSIBLE).ok()?;
    let last = text.trim().rsplit([',', '-']).next()?.parse::<u16>().ok()?;
    last.checked_add(1)
}

/// Agrees with the kernel what is spoken, and whether by rings; none: it was unmounted before.
fn negotiate(device: &File, answers: &dyn Answers, rings: bool) -> io::Result<Option<Ability>> {
    let mut buffer = device::buffer();
    loop {
        let message = match device::receive(device, &mut buffer, Ability::default())? {
            Received::Message(message) => message,
            Received::Nothing => continue,
            Received::Ended => return Ok(None),
        };
        let unique = message.head.unique;
        if message.head.code != ask::INIT {
            device::answer(device, unique, Err(Errno::IO));
            continue;
        }
        let offer = Offer::read(message.rest).ok_or_else(|| io::Error::other("no version"))?;
        if offer.is_too_old() {
            device::answer(device, unique, Err(Errno::PROTO));
            return Err(io::Error::other("the kernel is older than Linux 5.4"));
        }
        let mut wishes = answers.wishes(offer.abilities);
        if rings {
            wishes = wishes.and(Ability::OVER_IO_URING);
        }
        let agreed = offer.agreed(wishes);
        device::answer(device, unique, Ok(&offer.answer(agreed, rustix::param::page_size())));
        if !offer.is_too_new() {
            return Ok(Some(agreed));
        }
    }
}

impl Session {
    /// The way to the kernel.
    pub(crate) fn device(&self) -> &File {
        &self.device
    }

    /// Where it is mounted.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What was negotiated with the kernel.
    pub(crate) fn agreed(&self) -> Ability {
        self.agreed
    }

    /// The requests of a processor.
    pub(crate) fn queue(&self, number: u16) -> Option<&RingQueue> {
        self.queues.get(usize::from(number))
    }

    /// Whether requests come by rings.
    pub(crate) fn has_rings(&self) -> bool {
        !self.queues.is_empty() && !self.is_refused.load(SeqCst)
    }

    /// The kernel has no use for a slot: it then sends requests by the device, or nothing is mounted any more.
    pub(crate) fn refuse_rings(&self) {
        self.is_refused.store(true, SeqCst);
    }

    /// Nothing is mounted any more: requests that wait for something need not.
    pub(crate) fn set_over(&self) {
        self.is_over.store(true, SeqCst);
    }

    /// A reader begins to answer a request; returns whether the device is polled meanwhile.
    pub(crate) fn begin_request(&self) -> bool {
        let mut underway = self.underway.lock();
        underway.count += 1;
        underway.is_polled = underway.count < MOST_UNDERWAY;
        underway.is_polled
    }

    /// A reader has answered; returns whether the device is to be polled from now on.
    pub(crate) fn end_request(&self) -> bool {
        let mut underway = self.underway.lock();
        underway.count -= 1;
        let polls = !underway.is_polled && underway.count < MOST_UNDERWAY;
        underway.is_polled |= polls;
        polls
    }

    /// A request counts again that had been left out.
    pub(crate) fn resume_request(&self) {
        self.underway.lock().count += 1;
    }

    /// Tells the answers of the nodes that the kernel no longer knows.
    pub(crate) fn forget(&self, message: &Message<'_>) {
        let nodes = ask::forgotten(&message.head, message.rest);
        nodes.for_each(|node| self.answers.forget(node));
    }

    /// Answers a request.
    pub(crate) fn answer(
        &self,
        lane: &dyn Lane,
        head: &Head,
        (body, rest): (&[u8], &[u8]),
        out: &mut Out<'_>,
    ) -> Result<Answer, Errno> {
        let Head { node, uid, gid, pid, .. } = *head;
        let ask = Ask::read(head.code, body, rest).ok_or(Errno::NOSYS);
        let asker = Asker { node, uid, gid, pid, lane, is_over: &self.is_over };
        ask.and_then(|ask| self.answers.answer(&asker, ask, out))
    }
}
