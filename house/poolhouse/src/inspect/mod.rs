//! `poolhouse inspect`: the structures on disk, as a person wants to read them.

mod facts;

use std::path::PathBuf;

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::pool_args::{PoolArgs, pool_name};
use crate::print;

/// Look at the structures on disk
#[derive(clap::Args, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "Exit status: as of `poolhouse rescue`.

Examples:
  poolhouse inspect labels disk0.img
  poolhouse inspect objset -d ~/images tank          the pool's own objects
  poolhouse inspect objset -d ~/images tank/home     a dataset's objects (tank/ is the topmost)
  poolhouse inspect history -d ~/images tank")]
pub(crate) struct Inspect {
    #[command(flatten)]
    pool_args: PoolArgs,
    #[command(subcommand)]
    command: InspectCommand,
}

#[derive(clap::Subcommand, Debug)]
enum InspectCommand {
    /// The four copies of a device's label, and the damage of each
    #[command(after_help = "Example:\n  poolhouse inspect labels /dev/sdb1")]
    Labels {
        /// The image, disk or partition
        device: PathBuf,
    },
    /// The uberblocks that stand on a device, best first
    #[command(after_help = "Example:\n  poolhouse inspect uberblocks disk0.img")]
    Uberblocks {
        /// The image, disk or partition
        device: PathBuf,
    },
    /// The configuration stored in a pool
    #[command(after_help = "Example:\n  poolhouse inspect config -d ~/images tank")]
    Config {
        /// The pool, by name or guid
        pool: String,
    },
    /// The objects of a pool (its own) or of a dataset
    #[command(after_help = "Example:\n  poolhouse inspect objset -d ~/images tank/home@monday")]
    Objset {
        /// POOL, or POOL/FS[@SNAP]; POOL/ is the topmost dataset
        target: String,
    },
    /// An object: its dnode and what hangs from it
    #[command(after_help = "Example:\n  poolhouse inspect object -d ~/images tank 1")]
    Object {
        /// POOL, or POOL/FS[@SNAP]; POOL/ is the topmost dataset
        target: String,
        /// Its number
        object: u64,
    },
    /// The entries of a name table
    #[command(after_help = "Example:\n  poolhouse inspect zap -d ~/images tank 1")]
    Zap {
        /// POOL, or POOL/FS[@SNAP]; POOL/ is the topmost dataset
        target: String,
        /// The object's number
        object: u64,
    },
    /// The block pointers of an object; or one of them in full
    #[command(after_help = "Examples:
  poolhouse inspect blkptr -d ~/images tank/home 12        all of object 12
  poolhouse inspect blkptr -d ~/images tank/home 12 0 3    block 3 of level 0")]
    Blkptr {
        /// POOL, or POOL/FS[@SNAP]; POOL/ is the topmost dataset
        target: String,
        /// The object's number
        object: u64,
        /// The level; 0 is data
        #[arg(requires = "block")]
        level: Option<u8>,
        /// The number of the block on that level
        block: Option<u64>,
    },
    /// The allocated space: of each vdev, of each metaslab, entry by entry
    #[command(after_help = "Examples:
  poolhouse inspect spacemap -d ~/images tank        the vdevs
  poolhouse inspect spacemap -d ~/images tank 0      the metaslabs of vdev 0
  poolhouse inspect spacemap -d ~/images tank 0 7    the space map of metaslab 7")]
    Spacemap {
        /// The pool, by name or guid
        pool: String,
        /// The index of a top-level vdev
        vdev: Option<u32>,
        /// The index of a metaslab
        metaslab: Option<usize>,
    },
    /// The command history of a pool
    #[command(after_help = "Example:\n  poolhouse inspect history -d ~/images tank")]
    History {
        /// The pool, by name or guid
        pool: String,
        /// Also internal events
        #[arg(short, long)]
        internal: bool,
        /// With user, host and txg
        #[arg(short, long)]
        long: bool,
    },
}

impl Inspect {
    pub(crate) fn run(&self) -> CommandResult {
        let found = self.read_structures()?;
        if self.pool_args.json {
            print::json(&found)?;
            return Ok(Outcome::Complete);
        }
        match &self.command {
            InspectCommand::History { long, .. } => facts::print_history(&found, *long)?,
            _ => facts::print(&found)?,
        }
        Ok(Outcome::Complete)
    }

    fn read_structures(&self) -> Result<engine::inspect::Facts, Failure> {
        let open = |target: &str| self.pool_args.open(pool_name(target));
        let unlocked = |target: &str| self.pool_args.open_unlocked(target);
        Ok(match &self.command {
            InspectCommand::Labels { device } => engine::inspect::labels(device)?,
            InspectCommand::Uberblocks { device } => engine::inspect::uberblocks(device)?,
            InspectCommand::Config { pool } => open(pool)?.inspect_config(),
            InspectCommand::Objset { target } => unlocked(target)?.inspect_objset(target)?,
            InspectCommand::Object { target, object } => {
                unlocked(target)?.inspect_object(target, *object)?
            }
            InspectCommand::Zap { target, object } => {
                unlocked(target)?.inspect_zap(target, *object)?
            }
            InspectCommand::Blkptr { target, object, level: Some(level), block: Some(block) } => {
                unlocked(target)?.inspect_blkptr(target, *object, *level, *block)?
            }
            InspectCommand::Blkptr { target, object, .. } => {
                unlocked(target)?.inspect_blkptrs(target, *object)?
            }
            InspectCommand::Spacemap { pool, vdev, metaslab } => {
                open(pool)?.inspect_space(*vdev, *metaslab)?
            }
            InspectCommand::History { pool, internal, .. } => {
                open(pool)?.inspect_history(*internal)?
            }
        })
    }
}
