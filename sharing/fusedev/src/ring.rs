//! Questions taken from io_uring.
//!
//! Each processor has a queue of questions in the kernel. What waits for one of them is a [`Slot`]:
//! memory for a question and its answer, with which the kernel has been registered. A question that
//! comes completes the request that the slot waits with; its answer goes back with the request for
//! the next one. A slot may wait in any ring, and move from one to another.
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
//! A slot's heads are 288 bytes: that of the message (128 bytes, see `ask` and `answer`), the fields
//! of a question (128), then flags (8), the number of the question (8), and the bytes of the rest (4).
//!
//! Learnt from: Linux's `include/uapi/linux/fuse.h` (protocol 7.45) and `io_uring.h`,
//! `Documentation/filesystems/fuse/fuse-io-uring.rst`.
//!
//! `unsafe` because the kernel is given addresses, to which it writes later. What makes it sound:
//! whose slot the kernel may write to is in [`Ring::waiting`], where nobody can reach it; it comes
//! out when the kernel has completed its request; and where that never happens, its memory is never
//! given back. Its safe twin is `device`.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, cqueue, squeue};

use crate::fields::Fields;

const HEADS: usize = 288;
const BODY: usize = 128;
const FACTS: usize = 256;
const COMMAND: u8 = 46;
const REGISTER: u32 = 1;
const ANSWER_AND_TAKE: u32 = 2;

/// A stretch of memory, as the system knows it (struct iovec).
#[repr(C)]
struct Stretch {
    begin: *mut u8,
    length: usize,
}

/// An entry of the submission queue.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
struct Request {
    kind: u8,
    flags: u8,
    priority: u16,
    descriptor: i32,
    command: u32,
    unused: u32,
    address: u64,
    count: u32,
    more_flags: u32,
    mark: u64,
    buffer: [u32; 2],
    fuse_flags: u64,
    question: u64,
    queue: u64,
    rest: [u64; 7],
}

/// Memory for a question and its answer.
pub(crate) struct Slot {
    pub(crate) queue: u16,
    heads: Box<[u8; HEADS]>,
    pub(crate) rest: Vec<u8>,
    stretches: Box<[Stretch; 2]>,
}

// SAFETY: the addresses in `stretches` are those of the boxes beside it, which go with it
unsafe impl Send for Slot {}

impl Slot {
    /// For a queue's questions, with so many bytes besides their heads.
    pub(crate) fn new(queue: u16, bytes: usize) -> Self {
        let (mut heads, mut rest) = (Box::new([0; HEADS]), vec![0; bytes]);
        let stretches = Box::new([
            Stretch { begin: heads.as_mut_ptr(), length: HEADS },
            Stretch { begin: rest.as_mut_ptr(), length: rest.len() },
        ]);
        Self { queue, heads, rest, stretches }
    }

    /// The head and the fields of the question that has come, and how many bytes of the rest are
    /// its.
    pub(crate) fn question(&mut self) -> (&[u8], &[u8], &mut [u8], usize) {
        let (heads, facts) = self.heads.split_at(FACTS);
        let (head, body) = heads.split_at(BODY);
        let mut facts = Fields(facts);
        let length = facts.skip(16).and_then(|()| facts.u32()).unwrap_or(0);
        let length = usize::try_from(length).unwrap_or(0).min(self.rest.len());
        (head, body, &mut self.rest, length)
    }

    /// Puts the answer's head in place; so many bytes of the rest belong to it.
    pub(crate) fn answer(&mut self, head: &[u8], length: usize) {
        let length = u32::try_from(length).unwrap_or(0).to_ne_bytes();
        for (at, bytes) in [(0, head), (FACTS + 16, &length[..])] {
            for (slot, byte) in self.heads.iter_mut().skip(at).zip(bytes) {
                *slot = *byte;
            }
        }
    }

    fn number(&self) -> u64 {
        let (_, facts) = self.heads.split_at(FACTS);
        let mut facts = Fields(facts);
        facts.skip(8).and_then(|()| facts.u64()).unwrap_or(0)
    }
}

/// A ring, and the slots that wait in it.
pub(crate) struct Ring {
    queues: IoUring<squeue::Entry128, cqueue::Entry>,
    device: Arc<File>,
    waiting: HashMap<u64, Slot>,
    next: u64,
}

impl Ring {
    /// A ring in which so many slots can wait, for the thread that makes it.
    pub(crate) fn new(device: &Arc<File>, slots: u32) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun();
        let queues = builder.build(slots.next_power_of_two())?;
        Ok(Self { queues, device: Arc::clone(device), waiting: HashMap::new(), next: 0 })
    }

    /// How many slots wait.
    pub(crate) fn waits(&self) -> usize {
        self.waiting.len()
    }

    /// Makes a slot known to the kernel; it waits for its first question.
    pub(crate) fn register(&mut self, slot: Slot) -> io::Result<()> {
        let address = slot.stretches.as_ptr() as u64;
        self.submit(slot, &Request { command: REGISTER, address, count: 2, ..Request::default() })
    }

    /// Gives a slot's answer, and has it wait for the next question.
    pub(crate) fn answer(&mut self, slot: Slot) -> io::Result<()> {
        let question = slot.number();
        self.submit(slot, &Request { command: ANSWER_AND_TAKE, question, ..Request::default() })
    }

    fn submit(&mut self, slot: Slot, request: &Request) -> io::Result<()> {
        let mark = self.next;
        self.next += 1;
        let mut queue = [0; 8];
        for (to, from) in queue.iter_mut().zip(slot.queue.to_ne_bytes()) {
            *to = from;
        }
        let descriptor = self.device.as_raw_fd();
        let queue = u64::from_ne_bytes(queue);
        let request = Request { kind: COMMAND, descriptor, mark, queue, ..*request };
        self.waiting.insert(mark, slot);
        // SAFETY: both are 128 bytes of plain numbers, and this is what the system has there
        let entry = unsafe { mem::transmute::<Request, squeue::Entry128>(request) };
        // SAFETY: the memory that the request speaks of is that of a slot in `waiting`, which stays
        // where it is until the request is completed
        let pushed = unsafe { self.queues.submission().push(&entry) };
        pushed.map_err(|_| {
            self.waiting.remove(&mark);
            io::Error::other("the ring has no room")
        })
    }

    /// Has the kernel see at once what it would see when the next question is waited for.
    pub(crate) fn tell(&mut self) -> io::Result<()> {
        self.queues.submit().map(|_| ())
    }

    /// Waits until a question has come, and gives the slot with it. The error of a slot that waits
    /// no more (nothing is mounted any more, or it was refused) comes with that slot.
    pub(crate) fn take(&mut self) -> io::Result<(Slot, io::Result<()>)> {
        loop {
            if let Some(done) = self.queues.completion().next() {
                let Some(slot) = self.waiting.remove(&done.user_data()) else { continue };
                let result = done.result();
                let refused = io::Error::from_raw_os_error(result.saturating_neg());
                return Ok((slot, if result < 0 { Err(refused) } else { Ok(()) }));
            }
            match self.queues.submit_and_wait(1) {
                Ok(_) => {}
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // the kernel may still write to them
        self.waiting.drain().for_each(|(_, slot)| mem::forget(slot));
    }
}
