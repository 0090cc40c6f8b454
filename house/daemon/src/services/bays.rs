//! The service of the map of bays: it gives the drive monitor the section `[bays]`.

use std::sync::Arc;

use health::BayMap;

use super::Service;
use crate::config::Config;
use crate::context::Context;
use crate::router::Router;
use crate::{Error, Result};

/// The service of the map of bays.
pub(super) struct BayService {
    context: Arc<Context>,
}

impl BayService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context) }
    }
}

impl Service for BayService {
    fn name(&self) -> &'static str {
        "bays"
    }

    /// The service of drives replies with the bays.
    fn calls(self: Arc<Self>, _router: &mut Router) {}

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())
    }

    fn configure(&self, config: &Config) -> Result<()> {
        let bays: BayMap = config.section("bays");
        let duplicate = bays.duplicate().map(|serial| {
            Error::refused_error(format!("[bays]: the drive {serial} is in two bays"))
        });
        self.context.drives.set_bays(bays);
        duplicate.map_or(Ok(()), Err)
    }
}
