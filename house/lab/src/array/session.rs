//! An imported pool, from one cold start to the next, and its sync thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::files::{Content, Time};
use engine::pool::{Environment, MemoryBudget, OpenFileSystem, Pool};
use posix::{ChangeContext, Credentials};

use crate::test_data::Random;
use crate::{Error, Machine, System};

/// The interval of txg syncs.
const TXG_SYNC_INTERVAL: Duration = Duration::from_secs(5);
/// The limit of dirty data: a tenth of the memory, within these bounds.
const DIRTY_LIMITS: (u64, u64) = (64 << 20, 4 << 30);

/// An imported pool.
pub(super) struct Session {
    pool: Pool,
    stop: Arc<AtomicBool>,
    sync_thread: Option<JoinHandle<engine::Result<()>>>,
    /// Files that were opened to be read, by number.
    contents: Mutex<HashMap<u64, Content>>,
}

/// The state of the pool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseAction {
    /// It is closed, to be opened again.
    Close,
    /// It is exported.
    Destroy,
}

impl Session {
    /// Requests a sync.
    pub(super) fn new(pool: Pool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let writer = {
            let (pool, stop) = (pool.clone(), Arc::clone(&stop));
            std::thread::spawn(move || pool.background().run_txg_sync(TXG_SYNC_INTERVAL, &stop))
        };
        Self { pool, stop, sync_thread: Some(writer), contents: Mutex::default() }
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A file system of it.
    pub(super) fn open_filesystem(&self, name: &str) -> Result<OpenFileSystem, Error> {
        Ok(self.pool.datasets().filesystem(name)?)
    }

    /// The open file, for reads.
    pub(super) fn open_content(&self, files: &OpenFileSystem, id: u64) -> Result<Content, Error> {
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(content) = contents.get(&id) {
            return Ok(content.clone());
        }
        let content = files.reader().file(id)?.content();
        contents.insert(id, content.clone());
        Ok(content)
    }

    /// Closes the open file: it was extended, or removed.
    pub(super) fn invalidate_content(&self, id: u64) {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// Ends it.
    pub(super) fn close(mut self, how: CloseAction) -> Result<(), Error> {
        Ok(self.shut_down(how)?)
    }

    fn shut_down(&mut self, how: CloseAction) -> engine::Result<()> {
        let Some(writer) = self.sync_thread.take() else { return Ok(()) };
        self.contents.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.stop.store(true, Release);
        let done = match how {
            CloseAction::Close => self.pool.close(),
            CloseAction::Destroy => self.pool.destroy_pool(),
        };
        // if it could not write this, it cannot write the end either
        drop(writer.join());
        done
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // an earlier error is reported instead
        drop(self.shut_down(CloseAction::Close));
    }
}

/// The time: seconds since 1970, and nanoseconds.
fn now() -> (u64, u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs(), now.subsec_nanos())
}

/// The credentials of file changes.
pub(super) fn credentials() -> ChangeContext {
    let (seconds, nanoseconds) = now();
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    ChangeContext { credentials: Credentials::new(0, 0), now: Time { seconds, nanoseconds } }
}

/// The engine's environment. These pools are temporary, so their random numbers need only differ.
pub(super) fn environment(system: &System) -> Environment {
    let (seconds, nanoseconds) = now();
    let random = Mutex::new(Random::new(seconds ^ (u64::from(nanoseconds) << 32)));
    let machine = Machine::read(system);
    let (least, most) = DIRTY_LIMITS;
    Environment {
        random: Arc::new(move |bytes| {
            let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
            for part in bytes.chunks_mut(8) {
                part.copy_from_slice(&random.next_u64().to_le_bytes()[..part.len()]);
            }
        }),
        now: Arc::new(now),
        workers: machine.processors,
        max_dirty: (machine.memory_bytes / 10).clamp(least, most),
        cache: MemoryBudget::default(),
        host: (1, machine.name),
    }
}
