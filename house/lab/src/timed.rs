//! One timed run on something with bytes: threads, each with one operation at a time, until the
//! time is over or the end is reached.
//!
//! So many threads are the queue depth: it needs nothing of the kernel but `pread` and `pwrite`, and
//! does on every file system what programs do. Writing counts until all is safe.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::content::{Aligned, Content, Random};
use crate::course::Course;
use crate::histogram::Histogram;
use crate::machine::Busy;
use crate::store::Blocks;
use crate::{Error, System};

/// What the operations do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Read,
    Write,
    /// Writes, each of them safe before the next begins.
    Sync,
}

/// In which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// From the begin to the end, once.
    Once,
    /// Anywhere, again and again.
    Random,
}

/// What to do.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) verb: Verb,
    pub(crate) order: Order,
    /// Bytes of an operation.
    pub(crate) block: u64,
    /// Operations at a time.
    pub(crate) depth: usize,
    /// Where.
    pub(crate) span: Range<u64>,
    /// After how long it ends, if not before.
    pub(crate) time: Option<Duration>,
    pub(crate) zeros: bool,
    pub(crate) seed: u64,
}

/// What came out.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
    pub(crate) histogram: Histogram,
    pub(crate) busy: Option<f64>,
}

/// What the threads share.
struct Shared<'a> {
    blocks: &'a dyn Blocks,
    task: &'a Task,
    course: &'a Course<'a>,
    start: Barrier,
    /// Operations given out so far, of those that go once from the begin to the end.
    given: AtomicU64,
    done: AtomicU64,
    end: AtomicBool,
    histogram: Mutex<Histogram>,
    error: Mutex<Option<Error>>,
}

impl Task {
    /// Operations from the begin to the end.
    fn slots(&self) -> u64 {
        (self.span.end - self.span.start) / self.block
    }

    /// Does it. None if it was stopped before its end.
    pub(crate) fn run(
        &self,
        blocks: &dyn Blocks,
        course: &Course<'_>,
        system: &System,
    ) -> Result<Option<Ran>, Error> {
        if self.slots() == 0 || self.depth == 0 {
            return Err(Error::asked("there is no room for a single block: ask for a larger size"));
        }
        let shared = Shared {
            blocks,
            task: self,
            course,
            start: Barrier::new(self.depth + 1),
            given: AtomicU64::new(0),
            done: AtomicU64::new(0),
            end: AtomicBool::new(false),
            histogram: Mutex::default(),
            error: Mutex::default(),
        };
        let (began, busy) = std::thread::scope(|scope| {
            for thread in 0..self.depth {
                let shared = &shared;
                scope.spawn(move || shared.work(thread));
            }
            shared.start.wait();
            (Instant::now(), Busy::now(system))
        });
        if let Some(error) = shared.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        if self.verb != Verb::Read {
            blocks.settle()?;
        }
        let time = began.elapsed();
        let busy = busy.and_then(|before| before.until(Busy::now(system)?));
        if course.stopped() {
            return Ok(None);
        }
        let operations = shared.done.into_inner();
        let histogram = shared.histogram.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Some(Ran { operations, bytes: operations * self.block, time, histogram, busy }))
    }
}

impl Shared<'_> {
    fn work(&self, thread: usize) {
        let seed = self.task.seed.wrapping_mul(1000).wrapping_add(thread as u64);
        let mut worker = Worker::new(self.task, seed);
        let mut histogram = Histogram::default();
        self.start.wait();
        let result = self.repeat(&mut worker, &mut histogram);
        if let Err(error) = result {
            self.end.store(true, Relaxed);
            *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
        self.histogram.lock().unwrap_or_else(PoisonError::into_inner).merge(&histogram);
    }

    fn repeat(&self, worker: &mut Worker, histogram: &mut Histogram) -> Result<(), Error> {
        let task = self.task;
        let began = Instant::now();
        let mut before = began;
        while !self.end.load(Relaxed) && !self.course.stopped() {
            if task.time.is_some_and(|time| before.duration_since(began) >= time) {
                break;
            }
            let slot = match task.order {
                Order::Random => worker.random.below(task.slots()),
                Order::Once => self.given.fetch_add(1, Relaxed),
            };
            if slot >= task.slots() {
                break;
            }
            worker.operate(self.blocks, task, task.span.start + slot * task.block)?;
            let now = Instant::now();
            histogram.add(now - before);
            before = now;
            self.done.fetch_add(1, Relaxed);
        }
        Ok(())
    }
}

/// What one thread needs.
struct Worker {
    random: Random,
    into: Aligned,
    content: Option<Content>,
    block: usize,
}

impl Worker {
    fn new(task: &Task, seed: u64) -> Self {
        let block = usize::try_from(task.block).unwrap_or(usize::MAX);
        let reads = task.verb == Verb::Read;
        Self {
            random: Random::new(seed ^ 0x5eed),
            into: Aligned::new(if reads { block } else { 0 }),
            content: (!reads).then(|| Content::new(seed, block, task.depth, task.zeros)),
            block,
        }
    }

    fn operate(&mut self, blocks: &dyn Blocks, task: &Task, at: u64) -> Result<(), Error> {
        match &mut self.content {
            None => blocks.read(at, self.into.as_mut())?,
            Some(content) => blocks.write(at, content.next_block(self.block))?,
        }
        if task.verb == Verb::Sync { blocks.promise() } else { Ok(()) }
    }
}
