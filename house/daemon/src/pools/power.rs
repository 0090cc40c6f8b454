//! Closing all pools when the battery of the UPS is nearly empty, and importing them again when line power
//! returns before the machine is off.

use std::sync::atomic::Ordering;

use api::Event;
use engine::pool::Pool;

use super::Pools;
use super::import::wait_until_unused;
use super::unavailable::UnavailablePool;
use crate::Result;
use crate::events::ChangeOptions;

/// The reason in the status of a closed pool.
const REASON: &str = "it was closed because the battery of the UPS is nearly empty; it is imported again when line \
                      power returns";

impl Pools {
    /// Writes all changes and closes all pools. They stay in the list, and the watch thread does not import them
    /// before [`Self::reopen_after_power_failure`]. Returns a sentence for each pool that did not close well.
    pub(crate) fn close_for_power_failure(&self) -> Result<Vec<String>> {
        let _importing = self.lock_imports()?;
        self.is_power_failing.store(true, Ordering::Release);
        let mut failures = Vec::new();
        let options = ChangeOptions { force: true, ..ChangeOptions::default() };
        for pool in self.all() {
            let name = pool.handle.name().to_owned();
            let coming = [Event::PoolExported { pool: name.clone() }];
            // the pool is closed in any case: its last txg matters more than open files
            if let Err(why) = self.prepare_changes(&coming, &options) {
                failures.push(format!("pool '{name}': {why}"));
            }
            self.unavailable.lock().push(UnavailablePool::closed(pool.to_saved(), REASON));
            self.imported.lock().remove(&name);
            match pool.close(Pool::close) {
                Ok(()) => self.log.write_line(&format!("pool '{name}' is closed")),
                Err(why) => failures.push(format!("pool '{name}' is closed, and {why}")),
            }
            wait_until_unused(&pool);
            self.events.follow(&coming, &options);
        }
        self.save_pools();
        Ok(failures)
    }

    /// Has the watch thread import the closed pools again.
    pub(crate) fn reopen_after_power_failure(&self) {
        self.unavailable.lock().iter_mut().for_each(UnavailablePool::retry_soon);
        self.is_power_failing.store(false, Ordering::Release);
    }
}
