//! Tests of replicas by the clock and on request: copies are read back and compared with their sources.

use std::sync::Arc;

use alerts::{Condition, Severity};
use api::TestedCopy;
use jiff::tz::TimeZone;
use units::MinusOrZero as _;

use super::replicas::{Ends, RETRY_SECONDS, Work, configured, end_job, open_source};
use crate::auth::Caller;
use crate::context::Context;
use crate::events::unix_seconds;
use crate::replica::{
    ReplicaConfig, ReplicaState, RestoreTest, Schedule, SshHost, TestResult, TransferControl,
    Window,
};
use crate::{Error, Result};

const DAY: u64 = 24 * 3600;

/// Why a test failed.
enum Failure {
    /// The copy could not be read.
    Error(Error),
    /// A copy differs from its source.
    Different(String),
}

impl From<Error> for Failure {
    fn from(why: Error) -> Self {
        Self::Error(why)
    }
}

/// Compares the copies of a replica with their sources, as a job, and records the result.
pub(super) fn test_replica(
    context: &Arc<Context>,
    replica: &ReplicaConfig,
    window: Option<Window>,
    caller: &Caller,
) -> Result<Vec<TestedCopy>> {
    let _running = context.replica_lock.lock();
    let name = replica.name.0.as_str();
    let work = Work::of(replica, window);
    context.replicas.update(name, |state| state.test_tried = Some(unix_seconds()));
    let control = Arc::new(TransferControl::new(caller.cancel.clone(), window));
    let (uid, source) = (caller.peer.uid, work.source.to_text());
    let job = context.jobs.start("replica test", &source, uid, Arc::clone(&control) as Arc<_>);
    let done = test_all(context, &work, caller, &control);
    let is_different = matches!(done, Err(Failure::Different(_)));
    let done = done.map_err(|why| match why {
        Failure::Error(why) => why,
        Failure::Different(what) => Error::refused_error(what),
    });
    context.replicas.update(name, |state| {
        match &done {
            Ok(_) => (state.tested, state.test_error) = (Some(unix_seconds()), None),
            Err(why) => state.test_error = Some(why.to_string()),
        }
        state.is_different = is_different;
    });
    end_job(job, &control, &done);
    done
}

fn test_all(
    context: &Arc<Context>,
    work: &Work<'_>,
    caller: &Caller,
    control: &TransferControl,
) -> std::result::Result<Vec<TestedCopy>, Failure> {
    let ends = Ends::open(context, work, caller)?;
    let was_asleep = ends.wake(work, control)?;
    let done = compare_all(context, work, (&ends, control));
    if was_asleep {
        ends.send_to_sleep(context, work);
    }
    done
}

fn compare_all(
    context: &Context,
    work: &Work<'_>,
    (ends, control): (&Ends, &TransferControl),
) -> std::result::Result<Vec<TestedCopy>, Failure> {
    let target = open_source(context, SshHost::new(work.target, work.ssh));
    let (source, target) = (&*ends.source, &*target);
    let (mut done, mut different) = (Vec::new(), Vec::new());
    for dataset in source.datasets(work.source.dataset(), work.recursive)? {
        let (copy, name) = work.names(&dataset);
        let (dataset, copy, rate) = (&*dataset, &*copy, work.rate);
        match (RestoreTest { source, dataset, target, copy, control, rate }).run()? {
            TestResult::Equal(tested) => done.push(TestedCopy { source: name, ..tested }),
            TestResult::Different(snapshot) => different.push(format!("'{copy}@{snapshot}'")),
            TestResult::Nothing => {}
        }
    }
    if different.is_empty() {
        return Ok(done);
    }
    Err(Failure::Different(format!(
        "the copy {} differs from its source: do not rely on it; scrub both pools, and make a new copy",
        different.join(", ")
    )))
}

/// Whether the copies of a replica are to be tested now.
pub(super) fn is_test_due(context: &Context, replica: &ReplicaConfig, now: u64) -> bool {
    let Some(test) = replica.test else { return false };
    let state = context.replicas.state(&replica.name.0);
    if state.test_error.is_some() && state.test_tried.is_some_and(|it| now < it + RETRY_SECONDS) {
        return false;
    }
    if state.succeeded.is_none() || !replica.window.is_none_or(|window| window.is_open(now)) {
        return false;
    }
    let start = test.period().start(now, &TimeZone::system());
    start.is_some_and(|start| state.tested.is_none_or(|tested| tested < start))
}

/// A condition for each replica whose last test failed, or was too long ago.
pub(crate) fn untested_replicas(context: &Context, now: u64) -> Vec<Condition> {
    let condition = |replica: &ReplicaConfig| {
        let state = context.replicas.state(&replica.name.0);
        test_condition(replica, &state, now)
    };
    configured(context).iter().filter_map(condition).collect()
}

fn test_condition(replica: &ReplicaConfig, state: &ReplicaState, now: u64) -> Option<Condition> {
    let name = &replica.name.0;
    let test = replica.test;
    let since = state.tested.or(state.since).map_or(0, |since| now.minus_or_zero(since));
    let is_overdue = test.is_some_and(|test| since > 2 * longest(test));
    let (severity, title, sentence) = match (&state.test_error, is_overdue) {
        (Some(why), _) if state.is_different => (
            Severity::Critical,
            format!("Replica {name} differs from its source"),
            format!("{why}."),
        ),
        (Some(why), _) if test.is_some() => {
            (Severity::Warning, format!("The test of replica {name} failed"), format!("{why}."))
        }
        (None, true) => (
            Severity::Warning,
            format!("Replica {name} was not tested"),
            "Its copies were not read back for twice the configured time.".to_owned(),
        ),
        _ => return None,
    };
    let action =
        format!("See: poolhouse replicate status; test again: poolhouse replicate test {name}");
    Some(Condition {
        key: format!("replica/{name}/test"),
        severity,
        level: 0,
        title,
        sentence,
        action,
    })
}

/// The longest time in seconds between two tests.
const fn longest(test: Schedule) -> u64 {
    match test {
        Schedule::Hourly => 3600,
        Schedule::Daily => DAY,
        Schedule::Weekly => 7 * DAY,
        Schedule::Monthly => 31 * DAY,
    }
}

#[cfg(test)]
mod tests {
    use alerts::Severity;

    use super::{DAY, test_condition};
    use crate::replica::{ReplicaConfig, ReplicaState};

    fn replica(more: &str) -> ReplicaConfig {
        let text = format!("name = 'off'\nsource = 'tank'\ntarget = 'backup/tank'\n{more}");
        toml_edit::de::from_str(&text).unwrap()
    }

    #[test]
    fn tests_that_are_overdue_raise_an_alert() {
        let (daily, never) = (replica("test = 'daily'"), replica(""));
        let state = ReplicaState { since: Some(1000), ..ReplicaState::default() };
        let title = |replica: &ReplicaConfig, state: &ReplicaState, now| {
            test_condition(replica, state, now).map(|it| it.title)
        };
        assert_eq!(title(&daily, &state, 1000 + 2 * DAY), None);
        let late = 1001 + 2 * DAY;
        assert_eq!(title(&daily, &state, late).as_deref(), Some("Replica off was not tested"));
        assert_eq!(title(&never, &state, late), None);
        let tested = ReplicaState { tested: Some(late), ..state };
        assert_eq!(title(&daily, &tested, late + 10), None);
    }

    #[test]
    fn failed_test_raises_an_alert() {
        let state = |is_different| ReplicaState {
            tested: Some(1000),
            test_error: Some("why".to_owned()),
            is_different,
            ..ReplicaState::default()
        };
        let severity = |test: &str, is_different| {
            test_condition(&replica(test), &state(is_different), 1001).map(|it| it.severity)
        };
        assert_eq!(severity("test = 'daily'", false), Some(Severity::Warning));
        assert_eq!(severity("test = 'daily'", true), Some(Severity::Critical));
        // also of a test by hand
        assert_eq!(severity("", true), Some(Severity::Critical));
        assert_eq!(severity("", false), None);
    }
}
