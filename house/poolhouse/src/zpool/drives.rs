//! `poolhouse zpool add` and `poolhouse zpool remove`.

use std::io::Write;

use ::daemon::{Request, VdevRole};

use super::vdevs;
use crate::daemon::Asking;
use crate::outcome::{Done, Failure, Outcome};

/// Add cache drives and spares to a pool
#[derive(clap::Args, Debug)]
#[command(
    after_help = "After cache come drives that keep what is often read, after spare those that can
take the place of others. Vdevs for data cannot be added yet.

Examples:
  poolhouse zpool add tank cache nvme0n1
  poolhouse zpool add tank spare sdg sdh"
)]
pub(super) struct Add {
    /// Use drives that hold something
    #[arg(short = 'f')]
    force: bool,
    /// Only show the layout
    #[arg(short = 'n')]
    dry: bool,
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
pub(super) struct Remove {
    /// The pool
    pool: String,
    /// The drives, by path or guid
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<String>,
}

impl Add {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        let vdevs = vdevs::parse(&self.vdevs)?;
        if vdevs.iter().any(|(_, role, _)| !matches!(role, VdevRole::Cache | VdevRole::Spare)) {
            let what =
                "only cache drives and spares can be added to a pool yet: say cache or spare";
            return Err(Failure::usage(what));
        }
        if self.dry {
            write!(std::io::stdout(), "{}", vdevs::shown(&self.pool, &vdevs))?;
            return Ok(Outcome::Complete);
        }
        let (name, force) = (self.pool.clone(), self.force);
        asking.tell(&Request::AddDrives { name, vdevs, force })
    }
}

impl Remove {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        let drives = self.drives.iter().map(|drive| vdevs::named(drive));
        let (name, drives) = (self.pool.clone(), drives.collect());
        asking.tell(&Request::RemoveDrives { name, drives })
    }
}
