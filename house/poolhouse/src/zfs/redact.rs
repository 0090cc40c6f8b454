//! `zfs redact`.

use api::RedactSnapshot;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure};

/// List the blocks that redacted streams of a snapshot leave out
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A clone of the snapshot has changed or removed the data that a receiver must not get. `zfs redact`
lists the blocks that all REDACTION_SNAPSHOTs changed, in a bookmark of the snapshot. `zfs send --redact`
leaves them out. The received file system is not mounted until an increment to a redaction snapshot, or
from the bookmark, completes it.

Examples:
  poolhouse zfs clone tank/patients@all tank/censored     then remove the private data in it
  poolhouse zfs snapshot tank/censored@done
  poolhouse zfs redact tank/patients@all public tank/censored@done
  poolhouse zfs send --redact public tank/patients@all | ssh lab zfs receive tank/patients
  poolhouse zfs send -i tank/patients@all tank/censored@done | ssh lab zfs receive tank/censored"
)]
pub(super) struct RedactArgs {
    /// FS@NAME
    snapshot: String,
    /// The name of the bookmark, without FS#
    bookmark: String,
    /// Snapshots of clones of the snapshot
    #[arg(required = true, value_name = "REDACTION_SNAPSHOT")]
    redaction_snapshots: Vec<String>,
}

impl RedactArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        if !self.snapshot.contains('@') {
            let what = format!("'{}' is not a snapshot: FS@NAME", self.snapshot);
            return Err(Failure::usage(what));
        }
        asking.execute(&RedactSnapshot {
            snapshot: self.snapshot.clone(),
            bookmark: self.bookmark.clone(),
            redaction_snapshots: self.redaction_snapshots.clone(),
        })
    }
}
