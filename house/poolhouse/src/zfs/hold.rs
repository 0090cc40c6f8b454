//! `zfs hold`, `zfs release` and `zfs holds`.

use std::io;

use api::{ListHolds, PlaceHold, ReleaseHold};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::table::{Align, Table};
use crate::{print, time};

/// Put a hold on snapshots: they cannot be destroyed before it is released
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse zfs hold -r offsite tank@monday")]
pub(super) struct HoldArgs {
    /// Snapshots of that name below, too
    #[arg(short = 'r')]
    recursive: bool,
    /// The name of the hold
    tag: String,
    /// FS@NAME
    #[arg(value_name = "SNAPSHOT", required = true)]
    snapshots: Vec<String>,
}

/// Release a hold of snapshots
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse zfs release -r offsite tank@monday")]
pub(super) struct ReleaseArgs {
    /// Snapshots of that name below, too
    #[arg(short = 'r')]
    recursive: bool,
    /// The name of the hold
    tag: String,
    /// FS@NAME
    #[arg(value_name = "SNAPSHOT", required = true)]
    snapshots: Vec<String>,
}

/// List the holds of snapshots
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse zfs holds -r tank@monday")]
pub(super) struct HoldsArgs {
    /// Snapshots of that name below, too
    #[arg(short = 'r')]
    recursive: bool,
    /// For programs: no head, and tabs between columns
    #[arg(short = 'H')]
    scripted: bool,
    /// Times in seconds since 1970
    #[arg(short = 'p')]
    parsable: bool,
    /// FS@NAME
    #[arg(value_name = "SNAPSHOT", required = true)]
    snapshots: Vec<String>,
}

impl HoldArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let (tag, snapshots) = (self.tag.clone(), self.snapshots.clone());
        asking.execute(&PlaceHold { tag, snapshots, recursive: self.recursive })
    }
}

impl ReleaseArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let (tag, snapshots) = (self.tag.clone(), self.snapshots.clone());
        asking.execute(&ReleaseHold { tag, snapshots, recursive: self.recursive })
    }
}

impl HoldsArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let (snapshots, recursive) = (self.snapshots.clone(), self.recursive);
        let holds = asking.request(&ListHolds { snapshots, recursive })?;
        if asking.json {
            print::json(&holds)?;
            return Ok(Outcome::Complete);
        }
        // zfs(8) makes the first column as wide as the longest name, also of one without holds
        let width = self.snapshots.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let mut table =
            Table::with_shapes(&[(Align::Left, width), (Align::Left, 0), (Align::Left, 0)]);
        if !self.scripted {
            table.add_row(["NAME", "TAG", "TIMESTAMP"].map(str::to_owned));
        }
        for hold in holds {
            let when =
                if self.parsable { hold.time.to_string() } else { time::format_zfs(hold.time) };
            table.add_row([hold.snapshot, hold.tag, when]);
        }
        let mut out = io::stdout().lock();
        if self.scripted {
            table.print_tab_separated(&mut out)?;
        } else {
            table.print(&mut out)?;
        }
        Ok(Outcome::Complete)
    }
}
