//! `poolhouse zfs mount` and `unmount`.

use std::io;
use std::path::PathBuf;

use api::{ListMounts, Mount, MountOverrides, Unmount};

use super::key::{load_keys, unload_keys};
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome, run_for_each};
use crate::print;
use crate::table::{Align, Table};

/// Mount file systems, or list the mounted ones
#[derive(clap::Args, Debug)]
#[command(after_help = "The property mountpoint gives the folder, below the pool's altroot.

Examples:
  poolhouse zfs mount                 what is mounted?
  poolhouse zfs mount -a              all with canmount=on
  poolhouse zfs mount tank/photos
  poolhouse zfs mount -o ro,noexec tank/photos
  poolhouse zfs mount -l tank/private")]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct MountArgs {
    /// All that are to be mounted
    #[arg(short = 'a', conflicts_with = "names")]
    all: bool,
    /// And all below that are to be mounted
    #[arg(short = 'R', requires = "names")]
    recursive: bool,
    /// Load the keys of locked file systems
    #[arg(short = 'l')]
    load_keys: bool,
    /// Mount over non-empty folders, even with overlay=off
    #[arg(short = 'O')]
    overlay: bool,
    /// Until it is unmounted: ro, rw, exec, noexec, suid, nosuid, dev, nodev; with remount: from now on
    #[arg(short = 'o', value_name = "OPTION,...", value_delimiter = ',')]
    options: Vec<String>,
    /// Print each mount and its folder
    #[arg(short = 'v')]
    verbose: bool,
    /// These
    #[arg(value_name = "FILESYSTEM")]
    names: Vec<String>,
}

impl MountArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        if self.all || !self.names.is_empty() {
            let unlocked =
                if self.load_keys { self.load_locked_keys(asking)? } else { Outcome::Complete };
            let options = self.options.clone();
            let wish = MountOverrides { options, overlay: self.overlay, directory: None };
            let (names, below) = (self.names.clone(), self.recursive);
            let before = if self.verbose { list_mounts(asking)? } else { Vec::new() };
            let done = asking.execute(&Mount { names, recursive: below, overrides: wish })?;
            if self.verbose {
                let mut now = list_mounts(asking)?;
                now.retain(|mount| !before.contains(mount));
                print_mounts(now, asking)?;
            }
            return Ok(done.combine(unlocked));
        }
        print_mounts(list_mounts(asking)?, asking)
    }

    fn load_locked_keys(&self, asking: &DaemonArgs) -> CommandResult {
        if self.all {
            return load_keys(None, true, asking);
        }
        run_for_each(&self.names, |name| load_keys(Some(name), self.recursive, asking))
    }
}

/// Shows the mounts and their folders.
fn print_mounts(mounts: Vec<(String, PathBuf)>, asking: &DaemonArgs) -> CommandResult {
    if asking.json {
        print::json(&mounts)?;
        return Ok(Outcome::Complete);
    }
    let mut table = Table::new([Align::Left, Align::Left]);
    for (dataset, dir) in mounts {
        table.add_row([dataset, dir.display().to_string()]);
    }
    table.print(&mut io::stdout().lock())?;
    Ok(Outcome::Complete)
}

/// Unmount file systems
#[derive(clap::Args, Debug)]
#[command(after_help = "Descendants are unmounted, too. A file system with open files is refused.

Examples:
  poolhouse zfs unmount tank/photos
  poolhouse zfs unmount -u tank/private       and lock it
  poolhouse zfs unmount -a")]
pub(super) struct UnmountArgs {
    /// All of them
    #[arg(short = 'a', conflicts_with = "name", required_unless_present = "name")]
    all: bool,
    /// Force: unmount even if files are open
    #[arg(short = 'f')]
    force: bool,
    /// And lock them, if they have keys of their own
    #[arg(short = 'u')]
    unload_keys: bool,
    /// A file system, or where it is mounted
    #[arg(value_name = "FILESYSTEM|MOUNTPOINT")]
    name: Option<String>,
}

impl UnmountArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let before = if self.unload_keys { list_mounts(asking)? } else { Vec::new() };
        let names = self.name.iter().cloned().collect();
        let (force, locks) = (self.force, self.unload_keys);
        let done = asking.execute(&Unmount { names, force, unload_keys: locks })?;
        if self.unload_keys {
            let now = list_mounts(asking)?;
            let gone = before.into_iter().filter(|mount| !now.contains(mount));
            let locked =
                unload_keys(&gone.map(|(dataset, _)| dataset).collect::<Vec<_>>(), asking)?;
            return Ok(done.combine(locked));
        }
        Ok(done)
    }
}

/// The mounts: datasets and folders.
fn list_mounts(asking: &DaemonArgs) -> Result<Vec<(String, PathBuf)>, Failure> {
    asking.request(&ListMounts {})
}
