//! `poolhouse zfs upgrade`.

use std::io::{self, Write};

use api::{ListDatasets, UpgradeFilesystem};
use engine::dataset::DatasetQuery;
use engine::pool::FILESYSTEM_VERSION;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;
use crate::table::escape_control;

/// The versions of file systems, as `zfs upgrade -v` lists them.
const VERSIONS: [&str; 5] = [
    "Initial ZFS filesystem version",
    "Enhanced directory entries",
    "Case insensitive and filesystem user identifier (FUID)",
    "userquota, groupquota properties",
    "System attributes",
];

/// Upgrade file systems to a newer version
#[derive(clap::Args, Debug)]
#[command(
    disable_version_flag = true,
    after_help = "Without file systems it lists those of old versions. A file system is unmounted for a moment, so
no program may use it. Older software may not be able to read an upgraded one.

Examples:
  poolhouse zfs upgrade              which file systems have old versions?
  poolhouse zfs upgrade -v           list the versions
  poolhouse zfs upgrade -r tank
  poolhouse zfs upgrade -V 4 tank/old"
)]
pub(super) struct UpgradeArgs {
    /// List the known versions
    #[arg(short = 'v', conflicts_with_all = ["all", "recursive", "to_version", "names"])]
    versions: bool,
    /// All file systems of all pools
    #[arg(short = 'a', conflicts_with = "names")]
    all: bool,
    /// The descendants, too
    #[arg(short = 'r')]
    recursive: bool,
    /// To this version, 1 to 5
    #[arg(short = 'V', value_name = "VERSION", value_parser = parse_version)]
    to_version: Option<u64>,
    /// The file systems
    #[arg(value_name = "FILESYSTEM")]
    names: Vec<String>,
}

/// The results for several file systems.
#[derive(Default)]
struct UpgradeCounts {
    upgraded: u64,
    unchanged: u64,
    failed: u64,
}

fn parse_version(text: &str) -> Result<u64, String> {
    if text == "current" {
        return Ok(FILESYSTEM_VERSION);
    }
    let version = text.parse().ok().filter(|version| (1..=FILESYSTEM_VERSION).contains(version));
    version.ok_or_else(|| format!("invalid version {text}"))
}

impl UpgradeArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        if self.versions {
            return Ok(print_versions(&mut io::stdout().lock())?);
        }
        let is_upgrade = self.all || !self.names.is_empty();
        if !is_upgrade && (self.recursive || self.to_version.is_some()) {
            return Err(Failure::usage("-r and -V need a file system, or -a"));
        }
        let found = self.list_versions(asking)?;
        if is_upgrade {
            return self.upgrade(&found, asking);
        }
        let old: Vec<_> = found.into_iter().filter(|(_, it)| *it < FILESYSTEM_VERSION).collect();
        if asking.json {
            print::json(&old)?;
            return Ok(Outcome::Complete);
        }
        Ok(print_old(&old, &mut io::stdout().lock())?)
    }

    /// The file systems and their versions. One whose key is not loaded shows none, and is left out unless the user
    /// named it.
    fn list_versions(&self, asking: &DaemonArgs) -> Result<Vec<(String, u64)>, Failure> {
        let is_flat = !self.recursive && !self.names.is_empty();
        let query = DatasetQuery {
            kinds: vec!["filesystem".to_owned()],
            depth: is_flat.then_some(0),
            properties: vec!["version".to_owned()],
        };
        let found = asking.request(&ListDatasets::new(self.names.clone(), query))?;
        if is_flat && found.len() < self.names.len() {
            return Err(Failure::usage("only file systems have versions that can be upgraded"));
        }
        let version = |it: &engine::dataset::Dataset| {
            it.property_value("version").and_then(|version| version.parse().ok())
        };
        Ok(found.iter().filter_map(|it| Some((it.name.clone(), version(it)?))).collect())
    }

    fn upgrade(&self, found: &[(String, u64)], asking: &DaemonArgs) -> CommandResult {
        let wanted = self.to_version.unwrap_or(FILESYSTEM_VERSION);
        let mut counts = UpgradeCounts::default();
        let mut results = Vec::new();
        for (name, version) in found {
            if *version == wanted {
                counts.unchanged += 1;
                continue;
            }
            let call = UpgradeFilesystem { name: name.clone(), version: Some(wanted) };
            match asking.request(&call) {
                Ok(done) => {
                    counts.upgraded += 1;
                    results.push((name, done));
                }
                Err(why) => {
                    counts.failed += 1;
                    why.report();
                }
            }
        }
        if asking.json {
            print::json(&results)?;
        } else {
            counts.print(&mut io::stdout().lock())?;
        }
        Ok(Outcome::complete_unless(counts.failed > 0))
    }
}

impl UpgradeCounts {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.upgraded > 0 || self.unchanged == 0 {
            writeln!(out, "{} filesystems upgraded", self.upgraded)?;
        }
        if self.unchanged > 0 {
            writeln!(out, "{} filesystems already at this version", self.unchanged)?;
        }
        Ok(())
    }
}

fn print_versions(out: &mut dyn Write) -> io::Result<Outcome> {
    writeln!(out, "The following filesystem versions are supported:\n\nVER  DESCRIPTION")?;
    writeln!(out, "---  {}", "-".repeat(56))?;
    for (version, description) in (1..).zip(VERSIONS) {
        writeln!(out, "{version:>2}   {description}")?;
    }
    writeln!(
        out,
        "\nFor more information on a particular version, including supported releases,\nsee the ZFS \
         Administration Guide.\n"
    )?;
    Ok(Outcome::Complete)
}

fn print_old(old: &[(String, u64)], out: &mut dyn Write) -> io::Result<Outcome> {
    writeln!(
        out,
        "This system is currently running ZFS filesystem version {FILESYSTEM_VERSION}.\n"
    )?;
    if old.is_empty() {
        writeln!(out, "All filesystems are formatted with the current version.")?;
        return Ok(Outcome::Complete);
    }
    writeln!(
        out,
        "The following filesystems are out of date, and can be upgraded.  After being\nupgraded, these filesystems \
         (and any 'zfs send' streams generated from\nsubsequent snapshots) will no longer be accessible by older \
         software versions.\n\n\nVER  FILESYSTEM\n---  ------------"
    )?;
    for (name, version) in old {
        writeln!(out, "{version:>2}   {}", escape_control(name))?;
    }
    Ok(Outcome::Complete)
}
