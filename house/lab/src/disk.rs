//! Measuring drives: each alone, from its outer to its inner end, and then all at once, so that a
//! slow drive, a slow port, or a bus that they share shows itself.
//!
//! Drives are only read. A drive is written only if its name was typed for that, it is
//! unused, and its first and last MiB are empty; these two are never written.

mod disk_runner;
pub(crate) mod drive_checks;
pub(crate) mod drives;
mod findings;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use units::human_bytes;

use crate::bench_result::{BenchKind, BenchResult, FORMAT_VERSION};
use crate::path::Heading;
use crate::progress::Progress;
use crate::tally::Tally;
use crate::{Error, Machine, System, machine, run_quality};
use drives::Drive;

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The drives: devices, or files in their place.
    pub drives: Vec<PathBuf>,
    /// Drives whose names were typed so that they may be overwritten, by path or by name.
    pub overwrite: Vec<String>,
    /// How often each place is measured.
    pub runs: usize,
    /// How long a run takes.
    pub time: Duration,
    /// Places between the outer and the inner end; two at least.
    pub zone_count: usize,
}

/// Drives that are ready to be measured.
#[derive(Debug)]
pub struct DiskBenchmark {
    drives: Vec<Drive>,
    options: Options,
}

impl Options {
    /// Opens the drives, and refuses those that may not be written as requested.
    pub fn prepare(self, system: &System) -> Result<DiskBenchmark, Error> {
        let mut drives = Vec::new();
        for path in &self.drives {
            drives.push(Drive::open(path, &self.overwrite, system)?);
        }
        for name in &self.overwrite {
            if !drives.iter().any(|drive| drive.has_name(name)) {
                let what =
                    format!("'{name}' is to be overwritten, but is none of the drives named");
                return Err(Error::invalid_request(what));
            }
        }
        for (index, drive) in drives.iter().enumerate() {
            if drives.iter().take(index).any(|other| other.name() == drive.name()) {
                return Err(Error::invalid_request(format!("'{}' is named twice", drive.name())));
            }
        }
        Ok(DiskBenchmark { drives, options: Self { zone_count: self.zone_count.max(2), ..self } })
    }
}

impl DiskBenchmark {
    /// The plan, in sentences (dry run).
    pub fn describe_plan(&self) -> Vec<String> {
        let mut all: Vec<String> = (self.drives.iter())
            .map(|drive| {
                let (title, size) = (drive.info.title(), human_bytes(drive.size));
                let done = if drive.can_overwrite { "read AND OVERWRITTEN" } else { "read" };
                format!("{title}, {size}, would be {done}.")
            })
            .collect();
        let minutes = (self.expected_duration().as_secs_f64() / 60.0).ceil();
        all.push(format!(
            "{} places of each drive, {} runs of {:.1} s at each, random reads, then all drives at \
             once: about {minutes:.0} minutes.",
            self.options.zone_count,
            self.options.runs,
            self.options.time.as_secs_f64()
        ));
        all
    }

    /// Measures them.
    pub fn measure(
        &self,
        heading: Heading,
        course: &Progress<'_>,
        system: &System,
    ) -> Result<BenchResult, Error> {
        let began = Instant::now();
        course.set_remaining(self.expected_duration());
        let mut tally = Tally::default();
        let mut found = disk_runner::DiskRates::default();
        let steps = disk_runner::DiskRunner {
            drives: &self.drives,
            options: &self.options,
            progress: course,
            system,
        };
        let complete = steps.run(&mut tally, &mut found)?;
        let measures = tally.into_measures();
        let mut findings = findings::findings(&self.drives, &found, complete);
        findings.extend(run_quality::spread_finding(&measures));
        let names: Vec<String> = self.drives.iter().map(|drive| drive.name().to_owned()).collect();
        Ok(BenchResult {
            poolhouse_bench: FORMAT_VERSION,
            kind: BenchKind::Disk,
            label: heading.label,
            subject: names.join(" "),
            started: heading.started,
            seconds: began.elapsed().as_secs_f64(),
            complete,
            machine: Machine::read(system),
            drives: self.drives.iter().map(|drive| drive.info.clone()).collect(),
            versions: machine::software_versions(system),
            settings: self.settings(),
            facts: found.facts(&self.drives),
            findings,
            measures,
            notes: self.notes(),
        })
    }

    fn expected_duration(&self) -> Duration {
        disk_runner::expected_duration(&self.drives, &self.options)
    }

    fn settings(&self) -> Map<String, Value> {
        let value = json!({
            "runs": self.options.runs,
            "seconds": self.options.time.as_secs_f64(),
            "zones": self.options.zone_count,
            "direct": self.drives.iter().all(Drive::is_direct),
            "overwritten": self.options.overwrite,
        });
        value.as_object().cloned().unwrap_or_default()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.options.time < Duration::from_secs(1) {
            notes.push("A quick look: runs this short say little about drives with caches.".into());
        }
        for drive in self.drives.iter().filter(|drive| drive.is_in_use) {
            notes.push(format!(
                "{} is mounted or otherwise in use: what else it did meanwhile is in the figures.",
                drive.name()
            ));
        }
        for drive in self.drives.iter().filter(|drive| !drive.is_direct()) {
            notes.push(format!("{} was read through the page cache.", drive.name()));
        }
        notes
    }
}
