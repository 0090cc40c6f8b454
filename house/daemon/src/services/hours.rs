//! The service of the machine's hours: it sleeps when nobody needs it.

use std::sync::Arc;
use std::thread::Builder;

use super::Service;
use crate::config::Config;
use crate::context::Context;
use crate::hours::HoursConfig;
use crate::router::Router;
use crate::{Error, Result};

/// The service of the machine's hours.
pub(super) struct HoursService {
    context: Arc<Context>,
}

impl HoursService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context) }
    }
}

impl Service for HoursService {
    fn name(&self) -> &'static str {
        "hours"
    }

    fn calls(self: Arc<Self>, _router: &mut Router) {}

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())?;
        let context = Arc::clone(context);
        let thread = Builder::new().name("hours".to_owned());
        let spawned = thread.spawn(move || context.hours.run(&context));
        spawned.map(drop).map_err(|why| Error::refused_error(format!("no thread: {why}")))
    }

    fn configure(&self, config: &Config) -> Result<()> {
        self.context.hours.configure(config.section::<HoursConfig>("hours"));
        Ok(())
    }

    fn stop(&self) {
        self.context.hours.stop();
    }
}
