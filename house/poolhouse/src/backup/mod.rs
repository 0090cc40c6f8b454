//! `poolhouse backup`: snapshots as raw blocks in a folder or a bucket.
//!
//! The daemon runs backups, as it owns the pools. All else needs no daemon and no pool.

mod check;
mod init;
mod list;
mod protect;
mod prune;
mod read;
mod retention;
mod run;
mod send;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bucket::{CachedStore, S3Access};
use engine::backup::BackupRepository;
use engine::pool::FillRandom;

use crate::keys::read_key_file;
use crate::outcome::{CommandResult, Failure};

/// Keep snapshots as raw blocks in a folder or a bucket, each one readable and prunable
#[derive(clap::Args, Debug)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "A repository stores each block once, in its form on the pool's drives: compressed, encrypted,
with its checksum. So a backup reads and stores only what changed, encrypted datasets
need no key, and every snapshot can be listed, mounted, restored and removed alone.
Datasets that are not encrypted can be read by everybody with access to the
store. Its format is described in docs/bucket-format.md.

LOCATION is file:///FOLDER (a folder of a disk, a USB drive or a mounted share) or
s3://BUCKET/FOLDER. A bucket is reached with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN, AWS_REGION, and for other services than AWS AWS_ENDPOINT_URL. It must
support conditional writes, which init tries. Keys that cannot delete suffice for run.

Examples:
  poolhouse backup init file:///mnt/usb/backup
  poolhouse zfs snapshot -r tank@monday
  poolhouse backup run -r file:///mnt/usb/backup tank@monday
  poolhouse backup list file:///mnt/usb/backup
  poolhouse backup restore file:///mnt/usb/backup tank/home@monday:/ann ~/saved
  poolhouse backup send file:///mnt/usb/backup tank/home@monday | poolhouse zfs receive tank/old
  poolhouse backup prune file:///mnt/usb/backup --keep-daily 7 --keep-monthly 12"
)]
pub(crate) struct Backup {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Create a repository
    Init(init::Args),
    /// Add snapshots of an imported pool to a repository
    Run(run::Args),
    /// List the snapshots in a repository
    List(list::Args),
    /// List folders and files in a snapshot
    Ls(read::LsArgs),
    /// Print the content of files in a snapshot
    Cat(read::CatArgs),
    /// Copy files and trees out of a snapshot
    Restore(read::RestoreArgs),
    /// Mount snapshots, read-only
    Mount(read::MountArgs),
    /// Send a snapshot as a stream, which `zfs receive` reads
    Send(send::Args),
    /// Remove snapshots, and the blocks that no other snapshot needs
    Prune(prune::Args),
    /// Verify every block that a snapshot needs
    Check(check::Args),
    /// Protect what the snapshots need from deletion, for some days from now (object lock)
    Protect(protect::Args),
}

impl Backup {
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::Init(args) => args.run(),
            Command::Run(args) => args.run(),
            Command::List(args) => args.run(),
            Command::Ls(args) => args.run(),
            Command::Cat(args) => args.run(),
            Command::Restore(args) => args.run(),
            Command::Mount(args) => args.run(),
            Command::Send(args) => args.run(),
            Command::Prune(args) => args.run(),
            Command::Check(args) => args.run(),
            Command::Protect(args) => args.run(),
        }
    }
}

/// A repository to be read.
#[derive(clap::Args, Debug)]
struct RepositoryArgs {
    /// The repository: file:///FOLDER or s3://BUCKET/FOLDER
    location: String,
    /// The key of an encrypted dataset: a file that holds the passphrase, the hexadecimal digits or
    /// the raw bytes; may be repeated
    #[arg(long, value_name = "DATASET=FILE")]
    key: Vec<String>,
    #[command(flatten)]
    cache: CacheArgs,
}

/// A cache before the store.
#[derive(clap::Args, Debug)]
struct CacheArgs {
    /// Keep what is read from the store in this folder too, so that it is fetched once. The folder then holds
    /// parts of the snapshots, readable by its owner alone
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// The most space that the cache takes
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    cache_size: u64,
}

impl CacheArgs {
    /// Opens the repository at an address, behind the cache.
    fn open(&self, location: &str) -> Result<BackupRepository, Failure> {
        let mut store = bucket::open(location, false, s3_access().as_ref())?;
        if let Some(folder) = &self.cache {
            store = Arc::new(CachedStore::open(store, folder.clone(), self.cache_size)?);
        }
        Ok(BackupRepository::open(store)?)
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    units::parse_bytes(text).ok_or_else(|| "a size is expected, as in 500M or 10G".to_owned())
}

impl RepositoryArgs {
    /// Opens the repository, and loads the keys that are given.
    fn open(&self) -> Result<BackupRepository, Failure> {
        let repository = self.cache.open(&self.location)?;
        for each in &self.key {
            let (dataset, file) = each.rsplit_once('=').ok_or_else(|| {
                let wanted = "DATASET=FILE is expected, as in tank/home=key.txt";
                Failure::usage(format!("--key {each}: {wanted}"))
            })?;
            repository.load_key(dataset, &read_key_file(Path::new(file))?)?;
        }
        Ok(repository)
    }
}

fn open(location: &str) -> Result<BackupRepository, Failure> {
    Ok(BackupRepository::open(bucket::open(location, false, s3_access().as_ref())?)?)
}

/// The access to buckets, from the environment.
fn s3_access() -> Option<S3Access> {
    S3Access::from_variables(&|name| std::env::var(name).ok())
}

/// Random numbers of the operating system.
pub(crate) fn random() -> Arc<FillRandom> {
    Arc::new(|mut bytes: &mut [u8]| {
        while !bytes.is_empty() {
            let flags = rustix::rand::GetRandomFlags::empty();
            let got = rustix::rand::getrandom(&mut *bytes, flags);
            let got = got.expect("the operating system gives random numbers");
            bytes = bytes.get_mut(got..).unwrap_or_default();
        }
    })
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
