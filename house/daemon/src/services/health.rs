//! The service of drives: their health and their histories.

use std::sync::Arc;
use std::thread::Builder;

use api::{
    BurnInDrive, CheckDrives, GetBurnIn, GetDrive, ListDrives, LocateDrive, NoteDrive, TestDrive,
};

use super::Service;
use crate::config::Config;
use crate::context::Context;
use crate::drives::{HealthConfig, burn_in};
use crate::router::Router;
use crate::{Error, Result};

/// The service of drives.
pub(super) struct HealthService {
    context: Arc<Context>,
}

impl HealthService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context) }
    }
}

impl Service for HealthService {
    fn name(&self) -> &'static str {
        "health"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let context = Arc::clone(&self.context);
        router.add(move |_: &ListDrives, _| {
            Ok(context.drives.list(&context.overview.latest().pools))
        });
        let context = Arc::clone(&self.context);
        router.add(move |call: &GetDrive, _| {
            context
                .drives
                .details(&context.drives.list(&context.overview.latest().pools), &call.drive)
        });
        let context = Arc::clone(&self.context);
        router.add(move |_: &CheckDrives, _| context.drives.check_now());
        let context = Arc::clone(&self.context);
        router.add(move |call: &TestDrive, _| context.drives.start_self_test(call));
        let context = Arc::clone(&self.context);
        router.add(move |call: &LocateDrive, _| context.drives.locate(call));
        let context = Arc::clone(&self.context);
        router.add(move |call: &NoteDrive, _| {
            context.drives.note(call, &context.overview.latest().pools)
        });
        let context = Arc::clone(&self.context);
        router
            .add(move |call: &BurnInDrive, caller| burn_in::start(&context, call, caller.peer.uid));
        let context = Arc::clone(&self.context);
        router.add(move |call: &GetBurnIn, _| burn_in::report(&context, &call.drive));
    }

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())?;
        let no_thread = |why| Error::refused_error(format!("no thread: {why}"));
        let monitor = Arc::clone(context);
        let thread = Builder::new().name("drive health".to_owned());
        thread.spawn(move || monitor.drives.run()).map_err(no_thread)?;
        let context = Arc::clone(context);
        let thread = Builder::new().name("burn-in restart".to_owned());
        thread.spawn(move || burn_in::continue_all(&context)).map_err(no_thread)?;
        Ok(())
    }

    fn configure(&self, config: &Config) -> Result<()> {
        self.context.drives.configure(config.section::<HealthConfig>("health"));
        Ok(())
    }

    fn stop(&self) {
        self.context.drives.stop();
        self.context.drives.burn_ins.stop();
    }
}
