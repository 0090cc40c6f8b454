//! `poolhouse user`: users of shares and their passwords.

use std::io::{self, BufRead, IsTerminal};

use api::{AddUser, ListUsers, RemoveUser, Secret, SetUserPassword};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;
use crate::table::{Align, Table};

/// Manage the users of SMB shares and their passwords
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A user has a password for SMB, and on files the rights of a system user, which must exist.
The password is typed on the terminal, or is the first line of standard input. Samba's own users in
/etc/samba are neither read nor changed.

Examples:
  poolhouse user add anna
  poolhouse user add guests --system-user nobody
  poolhouse user passwd anna < secret"
)]
pub(crate) struct User {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Add a user
    Add(AddArgs),
    /// Set the password of a user
    Passwd(NameArgs),
    /// List the users
    List(ListArgs),
    /// Remove a user; the system user and all files stay
    Remove(RemoveArgs),
}

/// Add a user
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse user add anna")]
struct AddArgs {
    /// The name with which clients log in
    name: String,
    /// The system user whose rights it has; the default is the one of the same name
    #[arg(long, value_name = "USER")]
    system_user: Option<String>,
}

/// Set the password of a user
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse user passwd anna")]
struct NameArgs {
    /// The user
    name: String,
}

/// List the users
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse user list")]
struct ListArgs {}

/// Remove a user; the system user and all files stay
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse user remove anna")]
struct RemoveArgs {
    /// The user
    name: String,
}

impl User {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::Add(AddArgs { name, system_user }) => self.daemon.execute(&AddUser {
                name: name.clone(),
                system_user: system_user.clone(),
                password: read_password(name)?,
            }),
            Command::Passwd(NameArgs { name }) => {
                let (name, password) = (name.clone(), read_password(name)?);
                self.daemon.execute(&SetUserPassword { name, password })
            }
            Command::List(ListArgs {}) => self.list(),
            Command::Remove(RemoveArgs { name }) => {
                self.daemon.execute(&RemoveUser { name: name.clone() })
            }
        }
    }

    fn list(&self) -> CommandResult {
        let users = self.daemon.request(&ListUsers {})?;
        if self.daemon.json {
            print::json(&users)?;
            return Ok(Outcome::Complete);
        }
        let columns = ["USER", "SYSTEM USER"].map(|column| (column, Align::Left));
        let mut table = Table::with_header(&columns);
        for user in users {
            table.add_row([user.name, user.system_user]);
        }
        table.print(&mut io::stdout().lock())?;
        Ok(Outcome::Complete)
    }
}

/// Reads a new password: twice from the terminal, or the first line of standard input.
fn read_password(name: &str) -> Result<Secret, Failure> {
    let mut input = io::stdin().lock();
    if !input.is_terminal() {
        let mut line = String::new();
        input.read_line(&mut line)?;
        return Ok(Secret(line.trim_end_matches(['\r', '\n']).as_bytes().to_vec()));
    }
    drop(input);
    let password = rpassword::prompt_password(format!("Password of {name}: "))?;
    if rpassword::prompt_password("The same again: ")? != password {
        return Err(Failure::usage("the two passwords differ"));
    }
    Ok(Secret(password.into_bytes()))
}
