//! `poolhouse rescue mount`: mounts a pool, read-only.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::files::DatasetCatalog;
use fuse::{MountHandle, TreeMountOptions};
use vfs::DatasetTree;

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::pool_args::PoolArgs;
use crate::{interrupt, print};

/// Mount a pool read-only, its datasets and snapshots in place
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The file systems below the target are folders at their names, each snapshot is in
.zfs/snapshot/NAME of its file system, each volume is a file in .zfs/volume of its
parent. Locked datasets are empty folders: give their keys with --key. Ctrl-C or
fusermount3 -u DIR ends it.

Examples:
  poolhouse rescue mount -d ~/images tank ~/mnt
  poolhouse rescue mount -d ~/images --key tank/safe=key.txt tank/safe@monday ~/mnt"
)]
pub(crate) struct Args {
    /// POOL[/FS][@SNAP]
    pub(crate) target: String,
    /// Where: an empty folder
    pub(crate) dir: PathBuf,
    /// Let other users see it, as far as owners and modes of the files allow; needs root or
    /// user_allow_other in /etc/fuse.conf
    #[arg(long)]
    pub(crate) allow_other: bool,
}

/// How often to look whether the user wants it to end.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long to wait for the unmount.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Args, common: &PoolArgs) -> CommandResult {
    // printed before any passphrase prompt
    fuse::check_mountpoint(&args.dir).map_err(|why| to_failure(&args.dir, &why))?;
    let pool = common.open_unlocked(&args.target)?;
    mount_datasets(args, pool)
}

/// Mounts datasets and waits until they are unmounted.
pub(crate) fn mount_datasets(args: &Args, catalog: impl DatasetCatalog + 'static) -> CommandResult {
    fuse::check_mountpoint(&args.dir).map_err(|why| to_failure(&args.dir, &why))?;
    let options = TreeMountOptions {
        allow_other: args.allow_other,
        source: catalog.title(),
        no_io_uring: false,
    };
    let report = Box::new(|what: &str| print::warning(&what));
    interrupt::install_handler();
    let tree = DatasetTree::open(catalog, &args.target, report)?;
    let mounted =
        fuse::mount_tree(&tree, &args.dir, &options).map_err(|why| to_failure(&args.dir, &why))?;
    let dir = args.dir.display();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{} is mounted on {dir}, read-only; press Ctrl-C or run `fusermount3 -u {dir}` to end.",
        args.target
    )?;
    out.flush()?;
    drop(out);
    wait_for_unmount(mounted, &args.dir)?;
    Ok(Outcome::complete_unless(tree.has_unreadable()))
}

/// Waits until it is unmounted or the user wants it to be.
fn wait_for_unmount(mut mounted: MountHandle, dir: &Path) -> Result<(), Failure> {
    let ended = loop {
        if let Some(end) = mounted.wait_for_unmount(POLL_INTERVAL) {
            break end;
        }
        if interrupt::is_interrupted() {
            if !mounted.unmount() {
                let dir = dir.display();
                print::warning(&format!("programs still use {dir}: they get errors from now on"));
            }
            break mounted.wait_for_unmount(UNMOUNT_TIMEOUT).unwrap_or(Ok(()));
        }
    };
    ended.map_err(|why| Failure::destination(dir, &why))
}

fn to_failure(dir: &Path, why: &fuse::Error) -> Failure {
    match why {
        fuse::Error::DirectoryAccess { why, .. } => Failure::destination(dir, why),
        fuse::Error::Mount { .. } => Failure::Engine(engine::Error::WriteFailed {
            path: dir.display().to_string(),
            reason: why.to_string(),
        }),
        why => Failure::usage(why.to_string()),
    }
}
