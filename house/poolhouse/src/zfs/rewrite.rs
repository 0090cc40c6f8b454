//! `zfs rewrite`.

use std::path::Path;
use std::time::Duration;

use api::{CancelJob, GetRewrite, Job, JobState, ListJobs, RewriteFiles, StartedRewrite};

use crate::bench::path::parse_size;
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::progress::Progress;
use crate::{interrupt, print};

/// How often to look how far the job is.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Rewrite the blocks of files in place, with the present properties and layout
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Content, size and times of the files stay, and programs may use and change them meanwhile. The
new blocks get the compression, checksum and copies that the dataset has now, and the
layout that the pool has now: after `zpool attach` expanded a raidz, its new ratio of data
to parity. The record size of a file stays. Holes stay holes.

Snapshots keep the old blocks, so these take space twice until the snapshots are
destroyed (-S leaves them alone). Blocks that copies share (block cloning) are shared no
more (-C leaves them alone). The next incremental `zfs send` contains rewritten blocks.

The daemon does it as a job; this command waits for it, and Ctrl-C cancels it. A job that
was cancelled or cut says with which --born-before it is continued. Nothing is lost at any
moment: a rewrite is a write of the same content.

Examples:
  poolhouse zfs rewrite /tank/movies/film.mkv
  poolhouse zfs rewrite -r -v /tank/photos
  poolhouse zfs rewrite -r -S -C /tank
  poolhouse zfs rewrite -r tank/photos:/2024"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(super) struct RewriteArgs {
    /// Leave blocks as they are that files share by block cloning
    #[arg(short = 'C')]
    skip_cloned: bool,
    /// Physical rewrite: needs the feature physical_rewrite, which is not supported
    #[arg(short = 'P')]
    physical: bool,
    /// Leave blocks as they are that the newest snapshot shares
    #[arg(short = 'S')]
    skip_snapshots: bool,
    /// Rewrite the files below directories
    #[arg(short)]
    recursive: bool,
    /// Print the names of the rewritten files
    #[arg(short)]
    verbose: bool,
    /// With -r: stay in the file systems of the paths
    #[arg(short = 'x')]
    one_filesystem: bool,
    /// Rewrite at most this number of bytes of each file
    #[arg(short, value_name = "LENGTH")]
    length: Option<String>,
    /// Begin at this byte of each file
    #[arg(short, value_name = "OFFSET")]
    offset: Option<String>,
    /// Rewrite only blocks that were written before this txg
    #[arg(long, value_name = "TXG")]
    born_before: Option<u64>,
    /// Do not wait for the end: `poolhouse jobs` shows how far it is
    #[arg(long)]
    detach: bool,
    /// Files and directories: paths in mounted file systems, or FS:/PATH
    #[arg(required = true, value_name = "FILE|DIRECTORY")]
    paths: Vec<String>,
}

impl RewriteArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        super::refuse_options("rewrite", &[("-P", self.physical)])?;
        let call = RewriteFiles {
            paths: self.paths.iter().map(|path| resolve_path(path)).collect::<Result<_, _>>()?,
            recursive: self.recursive,
            one_filesystem: self.one_filesystem,
            offset: self.offset.as_deref().map_or(Ok(0), parse_offset)?,
            length: self.length.as_deref().map(parse_size).transpose()?,
            skip_cloned: self.skip_cloned,
            skip_snapshots: self.skip_snapshots,
            born_before: self.born_before,
            names: self.verbose && !self.detach,
        };
        interrupt::install_handler();
        let started = asking.request(&call)?;
        if self.detach {
            print::line(&format!("job {}", started.job))?;
            return Ok(Outcome::Complete);
        }
        let job = self.wait(asking, &started)?;
        if asking.json {
            print::json(&job)?;
        }
        let sentence = job.log.last().cloned().unwrap_or_default();
        match job.state {
            JobState::Finished => {
                if self.verbose && !asking.json {
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

    /// Waits for the end of the job, and cancels it if the user interrupts this command.
    fn wait(&self, asking: &DaemonArgs, started: &StartedRewrite) -> Result<Job, Failure> {
        let id = started.job;
        let progress = Progress::new(0, self.verbose || asking.json);
        let (mut done, mut is_cancelled) = (0, false);
        loop {
            let status = asking.request(&GetRewrite { job: id })?;
            for name in status.names.iter().filter(|_| !asking.json) {
                print::line(name)?;
            }
            for why in &status.errors {
                progress.print_warning(why);
            }
            progress.add_bytes(status.rewritten.saturating_sub(done));
            done = status.rewritten;
            if status.has_ended {
                let jobs = asking.request(&ListJobs {})?;
                let found = jobs.into_iter().find(|job| job.id == id);
                let job = found.ok_or_else(|| {
                    Failure::from(engine::Error::NotFound { what: format!("job {id}") })
                })?;
                // the job ends a moment after its last file
                if job.state != JobState::Running {
                    progress.finish();
                    return Ok(job);
                }
            }
            if interrupt::is_interrupted() && !is_cancelled {
                is_cancelled = true;
                // it may have ended meanwhile
                let _ = asking.request(&CancelJob { id });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

fn parse_offset(text: &str) -> Result<u64, Failure> {
    if text == "0" { Ok(0) } else { parse_size(text) }
}

/// The path as the daemon needs it: without symbolic links, from the root. `FS:/PATH` stays.
fn resolve_path(path: &str) -> Result<String, Failure> {
    if !path.starts_with('/') && path.contains(":/") && !Path::new(path).exists() {
        return Ok(path.to_owned());
    }
    let found = std::fs::canonicalize(path).map_err(|why| {
        Failure::from(engine::Error::Refused { what: format!("cannot rewrite '{path}': {why}") })
    })?;
    Ok(found.display().to_string())
}
