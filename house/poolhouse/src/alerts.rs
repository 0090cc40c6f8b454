//! `poolhouse alerts`: the present problems, and whether messages about them reach their owner.

use std::io;

use alerts::AlertState;
use api::{AcknowledgeAlert, ListAlerts, TestAlerts};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::table::{Align, Table, escape_control};
use crate::{print, time};

/// Show present problems, and test how the owner is notified
#[derive(clap::Args, Debug)]
#[command(
    after_help = "An alert is sent once, and again when it gets worse. The channels are in config.toml:

  [alerts]
  mail = \"me@example.org\"               by the sendmail command
  ntfy = \"https://ntfy.sh/my-topic\"
  webhook = \"https://example.org/hook\"  JSON by POST

Examples:
  poolhouse alerts list
  poolhouse config set alerts.mail me@example.org
  poolhouse alerts test"
)]
pub(crate) struct Alerts {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// List the alerts
    List(ListArgs),
    /// Acknowledge an alert: the verdict ignores it until it gets worse
    Ack(AckArgs),
    /// Send a test message by every channel
    Test(TestArgs),
}

/// List the alerts
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit status: 0 if nothing is wrong, 1 if an alert is open.

Examples:
  poolhouse alerts list
  poolhouse alerts list --all")]
struct ListArgs {
    /// Also alerts that ended
    #[arg(short, long)]
    all: bool,
}

/// Acknowledge an alert: the verdict ignores it until it gets worse
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The alert stays in the list until its condition is over. The key of an alert is in
`poolhouse alerts list --json`.

Example:
  poolhouse alerts ack pool/tank/space"
)]
struct AckArgs {
    /// The key of the alert
    key: String,
}

/// Send a test message by every channel
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse alerts test")]
struct TestArgs {}

impl Alerts {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::List(args) => self.list(args),
            Command::Ack(args) => self.daemon.execute(&AcknowledgeAlert { key: args.key.clone() }),
            Command::Test(TestArgs {}) => self.test(),
        }
    }

    fn list(&self, args: &ListArgs) -> CommandResult {
        let mut list = self.daemon.request(&ListAlerts {})?;
        let is_open = |state: AlertState| state == AlertState::Open;
        let any_open = list.alerts.iter().any(|alert| is_open(alert.state));
        list.alerts.retain(|alert| args.all || is_open(alert.state));
        let outcome = Outcome::complete_unless(any_open);
        if self.daemon.json {
            print::json(&list)?;
            return Ok(outcome);
        }
        if list.alerts.is_empty() {
            print::line("no alerts")?;
        }
        let mut table = Table::new([Align::Left, Align::Left, Align::Left]);
        for alert in &list.alerts {
            let state = match (is_open(alert.state), alert.is_acknowledged) {
                (false, _) => "over",
                (true, true) => "acknowledged",
                (true, false) => alert.severity.as_str(),
            };
            let cells = [time::format_minutes(alert.began), state.to_owned(), alert.title.clone()];
            table.add_row(cells);
            let text = format!("{} {}", alert.sentence, alert.action);
            table.add_row([String::new(), String::new(), text]);
        }
        table.print(&mut io::stdout().lock())?;
        if list.channels.is_empty() {
            print::warning(&"no message is sent: set alerts.mail, alerts.ntfy or alerts.webhook");
        }
        for why in &list.undelivered {
            print::warning(&escape_control(why));
        }
        Ok(outcome)
    }

    fn test(&self) -> CommandResult {
        let tests = self.daemon.request(&TestAlerts {})?;
        if self.daemon.json {
            print::json(&tests)?;
        } else if tests.is_empty() {
            print::warning(&"no message is sent: set alerts.mail, alerts.ntfy or alerts.webhook");
        } else {
            for test in &tests {
                match &test.error {
                    None => print::line(&format!("{}: sent", test.channel))?,
                    Some(why) => print::error(&format!("{}: {why}", test.channel)),
                }
            }
        }
        let failed = tests.is_empty() || tests.iter().any(|test| test.error.is_some());
        Ok(Outcome::complete_unless(failed))
    }
}
