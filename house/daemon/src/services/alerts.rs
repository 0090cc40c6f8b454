//! The service of the overview and of alerts, which are made together every two seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Duration;

use alerts::AlertsConfig;
use api::{GetOverview, ListAlerts, Overview, TestAlerts};

use super::Service;
use crate::alert_desk::AlertDesk;
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
    desk: Arc<AlertDesk>,
    is_stopped: Arc<AtomicBool>,
}

impl AlertService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let desk = AlertDesk::new(&context.state_dir, &context.events, &context.log);
        let (context, is_stopped) = (Arc::clone(context), Arc::default());
        Self { context, desk: Arc::new(desk), is_stopped }
    }
}

impl Service for AlertService {
    fn name(&self) -> &'static str {
        "alerts"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let context = Arc::clone(&self.context);
        router.add(move |_: &GetOverview, _| Ok(Overview::clone(&context.overview.latest())));
        let desk = Arc::clone(&self.desk);
        router.add(move |_: &ListAlerts, _| Ok(desk.list()));
        let desk = Arc::clone(&self.desk);
        router.add(move |_: &TestAlerts, _| Ok(desk.test()));
    }

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())?;
        let failed = |why: std::io::Error| Error::refused_error(format!("no thread: {why}"));
        let (context, desk) = (Arc::clone(context), Arc::clone(&self.desk));
        let is_stopped = Arc::clone(&self.is_stopped);
        let watch = move || {
            while !is_stopped.load(Ordering::Acquire) {
                context.overview.refresh(&context, &desk);
                let mut waited = Duration::ZERO;
                while waited < INTERVAL && !is_stopped.load(Ordering::Acquire) {
                    std::thread::sleep(POLL_INTERVAL);
                    waited += POLL_INTERVAL;
                }
            }
        };
        Builder::new().name("overview".to_owned()).spawn(watch).map_err(failed)?;
        let desk = Arc::clone(&self.desk);
        Builder::new().name("alerts".to_owned()).spawn(move || desk.run()).map_err(failed)?;
        Ok(())
    }

    fn configure(&self, config: &Config) -> Result<()> {
        self.desk.configure(config.section::<AlertsConfig>("alerts"));
        Ok(())
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.desk.stop();
    }
}
