//! `poolhouse drives`: the health of drives and the map of bays.

mod burn_in;
mod list;
mod locate;
mod map;
mod show;

use api::{CheckDrives, DriveList, ListDrives, NoteDrive, TestDrive};
use clap::ValueEnum;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome, run_for_each};
use crate::print;

/// Show the health of drives and their bays
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The daemon reads drives every half hour with smartctl (package smartmontools). It never wakes a
sleeping drive.

Examples:
  poolhouse drives list
  poolhouse drives show sda
  poolhouse drives locate sda
  poolhouse drives burn-in sdb
  poolhouse drives map temp"
)]
pub(crate) struct Drives {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// List the drives with their verdicts
    List(ListArgs),
    /// Show a drive with its findings, attributes and history
    Show(ShowArgs),
    /// Start a self-test of drives
    Test(TestArgs),
    /// Test a new drive: overwrite all of it, read it back and compare
    BurnIn(burn_in::BurnInArgs),
    /// Note the findings of drives: they count again when they get worse
    Note(NoteArgs),
    /// Let the lights of drives blink
    Locate(locate::LocateArgs),
    /// Draw the map of bays: one drive after the other blinks, and you enter its bay
    Learn(locate::LearnArgs),
    /// Show the bays of the case
    Map(map::MapArgs),
}

/// List the drives with their verdicts
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse drives list
  poolhouse drives list --now
  poolhouse drives list --json")]
struct ListArgs {
    /// Look at all drives first; sleeping drives stay asleep
    #[arg(long)]
    now: bool,
}

/// Show a drive with its findings, attributes and history
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse drives show sda
  poolhouse drives show WD-WCC7K1234567")]
struct ShowArgs {
    /// Its serial number, name, path, WWN or name in /dev/disk/by-id
    drive: String,
}

/// Start a self-test of drives
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The drive tests itself while it works, and wakes up for it. `drives show` has the result.

Examples:
  poolhouse drives test sda          about two minutes
  poolhouse drives test --long sda   reads the whole surface"
)]
struct TestArgs {
    /// Read the whole surface
    #[arg(long)]
    long: bool,
    /// The drives
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<String>,
}

/// Note the findings of drives: they count again when they get worse
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse drives note sda
  poolhouse drives note --forget sda")]
struct NoteArgs {
    /// Forget the notes
    #[arg(long)]
    forget: bool,
    /// The drives
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<String>,
}

impl Drives {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::List(args) => list::run(&self.list(args.now)?, &self.daemon),
            Command::Show(args) => show::run(&args.drive, &self.daemon),
            Command::Test(args) => self.test(args),
            Command::BurnIn(args) => burn_in::run(args, &self.list(false)?, &self.daemon),
            Command::Note(args) => self.note(args),
            Command::Locate(args) => locate::run(args, &self.daemon),
            Command::Learn(args) => locate::learn(args, &self.list(false)?, &self.daemon),
            Command::Map(args) => map::run(args, &self.list(false)?, &self.daemon),
        }
    }

    /// The drives. A daemon that has just started looks at them first.
    fn list(&self, now: bool) -> Result<DriveList, Failure> {
        if now {
            self.daemon.request(&CheckDrives {})?;
        }
        let list = self.daemon.request(&ListDrives {})?;
        if list.is_complete || now {
            return Ok(list);
        }
        match self.daemon.try_request(&CheckDrives {}) {
            Some(()) => self.daemon.request(&ListDrives {}),
            // a user without that right sees the known facts
            None => Ok(list),
        }
    }

    fn test(&self, args: &TestArgs) -> CommandResult {
        let kind = if args.long { health::SelfTestKind::Long } else { health::SelfTestKind::Short };
        run_for_each(&args.drives, |drive| {
            self.daemon.execute(&TestDrive { drive: drive.clone(), kind })
        })
    }

    fn note(&self, args: &NoteArgs) -> CommandResult {
        run_for_each(&args.drives, |drive| {
            let call = NoteDrive { drive: drive.clone(), forget: args.forget };
            let drive = self.daemon.request(&call)?;
            if self.daemon.json {
                print::json(&drive)?;
            } else {
                print::line(&format!("{}: {}", drive.name, drive.verdict.sentence))?;
            }
            Ok(Outcome::Complete)
        })
    }
}

/// The views of the map of bays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum View {
    /// Device and pool
    #[default]
    Disk,
    /// Temperature
    Temp,
    /// Serial number
    Serial,
    /// World wide name
    Wwn,
}

/// Bytes as drives are sold: "4.0 TB".
fn format_size(bytes: u64) -> String {
    let units = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(*unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

/// A number, or "-" if it is not known.
fn format_or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_are_as_on_the_label() {
        assert_eq!(super::format_size(4_000_787_030_016), "4.0 TB");
        assert_eq!(super::format_size(500_107_862_016), "500.1 GB");
        assert_eq!(super::format_size(999), "999 B");
    }
}
