//! `poolhouse zfs mount` and `unmount`.

use std::io;
use std::path::PathBuf;

use ::daemon::Ask;

use crate::daemon::Asking;
use crate::outcome::{Done, Outcome};
use crate::print;
use crate::table::{Align, Table};

/// Mount file systems, or list those that are
#[derive(clap::Args, Debug)]
#[command(after_help = "Where is what the property mountpoint says, behind the pool's altroot.

Examples:
  poolhouse zfs mount                 what is mounted?
  poolhouse zfs mount -a              all that are to be
  poolhouse zfs mount tank/photos")]
pub(super) struct Mount {
    /// All that are to be mounted
    #[arg(short = 'a', conflicts_with = "name")]
    all: bool,
    /// One of them
    #[arg(value_name = "FILESYSTEM")]
    name: Option<String>,
}

impl Mount {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        if self.all || self.name.is_some() {
            return asking.tell(&Ask::Mount { names: self.name.iter().cloned().collect() });
        }
        let mounts: Vec<(String, PathBuf)> = asking.ask(&Ask::Mounts {})?;
        if asking.json {
            print::json(&mounts)?;
            return Ok(Outcome::Complete);
        }
        let mut table = Table::new([Align::Left, Align::Left]);
        for (dataset, dir) in mounts {
            table.row([dataset, dir.display().to_string()]);
        }
        table.print(&mut io::stdout().lock())?;
        Ok(Outcome::Complete)
    }
}

/// Unmount file systems
#[derive(clap::Args, Debug)]
#[command(after_help = "Those below are unmounted, too. One whose files are in use is refused.

Examples:
  poolhouse zfs unmount tank/photos
  poolhouse zfs unmount -a")]
pub(super) struct Unmount {
    /// All of them
    #[arg(short = 'a', conflicts_with = "name", required_unless_present = "name")]
    all: bool,
    /// Even while somebody uses their files, who then gets errors
    #[arg(short = 'f')]
    force: bool,
    /// A file system, or where it is mounted
    #[arg(value_name = "FILESYSTEM|MOUNTPOINT")]
    name: Option<String>,
}

impl Unmount {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        let names = self.name.iter().cloned().collect();
        asking.tell(&Ask::Unmount { names, force: self.force })
    }
}
