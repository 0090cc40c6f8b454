//! `poolhouse zpool scrub`.

use api::ScrubPool;

use super::wait::{Activity, wait_until_idle};
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};

/// Read everything in a pool, and repair what is wrong
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Each copy on each drive is read, and parity. The pool is in use all the while. It keeps how far
the scrub has come: after an export or a crash the scrub goes on, here or with OpenZFS. A paused scrub stays
paused until `zpool scrub` resumes it. `zpool status` shows the progress and the damaged files.

Examples:
  poolhouse zpool scrub tank         start a scrub, or resume a paused one
  poolhouse zpool scrub -w tank      return when it has ended
  poolhouse zpool scrub -p tank      pause it
  poolhouse zpool scrub -s tank      stop it
  poolhouse zpool scrub -e tank      only the blocks that `zpool status` lists as damaged
  poolhouse zpool scrub -C tank      only what was written since the last finished scrub"
)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct ScrubArgs {
    /// Read only the blocks with known errors
    #[arg(short = 'e', conflicts_with_all = ["stop", "pause", "since_last"])]
    errors_only: bool,
    /// Pause the scrub
    #[arg(short = 'p', conflicts_with_all = ["stop", "since_last", "wait"])]
    pause: bool,
    /// Stop the scrub
    #[arg(short = 's', conflicts_with_all = ["since_last", "wait"])]
    stop: bool,
    /// Read only what was written since the last finished scrub
    #[arg(short = 'C')]
    since_last: bool,
    /// Wait until it has ended, or is paused
    #[arg(short = 'w')]
    wait: bool,
    /// Their names
    #[arg(value_name = "POOL", required = true)]
    pools: Vec<String>,
}

impl ScrubArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        for name in &self.pools {
            let done = asking.execute(&ScrubPool {
                name: name.clone(),
                stop: self.stop,
                pause: self.pause,
                errors_only: self.errors_only,
                since_last_scrub: self.since_last,
            });
            let verb = match (self.stop, self.pause) {
                (true, _) => "cancel scrubbing",
                (_, true) => "pause scrubbing",
                _ => "scrub",
            };
            done.map_err(|why| why.with_subject(|| format!("cannot {verb} {name}")))?;
        }
        if self.wait {
            for name in &self.pools {
                wait_until_idle(asking, name, &[Activity::Resilver, Activity::Scrub])?;
            }
        }
        Ok(Outcome::Complete)
    }
}
