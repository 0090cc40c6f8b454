//! Questions taken from io_uring.
//!
//! Each processor has a queue of requests in the kernel. A [`RingEntry`] waits for one of them: it
//! is memory for a request and its reply, registered with the kernel. A FUSE request completes the
//! io_uring request with which the slot waits; its reply is committed with the io_uring request for
//! the next one. A slot may wait in any ring, and move to another whenever it has a request.
//!
//! The kernel requires space for the largest request in each slot. The memory of a slot is mapped,
//! so that it uses only the pages that requests have touched, and [`RingEntry::release_pages`]
//! returns those.
//!
//! A request is an entry of 128 bytes in a ring's submission queue:
//!
//! ```text
//! offset  size  field
//!      0     1  46: a command to a file; 1 flags, 2 priority (2)
//!      4     4  descriptor of /dev/fuse
//!      8     4  1 registers a slot, 2 answers and takes the next question
//!     16     8  address, 24 count (4) of two stretches of memory: heads, and the rest (registering)
//!     32     8  number that the completion bears
//!     48     8  flags, 56 number of the question (8), 64 queue (2)
//! ```
//!
//! A slot's headers are 288 bytes: that of the message (128 bytes, see `request` and `reply`), the
//! fields of a request (128), then flags (8), the number of the request (8), and the bytes of the
//! rest (4).
//!
//! Learnt from: Linux's `include/uapi/linux/fuse.h` (protocol 7.45) and `io_uring.h`,
//! `Documentation/filesystems/fuse/fuse-io-uring.rst`.
//!
//! `unsafe` because the kernel gets addresses, to which it writes later. It is sound because a slot
//! that the kernel may write to is in [`FuseRing::submitted`], where no other code can reach it. It
//! leaves when the kernel has completed its request; if that never happens, its memory is never
//! freed. The mapped memory of a slot belongs to it alone. Its safe twin is `device`.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::init::MAX_REQUEST_BYTES;
use crate::session::Session;
use crate::wire::FieldReader;

const HEADERS_LEN: usize = 288;
const OP_IN_OFFSET: usize = 128;
const RING_ENT_OFFSET: usize = 256;
const IORING_OP_URING_CMD: u8 = 46;
const CMD_REGISTER: u32 = 1;
const CMD_COMMIT_AND_FETCH: u32 = 2;
/// The mark of the request that waits for the descriptor by which a ring's thread is woken.
const WAKE: u64 = u64::MAX;
const POLL_IN: u32 = 1;

/// A stretch of memory, as the system knows it (struct iovec).
#[repr(C)]
struct IoVec {
    base: *mut u8,
    length: usize,
}

/// An entry of the submission queue.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
struct SubmissionEntry {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    cmd_op: u32,
    unused: u32,
    addr: u64,
    len: u32,
    op_flags: u32,
    user_data: u64,
    buf_index: [u32; 2],
    fuse_flags: u64,
    commit_id: u64,
    qid: u64,
    padding: [u64; 7],
}

/// Mapped memory for the data of the largest request.
pub(crate) struct Payload {
    begin: *mut u8,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, and is not bound to a thread
unsafe impl Send for Payload {}

impl Payload {
    /// Maps the memory. It uses no pages before it is touched.
    pub(crate) fn new() -> io::Result<Self> {
        let length = usize::try_from(MAX_REQUEST_BYTES).map_err(io::Error::other)?;
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: the kernel chooses an address at which nothing is mapped
        let begin = unsafe { mmap_anonymous(ptr::null_mut(), length, access, flags)? };
        let payload = Self { begin: begin.cast(), length };
        // a small request would touch a page of 2 MiB; kernels without such pages refuse
        let _ = payload.advise(Advice::LinuxNoHugepage);
        Ok(payload)
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: the range is that of this mapping; the advice given here makes its bytes zeros or
        // leaves them, and both are valid bytes
        unsafe { madvise(self.begin.cast::<c_void>(), self.length, advice) }.map_err(Into::into)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has this length, can be read and written, and belongs to this value
        unsafe { std::slice::from_raw_parts_mut(self.begin, self.length) }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, which ends
        let _ = unsafe { munmap(self.begin.cast::<c_void>(), self.length) };
    }
}

/// Memory for a request of a session and its reply.
pub(crate) struct RingEntry {
    pub(crate) session: Arc<Session>,
    pub(crate) qid: u16,
    headers: Box<[u8; HEADERS_LEN]>,
    payload: Payload,
    iovecs: Box<[IoVec; 2]>,
}

// SAFETY: the addresses in `stretches` are those of the memory beside it, which goes with it
unsafe impl Send for RingEntry {}

impl RingEntry {
    /// For the requests of one of the session's queues.
    pub(crate) fn new(session: Arc<Session>, qid: u16, payload: Payload) -> Self {
        let mut headers = Box::new([0; HEADERS_LEN]);
        let iovecs = Box::new([
            IoVec { base: headers.as_mut_ptr(), length: HEADERS_LEN },
            IoVec { base: payload.begin, length: payload.length },
        ]);
        Self { session, qid, headers, payload, iovecs }
    }

    /// The head and the fields of the request that has come, and how many bytes of the rest are
    /// its.
    pub(crate) fn request_parts(&mut self) -> (&[u8], &[u8], &mut [u8], usize) {
        let (heads, facts) = self.headers.split_at(RING_ENT_OFFSET);
        let (head, body) = heads.split_at(OP_IN_OFFSET);
        let mut facts = FieldReader(facts);
        let length = facts.skip(16).and_then(|()| facts.u32()).unwrap_or(0);
        let length = usize::try_from(length).unwrap_or(0).min(self.payload.length);
        (head, body, self.payload.bytes(), length)
    }

    /// Memory for the data of the reply.
    pub(crate) fn payload(&mut self) -> &mut [u8] {
        self.payload.bytes()
    }

    /// Returns the pages beyond the first `used` bytes to the system.
    pub(crate) fn release_pages(&mut self, used: usize) {
        let used = used.next_multiple_of(rustix::param::page_size()).min(self.payload.length);
        // SAFETY: `used` is within the mapping
        let begin = unsafe { self.payload.begin.add(used) };
        // SAFETY: the range is the end of the mapping, which reads as zeros afterwards
        let _ = unsafe {
            madvise(begin.cast::<c_void>(), self.payload.length - used, Advice::LinuxDontNeed)
        };
    }

    /// The number of data bytes of the reply.
    pub(crate) fn reply_length(&self) -> usize {
        let (_, facts) = self.headers.split_at(RING_ENT_OFFSET);
        let mut facts = FieldReader(facts);
        let length = facts.skip(16).and_then(|()| facts.u32()).unwrap_or(0);
        usize::try_from(length).unwrap_or(0)
    }

    /// Writes the reply's header; this many bytes of the data belong to it.
    pub(crate) fn set_reply(&mut self, head: &[u8], length: usize) {
        let length = u32::try_from(length).unwrap_or(0).to_ne_bytes();
        for (at, bytes) in [(0, head), (RING_ENT_OFFSET + 16, &length[..])] {
            for (slot, byte) in self.headers.iter_mut().skip(at).zip(bytes) {
                *slot = *byte;
            }
        }
    }

    fn commit_id(&self) -> u64 {
        let (_, facts) = self.headers.split_at(RING_ENT_OFFSET);
        let mut facts = FieldReader(facts);
        facts.skip(8).and_then(|()| facts.u64()).unwrap_or(0)
    }
}

/// An event of a ring.
pub(crate) enum Event {
    /// A request came to a slot; or the slot waits no more, because its file system is unmounted or
    /// the kernel refused it.
    Entry(RingEntry, io::Result<()>),
    /// Another thread woke the ring's ([`FuseRing::wake_by`]).
    Woken,
    TimedOut,
}

/// A ring, and the slots that wait in it.
pub(crate) struct FuseRing {
    io_uring: IoUring<squeue::Entry128, cqueue::Entry>,
    submitted: HashMap<u64, RingEntry>,
    next_user_data: u64,
}

impl FuseRing {
    /// A ring for the thread that creates it, with this many submission entries.
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun();
        let queues = builder.build(entries.next_power_of_two())?;
        Ok(Self { io_uring: queues, submitted: HashMap::new(), next_user_data: 0 })
    }

    /// Makes a slot known to the kernel; it waits for its first request.
    pub(crate) fn register_entry(&mut self, slot: RingEntry) -> io::Result<()> {
        let address = slot.iovecs.as_ptr() as u64;
        self.submit_entry(
            slot,
            &SubmissionEntry {
                cmd_op: CMD_REGISTER,
                addr: address,
                len: 2,
                ..SubmissionEntry::default()
            },
        )
    }

    /// Commits a slot's reply, and makes it wait for the next request.
    pub(crate) fn commit_reply(&mut self, slot: RingEntry) -> io::Result<()> {
        let question = slot.commit_id();
        self.submit_entry(
            slot,
            &SubmissionEntry {
                cmd_op: CMD_COMMIT_AND_FETCH,
                commit_id: question,
                ..SubmissionEntry::default()
            },
        )
    }

    fn submit_entry(&mut self, slot: RingEntry, request: &SubmissionEntry) -> io::Result<()> {
        let mark = self.next_user_data;
        self.next_user_data += 1;
        let mut queue = [0; 8];
        for (to, from) in queue.iter_mut().zip(slot.qid.to_ne_bytes()) {
            *to = from;
        }
        let descriptor = slot.session.device().as_raw_fd();
        let queue = u64::from_ne_bytes(queue);
        let request = SubmissionEntry {
            opcode: IORING_OP_URING_CMD,
            fd: descriptor,
            user_data: mark,
            qid: queue,
            ..*request
        };
        self.submitted.insert(mark, slot);
        // SAFETY: both are 128 bytes of plain numbers, and the kernel's structure has this layout
        let entry = unsafe { mem::transmute::<SubmissionEntry, squeue::Entry128>(request) };
        self.push(&entry).inspect_err(|_| drop(self.submitted.remove(&mark)))
    }

    /// Has [`Event::Woken`] reported once, as soon as the descriptor can be read.
    pub(crate) fn wake_by(&mut self, descriptor: &OwnedFd) -> io::Result<()> {
        let poll = opcode::PollAdd::new(Fd(descriptor.as_raw_fd()), POLL_IN);
        self.push(&poll.build().user_data(WAKE).into())
    }

    fn push(&mut self, entry: &squeue::Entry128) -> io::Result<()> {
        if self.io_uring.submission().is_full() {
            self.flush()?;
        }
        // SAFETY: the entry's memory is that of a slot in `waiting`, which stays in place until the
        // request is completed; a poll has none
        let pushed = unsafe { self.io_uring.submission().push(entry) };
        pushed.map_err(|_| io::Error::other("the ring is full"))
    }

    /// Submits at once what [`FuseRing::next`] would submit.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.io_uring.submit().map(|_| ())
    }

    /// Waits for an event, without `timeout` for any time.
    pub(crate) fn next(&mut self, timeout: Option<Duration>) -> io::Result<Event> {
        loop {
            if let Some(done) = self.io_uring.completion().next() {
                if done.user_data() == WAKE {
                    return Ok(Event::Woken);
                }
                let Some(slot) = self.submitted.remove(&done.user_data()) else { continue };
                let result = done.result();
                let refused = io::Error::from_raw_os_error(result.saturating_neg());
                return Ok(Event::Entry(slot, if result < 0 { Err(refused) } else { Ok(()) }));
            }
            let waited = match timeout.map(Timespec::from) {
                None => self.io_uring.submit_and_wait(1),
                Some(time) => {
                    let arguments = SubmitArgs::new().timespec(&time);
                    self.io_uring.submitter().submit_with_args(1, &arguments)
                }
            };
            match waited {
                Ok(_) => {}
                Err(why) => match Errno::from_io_error(&why) {
                    Some(Errno::INTR) => {}
                    Some(Errno::TIME) => return Ok(Event::TimedOut),
                    _ => return Err(why),
                },
            }
        }
    }
}

impl Drop for FuseRing {
    fn drop(&mut self) {
        for (_, slot) in self.submitted.drain() {
            let RingEntry { session, headers: heads, payload, iovecs: stretches, .. } = slot;
            // the kernel may still write to these
            mem::forget((heads, payload, stretches));
            drop(session);
        }
    }
}
