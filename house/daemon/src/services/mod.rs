//! The daemon's services. A service is one file in this folder and one line in [`all`].
//!
//! A service adds the calls that it answers, starts and stops with the daemon, and follows the changes of
//! pools and datasets.

mod daemon;
mod datasets;
mod events;
mod jobs;
mod keys;
mod mounts;
mod pools;

use std::sync::Arc;

use api::Event;

use crate::Result;
use crate::context::Context;
use crate::events::ChangeOptions;
use crate::router::Router;

/// A part of the daemon.
pub(crate) trait Service: Send + Sync {
    /// The name in the log.
    fn name(&self) -> &'static str;

    /// Adds the calls that it answers.
    fn calls(self: Arc<Self>, router: &mut Router);

    /// Starts it, before the daemon answers the first call. The daemon runs on without a service that fails.
    fn start(&self, _context: &Arc<Context>) -> Result<()> {
        Ok(())
    }

    /// Lets go of what coming changes of one pool need, or refuses them.
    fn prepare(&self, _coming: &[Event], _options: &ChangeOptions) -> Result<()> {
        Ok(())
    }

    /// Undoes [`Self::prepare`], as the changes failed.
    fn abandon(&self, _coming: &[Event]) {}

    /// Follows what happened. Returns a sentence for each thing that it could not do. It runs on the thread
    /// of the change, and must not change datasets itself.
    fn on_events(&self, _events: &[Event], _options: &ChangeOptions) -> Vec<String> {
        Vec::new()
    }

    /// Ends it: the daemon ends.
    fn stop(&self) {}
}

/// All services, in the order in which they start and follow changes.
pub(crate) fn all(context: &Arc<Context>) -> Vec<Arc<dyn Service>> {
    vec![
        Arc::new(daemon::DaemonService::new(context)),
        Arc::new(mounts::MountService::new(context)),
        Arc::new(pools::PoolService::new(context)),
        Arc::new(datasets::DatasetService::new(context)),
        Arc::new(keys::KeyService::new(context)),
        Arc::new(jobs::JobService::new(context)),
        Arc::new(events::EventService::new(context)),
    ]
}
