//! `poolhouse zfs create`, `snapshot` and `clone`.

use std::io::Write;

use ::daemon::Ask;

use crate::daemon::Asking;
use crate::outcome::{Done, Failure, Outcome};
use crate::zpool::setting;

/// Make a file system or a volume
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zfs create tank/photos
  poolhouse zfs create -s -V 100G -b 16K tank/vm
  poolhouse zfs create -o encryption=on -o keyformat=passphrase tank/private
  poolhouse zfs create -p -o compression=zstd -o recordsize=1M tank/media/films")]
#[command(disable_version_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct Create {
    /// Make those above that are not there, too; one that is there is no error
    #[arg(short = 'p')]
    parents: bool,
    /// Do not mount it
    #[arg(short = 'u')]
    unmounted: bool,
    /// Only show what would be made
    #[arg(short = 'n')]
    dry: bool,
    /// Show what is made
    #[arg(short = 'v')]
    verbose: bool,
    /// A property
    #[arg(short = 'o', value_name = "NAME=VALUE", value_parser = setting)]
    properties: Vec<(String, String)>,
    /// A volume of this size
    #[arg(short = 'V', value_name = "SIZE", value_parser = bytes)]
    volume: Option<u64>,
    /// Of a volume: the size of its blocks
    #[arg(short = 'b', value_name = "SIZE", value_parser = bytes, default_value = "16K")]
    #[arg(requires = "volume")]
    block_size: u64,
    /// Of a volume: reserve no space for it
    #[arg(short = 's', requires = "volume")]
    sparse: bool,
    /// Its full name
    #[arg(value_name = "DATASET")]
    name: String,
}

/// A size as people write it.
fn bytes(text: &str) -> Result<u64, String> {
    units::parse_bytes(text).ok_or_else(|| "a size is wanted, as 512, 16K or 1.5T".to_owned())
}

impl Create {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        if self.dry || self.verbose {
            let word = if self.dry { "would create" } else { "create" };
            let mut out = std::io::stdout().lock();
            writeln!(out, "{word} {}", self.name)?;
            for (name, value) in &self.properties {
                writeln!(out, "\t{name}={value}")?;
            }
        }
        if self.dry {
            return Ok(Outcome::Complete);
        }
        let secret = crate::keys::of_new(&self.name, &self.properties)?;
        let Some(size) = self.volume else {
            return asking.tell(&Ask::CreateFilesystem {
                name: self.name.clone(),
                properties: self.properties.clone(),
                parents: self.parents,
                unmounted: self.unmounted,
                secret,
            });
        };
        let (mut properties, mut block_size) = (self.properties.clone(), self.block_size);
        if let Some(at) = properties.iter().position(|(name, _)| name == "volblocksize") {
            block_size = bytes(&properties.swap_remove(at).1).map_err(Failure::usage)?;
        }
        // volumes have whole blocks: the size is rounded up to them
        asking.tell(&Ask::CreateVolume {
            name: self.name.clone(),
            size: size.checked_next_multiple_of(block_size.max(1)).unwrap_or(size),
            block_size: u32::try_from(block_size).unwrap_or(u32::MAX),
            sparse: self.sparse,
            properties,
            parents: self.parents,
            secret,
        })
    }
}

/// Make snapshots
#[derive(clap::Args, Debug)]
#[command(after_help = "All of one command are of the same moment.

Examples:
  poolhouse zfs snapshot tank/photos@monday
  poolhouse zfs snapshot -r tank@monday         of all below, too")]
pub(super) struct Snapshot {
    /// Of all datasets below, too
    #[arg(short = 'r')]
    recursive: bool,
    /// A property
    #[arg(short = 'o', value_name = "NAME=VALUE", value_parser = setting)]
    properties: Vec<(String, String)>,
    /// FS@NAME
    #[arg(value_name = "SNAPSHOT", required = true)]
    names: Vec<String>,
}

impl Snapshot {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        asking.tell(&Ask::Snapshot {
            names: self.names.clone(),
            recursive: self.recursive,
            properties: self.properties.clone(),
        })
    }
}

/// Make a file system that begins as a snapshot
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse zfs clone tank/photos@monday tank/trial")]
pub(super) struct Clone {
    /// Make those above that are not there, too
    #[arg(short = 'p')]
    parents: bool,
    /// A property
    #[arg(short = 'o', value_name = "NAME=VALUE", value_parser = setting)]
    properties: Vec<(String, String)>,
    /// FS@NAME
    snapshot: String,
    /// Its full name
    #[arg(value_name = "FILESYSTEM")]
    name: String,
}

impl Clone {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        asking.tell(&Ask::Clone {
            snapshot: self.snapshot.clone(),
            name: self.name.clone(),
            properties: self.properties.clone(),
            parents: self.parents,
        })
    }
}
