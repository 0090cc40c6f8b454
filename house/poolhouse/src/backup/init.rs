//! `poolhouse backup init`: creates a repository.

use engine::backup::BackupRepository;

use super::{now, random, s3_access};
use crate::outcome::{CommandResult, Outcome};
use crate::print;

/// Create a repository
#[derive(clap::Args, Debug)]
#[command(after_help = "The folder is created for its owner alone; the one above must exist.

Examples:
  poolhouse backup init file:///mnt/usb/backup
  AWS_ENDPOINT_URL=https://s3.example.org poolhouse backup init s3://backups/nas")]
pub(super) struct Args {
    /// Where: file:///FOLDER or s3://BUCKET/FOLDER
    location: String,
}

impl Args {
    pub(super) fn run(&self) -> CommandResult {
        let store = bucket::open(&self.location, true, s3_access().as_ref())?;
        let repository = BackupRepository::create(store, &random(), now())?;
        print::line(&format!("{} is a backup repository now: {}", self.location, repository.id()))?;
        Ok(Outcome::Complete)
    }
}
