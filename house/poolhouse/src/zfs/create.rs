//! `poolhouse zfs create`, `snapshot`, `bookmark` and `clone`.

use std::io::Write;

use api::{CloneSnapshot, CreateBookmark, CreateFilesystem, CreateSnapshots, CreateVolume};
use engine::pool::NewDataset;

use super::select::canonical_properties;
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::property_values::parse_assignment;

/// Make a file system or a volume
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zfs create tank/photos
  poolhouse zfs create -s -V 100G -b 16K tank/vm
  poolhouse zfs create -o encryption=on -o keyformat=passphrase tank/private
  poolhouse zfs create -p -o compression=zstd -o recordsize=1M tank/media/films")]
#[command(disable_version_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct CreateArgs {
    /// Create missing parents, too; an existing dataset is not an error
    #[arg(short = 'p')]
    parents: bool,
    /// Do not mount it
    #[arg(short = 'u', conflicts_with = "volume")]
    no_mount: bool,
    /// Create nothing: check the arguments only
    #[arg(short = 'n')]
    dry_run: bool,
    /// Show what is created, or would be with -n
    #[arg(short = 'v')]
    verbose: bool,
    /// The same for programs: words separated by tabs
    #[arg(short = 'P')]
    parsable: bool,
    /// A property
    #[arg(short = 'o', value_name = "NAME=VALUE", value_parser = parse_assignment)]
    properties: Vec<(String, String)>,
    /// A volume of this size
    #[arg(short = 'V', value_name = "SIZE", value_parser = parse_size)]
    volume: Option<u64>,
    /// Of a volume: the size of its blocks (16K)
    #[arg(short = 'b', value_name = "SIZE", value_parser = parse_size, requires = "volume")]
    block_size: Option<u64>,
    /// Of a volume: reserve no space for it
    #[arg(short = 's', requires = "volume")]
    sparse: bool,
    /// Its full name
    #[arg(value_name = "DATASET")]
    name: String,
}

/// A size in written form.
fn parse_size(text: &str) -> Result<u64, String> {
    // zettabytes: OpenZFS knows the letter, and 64 bits do not hold them
    let is_too_large = text.trim_end_matches(['b', 'B']).ends_with(['z', 'Z']);
    let why =
        if is_too_large { "value is too large" } else { "a size is expected, as 512, 16K or 1.5T" };
    units::parse_binary(text).ok_or_else(|| why.to_owned())
}

/// A volume that is to be.
#[derive(Clone, Copy, Debug)]
struct VolumeSpec {
    size: u64,
    block_size: u32,
}

/// Printed for a file system that exists but could not be mounted.
const CREATED: &str = "filesystem successfully created, but not mounted";

/// The default block size of a volume.
const DEFAULT_VOLBLOCKSIZE: u64 = 16 << 10;

impl CreateArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let mut properties = canonical_properties(&self.properties)?;
        let volume = self.extract_volume(&mut properties)?;
        let new = NewDataset { name: self.name.clone(), properties };
        let shape = volume.map(|volume| (volume.size, volume.block_size));
        engine::pool::check_new_dataset(&new, shape).map_err(|why| {
            Failure::from(why).with_subject(|| format!("cannot create '{}'", self.name))
        })?;
        let (outcome, refreservation) = self.create(new.clone(), volume, asking)?;
        self.print_plan(&new, volume, refreservation)?;
        Ok(outcome)
    }

    /// Has the daemon create the dataset, or with -n only check it. Also the bytes that a volume reserves by itself.
    fn create(
        &self,
        new: NewDataset,
        volume: Option<VolumeSpec>,
        asking: &DaemonArgs,
    ) -> Result<(Outcome, Option<u64>), Failure> {
        let dry_run = self.dry_run;
        let secret =
            if dry_run { None } else { crate::keys::read_new_key(&self.name, &new.properties)? };
        let NewDataset { name, properties } = new;
        let (parents, no_mount) = (self.parents, self.no_mount);
        let subject = format!("cannot create '{name}'");
        let Some(VolumeSpec { size, block_size }) = volume else {
            let ask = CreateFilesystem { name, properties, parents, no_mount, secret, dry_run };
            let done = asking.create_mounted(&ask, CREATED);
            return done.map(|done| (done, None)).map_err(|why| why.with_subject(|| subject));
        };
        let sparse = self.sparse;
        let done = asking.request(&CreateVolume {
            name,
            size,
            block_size,
            sparse,
            properties,
            parents,
            secret,
            dry_run,
        });
        let done = done.map_err(|why| why.with_subject(|| subject))?;
        Ok((Outcome::Complete, done.refreservation))
    }

    /// The volume to create; its properties are taken out of the list.
    fn extract_volume(
        &self,
        properties: &mut Vec<(String, String)>,
    ) -> Result<Option<VolumeSpec>, Failure> {
        let Some(size) = self.volume else { return Ok(None) };
        let mut block_size = self.block_size.unwrap_or(DEFAULT_VOLBLOCKSIZE);
        if let Some(at) = properties.iter().position(|(name, _)| name == "volblocksize") {
            block_size = parse_size(&properties.swap_remove(at).1).map_err(Failure::usage)?;
        }
        // volumes have whole blocks: the size is rounded up to them
        let size = size.checked_next_multiple_of(block_size.max(1)).unwrap_or(size);
        Ok(Some(VolumeSpec { size, block_size: u32::try_from(block_size).unwrap_or(u32::MAX) }))
    }

    /// Prints the created dataset, for -v and -P.
    fn print_plan(
        &self,
        new: &NewDataset,
        volume: Option<VolumeSpec>,
        refreservation: Option<u64>,
    ) -> std::io::Result<()> {
        if !self.verbose && !self.parsable {
            return Ok(());
        }
        let out = &mut std::io::stdout().lock();
        let mut facts = new.properties.clone();
        let mut fact = |name: &str, value: u64| facts.push((name.to_owned(), value.to_string()));
        if let Some(VolumeSpec { size, block_size }) = volume {
            fact("volsize", size);
            if self.block_size.is_some() {
                fact("volblocksize", block_size.into());
            }
            if let Some(bytes) = refreservation {
                fact("refreservation", bytes);
            }
        }
        if self.parsable {
            if self.parents {
                writeln!(out, "create_ancestors\t{}", self.name)?;
            }
            writeln!(out, "create\t{}", self.name)?;
            return facts
                .iter()
                .try_for_each(|(name, value)| writeln!(out, "property\t{name}\t{value}"));
        }
        let word = if self.dry_run { "would create" } else { "create" };
        writeln!(out, "{word} {}", self.name)?;
        facts.iter().try_for_each(|(name, value)| writeln!(out, "\t{name}={value}"))
    }
}

/// Make snapshots
#[derive(clap::Args, Debug)]
#[command(after_help = "All snapshots of one command are taken in the same txg.

Examples:
  poolhouse zfs snapshot tank/photos@monday
  poolhouse zfs snapshot -r tank@monday         of all descendants, too")]
pub(super) struct SnapshotArgs {
    /// Of all datasets below, too
    #[arg(short = 'r')]
    recursive: bool,
    /// A property
    #[arg(short = 'o', value_name = "NAME=VALUE", value_parser = parse_assignment)]
    properties: Vec<(String, String)>,
    /// FS@NAME
    #[arg(value_name = "SNAPSHOT", required = true)]
    names: Vec<String>,
}

impl SnapshotArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        asking.execute(&CreateSnapshots {
            names: self.names.clone(),
            recursive: self.recursive,
            properties: canonical_properties(&self.properties)?,
        })
    }
}

/// Keep of a snapshot what an increment can be sent from
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A bookmark uses no space, and stays when the snapshot is destroyed. A bookmark
of a bookmark is a copy of it.

Examples:
  poolhouse zfs bookmark tank/photos@monday tank/photos#monday
  poolhouse zfs bookmark tank/photos@monday '#monday'
  poolhouse zfs bookmark tank/photos#monday '#sent'"
)]
pub(super) struct BookmarkArgs {
    /// FS@NAME, or FS#NAME
    #[arg(value_name = "SNAPSHOT|BOOKMARK")]
    source: String,
    /// FS#NAME, or #NAME
    #[arg(value_name = "BOOKMARK")]
    bookmark: String,
}

impl BookmarkArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let source = match self.source.strip_prefix('#') {
            // a name without its file system is of the one that gets the bookmark
            Some(_) => {
                let head = self.bookmark.split('#').next().unwrap_or_default();
                format!("{head}{}", self.source)
            }
            None => self.source.clone(),
        };
        let Some((head, _)) = source.split_once(['@', '#']).filter(|(head, _)| !head.is_empty())
        else {
            let what =
                format!("'{}' is not a snapshot or bookmark: FS@NAME or FS#NAME", self.source);
            return Err(Failure::usage(what));
        };
        let mark = match self.bookmark.split_once('#') {
            Some(("", _)) => format!("{head}{}", self.bookmark),
            Some(_) => self.bookmark.clone(),
            None => {
                return Err(Failure::usage(format!(
                    "'{}' is not a bookmark: FS#NAME",
                    self.bookmark
                )));
            }
        };
        asking.execute(&CreateBookmark { bookmark: mark, snapshot: source })
    }
}

/// Make a file system that begins as a snapshot
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse zfs clone tank/photos@monday tank/trial")]
pub(super) struct CloneArgs {
    /// Make those above that are not there, too
    #[arg(short = 'p')]
    parents: bool,
    /// A property
    #[arg(short = 'o', value_name = "NAME=VALUE", value_parser = parse_assignment)]
    properties: Vec<(String, String)>,
    /// FS@NAME
    snapshot: String,
    /// Its full name
    #[arg(value_name = "FILESYSTEM")]
    name: String,
}

impl CloneArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let ask = CloneSnapshot {
            snapshot: self.snapshot.clone(),
            name: self.name.clone(),
            properties: canonical_properties(&self.properties)?,
            parents: self.parents,
        };
        asking.create_mounted(&ask, CREATED)
    }
}
