//! The service of certificates of a public CA: asks for one, and for the next before it ends.

use std::sync::Arc;
use std::time::Duration;

use ::acme::AcmeConfig;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::Service;
use crate::Result;
use crate::config::Config;
use crate::context::Context;
use crate::events::unix_seconds;
use crate::router::Router;

/// The section's name.
pub(crate) const SECTION: &str = "acme";
/// The time between two looks at the clock.
const INTERVAL: Duration = Duration::from_secs(10);

/// The service of certificates.
pub(super) struct AcmeService {
    context: Arc<Context>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl AcmeService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), task: Mutex::default() }
    }
}

/// Asks the CA, if that is due.
async fn look(context: &Context) {
    let config: AcmeConfig = context.config.current().section(SECTION);
    if !context.acme.is_due(&config, unix_seconds()) {
        return;
    }
    let account = context.acme.account(&config);
    let (names, log) = (config.names.join(", "), &context.log);
    log.write_line(&format!("acme: asking {} for a certificate of {names}", config.directory));
    let asked = config.clone();
    let work = move || ::acme::obtain(&asked, account.as_deref()).map_err(|why| why.to_string());
    let obtained = tokio::task::spawn_blocking(work).await;
    let obtained = obtained.unwrap_or_else(|why| Err(why.to_string()));
    let failure = obtained.as_ref().err().cloned();
    let stored = context.acme.store(&config, obtained, unix_seconds());
    match (stored, failure) {
        (Ok(_), None) => {
            context.web_tls.show_named(context.acme.certificate(&config));
            log.write_line(&format!("acme: the certificate of {names} is in use"));
        }
        (Ok(wait), Some(why)) => log.write_line(&format!(
            "acme: no certificate of {names}: {why}; the next try is in {} minutes",
            wait / 60
        )),
        (Err(why), _) => log.write_line(&format!("acme: {why}")),
    }
}

impl Service for AcmeService {
    fn name(&self) -> &'static str {
        "acme"
    }

    fn calls(self: Arc<Self>, _router: &mut Router) {}

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        self.configure(&context.config.current())?;
        let context = Arc::clone(context);
        *self.task.lock() = Some(tokio::spawn(async move {
            loop {
                look(&context).await;
                tokio::time::sleep(INTERVAL).await;
            }
        }));
        Ok(())
    }

    fn configure(&self, config: &Config) -> Result<()> {
        let acme: AcmeConfig = config.section(SECTION);
        self.context.web_tls.show_named(self.context.acme.certificate(&acme));
        Ok(())
    }

    fn stop(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}
