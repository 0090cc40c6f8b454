//! `poolhouse zpool split`.

use std::io::Write;
use std::path::PathBuf;

use api::{FindEncryptionRoots, ImportPools, MountOverrides, SplitPool};
use engine::pool::{Rewind, SplitVdev};

use super::import::read_keys;
use super::vdevs;
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;
use crate::table::escape_control;

/// Split a pool of mirrors in two
#[derive(clap::Args, Debug)]
#[command(
    after_help = "All vdevs with data must be mirrors. One drive of each, the last if none is named, becomes part of the new
pool, which holds all that the pool holds at that moment. Log and cache drives and spares stay. The new pool is
exported afterwards, or imported with -R. Each mirror has one drive less then: attach others with `zpool attach`.

Examples:
  poolhouse zpool split -n tank copy          check it, and show the new pool
  poolhouse zpool split tank copy             take the drives of copy to another place
  poolhouse zpool split -R /mnt tank copy sdb sdd"
)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct Args {
    /// With -n, show the guids of drives
    #[arg(short = 'g')]
    guids: bool,
    /// With -n, show drives without symbolic links
    #[arg(short = 'L')]
    links: bool,
    /// With -n, show whole paths, as is done without it
    #[arg(short = 'P')]
    _paths: bool,
    /// With -R, load the keys of encrypted datasets
    #[arg(short = 'l', requires = "altroot")]
    load_keys: bool,
    /// Only check it, and show the new pool
    #[arg(short = 'n')]
    dry_run: bool,
    /// Set a property of the new pool
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    properties: Vec<String>,
    /// Import the new pool, with all mountpoints below this folder
    #[arg(short = 'R', value_name = "ROOT")]
    altroot: Option<PathBuf>,
    /// The pool
    pool: String,
    /// The name of the new pool
    #[arg(value_name = "NEW POOL")]
    new_pool: String,
    /// The drives for the new pool, by path or guid
    #[arg(value_name = "DRIVE")]
    drives: Vec<String>,
}

impl Args {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        if let Some(root) = self.altroot.as_ref().filter(|root| !root.is_absolute()) {
            let what = format!("-R {}: an absolute path is wanted", root.display());
            return Err(Failure::usage(what));
        }
        let call = SplitPool {
            name: self.pool.clone(),
            new_name: self.new_pool.clone(),
            devices: self.drives.iter().map(|drive| vdevs::resolve_drive(drive)).collect(),
            properties: self.parse_properties()?,
            dry_run: self.dry_run,
        };
        let split = asking.request(&call)?;
        if asking.json {
            print::json(&split)?;
        } else if self.dry_run {
            self.print_layout(&split)?;
        }
        if !self.dry_run && self.altroot.is_some() {
            return self.import(&split, asking);
        }
        Ok(Outcome::Complete)
    }

    fn parse_properties(&self) -> Result<Vec<(String, String)>, Failure> {
        let pair = |words: &String| {
            let pair =
                words.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            pair.ok_or_else(|| Failure::usage(format!("-o {words}: PROPERTY=VALUE is wanted")))
        };
        self.properties.iter().map(pair).collect()
    }

    fn print_layout(&self, split: &[SplitVdev]) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        let name = escape_control(&self.new_pool);
        writeln!(out, "would create '{name}' with the following layout:\n\n\t{name}")?;
        for device in split {
            let target = self.links.then(|| std::fs::canonicalize(&device.path).ok()).flatten();
            let path =
                target.map_or_else(|| device.path.clone(), |path| path.display().to_string());
            let shown = if self.guids { device.guid.to_string() } else { path };
            writeln!(out, "\t  {}", escape_control(&shown))?;
        }
        Ok(())
    }

    /// Imports the new pool from its drives.
    fn import(&self, split: &[SplitVdev], asking: &DaemonArgs) -> CommandResult {
        let paths: Vec<PathBuf> = split.iter().map(|device| PathBuf::from(&device.path)).collect();
        let name = Some(self.new_pool.clone());
        let roots = FindEncryptionRoots {
            paths: paths.clone(),
            name: name.clone(),
            destroyed: false,
            rewind: Rewind::No,
        };
        let keys = if self.load_keys { read_keys(&roots, asking)? } else { Vec::new() };
        let imported = asking.request(&ImportPools {
            paths,
            name,
            new_name: None,
            temporary: false,
            force: false,
            destroyed: false,
            no_mount: false,
            overrides: MountOverrides::default(),
            pool_properties: Vec::new(),
            allow_missing_logs: false,
            read_only: false,
            rewind: Rewind::No,
            dry_run: false,
            altroot: self.altroot.clone(),
            keys,
        })?;
        for why in imported.failures.iter().chain(&imported.not_mounted) {
            print::error(why);
        }
        if imported.failures.is_empty() && imported.not_mounted.is_empty() {
            return Ok(Outcome::Complete);
        }
        print::error(&"Split was successful, but some datasets could not be mounted");
        Ok(Outcome::Incomplete)
    }
}
