//! `poolhouse timemachine`: file systems for the backups of Macs.

use std::io;

use api::{AddTimeMachine, ListTimeMachines, RollBackTimeMachine};
use units::human_bytes;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::table::{Align, Table};
use crate::{print, time};

/// Back up Macs by Time Machine, and roll their backups back
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Each user has a file system of its own for backups, and an SMB share of it. Its refquota is the size
that the Mac sees. The daemon takes a snapshot after each finished backup, named timemachine_DATE. It keeps
all snapshots of one day, and the last one of each day for 14 days ([timemachine] keep_days).

Examples:
  poolhouse user add anna
  poolhouse timemachine add anna tank/timemachine/anna --quota 1T
  poolhouse timemachine list
  poolhouse timemachine rollback anna"
)]
pub(crate) struct TimeMachineCommand {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Create a file system for the backups of a user's Mac, and share it
    Add(AddArgs),
    /// List the backups with their snapshots
    List(ListArgs),
    /// Roll the backups of a user back to a snapshot
    Rollback(RollbackArgs),
}

/// Create a file system for the backups of a user's Mac, and share it
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The share is an entry [[share]] with time_machine = true in config.toml, named timemachine-USER;
`poolhouse share remove smb DATASET` ends it and keeps the backups.

Example:
  poolhouse timemachine add anna tank/timemachine/anna --quota 1T"
)]
struct AddArgs {
    /// The user, as `poolhouse user list` shows it
    user: String,
    /// The new file system; missing parents are created
    dataset: String,
    /// The most space that the Mac may use: the property refquota. Snapshots come on top
    #[arg(long, value_name = "SIZE")]
    quota: Option<String>,
}

/// List the backups with their snapshots
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse timemachine list
  poolhouse timemachine list --json | jq '.[].snapshots'")]
struct ListArgs {}

/// Roll the backups of a user back to a snapshot
#[derive(clap::Args, Debug)]
#[command(
    after_help = "For a Mac that must create a new backup because a verification failed: its backups are rolled back
to an earlier backup, and the Mac continues from there. It is disconnected first. Backups
after the snapshot are lost.

Examples:
  poolhouse timemachine rollback anna
  poolhouse timemachine rollback -r anna timemachine_2026-11-20_21:03:11Z"
)]
struct RollbackArgs {
    /// Destroy newer snapshots and bookmarks
    #[arg(short = 'r')]
    destroy_newer: bool,
    /// The user
    user: String,
    /// A snapshot; without it that of the last finished backup
    snapshot: Option<String>,
}

impl TimeMachineCommand {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::Add(AddArgs { user, dataset, quota }) => {
                self.daemon.execute(&AddTimeMachine {
                    user: user.clone(),
                    dataset: dataset.clone(),
                    quota: quota.clone(),
                })
            }
            Command::List(ListArgs {}) => self.list(),
            Command::Rollback(args) => self.roll_back(args),
        }
    }

    fn list(&self) -> CommandResult {
        let all = self.daemon.request(&ListTimeMachines {})?;
        if self.daemon.json {
            print::json(&all)?;
            return Ok(Outcome::Complete);
        }
        let mut table = Table::with_header(&[
            ("USER", Align::Left),
            ("DATASET", Align::Left),
            ("SHARE", Align::Left),
            ("USED", Align::Right),
            ("QUOTA", Align::Right),
            ("LAST BACKUP", Align::Left),
            ("SNAPSHOTS", Align::Right),
        ]);
        for one in &all {
            table.add_row([
                one.user.clone(),
                one.dataset.clone(),
                one.share.clone(),
                human_bytes(one.used),
                one.quota.map_or_else(|| "none".to_owned(), human_bytes),
                one.last_backup.map_or_else(|| "-".to_owned(), time::format_minutes),
                one.snapshots.len().to_string(),
            ]);
        }
        table.print(&mut io::stdout().lock())?;
        let problems = all.iter().filter_map(|one| Some((&one.dataset, one.problem.as_ref()?)));
        problems.for_each(|(dataset, why)| print::error(&format!("'{dataset}': {why}")));
        Ok(Outcome::complete_unless(all.iter().any(|one| one.problem.is_some())))
    }

    fn roll_back(&self, args: &RollbackArgs) -> CommandResult {
        let RollbackArgs { destroy_newer, user, snapshot } = args;
        let snapshot = self.daemon.request(&RollBackTimeMachine {
            user: user.clone(),
            snapshot: snapshot.clone(),
            destroy_newer: *destroy_newer,
        })?;
        if self.daemon.json {
            print::json(&snapshot)?;
        } else {
            print::line(&format!(
                "the backups of '{user}' are again as in '{snapshot}': have the Mac back up now"
            ))?;
        }
        Ok(Outcome::Complete)
    }
}
