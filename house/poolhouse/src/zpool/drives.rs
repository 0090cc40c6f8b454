//! `poolhouse zpool add, remove, reopen, labelclear`.

use std::io::Write;

use api::{AddDevices, CancelRemoval, ClearLabels, RemoveDevices, ReopenPools};
use engine::pool::VdevStatus;
use units::human_bytes;

use super::repeat::vdev_name;
use super::wait::{Activity, wait_until_idle};
use super::{layout, query_reports, vdevs};
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::print;
use crate::table::escape_control;

/// Add vdevs to a pool
#[derive(clap::Args, Debug)]
#[command(
    after_help = "New blocks go to the new vdevs as well; what is in the pool stays where it is. A raidz cannot be
removed again: a vdev that is less redundant than those of the pool is refused without -f.
After log come vdevs for the intent log, after special and dedup those for metadata, after cache devices that keep
what is often read, after spare those that stand in for others.

Examples:
  poolhouse zpool add tank raidz2 /dev/sd[g-l]
  poolhouse zpool add -n tank mirror sdg sdh      check it, and show the layout
  poolhouse zpool add tank log mirror nvme0n1 nvme1n1 spare sdi"
)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct AddArgs {
    /// Use drives with data, and vdevs with another redundancy or sector size than those of the pool
    #[arg(short = 'f')]
    force: bool,
    /// Use drives with data
    #[arg(long)]
    allow_in_use: bool,
    /// Add vdevs with another redundancy than those of the pool
    #[arg(long)]
    allow_replication_mismatch: bool,
    /// Add vdevs with another sector size than those of the pool
    #[arg(long)]
    allow_ashift_mismatch: bool,
    /// With -n, show the guids of drives
    #[arg(short = 'g')]
    guids: bool,
    /// With -n, show drives without symbolic links
    #[arg(short = 'L')]
    links: bool,
    /// With -n, show whole paths, as is done without it
    #[arg(short = 'P')]
    _paths: bool,
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

/// Remove drives and vdevs from a pool
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Cache drives, spares and log vdevs are removed at once. What is on a vdev with data (a drive or a mirror, for
data, special or dedup) is copied to the others in the background: `zpool status` shows how far it is. The vdev is
not written to any more meanwhile, and the pool can be used. A table of what was copied stays in memory.
All vdevs with data must have the same sector size, and none may be a raidz or dRAID.

Examples:
  poolhouse zpool remove tank nvme0n1
  poolhouse zpool remove -n tank mirror-1    check it, and show the memory that it takes
  poolhouse zpool remove -w tank mirror-1    and wait until it is removed
  poolhouse zpool remove -s tank             cancel the removal"
)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct RemoveArgs {
    /// Only check it, and show the memory that the table of a vdev with data takes
    #[arg(short = 'n')]
    dry_run: bool,
    /// Exact numbers
    #[arg(short = 'p')]
    parsable: bool,
    /// Cancel the removal of a vdev with data
    #[arg(short = 's', conflicts_with_all = ["dry_run", "wait", "drives"])]
    stop: bool,
    /// Wait until the removal has ended
    #[arg(short = 'w')]
    wait: bool,
    /// The pool
    pool: String,
    /// The drives, by path or guid, or names of vdevs
    #[arg(value_name = "DRIVE", required_unless_present = "stop")]
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
        let call = AddDevices {
            name: self.pool.clone(),
            vdevs,
            force: self.force,
            allow_in_use: self.allow_in_use,
            allow_replication_mismatch: self.allow_replication_mismatch,
            allow_ashift_mismatch: self.allow_ashift_mismatch,
            ashift: self.ashift,
            dry_run: self.dry_run,
        };
        let outcome = asking.execute(&call)?;
        if self.dry_run {
            for pool in query_reports(asking, std::slice::from_ref(&self.pool))? {
                let name = |vdev: &VdevStatus| vdev_name(vdev, self.guids, self.links);
                let text = layout::format_added(&pool.status, &call.vdevs, &name);
                write!(std::io::stdout(), "{text}")?;
            }
        }
        Ok(outcome)
    }
}

pub(super) fn parse_ashift(text: &str) -> Result<u64, String> {
    let value = text.strip_prefix("ashift=").ok_or("only ashift can be set here: ashift=12")?;
    value.parse().map_err(|_| format!("ashift={value}: it must be 9 to 16"))
}

impl RemoveArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let name = self.pool.clone();
        if self.stop {
            return asking.execute(&CancelRemoval { name });
        }
        let devices = self.drives.iter().map(|drive| vdevs::resolve_vdev(drive)).collect();
        let call = RemoveDevices { name, devices, dry_run: self.dry_run };
        let done = asking.request(&call);
        let subject = || format!("cannot remove {}", self.drives.join(", "));
        let memory = done.map_err(|why| why.with_subject(subject))?;
        if asking.json {
            print::json(&memory)?;
        } else if self.dry_run {
            for vdev in &memory {
                let bytes =
                    if self.parsable { vdev.bytes.to_string() } else { human_bytes(vdev.bytes) };
                let name = escape_control(&vdev.vdev);
                let mut out = std::io::stdout();
                writeln!(out, "Memory that will be used after removing {name}: {bytes}")?;
            }
        }
        if self.wait && !self.dry_run {
            wait_until_idle(asking, &self.pool, &[Activity::Remove])?;
        }
        Ok(Outcome::Complete)
    }
}
