//! `poolhouse ups`: the UPS, and the stage of a power failure.

use std::io;

use ::ups::PowerSource;
use api::{GetUps, UpsStatus};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::table::{Align, Table};
use crate::{print, time};

/// Show the UPS, and the actions on a power failure
#[derive(clap::Args, Debug)]
#[command(after_help = "The daemon reads a UPS from NUT (upsd) or apcupsd, and acts by stages:

  on-battery  an alert is sent
  quiet       scrubs and replication stop until line power returns
  shut-down   all pools are closed, and the shutdown command runs

It is configured in config.toml:

  [ups]
  server = \"nut://localhost/cellar\"       or \"apcupsd://localhost\"
  user = \"poolhouse\"                      of upsd.users: the primary waits for this machine
  password_file = \"/etc/poolhouse/ups-password\"
  quiet_after = 60                        seconds on battery
  shutdown_charge = 20                    percent
  shutdown_runtime = 300                  seconds that the battery lasts

Examples:
  poolhouse config set ups.server nut://localhost/cellar
  poolhouse ups status")]
pub(crate) struct Ups {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show the UPS as it was at the last look
    Status(StatusArgs),
}

/// Show the UPS as it was at the last look
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit status: 0 on line power, 1 on battery or if the UPS cannot be read.

Examples:
  poolhouse ups status
  poolhouse ups status --json")]
struct StatusArgs {}

impl Ups {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        let Command::Status(StatusArgs {}) = &self.command;
        let status = self.daemon.request(&GetUps {})?;
        let is_well = status
            .as_ref()
            .is_none_or(|status| status.error.is_none() && status.stage == ::ups::Stage::Normal);
        if self.daemon.json {
            print::json(&status)?;
        } else if let Some(status) = &status {
            let mut table = Table::new([Align::Right, Align::Left]);
            for (name, value) in rows(status) {
                table.add_row([format!("{name}:"), value]);
            }
            table.print(&mut io::stdout().lock())?;
        } else {
            print::line("no UPS is watched; set its address first:")?;
            print::line("  poolhouse config set ups.server nut://localhost/UPS")?;
        }
        Ok(Outcome::complete_unless(!is_well))
    }
}

/// The names and values of the table.
fn rows(status: &UpsStatus) -> Vec<(&'static str, String)> {
    let mut rows = vec![("ups", format!("{} ({})", status.server, status.role))];
    if let Some(reading) = &status.reading {
        let source = match reading.source {
            PowerSource::Line => "line power",
            PowerSource::Battery => "battery",
        };
        rows.extend(reading.model.clone().map(|model| ("model", model)));
        rows.push(("power", format!("{source} ({})", reading.status)));
        rows.extend(reading.charge.map(|percent| ("charge", format!("{percent}%"))));
        rows.extend(reading.runtime.map(|seconds| ("runtime", minutes(seconds))));
        rows.extend(reading.load.map(|percent| ("load", format!("{percent}%"))));
        if reading.needs_battery {
            rows.push(("battery", "must be replaced".to_owned()));
        }
    }
    rows.push(("stage", status.stage.as_str().to_owned()));
    rows.extend(status.battery_seconds.map(|seconds| ("on battery", minutes(seconds))));
    if !status.stopped_scrubs.is_empty() {
        rows.push(("stopped scrubs", status.stopped_scrubs.join(" ")));
    }
    if status.are_pools_closed {
        rows.push(("pools", "closed until line power returns".to_owned()));
    }
    rows.extend(status.read_at.map(|at| ("read", time::format_minutes(at))));
    rows.extend(status.error.clone().map(|why| ("error", why)));
    rows.extend(status.shutdown_error.clone().map(|why| ("error", why)));
    rows
}

/// "23 min 20 s".
fn minutes(seconds: u64) -> String {
    format!("{} min {} s", seconds / 60, seconds % 60)
}
