//! The service of the UPS.

use std::sync::Arc;
use std::thread::Builder;

use ::ups::UpsConfig;
use api::GetUps;

use super::Service;
use crate::config::Config;
use crate::context::Context;
use crate::router::Router;
use crate::{Error, Result};

/// The service of the UPS.
pub(super) struct UpsService {
    context: Arc<Context>,
}

impl UpsService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context) }
    }
}

impl Service for UpsService {
    fn name(&self) -> &'static str {
        "ups"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let context = Arc::clone(&self.context);
        router.add(move |_: &GetUps, _| Ok(context.ups.status()));
    }

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())?;
        let context = Arc::clone(context);
        let thread = Builder::new().name("UPS".to_owned());
        let spawned = thread.spawn(move || context.ups.run(&context));
        spawned.map(drop).map_err(|why| Error::refused_error(format!("no thread: {why}")))
    }

    fn configure(&self, config: &Config) -> Result<()> {
        self.context.ups.configure(config.section::<UpsConfig>("ups"));
        Ok(())
    }

    fn stop(&self) {
        self.context.ups.stop();
    }
}
