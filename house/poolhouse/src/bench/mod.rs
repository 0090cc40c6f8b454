//! `poolhouse bench`: measures storage, and compares results.

mod array;
mod compare;
mod copy;
mod disk;
mod measurement_progress;
mod net;
pub(crate) mod path;
mod plan;
mod report;
mod result;

use crate::outcome::CommandResult;

/// Measure file systems, drives, networks and ways to copy, and compare the results
#[derive(clap::Args, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  poolhouse bench path /tank -o tank.json           how fast is this file system?
  poolhouse bench path /mnt/nas -o nas.json         and over the network?
  poolhouse bench array /dev/sd[b-f] -o results     which layout of these drives is the fastest?
  poolhouse bench disk /dev/sd[b-i] -o drives.json  is a drive, a port or a bus slow?
  poolhouse bench net nas -o network.json           how fast is the network, and what limits it?
  poolhouse bench copy ~/photos /mnt/nfs /mnt/smb    which way to copy is the fastest?
  poolhouse bench compare tank.json nas.json        what is the difference, and what is noise?
  poolhouse bench report tank.json -o tank.html     one page with pictures")]
pub(crate) struct Bench {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Measure a folder: any file system or mount
    Path(path::Args),
    /// Make pools of drives in several layouts, measure and destroy them
    Array(array::Args),
    /// Measure drives: each alone, from outer to inner, then all at once
    Disk(disk::Args),
    /// Measure the network between two machines
    Net(net::Args),
    /// Compare ways to copy a tree: cp, rsync, rsync over ssh, to each mounted share
    Copy(copy::Args),
    /// Put results side by side, with the change in percent and what of it is noise
    Compare(compare::Args),
    /// Compare a plan with a measurement, and name the limit
    Plan(plan::Args),
    /// Make one page of results
    Report(report::Args),
}

impl Bench {
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::Path(args) => args.run(),
            Command::Array(args) => args.run(),
            Command::Disk(args) => args.run(),
            Command::Net(args) => args.run(),
            Command::Copy(args) => args.run(),
            Command::Compare(args) => args.run(),
            Command::Plan(args) => args.run(),
            Command::Report(args) => args.run(),
        }
    }
}
