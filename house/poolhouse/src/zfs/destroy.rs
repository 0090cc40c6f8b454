//! `poolhouse zfs destroy`.

use std::io::{self, Write};

use api::{DestroyDatasets, DestroyedDatasets};
use units::human_space;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::print;
use crate::table::escape_control;

/// Destroy file systems, volumes, snapshots or bookmarks
#[derive(clap::Args, Debug)]
#[command(after_help = "There is no confirmation: -nv lists what would be destroyed.

Examples:
  poolhouse zfs destroy tank/trial
  poolhouse zfs destroy -rnv tank/media            what would be destroyed?
  poolhouse zfs destroy tank/photos@monday%friday  a range of snapshots, and @a,b a list")]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct Args {
    /// Destroy descendants, too; for a snapshot those of its name below
    #[arg(short = 'r')]
    recursive: bool,
    /// Clones, too, wherever they are
    #[arg(short = 'R')]
    clones: bool,
    /// Snapshots that are in use as soon as they are not
    #[arg(short = 'd')]
    defer: bool,
    /// Force: unmount even if files are open
    #[arg(short = 'f')]
    force: bool,
    /// Only print what would be destroyed
    #[arg(short = 'n')]
    dry_run: bool,
    /// Print what is destroyed
    #[arg(short = 'v')]
    verbose: bool,
    /// Exact numbers, and tabs between columns
    #[arg(short = 'p')]
    parsable: bool,
    /// FS, FS@SNAP[%SNAP][,...] or FS#BOOKMARK
    #[arg(value_name = "DATASET")]
    name: String,
}

pub(super) fn run(args: &Args, asking: &DaemonArgs) -> CommandResult {
    let gone: DestroyedDatasets = asking.request(&DestroyDatasets {
        name: args.name.clone(),
        recursive: args.recursive,
        clones: args.clones,
        defer: args.defer,
        force: args.force,
        dry_run: args.dry_run,
        measure: args.verbose,
    })?;
    if asking.json {
        print::json(&gone.names)?;
        return Ok(Outcome::Complete);
    }
    if args.verbose {
        let mut out = io::stdout().lock();
        for name in &gone.names {
            let name = escape_control(name);
            match (args.parsable, args.dry_run) {
                (true, _) => writeln!(out, "destroy\t{name}")?,
                (false, true) => writeln!(out, "would destroy {name}")?,
                (false, false) => writeln!(out, "will destroy {name}")?,
            }
        }
        if let Some(bytes) = gone.reclaimed {
            let space = human_space(bytes);
            match (args.parsable, args.dry_run) {
                (true, _) => writeln!(out, "reclaim\t{bytes}")?,
                (false, true) => writeln!(out, "would reclaim {space}")?,
                (false, false) => writeln!(out, "will reclaim {space}")?,
            }
        }
    }
    Ok(Outcome::Complete)
}
