//! `poolhouse zpool checkpoint`.

use api::CheckpointPool;

use super::wait::{Activity, wait_until_idle};
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};

/// Keep the state of a pool, so that an import can go back to it
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A checkpoint keeps the present state of all datasets, snapshots and properties. Blocks freed
afterwards keep their space until the checkpoint is discarded. Meanwhile drives cannot be attached,
detached, replaced or removed.

Examples:
  poolhouse zpool checkpoint tank
  poolhouse zpool checkpoint -d tank      discard it
  poolhouse zpool export tank && poolhouse zpool import --rewind-to-checkpoint tank"
)]
pub(super) struct Args {
    /// Discard the checkpoint
    #[arg(short = 'd', long = "discard")]
    discard: bool,
    /// With -d: wait until the space that only the checkpoint used is free
    #[arg(short = 'w', long = "wait", requires = "discard")]
    wait: bool,
    /// The pool
    pool: String,
}

impl Args {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        asking.execute(&CheckpointPool { name: self.pool.clone(), discard: self.discard })?;
        if self.wait {
            wait_until_idle(asking, &self.pool, &[Activity::Discard])?;
        }
        Ok(Outcome::Complete)
    }
}
