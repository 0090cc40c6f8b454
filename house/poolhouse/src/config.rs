//! `poolhouse config`: the configuration file of the daemon.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use api::{AddConfigSection, GetConfig, RemoveConfigSection, SetConfig};
use serde_json::json;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// Show, check and change the configuration of the daemon
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The file is config.toml in the state folder, for root's usual daemon /etc/poolhouse/config.toml.
The daemon reads it again when it changes. A file with mistakes does not take effect.

  [web]
  listen = \"127.0.0.1:8080\"    the dashboard, and the API for programs with the token in the state folder
  [health]
  interval = 30                minutes between two looks at the drives
  [bays]
  rows = [[\"SERIAL\", \"\"]]     the drives in the bays of the case, row by row
  [hours]
  awake = \"07:00-23:00\"        outside these hours the machine sleeps while it is idle
  [alerts]
  mail = \"me@example.org\"     also ntfy, webhook, space (percent of a pool)

Examples:
  poolhouse config check
  poolhouse config show
  poolhouse config set web.listen 127.0.0.1:8080
  poolhouse config add policy dataset=tank/photos daily=7"
)]
pub(crate) struct Config {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Check a configuration file
    Check(CheckArgs),
    /// Show the configuration in effect
    Show(ShowArgs),
    /// Set a field; comments and the rest of the file stay
    Set(SetArgs),
    /// Remove a field
    Unset(UnsetArgs),
    /// Add a section of which there may be several: a replica, a policy
    Add(AddArgs),
    /// Remove such a section
    Remove(RemoveArgs),
}

/// Check a configuration file
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit status: 0 if it is correct, 1 if it has mistakes.

Examples:
  poolhouse config check
  poolhouse config check new.toml")]
struct CheckArgs {
    /// The file; without it the daemon's
    file: Option<PathBuf>,
}

/// Show the configuration in effect
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse config show")]
struct ShowArgs {}

/// Set a field; comments and the rest of the file stay
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse config set web.listen 127.0.0.1:8080
  poolhouse config set web.listen '[\"127.0.0.1:8080\", \"[::1]:8080\"]'")]
struct SetArgs {
    /// SECTION.FIELD
    field: String,
    /// A value in TOML, or plain text
    value: String,
}

/// Remove a field
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse config unset web.listen")]
struct UnsetArgs {
    /// SECTION.FIELD
    field: String,
}

/// Add a section of which there may be several: a replica, a policy
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse config add replica name=offsite source=tank/photos target=ssh://backup@nas/pool/photos
  poolhouse config add policy dataset=tank/photos daily=7 weekly=4")]
struct AddArgs {
    /// The section
    section: String,
    /// FIELD=VALUE, the value in TOML or plain text
    #[arg(required = true)]
    fields: Vec<String>,
}

/// Remove such a section
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse config remove replica name=offsite")]
struct RemoveArgs {
    /// The section
    section: String,
    /// FIELD=VALUE that it has
    field: String,
}

impl Config {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::Check(args) => self.check(args.file.as_deref()),
            Command::Show(ShowArgs {}) => self.show(),
            Command::Set(args) => self.set(&args.field, Some(&args.value)),
            Command::Unset(args) => self.set(&args.field, None),
            Command::Add(args) => self.add(args),
            Command::Remove(args) => self.remove(args),
        }
    }

    fn add(&self, args: &AddArgs) -> CommandResult {
        let fields: Result<Vec<_>, _> = args.fields.iter().map(|field| field_of(field)).collect();
        self.daemon.execute(&AddConfigSection { section: args.section.clone(), fields: fields? })
    }

    fn remove(&self, args: &RemoveArgs) -> CommandResult {
        let (section, (field, value)) = (args.section.clone(), field_of(&args.field)?);
        self.daemon.execute(&RemoveConfigSection { section, field, value })
    }

    fn check(&self, file: Option<&Path>) -> CommandResult {
        let path = match file {
            Some(file) => file.to_owned(),
            None => self.daemon.state_dir()?.config(),
        };
        let problems = ::daemon::check_config(&path).err().unwrap_or_default();
        if self.daemon.json {
            let all = problems.iter().map(|it| json!({ "line": it.line, "problem": it.sentence }));
            print::json(&all.collect::<Vec<_>>())?;
        } else {
            for problem in &problems {
                print::error(&format!("{}: {problem}", path.display()));
            }
            if problems.is_empty() {
                writeln!(io::stdout(), "{}: no mistakes", path.display())?;
            }
        }
        Ok(Outcome::complete_unless(!problems.is_empty()))
    }

    fn show(&self) -> CommandResult {
        let report = self.daemon.request(&GetConfig {})?;
        for problem in &report.problems {
            let path = report.path.display();
            print::warning(&format!("{path} does not take effect: {problem}"));
        }
        if self.daemon.json {
            print::json(&report)?;
        } else {
            write!(io::stdout(), "{}", report.text)?;
        }
        Ok(Outcome::Complete)
    }

    fn set(&self, name: &str, value: Option<&str>) -> CommandResult {
        let Some((section, field)) = name.split_once('.') else {
            return Err(Failure::usage(format!("'{name}': SECTION.FIELD is expected")));
        };
        let (section, field) = (section.to_owned(), field.to_owned());
        self.daemon.execute(&SetConfig { section, field, value: value.map(str::to_owned) })
    }
}

/// A field and its value.
fn field_of(text: &str) -> Result<(String, String), Failure> {
    let expected = || Failure::usage(format!("'{text}': FIELD=VALUE is expected"));
    let (field, value) = text.split_once('=').ok_or_else(expected)?;
    Ok((field.to_owned(), value.to_owned()))
}
