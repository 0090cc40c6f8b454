//! `poolhouse zpool upgrade` and `reguid`.

use std::io::{self, Write};

use api::{ChangePoolGuid, ListUpgrades, UpgradePool};
use engine::pool::{UpgradeResult, UpgradeStatus, supported_features};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome, run_for_each};
use crate::print;
use crate::table::escape_control;

/// The first version that counts features.
const FEATURES_VERSION: u64 = 5000;

/// The versions without features, as `zpool upgrade -v` lists them.
const LEGACY_VERSIONS: [&str; 28] = [
    "Initial ZFS version",
    "Ditto blocks (replicated metadata)",
    "Hot spares and double parity RAID-Z",
    "zpool history",
    "Compression using the gzip algorithm",
    "bootfs pool property",
    "Separate intent log devices",
    "Delegated administration",
    "refquota and refreservation properties",
    "Cache devices",
    "Improved scrub performance",
    "Snapshot properties",
    "snapused property",
    "passthrough-x aclinherit",
    "user/group space accounting",
    "stmf property support",
    "Triple-parity RAID-Z",
    "Snapshot user holds",
    "Log device removal",
    "Compression using zle (zero-length encoding)",
    "Deduplication",
    "Received properties",
    "Slim ZIL",
    "System attributes",
    "Improved scrub stats",
    "Improved snapshot deletion performance",
    "Improved snapshot creation performance",
    "Multiple vdev replacements",
];

/// Enable all features of pools
#[derive(clap::Args, Debug)]
#[command(
    disable_version_flag = true,
    after_help = "Without pools it lists those that lack features. A system without support for a feature may
not be able to import the pool once the feature is enabled; `zpool set compatibility=...` limits
the features.

Examples:
  poolhouse zpool upgrade             which pools lack features?
  poolhouse zpool upgrade -v          list all features
  poolhouse zpool upgrade tank
  poolhouse zpool upgrade -V 28 old   only to version 28, without features"
)]
pub(super) struct Args {
    /// List the features and versions that are known
    #[arg(short = 'v', conflicts_with_all = ["all", "to_version", "pools"])]
    versions: bool,
    /// All pools
    #[arg(short = 'a', conflicts_with = "pools")]
    all: bool,
    /// Only to this version, 1 to 28
    #[arg(short = 'V', value_name = "VERSION")]
    to_version: Option<u64>,
    /// The pools
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// Give a pool another guid, so that it can be imported beside a copy of its drives
#[derive(clap::Args, Debug)]
#[command(after_help = "All drives of the pool must be ONLINE.

Examples:
  poolhouse zpool reguid tank
  poolhouse zpool reguid -g 12345 tank")]
pub(super) struct ReguidArgs {
    /// The guid; without it a random one
    #[arg(short = 'g', value_name = "GUID", value_parser = clap::value_parser!(u64).range(1..))]
    guid: Option<u64>,
    /// The pool
    pool: String,
}

impl ReguidArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        asking.execute(&ChangePoolGuid { name: self.pool.clone(), guid: self.guid })
    }
}

impl Args {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        if self.to_version.is_some() && !self.all && self.pools.is_empty() {
            return Err(Failure::usage("-V needs a pool, or -a"));
        }
        if self.versions {
            return Ok(print_versions(&mut io::stdout().lock())?);
        }
        if !self.all && self.pools.is_empty() {
            let found = asking.request(&ListUpgrades { names: Vec::new() })?;
            if asking.json {
                print::json(&found)?;
                return Ok(Outcome::Complete);
            }
            return Ok(print_upgradable(&found, &mut io::stdout().lock())?);
        }
        let names = if self.all {
            let found = asking.request(&ListUpgrades { names: Vec::new() })?;
            found.into_iter().map(|pool| pool.name).collect()
        } else {
            self.pools.clone()
        };
        if !asking.json {
            writeln!(io::stdout(), "This system supports ZFS pool feature flags.\n")?;
        }
        run_for_each(names, |name| {
            let done =
                asking.request(&UpgradePool { name: name.clone(), version: self.to_version })?;
            if asking.json {
                print::json(&done)?;
            } else {
                print_result(&name, &done, self.to_version, &mut io::stdout().lock())?;
            }
            Ok(Outcome::Complete)
        })
    }
}

fn print_result(
    pool: &str,
    done: &UpgradeResult,
    wanted: Option<u64>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let pool = escape_control(pool);
    let (old, new) = (done.old_version, done.new_version);
    if wanted.is_some_and(|wanted| wanted < old) {
        return writeln!(
            out,
            "Pool '{pool}' is already formatted using more current version '{old}'.\n"
        );
    }
    if new != old && new >= FEATURES_VERSION {
        writeln!(out, "Successfully upgraded '{pool}' from version {old} to feature flags.")?;
    } else if new != old {
        writeln!(out, "Successfully upgraded '{pool}' from version {old} to version {new}.")?;
    } else if new < FEATURES_VERSION {
        return writeln!(out, "Pool '{pool}' is already formatted using version {new}.");
    } else if done.enabled.is_empty() {
        return writeln!(
            out,
            "Pool '{pool}' already has all supported and requested features enabled."
        );
    }
    if !done.enabled.is_empty() {
        writeln!(out, "Enabled the following features on '{pool}':")?;
        done.enabled.iter().try_for_each(|name| writeln!(out, "  {name}"))?;
    }
    writeln!(out)
}

/// The pools that could be upgraded.
fn print_upgradable(pools: &[UpgradeStatus], out: &mut dyn Write) -> io::Result<Outcome> {
    writeln!(out, "This system supports ZFS pool feature flags.\n")?;
    let (legacy, flagged): (Vec<_>, Vec<_>) =
        pools.iter().partition(|pool| pool.version < FEATURES_VERSION);
    if legacy.is_empty() {
        writeln!(out, "All pools are formatted using feature flags.\n")?;
    } else {
        writeln!(
            out,
            "The following pools are formatted with legacy version numbers and can\nbe upgraded to use \
             feature flags.  After being upgraded, these pools\nwill no longer be accessible by software \
             that does not support feature\nflags.\n\nUse 'zpool upgrade -v' for a list of available \
             legacy versions.\n\nVER  POOL\n---  ------------"
        )?;
        for pool in &legacy {
            writeln!(out, "{:2}   {}", pool.version, escape_control(&pool.name))?;
        }
        writeln!(out)?;
    }
    let lacking = || flagged.iter().filter(|pool| !pool.disabled.is_empty());
    if lacking().next().is_none() {
        writeln!(
            out,
            "Every feature flags pool has all supported and requested features enabled."
        )?;
        return Ok(Outcome::Complete);
    }
    writeln!(
        out,
        "Some supported features are not enabled on the following pools. Once a\nfeature is enabled the \
         pool may become incompatible with software\nthat does not support the feature. See \
         zpool-features(7) for details.\n\nNote that the pool 'compatibility' feature can be used to \
         inhibit\nfeature upgrades.\n\nPOOL  FEATURE\n---------------"
    )?;
    for pool in lacking() {
        writeln!(out, "{}", escape_control(&pool.name))?;
        pool.disabled.iter().try_for_each(|name| writeln!(out, "      {name}"))?;
        writeln!(out)?;
    }
    Ok(Outcome::Complete)
}

/// The features and versions that are known.
fn print_versions(out: &mut dyn Write) -> io::Result<Outcome> {
    writeln!(
        out,
        "This system supports ZFS pool feature flags.\n\nThe following features are supported:\n\n\
         FEAT DESCRIPTION\n-------------------------------------------------------------"
    )?;
    for (name, description, read_only) in supported_features() {
        let note = if read_only { " (read-only compatible)" } else { "" };
        writeln!(out, "{name:<37}{note}\n     {description}")?;
    }
    writeln!(
        out,
        "\nThe following legacy versions are also supported:\n\nVER  DESCRIPTION\n---  {}",
        "-".repeat(56)
    )?;
    for (number, about) in (1..).zip(LEGACY_VERSIONS) {
        writeln!(out, " {number:<2}  {about}")?;
    }
    writeln!(
        out,
        "\nFor more information on a particular version, including supported\nreleases, see the ZFS \
         Administration Guide.\n"
    )?;
    Ok(Outcome::Complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_words_of_zpool() {
        let wanted_and_printed = |wanted, old, new, enabled: &[&str]| {
            let enabled = enabled.iter().map(|name| (*name).to_owned()).collect();
            let done = UpgradeResult { old_version: old, new_version: new, enabled };
            let mut out = Vec::new();
            print_result("tank", &done, wanted, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let printed = |old, new, enabled: &[&str]| wanted_and_printed(None, old, new, enabled);
        assert!(
            wanted_and_printed(Some(28), 5000, 5000, &[]).contains("more current version '5000'")
        );
        let all = printed(28, 5000, &["draid"]);
        assert!(
            all.starts_with("Successfully upgraded 'tank' from version 28 to feature flags.\n")
        );
        assert!(all.ends_with("Enabled the following features on 'tank':\n  draid\n\n"));
        assert!(printed(5000, 5000, &[]).contains("already has all supported and requested"));
        assert!(printed(28, 28, &[]).contains("is already formatted using version 28."));
    }
}
