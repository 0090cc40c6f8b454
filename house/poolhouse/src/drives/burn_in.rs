//! `poolhouse drives burn-in`: starts a burn-in, waits for it, and shows its report.

use std::io::{self, BufRead, Write};
use std::thread;
use std::time::Duration;

use api::{BurnInDrive, BurnInReport, BurnInState, Drive, DriveList, GetBurnIn};
use health::{Grade, PassSpeed};

use super::{format_or_dash, format_size};
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::progress::Progress;
use crate::table::{Align, Table, escape_control};
use crate::{print, time};

/// The time between two looks at a burn-in that runs.
const WAIT_INTERVAL: Duration = Duration::from_millis(500);

/// Test a new drive: overwrite all of it, read it back and compare
#[derive(clap::Args, Debug)]
#[command(
    after_help = "All data on the drive are lost. A drive is refused that is in a pool, that the system uses, or, without
-f, that has the labels of a pool or a file system. The daemon does the work as a job, which continues
after a restart. A drive of 16 TB takes about two days. The last 4 KiB may stay untested.

Examples:
  poolhouse drives burn-in sdb
  poolhouse drives burn-in --quick --yes WD-WCC7K1234567    64 places, 1 GiB in all
  poolhouse drives burn-in --report sdb                     progress, or the verdict
  poolhouse jobs cancel 7                                   interrupts job 7
  poolhouse drives burn-in --continue sdb                   goes on from there"
)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct BurnInArgs {
    /// Show the newest burn-in of the drive, and start none
    #[arg(long, conflicts_with_all = ["quick", "yes", "force", "resume", "wait"])]
    report: bool,
    /// Test 64 places between the beginning and the end
    #[arg(long)]
    quick: bool,
    /// Do not ask for the serial number
    #[arg(short = 'y', long)]
    yes: bool,
    /// Overwrite the labels of a pool or a file system as well
    #[arg(short = 'f', long)]
    force: bool,
    /// Continue the burn-in that was cancelled
    #[arg(long = "continue", conflicts_with_all = ["quick", "force"])]
    resume: bool,
    /// Wait for the verdict
    #[arg(short = 'w', long)]
    wait: bool,
    /// Its serial number, name, path, WWN or name in /dev/disk/by-id
    drive: String,
}

pub(super) fn run(args: &BurnInArgs, list: &DriveList, daemon: &DaemonArgs) -> CommandResult {
    let get = || daemon.request(&GetBurnIn { drive: args.drive.clone() });
    if args.report {
        return show(&get()?, daemon);
    }
    // a drive that is unknown here is refused by the daemon, in its words
    let known = list.drives.iter().find(|drive| drive.matches(&args.drive));
    if let Some(drive) = known.filter(|_| !args.yes && !args.resume) {
        confirm(drive)?;
    }
    let call = BurnInDrive {
        drive: args.drive.clone(),
        confirm: known.map_or_else(|| args.drive.clone(), |drive| drive.id().to_owned()),
        quick: args.quick,
        force: args.force,
        resume: args.resume,
    };
    let started = daemon.request(&call)?;
    if args.wait {
        return show(&wait(started, daemon, get)?, daemon);
    }
    if daemon.json {
        print::json(&started)?;
        return Ok(Outcome::Complete);
    }
    let id = escape_control(&started.drive);
    print::line(&format!("job {}: the burn-in of drive {id} runs.", started.job))?;
    print::line(&format!(
        "  poolhouse drives burn-in --report {id}    shows progress and verdict"
    ))?;
    print::line(&format!("  poolhouse jobs cancel {}    interrupts it", started.job))?;
    Ok(Outcome::Complete)
}

/// Asks for the serial number on the label of the drive.
fn confirm(drive: &Drive) -> Result<(), Failure> {
    let model = escape_control(drive.model.as_deref().unwrap_or("unknown model"));
    let (size, id) = (format_size(drive.size), escape_control(drive.id()));
    let mut out = io::stdout().lock();
    writeln!(out, "All data on drive {} ({model}, {size}) are lost.", drive.name)?;
    write!(out, "Type its serial number, {id}, to continue: ")?;
    out.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    if line.trim() == drive.id() {
        return Ok(());
    }
    Err(Failure::usage("that is another serial number; nothing was written"))
}

/// Waits until a burn-in ends. An interrupt ends the waiting, not the burn-in.
fn wait(
    started: BurnInReport,
    daemon: &DaemonArgs,
    get: impl Fn() -> Result<BurnInReport, Failure>,
) -> Result<BurnInReport, Failure> {
    let progress = Progress::new(2 * started.results.pass_length(), daemon.json);
    let mut report = started;
    let mut shown = 0;
    while report.state == BurnInState::Running {
        let done = report.results.bytes_done();
        progress.add_bytes(done - shown);
        shown = done;
        thread::sleep(WAIT_INTERVAL);
        report = get()?;
    }
    progress.finish();
    Ok(report)
}

fn show(report: &BurnInReport, daemon: &DaemonArgs) -> CommandResult {
    if daemon.json {
        print::json(report)?;
    } else {
        print_report(report)?;
    }
    Ok(Outcome::complete_unless(report.verdict.grade == Grade::Failing))
}

/// Prints progress, speeds, faults and verdict.
pub(super) fn print_report(report: &BurnInReport) -> io::Result<()> {
    let results = &report.results;
    let percent = u128::from(results.bytes_done()) * 50 / u128::from(results.pass_length());
    let left = report.seconds_left().map(|left| format!(", {} min left", left.div_ceil(60)));
    let state = match (report.state, &report.note) {
        (BurnInState::Running, _) => {
            format!("job {}, {percent}%{}", report.job, left.unwrap_or_default())
        }
        (BurnInState::Stopped, None) => format!("stopped at {percent}%"),
        (BurnInState::Stopped, Some(note)) => format!("stopped at {percent}%: {note}"),
        (BurnInState::Done, _) => "ended".to_owned(),
    };
    let mut table = Table::new([Align::Right, Align::Left]);
    let extent = if results.is_quick { "sample of " } else { "" };
    for (name, value) in [
        ("drive:", Some(report.drive.clone())),
        ("tested:", Some(format!("{extent}{}", format_size(results.size)))),
        ("state:", Some(state)),
        ("started:", Some(time::format_local(report.started))),
        ("ended:", report.finished.map(time::format_local)),
        ("written:", speed(&results.write)),
        ("read:", speed(&results.read)),
        ("write MB/s:", zones(&results.write)),
        ("read MB/s:", zones(&results.read)),
        ("faults:", Some(results.fault_count.to_string())),
        ("verdict:", Some(report.verdict.grade.as_str().to_owned())),
        ("", Some(report.verdict.sentence.clone())),
    ] {
        table.add_row([name.to_owned(), format_or_dash(value)]);
    }
    table.print(&mut io::stdout().lock())
}

fn speed(pass: &PassSpeed) -> Option<String> {
    let speed = format_size(pass.bytes_per_second()?);
    let slowest = pass.slowest / 1_000_000;
    Some(format!("{} at {speed}/s, slowest request {slowest} ms", format_size(pass.bytes)))
}

/// The speed of each twentieth of the drive's length.
fn zones(pass: &PassSpeed) -> Option<String> {
    let speeds = pass.zone_speeds().into_iter();
    let words: Vec<_> =
        speeds.map(|speed| format_or_dash(speed.map(|speed| speed / 1_000_000))).collect();
    (!words.is_empty()).then(|| words.join(" "))
}
