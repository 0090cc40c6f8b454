//! `zfs version` and `zpool version`, in the form that scripts parse: the release of OpenZFS whose commands and
//! format these are, then our own version.
//!
//! bzfs, syncoid and others read `zfs-X.Y.Z` from the first line, and leave features out below 2.1.0. OpenZFS prints a
//! second line with the version of its kernel module. There is none here.

use serde_json::json;

use crate::outcome::{CommandResult, Outcome};
use crate::print;

/// The release of OpenZFS whose commands and on-disk format Poolhouse follows.
const OPENZFS_RELEASE: &str = "2.3.2";

/// Print the version
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The first number is the release of OpenZFS whose commands and format Poolhouse follows.

Examples:
  poolhouse zfs version
  poolhouse zfs version -j"
)]
pub(crate) struct VersionArgs {}

/// Prints the version, as text or as JSON.
pub(crate) fn print_version(command: &str, json: bool) -> CommandResult {
    let version = format!("zfs-{OPENZFS_RELEASE}-poolhouse{}", env!("CARGO_PKG_VERSION"));
    if json {
        print::json(&json!({
            "output_version": { "command": format!("{command} version"), "vers_major": 0, "vers_minor": 1 },
            "zfs_version": { "userland": version },
        }))?;
    } else {
        print::line(&version)?;
    }
    Ok(Outcome::Complete)
}
