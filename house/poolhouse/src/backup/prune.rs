//! `poolhouse backup prune`: removes snapshots and what no other snapshot needs.

use std::collections::HashSet;

use engine::backup::{PruneOptions, PruneReport};
use serde_json::json;
use units::human_bytes;

use super::retention::Retention;
use super::work::with_progress;
use super::{CacheArgs, now, random};
use crate::outcome::{CommandResult, Outcome};
use crate::print;

/// Remove snapshots, and the blocks that no other snapshot needs
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The --keep options apply to each dataset separately; a snapshot stays if one of them keeps
it. Days, weeks, months and years are those of UTC. Without --remove and
--keep only what interrupted runs left behind is deleted.

The order of the steps makes an interruption safe. A backup that runs at the same time
fails at its end and must be started again.

Examples:
  poolhouse backup prune file:///mnt/usb/backup --remove tank/home@monday
  poolhouse backup prune -n file:///mnt/usb/backup --keep-daily 7 --keep-weekly 8"
)]
pub(super) struct Args {
    /// The repository: file:///FOLDER or s3://BUCKET/FOLDER
    location: String,
    /// Remove this snapshot; may be repeated
    #[arg(long, value_name = "FS@SNAPSHOT")]
    remove: Vec<String>,
    #[command(flatten)]
    retention: Retention,
    #[command(flatten)]
    cache: CacheArgs,
    /// Repack packs of which less than this part is needed, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    repack_below: u8,
    /// Change nothing, and print what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print facts as JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
}

impl Args {
    pub(super) fn run(&self) -> CommandResult {
        let repository = self.cache.open(&self.location)?;
        let snapshots = repository.snapshots();
        let mut removed: HashSet<u64> = HashSet::new();
        for name in &self.remove {
            removed.insert(repository.find_snapshot(name)?.guid);
        }
        if !self.retention.is_empty() {
            let kept = self.retention.kept(&snapshots);
            removed.extend(snapshots.iter().map(|it| it.guid).filter(|guid| !kept.contains(guid)));
        }
        let options =
            PruneOptions { repack_below_percent: self.repack_below, dry_run: self.dry_run };
        let report = with_progress(0, self.quiet, |job| {
            repository.prune(&|it| removed.contains(&it.guid), options, &random(), now(), job)
        })?;
        self.print(&report)
    }

    fn print(&self, report: &PruneReport) -> CommandResult {
        let outcome = Outcome::complete_unless(!report.undeleted.is_empty());
        if self.json {
            print::json(&json!({
                "removed_snapshots": report.removed_snapshots,
                "dead_blocks": report.dead_blocks,
                "repacked_packs": report.repacked_packs,
                "repacked_bytes": report.repacked_bytes,
                "deleted_objects": report.deleted_objects,
                "deleted_bytes": report.deleted_bytes,
                "undeleted": report.undeleted.iter().map(|(object, _)| object).collect::<Vec<_>>(),
                "dry_run": self.dry_run,
            }))?;
            return Ok(outcome);
        }
        let (removed, deleted) = if self.dry_run {
            ("would remove", "would be deleted")
        } else {
            ("removed", "were deleted")
        };
        for name in &report.removed_snapshots {
            print::line(&format!("{removed} {name}"))?;
        }
        for (object, why) in &report.undeleted {
            print::warning(&format!(
                "'{object}' cannot be deleted: {why}; the next prune tries again"
            ));
        }
        print::line(&format!(
            "{} in {} objects {deleted}; {} were repacked",
            human_bytes(report.deleted_bytes),
            report.deleted_objects,
            human_bytes(report.repacked_bytes)
        ))?;
        Ok(outcome)
    }
}
