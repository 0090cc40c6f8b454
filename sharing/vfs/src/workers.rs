//! Threads that fetch blocks before somebody asks for them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use engine::files::Content;
use parking_lot::{Condvar, Mutex};

use crate::Reader;

/// The threads; they end when this is dropped.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    turned: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

enum Job {
    /// A block for a reader.
    Fetch(Weak<Reader>, u64),
    /// A range of what may change meanwhile: it is only brought into the pool's cache.
    Warm(Arc<Content>, Range<u64>),
}

/// More are not kept: who asks for the block then fetches it.
const LONGEST: usize = 1024;
const MOST_THREADS: usize = 8;

/// A way to give the threads work.
#[derive(Clone)]
pub(crate) struct Errands(Weak<Shared>);

impl Workers {
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared { queue: Mutex::default(), turned: Condvar::new() });
        let count = std::thread::available_parallelism().map_or(2, usize::from);
        let threads = (0..count.clamp(2, MOST_THREADS)).filter_map(|number| {
            let shared = Arc::clone(&shared);
            let named = std::thread::Builder::new().name(format!("read-ahead-{number}"));
            // without them everything works, only slower
            named.spawn(move || shared.work()).ok()
        });
        let threads = threads.collect();
        Self { shared, threads }
    }

    pub(crate) fn errands(&self) -> Errands {
        Errands(Arc::downgrade(&self.shared))
    }
}

impl Errands {
    /// Has blocks of a file fetched.
    pub(crate) fn send(&self, reader: &Arc<Reader>, blocks: &[u64]) {
        let Some(shared) = self.0.upgrade() else { return };
        if blocks.is_empty() {
            return;
        }
        let mut queue = shared.queue.lock();
        for block in blocks {
            if queue.jobs.len() < LONGEST {
                queue.jobs.push_back(Job::Fetch(Arc::downgrade(reader), *block));
            }
        }
        drop(queue);
        shared.turned.notify_all();
    }

    /// Has a range of a file brought into the pool's cache, block by block.
    pub(crate) fn warm(&self, content: Content, range: Range<u64>) {
        let Some(shared) = self.0.upgrade() else { return };
        let block = content.block_size().max(1);
        let end = range.end.min(content.size());
        let content = Arc::new(content);
        let mut queue = shared.queue.lock();
        let mut at = range.start / block * block;
        while at < end && queue.jobs.len() < LONGEST {
            let behind = at.saturating_add(block);
            queue.jobs.push_back(Job::Warm(Arc::clone(&content), at..behind));
            at = behind;
        }
        drop(queue);
        shared.turned.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        while !queue.is_closed {
            let Some(job) = queue.jobs.pop_front() else {
                self.turned.wait(&mut queue);
                continue;
            };
            drop(queue);
            job.run();
            queue = self.queue.lock();
        }
    }
}

impl Job {
    fn run(self) {
        match self {
            Self::Fetch(reader, block) => {
                // nobody reads a file any more that was closed
                if let Some(reader) = reader.upgrade() {
                    reader.fetch_ahead(block);
                }
            }
            Self::Warm(content, range) => {
                // who asks for it is told if it cannot be read
                let _ = content.piece(range.start, range.end);
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.turned.notify_all();
        let own = std::thread::current().id();
        for thread in self.threads.drain(..) {
            if thread.thread().id() != own {
                // a thread that panicked has said so itself
                let _ = thread.join();
            }
        }
    }
}
