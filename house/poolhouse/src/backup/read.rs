//! `poolhouse backup ls`, `cat`, `restore`, `mount`: files of snapshots in a repository.

use std::sync::Arc;

use super::RepositoryArgs;
use crate::outcome::CommandResult;
use crate::rescue::pool_path::OpenDatasets;
use crate::rescue::{cat, get, ls, mount};

/// List folders and files in a snapshot
#[derive(clap::Args, Debug)]
#[command(after_help = "FS without a snapshot is the newest snapshot of FS.

Example:
  poolhouse backup ls -l file:///mnt/usb/backup tank/home@monday:/ann")]
pub(super) struct LsArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    ls: ls::Args,
}

impl LsArgs {
    pub(super) fn run(&self) -> CommandResult {
        ls::list(&self.ls, &mut open(&self.repository)?)
    }
}

/// Print the content of files in a snapshot
#[derive(clap::Args, Debug)]
#[command(after_help = "FS without a snapshot is the newest snapshot of FS.

Example:
  poolhouse backup cat file:///mnt/usb/backup tank/home@monday:/ann/notes.txt")]
pub(super) struct CatArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    cat: cat::Args,
}

impl CatArgs {
    pub(super) fn run(&self) -> CommandResult {
        cat::print_files(&self.cat.targets, &mut open(&self.repository)?)
    }
}

/// Copy files and trees out of a snapshot
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Only the blocks of these files are read. A folder or file is copied to DEST/ITS-NAME, the
contents of a root (tank/home@monday:/) to DEST. FS without a snapshot is its newest
snapshot. The same command resumes an interrupted copy, and skips complete files.

Examples:
  poolhouse backup restore file:///mnt/usb/backup tank/home@monday:/ann/letter.odt .
  poolhouse backup restore -r file:///mnt/usb/backup tank@monday:/ /mnt/new"
)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    get: get::Args,
}

impl RestoreArgs {
    pub(super) fn run(&self) -> CommandResult {
        get::copy_out(&self.get, &mut open(&self.repository)?)
    }
}

/// Mount snapshots, read-only
#[derive(clap::Args, Debug)]
#[command(
    after_help = "FS@SNAPSHOT is that snapshot. FS shows its newest snapshot, with all of them in
.zfs/snapshot, and the file systems below it at their names. Only the blocks that are
read are fetched. Ctrl-C or fusermount3 -u DIR ends it.

Examples:
  poolhouse backup mount file:///mnt/usb/backup tank/home ~/mnt
  poolhouse backup mount file:///mnt/usb/backup tank/home@monday ~/mnt"
)]
pub(super) struct MountArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    mount: mount::Args,
}

impl MountArgs {
    pub(super) fn run(&self) -> CommandResult {
        mount::mount_datasets(&self.mount, self.repository.open()?)
    }
}

fn open(repository: &RepositoryArgs) -> Result<OpenDatasets<'static>, crate::outcome::Failure> {
    Ok(OpenDatasets::in_repository(Arc::new(repository.open()?)))
}
