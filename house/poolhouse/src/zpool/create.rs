//! `poolhouse zpool create`.

use std::io::Write;
use std::path::PathBuf;

use super::{layout, list, vdevs};
use crate::daemon::DaemonArgs;
use crate::keys;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::property_values::{check_unique, parse_assignment};
use crate::zfs::canonical_properties;
use api::CreatePool;

/// Make a pool
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Drives are disks, partitions or files; a disk is used as a whole, without a partition
table. VDEV is a drive, or mirror, raidz1, raidz2, raidz3, draid2:4d:11c:1s with its drives;
vdevs of a class follow the word log, special or dedup.

Examples:
  poolhouse zpool create tank raidz2 sda sdb sdc sdd sde sdf
  poolhouse zpool create -o ashift=12 -O compression=zstd tank mirror sda sdb log nvme0n1
  poolhouse zpool create -O encryption=on -O keyformat=passphrase tank mirror sda sdb
  poolhouse zpool create -o compatibility=openzfs-2.1-linux tank mirror sda sdb
  poolhouse zpool create -n tank mirror a.img b.img mirror c.img d.img"
)]
pub(super) struct Args {
    /// Use drives that are part of other pools, and vdevs of unlike redundancy
    #[arg(short = 'f')]
    force: bool,
    /// Only check it, and show the layout
    #[arg(short = 'n')]
    dry_run: bool,
    /// Enable only the features of -o feature@NAME=enabled
    #[arg(short = 'd')]
    no_default_features: bool,
    /// A property of the pool: ashift (9 to 16), altroot, cachefile (a file for zdb and OpenZFS that
    /// names the pool), comment, failmode, autoexpand, autoreplace, autotrim, delegation,
    /// listsnapshots, feature@NAME (enabled or disabled),
    /// compatibility (so that other systems can import it: openzfs-2.1-linux, grub2, legacy, ...),
    /// version (1 to 28, without feature flags, for systems older than those)
    #[arg(short = 'o', value_name = "NAME=VALUE", value_parser = parse_assignment)]
    pool_properties: Vec<(String, String)>,
    /// A property of its root file system
    #[arg(short = 'O', value_name = "NAME=VALUE", value_parser = parse_assignment)]
    properties: Vec<(String, String)>,
    /// Where its root file system is mounted: an absolute path, none, legacy
    #[arg(short = 'm', value_name = "MOUNTPOINT")]
    mountpoint: Option<String>,
    /// Prefix of all mountpoints (altroot)
    #[arg(short = 'R', value_name = "ROOT")]
    altroot: Option<PathBuf>,
    /// Temporary name until the export
    #[arg(short = 't', value_name = "NAME")]
    temporary_name: Option<String>,
    /// Pool name
    pool: String,
    /// Vdevs
    #[arg(value_name = "VDEV", required = true)]
    vdevs: Vec<String>,
}

pub(super) fn run(args: &Args, asking: &DaemonArgs) -> CommandResult {
    let vdevs = vdevs::parse_vdevs(&args.vdevs)?;
    let new = build_request(args, vdevs)?;
    if args.dry_run {
        asking.request(&new)?;
        write!(std::io::stdout(), "{}", layout::format_new(&args.pool, &new.vdevs))?;
        return Ok(Outcome::Complete);
    }
    let secret = keys::read_new_key(
        new.temporary_name.as_ref().unwrap_or(&new.name),
        &new.filesystem_properties,
    )?;
    let made = "the pool was created, but its file system is not mounted";
    asking.create_mounted(&CreatePool { secret, ..new }, made)
}

fn build_request(args: &Args, vdevs: Vec<vdevs::VdevSpec>) -> Result<CreatePool, Failure> {
    check_unique(&args.pool_properties)?;
    let mut new = CreatePool {
        name: args.pool.clone(),
        temporary_name: args.temporary_name.clone(),
        vdevs,
        ashift: None,
        pool_properties: Vec::new(),
        no_default_features: args.no_default_features,
        filesystem_properties: canonical_properties(&args.properties)?,
        altroot: args.altroot.clone(),
        force: args.force,
        secret: None,
        dry_run: args.dry_run,
    };
    for (name, value) in &args.pool_properties {
        match name.as_str() {
            "ashift" => {
                let ashift =
                    value.parse().ok().filter(|shift| *shift == 0 || (9..=16).contains(shift));
                let bad = || {
                    Failure::usage(format!("ashift={value}: it is 9 to 16, or 0 for what suits"))
                };
                new.ashift = Some(ashift.ok_or_else(bad)?).filter(|shift| *shift != 0);
            }
            "altroot" => new.altroot = Some(value.into()),
            _ => new.pool_properties.push((list::full_name(name).to_owned(), value.clone())),
        }
    }
    new.filesystem_properties
        .extend(args.mountpoint.clone().map(|at| ("mountpoint".to_owned(), at)));
    if new.altroot.is_some() {
        super::default_to_no_cachefile(&mut new.pool_properties);
    }
    if let Some(root) = new.altroot.as_ref().filter(|root| !root.is_absolute()) {
        return Err(Failure::usage(format!("-R {}: an absolute path is expected", root.display())));
    }
    Ok(new)
}
