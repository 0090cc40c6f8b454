//! `poolhouse files`: files in snapshots of pools and of repositories, listed and restored.

use std::io;

use api::{ListFiles, RestoreFile, RestoreFolder};
use units::human_bytes;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::table::{Align, Table, escape_control};
use crate::{print, time};

/// List files in snapshots, and restore them
#[derive(clap::Args, Debug)]
#[command(after_help = "The file system need not be mounted.

Examples:
  poolhouse files list tank/photos@monday /2026
  poolhouse files restore tank/photos@monday /2026/beach.jpg
  poolhouse files restore -r tank/photos@monday /2026
  poolhouse files restore --repository s3://backups/nas tank/photos@monday /2026/beach.jpg")]
pub(crate) struct Files {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// List a folder of a snapshot or file system
    List(ListArgs),
    /// Restore a file or folder of a snapshot beside the present one
    Restore(RestoreArgs),
}

/// List a folder of a snapshot or file system
#[derive(clap::Args, Debug)]
#[command(after_help = "A file system is listed as of its last txg, which is some seconds old.

Example:
  poolhouse files list tank/photos@monday /2026")]
struct ListArgs {
    /// FS@SNAPSHOT or FS
    dataset: String,
    /// The folder, from the root of the file system on
    #[arg(default_value = "/")]
    path: String,
    /// The snapshot is in this repository of backups, which the daemon reads by its section [[repository]]
    #[arg(long, value_name = "LOCATION")]
    repository: Option<String>,
}

/// Restore a file or folder of a snapshot beside the present one
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The copy has the owner, permissions, times and extended attributes, and a name with the
snapshot: `beach (monday).jpg`. No file is overwritten. A folder is restored by a job;
until it ends the name ends in `.partial`. Where its folder is gone, it comes to the nearest
one above that exists.

Examples:
  poolhouse files restore tank/photos@monday /2026/beach.jpg
  poolhouse files restore -r tank/photos@monday /2026
  poolhouse files restore --repository s3://backups/nas --into new/photos tank/photos@monday /2026/beach.jpg"
)]
struct RestoreArgs {
    /// A folder with all that is in it
    #[arg(short = 'r', long)]
    recursive: bool,
    /// FS@SNAPSHOT
    snapshot: String,
    /// The file or folder, from the root of the file system on
    path: String,
    /// The snapshot is in this repository of backups, which the daemon reads by its section [[repository]]
    #[arg(long, value_name = "LOCATION")]
    repository: Option<String>,
    /// The file system that gets it; without it that of the snapshot
    #[arg(long, value_name = "FS")]
    into: Option<String>,
}

impl Files {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::List(args) => self.list(args),
            Command::Restore(args) => self.restore(args),
        }
    }

    fn list(&self, args: &ListArgs) -> CommandResult {
        let (dataset, path) = (args.dataset.clone(), args.path.clone());
        let call = ListFiles { dataset, path, repository: args.repository.clone() };
        let files = self.daemon.request(&call)?;
        if self.daemon.json {
            print::json(&files)?;
            return Ok(Outcome::Complete);
        }
        let mut table = Table::new([Align::Left, Align::Right, Align::Left, Align::Left]);
        for file in files {
            let changed = u64::try_from(file.modified).map(time::format_minutes);
            table.add_row([
                file.file_type,
                human_bytes(file.size),
                changed.unwrap_or_default(),
                escape_control(&file.name),
            ]);
        }
        table.print(&mut io::stdout().lock())?;
        Ok(Outcome::Complete)
    }

    fn restore(&self, args: &RestoreArgs) -> CommandResult {
        let (snapshot, path) = (args.snapshot.clone(), args.path.clone());
        let (repository, into) = (args.repository.clone(), args.into.clone());
        if args.recursive {
            let call = RestoreFolder { snapshot, path, repository, into };
            let started = self.daemon.request(&call)?;
            if self.daemon.json {
                print::json(&started)?;
            } else {
                let path = escape_control(&started.path);
                print::line(&format!("job {} restores it to {path}", started.job))?;
            }
            return Ok(Outcome::Complete);
        }
        let call = RestoreFile { snapshot, path, repository, into };
        let path = self.daemon.request(&call)?;
        if self.daemon.json {
            print::json(&path)?;
        } else {
            print::line(&escape_control(&path))?;
        }
        Ok(Outcome::Complete)
    }
}
