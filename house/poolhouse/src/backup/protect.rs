//! `poolhouse backup protect`: extends the object lock of what the snapshots need.

use serde_json::json;

use super::work::with_progress;
use super::{CacheArgs, now};
use crate::outcome::{CommandResult, Outcome};
use crate::print;

/// Seconds of a day.
const DAY: u64 = 24 * 60 * 60;

/// Protect what the snapshots need from deletion, for some days from now (object lock)
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A bucket with object lock protects each object for some time after it was stored. A block is stored
once, and snapshots for years may need it. So run this after each backup: the retention of every
object that a snapshot needs is extended, and nobody can delete it before. A retention that is
longer stays, and so does its mode; objects without one get the mode GOVERNANCE. The keys need
s3:GetObjectRetention and s3:PutObjectRetention.

Example:
  poolhouse backup protect --days 30 s3://bucket/nas"
)]
pub(super) struct Args {
    /// The repository: s3://BUCKET/FOLDER
    location: String,
    /// Days from now
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=36_500))]
    days: u64,
    #[command(flatten)]
    cache: CacheArgs,
    /// Print facts as JSON
    #[arg(short = 'j', long)]
    json: bool,
}

impl Args {
    pub(super) fn run(&self) -> CommandResult {
        let repository = self.cache.open(&self.location)?;
        let until = now() + self.days * DAY;
        let report = with_progress(0, true, |job| repository.protect(until, job))?;
        let outcome = Outcome::complete_unless(!report.failed.is_empty());
        if self.json {
            print::json(&json!({
                "objects": report.objects,
                "extended": report.extended,
                "failed": report.failed.iter().map(|(object, _)| object).collect::<Vec<_>>(),
                "until": until,
            }))?;
            return Ok(outcome);
        }
        for (object, why) in &report.failed {
            print::error(&format!("'{object}' is not protected: {why}"));
        }
        let (objects, extended) = (report.objects, report.extended);
        print::line(&format!(
            "{objects} objects are needed; the protection of {extended} was extended"
        ))?;
        Ok(outcome)
    }
}
