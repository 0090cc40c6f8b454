//! What is still to be done, and by how many it is being done.
//!
//! Two kinds of work: tasks, such as to walk over something, which make more work, and batches of
//! what was so found. Whoever is free takes a batch before a task, so that what is waiting stays
//! little; and who makes batches and finds that enough is waiting does its batch itself. So nobody ever
//! waits for room.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// A piece of work.
#[derive(Debug)]
pub enum Work<B, T> {
    /// Blocks to be examined.
    Batch(B),
    /// What makes more work.
    Task(T),
}

#[derive(Debug)]
struct State<B, T> {
    batches: VecDeque<B>,
    tasks: VecDeque<T>,
    /// How many tasks are being done.
    active: usize,
}

/// A queue of batches and tasks.
#[derive(Debug)]
pub struct Queue<B, T> {
    /// Batches that may wait.
    max_batches: usize,
    state: Mutex<State<B, T>>,
    change: Condvar,
}

impl<B, T> Queue<B, T> {
    /// In which at most so many batches wait.
    pub fn new(max_batches: usize) -> Self {
        let state = State { batches: VecDeque::new(), tasks: VecDeque::new(), active: 0 };
        Self { max_batches, state: Mutex::new(state), change: Condvar::new() }
    }

    /// Adds tasks.
    pub fn push_tasks(&self, tasks: impl IntoIterator<Item = T>) {
        self.state.lock().tasks.extend(tasks);
        self.change.notify_all();
    }

    /// Adds a batch. If enough batches wait, returns the oldest one, which the caller does itself: so
    /// batches are done in about the order in which they were added.
    pub fn push_batch(&self, batch: B) -> Option<B> {
        let mut state = self.state.lock();
        state.batches.push_back(batch);
        let is_full = state.batches.len() > self.max_batches;
        let oldest = if is_full { state.batches.pop_front() } else { None };
        drop(state);
        self.change.notify_one();
        oldest
    }

    /// The next work; waits while others may still make some; `None` when there is none left.
    /// After a task [`Queue::finish_task`] must be said.
    pub fn pop(&self) -> Option<Work<B, T>> {
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
    pub fn finish_task(&self) {
        let mut state = self.state.lock();
        state.active -= 1;
        let over = state.active == 0;
        drop(state);
        if over {
            self.change.notify_all();
        }
    }
}
