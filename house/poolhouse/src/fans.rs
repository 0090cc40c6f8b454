//! `poolhouse fans`: the fans, their calibration, and the processes that set full speed.

use std::io;
use std::path::PathBuf;

use api::{CalibrateFan, FanStatus, GetFans};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome, run_for_each};
use crate::table::{Align, Table, escape_control};
use crate::{print, time};

/// Show the fans, and find the speeds at which they stop and start
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The daemon keeps the hottest drive at a target temperature. Every fault leads to full speed: an
unreadable sensor, an exceeded limit, a stopped fan, the end of the daemon.
The fans are configured in config.toml; the chips are those that `sensors` shows:

  [fans]
  drive_target = 40          °C
  drive_limit = 50           °C; from here all fans turn at full speed
  [[fans.fan]]
  name = \"front\"
  chip = \"nct6798\"
  pwm = 2
  min = 25                   percent; see `poolhouse fans calibrate`
  start = 40
  follows = \"drives\"         or \"cpu\", or \"both\"

Examples:
  poolhouse fans status
  poolhouse fans calibrate front"
)]
pub(crate) struct Fans {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show the fans and the temperatures that they follow
    Status(StatusArgs),
    /// Find the speeds at which fans stop and start
    Calibrate(CalibrateArgs),
    /// Set all fans to full speed; also without a daemon
    Full(FullArgs),
    /// Set fans to full speed when standard input ends
    #[command(hide = true)]
    Watchdog(WatchdogArgs),
}

/// Show the fans and the temperatures that they follow
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: 0 if the fans are controlled, 1 if they run at full speed because of a fault.

Examples:
  poolhouse fans status
  poolhouse fans status --json"
)]
struct StatusArgs {}

/// Find the speeds at which fans stop and start
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A fan is slowed down until it stops, and sped up until it turns: two to three minutes.
The other fans keep their speed. It ends at once if a temperature comes near its limit.

Example:
  poolhouse fans calibrate front"
)]
struct CalibrateArgs {
    /// The names of the fans
    #[arg(value_name = "FAN", required = true)]
    fans: Vec<String>,
}

/// Set all fans to full speed; also without a daemon
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A running daemon controls them again within seconds. The systemd unit runs it after the daemon.

Example:
  poolhouse fans full"
)]
struct FullArgs {}

/// Set fans to full speed when standard input ends
#[derive(clap::Args, Debug)]
struct WatchdogArgs {
    /// Their files
    pwms: Vec<PathBuf>,
}

impl Fans {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::Status(StatusArgs {}) => self.status(),
            Command::Calibrate(args) => run_for_each(&args.fans, |fan| self.calibrate(fan)),
            Command::Full(FullArgs {}) => {
                Ok(report(&::daemon::set_fans_full(&self.daemon.state_dir()?)?))
            }
            Command::Watchdog(args) => Ok(report(&::daemon::watch_fans(&args.pwms))),
        }
    }

    fn status(&self) -> CommandResult {
        let status = self.daemon.request(&GetFans {})?;
        let is_well = status.as_ref().is_none_or(|status| {
            status.faults.is_empty() && status.fans.iter().all(|fan| fan.error.is_none())
        });
        if self.daemon.json {
            print::json(&status)?;
        } else if let Some(status) = &status {
            print_status(status)?;
        } else {
            print::line("no fan is controlled; see: poolhouse fans --help")?;
        }
        Ok(Outcome::complete_unless(!is_well))
    }

    fn calibrate(&self, fan: &str) -> CommandResult {
        let found = self.daemon.request(&CalibrateFan { fan: fan.to_owned() })?;
        if self.daemon.json {
            print::json(&found)?;
            return Ok(Outcome::Complete);
        }
        let mut table = Table::with_header(&[("SPEED", Align::Right), ("RPM", Align::Right)]);
        for (percent, rpm) in &found.curve {
            table.add_row([format!("{percent}%"), rpm.to_string()]);
        }
        table.print(&mut io::stdout().lock())?;
        if found.stop == 0 {
            print::line(&format!("{fan} never stops; in config.toml: min = 0"))?;
        } else {
            let (min, start) = (found.min(), found.start);
            print::line(&format!("{fan}: in config.toml: min = {min}, start = {start}"))?;
        }
        Ok(Outcome::Complete)
    }
}

fn print_status(status: &FanStatus) -> io::Result<()> {
    let mut table = Table::with_header(&[
        ("FAN", Align::Left),
        ("SPEED", Align::Right),
        ("RPM", Align::Right),
        ("", Align::Left),
    ]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for fan in &status.fans {
        table.add_row([
            fan.name.clone(),
            or_dash(fan.percent.map(|percent| format!("{percent}%"))),
            or_dash(fan.rpm.map(|rpm| rpm.to_string())),
            fan.error.clone().unwrap_or_default(),
        ]);
    }
    table.print(&mut io::stdout().lock())?;
    let celsius = |value: Option<f64>| or_dash(value.map(|celsius| format!("{celsius:.0} °C")));
    print::line(&format!("hottest drive: {}", celsius(status.drive)))?;
    print::line(&format!("processor: {}", celsius(status.cpu)))?;
    print::line(&format!("read: {}", time::format_minutes(status.read_at)))?;
    for fault in &status.faults {
        print::line(&format!("full speed: {}", escape_control(fault)))?;
    }
    if !status.has_watchdog {
        print::warning(&"no process watches the daemon: the fans keep their speed if it dies");
    }
    Ok(())
}

/// Reports fans that could not be set.
fn report(failed: &[String]) -> Outcome {
    for why in failed {
        print::error(why);
    }
    Outcome::complete_unless(!failed.is_empty())
}
