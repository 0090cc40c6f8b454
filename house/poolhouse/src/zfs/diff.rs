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
#[command(disable_help_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "options of zfs(8)")]
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
    /// Print the names as they are, without octal numbers for bytes that are not printable
    #[arg(short = 'h')]
    unescaped: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
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
        self.print_path(&change.path, out)?;
        if let Some(to) = &change.to {
            out.write_all(if self.scripted { b"\t" } else { b" -> " })?;
            self.print_path(to, out)?;
        }
        writeln!(out)
    }

    fn print_path(&self, path: &str, out: &mut dyn Write) -> io::Result<()> {
        if self.unescaped { out.write_all(&unescape(path)) } else { write!(out, "{path}") }
    }
}

/// The bytes of a path in which the daemon wrote some as octal numbers: a backslash and four digits.
fn unescape(path: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, others @ ..] = rest {
        let digits = others.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let (b'\\', Some(byte)) = (first, number) {
            bytes.push(byte);
            rest = others.get(4..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = others;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn octal_numbers_become_bytes() {
        assert_eq!(unescape("/a\\0040b\\0134\\0377~"), b"/a b\\\xff~");
        assert_eq!(unescape("a\\00"), b"a\\00");
    }
}
