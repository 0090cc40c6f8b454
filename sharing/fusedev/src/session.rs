//! A session of a mounted file system, and the handling of one request.
//!
//! A session ends when its file system is unmounted or its connection aborted and the last of its
//! requests is finished. Every thread and slot that still serves it holds a reference, and dropping
//! the last one ends it. Threads and rings belong to the process (`readers`, `rings`), not to a
//! session.

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

use crate::device::{self, Received, RequestMessage};
use crate::init::{InitFlags, InitRequest};
use crate::readers::Readers;
use crate::reply::Reply;
use crate::request::{self, ForgottenNode, Request, RequestHeader};
use crate::ring::{Payload, RingEntry};
use crate::rings::{RingQueue, Watch};

/// Requests of one mount that reader threads handle at a time. Those marked as slow do not
/// count; the others wait in the kernel, which costs other mounts nothing.
const MAX_UNDERWAY: usize = 16;
/// The file of Linux with the highest possible number of processors.
const POSSIBLE_CPUS_PATH: &str = "/sys/devices/system/cpu/possible";

/// The request handler.
pub trait RequestHandler: Send + Sync + 'static {
    /// The features that it wants.
    fn wanted_flags(&self, offered: InitFlags) -> InitFlags;

    /// Handles a request. Read data may be sent to `out` in pieces instead.
    fn handle(
        &self,
        asker: &RequestContext<'_>,
        ask: Request<'_>,
        out: &mut ReplyData<'_>,
    ) -> Result<Reply, Errno>;

    /// The kernel has forgotten a node. The message may come after the kernel has looked the node
    /// up again.
    fn forget(&self, _node: ForgottenNode) {}

    /// A signal has reached the program of a request, which should end soon. The request may be
    /// finished already, or not have come yet.
    fn interrupt(&self, _unique: u64) {}

    /// No more requests will come.
    fn destroy(&self) {}
}

impl<T: RequestHandler> RequestHandler for Arc<T> {
    fn wanted_flags(&self, offered: InitFlags) -> InitFlags {
        T::wanted_flags(self, offered)
    }

    fn handle(
        &self,
        asker: &RequestContext<'_>,
        ask: Request<'_>,
        out: &mut ReplyData<'_>,
    ) -> Result<Reply, Errno> {
        T::handle(self, asker, ask, out)
    }

    fn forget(&self, node: ForgottenNode) {
        T::forget(self, node);
    }

    fn interrupt(&self, unique: u64) {
        T::interrupt(self, unique);
    }

    fn destroy(&self) {
        T::destroy(self);
    }
}

/// The caller and the node of a request.
pub struct RequestContext<'a> {
    /// The number of the request, which no other of this mount has.
    pub unique: u64,
    /// The node; 1 is the root.
    pub nodeid: u64,
    /// The caller.
    pub uid: u32,
    /// And for which group.
    pub gid: u32,
    /// The thread of the caller; 0: the kernel itself.
    pub pid: u32,
    lane: &'a dyn Lane,
    is_unmounted: &'a AtomicBool,
}

/// The way by which a request came: other requests take the same.
pub(crate) trait Lane {
    /// Marks the request as slow: it no longer counts against the limit of concurrent requests.
    fn pause(&self);
    /// It counts again.
    fn resume(&self);
}

impl RequestContext<'_> {
    /// Whether the file system is unmounted, so that no program gets the reply.
    pub fn is_unmounted(&self) -> bool {
        self.is_unmounted.load(SeqCst)
    }

    /// Does something that may take any time; others take its place meanwhile.
    pub fn run_blocking<T>(&self, work: impl FnOnce() -> T) -> T {
        self.lane.pause();
        let done = work();
        self.lane.resume();
        done
    }
}

/// The destination of read data.
pub struct ReplyData<'a>(pub(crate) DataTarget<'a>);

pub(crate) enum DataTarget<'a> {
    /// To the device, at once.
    Device { device: &'a File, unique: u64 },
    /// To the kernel's buffer: its size, and the number of used bytes.
    RingEntry { buffer: &'a mut [u8], used: usize },
}

impl ReplyData<'_> {
    /// Calls `fill` with a buffer of at most `length`; as many bytes as it returns are the reply.
    pub fn fill_with<E>(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Reply, E> {
        if let DataTarget::RingEntry { buffer: room, used } = &mut self.0 {
            let length = length.min(room.len());
            let (room, _) = room.split_at_mut(length);
            *used = fill(room)?.min(length);
            return Ok(Reply::sent());
        }
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.len() < length {
                scratch.resize(length, 0);
            }
            let (room, _) = scratch.split_at_mut(length);
            let count = fill(room)?;
            Ok(self.send(room.get(..count).unwrap_or_default()))
        })
    }

    /// Sends all bytes at once; later ones are dropped.
    pub fn send(&mut self, bytes: &[u8]) -> Reply {
        match &mut self.0 {
            DataTarget::Device { device, unique } => {
                device::write_reply(device, *unique, Ok(bytes));
            }
            DataTarget::RingEntry { buffer: room, used } => {
                let length = bytes.len().min(room.len());
                if let (Some(to), Some(from)) = (room.get_mut(..length), bytes.get(..length)) {
                    to.copy_from_slice(from);
                }
                *used = length;
            }
        }
        Reply::sent()
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

/// The requests of a session that reader threads handle at the moment.
#[derive(Default)]
struct Underway {
    count: usize,
    /// The device is polled, or a thread is about to see to that.
    is_polled: bool,
}

/// A mounted file system.
pub(crate) struct Session {
    handler: Box<dyn RequestHandler>,
    /// The result of the negotiation with the kernel.
    init_flags: InitFlags,
    /// Where it is mounted.
    mountpoint: PathBuf,
    device: Arc<File>,
    /// Its key for the readers.
    pub(crate) token: u64,
    underway: Mutex<Underway>,
    /// One per processor; none: requests come by the device only.
    ring_workers: Vec<RingQueue>,
    /// The kernel refused a slot, so requests come by the device.
    is_refused: AtomicBool,
    /// The file system is unmounted.
    is_unmounted: AtomicBool,
    /// Dropped last: its receiver then knows that the handler is dropped, too.
    _ended: Sender<io::Result<()>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.handler.destroy();
    }
}

/// Serves the requests of a mount until it is unmounted; `rings`: by io_uring, if
/// possible. The receiver is disconnected when the session has ended.
pub fn serve(
    device: Arc<File>,
    dir: &Path,
    answers: Box<dyn RequestHandler>,
    rings: bool,
) -> io::Result<Receiver<io::Result<()>>> {
    static TOKENS: AtomicU64 = AtomicU64::new(1);
    let readers = Readers::of_process()?;
    let prepared = if rings { prepare_rings() } else { None };
    let (sender, ended) = channel();
    let Some(agreed) = negotiate(&device, answers.as_ref(), prepared.is_some())? else {
        return Ok(ended);
    };
    let prepared = prepared.filter(|_| agreed.contains(InitFlags::OVER_IO_URING));
    let queues = prepared.as_ref().map_or(0, |(_, payloads)| payloads.len());
    fcntl_setfl(&device, fcntl_getfl(&device)? | OFlags::NONBLOCK)?;
    let session = Arc::new(Session {
        handler: answers,
        init_flags: agreed,
        mountpoint: dir.to_owned(),
        device,
        token: TOKENS.fetch_add(1, SeqCst),
        underway: Mutex::new(Underway { count: 0, is_polled: true }),
        ring_workers: (0..queues).map(|_| RingQueue::default()).collect(),
        is_refused: AtomicBool::new(false),
        is_unmounted: AtomicBool::new(false),
        _ended: sender,
    });
    readers.add(&session)?;
    if let Some((watch, payloads)) = prepared {
        let slots = (0_u16..).zip(payloads);
        watch.register(
            slots.map(|(queue, payload)| RingEntry::new(Arc::clone(&session), queue, payload)),
        );
    }
    Ok(ended)
}

/// The thread that holds slots, and memory for a slot of each processor; none: requests come by the device.
fn prepare_rings() -> Option<(&'static Watch, Vec<Payload>)> {
    let watch = Watch::of_process().ok()?;
    let processors = possible_cpus()?;
    let payloads = (0..processors).map(|_| Payload::new()).collect::<io::Result<Vec<_>>>();
    payloads.ok().map(|payloads| (watch, payloads))
}

/// The highest possible number of processors, if Linux shows it.
fn possible_cpus() -> Option<u16> {
    let text = std::fs::read_to_string(POSSIBLE_CPUS_PATH).ok()?;
    let last = text.trim().rsplit([',', '-']).next()?.parse::<u16>().ok()?;
    last.checked_add(1)
}

/// Negotiates the protocol and rings with the kernel; none: it was unmounted before.
fn negotiate(
    device: &File,
    answers: &dyn RequestHandler,
    rings: bool,
) -> io::Result<Option<InitFlags>> {
    let mut buffer = device::buffer();
    loop {
        let message = match device::receive(device, &mut buffer, InitFlags::default())? {
            Received::Message(message) => message,
            Received::Nothing => continue,
            Received::Ended => return Ok(None),
        };
        let unique = message.header.unique;
        if message.header.opcode != request::INIT {
            device::write_reply(device, unique, Err(Errno::IO));
            continue;
        }
        let offer =
            InitRequest::parse(message.payload).ok_or_else(|| io::Error::other("no version"))?;
        if offer.is_too_old() {
            device::write_reply(device, unique, Err(Errno::PROTO));
            return Err(io::Error::other("the kernel is older than Linux 5.4"));
        }
        let mut wishes = answers.wanted_flags(offer.flags);
        if rings {
            wishes = wishes.union(InitFlags::OVER_IO_URING);
        }
        let agreed = offer.negotiate(wishes);
        device::write_reply(
            device,
            unique,
            Ok(&offer.encode_reply(agreed, rustix::param::page_size())),
        );
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
        &self.mountpoint
    }

    /// The result of the negotiation with the kernel.
    pub(crate) fn init_flags(&self) -> InitFlags {
        self.init_flags
    }

    /// The requests of a processor.
    pub(crate) fn queue(&self, number: u16) -> Option<&RingQueue> {
        self.ring_workers.get(usize::from(number))
    }

    /// Whether requests come by rings.
    pub(crate) fn has_rings(&self) -> bool {
        !self.ring_workers.is_empty() && !self.is_refused.load(SeqCst)
    }

    /// The kernel has no use for a slot: it then sends requests by the device, or nothing is mounted any more.
    pub(crate) fn refuse_rings(&self) {
        self.is_refused.store(true, SeqCst);
    }

    /// The file system is unmounted: waiting requests can stop.
    pub(crate) fn set_unmounted(&self) {
        self.is_unmounted.store(true, SeqCst);
    }

    /// A reader begins to handle a request; returns whether the device stays polled meanwhile.
    pub(crate) fn begin_request(&self) -> bool {
        let mut underway = self.underway.lock();
        underway.count += 1;
        underway.is_polled = underway.count < MAX_UNDERWAY;
        underway.is_polled
    }

    /// A reader has finished a request; returns whether the device is to be polled from now on.
    pub(crate) fn end_request(&self) -> bool {
        let mut underway = self.underway.lock();
        underway.count -= 1;
        let polls = !underway.is_polled && underway.count < MAX_UNDERWAY;
        underway.is_polled |= polls;
        polls
    }

    /// A request counts again that had been left out.
    pub(crate) fn resume_request(&self) {
        self.underway.lock().count += 1;
    }

    /// Handles a message without reply: FORGET, or INTERRUPT.
    pub(crate) fn handle_notice(&self, message: &RequestMessage<'_>) {
        if let Some(unique) = request::interrupted_request(message.header.opcode, message.payload) {
            return self.handler.interrupt(unique);
        }
        let nodes = request::forgotten_nodes(&message.header, message.payload);
        nodes.for_each(|node| self.handler.forget(node));
    }

    /// Handles a request.
    pub(crate) fn handle_ring_request(
        &self,
        lane: &dyn Lane,
        head: &RequestHeader,
        (body, rest): (&[u8], &[u8]),
        out: &mut ReplyData<'_>,
    ) -> Result<Reply, Errno> {
        let RequestHeader { unique, nodeid, uid, gid, pid, .. } = *head;
        let ask = Request::parse(head.opcode, body, rest).ok_or(Errno::NOSYS);
        let is_unmounted = &self.is_unmounted;
        let asker = RequestContext { unique, nodeid, uid, gid, pid, lane, is_unmounted };
        ask.and_then(|ask| self.handler.handle(&asker, ask, out))
    }
}
