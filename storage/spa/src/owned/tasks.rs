//! Changes to the pool's own objects, made by the one who writes a group.

use std::sync::Arc;

use dsl::write::Change;
use parking_lot::Mutex;

use super::Owned;
use crate::Error;

/// Something to be done to the pool's own objects.
pub type Task = Box<dyn FnOnce(&Owned, &Change<'_>) + Send>;

impl Owned {
    /// Has something done to the pool's own objects with the next group, and waits until that is
    /// on the drives. Gives what the doing gave.
    pub fn perform<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, &Change<'_>) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let result = Arc::new(Mutex::new(None));
        let answer = Arc::clone(&result);
        self.tasks.lock().push(Box::new(move |owned, change| {
            *answer.lock() = Some(work(owned, change));
        }));
        self.sync()?;
        // whoever wrote the group in between may have done it
        loop {
            if let Some(done) = result.lock().take() {
                return Ok(done);
            }
            self.sync()?;
        }
    }
}
