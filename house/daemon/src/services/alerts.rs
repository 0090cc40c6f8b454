//! The service of the overview and of alerts, which are made together every two seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Duration;

use alerts::AlertsConfig;
use api::{AcknowledgeAlert, GetOverview, ListAlerts, Overview, TestAlerts};

use super::Service;
use crate::alert_notifier::AlertNotifier;
use crate::config::Config;
use crate::context::Context;
use crate::router::Router;
use crate::{Error, Result};

/// The time between two overviews.
const INTERVAL: Duration = Duration::from_secs(2);
/// The time between two looks whether the daemon ends.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The service of the overview and of alerts.
pub(super) struct AlertService {
    context: Arc<Context>,
    notifier: Arc<AlertNotifier>,
    is_stopped: Arc<AtomicBool>,
}

impl AlertService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let notifier = AlertNotifier::new(&context.state_dir, &context.events, &context.log);
        let (context, is_stopped) = (Arc::clone(context), Arc::default());
        Self { context, notifier: Arc::new(notifier), is_stopped }
    }
}

impl Service for AlertService {
    fn name(&self) -> &'static str {
        "alerts"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let context = Arc::clone(&self.context);
        router.add(move |_: &GetOverview, _| Ok(Overview::clone(&context.overview.latest())));
        let notifier = Arc::clone(&self.notifier);
        router.add(move |_: &ListAlerts, _| Ok(notifier.list()));
        let notifier = Arc::clone(&self.notifier);
        router.add(move |call: &AcknowledgeAlert, _| {
            if notifier.acknowledge(&call.key) {
                return Ok(());
            }
            let key = &call.key;
            Err(Error::refused_error(format!(
                "there is no open alert '{key}'; see: poolhouse alerts list"
            )))
        });
        let notifier = Arc::clone(&self.notifier);
        router.add(move |_: &TestAlerts, _| Ok(notifier.test()));
    }

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())?;
        let failed = |why: std::io::Error| Error::refused_error(format!("no thread: {why}"));
        let (context, notifier) = (Arc::clone(context), Arc::clone(&self.notifier));
        let is_stopped = Arc::clone(&self.is_stopped);
        let watch = move || {
            while !is_stopped.load(Ordering::Acquire) {
                context.overview.refresh(&context, &notifier);
                let mut waited = Duration::ZERO;
                while waited < INTERVAL && !is_stopped.load(Ordering::Acquire) {
                    std::thread::sleep(POLL_INTERVAL);
                    waited += POLL_INTERVAL;
                }
            }
        };
        Builder::new().name("overview".to_owned()).spawn(watch).map_err(failed)?;
        let context = Arc::clone(&self.context);
        let read = move || context.datasets.run(&context);
        Builder::new().name("dataset metrics".to_owned()).spawn(read).map_err(failed)?;
        let notifier = Arc::clone(&self.notifier);
        Builder::new().name("alerts".to_owned()).spawn(move || notifier.run()).map_err(failed)?;
        Ok(())
    }

    fn configure(&self, config: &Config) -> Result<()> {
        self.notifier.configure(config.section::<AlertsConfig>("alerts"));
        Ok(())
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.notifier.stop();
        self.context.datasets.stop();
    }
}
