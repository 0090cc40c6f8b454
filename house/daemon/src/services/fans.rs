//! The service of fans.

use std::sync::Arc;
use std::thread::Builder;

use ::fans::FansConfig;
use api::{CalibrateFan, GetFans};

use super::Service;
use crate::config::Config;
use crate::context::Context;
use crate::router::Router;
use crate::{Error, Result};

/// The service of fans.
pub(super) struct FanService {
    context: Arc<Context>,
}

impl FanService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context) }
    }
}

impl Service for FanService {
    fn name(&self) -> &'static str {
        "fans"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let context = Arc::clone(&self.context);
        router.add(move |_: &GetFans, _| Ok(context.fans.status()));
        let context = Arc::clone(&self.context);
        router.add(move |call: &CalibrateFan, _| context.fans.calibrate(&call.fan));
    }

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        let configured = self.configure(&context.config.current());
        let context = Arc::clone(context);
        let spawned = Builder::new().name("fans".to_owned()).spawn(move || context.fans.run());
        spawned.map_err(|why| Error::refused_error(format!("no thread: {why}")))?;
        configured
    }

    fn configure(&self, config: &Config) -> Result<()> {
        self.context.fans.configure(config.section::<FansConfig>("fans"))
    }

    fn stop(&self) {
        self.context.fans.stop();
    }
}
