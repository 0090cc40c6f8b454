//! `mount.zfs`: the helper that mount(8) starts for `mount -t zfs DATASET DIRECTORY`, also for lines of /etc/fstab.

use std::path::PathBuf;

use api::{Mount, MountOverrides};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};

/// The name by which mount(8) finds the helper.
pub(crate) const PROGRAM_NAME: &str = "mount.zfs";

/// Mount a file system on a directory, for mount(8)
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A link /sbin/mount.zfs to this program serves `mount -t zfs`. The file system has
mountpoint=legacy.

Example:
  mount -t zfs -o ro tank/photos /mnt"
)]
#[expect(clippy::struct_excessive_bools, reason = "switches of mount(8)")]
pub(crate) struct MountZfs {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// Taken and ignored: options that are not known are refused
    #[arg(short = 's')]
    sloppy: bool,
    /// Only check, and mount nothing
    #[arg(short = 'f')]
    fake: bool,
    /// Taken and ignored: /etc/mtab is the kernel's own today
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Taken and ignored
    #[arg(short = 'v')]
    verbose: bool,
    /// Options of mount(8)
    #[arg(short = 'o', value_name = "OPTION,...", value_delimiter = ',')]
    options: Vec<String>,
    /// The file system
    dataset: String,
    /// The directory
    directory: PathBuf,
}

impl MountZfs {
    pub(crate) fn run(&self) -> CommandResult {
        if self.fake {
            return Ok(Outcome::Complete);
        }
        let directory = Some(std::path::absolute(&self.directory)?);
        let overrides = MountOverrides { options: self.options.clone(), overlay: true, directory };
        self.daemon.execute(&Mount {
            names: vec![self.dataset.trim_start_matches("zfs:").to_owned()],
            recursive: false,
            overrides,
        })
    }
}
