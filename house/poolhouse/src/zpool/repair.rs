//! `poolhouse zpool replace, attach, detach, offline, online`.

use std::path::PathBuf;

use api::{AttachDevice, DetachDevice, OfflineDevice, OnlineDevice, ReplaceDevice};

use super::drives::parse_ashift;
use super::vdevs;
use super::wait::{Activity, wait_until_idle};
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome, run_for_each};

/// A scan of either kind.
const SCANS: &[Activity] = &[Activity::Resilver, Activity::Scrub];

/// Have another drive take the place of one
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The pool stays in use. The old drive is part of it until the resilver of the new one
is done (`zpool status`), and may be missing. Without NEW, the new drive is at the old one's path.
If NEW is a hot spare of the pool, it replaces the old drive until that is back or replaced.

Examples:
  poolhouse zpool replace tank sdb sdg
  poolhouse zpool replace -w tank 8435651852292359418 /dev/sdg
  poolhouse zpool replace -s tank sdb draid2-0-0    a distributed spare, in the order of the drives"
)]
pub(super) struct ReplaceArgs {
    /// Use a drive that holds something
    #[arg(short = 'f')]
    force: bool,
    /// Rebuild a mirror or dRAID in the order of the drives, and verify by a scrub
    #[arg(short = 's')]
    sequential: bool,
    /// ashift=N: log2 of the new drive's sectors, at most that of the vdev, which keeps its own
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = parse_ashift)]
    ashift: Option<u64>,
    /// Wait until it has all
    #[arg(short = 'w')]
    wait: bool,
    /// The pool
    pool: String,
    /// The drive that goes, by path or guid
    old: String,
    /// The drive that comes
    new: Option<String>,
}

/// Put a drive beside one, so that both hold the same, or expand a raidz by it
#[derive(clap::Args, Debug)]
#[command(after_help = "A single drive becomes a mirror; a mirror gets one more drive.

A raidz gets one more drive. The pool stays in use while its blocks are spread over all drives;
the expansion survives power cuts and continues after them (`zpool status`). All drives must be ONLINE, or it pauses.
Old blocks keep their ratio of data to parity; new ones get that of the wider raidz.

Examples:
  poolhouse zpool attach tank sda sdb
  poolhouse zpool attach tank raidz1-0 sdf       the raidz, by its name in `zpool status`
  poolhouse zpool attach -w tank raidz1-0 sdf    return when it is expanded")]
pub(super) struct AttachArgs {
    /// Use a drive that holds something
    #[arg(short = 'f')]
    force: bool,
    /// Rebuild in the order of the drives, and verify by a scrub
    #[arg(short = 's')]
    sequential: bool,
    /// ashift=N: log2 of the new drive's sectors, at most that of the vdev, which keeps its own
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = parse_ashift)]
    ashift: Option<u64>,
    /// Wait until it has all
    #[arg(short = 'w')]
    wait: bool,
    /// The pool
    pool: String,
    /// The present drive, by path or guid, or the raidz
    drive: String,
    /// The drive that comes
    new: String,
}

/// Take a drive out of a mirror, or end its being replaced
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse zpool detach tank sdb")]
pub(super) struct DetachArgs {
    /// The pool
    pool: String,
    /// The drive, by path or guid
    drive: String,
}

/// Take drives out of service
#[derive(clap::Args, Debug)]
#[command(
    after_help = "An offline drive is neither read nor written until `zpool online`. A drive with
the only valid copy of any data cannot be taken offline.

Examples:
  poolhouse zpool offline tank sdb       to swap its cable, or to pull it
  poolhouse zpool offline -f tank sdb    fault it: a hot spare takes its place"
)]
pub(super) struct OfflineArgs {
    /// Fault the drives, until `zpool clear`
    #[arg(short = 'f')]
    fault: bool,
    /// Only until the pool is exported
    #[arg(short = 't')]
    temporary: bool,
    /// The pool
    pool: String,
    /// The drives, by path or guid
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<String>,
}

/// Bring drives back into service
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A resilver writes the data that the drives missed. When all drives of a vdev were
replaced by larger ones, -e expands the vdev to their size.

Examples:
  poolhouse zpool online tank sdb
  poolhouse zpool online -w tank sdb    return when the resilver is done
  poolhouse zpool online -e tank sdb    expand its vdev"
)]
pub(super) struct OnlineArgs {
    /// Have the vdevs of the drives use all of their drives' space
    #[arg(short = 'e')]
    expand: bool,
    /// Wait until they have all
    #[arg(short = 'w')]
    wait: bool,
    /// The pool
    pool: String,
    /// The drives, by path or guid
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<String>,
}

impl ReplaceArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let (name, old, force) = (self.pool.clone(), vdevs::resolve_drive(&self.old), self.force);
        let new: Option<PathBuf> = self.new.as_deref().map(vdevs::resolve_path);
        let subject = match &self.new {
            Some(new) => format!("cannot replace {} with {new}", self.old),
            None => format!("cannot replace {}", self.old),
        };
        let done = asking.execute(&ReplaceDevice {
            name,
            old,
            new,
            force,
            sequential: self.sequential,
            ashift: self.ashift,
        });
        done.map_err(|why| why.with_subject(|| subject))?;
        wait_if(self.wait, asking, &self.pool, SCANS)
    }
}

impl AttachArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let (name, beside, force) =
            (self.pool.clone(), vdevs::resolve_vdev(&self.drive), self.force);
        let new = vdevs::resolve_path(&self.new);
        let subject = format!("cannot attach {} to {}", self.new, self.drive);
        let done = asking.execute(&AttachDevice {
            name,
            existing: beside.clone(),
            new,
            force,
            sequential: self.sequential,
            ashift: self.ashift,
        });
        done.map_err(|why| why.with_subject(|| subject))?;
        if beside.starts_with("raidz") {
            return wait_if(self.wait, asking, &self.pool, &[Activity::RaidzExpand]);
        }
        wait_if(self.wait, asking, &self.pool, SCANS)
    }
}

impl DetachArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let done = asking.execute(&DetachDevice {
            name: self.pool.clone(),
            device: vdevs::resolve_drive(&self.drive),
        });
        done.map_err(|why| why.with_subject(|| format!("cannot detach {}", self.drive)))
    }
}

impl OfflineArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let (temporary, fault) = (self.temporary, self.fault);
        run_for_each(&self.drives, |drive| {
            let (name, device) = (self.pool.clone(), vdevs::resolve_drive(drive));
            let done = asking.execute(&OfflineDevice { name, device, temporary, fault });
            done.map_err(|why| why.with_subject(|| format!("cannot offline {drive}")))
        })
    }
}

impl OnlineArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let outcome = run_for_each(&self.drives, |drive| {
            let (name, device) = (self.pool.clone(), vdevs::resolve_drive(drive));
            let done = asking.execute(&OnlineDevice { name, device, expand: self.expand });
            done.map_err(|why| why.with_subject(|| format!("cannot online {drive}")))
        })?;
        wait_if(self.wait, asking, &self.pool, SCANS)?;
        Ok(outcome)
    }
}

/// Waits, if that is wanted, until none of these activities of a pool goes on.
fn wait_if(
    wanted: bool,
    asking: &DaemonArgs,
    pool: &str,
    activities: &[Activity],
) -> CommandResult {
    if wanted {
        wait_until_idle(asking, pool, activities)?;
    }
    Ok(Outcome::Complete)
}
