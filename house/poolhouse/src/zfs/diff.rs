//! `zfs diff`.

use std::io::{self, BufWriter, Write};

use api::{FileChange, ListFileChanges};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// Show the files that differ between two snapshots, or a snapshot and its file system
#[derive(clap::Args, Debug)]
#[command(after_help = "M modified, + added, - removed, R renamed.

Examples:
  poolhouse zfs diff tank/photos@monday
  poolhouse zfs diff -F tank/photos@monday @tuesday")]
pub(super) struct DiffArgs {
    /// For programs: tabs between all columns
    #[arg(short = 'H')]
    scripted: bool,
    /// Show what kind of a file each is: F a file, / a directory, @ a symbolic link
    #[arg(short = 'F')]
    classify: bool,
    /// Show when each file was last changed
    #[arg(short = 't')]
    times: bool,
    /// The earlier snapshot, FS@NAME
    from: String,
    /// The later snapshot, FS@NAME or @NAME; the file system as it is without it
    to: Option<String>,
}

impl DiffArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let Some((head, _)) = self.from.split_once('@') else {
            return Err(Failure::usage(format!("'{}' is not a snapshot: FS@NAME", self.from)));
        };
        let full =
            |to: &String| if to.starts_with('@') { format!("{head}{to}") } else { to.clone() };
        let call = ListFileChanges { from: self.from.clone(), to: self.to.as_ref().map(full) };
        let changes = asking.request(&call)?;
        if asking.json {
            print::json(&changes)?;
            return Ok(Outcome::Complete);
        }
        let mut out = BufWriter::new(io::stdout().lock());
        changes.iter().try_for_each(|change| self.print(change, &mut out))?;
        out.flush()?;
        Ok(Outcome::Complete)
    }

    fn print(&self, change: &FileChange, out: &mut dyn Write) -> io::Result<()> {
        if self.times {
            let (seconds, nanoseconds) = change.time;
            write!(out, "{seconds}.{nanoseconds:09}\t")?;
        }
        write!(out, "{}\t", change.change)?;
        if self.classify {
            write!(out, "{}\t", change.file_type)?;
        }
        match &change.to {
            Some(to) if self.scripted => writeln!(out, "{}\t{to}", change.path),
            Some(to) => writeln!(out, "{} -> {to}", change.path),
            None => writeln!(out, "{}", change.path),
        }
    }
}
