//! Fused pairs: a Compare and a Write that are carried out as one (VMware's ATS).
//!
//! The commands of a pair follow each other in the queue; their data may become complete in either order.

use crate::transfer::Task;
use crate::wire::command::Fuse;
use crate::wire::completion::Status;

/// The pairs of one queue that are not complete.
#[derive(Default)]
pub(crate) struct FusedPairs(Vec<Pair>);

struct Pair {
    first: u64,
    second: Option<u64>,
    /// Another command came in the place of the second.
    is_broken: bool,
    ready_first: Option<Task>,
    ready_second: Option<Task>,
}

/// Work that has become ready.
pub(crate) enum Ready {
    /// A command of its own.
    One(Task),
    /// A complete pair.
    Pair(Task, Task),
    /// The other command of the pair is not ready.
    Nothing,
}

impl FusedPairs {
    /// Counts a command that has arrived. A first command whose second did not follow is ready to fail: it is
    /// returned, if its data are complete.
    pub(crate) fn arrive(&mut self, task: &mut Task) -> Option<Task> {
        let open = self.0.iter().position(|pair| pair.second.is_none() && !pair.is_broken);
        if task.fuse == Fuse::Second {
            if let Some(at) = open {
                self.0[at].second = Some(task.number);
            } else {
                task.fuse = Fuse::None;
                task.refused = Some(Status::MISSING_FUSED);
            }
            return None;
        }
        let failed = open.and_then(|at| {
            self.0[at].is_broken = true;
            let first = self.0[at].ready_first.take()?;
            self.0.remove(at);
            Some(fail(first))
        });
        if task.fuse == Fuse::First {
            self.0.push(Pair {
                first: task.number,
                second: None,
                is_broken: false,
                ready_first: None,
                ready_second: None,
            });
        }
        failed
    }

    /// Takes a command whose data are complete.
    pub(crate) fn complete(&mut self, task: Task) -> Ready {
        let number = task.number;
        let is_of = |pair: &Pair| pair.first == number || pair.second == Some(number);
        let Some(at) = self.0.iter().position(is_of) else { return Ready::One(task) };
        let pair = &mut self.0[at];
        if pair.is_broken {
            self.0.remove(at);
            return Ready::One(fail(task));
        }
        if pair.first == number {
            pair.ready_first = Some(task);
        } else {
            pair.ready_second = Some(task);
        }
        match (pair.ready_first.take(), pair.ready_second.take()) {
            (Some(first), Some(second)) => {
                self.0.remove(at);
                Ready::Pair(first, second)
            }
            (first, second) => {
                (pair.ready_first, pair.ready_second) = (first, second);
                Ready::Nothing
            }
        }
    }
}

/// A command of a pair whose other command is missing.
fn fail(mut task: Task) -> Task {
    task.fuse = Fuse::None;
    task.refused = Some(Status::MISSING_FUSED);
    task
}
