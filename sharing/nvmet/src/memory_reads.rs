//! Reads whose data are in memory: they are answered from the blocks of the cache, without a copy.

use crate::connection::{Connection, number};
use crate::io::{self as commands, IoContext};
use crate::status::Counters;
use crate::transfer::Task;

/// Bytes of the largest read that the reading thread answers.
const MAX_SHORT_READ: usize = 64 << 10;

impl Connection<'_> {
    /// Answers a short read, if its data is in memory. Returns whether it has done so.
    pub(crate) fn answer_short_read(&self, task: &Task) -> bool {
        commands::data_in_length(task) <= MAX_SHORT_READ && self.answer_from_memory(task, true)
    }

    /// Answers a read whose data is in memory, without a copy of it. Returns whether it has done so.
    pub(crate) fn answer_from_memory(&self, task: &Task, is_delayed: bool) -> bool {
        let Some(attached) = self.attached.get() else { return false };
        let context = IoContext { controller: &attached.controller };
        let Some(parts) = commands::parts_in_memory(&context, task) else { return false };
        let data: Vec<_> = parts.slices().collect();
        let read_bytes = number(data.iter().map(|part| part.len()).sum());
        attached.controller.counters.add(&Counters {
            commands: 1,
            read_bytes,
            ..Counters::default()
        });
        let sent = self.sender.complete_read(task.command.id(), &data, is_delayed);
        if sent.and_then(|()| self.finish(task)).is_err() {
            self.client.abort();
        }
        true
    }
}
