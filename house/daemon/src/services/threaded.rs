//! The services of parts that have a thread of their own, a section of the configuration, and no calls: the hours of the
//! machine, and the standby of disks.

use std::sync::Arc;
use std::thread::Builder;

use super::Service;
use crate::config::Config;
use crate::context::Context;
use crate::drives::PowerConfig;
use crate::hours::HoursConfig;
use crate::router::Router;
use crate::{Error, Result};

/// The service of a part with a thread.
pub(super) struct ThreadedService {
    context: Arc<Context>,
    name: &'static str,
    configure: fn(&Context, &Config),
    /// The work of the thread, until `stop`.
    run: fn(&Context),
    stop: fn(&Context),
}

impl ThreadedService {
    /// The machine sleeps outside its hours when nobody needs it.
    pub(super) fn hours(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            name: "hours",
            configure: |context, config| {
                context.hours.configure(config.section::<HoursConfig>("hours"));
            },
            run: |context| context.hours.run(context),
            stop: |context| context.hours.stop(),
        }
    }

    /// The disks of idle pools go to standby.
    pub(super) fn power(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            name: "power",
            configure: |context, config| {
                context.power.configure(config.section::<Vec<PowerConfig>>("power"));
            },
            run: |context| context.power.run(context),
            stop: |context| context.power.stop(),
        }
    }
}

impl Service for ThreadedService {
    fn name(&self) -> &'static str {
        self.name
    }

    fn calls(self: Arc<Self>, _router: &mut Router) {}

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())?;
        let (context, run) = (Arc::clone(context), self.run);
        let spawned = Builder::new().name(self.name.to_owned()).spawn(move || run(&context));
        spawned.map(drop).map_err(|why| Error::refused_error(format!("no thread: {why}")))
    }

    fn configure(&self, config: &Config) -> Result<()> {
        (self.configure)(&self.context, config);
        Ok(())
    }

    fn stop(&self) {
        (self.stop)(&self.context);
    }
}
