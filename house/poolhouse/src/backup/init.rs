//! `poolhouse backup init`: creates a repository.

use engine::backup::BackupRepository;

use super::{now, random};
use crate::outcome::{CommandResult, Outcome};
use crate::print;

/// Create a repository
#[derive(clap::Args, Debug)]
#[command(after_help = "The folder is created for its owner alone; the one above must exist.

Example:
  poolhouse backup init file:///mnt/usb/backup")]
pub(super) struct Args {
    /// Where: file:///FOLDER
    location: String,
}

impl Args {
    pub(super) fn run(&self) -> CommandResult {
        let store = bucket::open(&self.location, true)?;
        let repository = BackupRepository::create(store, &random(), now())?;
        print::line(&format!("{} is a backup repository now: {}", self.location, repository.id()))?;
        Ok(Outcome::Complete)
    }
}
