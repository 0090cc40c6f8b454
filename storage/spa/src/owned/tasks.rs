//! Changes to the pool's own objects, made by the one who writes a group.

use std::sync::Arc;

use dsl::write::Change;
use parking_lot::Mutex;
use units::Txg;

use super::Owned;
use crate::Error;

/// Something to be done to the pool's own objects.
type Work = Box<dyn FnOnce(&Owned, &Change<'_>) + Send>;

struct Task {
    number: u64,
    /// The group that was open when it was asked for.
    asked_in: Txg,
    work: Work,
}

/// What is to be done, in the order in which it was asked for.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<Asked>);

#[derive(Default)]
struct Asked {
    last: u64,
    tasks: Vec<Task>,
}

impl Tasks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().tasks.is_empty()
    }

    fn add(&self, asked_in: Txg, work: Work) -> u64 {
        let mut asked = self.0.lock();
        asked.last += 1;
        let number = asked.last;
        asked.tasks.push(Task { number, asked_in, work });
        number
    }

    /// Those that may be done with a group. One that was closed before they were asked for has not
    /// all that was written by then, and knows nothing of room that was had since.
    pub(super) fn take(&self, txg: Txg) -> impl Iterator<Item = Work> + use<> {
        let mut asked = self.0.lock();
        let all = std::mem::take(&mut asked.tasks);
        let (now, later): (Vec<_>, _) = all.into_iter().partition(|task| task.asked_in <= txg);
        asked.tasks = later;
        now.into_iter().map(|task| task.work)
    }

    /// It is not to be done any more, unless it was begun.
    fn revoke(&self, number: u64) {
        self.0.lock().tasks.retain(|task| task.number != number);
    }
}

impl Owned {
    /// Has something done with the open group, or a later one; nobody waits for that. Gives its number.
    pub(super) fn ask(&self, task: impl FnOnce(&Self, &Change<'_>) + Send + 'static) -> u64 {
        if self.is_still {
            return 0;
        }
        self.tasks.add(self.groups.open_txg(), Box::new(task))
    }

    /// Has something done to the pool's own objects with the open group, or a later one, and waits
    /// until that is on the drives. Gives what the doing gave. Where the pool stands still, or ends,
    /// before it was begun, it is not done later, when nobody expects that any more.
    pub fn perform<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, &Change<'_>) -> T + Send + 'static,
    ) -> Result<T, Error> {
        if self.is_still {
            return Err(Error::Still);
        }
        let result = Arc::new(Mutex::new(None));
        let answer = Arc::clone(&result);
        let task = self.ask(move |owned, change| *answer.lock() = Some(work(owned, change)));
        self.sync().inspect_err(|_| self.tasks.revoke(task))?;
        let done = result.lock().take();
        done.ok_or(Error::Closed)
    }
}
