//! `poolhouse zpool initialize` and `trim`.

use api::SweepDrives;
use engine::pool::{ActivityCommand, ActivityKind};

use super::vdevs;
use super::wait::{Activity, wait_until_drives_idle};
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};

/// Write to all free space of drives
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Thin storage then allocates all of it, and bad sectors are found. `zpool status -i` shows the
progress. The work continues after an export.

Examples:
  poolhouse zpool initialize tank
  poolhouse zpool initialize -s tank sdb    stop it; without -s it continues
  poolhouse zpool initialize -w tank        wait until it is done"
)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct InitializeArgs {
    /// End it
    #[arg(short = 'c', long = "cancel", conflicts_with_all = ["suspend", "reset", "wait"])]
    cancel: bool,
    /// Stop it, to continue later
    #[arg(short = 's', long = "suspend", conflicts_with_all = ["reset", "wait"])]
    suspend: bool,
    /// Forget that it was done
    #[arg(short = 'u', long = "uninit", conflicts_with = "wait")]
    reset: bool,
    /// Wait until it is done
    #[arg(short = 'w', long = "wait")]
    wait: bool,
    /// The pool
    pool: String,
    /// Drives, by path or guid; none: all
    #[arg(value_name = "DRIVE")]
    drives: Vec<String>,
}

/// Tell drives which space is free (TRIM)
#[derive(clap::Args, Debug)]
#[command(
    after_help = "SSDs stay fast, and thin storage releases the space. `zpool status -t` shows the progress.
The work continues after an export.

Examples:
  poolhouse zpool trim tank
  poolhouse zpool trim -r 200M tank sdb     at most 200 MB a second
  poolhouse zpool trim -w tank              wait until it is done"
)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct TrimArgs {
    /// Erase securely: not supported
    #[arg(short = 'd', long = "secure", hide = true)]
    secure: bool,
    /// Bytes a second of each drive at most
    #[arg(short = 'r', long = "rate", value_name = "BYTES")]
    rate: Option<String>,
    /// End it
    #[arg(short = 'c', long = "cancel", conflicts_with_all = ["suspend", "wait", "rate"])]
    cancel: bool,
    /// Stop it, to continue later
    #[arg(short = 's', long = "suspend", conflicts_with_all = ["wait", "rate"])]
    suspend: bool,
    /// Wait until it is done
    #[arg(short = 'w', long = "wait")]
    wait: bool,
    /// The pool
    pool: String,
    /// Drives, by path or guid; none: all
    #[arg(value_name = "DRIVE")]
    drives: Vec<String>,
}

impl InitializeArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let command = match (self.cancel, self.suspend, self.reset) {
            (true, ..) => ActivityCommand::Cancel,
            (_, true, _) => ActivityCommand::Suspend,
            (.., true) => ActivityCommand::Reset,
            _ => ActivityCommand::Start,
        };
        let kind = ActivityKind::Initialize;
        sweep(asking, (&self.pool, &self.drives), (kind, command, 0), self.wait)
    }
}

impl TrimArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        if self.secure {
            return Err(Failure::usage("-d is not supported: drives are not erased securely"));
        }
        let rate = match &self.rate {
            None => 0,
            Some(text) => units::parse_binary(text).filter(|rate| *rate > 0).ok_or_else(|| {
                Failure::usage(format!("-r {text}: a number of bytes is expected"))
            })?,
        };
        let command = match (self.cancel, self.suspend) {
            (true, _) => ActivityCommand::Cancel,
            (_, true) => ActivityCommand::Suspend,
            _ => ActivityCommand::Start,
        };
        let kind = ActivityKind::Trim;
        sweep(asking, (&self.pool, &self.drives), (kind, command, rate), self.wait)
    }
}

fn sweep(
    asking: &DaemonArgs,
    (pool, drives): (&str, &[String]),
    (kind, command, rate): (ActivityKind, ActivityCommand, u64),
    wait: bool,
) -> CommandResult {
    let devices: Vec<_> = drives.iter().map(|drive| vdevs::resolve_drive(drive)).collect();
    let name = pool.to_owned();
    asking.execute(&SweepDrives { name, devices: devices.clone(), kind, command, rate })?;
    if wait {
        let activity =
            if kind == ActivityKind::Trim { Activity::Trim } else { Activity::Initialize };
        wait_until_drives_idle(asking, pool, activity, &devices)?;
    }
    Ok(Outcome::Complete)
}
