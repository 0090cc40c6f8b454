//! `poolhouse policy`: snapshots by the clock.

use std::io;

use api::{GetPolicyStatus, RunPolicies};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::sanoid::ImportArgs;
use crate::table::{Align, Table};
use crate::{print, time};

/// Snapshots by policy: hourly, daily, weekly, monthly, yearly
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Policies are sections of config.toml (`poolhouse config path` shows where it is):

  [[policy]]
  dataset = \"tank/photos\"     # and its descendants, unless recursive = false
  hourly = 24                 # the number of each kind to keep
  daily = 30
  monthly = 6

The daemon takes the snapshots, named as sanoid's, and destroys surplus ones. Those that a replica
(`poolhouse replicate --help`) does not have yet stay.

Examples:
  poolhouse policy status
  poolhouse policy run
  poolhouse policy import /etc/sanoid/sanoid.conf"
)]
pub(crate) struct Policy {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show the automatic snapshots of each dataset
    #[command(visible_alias = "list", after_help = "Example:\n  poolhouse policy status")]
    Status,
    /// Take the snapshots that are due and destroy surplus ones, now
    #[command(after_help = "Example:\n  poolhouse policy run")]
    Run,
    /// Print the policies of sanoid.conf as sections of config.toml
    Import(ImportArgs),
}

impl Policy {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::Status => self.status(),
            Command::Run => self.run_now(),
            Command::Import(args) => args.run(self.daemon.json),
        }
    }

    fn status(&self) -> CommandResult {
        let all = self.daemon.request(&GetPolicyStatus {})?;
        if self.daemon.json {
            print::json(&all)?;
            return Ok(Outcome::Complete);
        }
        let mut table = Table::with_header(&[
            ("DATASET", Align::Left),
            ("KIND", Align::Left),
            ("KEEP", Align::Right),
            ("COUNT", Align::Right),
            ("NEWEST", Align::Left),
            ("DUE", Align::Left),
        ]);
        for one in all {
            let newest = one.newest_time.map_or_else(|| "-".to_owned(), time::format_minutes);
            let due = if one.is_due { "now" } else { "-" };
            table.add_row([
                one.dataset,
                one.period,
                one.keep.to_string(),
                one.count.to_string(),
                newest,
                due.to_owned(),
            ]);
        }
        table.print(&mut io::stdout().lock())?;
        Ok(Outcome::Complete)
    }

    fn run_now(&self) -> CommandResult {
        let run = self.daemon.request(&RunPolicies {})?;
        if self.daemon.json {
            print::json(&run)?;
        } else {
            let lines = [("took", &run.taken), ("destroyed", &run.pruned)];
            for (verb, names) in lines {
                names.iter().try_for_each(|name| print::line(&format!("{verb} {name}")))?;
            }
            for name in &run.kept {
                print::line(&format!("kept {name}: a replica does not have it yet"))?;
            }
        }
        run.failed.iter().for_each(|why| print::error(why));
        Ok(Outcome::complete_unless(!run.failed.is_empty()))
    }
}
