//! `poolhouse zfs share` and `unshare`.

use api::{ShareFilesystems, UnshareFilesystems};

use crate::daemon::DaemonArgs;
use crate::outcome::CommandResult;

/// Share file systems according to their properties sharenfs and sharesmb
#[derive(clap::Args, Debug)]
#[command(
    after_help = "File systems are shared automatically when these properties are set or their pool is imported.
This command shares them again after `zfs unshare`.

Examples:
  poolhouse zfs share -a
  poolhouse zfs share tank/photos"
)]
pub(super) struct ShareArgs {
    /// All file systems
    #[arg(short = 'a', conflicts_with = "names", required_unless_present = "names")]
    all: bool,
    /// These
    #[arg(value_name = "FILESYSTEM")]
    names: Vec<String>,
}

/// End the shares of the properties sharenfs and sharesmb
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The properties stay. The shares come back with `zfs share`, and when the daemon starts.

Examples:
  poolhouse zfs unshare -a
  poolhouse zfs unshare tank/photos"
)]
pub(super) struct UnshareArgs {
    /// All file systems
    #[arg(short = 'a', conflicts_with = "names", required_unless_present = "names")]
    all: bool,
    /// These, or their mountpoints
    #[arg(value_name = "FILESYSTEM|MOUNTPOINT")]
    names: Vec<String>,
}

impl ShareArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        asking.execute(&ShareFilesystems { names: self.names.clone() })
    }
}

impl UnshareArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        asking.execute(&UnshareFilesystems { names: self.names.clone() })
    }
}
