//! `poolhouse bench disk`: measures drives.

use std::path::PathBuf;

use lab::System;
use lab::disk::Options;
use lab::progress::Progress;

use super::measurement_progress::MeasurementProgress;
use super::path::parse_duration;
use super::result::{self, ResultArgs};
use crate::outcome::{CommandResult, Failure};

/// `poolhouse bench disk`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Each drive is read alone, from its outer to its inner end, and then all at once, which shows a
slow drive, a slow port, or a shared bus. Drives are only read; one is overwritten
if --overwrite names it, it is not in use, and its first and last MiB are empty.

Examples:
  poolhouse bench disk /dev/sd[b-i] -o drives.json
  poolhouse bench disk /dev/sdb --quick
  poolhouse bench disk /dev/sdb --overwrite sdb          the data on sdb is lost"
)]
pub(crate) struct Args {
    /// The drives
    #[arg(required = true, value_name = "DEV")]
    drives: Vec<PathBuf>,
    /// Overwrite this drive, to measure writing as well; may be repeated
    #[arg(long, value_name = "NAME")]
    overwrite: Vec<String>,
    /// A look of less than a minute
    #[arg(long, conflicts_with_all = ["seconds", "zones"])]
    quick: bool,
    /// How often each place is measured
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// How long a run takes
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Places from the outer to the inner end
    #[arg(long, value_name = "N", default_value_t = 11)]
    #[arg(value_parser = clap::value_parser!(u16).range(2..=1000))]
    zones: u16,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    result: ResultArgs,
}

/// A quick look has these places, and takes so long for all drives together.
const QUICK_ZONES: u16 = 3;
const QUICK_SECONDS: f64 = 45.0;
/// Further measurements of each drive, each about as long as a zone.
const EXTRA_STEPS: u16 = 3;

impl Args {
    pub(crate) fn run(&self) -> CommandResult {
        let system = System::default();
        let opened = self.options()?.prepare(&system)?;
        if self.dry_run {
            return result::print_dry_run(&opened.describe_plan());
        }
        self.result.warn_if_unsaved();
        let watch = MeasurementProgress::new(self.result.quiet);
        let course = Progress::new(&watch);
        let heading = self.result.heading("drives");
        let measured = watch.run(|| opened.measure(heading, &course, &system));
        self.result.save_and_print(&measured?)
    }

    fn options(&self) -> Result<Options, Failure> {
        let zones = if self.quick { QUICK_ZONES } else { self.zones };
        let seconds = if self.quick { self.quick_run_seconds() } else { self.seconds };
        Ok(Options {
            drives: self.drives.clone(),
            overwrite: self.overwrite.clone(),
            runs: self.runs.into(),
            time: parse_duration(seconds)?,
            zone_count: zones.into(),
        })
    }

    /// Seconds of a run with which all runs of all drives are over in less than a minute.
    fn quick_run_seconds(&self) -> f64 {
        let drives = u32::try_from(self.drives.len() + self.overwrite.len()).unwrap_or(u32::MAX);
        let steps = f64::from(QUICK_ZONES + EXTRA_STEPS) * f64::from(self.runs) * f64::from(drives);
        (QUICK_SECONDS / steps).clamp(0.02, 0.6)
    }
}
