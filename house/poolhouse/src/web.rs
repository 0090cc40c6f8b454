//! `poolhouse web`: turns the dashboard on and off, and manages its users.

use std::io;

use api::{
    CertificateStatus, GetDashboard, GetRootCertificate, ListDashboardUsers, RemoveDashboardUser,
    Role, SetUpDashboard, TurnOffDashboard,
};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::table::{Align, Table};
use crate::{print, time};

/// Turn the dashboard on or off, and manage its users
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The dashboard is off until an address and a password are set. The link of `web setup` sets a
password once. Connections are encrypted, but not those of this machine to itself: a certificate of an own CA is
made, whose root browsers need once (`web certificate`). With a certificate of your own:

  [web]
  listen = \"0.0.0.0:8443\"
  certificate = \"/etc/ssl/nas.pem\"   with those between it and its root
  key = \"/etc/ssl/nas.key\"
  tls = \"auto\"                       or \"on\", also on loopback; \"off\" behind a proxy that encrypts
  names = [\"nas.example.org\"]        further names for the certificate of the own CA

Or one of Let's Encrypt, renewed by the daemon, where port 80 of a name on the internet leads here:

  [acme]
  names = [\"nas.example.org\"]
  agree = true                       to the terms of service of the CA

Examples:
  poolhouse config set web.listen 0.0.0.0:8443
  poolhouse web setup
  poolhouse web setup anna --role operate
  poolhouse web users
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
    /// Print a link by which a user sets a password once
    Setup(SetupArgs),
    /// List the users of the dashboard
    Users(UsersArgs),
    /// Remove a user of the dashboard
    Remove(RemoveArgs),
    /// Print the root certificate that browsers need
    Certificate(CertificateArgs),
    /// Show whether the dashboard is on
    Status(StatusArgs),
    /// Forget all users, and end all sessions
    Off(OffArgs),
}

/// Print a link by which a user sets a password once
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A new user is added by the link. For a known one it resets the password, and turns one-time
codes off.

Examples:
  poolhouse web setup
  poolhouse web setup anna --role operate"
)]
struct SetupArgs {
    /// The user; the default is admin
    user: Option<String>,
    /// look, operate (care for drives, scrubs and snapshots) or administer; the default is look, of admin administer,
    /// of a known user the present role
    #[arg(long, value_parser = parse_role)]
    role: Option<Role>,
}

/// List the users of the dashboard
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse web users")]
struct UsersArgs {}

/// Remove a user of the dashboard
#[derive(clap::Args, Debug)]
#[command(after_help = "The user's sessions end. The last user that administers cannot be removed.

Example:
  poolhouse web remove anna")]
struct RemoveArgs {
    /// The user, as `poolhouse web users` shows it
    user: String,
}

/// Print the root certificate that browsers need
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Install it in the browser or the system as a certificate authority. It is in PEM, and the
dashboard has it at /ca.crt, too. Its key stays in the state directory of the daemon.

Example:
  poolhouse web certificate > nas-root.crt"
)]
struct CertificateArgs {}

/// Show whether the dashboard is on
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse web status")]
struct StatusArgs {}

/// Forget all users, and end all sessions
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse web off")]
struct OffArgs {}

fn parse_role(word: &str) -> Result<Role, String> {
    Role::from_word(word).ok_or_else(|| "look, operate or administer is wanted".to_owned())
}

impl Web {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::Setup(args) => self.set_up(args),
            Command::Users(UsersArgs {}) => self.users(),
            Command::Remove(args) => {
                self.daemon.execute(&RemoveDashboardUser { name: args.user.clone() })
            }
            Command::Certificate(CertificateArgs {}) => self.certificate(),
            Command::Status(StatusArgs {}) => self.status(),
            Command::Off(OffArgs {}) => self.daemon.execute(&TurnOffDashboard {}),
        }
    }

    fn set_up(&self, args: &SetupArgs) -> CommandResult {
        let call = SetUpDashboard { user: args.user.clone(), role: args.role };
        let setup = self.daemon.request(&call)?;
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

    fn users(&self) -> CommandResult {
        let users = self.daemon.request(&ListDashboardUsers {})?;
        if self.daemon.json {
            print::json(&users)?;
            return Ok(Outcome::Complete);
        }
        if users.is_empty() {
            print::line("no users; add one: poolhouse web setup")?;
        }
        let mut table = Table::new([Align::Left, Align::Left, Align::Left]);
        for user in users {
            let totp = if user.has_totp { "one-time codes" } else { "password only" };
            table.add_row([user.name, user.role.as_str().to_owned(), totp.to_owned()]);
        }
        table.print(&mut io::stdout().lock())?;
        Ok(Outcome::Complete)
    }

    fn certificate(&self) -> CommandResult {
        let root = self.daemon.request(&GetRootCertificate {})?;
        if self.daemon.json {
            print::json(&root)?;
            return Ok(Outcome::Complete);
        }
        let root = root.ok_or_else(|| {
            Failure::usage("there is no root certificate: [web] does not listen with TLS, or has a certificate of yours")
        })?;
        print::line(root.trim_end())?;
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
        if let Some(certificate) = &status.certificate {
            print::line(&certificate_sentence(certificate))?;
        }
        Ok(Outcome::Complete)
    }
}

/// A certificate of a public CA in a sentence.
fn certificate_sentence(certificate: &CertificateStatus) -> String {
    let names = certificate.names.join(", ");
    let held = match certificate.until {
        Some(until) => {
            format!("the certificate of {names} holds until {}", time::format_minutes(until))
        }
        None => format!("there is no certificate of {names} yet"),
    };
    match (&certificate.error, certificate.next_try) {
        (Some(why), Some(next)) => {
            format!(
                "{held}; the last try failed: {why}; the next one: {}",
                time::format_minutes(next)
            )
        }
        _ => held,
    }
}
