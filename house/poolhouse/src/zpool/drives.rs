//! `poolhouse zpool add` and `poolhouse zpool remove`.

use std::io::Write;

use api::{AddDevices, RemoveDevices, VdevRole};

use super::vdevs;
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};

/// Add cache drives and spares to a pool
#[derive(clap::Args, Debug)]
#[command(
    after_help = "After cache come drives that keep what is often read, after spare those that can
take the place of others. Vdevs for data cannot be added yet.

Examples:
  poolhouse zpool add tank cache nvme0n1
  poolhouse zpool add tank spare sdg sdh"
)]
pub(super) struct AddArgs {
    /// Use drives that hold something
    #[arg(short = 'f')]
    force: bool,
    /// Only show the layout
    #[arg(short = 'n')]
    dry_run: bool,
    /// The pool
    pool: String,
    /// What they are for, and the drives
    #[arg(value_name = "VDEV", required = true)]
    vdevs: Vec<String>,
}

/// Remove cache drives and spares from a pool
#[derive(clap::Args, Debug)]
#[command(after_help = "Nothing is lost with them. Other drives cannot be removed yet.

Example:
  poolhouse zpool remove tank nvme0n1")]
pub(super) struct RemoveArgs {
    /// The pool
    pool: String,
    /// The drives, by path or guid
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<String>,
}

impl AddArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let vdevs = vdevs::parse_vdevs(&self.vdevs)?;
        if vdevs.iter().any(|(_, role, _)| !matches!(role, VdevRole::Cache | VdevRole::Spare)) {
            let what =
                "only cache drives and spares can be added to a pool yet: say cache or spare";
            return Err(Failure::usage(what));
        }
        if self.dry_run {
            write!(std::io::stdout(), "{}", vdevs::format_vdevs(&self.pool, &vdevs))?;
            return Ok(Outcome::Complete);
        }
        let (name, force) = (self.pool.clone(), self.force);
        asking.execute(&AddDevices { name, vdevs, force })
    }
}

impl RemoveArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let drives = self.drives.iter().map(|drive| vdevs::resolve_drive(drive));
        let (name, drives) = (self.pool.clone(), drives.collect());
        asking.execute(&RemoveDevices { name, devices: drives })
    }
}
