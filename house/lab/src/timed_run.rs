//! One timed run on something with bytes: threads, each with one operation at a time, until the
//! time is over or the end is reached.
//!
//! The number of threads is the queue depth: this needs only `pread` and `pwrite`, and does
//! on every file system what programs do. Writes count until they are durable.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::histogram::Histogram;
use crate::machine::CpuTimes;
use crate::progress::Progress;
use crate::target::BlockTarget;
use crate::test_data::{AlignedBuffer, Random, TestData};
use crate::{Error, System};

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
    /// Writes, each of them safe before the next begins.
    SyncWrite,
}

/// In which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// From the begin to the end, once.
    Sequential,
    /// Anywhere, again and again.
    Random,
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) operation: Operation,
    pub(crate) order: Order,
    /// Bytes of an operation.
    pub(crate) block_size: u64,
    /// Operations at a time.
    pub(crate) queue_depth: usize,
    /// Where.
    pub(crate) range: Range<u64>,
    /// After how long it ends, if not before.
    pub(crate) time_limit: Option<Duration>,
    pub(crate) use_zeros: bool,
    pub(crate) seed: u64,
}

/// The result.
#[derive(Clone, Debug)]
pub(crate) struct RunResult {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    pub(crate) duration: Duration,
    pub(crate) histogram: Histogram,
    pub(crate) cpu_busy: Option<f64>,
}

/// The state that the threads share.
struct SharedState<'a> {
    target: &'a dyn BlockTarget,
    task: &'a Task,
    course: &'a Progress<'a>,
    start: Barrier,
    /// Operations assigned so far, of those that go once from the start to the end.
    next_slot: AtomicU64,
    completed: AtomicU64,
    stop: AtomicBool,
    histogram: Mutex<Histogram>,
    error: Mutex<Option<Error>>,
}

impl Task {
    /// Operations from the begin to the end.
    fn block_count(&self) -> u64 {
        (self.range.end - self.range.start) / self.block_size
    }

    /// Does it. None if it was stopped before its end.
    pub(crate) fn run(
        &self,
        blocks: &dyn BlockTarget,
        course: &Progress<'_>,
        system: &System,
    ) -> Result<Option<RunResult>, Error> {
        if self.block_count() == 0 || self.queue_depth == 0 {
            return Err(Error::invalid_request("not even one block fits: use a larger size"));
        }
        let shared = SharedState {
            target: blocks,
            task: self,
            course,
            start: Barrier::new(self.queue_depth + 1),
            next_slot: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            histogram: Mutex::default(),
            error: Mutex::default(),
        };
        let (began, busy) = std::thread::scope(|scope| {
            for thread in 0..self.queue_depth {
                let shared = &shared;
                scope.spawn(move || shared.run_worker(thread));
            }
            shared.start.wait();
            (Instant::now(), CpuTimes::read(system))
        });
        if let Some(error) = shared.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        if self.operation != Operation::Read {
            blocks.sync()?;
        }
        let time = began.elapsed();
        let busy = busy.and_then(|before| before.busy_fraction_until(CpuTimes::read(system)?));
        if course.is_cancelled() {
            return Ok(None);
        }
        let operations = shared.completed.into_inner();
        let histogram = shared.histogram.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Some(RunResult {
            operations,
            bytes: operations * self.block_size,
            duration: time,
            histogram,
            cpu_busy: busy,
        }))
    }
}

impl SharedState<'_> {
    fn run_worker(&self, thread: usize) {
        let seed = self.task.seed.wrapping_mul(1000).wrapping_add(thread as u64);
        let mut worker = Worker::new(self.task, seed);
        let mut histogram = Histogram::default();
        self.start.wait();
        let result = self.run_operations(&mut worker, &mut histogram);
        if let Err(error) = result {
            self.stop.store(true, Relaxed);
            *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
        self.histogram.lock().unwrap_or_else(PoisonError::into_inner).merge(&histogram);
    }

    fn run_operations(&self, worker: &mut Worker, histogram: &mut Histogram) -> Result<(), Error> {
        let task = self.task;
        let began = Instant::now();
        let mut before = began;
        while !self.stop.load(Relaxed) && !self.course.is_cancelled() {
            if task.time_limit.is_some_and(|time| before.duration_since(began) >= time) {
                break;
            }
            let slot = match task.order {
                Order::Random => worker.random.below(task.block_count()),
                Order::Sequential => self.next_slot.fetch_add(1, Relaxed),
            };
            if slot >= task.block_count() {
                break;
            }
            worker.run_operation(self.target, task, task.range.start + slot * task.block_size)?;
            let now = Instant::now();
            histogram.add(now - before);
            before = now;
            self.completed.fetch_add(1, Relaxed);
        }
        Ok(())
    }
}

/// The state of one thread.
struct Worker {
    random: Random,
    read_buffer: AlignedBuffer,
    write_data: Option<TestData>,
    block_size: usize,
}

impl Worker {
    fn new(task: &Task, seed: u64) -> Self {
        let block_size = usize::try_from(task.block_size).unwrap_or(usize::MAX);
        let reads = task.operation == Operation::Read;
        Self {
            random: Random::new(seed ^ 0x5eed),
            read_buffer: AlignedBuffer::new(if reads { block_size } else { 0 }),
            write_data: (!reads)
                .then(|| TestData::new(seed, block_size, task.queue_depth, task.use_zeros)),
            block_size,
        }
    }

    fn run_operation(
        &mut self,
        blocks: &dyn BlockTarget,
        task: &Task,
        at: u64,
    ) -> Result<(), Error> {
        match &mut self.write_data {
            None => blocks.read(at, self.read_buffer.as_mut())?,
            Some(content) => blocks.write(at, content.next_block(self.block_size))?,
        }
        if task.operation == Operation::SyncWrite { blocks.fsync() } else { Ok(()) }
    }
}
