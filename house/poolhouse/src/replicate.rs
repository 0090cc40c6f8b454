//! `poolhouse replicate`: copies of datasets in another pool, here or on another host.

use std::io;

use api::{
    GetReplicaStatus, ReplicaStatus, Replicate, ReplicatedDataset, RunReplicas, TestReplicas,
    TestedCopy,
};
use jiff::Timestamp;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::table::{Align, Table};
use crate::{print, time};

/// Copy snapshots to another pool, here or on another host
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "All snapshots are copied: in full the first time, then the changes since the newest common snapshot. An
interrupted copy resumes where it stopped. Another host needs only its `zfs` command, of OpenZFS or
Poolhouse, and ssh without a password. It is the target, or the source.

Scheduled copies are sections of config.toml:

  [[replica]]
  name = \"offsite\"
  source = \"tank/photos\"
  target = \"ssh://backup@nas/pool/photos\"
  every = \"daily\"

Examples:
  poolhouse replicate -r tank/photos backup/photos
  poolhouse replicate tank/photos ssh://root@nas/pool/photos
  poolhouse replicate ssh://root@nas/pool/photos tank/photos   pull
  poolhouse replicate status
  poolhouse replicate run offsite
  poolhouse replicate test offsite                     read back and compare"
)]
pub(crate) struct ReplicateArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Option<Command>,
    /// Include the descendants of the source
    #[arg(short = 'r')]
    recursive: bool,
    /// The file system or volume: POOL/FS here, or ssh://USER@HOST[:PORT]/POOL/FS
    source: Option<String>,
    /// POOL/FS here, or ssh://USER@HOST[:PORT]/POOL/FS
    target: Option<String>,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show the configured replicas, and how old the newest copies are
    #[command(after_help = "Example:\n  poolhouse replicate status")]
    Status,
    /// Bring configured replicas up to date, now
    #[command(
        after_help = "Examples:\n  poolhouse replicate run\n  poolhouse replicate run offsite"
    )]
    Run {
        /// The name of one; all without it
        name: Option<String>,
    },
    /// Read copies of configured replicas back and compare them with their sources
    #[command(
        after_help = "Both sides send the newest common snapshot in full, and the sums of what they send are compared. So the
copy can be read, and has what the source has. `test = \"weekly\"` in a section [[replica]] does it by the
clock.

Examples:
  poolhouse replicate test
  poolhouse replicate test offsite"
    )]
    Test {
        /// The name of one; all without it
        name: Option<String>,
    },
}

impl ReplicateArgs {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match (&self.command, &self.source, &self.target) {
            (Some(Command::Status), ..) => self.status(),
            (Some(Command::Run { name }), ..) => {
                self.report(&self.daemon.request(&RunReplicas { name: name.clone() })?)
            }
            (Some(Command::Test { name }), ..) => {
                self.report_tests(&self.daemon.request(&TestReplicas { name: name.clone() })?)
            }
            (None, Some(source), Some(target)) => {
                let (source, target) = (source.clone(), target.clone());
                let call = Replicate { source, target, recursive: self.recursive };
                self.report(&self.daemon.request(&call)?)
            }
            _ => Err(Failure::usage("replicate SOURCE TARGET: both must be given")),
        }
    }

    fn report(&self, done: &[ReplicatedDataset]) -> CommandResult {
        if self.daemon.json {
            print::json(&done)?;
            return Ok(Outcome::Complete);
        }
        for ReplicatedDataset { source, target, snapshot } in done {
            let line = match snapshot {
                Some(snapshot) => format!("{target} has {source}@{snapshot}"),
                None => format!("{source} has no snapshots"),
            };
            print::line(&line)?;
        }
        Ok(Outcome::Complete)
    }

    fn report_tests(&self, done: &[TestedCopy]) -> CommandResult {
        if self.daemon.json {
            print::json(&done)?;
            return Ok(Outcome::Complete);
        }
        for TestedCopy { source, target, snapshot, bytes } in done {
            let size = units::human_space(*bytes);
            let part = snapshot.as_deref().unwrap_or("-");
            print::line(&format!("{target}@{part} equals {source}: {size} read back"))?;
        }
        Ok(Outcome::Complete)
    }

    fn status(&self) -> CommandResult {
        let all = self.daemon.request(&GetReplicaStatus {})?;
        if self.daemon.json {
            print::json(&all)?;
            return Ok(Outcome::Complete);
        }
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
        let mut table = Table::with_header(&[
            ("REPLICA", Align::Left),
            ("SOURCE", Align::Left),
            ("NEWEST COPY", Align::Left),
            ("AGE", Align::Right),
            ("MISSING", Align::Right),
        ]);
        for replica in &all {
            for copy in &replica.copies {
                let when = copy.snapshot_time;
                table.add_row([
                    replica.name.clone(),
                    copy.source.clone(),
                    when.map_or_else(|| "never".to_owned(), time::format_minutes),
                    when.map_or_else(|| "-".to_owned(), |when| age(now.saturating_sub(when))),
                    copy.missing.map_or_else(|| "-".to_owned(), |missing| missing.to_string()),
                ]);
            }
        }
        table.print(&mut io::stdout().lock())?;
        for replica in &all {
            if let Some(when) = replica.tested {
                let (name, when) = (&replica.name, time::format_minutes(when));
                print::line(&format!("{name}: copies read back and found equal, {when}"))?;
            }
        }
        let errors = |it: &ReplicaStatus| [it.error.clone(), it.test_error.clone()];
        let failed =
            all.iter().flat_map(|it| errors(it).into_iter().flatten().map(move |why| (it, why)));
        let failed: Vec<_> = failed.collect();
        for (replica, why) in &failed {
            print::error(&format!("replica {} ({}): {why}", replica.name, replica.target));
        }
        Ok(Outcome::complete_unless(!failed.is_empty()))
    }
}

/// A time span in its largest unit.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
