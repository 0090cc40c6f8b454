//! The records of a stream in their order, while their blocks are read: the walk runs ahead, and several threads read.
//!
//! ```text
//! walk ── records, blocks to read ──> queue ── in the same order ──> stream
//!                                      ^ v
//!                                 threads that read
//! ```
//!
//! The queue has few bytes, so that memory stays flat: the walk waits until the stream has taken some. An error stands at its
//! place in the order, so that the stream before it is what it would be without the queue.

use std::collections::VecDeque;
use std::mem::replace;
use std::ops::{Deref, Range};
use std::thread::{Builder, Scope};

use ondisk::stream::{FreeObjects, FreeRange, Record, RedactRange};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::writer::StreamWriter;
use crate::{Error, Result};

/// Threads that read blocks.
const READERS: usize = 4;
/// Bytes in the queue; a block more fits.
const MAX_BYTES: usize = 16 << 20;
/// Records in the queue.
const MAX_ITEMS: usize = 4096;
/// Blocks that a thread reads before it looks at the queue again, and their bytes.
const READ_BLOCKS: usize = 16;
const READ_BYTES: usize = 256 << 10;
/// Records that the walk puts in, and that the stream takes, at once: threads wake one another less often.
const WALK_ITEMS: usize = 32;
const WALK_BYTES: usize = 256 << 10;
const WRITE_ITEMS: usize = 64;

/// The bytes of a block: as they are stored, or its content.
pub(crate) enum Payload {
    Stored(Vec<u8>),
    Content(zio::Block),
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Stored(bytes) => bytes,
            Self::Content(block) => block,
        }
    }
}

/// Reads a block.
pub(crate) type ReadBlock<'a> = Box<dyn FnOnce() -> Result<Payload> + Send + 'a>;

/// A record, and the part of the block that is its payload; none: the whole block.
pub(crate) type PartRecord = (Record, Option<Range<usize>>);

/// The next part of a stream.
enum Item<'a> {
    Record(Record, Vec<u8>),
    FreeObjects(FreeObjects),
    FreeRange(FreeRange),
    Redact(RedactRange),
    Block(Block<'a>),
}

/// A block, and the records with its parts.
struct Block<'a> {
    records: Vec<PartRecord>,
    bytes: usize,
    read: Read<'a>,
}

enum Read<'a> {
    Waiting(ReadBlock<'a>),
    Running,
    Done(Result<Payload>),
}

impl Item<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Record(_, payload) => payload.len(),
            Self::Block(block) => block.bytes,
            Self::FreeObjects(_) | Self::FreeRange(_) | Self::Redact(_) => 0,
        }
    }

    fn is_ready(&self) -> bool {
        match self {
            Self::Block(block) => matches!(block.read, Read::Done(_)),
            _ => true,
        }
    }

    fn write(self, out: &mut StreamWriter<'_>) -> Result<()> {
        match self {
            Self::Record(record, payload) => out.record(&record, &payload),
            Self::FreeObjects(range) => out.free_objects(range),
            Self::FreeRange(range) => out.free_range(range),
            Self::Redact(range) => out.redact_range(range),
            Self::Block(Block { records, read, .. }) => {
                let Read::Done(payload) = read else { return Err(ended()) };
                let payload = payload?;
                // a payload of another length than its record says is refused there
                let payload_of = |part: &Option<Range<usize>>| match part {
                    Some(part) => payload.get(part.clone()).unwrap_or_default(),
                    None => &payload,
                };
                records.iter().try_for_each(|(record, part)| out.record(record, payload_of(part)))
            }
        }
    }
}

impl<'a> Block<'a> {
    fn take_read(&mut self) -> Option<ReadBlock<'a>> {
        match replace(&mut self.read, Read::Running) {
            Read::Waiting(read) => Some(read),
            other => {
                self.read = other;
                None
            }
        }
    }
}

/// The records that the stream has not taken yet.
pub(crate) struct SendQueue<'a> {
    state: Mutex<State<'a>>,
    /// The stream took some.
    room: Condvar,
    /// A block is to be read.
    work: Condvar,
    /// The first record may be ready.
    front: Condvar,
}

#[derive(Default)]
struct State<'a> {
    items: VecDeque<Item<'a>>,
    /// The number of the first item in the whole stream.
    first: u64,
    /// No item with a lower number waits for a thread.
    unread: u64,
    bytes: usize,
    /// How the walk ended. The stream takes it.
    end: Option<Result<()>>,
    has_ended: bool,
    /// The stream takes nothing more, or a thread panicked.
    is_stopped: bool,
}

impl<'a> State<'a> {
    /// Blocks for a thread to read, with their numbers.
    fn take_reads(&mut self) -> Vec<(u64, ReadBlock<'a>)> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        self.unread = self.unread.max(self.first);
        while taken.len() < READ_BLOCKS && bytes < READ_BYTES {
            let at = units::to_usize(self.unread - self.first);
            let Some(item) = self.items.get_mut(at) else { break };
            if let Item::Block(block) = item
                && let Some(read) = block.take_read()
            {
                bytes += block.bytes;
                taken.push((self.unread, read));
            }
            self.unread += 1;
        }
        taken
    }

    fn finish_read(&mut self, number: u64, payload: Result<Payload>) {
        let at = number.checked_sub(self.first).map(units::to_usize);
        if let Some(Item::Block(block)) = at.and_then(|at| self.items.get_mut(at)) {
            block.read = Read::Done(payload);
        }
    }

    fn take_ready(&mut self) -> Vec<Item<'a>> {
        let mut taken = Vec::new();
        while taken.len() < WRITE_ITEMS
            && let Some(item) = self.items.pop_front_if(|item| item.is_ready())
        {
            self.first += 1;
            self.bytes -= item.bytes();
            taken.push(item);
        }
        taken
    }

    /// The read of the first item, if no thread has begun it.
    fn take_first_read(&mut self) -> Option<ReadBlock<'a>> {
        match self.items.front_mut() {
            Some(Item::Block(block)) => block.take_read(),
            _ => None,
        }
    }
}

/// The stream has ended before its walk, whose error is not shown.
fn ended() -> Error {
    Error::Pool { why: "the stream has ended".to_owned() }
}

/// Stops the queue if its thread panics, so that no thread waits for it.
struct StopOnPanic<'a, 'q>(&'q SendQueue<'a>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

impl<'a> SendQueue<'a> {
    pub(crate) fn new() -> Self {
        let (room, work, front) = Default::default();
        Self { state: Mutex::new(State::default()), room, work, front }
    }

    fn push_all(&self, items: Vec<Item<'a>>) -> Result<()> {
        let blocks = items.iter().filter(|item| matches!(item, Item::Block(_))).count();
        let mut state = self.state.lock();
        while (state.bytes >= MAX_BYTES || state.items.len() >= MAX_ITEMS) && !state.is_stopped {
            self.room.wait(&mut state);
        }
        if state.is_stopped {
            return Err(ended());
        }
        state.bytes += items.iter().map(Item::bytes).sum::<usize>();
        state.items.extend(items);
        drop(state);
        for _ in 0..blocks.min(READERS) {
            self.work.notify_one();
        }
        self.front.notify_one();
        Ok(())
    }

    /// Runs the walk, whose result the stream gets behind all records.
    pub(crate) fn run_walk(&self, walk: impl FnOnce() -> Result<()>) {
        let _guard = StopOnPanic(self);
        let end = walk();
        let mut state = self.state.lock();
        (state.end, state.has_ended) = (Some(end), true);
        drop(state);
        self.work.notify_all();
        self.front.notify_one();
    }

    fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.room.notify_all();
        self.work.notify_all();
        self.front.notify_all();
    }

    /// Reads blocks until the walk has ended.
    fn read_blocks(&self) {
        let _guard = StopOnPanic(self);
        let mut state = self.state.lock();
        while !state.is_stopped {
            let taken = state.take_reads();
            if !taken.is_empty() {
                let read = |(number, read): (u64, ReadBlock<'a>)| (number, read());
                let done: Vec<_> =
                    MutexGuard::unlocked(&mut state, || taken.into_iter().map(read).collect());
                for (number, payload) in done {
                    state.finish_read(number, payload);
                }
                self.front.notify_one();
            } else if state.has_ended {
                return;
            } else {
                self.work.wait(&mut state);
            }
        }
    }

    /// Writes all records, until the walk has ended or something fails.
    pub(crate) fn write_all(&self, out: &mut StreamWriter<'_>) -> Result<()> {
        let done = self.write_items(out);
        self.stop();
        done
    }

    fn write_items(&self, out: &mut StreamWriter<'_>) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            let ready = state.take_ready();
            if !ready.is_empty() {
                self.room.notify_one();
                MutexGuard::unlocked(&mut state, || {
                    ready.into_iter().try_for_each(|item| item.write(out))
                })?;
            } else if state.is_stopped {
                return Err(ended());
            } else if let Some(read) = state.take_first_read() {
                // all threads are busy, or the system gave none
                let number = state.first;
                let payload = MutexGuard::unlocked(&mut state, read);
                state.finish_read(number, payload);
            } else if state.items.is_empty()
                && let Some(end) = state.end.take()
            {
                return end;
            } else {
                self.front.wait(&mut state);
            }
        }
    }
}

/// The end of the queue at which the walk puts its records.
pub(crate) struct Outlet<'scope, 'env, 'a> {
    queue: &'env SendQueue<'a>,
    scope: &'scope Scope<'scope, 'env>,
    readers: usize,
    /// Records that are not in the queue yet.
    pending: Vec<Item<'a>>,
    bytes: usize,
}

impl<'scope, 'env, 'a> Outlet<'scope, 'env, 'a> {
    pub(crate) const fn new(
        queue: &'env SendQueue<'a>,
        scope: &'scope Scope<'scope, 'env>,
    ) -> Self {
        Self { queue, scope, readers: 0, pending: Vec::new(), bytes: 0 }
    }

    fn push(&mut self, item: Item<'a>) -> Result<()> {
        self.bytes += item.bytes();
        self.pending.push(item);
        if self.pending.len() < WALK_ITEMS && self.bytes < WALK_BYTES {
            return Ok(());
        }
        self.flush()
    }

    /// Puts all records into the queue. The walk ends with it.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let items = std::mem::take(&mut self.pending);
        self.bytes = 0;
        let blocks = items.iter().filter(|item| matches!(item, Item::Block(_)));
        let (count, bytes) = blocks.fold((0, 0), |(n, bytes), item| (n + 1, bytes + item.bytes()));
        self.queue.push_all(items)?;
        // small streams need few threads
        let wanted = usize::div_ceil(count, READ_BLOCKS).max(usize::div_ceil(bytes, READ_BYTES));
        for _ in self.readers..READERS.min(self.readers + wanted) {
            self.readers += 1;
            let queue = self.queue;
            // without it, the other threads read
            let _ = Builder::new()
                .name("send reader".to_owned())
                .spawn_scoped(self.scope, move || queue.read_blocks());
        }
        Ok(())
    }

    /// A record and its payload.
    pub(crate) fn record(&mut self, record: Record, payload: Vec<u8>) -> Result<()> {
        self.push(Item::Record(record, payload))
    }

    /// Records with parts of a block of this many bytes, which is to be read.
    pub(crate) fn block(
        &mut self,
        records: Vec<PartRecord>,
        bytes: u32,
        read: ReadBlock<'a>,
    ) -> Result<()> {
        let read = Read::Waiting(read);
        let bytes = units::to_usize(bytes);
        self.push(Item::Block(Block { records, bytes, read }))
    }

    /// No object of a range exists.
    pub(crate) fn free_objects(&mut self, range: FreeObjects) -> Result<()> {
        self.push(Item::FreeObjects(range))
    }

    /// A range of an object is a hole.
    pub(crate) fn free_range(&mut self, range: FreeRange) -> Result<()> {
        self.push(Item::FreeRange(range))
    }

    /// The stream leaves out a range of an object.
    pub(crate) fn redact_range(&mut self, range: RedactRange) -> Result<()> {
        self.push(Item::Redact(range))
    }
}

#[cfg(test)]
mod tests;
