//! The command line's definition: all commands, from which completions and man pages are made.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{CommandFactory, FromArgMatches};

use crate::mount_zfs::{self, PROGRAM_NAME};
use crate::outcome::{CommandResult, Failure};
use crate::usage;
use crate::{
    alerts, backup, bench, config, daemon, drives, events, fans, files, generate, inspect, jobs,
    plan, policy, replicate, rescue, share, stream, timemachine, ups, user, web, zfs, zpool,
};

/// A NAS in one program: real OpenZFS pools, in user space.
#[derive(clap::Parser, Debug)]
#[command(name = "poolhouse", version, about, propagate_version = true)]
#[command(after_help = "Examples:
  poolhouse zpool create tank raidz2 a b c d e f   create a pool of six drives
  poolhouse zfs create -o compression=zstd tank/photos
  poolhouse rescue scan -d /dev -d ~/images        what pools are there?
  poolhouse rescue list -d ~/images tank           what is in this one?
  poolhouse rescue get -d ~/images tank/home:/ out get the files out
  poolhouse inspect labels disk0.img               show the labels of a disk")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Make pools and look after them, in the words of zpool(8)
    Zpool(zpool::Zpool),
    /// Make datasets and look after them, in the words of zfs(8)
    Zfs(zfs::Zfs),
    /// Keep snapshots as raw blocks in a folder or a bucket, each one readable and prunable
    Backup(backup::Backup),
    /// Import pools, mount file systems, and serve commands
    Serve(daemon::Serve),
    /// Show, check and change the configuration of the daemon
    Config(config::Config),
    /// Share datasets over the network, and list the clients
    Share(share::Share),
    /// Manage the users of SMB shares and their passwords
    User(user::User),
    /// Back up Macs by Time Machine, and roll their backups back
    #[command(name = "timemachine")]
    TimeMachine(timemachine::TimeMachineCommand),
    /// List the jobs of the daemon, or cancel one
    Jobs(jobs::Jobs),
    /// Take snapshots by the clock, and destroy surplus ones
    Files(files::Files),
    Policy(policy::Policy),
    /// Copy snapshots to another pool, here or on another host
    Replicate(replicate::ReplicateArgs),
    /// Show what happened to pools, datasets, mounts and devices
    Events(events::Events),
    /// Show the health of drives and their bays
    Drives(drives::Drives),
    /// Show present problems, and test the channels of messages
    Alerts(alerts::Alerts),
    /// Show the fans, and find the speeds at which they stop and start
    Fans(fans::Fans),
    /// Show the UPS, and the actions on a power failure
    Ups(ups::Ups),
    /// Turn the dashboard on or off
    Web(web::Web),
    /// Find pools and get everything out of them, without importing anything
    Rescue(rescue::Rescue),
    /// Look at the structures on disk
    Inspect(inspect::Inspect),
    /// Look at send streams in files
    Stream(stream::Stream),
    /// Predict a layout of drives before they are bought
    Plan(plan::PlanArgs),
    /// Measure storage, and compare results
    Bench(bench::Bench),
    /// Mount a file system on a directory, for mount(8)
    #[command(name = PROGRAM_NAME, hide = true)]
    MountZfs(mount_zfs::MountZfs),
    /// Print the completions for a shell
    #[command(hide = true)]
    Completions(generate::Completions),
    /// Write the man pages into a folder
    #[command(hide = true)]
    Man(generate::Man),
}

/// A switch may be given twice, as with getopt(3).
fn allow_repeated_flags(command: clap::Command) -> clap::Command {
    command.args_override_self(true).mut_subcommands(allow_repeated_flags)
}

/// Takes `-h` and `-V` from the subcommands of zpool and zfs, where they are invalid options, or options of their own:
/// scripts expect status 2.
fn without_short_help(command: clap::Command) -> clap::Command {
    if command.is_disable_help_flag_set() {
        return command;
    }
    let help = clap::Arg::new("help").long("help").help("Print help");
    let help = help.action(clap::ArgAction::Help);
    command.disable_help_flag(true).disable_version_flag(true).arg(help)
}

/// The arguments, with the command in front where the program was started by the name `zpool`, `zfs` or `mount.zfs`:
/// scripts and mount(8) find links of those names.
fn insert_linked_command(mut args: Vec<OsString>) -> Vec<OsString> {
    let program = args.first().and_then(|program| Path::new(program).file_name());
    let is_command = |name: &&OsStr| ["zpool", "zfs", PROGRAM_NAME].iter().any(|it| *name == *it);
    let linked = program.filter(is_command).map(OsString::from);
    if let Some(command) = linked {
        args.insert(1, command);
    }
    args
}

/// The arguments, with the subcommand `version` for `zfs --version` and `zpool --version`: scripts parse its line.
fn version_as_subcommand(mut args: Vec<OsString>) -> Vec<OsString> {
    if let [_, command, option, ..] = args.as_mut_slice()
        && (command == "zfs" || command == "zpool")
        && (option == "--version" || option == "-V")
    {
        *option = OsString::from("version");
    }
    args
}

/// The arguments of zpool or zfs with `--` before the first operand: with `POSIXLY_CORRECT` in the environment,
/// getopt(3) takes no options after an operand.
fn end_options_at_operand(mut args: Vec<OsString>, definition: &clap::Command) -> Vec<OsString> {
    let names: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let [_, command, subcommand, ..] = names.as_slice() else { return args };
    let is_zfs = ["zpool", "zfs"].contains(&command.as_str());
    let subcommand = definition
        .find_subcommand(command)
        .filter(|_| is_zfs)
        .and_then(|command| command.find_subcommand(subcommand));
    let Some(subcommand) = subcommand else { return args };
    let takes_next = |word: &str| option_takes_next(subcommand, word);
    let mut at = 3;
    while let Some(word) = names.get(at) {
        if word == "--" {
            return args;
        } else if word == "-" || !word.starts_with('-') {
            args.insert(at, OsString::from("--"));
            return args;
        }
        at += if takes_next(word) { 2 } else { 1 };
    }
    args
}

/// Whether the value of the last option in `word` is the next argument.
fn option_takes_next(command: &clap::Command, word: &str) -> bool {
    let has_value = |arg: &clap::Arg| arg.get_action().takes_values();
    if let Some(long) = word.strip_prefix("--") {
        return command.get_arguments().any(|arg| arg.get_long() == Some(long) && has_value(arg));
    }
    let of = |letter| command.get_arguments().find(|arg| arg.get_short() == Some(letter));
    let mut letters = word.char_indices().skip(1);
    let first = letters.find(|(_, letter)| of(*letter).is_some_and(has_value));
    first.is_some_and(|(at, letter)| at + letter.len_utf8() == word.len())
}

impl Cli {
    /// The definition of all commands.
    pub(crate) fn definition() -> clap::Command {
        let zpool = |command: clap::Command| command.mut_subcommands(without_short_help);
        let command = Self::command().mut_subcommand("zpool", zpool).mut_subcommand("zfs", zpool);
        allow_repeated_flags(command)
    }

    /// Parses the arguments of this process. Ends the process where they cannot be understood.
    pub(crate) fn from_args() -> Self {
        let mut args = version_as_subcommand(insert_linked_command(std::env::args_os().collect()));
        if std::env::var_os("POSIXLY_CORRECT").is_some() {
            args = end_options_at_operand(args, &Self::definition());
        }
        let matches = Self::definition().try_get_matches_from(&args);
        let matches = matches.unwrap_or_else(|why| usage::exit(&why, &Self::definition(), &args));
        Self::from_arg_matches(&matches).unwrap_or_else(|why| why.exit())
    }

    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::Zpool(zpool) => zpool.run(),
            Command::Zfs(zfs) => zfs.run(),
            Command::Backup(backup) => backup.run(),
            Command::Serve(serve) => serve.run(),
            Command::Config(config) => config.run(),
            Command::Share(share) => share.run(),
            Command::User(user) => user.run(),
            Command::TimeMachine(timemachine) => timemachine.run(),
            Command::Jobs(jobs) => jobs.run(),
            Command::Files(files) => files.run(),
            Command::Policy(policy) => policy.run(),
            Command::Replicate(replicate) => replicate.run(),
            Command::Events(events) => events.run(),
            Command::Drives(drives) => drives.run(),
            Command::Alerts(alerts) => alerts.run(),
            Command::Fans(fans) => fans.run(),
            Command::Ups(ups) => ups.run(),
            Command::Web(web) => web.run(),
            Command::Rescue(rescue) => rescue.run(),
            Command::Inspect(inspect) => inspect.run(),
            Command::Stream(stream) => stream.run(),
            Command::Plan(plan) => plan.run(),
            Command::Bench(bench) => bench.run(),
            Command::MountZfs(mount) => mount.run(),
            Command::Completions(completions) => completions.run(),
            Command::Man(man) => man.run(),
        }
    }

    /// Whether it is zpool or zfs, whose words and statuses scripts know.
    pub(crate) fn is_zfs_command(&self) -> bool {
        matches!(self.command, Command::Zpool(_) | Command::Zfs(_))
    }

    /// Reports a failure, and gives the exit status, which is that of zpool(8) and zfs(8) for their commands.
    pub(crate) fn exit_status(&self, failure: &Failure) -> u8 {
        let status = failure.report();
        match &self.command {
            Command::Zpool(_) => usage::refusal_status("zpool", failure, status),
            Command::Zfs(zfs) if zfs.is_set() => usage::refusal_status("zfs set", failure, status),
            Command::Zfs(_) => usage::refusal_status("zfs", failure, status),
            _ => status,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};

    #[test]
    fn posix_options_end_at_the_operand() {
        for (line, expected) in [
            ("poolhouse zfs get all -r tank", "poolhouse zfs get -- all -r tank"),
            ("poolhouse zfs get -Hpo value used tank", "poolhouse zfs get -Hpo value -- used tank"),
            ("poolhouse zfs get -ovalue used tank", "poolhouse zfs get -ovalue -- used tank"),
            ("poolhouse zfs get -r -- used tank", "poolhouse zfs get -r -- used tank"),
            ("poolhouse zfs list -r", "poolhouse zfs list -r"),
            ("poolhouse rescue list tank -r", "poolhouse rescue list tank -r"),
        ] {
            let args = line.split(' ').map(OsString::from).collect();
            let done = super::end_options_at_operand(args, &super::Cli::definition());
            assert_eq!(done.join(OsStr::new(" ")).to_str(), Some(expected), "{line}");
        }
    }

    #[test]
    fn the_definition_is_sound() {
        super::Cli::definition().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        fn check(command: &clap::Command) {
            let hidden = command.is_hide_set() || command.get_name() == "help";
            if !hidden {
                let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(after.contains("Example"), "{} has no example", command.get_name());
                command.get_subcommands().for_each(check);
            }
        }
        check(&super::Cli::definition());
    }
}
