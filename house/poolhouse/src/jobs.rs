//! `poolhouse jobs`: work of the daemon that takes long.

use std::io;

use api::{CancelJob, Job, ListJobs};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome, run_for_each};
use crate::table::{Align, Table};
use crate::{print, time};

/// List the jobs of the daemon, or cancel one
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Long destructions, imports with a rewind, scrubs and resilvers are jobs. The daemon keeps the
latest hundred that ended.

Examples:
  poolhouse jobs
  poolhouse jobs --json
  poolhouse jobs cancel 7"
)]
pub(crate) struct Jobs {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Cancel running jobs
    Cancel(CancelArgs),
}

/// Cancel running jobs
#[derive(clap::Args, Debug)]
#[command(after_help = "Finished work is kept. A resilver cannot be cancelled.

Example:
  poolhouse jobs cancel 7")]
struct CancelArgs {
    /// Their numbers
    #[arg(value_name = "ID", required = true)]
    ids: Vec<u64>,
}

impl Jobs {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        if let Some(Command::Cancel(args)) = &self.command {
            return run_for_each(&args.ids, |id| self.daemon.execute(&CancelJob { id: *id }));
        }
        let jobs = self.daemon.request(&ListJobs {})?;
        if self.daemon.json {
            print::json(&jobs)?;
            return Ok(Outcome::Complete);
        }
        let mut table = Table::new([
            Align::Right,
            Align::Left,
            Align::Left,
            Align::Left,
            Align::Right,
            Align::Left,
        ]);
        table.add_row(["ID", "STARTED", "JOB", "STATE", "DONE", "SUBJECT"].map(str::to_owned));
        for job in &jobs {
            table.add_row([
                job.id.to_string(),
                time::format_zpool(job.started),
                job.kind.clone(),
                job.state.as_str().to_owned(),
                format_progress(job),
                job.subject.clone(),
            ]);
        }
        table.print(&mut io::stdout().lock())?;
        Ok(Outcome::Complete)
    }
}

/// How far a job is: `37%`, or a number if its total is not known.
fn format_progress(job: &Job) -> String {
    let progress = &job.progress;
    match u128::from(progress.done) * 100 / u128::from(progress.total.max(1)) {
        _ if progress.total == 0 => format!("{} {}", progress.done, progress.unit),
        percent => format!("{}%", percent.min(100)),
    }
}

#[cfg(test)]
mod tests {
    use api::{Job, JobProgress, JobState};

    use super::format_progress;

    #[test]
    fn progress_is_a_percentage_with_known_total() {
        let job = |done, total| Job {
            id: 1,
            kind: "scrub".to_owned(),
            subject: "tank".to_owned(),
            uid: 0,
            state: JobState::Running,
            progress: JobProgress { done, total, unit: "bytes".to_owned() },
            started: 0,
            finished: None,
            log: Vec::new(),
        };
        assert_eq!(format_progress(&job(u64::MAX / 2, u64::MAX)), "49%");
        assert_eq!(format_progress(&job(3, 2)), "100%");
        assert_eq!(format_progress(&job(5, 0)), "5 bytes");
    }
}
