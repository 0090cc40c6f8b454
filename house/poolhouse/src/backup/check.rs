//! `poolhouse backup check`: verifies every block that a snapshot needs.

use engine::backup::CheckOptions;
use serde_json::json;
use units::human_bytes;

use super::open;
use super::work::with_progress;
use crate::outcome::{CommandResult, Outcome};
use crate::print;

/// Verify every block that a snapshot needs
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Each block is read and its checksum verified, the one that the pool computed when the block
was written. No key is needed. Exit status 1: something is damaged or missing.

Examples:
  poolhouse backup check file:///mnt/usb/backup
  poolhouse backup check --metadata-only file:///mnt/usb/backup"
)]
pub(super) struct Args {
    /// The repository: file:///FOLDER or s3://BUCKET/FOLDER
    location: String,
    /// Do not read the content of files and volumes, only see that it is stored
    #[arg(long)]
    metadata_only: bool,
    /// Print facts as JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
}

impl Args {
    pub(super) fn run(&self) -> CommandResult {
        let repository = open(&self.location)?;
        let options = CheckOptions { metadata_only: self.metadata_only };
        let total = if self.metadata_only { 0 } else { repository.stored_bytes() };
        let report = with_progress(total, self.quiet, |job| repository.check(options, job))?;
        let is_sound = report.damage_count == 0;
        if self.json {
            let damages = report.damages.iter();
            let damages: Vec<_> =
                damages.map(|it| json!({ "snapshot": it.snapshot, "why": it.why })).collect();
            print::json(&json!({
                "snapshots": report.snapshots,
                "blocks": report.blocks,
                "packs": report.packs,
                "verified_bytes": report.verified_bytes,
                "damage_count": report.damage_count,
                "damages": damages,
            }))?;
            return Ok(Outcome::complete_unless(!is_sound));
        }
        for damage in &report.damages {
            print::error(&format!("{}: {}", damage.snapshot, damage.why));
        }
        let verified = human_bytes(report.verified_bytes);
        let (snapshots, blocks) = (report.snapshots, report.blocks);
        print::line(&format!(
            "{snapshots} snapshots, {blocks} blocks: {verified} were read and verified; errors: {}",
            report.damage_count
        ))?;
        Ok(Outcome::complete_unless(!is_sound))
    }
}
