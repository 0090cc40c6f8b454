//! The overview of all pools and drives, made every two seconds by a thread of its own. Its readers
//! wait for no drive: while one hangs, the last overview stays and shows its age.

use std::sync::Arc;

use alerts::{AlertState, Condition};
use api::Overview;
use health::Grade;
use parking_lot::RwLock;

use crate::alert_notifier::AlertNotifier;
use crate::conditions::{self, Parts};
use crate::context::Context;
use crate::events::unix_seconds;
use crate::services::{ACME_SECTION, overdue_replicas, untested_replicas};

/// The events that the overview shows.
const EVENTS: usize = 20;
/// The jobs that ended and are shown.
const ENDED_JOBS: usize = 5;

/// The latest overview.
#[derive(Default)]
pub(crate) struct OverviewCache(RwLock<Arc<Overview>>);

impl OverviewCache {
    /// The latest overview.
    pub(crate) fn latest(&self) -> Arc<Overview> {
        Arc::clone(&self.0.read())
    }

    /// Makes a new overview, and updates the alerts.
    pub(crate) fn refresh(&self, context: &Context, notifier: &AlertNotifier) {
        let now = unix_seconds();
        let pools = context.pools.pool_reports(&[], false).unwrap_or_default();
        let drives = context.drives.list(&pools);
        let jobs = context.jobs.list();
        let space = notifier.space_percent();
        let ups = context.ups.status();
        let fans = context.fans.status();
        let certificate = context.acme.status(&context.config.current().section(ACME_SECTION));
        let parts = Parts {
            pools: &pools,
            drives: &drives.drives,
            jobs: &jobs,
            ups: ups.as_ref(),
            fans: fans.as_ref(),
            certificate: certificate.as_ref(),
        };
        let mut conditions = conditions::find(parts, space, now);
        conditions.extend(overdue_replicas(context, now));
        conditions.extend(untested_replicas(context, now));
        conditions.sort_by_key(|condition| std::cmp::Reverse(condition.severity));
        let counted: Vec<_> =
            conditions.iter().filter(|it| !notifier.is_acknowledged(&it.key)).cloned().collect();
        let (grade, sentence) =
            verdict(&counted, conditions.len(), pools.len(), drives.drives.len());
        notifier.update(conditions, drives.is_complete, &sentence, now);
        let mounts =
            context.pools.all().iter().flat_map(|pool| pool.mounted_filesystems()).collect();
        let ended = jobs.iter().filter(|job| job.finished.is_some()).count();
        let mut surplus = ended - ended.min(ENDED_JOBS);
        let shown = jobs.into_iter().filter(|job| {
            let is_old = job.finished.is_some() && surplus > 0;
            surplus -= usize::from(is_old);
            !is_old
        });
        let overview = Overview {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            time: now,
            grade,
            sentence,
            pools,
            drives,
            ups,
            fans,
            jobs: shown.collect(),
            mounts,
            events: context.events.latest(EVENTS),
            alerts: notifier
                .alerts()
                .into_iter()
                .filter(|alert| alert.state == AlertState::Open)
                .collect(),
        };
        *self.0.write() = Arc::new(overview);
    }
}

/// The verdict on everything: the most urgent condition. `all` is the number of conditions with those that the owner
/// acknowledged.
fn verdict(conditions: &[Condition], all: usize, pools: usize, drives: usize) -> (Grade, String) {
    let Some(first) = conditions.first() else {
        let plural = |count: usize, noun: &str| {
            format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
        };
        let (pools, drives) = (plural(pools, "pool"), plural(drives, "drive"));
        let sentence = match all {
            0 => format!("All is well: {pools} and {drives}, no problem is known."),
            all => format!(
                "No new problem: {pools} and {drives}; acknowledged: {}.",
                plural(all, "alert")
            ),
        };
        return (Grade::Ok, sentence);
    };
    let grade = match first.severity {
        alerts::Severity::Critical => Grade::Failing,
        alerts::Severity::Warning => Grade::Watch,
        alerts::Severity::Notice => Grade::Unknown,
    };
    let more = match conditions.len() - 1 {
        0 => String::new(),
        1 => " (1 more alert)".to_owned(),
        count => format!(" ({count} more alerts)"),
    };
    (grade, format!("{}. {} {}{more}", first.title, first.sentence, first.action))
}
