//! The threads that wait for the kernel's questions and answer them.
//!
//! Where there are rings, a watch has a slot wait in the queue of each processor. A slot to which a
//! question comes goes to a new thread, which is bound to that processor and keeps it; so a mount at
//! rest takes two threads, and one in use a thread for each processor from which it is used. The
//! device is read besides: what needs no answer comes there.
//!
//! Wherever the last that waited has got a question, one more thread is started, until there are
//! many. Those that say that they may take long do not count.
//!
//! What the kernel forgets it tells by the device, one by one, and a thread that waits there is woken
//! for each. Where questions come by rings nothing else comes there, so the thread that has been told
//! lets more gather before it asks again.
//!
//! The kernel has a slot that becomes free look for questions that wait, but not one that is new: so
//! where all others may take long, a question of our own is sent along, after whose answer it looks.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::answer::{self, Answer, Told};
use crate::ask::{self, Ask, Head};
use crate::clone::clone;
use crate::device::{self, Channel, Message};
use crate::init::{Ability, LARGEST, Offer};
use crate::ring::{Ring, Slot};

/// Threads of a queue that may be busy at a time.
const MOST: usize = 16;
/// So long what the kernel forgets may gather: some bytes each, in its memory.
const GATHER: Duration = Duration::from_millis(20);
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
    queue: &'a Queue,
    help: &'a dyn Help,
    is_over: &'a AtomicBool,
}

/// How more questions are heard.
trait Help {
    /// One more thread waits for them.
    fn more(&self);
    /// Those that wait are looked for.
    fn kick(&self);
}

impl Asker<'_> {
    /// Whether nothing is mounted any more, so that nobody hears the answer.
    pub fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    /// Does something that may take any time; others take its place meanwhile.
    pub fn at_leisure<T>(&self, work: impl FnOnce() -> T) -> T {
        self.queue.slow.fetch_add(1, SeqCst);
        if self.queue.is_short() {
            self.help.more();
        } else {
            self.help.kick();
        }
        let done = work();
        self.queue.slow.fetch_sub(1, SeqCst);
        done
    }
}

/// Where bytes that were asked for go.
pub struct Out<'a>(Way<'a>);

enum Way<'a> {
    /// They are written at once.
    Device { device: &'a File, unique: u64 },
    /// They are put where the kernel looks for them: the room there is, and how much of it is used.
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

/// Those who wait for the same questions.
#[derive(Default)]
struct Queue {
    /// Threads.
    all: AtomicUsize,
    /// Of those, how many wait for a question.
    idle: AtomicUsize,
    /// And how many may take long.
    slow: AtomicUsize,
}

impl Queue {
    fn joins(&self) {
        self.all.fetch_add(1, SeqCst);
        self.idle.fetch_add(1, SeqCst);
    }

    /// Somebody got a question; gives whether one more is to wait for the next.
    fn begins(&self) -> bool {
        self.idle.fetch_sub(1, SeqCst);
        self.is_short()
    }

    /// Whether nobody waits for a question, and somebody more may.
    fn is_short(&self) -> bool {
        let busy = self.all.load(SeqCst).saturating_sub(self.slow.load(SeqCst));
        self.idle.load(SeqCst) == 0 && busy < MOST
    }

    fn ends(&self) {
        self.idle.fetch_add(1, SeqCst);
    }
}

struct Session {
    answers: Box<dyn Answers>,
    /// What is wanted of the kernel.
    agreed: Ability,
    /// Where it is mounted.
    dir: PathBuf,
    device: Arc<File>,
    /// Of those who read the device.
    readers: Queue,
    /// Of each processor.
    queues: Vec<Queue>,
    /// Nothing is mounted any more.
    is_over: AtomicBool,
}

/// Whoever has one is not done.
type Alive = Sender<()>;

/// Answers what the kernel asks of what is mounted on a folder, until it is not any more. `rings`: by io_uring,
/// if that can be had.
pub fn serve(
    device: Arc<File>,
    dir: &Path,
    answers: Box<dyn Answers>,
    rings: bool,
) -> io::Result<()> {
    let queues = if rings && Ring::new(&device, 1).is_ok() { processors() } else { 0 };
    let Some(agreed) = begin(&device, answers.as_ref(), queues > 0)? else { return Ok(()) };
    let by_rings = agreed.has(Ability::OVER_IO_URING);
    let queues = (0..if by_rings { queues } else { 0 }).map(|_| Queue::default()).collect();
    let (dir, readers, is_over) = (dir.to_owned(), Queue::default(), AtomicBool::new(false));
    let session = Session { answers, agreed, dir, device, readers, queues, is_over };
    let session = Arc::new(session);
    let (alive, ends) = channel();
    if by_rings {
        session.start("fuse watch", &alive, |session, alive| watch(&session, &alive))?;
    }
    session.add_reader(&alive)?;
    drop(alive);
    // an error: nobody is left who could send anything
    while ends.recv().is_ok() {}
    session.answers.end();
    Ok(())
}

/// How many processors there can be; 0 if that is not known.
fn processors() -> usize {
    let text = std::fs::read_to_string(POSSIBLE).unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map_or(0, |last| last.saturating_add(1))
}

/// Agrees with the kernel what is spoken, and whether by rings; none: it was unmounted before.
fn begin(device: &Arc<File>, answers: &dyn Answers, rings: bool) -> io::Result<Option<Ability>> {
    let mut channel = Channel::new(device.try_clone()?, Ability::default());
    loop {
        let Some((device, message)) = channel.take()? else { return Ok(None) };
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
    fn start(
        self: &Arc<Self>,
        name: &str,
        alive: &Alive,
        work: impl FnOnce(Arc<Self>, Alive) + Send + 'static,
    ) -> io::Result<()> {
        let (session, alive) = (Arc::clone(self), alive.clone());
        let started = std::thread::Builder::new().name(name.to_owned());
        started.spawn(move || work(session, alive)).map(|_| ())
    }

    /// One more who reads the device.
    fn add_reader(self: &Arc<Self>, alive: &Alive) -> io::Result<()> {
        // where there can be no other way, the first one is shared
        let device = clone(&self.device).or_else(|_| self.device.try_clone())?;
        self.readers.joins();
        self.start("fuse", alive, move |session, alive| {
            read(&session, device, &alive);
        })
    }

    /// One more who takes a queue's questions; `slot` has one.
    fn add_taker(self: &Arc<Self>, slot: Slot, has_question: bool, alive: &Alive) {
        let Some(queue) = self.queues.get(usize::from(slot.queue)) else { return };
        queue.joins();
        // without a thread nobody answers, which ends it all
        let _ = self.start(&format!("fuse {}", slot.queue), alive, move |session, alive| {
            let _ = take(&session, slot, has_question, &alive);
        });
    }

    /// Asks something by a queue that has a slot free.
    fn kick(&self, queue: u16) {
        let dir = self.dir.clone();
        let ask = move || {
            stay_on(queue);
            // whatever the answer is
            let _ = rustix::fs::statfs(&dir);
        };
        let _ = std::thread::Builder::new().name("fuse kick".to_owned()).spawn(ask);
    }

    /// Hears what the kernel does not know any more.
    fn forget(&self, message: &Message<'_>, help: &dyn Help) {
        let mut nodes = ask::forgotten(&message.head, message.rest).peekable();
        if nodes.peek().is_none() {
            return;
        }
        // what has to be freed may take its time, and who reads the device may be wanted for questions
        let answers_too = self.queues.is_empty();
        if answers_too && self.readers.begins() {
            help.more();
        }
        nodes.for_each(|node| self.answers.forget(node));
        if answers_too {
            self.readers.ends();
        }
    }

    fn answered(
        &self,
        (queue, help): (&Queue, &dyn Help),
        head: &Head,
        (body, rest): (&[u8], &[u8]),
        out: &mut Out<'_>,
    ) -> Result<Answer, Errno> {
        if queue.begins() {
            help.more();
        }
        let Head { node, uid, gid, pid, .. } = *head;
        let ask = Ask::read(head.code, body, rest).ok_or(Errno::NOSYS);
        let asker = Asker { node, uid, gid, pid, queue, help, is_over: &self.is_over };
        ask.and_then(|ask| self.answers.answer(&asker, ask, out))
    }
}

struct MoreReaders<'a> {
    session: &'a Arc<Session>,
    alive: &'a Alive,
}

impl Help for MoreReaders<'_> {
    fn more(&self) {
        // without one more, those there are answer
        let _ = self.session.add_reader(self.alive);
    }

    fn kick(&self) {}
}

struct MoreTakers<'a> {
    session: &'a Arc<Session>,
    alive: &'a Alive,
    queue: u16,
}

impl Help for MoreTakers<'_> {
    fn more(&self) {
        let bytes = usize::try_from(LARGEST).unwrap_or(0);
        self.session.add_taker(Slot::new(self.queue, bytes), false, self.alive);
    }

    fn kick(&self) {
        self.session.kick(self.queue);
    }
}

/// Binds the thread to the processor of a queue. Where that is not for us, any will do.
fn stay_on(queue: u16) {
    let (mut processor, number) = (CpuSet::new(), usize::from(queue));
    if number < CpuSet::MAX_CPU {
        processor.set(number);
        let _ = sched_setaffinity(None, &processor);
    }
}

/// Reads the device.
fn read(session: &Arc<Session>, device: File, alive: &Alive) {
    let mut channel = Channel::new(device, session.agreed);
    while let Ok(Some((device, message))) = channel.take() {
        let help = MoreReaders { session, alive };
        if ask::is_unanswered(message.head.code) {
            session.forget(&message, &help);
            // questions are not kept waiting by this
            if !session.queues.is_empty() {
                std::thread::sleep(GATHER);
            }
            continue;
        }
        let unique = message.head.unique;
        let mut out = Out(Way::Device { device, unique });
        let parts = (message.body, message.rest);
        match session.answered((&session.readers, &help), &message.head, parts, &mut out) {
            Ok(Answer(Told::Bytes(bytes))) => device::answer(device, unique, Ok(&bytes)),
            Ok(Answer(Told::Given)) => {}
            Err(why) => device::answer(device, unique, Err(why)),
        }
        session.readers.ends();
    }
    session.is_over.store(true, SeqCst);
}

/// Has a slot wait in each queue, and gives those that get a question to threads.
fn watch(session: &Arc<Session>, alive: &Alive) {
    let count = u32::try_from(session.queues.len()).unwrap_or(u32::MAX);
    let Ok(mut ring) = Ring::new(&session.device, count) else { return };
    let bytes = usize::try_from(LARGEST).unwrap_or(0);
    for queue in 0..u16::try_from(count).unwrap_or(u16::MAX) {
        if ring.register(Slot::new(queue, bytes)).is_err() {
            return;
        }
    }
    while ring.waits() > 0 {
        match ring.take() {
            Ok((slot, Ok(()))) => session.add_taker(slot, true, alive),
            // it is not mounted any more, or was refused; then the others are told so, too
            Ok((_, Err(_))) => {}
            Err(_) => return,
        }
    }
}

/// Takes a queue's questions on its processor.
fn take(session: &Arc<Session>, slot: Slot, has_question: bool, alive: &Alive) -> io::Result<()> {
    let number = slot.queue;
    stay_on(number);
    let mut ring = Ring::new(&session.device, 1)?;
    if has_question {
        answer(session, slot, &mut ring, alive)?;
    } else {
        ring.register(slot)?;
        let queue = session.queues.get(usize::from(number));
        if queue.is_some_and(|queue| queue.slow.load(SeqCst) > 0) {
            ring.tell()?;
            session.kick(number);
        }
    }
    loop {
        let (slot, came) = ring.take()?;
        came?;
        answer(session, slot, &mut ring, alive)?;
    }
}

/// Answers the question in a slot.
fn answer(
    session: &Arc<Session>,
    mut slot: Slot,
    ring: &mut Ring,
    alive: &Alive,
) -> io::Result<()> {
    let number = slot.queue;
    let Some(queue) = session.queues.get(usize::from(number)) else { return Ok(()) };
    let help = MoreTakers { session, alive, queue: number };
    let (head, body, memory, length) = slot.question();
    let head = Head::read(head).ok_or_else(|| io::Error::other("half a message"))?;
    let (rest, room) = memory.split_at_mut(length);
    let mut out = Out(Way::Slot { room, used: 0 });
    let told = session.answered((queue, &help), &head, (body, rest), &mut out);
    let given = if let Way::Slot { used, .. } = out.0 { used } else { 0 };
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
    queue.ends();
    ring.answer(slot)
}
