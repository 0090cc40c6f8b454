//! `poolhouse zpool`: pools, in the words of zpool(8).

mod create;
mod drives;
mod history;
mod import;
mod list;
mod mend;
mod properties;
mod scan;
mod status;
mod vdevs;
mod watch;

use ::daemon::{PoolReport, Request};

use crate::daemon::Asking;
use crate::outcome::{Done, Failure, each};

/// Make pools and look after them, in the words of zpool(8)
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: 0 it is done, 1 it is not, as a sentence says, 2 the command line is wrong.

Examples:
  poolhouse zpool create tank raidz2 /dev/sd[a-f]   make a pool of six drives
  poolhouse zpool import -d ~/images tank           take over one that is there
  poolhouse zpool status                            how are they?
  poolhouse zpool export tank                       give it to another host"
)]
pub(crate) struct Zpool {
    #[command(flatten)]
    asking: Asking,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Make a pool
    Create(create::Args),
    /// Take over a pool that is on drives, or list those that could be
    Import(import::Args),
    /// Give pools up, so that other hosts can import them
    Export(Export),
    /// Destroy a pool and all that is in it
    Destroy(Destroy),
    /// List pools and how full they are
    List(list::Args),
    /// How pools and their drives are
    Status(status::Args),
    /// Show properties of pools
    Get(properties::Get),
    /// Set a property of a pool
    Set(properties::Set),
    /// Add cache drives and spares to a pool
    Add(drives::Add),
    /// Remove cache drives and spares from a pool
    Remove(drives::Remove),
    /// Have another drive take the place of one
    Replace(mend::Replace),
    /// Put a drive beside one, so that both hold the same
    Attach(mend::Attach),
    /// Take a drive out of a mirror, or end its being replaced
    Detach(mend::Detach),
    /// Read all that is in pools, and mend what is wrong
    Scrub(mend::Scrub),
    /// Have a pool go on whose drives failed, and count their errors anew
    Clear(Clear),
    /// Have all that was changed written
    Sync(Sync),
    /// What was done to pools, and by which commands
    History(history::Args),
}

/// Give pools up, so that other hosts can import them
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zpool export tank
  poolhouse zpool export -a")]
struct Export {
    /// All pools
    #[arg(short = 'a', conflicts_with = "pools", required_unless_present = "pools")]
    all: bool,
    /// Even while somebody uses their files
    #[arg(short = 'f')]
    force: bool,
    /// Their names
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// Destroy a pool and all that is in it
#[derive(clap::Args, Debug)]
#[command(
    after_help = "What was in it stays on the drives until they are used again, and nobody asks
whether you mean it.

Example:
  poolhouse zpool destroy tank"
)]
struct Destroy {
    /// Even while somebody uses its files
    #[arg(short = 'f')]
    force: bool,
    /// Its name
    pool: String,
}

/// Have a pool go on whose drives failed, and count their errors anew
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Nothing that waits to be written is lost. If drives took changes and did not keep
them, the pool is taken over anew as it was last written, and a line says so.

Examples:
  poolhouse zpool clear tank
  poolhouse zpool clear tank sdb     count only that drive's errors anew"
)]
struct Clear {
    /// Its name
    pool: String,
    /// The drive, by path or guid; none: all
    drive: Option<String>,
}

/// Have all that was changed written
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse zpool sync tank")]
struct Sync {
    /// Even if nothing was changed, as is done without it
    #[arg(short = 'f')]
    _force: bool,
    /// Their names; none: all
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl Zpool {
    /// Does what was asked for.
    pub(crate) fn run(&self) -> Done {
        let asking = &self.asking;
        match &self.command {
            Command::Create(args) => create::run(args, asking),
            Command::Import(args) => import::run(args, asking),
            Command::Export(args) => export(args, asking),
            Command::Destroy(args) => {
                let (name, force) = (args.pool.clone(), args.force);
                asking.tell(&Request::DestroyPool { name, force })
            }
            Command::List(args) => list::run(args, asking),
            Command::Status(args) => status::run(args, asking),
            Command::Get(args) => args.run(asking),
            Command::Set(args) => args.run(asking),
            Command::Add(args) => args.run(asking),
            Command::Remove(args) => args.run(asking),
            Command::Replace(args) => args.run(asking),
            Command::Attach(args) => args.run(asking),
            Command::Detach(args) => args.run(asking),
            Command::Scrub(args) => args.run(asking),
            Command::Clear(args) => {
                let (name, drive) = (args.pool.clone(), args.drive.as_deref().map(vdevs::named));
                asking.tell(&Request::ClearPool { name, drive })
            }
            Command::History(args) => history::run(args, asking),
            Command::Sync(args) => asking.tell(&Request::SyncPools { names: args.pools.clone() }),
        }
    }
}

fn export(args: &Export, asking: &Asking) -> Done {
    let names = if args.all {
        let all = reports(asking, &[])?.into_iter();
        all.filter(|pool| !pool.status.is_unavailable()).map(|pool| pool.status.name).collect()
    } else {
        args.pools.clone()
    };
    each(names, |name| asking.tell(&Request::ExportPool { name, force: args.force }))
}

/// How pools are; none named: all.
fn reports(asking: &Asking, names: &[String]) -> Result<Vec<PoolReport>, Failure> {
    asking.ask(&Request::Pools { names: names.to_vec() })
}
