//! `poolhouse rescue`: finds pools and gets everything out of them, reading only.

mod attributes;
pub(crate) mod cat;
mod copy;
pub(crate) mod du;
mod entry;
pub(crate) mod find;
pub(crate) mod get;
mod hash;
pub(crate) mod list;
pub(crate) mod ls;
pub(crate) mod manifest;
pub(crate) mod mount;
pub(crate) mod pool_path;
mod report;
pub(crate) mod scan;
pub(crate) mod stat;
mod streams;
mod tree;
pub(crate) mod verify;
pub(crate) mod volume;

use std::path::PathBuf;

use crate::outcome::CommandResult;
use crate::pool_args::PoolArgs;

/// The exit statuses in `--help`. Each is that of a kind of `engine::Error`.
const STATUSES: &str = "Exit status:
    0  all was done
    1  something could not be read in full; it was named and the rest was done
    2  the command line is wrong
    3  no pool is there, or none of that name or guid, or no such state of it (--txg, --checkpoint)
    4  several pools have that name: choose one by its guid
    5  more devices are missing than the redundancy can do without
    6  the pool's own metadata is damaged
    7  the pool has a version or uses a feature that this program does not know
    8  a key or passphrase is wrong
    9  a dataset is locked: its key is needed
   10  a path is not what it should be: a folder without images, a truncated image, no permission
   11  a device is in use by another program
   12  there is no such dataset or file
   13  what is copied out cannot be written: no space, no permission, or the file exists
  130  interrupted

Examples:
  poolhouse rescue scan -d ~/images
  poolhouse rescue list -d /dev/sdb1 -d /dev/sdc1 tank
  poolhouse rescue get -d ~/images tank/home:/ann ~/saved
  poolhouse rescue ls --stream full.zstream --stream more.zstream tank/home@two:/";

/// Find pools and get everything out of them, without importing anything
#[derive(clap::Args, Debug)]
#[command(after_help = STATUSES, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Rescue {
    #[command(flatten)]
    pool_args: PoolArgs,
    /// Read the snapshots of this send stream, in place of a pool on drives; may be repeated, the increments behind the full
    /// stream. The names are those of the sender
    #[arg(long, value_name = "FILE", global = true, help_heading = "Which pool")]
    #[arg(conflicts_with_all = ["paths", "deep", "txg", "rewind", "checkpoint"])]
    stream: Vec<PathBuf>,
    /// The folder for the contents of the streams, which take about as much space there as the files. Nothing is left
    /// there
    #[arg(long, value_name = "FOLDER", global = true, help_heading = "Which pool")]
    #[arg(requires = "stream")]
    space: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Find pools, and show their state and whether they can be read
    Scan(scan::Args),
    /// List datasets, snapshots, bookmarks and volumes, and their properties
    List(list::Args),
    /// List folders and files
    Ls(ls::Args),
    /// Print the content of files
    Cat(cat::Args),
    /// Print all that is known of files
    Stat(stat::Args),
    /// Find files by name, type and size
    Find(find::Args),
    /// Print the space that folders take
    Du(du::Args),
    /// Copy files and trees with their metadata out of a pool
    Get(get::Args),
    /// Print every entry with its attributes and hash, as JSON
    Manifest(manifest::Args),
    /// Copy a volume to a sparse image
    Volume(volume::Args),
    /// Mount a pool read-only, its datasets and snapshots in place
    Mount(mount::Args),
    /// Read and check every block, copy and parity
    Verify(verify::Args),
}

impl Rescue {
    pub(crate) fn run(&self) -> CommandResult {
        let received = match self.stream.as_slice() {
            [] => None,
            streams => {
                let folder = self.space.clone().unwrap_or_else(std::env::temp_dir);
                Some(streams::StreamPool::receive(streams, &folder)?)
            }
        };
        let common = match &received {
            Some(received) => &self.pool_args.with_path(received.path()),
            None => &self.pool_args,
        };
        match &self.command {
            Command::Scan(args) => scan::run(args, common),
            Command::List(args) => list::run(args, common),
            Command::Ls(args) => ls::run(args, common),
            Command::Cat(args) => cat::run(args, common),
            Command::Stat(args) => stat::run(args, common),
            Command::Find(args) => find::run(args, common),
            Command::Du(args) => du::run(args, common),
            Command::Get(args) => get::run(args, common),
            Command::Manifest(args) => manifest::run(args, common),
            Command::Volume(args) => volume::run(args, common),
            Command::Mount(args) => mount::run(args, common),
            Command::Verify(args) => verify::run(args, common),
        }
    }
}
