//! Changes to the pool's own objects, made by the one who writes a group.

use std::sync::Arc;

use dsl::write::SyncTaskContext;
use lock::{Mutex, rank};
use txg::Tx;
use units::Txg;

use super::ActivePool;
use crate::Error;

/// Something to be done to the pool's own objects.
type TaskFn = Box<dyn FnOnce(&ActivePool, &SyncTaskContext<'_>) + Send>;

struct SyncTask {
    id: u64,
    /// The group that was open when it was asked for.
    min_txg: Txg,
    /// Whether it runs before anything of the txg is written or freed.
    is_early: bool,
    run: TaskFn,
}

/// What is to be done, in the order in which it was asked for.
#[derive(Default)]
pub(crate) struct SyncTasks(Mutex<TaskQueue, { rank::TASKS }>);

#[derive(Default)]
struct TaskQueue {
    last_id: u64,
    tasks: Vec<SyncTask>,
}

impl SyncTasks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().tasks.is_empty()
    }

    fn add(&self, asked_in: Txg, is_early: bool, work: TaskFn) -> u64 {
        let mut asked = self.0.lock();
        asked.last_id += 1;
        let number = asked.last_id;
        asked.tasks.push(SyncTask { id: number, min_txg: asked_in, is_early, run: work });
        number
    }

    /// Those that may be done with a group. One that was closed before they were asked for has not
    /// all that was written by then, and knows nothing of room that was had since.
    pub(super) fn drain_ready(&self, txg: Txg) -> Vec<TaskFn> {
        self.drain(|task| task.min_txg <= txg)
    }

    /// Those of them that run before anything of the txg is written or freed.
    pub(super) fn drain_early(&self, txg: Txg) -> Vec<TaskFn> {
        self.drain(|task| task.min_txg <= txg && task.is_early)
    }

    fn drain(&self, is_due: impl Fn(&SyncTask) -> bool) -> Vec<TaskFn> {
        let mut asked = self.0.lock();
        let all = std::mem::take(&mut asked.tasks);
        // Rule: tasks run in the order in which they were requested. A command that returned has its change before
        // those of later commands, and a crash between two txgs leaves the earlier one.
        assert!(all.is_sorted_by_key(|task| task.id), "tasks are queued in their order");
        let (now, later): (Vec<_>, _) = all.into_iter().partition(is_due);
        asked.tasks = later;
        now.into_iter().map(|task| task.run).collect()
    }

    /// It is not to be done any more, unless it was begun. Returns whether it was not.
    fn cancel(&self, number: u64) -> bool {
        let mut asked = self.0.lock();
        let before = asked.tasks.len();
        asked.tasks.retain(|task| task.id != number);
        asked.tasks.len() < before
    }
}

impl ActivePool {
    /// Has something done with the open group, or a later one; nobody waits for that. Gives its number.
    pub(super) fn queue_sync_task(
        &self,
        task: impl FnOnce(&Self, &SyncTaskContext<'_>) + Send + 'static,
    ) -> u64 {
        if self.is_read_only {
            return 0;
        }
        self.tasks.add(self.txgs.open_txg(), false, Box::new(task))
    }

    /// Has something done to the pool's own objects with the open group, or a later one, and waits
    /// until that is on the drives. Gives what the doing gave. Where the pool stands still, or ends,
    /// before it was begun, it is not done later, when nobody expects that any more.
    pub fn run_sync_task<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, &SyncTaskContext<'_>) -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.run_task(false, work)
    }

    /// The same before anything of the txg is written or freed.
    pub(super) fn run_early_sync_task<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, &SyncTaskContext<'_>) -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.run_task(true, work)
    }

    /// The same with the txg that is held, whose hold is then dropped. `undo` runs if the task is not done.
    pub(super) fn run_sync_task_in<T: Send + 'static>(
        &self,
        tx: Tx,
        work: impl FnOnce(&Self, &SyncTaskContext<'_>) -> T + Send + 'static,
        undo: &dyn Fn(),
    ) -> Result<T, Error> {
        self.run_task_in(Some(tx), false, work, undo)
    }

    fn run_task<T: Send + 'static>(
        &self,
        is_early: bool,
        work: impl FnOnce(&Self, &SyncTaskContext<'_>) -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.run_task_in(None, is_early, work, &|| ())
    }

    fn run_task_in<T: Send + 'static>(
        &self,
        held: Option<Tx>,
        is_early: bool,
        work: impl FnOnce(&Self, &SyncTaskContext<'_>) -> T + Send + 'static,
        undo: &dyn Fn(),
    ) -> Result<T, Error> {
        if self.is_read_only {
            return Err(Error::ImportedReadOnly);
        }
        let result = Arc::new(parking_lot::Mutex::new(None));
        let answer = Arc::clone(&result);
        let run = Box::new(move |active: &Self, change: &SyncTaskContext<'_>| {
            *answer.lock() = Some(work(active, change));
        });
        // Rule: the task is queued while its txg is held. The sync begins when the hold is dropped, and finds the
        // task; otherwise the txg could have the held changes without those of the task.
        let first = held.as_ref().map_or_else(|| self.txgs.open_txg(), Tx::txg);
        let task = self.tasks.add(first, is_early, run);
        drop(held);
        self.sync().inspect_err(|_| {
            if self.tasks.cancel(task) {
                undo();
            }
        })?;
        let done = result.lock().take();
        done.ok_or(Error::Closed)
    }
}
