//! `poolhouse web`: turns the dashboard on and off.

use api::{GetDashboard, SetUpDashboard, TurnOffDashboard};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::print;

/// Turn the dashboard on or off
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The dashboard is off until an address and a password are set. The link of `web setup` sets the
password once. Connections are not encrypted: use another address than loopback only in a trusted network.

Examples:
  poolhouse config set web.listen 127.0.0.1:8080
  poolhouse web setup
  poolhouse web off"
)]
pub(crate) struct Web {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Print a link by which the password can be set once
    Setup(SetupArgs),
    /// Show whether the dashboard is on
    Status(StatusArgs),
    /// Forget the password, and end all sessions
    Off(OffArgs),
}

/// Print a link by which the password can be set once
#[derive(clap::Args, Debug)]
#[command(after_help = "A forgotten password is reset in the same way.

Example:
  poolhouse web setup")]
struct SetupArgs {}

/// Show whether the dashboard is on
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse web status")]
struct StatusArgs {}

/// Forget the password, and end all sessions
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse web off")]
struct OffArgs {}

impl Web {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match self.command {
            Command::Setup(SetupArgs {}) => self.set_up(),
            Command::Status(StatusArgs {}) => self.status(),
            Command::Off(OffArgs {}) => self.daemon.execute(&TurnOffDashboard {}),
        }
    }

    fn set_up(&self) -> CommandResult {
        let setup = self.daemon.request(&SetUpDashboard {})?;
        if self.daemon.json {
            print::json(&setup)?;
            return Ok(Outcome::Complete);
        }
        print::line(&format!(
            "Open this link within {} minutes to set the password:",
            setup.minutes
        ))?;
        for link in &setup.links {
            print::line(&format!("  {link}"))?;
        }
        Ok(Outcome::Complete)
    }

    fn status(&self) -> CommandResult {
        let status = self.daemon.request(&GetDashboard {})?;
        if self.daemon.json {
            print::json(&status)?;
            return Ok(Outcome::Complete);
        }
        let addresses: Vec<_> = status.addresses.iter().map(ToString::to_string).collect();
        let sentence = match (addresses.is_empty(), status.has_password) {
            (true, _) => {
                "off: it listens nowhere; poolhouse config set web.listen 127.0.0.1:8080".to_owned()
            }
            (false, false) => "off: no password is set; poolhouse web setup".to_owned(),
            (false, true) => {
                format!("on at {}; {} sessions are open", addresses.join(", "), status.sessions)
            }
        };
        print::line(&sentence)?;
        Ok(Outcome::Complete)
    }
}
