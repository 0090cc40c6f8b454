//! What every service works with.

use std::sync::Arc;

use engine::pool::Environment;
use tokio::sync::Notify;

use crate::events::Events;
use crate::jobs::Jobs;
use crate::log::Log;
use crate::pools::Pools;
use crate::{Result, StateDir};

/// What every service works with.
pub(crate) struct Context {
    pub(crate) state_dir: StateDir,
    pub(crate) pools: Arc<Pools>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) events: Arc<Events>,
    pub(crate) log: Arc<Log>,
    /// Ends the daemon when it is notified.
    pub(crate) stop: Notify,
}

impl Context {
    /// The context of a daemon that has no pools yet.
    pub(crate) fn new(
        state_dir: StateDir,
        log: Arc<Log>,
        environment: Environment,
    ) -> Result<Arc<Self>> {
        let events = Arc::new(Events::new());
        let jobs = Arc::new(Jobs::load(&state_dir, Arc::clone(&events), Arc::clone(&log))?);
        let pools = Pools::new(
            state_dir.clone(),
            Arc::clone(&log),
            environment,
            Arc::clone(&events),
            Arc::clone(&jobs),
        );
        let stop = Notify::new();
        Ok(Arc::new(Self { state_dir, pools: Arc::new(pools), jobs, events, log, stop }))
    }

    /// Answers calls that wait for events.
    pub(crate) fn end_long_polls(&self) {
        self.events.close();
    }
}
