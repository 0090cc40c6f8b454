//! The environment of an imported pool.

use std::sync::Arc;

use arc::MemoryBudget;
use dsl::write::Moment;
use posix::Time;

/// Fills a buffer with random bytes.
pub type FillRandom = dyn Fn(&mut [u8]) + Send + Sync;

/// The environment of an imported pool: clock, random numbers, memory, host. The caller passes it
/// in.
#[derive(Clone)]
pub struct Environment {
    /// Fills a buffer with random bytes.
    pub random: Arc<FillRandom>,
    /// The time: seconds since 1970, and nanoseconds.
    pub now: Arc<dyn Fn() -> (u64, u32) + Send + Sync>,
    /// How many threads may work at once.
    pub workers: usize,
    /// Bytes of changes that may wait to be written.
    pub max_dirty: u64,
    /// The memory for cached reads; all pools that are imported with a clone of it share it.
    pub cache: MemoryBudget,
    /// The host: its number and its name.
    pub host: (u64, String),
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({} workers)", self.workers)
    }
}

/// Random numbers for the floors below.
pub(crate) struct Random(pub(crate) Arc<FillRandom>);

impl zio::Random for Random {
    fn fill(&self, bytes: &mut [u8]) {
        (self.0)(bytes);
    }
}

impl Environment {
    pub(super) fn to_spa(&self) -> spa::Environment {
        let now = Arc::clone(&self.now);
        spa::Environment {
            random: Arc::new(Random(Arc::clone(&self.random))),
            now: Arc::new(move || {
                let (seconds, nanoseconds) = now();
                Moment { seconds, nanoseconds: nanoseconds.into() }
            }),
            workers: self.workers.max(1),
            limits: txg::TxgLimits::with_max_dirty(self.max_dirty),
            cache: self.cache.clone(),
        }
    }

    pub(super) fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        (self.random)(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    pub(super) fn znode_time(&self) -> Time {
        let (seconds, nanoseconds) = (self.now)();
        let seconds = units::narrow::<i64>(seconds);
        Time { seconds, nanoseconds }
    }
}
