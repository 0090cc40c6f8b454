//! `poolhouse backup run`: has the daemon add snapshots to a repository.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::{BucketAccess, CancelJob, Job, JobState, ListJobs, Secret, StartBackup};

use super::s3_access;
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::progress::Progress;
use crate::{interrupt, print};

/// Add snapshots of an imported pool to a repository
#[derive(clap::Args, Debug)]
#[command(
    after_help = "FS@SNAPSHOT is that snapshot. FS alone means all its snapshots that are newer than those in
the repository. All snapshots of a run become visible at once, when it ends. A run that is
interrupted loses nothing: the next one continues with the packs that are stored.
Encrypted datasets are stored encrypted, with or without their keys loaded.

The daemon runs the backup as a job; this command waits for it. Ctrl-C cancels it.

Examples:
  poolhouse backup run file:///mnt/usb/backup tank/home@monday
  poolhouse backup run -r file:///mnt/usb/backup tank
  poolhouse backup run --protect-days 30 s3://bucket/nas tank/home
  poolhouse backup run --detach file:///mnt/usb/backup tank/home"
)]
pub(super) struct Args {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// The repository: file:///FOLDER or s3://BUCKET/FOLDER
    location: String,
    /// FS or FS@SNAPSHOT
    #[arg(required = true)]
    targets: Vec<String>,
    /// Back up the datasets below as well
    #[arg(short, long)]
    recursive: bool,
    /// The daemon keeps what it reads from the store in this folder too, so that it is fetched once
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// The most space that the cache takes
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = super::parse_size)]
    cache_size: u64,
    /// Then protect what the snapshots need from deletion, for some days from now (object lock), as `backup protect` does
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=36_500))]
    protect_days: Option<u64>,
    /// Do not wait for the end: `poolhouse jobs` shows how far it is
    #[arg(long)]
    detach: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
}

/// The parts of this command's environment that the daemon needs to reach a bucket.
fn bucket_access() -> Option<BucketAccess> {
    let secret = |text: String| Secret(text.into_bytes());
    s3_access().map(|access| BucketAccess {
        endpoint: access.endpoint,
        region: access.region,
        key_id: access.key_id,
        secret: secret(access.secret),
        token: access.token.map(secret),
        ca_file: access.ca_file,
    })
}

/// The path as the daemon sees it, which has another working directory.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |why| Failure::unreadable(path, &engine::error::io_error_text(&why));
    std::path::absolute(path).map_err(failed)
}

/// How often to look how far the job is.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Args {
    pub(super) fn run(&self) -> CommandResult {
        let call = StartBackup {
            location: self.location.clone(),
            targets: self.targets.clone(),
            recursive: self.recursive,
            cache: self.cache.as_deref().map(absolute).transpose()?,
            cache_bytes: self.cache_size,
            protect_days: self.protect_days,
            access: if self.location.starts_with("s3://") { bucket_access() } else { None },
        };
        interrupt::install_handler();
        let started = self.daemon.request(&call)?;
        if self.detach {
            print::line(&format!("job {}", started.job))?;
            return Ok(Outcome::Complete);
        }
        let job = self.wait(started.job)?;
        if self.daemon.json {
            print::json(&job)?;
        }
        let sentence = job.log.last().cloned().unwrap_or_default();
        match job.state {
            JobState::Finished => {
                if !self.daemon.json {
                    print::line(&sentence)?;
                }
                Ok(Outcome::Complete)
            }
            JobState::Cancelled => {
                print::warning(&sentence);
                Ok(Outcome::Interrupted)
            }
            _ => Err(engine::Error::Refused { what: sentence }.into()),
        }
    }

    /// Waits for the end of a job, and cancels it if the user interrupts this command.
    fn wait(&self, id: u64) -> Result<Job, Failure> {
        let mut progress = Progress::new(0, self.quiet);
        let (mut done, mut total, mut is_cancelled) = (0, 0, false);
        loop {
            let jobs = self.daemon.request(&ListJobs {})?;
            let job = jobs.into_iter().find(|job| job.id == id).ok_or_else(|| {
                Failure::from(engine::Error::NotFound { what: format!("job {id}") })
            })?;
            if job.state != JobState::Running {
                progress.finish();
                return Ok(job);
            }
            if job.progress.total != total {
                total = job.progress.total;
                progress.finish();
                progress = Progress::new(total, self.quiet);
                done = 0;
            }
            progress.add_bytes(job.progress.done.saturating_sub(done));
            done = job.progress.done;
            if interrupt::is_interrupted() && !is_cancelled {
                is_cancelled = true;
                // it may have ended meanwhile
                let _ = self.daemon.request(&CancelJob { id });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
