//! What is still to be done, and by how many it is being done.
//!
//! Two kinds of work: to walk an object set, which makes more work, and to examine a batch of the
//! blocks so found. Whoever is free takes a batch before a walk, so that what is waiting stays
//! little; and a walker who finds that enough is waiting does its batch itself. So nobody ever
//! waits for room.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// Batches that may wait.
const MOST_WAITING: usize = 64;

/// A piece of work.
pub(crate) enum Work<B, T> {
    /// Blocks to be examined.
    Batch(B),
    /// What makes more work.
    Task(T),
}

struct State<B, T> {
    batches: VecDeque<B>,
    tasks: VecDeque<T>,
    /// How many tasks are being done.
    active: usize,
}

/// A queue of batches and tasks.
pub(crate) struct Queue<B, T> {
    state: Mutex<State<B, T>>,
    change: Condvar,
}

impl<B, T> Default for Queue<B, T> {
    fn default() -> Self {
        let state = State { batches: VecDeque::new(), tasks: VecDeque::new(), active: 0 };
        Self { state: Mutex::new(state), change: Condvar::new() }
    }
}

impl<B, T> Queue<B, T> {
    /// Adds tasks.
    pub(crate) fn add(&self, tasks: impl IntoIterator<Item = T>) {
        self.state.lock().tasks.extend(tasks);
        self.change.notify_all();
    }

    /// Adds a batch, or gives it back where enough is waiting.
    pub(crate) fn offer(&self, batch: B) -> Option<B> {
        let mut state = self.state.lock();
        if state.batches.len() >= MOST_WAITING {
            return Some(batch);
        }
        state.batches.push_back(batch);
        drop(state);
        self.change.notify_one();
        None
    }

    /// The next work; waits while others may still make some; `None` when there is none left.
    /// After a task [`Queue::done`] must be said.
    pub(crate) fn take(&self) -> Option<Work<B, T>> {
        let mut state = self.state.lock();
        loop {
            if let Some(batch) = state.batches.pop_front() {
                return Some(Work::Batch(batch));
            }
            if let Some(task) = state.tasks.pop_front() {
                state.active += 1;
                return Some(Work::Task(task));
            }
            if state.active == 0 {
                return None;
            }
            self.change.wait(&mut state);
        }
    }

    /// A task that was taken is done.
    pub(crate) fn done(&self) {
        let mut state = self.state.lock();
        state.active = state.active.saturating_sub(1);
        let over = state.active == 0;
        drop(state);
        if over {
            self.change.notify_all();
        }
    }
}
