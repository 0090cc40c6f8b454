//! Threads that prefetch blocks.
//!
//! They start when there is work, and end after some idle time: an unused file system has none.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::files::Content;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use units::MinusOrZero as _;

use crate::FileReader;

/// The threads; they end when this is dropped.
pub(crate) struct PrefetchWorkers {
    shared: Arc<SharedQueue>,
}

struct SharedQueue {
    queue: Mutex<JobQueue>,
    queue_changed: Condvar,
}

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<PrefetchJob>,
    is_closed: bool,
    /// All that were started, until they are seen to have ended.
    threads: Vec<JoinHandle<()>>,
    /// The number of threads that are idle.
    running: usize,
    /// Of those, the ones that wait for a job.
    idle: usize,
}

enum PrefetchJob {
    /// A block for a reader.
    FetchBlock(Weak<FileReader>, u64),
    /// A range that may change meanwhile: it is only read into the pool's cache.
    WarmCache(Arc<Content>, Range<u64>),
}

/// The longest queue: a block beyond it is fetched by its reader.
const MAX_QUEUED: usize = 1024;
const MAX_THREADS: usize = 8;
/// How long a thread waits for a job before it ends.
const IDLE: Duration = Duration::from_secs(5);

/// A way to give the threads work.
#[derive(Clone)]
pub(crate) struct PrefetchHandle(Weak<SharedQueue>);

impl PrefetchWorkers {
    /// No thread yet.
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::new(SharedQueue {
                queue: Mutex::default(),
                queue_changed: Condvar::new(),
            }),
        }
    }

    pub(crate) fn handle(&self) -> PrefetchHandle {
        PrefetchHandle(Arc::downgrade(&self.shared))
    }
}

impl PrefetchHandle {
    /// Has blocks of a file fetched.
    pub(crate) fn queue_blocks(&self, reader: &Arc<FileReader>, blocks: &[u64]) {
        let Some(shared) = self.0.upgrade() else { return };
        if blocks.is_empty() {
            return;
        }
        let mut queue = shared.queue.lock();
        for block in blocks {
            if queue.jobs.len() < MAX_QUEUED {
                queue.jobs.push_back(PrefetchJob::FetchBlock(Arc::downgrade(reader), *block));
            }
        }
        shared.wake(queue);
    }

    /// Has a range of a file brought into the pool's cache, block by block.
    pub(crate) fn queue_warming(&self, content: Content, range: Range<u64>) {
        let Some(shared) = self.0.upgrade() else { return };
        let block = content.block_size().max(1);
        let end = range.end.min(content.size());
        let content = Arc::new(content);
        let mut queue = shared.queue.lock();
        let mut at = range.start / block * block;
        while at < end && queue.jobs.len() < MAX_QUEUED {
            let behind = at + block;
            queue.jobs.push_back(PrefetchJob::WarmCache(Arc::clone(&content), at..behind));
            at = behind;
        }
        shared.wake(queue);
    }
}

impl SharedQueue {
    /// Starts threads for the waiting jobs, up to the limit.
    fn wake(self: &Arc<Self>, mut queue: MutexGuard<'_, JobQueue>) {
        queue.threads.retain(|thread| !thread.is_finished());
        let most =
            std::thread::available_parallelism().map_or(2, usize::from).clamp(2, MAX_THREADS);
        let missing = queue.jobs.len().minus_or_zero(queue.idle);
        let more = missing.min(most.minus_or_zero(queue.running));
        for _ in 0..if queue.is_closed { 0 } else { more } {
            let shared = Arc::clone(self);
            let named = std::thread::Builder::new().name(format!("read-ahead-{}", queue.running));
            // without them everything works, only slower
            let work = move || {
                run_on_any_processor();
                shared.run_jobs();
            };
            let Ok(thread) = named.spawn(work) else { break };
            queue.running += 1;
            queue.threads.push(thread);
        }
        drop(queue);
        self.queue_changed.notify_all();
    }

    fn run_jobs(&self) {
        let mut queue = self.queue.lock();
        while !queue.is_closed {
            let Some(job) = queue.jobs.pop_front() else {
                queue.idle += 1;
                let has_waited = self.queue_changed.wait_for(&mut queue, IDLE).timed_out();
                queue.idle -= 1;
                if has_waited && queue.jobs.is_empty() {
                    break;
                }
                continue;
            };
            drop(queue);
            engine::files::read_ahead(|| job.run());
            queue = self.queue.lock();
        }
        queue.running -= 1;
    }
}

/// Lets this thread run on all processors of the process. The thread that started it may be bound
/// to one processor, like the request threads.
fn run_on_any_processor() {
    // bound to one processor it works, only slower
    if let Ok(processors) = sched_getaffinity(Some(rustix::process::getpid())) {
        let _ = sched_setaffinity(None, &processors);
    }
}

impl PrefetchJob {
    fn run(self) {
        match self {
            Self::FetchBlock(reader, block) => {
                // a closed file gets no more reads
                if let Some(reader) = reader.upgrade() {
                    reader.prefetch_block(block);
                }
            }
            Self::WarmCache(content, range) => {
                // the reader gets the error
                let _ = content.read_chunk(range.start, range.end);
            }
        }
    }
}

impl Drop for PrefetchWorkers {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.is_closed = true;
        // its references to the file system end with it
        queue.jobs.clear();
        let threads = std::mem::take(&mut queue.threads);
        drop(queue);
        self.shared.queue_changed.notify_all();
        let own = std::thread::current().id();
        for thread in threads {
            if thread.thread().id() != own {
                // a thread that panicked has reported it already
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::{PrefetchJob, PrefetchWorkers, run_on_any_processor};

    #[test]
    fn threads_run_where_the_process_may() {
        let own = sched_getaffinity(Some(rustix::process::getpid())).unwrap();
        let bound = std::thread::spawn(|| {
            let mut one = CpuSet::new();
            let myself = sched_getaffinity(None).unwrap();
            one.set((0..CpuSet::MAX_CPU).find(|number| myself.is_set(*number)).unwrap());
            sched_setaffinity(None, &one).unwrap();
            run_on_any_processor();
            sched_getaffinity(None).unwrap()
        });
        assert!(bound.join().unwrap() == own);
    }

    #[test]
    fn threads_start_with_the_first_jobs() {
        let workers = PrefetchWorkers::new();
        let threads = || workers.shared.queue.lock().threads.len();
        assert_eq!(threads(), 0);
        for _ in 0..100 {
            let mut queue = workers.shared.queue.lock();
            queue.jobs.push_back(PrefetchJob::FetchBlock(Weak::new(), 0));
            workers.shared.wake(queue);
        }
        assert!((1..=8).contains(&threads()));
        while !workers.shared.queue.lock().jobs.is_empty() {
            std::thread::yield_now();
        }
    }
}
