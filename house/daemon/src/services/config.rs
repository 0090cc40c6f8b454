//! The service of the configuration: shown, changed, and read again when the file changes.

use std::sync::Arc;
use std::time::Duration;

use api::{AddConfigSection, Event, GetConfig, RemoveConfigSection, SetConfig};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::Service;
use crate::Result;
use crate::config::{add_section, remove_sections};
use crate::context::Context;
use crate::router::Router;

/// The time between two looks at the file.
const INTERVAL: Duration = Duration::from_secs(1);

/// The service of the configuration.
pub(super) struct ConfigService {
    context: Arc<Context>,
    watch: Mutex<Option<JoinHandle<()>>>,
}

impl ConfigService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), watch: Mutex::default() }
    }
}

impl Service for ConfigService {
    fn name(&self) -> &'static str {
        "config"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let context = Arc::clone(&self.context);
        router.add(move |_: &GetConfig, _| Ok(context.config.report()));
        let context = Arc::clone(&self.context);
        router.add(move |call: &SetConfig, _| {
            context.config.set(&call.section, &call.field, call.value.as_deref())?;
            reload(&context);
            Ok(())
        });
        let context = Arc::clone(&self.context);
        router.add(move |call: &AddConfigSection, _| {
            context.config.edit(|document| add_section(document, call))?;
            reload(&context);
            Ok(())
        });
        let context = Arc::clone(&self.context);
        router.add(move |call: &RemoveConfigSection, _| {
            context.config.edit(|document| remove_sections(document, call))?;
            reload(&context);
            Ok(())
        });
    }

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        log_problems(context);
        let context = Arc::clone(context);
        let watch = tokio::spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                reload(&context);
            }
        });
        *self.watch.lock() = Some(watch);
        Ok(())
    }

    fn stop(&self) {
        if let Some(watch) = self.watch.lock().take() {
            watch.abort();
        }
    }
}

/// Gives all services the new configuration, if the file changed.
pub(super) fn reload(context: &Context) {
    if !context.config.reload_if_changed() {
        return;
    }
    log_problems(context);
    let config = context.config.current();
    for service in context.events.services() {
        if let Err(why) = service.configure(&config) {
            context.log.write_line(&format!("service {}: {why}", service.name()));
        }
    }
    context.events.record(&[Event::ConfigReloaded {}]);
}

fn log_problems(context: &Context) {
    let report = context.config.report();
    for problem in report.problems {
        context
            .log
            .write_line(&format!("'{}' does not take effect: {problem}", report.path.display()));
    }
}
