//! The service that sends the disks of idle pools to standby.

use std::sync::Arc;
use std::thread::Builder;

use super::Service;
use crate::config::Config;
use crate::context::Context;
use crate::drives::PowerConfig;
use crate::router::Router;
use crate::{Error, Result};

/// The service of spin-down.
pub(super) struct PowerService {
    context: Arc<Context>,
}

impl PowerService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context) }
    }
}

impl Service for PowerService {
    fn name(&self) -> &'static str {
        "power"
    }

    fn calls(self: Arc<Self>, _router: &mut Router) {}

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())?;
        let context = Arc::clone(context);
        let thread = Builder::new().name("drive power".to_owned());
        let spawned = thread.spawn(move || context.power.run(&context));
        spawned.map(drop).map_err(|why| Error::refused_error(format!("no thread: {why}")))
    }

    fn configure(&self, config: &Config) -> Result<()> {
        self.context.power.configure(config.section::<Vec<PowerConfig>>("power"));
        Ok(())
    }

    fn stop(&self) {
        self.context.power.stop();
    }
}
