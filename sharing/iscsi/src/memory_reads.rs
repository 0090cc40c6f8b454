//! Reads whose data is in memory: they are answered from the blocks of the cache, without a copy.

use crate::connection::Connection;
use crate::scsi::Command;
use crate::tasks::Task;

/// Bytes of the largest read that the reading thread carries out.
const MAX_SHORT_READ: usize = 64 << 10;

impl Connection<'_> {
    /// Answers a short read, if its data is in memory. Returns the task otherwise.
    pub(crate) fn answer_short_read(&self, task: Task) -> Option<Task> {
        let is_short =
            task.command.as_ref().is_ok_and(|command| command.data_in_bytes() <= MAX_SHORT_READ);
        if is_short
            && !task.is_aborted()
            && self.session.tasks.may_run(&task)
            && self.answer_from_memory(&task, true)
        {
            return None;
        }
        Some(task)
    }

    /// Answers a read whose data is in memory, without a copy of it. Returns whether it has done so.
    pub(crate) fn answer_from_memory(&self, task: &Task, is_delayed: bool) -> bool {
        let Ok(command @ Command::Read { blocks, fua: false }) = &task.command else {
            return false;
        };
        let Some(logical) = task.logical.as_deref() else { return false };
        // the parts keep blocks in memory that the cache may evict meanwhile
        let is_large = !is_delayed;
        let _reserved =
            is_large.then(|| self.shared.budget.reserve(&self.share, command.data_in_bytes()));
        // a read concerns no other unit
        let units = std::collections::BTreeMap::new();
        let parts =
            self.with_path(&units, Some(logical), |path| path.parts_in_memory(logical, *blocks));
        let Some(parts) = parts else { return false };
        self.conclude(task, &Ok(()), &parts.slices().collect::<Vec<_>>(), is_delayed);
        true
    }
}
