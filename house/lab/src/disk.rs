//! Measuring drives: each alone, from its outer to its inner end, and then all at once, so that a
//! slow drive, a slow port, or a bus that they share shows itself.
//!
//! Drives are only read. A drive is written to if its name was typed for that, and only if nobody
//! uses it and its first and last MiB are empty; these two are never written.

pub(crate) mod claim;
pub(crate) mod drives;
mod says;
mod steps;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use units::human_bytes;

use crate::course::Course;
use crate::path::Heading;
use crate::record::{FORMAT, Kind, Record};
use crate::tally::Tally;
use crate::{Error, Machine, System, machine, verdict};
use drives::Drive;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The drives: devices, or files in their place.
    pub drives: Vec<PathBuf>,
    /// Those whose names were typed so that they may be overwritten, by path or by name.
    pub overwrite: Vec<String>,
    /// How often each place is measured.
    pub runs: usize,
    /// How long a run takes.
    pub time: Duration,
    /// Places between the outer and the inner end; two at least.
    pub zones: usize,
}

/// Drives that are ready to be measured.
#[derive(Debug)]
pub struct Opened {
    drives: Vec<Drive>,
    wish: Wish,
}

impl Wish {
    /// Opens the drives, refusing those that may not be written to as is wished.
    pub fn open(self, system: &System) -> Result<Opened, Error> {
        let mut drives = Vec::new();
        for path in &self.drives {
            drives.push(Drive::open(path, &self.overwrite, system)?);
        }
        for name in &self.overwrite {
            if !drives.iter().any(|drive| drive.is_called(name)) {
                let what =
                    format!("'{name}' is to be overwritten, but is none of the drives named");
                return Err(Error::asked(what));
            }
        }
        for (index, drive) in drives.iter().enumerate() {
            if drives.iter().take(index).any(|other| other.name() == drive.name()) {
                return Err(Error::asked(format!("'{}' is named twice", drive.name())));
            }
        }
        Ok(Opened { drives, wish: Self { zones: self.zones.max(2), ..self } })
    }
}

impl Opened {
    /// What would be done, in sentences.
    pub fn intent(&self) -> Vec<String> {
        let mut all: Vec<String> = (self.drives.iter())
            .map(|drive| {
                let (title, size) = (drive.facts.title(), human_bytes(drive.size));
                let done = if drive.overwrites { "read AND OVERWRITTEN" } else { "read" };
                format!("{title}, {size}, would be {done}.")
            })
            .collect();
        let minutes = (self.expected().as_secs_f64() / 60.0).ceil();
        all.push(format!(
            "{} places of each drive, {} runs of {:.1} s at each, random reads, then all drives at \
             once: about {minutes:.0} minutes.",
            self.wish.zones,
            self.wish.runs,
            self.wish.time.as_secs_f64()
        ));
        all
    }

    /// Measures them.
    pub fn measure(
        &self,
        heading: Heading,
        course: &Course<'_>,
        system: &System,
    ) -> Result<Record, Error> {
        let began = Instant::now();
        course.expect(self.expected());
        let mut tally = Tally::default();
        let mut found = steps::Found::default();
        let steps = steps::Steps { drives: &self.drives, wish: &self.wish, course, system };
        let complete = steps.run(&mut tally, &mut found)?;
        let measures = tally.measures();
        let mut findings = says::findings(&self.drives, &found, complete);
        findings.extend(verdict::spread(&measures));
        let names: Vec<String> = self.drives.iter().map(|drive| drive.name().to_owned()).collect();
        Ok(Record {
            poolhouse_bench: FORMAT,
            kind: Kind::Disk,
            label: heading.label,
            subject: names.join(" "),
            started: heading.started,
            seconds: began.elapsed().as_secs_f64(),
            complete,
            machine: Machine::of(system),
            drives: self.drives.iter().map(|drive| drive.facts.clone()).collect(),
            versions: machine::versions(system),
            settings: self.settings(),
            facts: found.facts(&self.drives),
            findings,
            measures,
            notes: self.notes(),
        })
    }

    fn expected(&self) -> Duration {
        steps::expected(&self.drives, &self.wish)
    }

    fn settings(&self) -> Map<String, Value> {
        let value = json!({
            "runs": self.wish.runs,
            "seconds": self.wish.time.as_secs_f64(),
            "zones": self.wish.zones,
            "direct": self.drives.iter().all(Drive::is_direct),
            "overwritten": self.wish.overwrite,
        });
        value.as_object().cloned().unwrap_or_default()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.wish.time < Duration::from_secs(1) {
            notes.push("A quick look: runs this short say little about drives with caches.".into());
        }
        for drive in self.drives.iter().filter(|drive| drive.in_use) {
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
