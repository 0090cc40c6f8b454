//! `poolhouse backup ls`, `cat`, `restore`, `mount`: files of snapshots in a repository.

use std::sync::Arc;

use engine::backup::{BackupRepository, SnapshotSummary};
use engine::files::DatasetCatalog as _;

use super::RepositoryArgs;
use crate::outcome::{CommandResult, Failure};
use crate::rescue::pool_path::{OpenDatasets, PoolPath};
use crate::rescue::{cat, get, ls, mount, volume};

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

/// Copy files, trees and volumes out of a snapshot
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Only the blocks of these files are read. A folder or file is copied to DEST/ITS-NAME, the
contents of a root (tank/home@monday:/) to DEST. FS without a snapshot is its newest
snapshot. The same command resumes an interrupted copy, and skips complete files.

A volume is copied to a sparse image, DEST, or to a block device.

Examples:
  poolhouse backup restore file:///mnt/usb/backup tank/home@monday:/ann/letter.odt .
  poolhouse backup restore -r file:///mnt/usb/backup tank@monday:/ /mnt/new
  poolhouse backup restore file:///mnt/usb/backup tank/vm@monday vm.img"
)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    get: get::Args,
}

impl RestoreArgs {
    pub(super) fn run(&self) -> CommandResult {
        let repository = self.repository.open()?;
        if let [source, dest] = self.get.places.as_slice()
            && let Some(snapshot) = find_volume(&repository, source)?
        {
            let (content, _) = repository.open_volume(&snapshot.name())?;
            let args = volume::Args {
                source: snapshot.name(),
                dest: dest.clone(),
                overwrite: self.get.overwrite,
                restart: self.get.restart,
                quiet: self.get.quiet,
            };
            return volume::copy_out(&args, &content, snapshot.txg);
        }
        get::copy_out(&self.get, &mut OpenDatasets::in_repository(Arc::new(repository)))
    }
}

/// The snapshot that a place names, if it is one of a volume.
fn find_volume(
    repository: &BackupRepository,
    place: &str,
) -> Result<Option<SnapshotSummary>, Failure> {
    let place = PoolPath::parse(place)?;
    let found = repository.find_snapshot(&place.dataset)?;
    Ok(Some(found).filter(|found| found.volume && place.path.is_empty()))
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

fn open(repository: &RepositoryArgs) -> Result<OpenDatasets<'static>, Failure> {
    Ok(OpenDatasets::in_repository(Arc::new(repository.open()?)))
}
