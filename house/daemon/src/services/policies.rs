//! The service of snapshot policies: takes snapshots by the clock, and destroys surplus ones.

use std::sync::Arc;
use std::time::Duration;

use api::{Event, GetPolicyStatus, PolicyRun, RunPolicies};
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::Service;
use crate::config::Config;
use crate::context::Context;
use crate::events::{ChangeOptions, unix_seconds};
use crate::policy::{Period, PolicyConfig};
use crate::replica::ReplicaConfig;
use crate::router::Router;
use crate::{Error, Result};

/// The time between two looks at the clock.
const INTERVAL: Duration = Duration::from_secs(10);

/// The service of snapshot policies.
pub(super) struct PolicyService {
    context: Arc<Context>,
    /// The hour of the last run; none: the policies, the pools or the datasets changed since.
    last_hour: Arc<Mutex<Option<u64>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl PolicyService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), last_hour: Arc::default(), task: Mutex::default() }
    }
}

fn policies(context: &Context) -> Vec<PolicyConfig> {
    context.config.current().section("policy")
}

/// Runs the policies, one run at a time.
fn run(context: &Context) -> PolicyRun {
    let _running = context.policy_lock.lock();
    let zone = TimeZone::system();
    let replicas: Vec<ReplicaConfig> = context.config.current().section("replica");
    let now = unix_seconds();
    context.replicas.note(&replicas, now);
    let replicated = |dataset: &str| context.replicas.replicated_txg(&replicas, dataset, now);
    let run = context.pools.run_policies(&policies(context), &replicated, (now, &zone));
    run.failed.iter().for_each(|why| context.log.write_line(&format!("snapshot policy: {why}")));
    run
}

impl Service for PolicyService {
    fn name(&self) -> &'static str {
        "policies"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let context = Arc::clone(&self.context);
        router.add(move |_: &RunPolicies, _| {
            if policies(&context).is_empty() {
                return Err(Error::refused_error(
                    "no snapshot policy is configured: add a section [[policy]] to config.toml",
                ));
            }
            Ok(run(&context))
        });
        let context = Arc::clone(&self.context);
        router.add(move |_: &GetPolicyStatus, _| {
            let now = (unix_seconds(), &TimeZone::system());
            Ok(context.pools.policy_status(&policies(&context), now))
        });
    }

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        let (context, last_hour) = (Arc::clone(context), Arc::clone(&self.last_hour));
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let hour = Period::Hourly.start(unix_seconds(), &TimeZone::UTC);
                if *last_hour.lock() == hour || policies(&context).is_empty() {
                    continue;
                }
                *last_hour.lock() = hour;
                let context = Arc::clone(&context);
                let ran = tokio::task::spawn_blocking(move || run(&context)).await;
                // what failed is tried again soon
                if ran.is_ok_and(|run| !run.failed.is_empty()) {
                    *last_hour.lock() = None;
                    tokio::time::sleep(6 * INTERVAL).await;
                }
            }
        });
        *self.task.lock() = Some(task);
        Ok(())
    }

    fn configure(&self, _config: &Config) -> Result<()> {
        *self.last_hour.lock() = None;
        Ok(())
    }

    fn on_events(&self, events: &[Event], _options: &ChangeOptions) -> Vec<String> {
        let is_new = |event: &Event| {
            matches!(event, Event::PoolImported { .. } | Event::DatasetCreated { .. })
        };
        if events.iter().any(is_new) {
            *self.last_hour.lock() = None;
        }
        Vec::new()
    }

    fn stop(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}
