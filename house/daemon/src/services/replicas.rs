//! The service of replicas: brings copies of datasets up to date by the clock, and on request.

use std::sync::Arc;
use std::time::Duration;

use alerts::{Condition, Severity};
use api::{
    CopyStatus, GetReplicaStatus, ReplicaStatus, Replicate, ReplicatedDataset, RunReplicas,
    TestReplicas,
};
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use units::MinusOrZero as _;

use super::Service;
use super::replica_tests::{is_test_due, test_replica};
use crate::auth::{Caller, Peer};
use crate::cancel::Cancel;
use crate::context::Context;
use crate::events::unix_seconds;
use crate::jobs::RunningJob;
use crate::pools::datasets::list_head_names;
use crate::replica::{
    DatasetAddress, LocalSource, LocalTarget, MaxAge, RateLimit, ReplicaConfig, ReplicaSource,
    ReplicaState, ReplicaTarget, SshHost, SshSource, Transfer, TransferControl, Window,
    ssh_command, wake_host,
};
use crate::router::Router;
use crate::{Error, Result};

/// The time between two looks at the clock.
const INTERVAL: Duration = Duration::from_secs(20);
/// Seconds before a replica that failed is tried again.
pub(super) const RETRY_SECONDS: u64 = 600;

/// The service of replicas.
pub(super) struct ReplicaService {
    context: Arc<Context>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl ReplicaService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), task: Mutex::default() }
    }
}

/// A replication.
pub(super) struct Work<'a> {
    pub(super) source: &'a DatasetAddress,
    pub(super) target: &'a DatasetAddress,
    pub(super) recursive: bool,
    pub(super) ssh: &'a [String],
    pub(super) rate: Option<RateLimit>,
    /// When it may run.
    pub(super) window: Option<Window>,
    /// The configured replica.
    replica: Option<&'a ReplicaConfig>,
}

impl<'a> Work<'a> {
    pub(super) fn of(replica: &'a ReplicaConfig, window: Option<Window>) -> Self {
        Work {
            source: &replica.source,
            target: &replica.target,
            recursive: replica.recursive,
            ssh: &replica.ssh,
            rate: replica.rate,
            window,
            replica: Some(replica),
        }
    }

    /// The dataset of the target, and the source's with its host.
    pub(super) fn names(&self, dataset: &str) -> (String, String) {
        let below = dataset.strip_prefix(self.source.dataset()).unwrap_or_default();
        (format!("{}{below}", self.target.dataset()), format!("{}{below}", self.source.to_text()))
    }
}

pub(super) fn configured(context: &Context) -> Vec<ReplicaConfig> {
    context.config.current().section("replica")
}

/// Brings a copy up to date, as a job.
fn replicate(
    context: &Arc<Context>,
    work: &Work<'_>,
    caller: &Caller,
) -> Result<Vec<ReplicatedDataset>> {
    let control = Arc::new(TransferControl::new(caller.cancel.clone(), work.window));
    let (uid, source) = (caller.peer.uid, work.source.to_text());
    let job = context.jobs.start("replicate", &source, uid, Arc::clone(&control) as Arc<_>);
    let done = replicate_all(context, work, caller, &control);
    end_job(job, &control, &done);
    done
}

pub(super) fn end_job<T>(job: RunningJob, control: &TransferControl, done: &Result<T>) {
    match done {
        Ok(_) => job.finish(),
        Err(why) if control.is_cancelled() => job.cancelled(why.to_string()),
        Err(why) => job.fail(why.to_string()),
    }
}

fn replicate_all(
    context: &Arc<Context>,
    work: &Work<'_>,
    caller: &Caller,
    control: &TransferControl,
) -> Result<Vec<ReplicatedDataset>> {
    let ends = Ends::open(context, work, caller)?;
    let was_asleep = ends.wake(work, control)?;
    let done = copy_all(context, work, (&ends, control));
    if was_asleep {
        ends.send_to_sleep(context, work);
    }
    done
}

/// The two ends of a replication.
pub(super) struct Ends {
    pub(super) source: Box<dyn ReplicaSource>,
    target: Box<dyn ReplicaTarget>,
    /// The host of the end that is not here.
    other_host: Option<SshHost>,
}

impl Ends {
    pub(super) fn open(context: &Arc<Context>, work: &Work<'_>, caller: &Caller) -> Result<Self> {
        let [source_host, target_host] =
            [work.source, work.target].map(|address| SshHost::new(address, work.ssh));
        check_ends(work, source_host.is_some(), target_host.is_some())?;
        let other = if source_host.is_some() { work.source } else { work.target };
        let local = LocalTarget { pools: Arc::clone(&context.pools), caller: caller.clone() };
        Ok(Self {
            source: open_source(context, source_host),
            target: match target_host {
                Some(host) => Box::new(host),
                None => Box::new(local),
            },
            other_host: SshHost::new(other, work.ssh),
        })
    }

    /// Wakes the other host. Returns whether it was asleep.
    pub(super) fn wake(&self, work: &Work<'_>, control: &TransferControl) -> Result<bool> {
        let address = work.replica.and_then(|replica| Some((replica.wake?, replica.wake_address)));
        match (&self.other_host, address) {
            (Some(host), Some(address)) => wake_host(host, address, control),
            _ => Ok(false),
        }
    }

    /// Sends a host to sleep again that was woken. A failure is in the log: the copies are safe.
    pub(super) fn send_to_sleep(&self, context: &Context, work: &Work<'_>) {
        let (Some(host), Some(replica)) = (&self.other_host, work.replica) else { return };
        let words: Vec<&str> = replica.sleep.iter().map(String::as_str).collect();
        if words.is_empty() {
            return;
        }
        if let Err(why) = host.run(&words) {
            let name = &replica.name.0;
            context
                .log
                .write_line(&format!("replica {name}: it was not sent to sleep again: {why}"));
        }
    }
}

pub(super) fn open_source(context: &Context, host: Option<SshHost>) -> Box<dyn ReplicaSource> {
    match host {
        Some(host) => Box::new(SshSource(host)),
        None => Box::new(LocalSource(Arc::clone(&context.pools))),
    }
}

fn copy_all(
    context: &Context,
    work: &Work<'_>,
    (ends, control): (&Ends, &TransferControl),
) -> Result<Vec<ReplicatedDataset>> {
    let (source, target) = (&*ends.source, &*ends.target);
    let mut done = Vec::new();
    for dataset in source.datasets(work.source.dataset(), work.recursive)? {
        let (copy, name) = work.names(&dataset);
        let (dataset, rate) = (&*dataset, work.rate);
        let transfer = Transfer { source, dataset, target, copy: &copy, control, rate };
        let safe = transfer.run()?;
        if let (Some(replica), Some(safe)) = (work.replica, &safe) {
            let (replica, safe) = (replica.name.0.as_str(), safe.clone());
            let marked = source.mark(dataset, replica, &safe);
            context.replicas.update(replica, |state| drop(state.copies.insert(name.clone(), safe)));
            if let Err(why) = marked {
                // the copy is there, also if a user of the other host may not create bookmarks
                context
                    .log
                    .write_line(&format!("replica {replica}: {name} has no bookmark: {why}"));
            }
        }
        let snapshot = safe.map(|safe| safe.snapshot);
        done.push(ReplicatedDataset { source: name, target: copy, snapshot });
    }
    Ok(done)
}

/// Refuses a source and a target that do not go together.
fn check_ends(work: &Work<'_>, is_pull: bool, is_push: bool) -> Result<()> {
    let (source, target) = (work.source.dataset(), work.target.dataset());
    if is_pull && is_push {
        return Err(Error::usage_error(
            "the source or the target must be in a pool of this host; run the command on the other host",
        ));
    }
    if !is_pull && !is_push && (is_within(target, source) || is_within(source, target)) {
        return Err(Error::usage_error(format!("'{source}' and '{target}' overlap")));
    }
    Ok(())
}

fn is_within(dataset: &str, top: &str) -> bool {
    dataset.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Brings a configured replica up to date, and records the result.
fn run_replica(
    context: &Arc<Context>,
    replica: &ReplicaConfig,
    window: Option<Window>,
    caller: &Caller,
) -> Result<Vec<ReplicatedDataset>> {
    let _running = context.replica_lock.lock();
    let name = replica.name.0.as_str();
    let work = Work::of(replica, window);
    context.replicas.note(std::slice::from_ref(replica), unix_seconds());
    context.replicas.update(name, |state| state.tried = Some(unix_seconds()));
    let done = replicate(context, &work, caller);
    context.replicas.update(name, |state| match &done {
        Ok(_) => (state.succeeded, state.error) = (Some(unix_seconds()), None),
        Err(why) => state.error = Some(why.to_string()),
    });
    done
}

/// Whether a replica is to be brought up to date now.
fn is_due(context: &Context, replica: &ReplicaConfig, now: u64) -> bool {
    let state = context.replicas.state(&replica.name.0);
    if state.error.is_some() && state.tried.is_some_and(|tried| now < tried + RETRY_SECONDS) {
        return false;
    }
    if !replica.window.is_none_or(|window| window.is_open(now)) {
        return false;
    }
    let start = replica.every.period().start(now, &TimeZone::system());
    start.is_some_and(|start| state.succeeded.is_none_or(|succeeded| succeeded < start))
}

/// Brings a replica up to date and tests it, if that is due.
fn run_due(context: &Arc<Context>, replica: &ReplicaConfig) {
    let peer = Peer::from_uid(rustix::process::geteuid().as_raw());
    let caller = Caller { peer, cancel: Cancel::default() };
    let log = |why: Error| context.log.write_line(&format!("replica {}: {why}", replica.name.0));
    if is_due(context, replica, unix_seconds()) {
        let _ = run_replica(context, replica, replica.window, &caller).map_err(log);
    }
    if is_test_due(context, replica, unix_seconds()) {
        let _ = test_replica(context, replica, replica.window, &caller).map_err(log);
    }
}

/// A condition for each replica whose newest copy is older than the configuration allows.
pub(crate) fn overdue_replicas(context: &Context, now: u64) -> Vec<Condition> {
    let mut found = Vec::new();
    for replica in configured(context) {
        let Some(MaxAge(limit)) = replica.max_age else { continue };
        let state = context.replicas.state(&replica.name.0);
        // a replica that was just configured gets its first try
        if state.tried.is_none() {
            continue;
        }
        let copies = copies(context, &replica, &state);
        let is_old = |copy: &CopyStatus| {
            copy.snapshot_time.is_none_or(|created| now.minus_or_zero(created) > limit)
        };
        let lacks = |copy: &CopyStatus| copy.missing.is_none_or(|missing| missing > 0);
        let Some(copy) = copies.iter().find(|copy| lacks(copy) && is_old(copy)) else {
            continue;
        };
        let name = &replica.name.0;
        let newest = copy.snapshot.as_deref().map_or_else(
            || "There is no copy of it yet.".to_owned(),
            |snapshot| format!("The newest copy is of the snapshot @{snapshot}."),
        );
        let why =
            state.error.map_or_else(String::new, |why| format!(" The last try failed: {why}."));
        found.push(Condition {
            key: format!("replica/{name}/age"),
            severity: Severity::Warning,
            level: 0,
            title: format!("Replica {name} of {} is too old", copy.source),
            sentence: format!("{newest} What was written since is in one place only.{why}"),
            action: format!(
                "See: poolhouse replicate status; try again: poolhouse replicate run {name}"
            ),
        });
    }
    found
}

fn status(context: &Context) -> Vec<ReplicaStatus> {
    let report = |replica: ReplicaConfig| {
        let state = context.replicas.state(&replica.name.0);
        ReplicaStatus {
            copies: copies(context, &replica, &state),
            name: replica.name.0,
            target: replica.target.to_text(),
            succeeded: state.succeeded,
            error: state.error,
            tested: state.tested,
            test_error: state.test_error,
        }
    };
    configured(context).into_iter().map(report).collect()
}

/// The copies of a replica; none while the pool of its source is not imported. The snapshots of another host are not
/// known.
fn copies(context: &Context, replica: &ReplicaConfig, state: &ReplicaState) -> Vec<CopyStatus> {
    let DatasetAddress::Local(top) = &replica.source else {
        let known = state.copies.iter().map(|(source, copy)| CopyStatus {
            source: source.clone(),
            snapshot: Some(copy.snapshot.clone()),
            snapshot_time: Some(copy.created),
            missing: None,
        });
        let none = || CopyStatus { source: replica.source.to_text(), ..CopyStatus::default() };
        let known: Vec<CopyStatus> = known.collect();
        return if known.is_empty() { vec![none()] } else { known };
    };
    let Ok(pool) = context.pools.pool_of_dataset(top) else { return Vec::new() };
    let heads = list_head_names(&pool.handle, top).unwrap_or_default();
    let report = |source: String| {
        let copy = state.copies.get(&source);
        let last = copy.map_or(0, |copy| copy.txg);
        let snapshots = pool.handle.snapshots().list(&source).unwrap_or_default();
        CopyStatus {
            snapshot: copy.map(|copy| copy.snapshot.clone()),
            snapshot_time: copy.map(|copy| copy.created),
            missing: Some(snapshots.iter().filter(|it| it.txg > last).count()),
            source,
        }
    };
    heads.into_iter().filter(|head| replica.covers(head)).map(report).collect()
}

/// The configured replica of a name, or all of them.
fn named(context: &Context, name: Option<&str>) -> Result<Vec<ReplicaConfig>> {
    let mut all = configured(context);
    all.retain(|replica| name.is_none_or(|name| replica.name.0 == name));
    if all.is_empty() {
        return Err(Error::refused_error(
            "no such replica is configured: add a section [[replica]] to config.toml",
        ));
    }
    Ok(all)
}

impl Service for ReplicaService {
    fn name(&self) -> &'static str {
        "replicas"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let context = Arc::clone(&self.context);
        router.add(move |call: &Replicate, caller| {
            let source = DatasetAddress::parse(&call.source)?;
            let target = DatasetAddress::parse(&call.target)?;
            let work = Work {
                source: &source,
                target: &target,
                recursive: call.recursive,
                ssh: &ssh_command(),
                rate: None,
                window: None,
                replica: None,
            };
            replicate(&context, &work, caller)
        });
        let context = Arc::clone(&self.context);
        router.add(move |call: &RunReplicas, caller| {
            let mut done = Vec::new();
            for replica in &named(&context, call.name.as_deref())? {
                done.extend(run_replica(&context, replica, None, caller)?);
            }
            Ok(done)
        });
        let context = Arc::clone(&self.context);
        router.add(move |call: &TestReplicas, caller| {
            let mut done = Vec::new();
            for replica in &named(&context, call.name.as_deref())? {
                done.extend(test_replica(&context, replica, None, caller)?);
            }
            Ok(done)
        });
        let context = Arc::clone(&self.context);
        router.add(move |_: &GetReplicaStatus, _| Ok(status(&context)));
    }

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        let context = Arc::clone(context);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                for replica in configured(&context) {
                    // in a power failure the battery is for the data that is already here
                    if context.ups.is_quiet() {
                        continue;
                    }
                    let context = Arc::clone(&context);
                    // the log has the error
                    let _ = tokio::task::spawn_blocking(move || run_due(&context, &replica)).await;
                }
            }
        });
        *self.task.lock() = Some(task);
        Ok(())
    }

    fn stop(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}
