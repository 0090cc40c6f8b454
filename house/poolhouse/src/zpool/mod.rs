//! `poolhouse zpool`: pools, in the words of zpool(8).

mod advice;
mod checkpoint;
mod config_tree;
mod create;
mod drives;
mod expansion;
mod history;
mod import;
mod iostat;
mod layout;
mod list;
mod pool_columns;
mod properties;
mod removal;
mod repair;
mod repeat;
mod report_json;
mod scan;
mod scripts;
mod scrub;
mod split;
mod status;
mod sweep;
mod upgrade;
mod vdev_properties;
mod vdevs;
mod wait;

use api::{ClearPool, DestroyPool, ExportPool, ListPools, PoolReport, SyncPools};

use crate::daemon::DaemonArgs;
use crate::events::{self, FollowArgs};
use crate::outcome::{CommandResult, Failure, run_for_each};
use crate::version::{VersionArgs, print_version};

/// Make pools and look after them, in the words of zpool(8)
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit status: 0 success, 1 an error, 2 invalid command line.

Examples:
  poolhouse zpool create tank raidz2 /dev/sd[a-f]   create a pool of six drives
  poolhouse zpool import -d ~/images tank           import a pool
  poolhouse zpool status                            show the state of all pools
  poolhouse zpool export tank                       so that another host can import it")]
pub(crate) struct Zpool {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Make a pool
    Create(create::Args),
    /// Import a pool, or list the pools that can be imported
    Import(import::Args),
    /// Give pools up, so that other hosts can import them
    Export(ExportArgs),
    /// Destroy a pool and all that is in it
    Destroy(DestroyArgs),
    /// List pools and how full they are
    List(list::Args),
    /// How pools and their drives are
    Status(status::Args),
    /// Show properties of pools
    Get(properties::GetArgs),
    /// Set a property of a pool
    Set(properties::SetArgs),
    /// Add vdevs to a pool
    Add(drives::AddArgs),
    /// Remove drives and vdevs from a pool
    Remove(drives::RemoveArgs),
    /// Split a pool of mirrors in two
    Split(split::Args),
    /// Open missing drives of pools again
    Reopen(drives::ReopenArgs),
    /// Keep the state of a pool, so that an import can go back to it
    Checkpoint(checkpoint::Args),
    /// Give a pool another guid, so that it can be imported beside a copy of its drives
    Reguid(upgrade::ReguidArgs),
    /// Enable all features of pools
    Upgrade(upgrade::Args),
    /// Write to all free space of drives
    Initialize(sweep::InitializeArgs),
    /// Tell drives which space is free (TRIM)
    Trim(sweep::TrimArgs),
    /// Wait until activities of a pool have ended
    Wait(wait::Args),
    /// Show I/O statistics of pools
    Iostat(iostat::Args),
    /// Clear the labels of a drive that no pool uses
    Labelclear(drives::LabelclearArgs),
    /// Have another drive take the place of one
    Replace(repair::ReplaceArgs),
    /// Put a drive beside one, so that both hold the same, or expand a raidz by it
    Attach(repair::AttachArgs),
    /// Take a drive out of a mirror, or end its being replaced
    Detach(repair::DetachArgs),
    /// Take drives out of service
    Offline(repair::OfflineArgs),
    /// Bring drives back into service
    Online(repair::OnlineArgs),
    /// Read all that is in pools, and mend what is wrong
    Scrub(scrub::ScrubArgs),
    /// Have a pool go on whose drives failed, and count their errors anew
    Clear(ClearArgs),
    /// Have all that was changed written
    Sync(SyncArgs),
    /// Show the commands given to pools
    History(history::Args),
    /// Show events of pools
    Events(EventsArgs),
    /// Print the version
    Version(VersionArgs),
}

/// Has a pool with an altroot be in no cache file, as with OpenZFS, unless the user named one.
fn default_to_no_cachefile(properties: &mut Vec<(String, String)>) {
    if !properties.iter().any(|(name, _)| name == "cachefile") {
        properties.push(("cachefile".to_owned(), "none".to_owned()));
    }
}

/// Give pools up, so that other hosts can import them
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zpool export tank
  poolhouse zpool export -a")]
struct ExportArgs {
    /// All pools
    #[arg(short = 'a', conflicts_with = "pools", required_unless_present = "pools")]
    all: bool,
    /// Force: unmount even if files are open
    #[arg(short = 'f')]
    force: bool,
    /// Pools
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// Destroy a pool and all that is in it
#[derive(clap::Args, Debug)]
#[command(
    after_help = "There is no confirmation. The data stays on the drives until they are used again;
`zpool import -D` finds it until then.

Example:
  poolhouse zpool destroy tank"
)]
struct DestroyArgs {
    /// Force: unmount even if files are open
    #[arg(short = 'f')]
    force: bool,
    /// Pool
    pool: String,
}

/// Clear the errors of devices, and resume a suspended pool
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Dirty data is not lost. If drives lost acknowledged writes, the pool is imported
again at its last txg, and a line reports it.

Examples:
  poolhouse zpool clear tank
  poolhouse zpool clear tank sdb     clear only that drive's errors"
)]
struct ClearArgs {
    /// Pool
    pool: String,
    /// The drive, by path or guid; none: all
    drive: Option<String>,
}

/// Have all that was changed written
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse zpool sync tank")]
struct SyncArgs {
    /// Even if nothing was changed, as is done without it
    #[arg(short = 'f')]
    _force: bool,
    /// Pools; default: all
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// Show events of pools
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zpool events
  poolhouse zpool events -f tank")]
struct EventsArgs {
    #[command(flatten)]
    follow: FollowArgs,
    /// No head, as there is none
    #[arg(short = 'H')]
    _scripted: bool,
    /// All fields, as is done without it
    #[arg(short = 'v')]
    _verbose: bool,
    /// Only of this pool
    pool: Option<String>,
}

impl Zpool {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        let asking = &self.daemon;
        match &self.command {
            Command::Create(args) => create::run(args, asking),
            Command::Import(args) => import::run(args, asking),
            Command::Export(args) => export_pools(args, asking),
            Command::Destroy(args) => {
                let (name, force) = (args.pool.clone(), args.force);
                asking.execute(&DestroyPool { name, force })
            }
            Command::List(args) => list::run(args, asking),
            Command::Status(args) => status::run(args, asking),
            Command::Get(args) => args.run(asking),
            Command::Set(args) => args.run(asking),
            Command::Add(args) => args.run(asking),
            Command::Remove(args) => args.run(asking),
            Command::Split(args) => args.run(asking),
            Command::Reopen(args) => args.run(asking),
            Command::Checkpoint(args) => args.run(asking),
            Command::Reguid(args) => args.run(asking),
            Command::Upgrade(args) => args.run(asking),
            Command::Initialize(args) => args.run(asking),
            Command::Trim(args) => args.run(asking),
            Command::Wait(args) => args.run(asking),
            Command::Iostat(args) => args.run(asking),
            Command::Labelclear(args) => args.run(asking),
            Command::Replace(args) => args.run(asking),
            Command::Attach(args) => args.run(asking),
            Command::Detach(args) => args.run(asking),
            Command::Offline(args) => args.run(asking),
            Command::Online(args) => args.run(asking),
            Command::Scrub(args) => args.run(asking),
            Command::Clear(args) => {
                let (name, device) =
                    (args.pool.clone(), args.drive.as_deref().map(vdevs::resolve_drive));
                let subject = format!(
                    "cannot clear errors for {}",
                    args.drive.as_ref().unwrap_or(&args.pool)
                );
                let done = asking.execute(&ClearPool { name, device });
                done.map_err(|why| why.with_subject(|| subject))
            }
            Command::History(args) => history::run(args, asking),
            Command::Version(_) => print_version("zpool", asking.json),
            Command::Events(args) => events::show(&args.follow, asking, |record| {
                let pool = record.event.pool();
                pool.is_some() && args.pool.as_deref().is_none_or(|wanted| pool == Some(wanted))
            }),
            Command::Sync(args) => asking.execute(&SyncPools { names: args.pools.clone() }),
        }
    }
}

fn export_pools(args: &ExportArgs, asking: &DaemonArgs) -> CommandResult {
    let names = if args.all {
        let all = query_reports(asking, &[])?.into_iter();
        all.filter(|pool| !pool.status.is_unavailable()).map(|pool| pool.status.name).collect()
    } else {
        args.pools.clone()
    };
    run_for_each(names, |name| asking.execute(&ExportPool { name, force: args.force }))
}

/// How pools are; none named: all.
fn query_reports(asking: &DaemonArgs, names: &[String]) -> Result<Vec<PoolReport>, Failure> {
    asking.request(&ListPools { names: names.to_vec(), verbose: false })
}
