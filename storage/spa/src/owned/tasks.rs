//! Changes to the pool's own objects, made by the one who writes a group.

use std::sync::Arc;

use dsl::write::Change;
use parking_lot::Mutex;
use units::Txg;

use super::Owned;
use crate::Error;

/// Something to be done to the pool's own objects.
type Task = Box<dyn FnOnce(&Owned, &Change<'_>) + Send>;

/// What is to be done, each with the group that was open when it was asked for.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<Vec<(Txg, Task)>>);

impl Tasks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Those that may be done with a group. One that was closed before they were asked for has not
    /// all that was written by then, and knows nothing of room that was had since.
    pub(super) fn take(&self, txg: Txg) -> impl Iterator<Item = Task> + use<> {
        let mut all = self.0.lock();
        let (now, later): (Vec<_>, _) = all.drain(..).partition(|(asked_in, _)| *asked_in <= txg);
        *all = later;
        now.into_iter().map(|(_, task)| task)
    }
}

impl Owned {
    /// Has something done with the open group, or a later one; nobody waits for that.
    pub(super) fn ask(&self, task: impl FnOnce(&Self, &Change<'_>) + Send + 'static) {
        let open = self.groups.open();
        self.tasks.0.lock().push((open, Box::new(task)));
    }

    /// Has something done to the pool's own objects with the open group, or a later one, and waits
    /// until that is on the drives. Gives what the doing gave.
    pub fn perform<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, &Change<'_>) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let result = Arc::new(Mutex::new(None));
        let answer = Arc::clone(&result);
        self.ask(move |owned, change| *answer.lock() = Some(work(owned, change)));
        self.sync()?;
        let done = result.lock().take();
        done.ok_or(Error::Closed)
    }
}
