//! The service of backups: snapshots of imported pools go into repositories, as jobs.

use std::sync::Arc;
use std::thread::JoinHandle;

use api::{BucketAccess, Event, JobProgress, Secret, StartBackup, StartedBackup, pool_of};
use bucket::{CachedStore, S3Access};
use engine::backup::BackupRepository;
use engine::pool::{BackedUp, BackupRequest, Pool};
use job::Job;
use parking_lot::Mutex;

use super::Service;
use crate::auth::Caller;
use crate::context::Context;
use crate::events::{ChangeOptions, unix_seconds};
use crate::jobs::{JobControl, RunningJob};
use crate::router::Router;
use crate::{Error, Result, repositories};

/// The service of backups.
pub(super) struct BackupService {
    context: Arc<Context>,
    running: Mutex<Vec<RunningBackup>>,
}

/// A backup that runs, or has just ended.
struct RunningBackup {
    id: u64,
    pool: String,
    location: String,
    control: Arc<BackupControl>,
    thread: JoinHandle<()>,
}

/// The control of a backup's job.
#[derive(Default)]
struct BackupControl(Job);

impl JobControl for BackupControl {
    fn progress(&self) -> JobProgress {
        let progress = &self.0.progress;
        let (done, total) = (progress.bytes_done(), progress.bytes_total());
        JobProgress { done, total, unit: "bytes".to_owned() }
    }

    fn cancel(&self) {
        self.0.cancel.cancel();
    }
}

impl BackupService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), running: Mutex::default() }
    }

    fn start_backup(&self, call: &StartBackup, caller: &Caller) -> Result<StartedBackup> {
        let first =
            call.targets.first().ok_or_else(|| Error::usage_error("no dataset is named"))?;
        let pool_name = pool_of(first);
        if call.targets.iter().any(|target| pool_of(target) != pool_name) {
            return Err(Error::usage_error("the datasets of a backup are of one pool"));
        }
        let pool = self.context.pools.pool(pool_name)?.handle.clone();
        let mut running = self.running.lock();
        running.retain(|backup| !backup.thread.is_finished());
        if let Some(other) = running.iter().find(|backup| backup.location == call.location) {
            let (location, id) = (&call.location, other.id);
            return Err(Error::refused_error(format!(
                "a backup to {location} runs already: job {id}; `poolhouse jobs` shows how far it is"
            )));
        }
        // a wrong address is an error of the call
        let access = match &call.access {
            Some(access) => Some(to_s3_access(access)),
            None => repositories::access(&self.context.config.current(), &call.location)?,
        };
        let mut store = bucket::open(&call.location, false, access.as_ref())?;
        if let Some(folder) = &call.cache {
            store = Arc::new(CachedStore::open(store, folder.clone(), call.cache_bytes)?);
        }
        let repository = BackupRepository::open(store)?;
        let control = Arc::new(BackupControl::default());
        let subject = format!("{} to {}", call.targets.join(" "), call.location);
        let job =
            self.context.jobs.start("backup", &subject, caller.peer.uid, Arc::clone(&control) as _);
        let id = job.id();
        let request = BackupRequest {
            targets: call.targets.clone(),
            recursive: call.recursive,
            protect_until: call.protect_days.map(protection_end).transpose()?,
        };
        let work = {
            let control = Arc::clone(&control);
            move || run_backup(&pool, &repository, &request, &control.0, job)
        };
        let thread = std::thread::Builder::new().name(format!("backup {pool_name}")).spawn(work);
        let thread = thread.map_err(|why| {
            Error::refused_error(format!("the backup has no thread: {why}; try again"))
        })?;
        let (pool, location) = (pool_name.to_owned(), call.location.clone());
        running.push(RunningBackup { id, pool, location, control, thread });
        Ok(StartedBackup { job: id })
    }

    /// Cancels backups and waits until they have stopped. The next run finds their stored objects.
    fn cancel(&self, is_meant: &dyn Fn(&RunningBackup) -> bool) {
        let mut running = self.running.lock();
        let (meant, others) = running.drain(..).partition(|backup| is_meant(backup));
        *running = others;
        drop(running);
        let meant: Vec<RunningBackup> = meant;
        for backup in &meant {
            backup.control.cancel();
        }
        for backup in meant {
            // the job recorded its error
            let _ = backup.thread.join();
        }
    }
}

fn to_s3_access(access: &BucketAccess) -> S3Access {
    let text = |secret: &Secret| String::from_utf8_lossy(&secret.0).into_owned();
    S3Access {
        endpoint: access.endpoint.clone(),
        region: access.region.clone(),
        key_id: access.key_id.clone(),
        secret: text(&access.secret),
        token: access.token.as_ref().map(text),
        ca_file: access.ca_file.clone(),
    }
}

/// Runs a backup, and ends its job with a sentence.
fn run_backup(
    pool: &Pool,
    repository: &BackupRepository,
    request: &BackupRequest,
    work: &Job,
    job: RunningJob,
) {
    match pool.streams().back_up(repository, request, work) {
        Ok(done) => match describe_protection(&done) {
            Ok(protection) => job.finish_with(describe(&done, repository) + &protection),
            Err(why) => job.fail(format!("{} {why}", describe(&done, repository))),
        },
        Err(engine::Error::Interrupted) => {
            let why = "It was cancelled; the next backup finds the packs that are stored.";
            job.cancelled(why.to_owned());
        }
        Err(why) => job.fail(why.to_string()),
    }
}

/// The end of a protection of this many days from now, in seconds since 1970.
fn protection_end(days: u64) -> Result<u64> {
    const DAY: u64 = 24 * 60 * 60;
    if !(1..=36_500).contains(&days) {
        return Err(Error::usage_error("objects are protected for 1 to 36500 days"));
    }
    Ok(unix_seconds() + days * DAY)
}

/// A sentence about the protection; an error if a part failed.
fn describe_protection(done: &BackedUp) -> std::result::Result<String, String> {
    let Some(report) = &done.protected else { return Ok(String::new()) };
    match report.failed.first() {
        None => Ok(format!(
            " {} objects are needed; the protection of {} was extended.",
            report.objects, report.extended
        )),
        Some((name, why)) => Err(format!(
            "{} of {} objects are not protected: '{name}': {why}; `poolhouse backup protect` tries again.",
            report.failed.len(),
            report.objects
        )),
    }
}

fn describe(done: &BackedUp, repository: &BackupRepository) -> String {
    let (BackedUp { added, counts, .. }, location) = (done, repository.location());
    if added.is_empty() {
        return format!("All snapshots are in {location} already.");
    }
    let names = if added.len() > 10 { String::new() } else { format!(" ({})", added.join(", ")) };
    format!(
        "{} snapshot(s){names} added to {location}: {} bytes in {} new blocks, {} blocks found from an \
         interrupted run.",
        added.len(),
        counts.bytes,
        counts.blocks,
        counts.resumed_blocks
    )
}

impl Service for BackupService {
    fn name(&self) -> &'static str {
        "backups"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        router.add(move |call: &StartBackup, caller| self.start_backup(call, caller));
    }

    fn prepare(&self, coming: &[Event], options: &ChangeOptions) -> Result<()> {
        let leaving = coming.iter().filter_map(|event| match event {
            Event::PoolExported { pool } | Event::PoolDestroyed { pool } => Some(pool),
            _ => None,
        });
        for pool in leaving {
            let found = {
                let mut running = self.running.lock();
                running.retain(|backup| !backup.thread.is_finished());
                running.iter().find(|backup| backup.pool == *pool).map(|backup| backup.id)
            };
            let Some(id) = found else { continue };
            if !options.force {
                return Err(Error::refused_error(format!(
                    "a backup of pool '{pool}' runs: job {id}; `poolhouse jobs cancel {id}` cancels it, and \
                     the next one continues it"
                )));
            }
            self.cancel(&|backup| backup.pool == *pool);
        }
        Ok(())
    }

    fn stop(&self) {
        self.cancel(&|_| true);
    }
}
