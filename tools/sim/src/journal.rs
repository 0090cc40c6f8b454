//! All requests to a set of drives, in order.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device::MemoryDevice;

use crate::power_cut::JournalCursor;

/// A request to a drive.
#[derive(Clone, Debug)]
pub enum EventKind {
    /// Bytes were written.
    Write {
        /// Where, in bytes from the drive's start.
        offset: u64,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
    /// All earlier writes of the drive were made to last.
    Flush,
    /// That failed: each write since the last good flush will last, or never will.
    FailedFlush,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Event {
    /// The index of the drive.
    pub disk: usize,
    /// The request.
    pub kind: EventKind,
}

/// The content of a journal.
#[derive(Debug)]
pub(crate) struct JournalState {
    /// The drives before the first request.
    pub(crate) initial_disks: Vec<MemoryDevice>,
    /// The requests.
    pub(crate) events: Vec<Event>,
    /// How many requests there were that are not kept; none: all are kept.
    pub(crate) counted: Option<usize>,
    /// Where the last cut was made, so that the next need not begin from the start.
    pub(crate) cursor: Option<JournalCursor>,
}

/// All requests to a set of drives, in order. Clones are the same journal.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Mutex<JournalState>>);

impl Journal {
    pub(crate) fn new(start: Vec<MemoryDevice>) -> Self {
        Self(Arc::new(Mutex::new(JournalState {
            initial_disks: start,
            events: Vec::new(),
            counted: None,
            cursor: None,
        })))
    }

    /// A journal that counts requests and does not keep them.
    pub(crate) fn of_counts() -> Self {
        let journal = Self::new(Vec::new());
        journal.lock().counted = Some(0);
        journal
    }

    pub(crate) fn record(&self, event: impl FnOnce() -> Event) {
        let mut state = self.lock();
        match &mut state.counted {
            Some(count) => *count += 1,
            None => state.events.push(event()),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, JournalState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many requests there were: a point in time.
    pub fn len(&self) -> usize {
        let state = self.lock();
        state.counted.unwrap_or(state.events.len())
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The requests from the `from`-th on.
    pub fn events(&self, from: usize) -> Vec<Event> {
        self.lock().events.get(from..).unwrap_or_default().to_vec()
    }

    /// The possible content of the drives if the power had failed after the first `at` requests.
    /// `seed` chooses among the possibilities; 0: no unflushed write survived, 1: all did.
    /// Cuts at rising points are cheap: each continues from the one before.
    ///
    /// # Panics
    /// If these drives keep no journal.
    pub fn cut_power(&self, at: usize, seed: u64) -> Vec<MemoryDevice> {
        let mut record = self.lock();
        let JournalState { initial_disks: start, events, counted, cursor: sweep } = &mut *record;
        assert!(counted.is_none(), "these drives keep no journal");
        let at = at.min(events.len());
        let mut reached = match sweep.take() {
            Some(sweep) if sweep.position() <= at => sweep,
            _ => JournalCursor::new(start),
        };
        reached.advance(events, at);
        let found = reached.cut_power(events, seed);
        *sweep = Some(reached);
        found
    }
}
