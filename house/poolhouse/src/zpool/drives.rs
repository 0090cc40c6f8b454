//! `poolhouse zpool add, remove, reopen, labelclear`.

use std::io::Write;

use api::{AddDevices, ClearLabels, RemoveDevices, ReopenPools};

use super::vdevs;
use crate::daemon::DaemonArgs;
use crate::outcome::CommandResult;

/// Add vdevs to a pool
#[derive(clap::Args, Debug)]
#[command(
    after_help = "New blocks go to the new vdevs as well; existing blocks stay in place. Most vdevs cannot be
removed again: a vdev with less redundancy than those of the pool is refused without -f.
The word log precedes vdevs for the intent log, special and dedup those for metadata, cache L2ARC
devices, spare hot spares.

Examples:
  poolhouse zpool add tank raidz2 /dev/sd[g-l]
  poolhouse zpool add -n tank mirror sdg sdh      check it, and show the layout
  poolhouse zpool add tank log mirror nvme0n1 nvme1n1 spare sdi"
)]
pub(super) struct AddArgs {
    /// Use drives with data, and vdevs with another redundancy than those of the pool
    #[arg(short = 'f')]
    force: bool,
    /// Only check it, and show the layout
    #[arg(short = 'n')]
    dry_run: bool,
    /// ashift=N: log2 of the sector size; the default is the pool's
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = parse_ashift)]
    ashift: Option<u64>,
    /// The pool
    pool: String,
    /// Class of the vdevs, and their drives
    #[arg(value_name = "VDEV", required = true)]
    vdevs: Vec<String>,
}

/// Remove cache drives, spares and log vdevs from a pool
#[derive(clap::Args, Debug)]
#[command(after_help = "No data is lost with them. Vdevs with data cannot be removed yet.

Examples:
  poolhouse zpool remove tank nvme0n1
  poolhouse zpool remove tank mirror-1    a log vdev, as `zpool status` names it")]
pub(super) struct RemoveArgs {
    /// The pool
    pool: String,
    /// The drives, by path or guid, or names of log vdevs
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<String>,
}

/// Open missing drives of pools again
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Missing drives are used again if they are at their old paths or in the same folders. The
daemon does this automatically within seconds.

Example:
  poolhouse zpool reopen tank"
)]
pub(super) struct ReopenArgs {
    /// Do not restart a resilver that runs, as is done without it
    #[arg(short = 'n')]
    _keep_scan: bool,
    /// Pools; default: all
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// Clear the labels of a drive that no pool uses
#[derive(clap::Args, Debug)]
#[command(after_help = "A pool that needs the drive cannot be imported with it afterwards.

Examples:
  poolhouse zpool labelclear sdb
  poolhouse zpool labelclear -f sdb    it is part of an unneeded exported pool")]
pub(super) struct LabelclearArgs {
    /// Even if it is part of an exported pool, or of one that another host may use
    #[arg(short = 'f')]
    force: bool,
    /// The drive
    drive: String,
}

impl ReopenArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        asking.execute(&ReopenPools { names: self.pools.clone() })
    }
}

impl LabelclearArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let path = vdevs::resolve_path(&self.drive);
        asking.execute(&ClearLabels { path, force: self.force })
    }
}

impl AddArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let vdevs = vdevs::parse_vdevs(&self.vdevs)?;
        let layout = vdevs::format_vdevs(&self.pool, &vdevs, "would add vdevs to");
        let (name, force) = (self.pool.clone(), self.force);
        let (ashift, dry_run) = (self.ashift, self.dry_run);
        let outcome = asking.execute(&AddDevices { name, vdevs, force, ashift, dry_run })?;
        if dry_run {
            write!(std::io::stdout(), "{layout}")?;
        }
        Ok(outcome)
    }
}

fn parse_ashift(text: &str) -> Result<u64, String> {
    let value = text.strip_prefix("ashift=").ok_or("only ashift can be set here: ashift=12")?;
    value.parse().map_err(|_| format!("ashift={value}: it must be 9 to 16"))
}

impl RemoveArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let drives = self.drives.iter().map(|drive| vdevs::resolve_vdev(drive));
        let (name, drives) = (self.pool.clone(), drives.collect());
        asking.execute(&RemoveDevices { name, devices: drives })
    }
}
