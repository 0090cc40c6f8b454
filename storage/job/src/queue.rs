//! A queue of work for several threads.
//!
//! There are two kinds of work: tasks, such as to walk over something, create more work, and
//! batches hold the items that tasks found. A free thread takes a batch before a task, so that few
//! items wait. A thread that finds enough batches waiting does its own batch itself. So no thread
//! ever waits for space in the queue.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// A piece of work.
#[derive(Debug)]
pub enum Work<B, T> {
    /// Blocks to be examined.
    Batch(B),
    /// A task, which creates more work.
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
    /// A queue with at most this many waiting batches.
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

    /// The next work; waits while other threads may still create some; `None` when there is none
    /// left. After a task the caller must call [`Queue::finish_task`].
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
