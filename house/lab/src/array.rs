//! Measures arrays: our own engine, within this program, creates pools of the same drives in several
//! layouts, measures and destroys them.
//!
//! ```text
//! drives   the drives: unused and empty
//! pool     a pool of them, exported and imported; session: while it is imported
//! filesystem     a file system of it, a target of the same workloads as a folder
//! layout_runner  one layout: create, measure, scrub, destroy
//! ```
//!
//! The layouts alternate, so that other load affects all equally. Before every read the pool is
//! exported and imported and its drives are dropped from the page cache, so that no cache is warm.
//! At the end of a layout, also after an error, the drives are empty.

mod drives;
mod filesystem;
mod layout_runner;
mod pool;
mod session;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use engine::pool::{DraidLayout, VdevLayout};
use serde_json::{Map, Value, json};
use units::human_bytes;

use crate::bench_result::{BenchKind, BenchResult, FORMAT_VERSION};
use crate::path::file_size::is_quick;
use crate::path::{self, Heading, workload_runner};
use crate::progress::Progress;
use crate::{Error, Machine, System, machine, run_quality};
use drives::Drive;
use layout_runner::{LayoutResult, LayoutRunner};

/// To make a pool takes about as long.
const POOL_CREATE_TIME: Duration = Duration::from_millis(500);

/// Which bytes of each drive a pool gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrivePart {
    /// All.
    Whole,
    /// A partition that begins at this byte, and leaves at the end what OpenZFS leaves there.
    PartitionAt(u64),
}

/// A way to make a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its name for a user: `raidz2 6`.
    pub name: String,
    /// Its top-level vdevs: how the drives of each stand together, and how many they are.
    pub vdevs: Vec<(VdevLayout, usize)>,
    /// log2 of its sector.
    pub ashift: u64,
    /// The space that it uses of each drive.
    pub drive_part: DrivePart,
}

impl Layout {
    /// How many drives it takes.
    pub fn drive_count(&self) -> usize {
        self.vdevs.iter().map(|vdev| vdev.1).sum()
    }

    /// The first drive; its vdev survives the loss.
    fn first_redundant_drive(&self) -> Option<usize> {
        let bears = |shape: VdevLayout, width: usize| match shape {
            VdevLayout::Single => false,
            VdevLayout::Mirror => width > 1,
            VdevLayout::Raidz(_) | VdevLayout::Draid(_) => true,
        };
        let at = self.vdevs.iter().position(|&(shape, width)| bears(shape, width))?;
        Some(self.vdevs[..at].iter().map(|vdev| vdev.1).sum())
    }

    /// How many drives hold the same, if all its vdevs are mirrors alike.
    fn mirror_width(&self) -> u64 {
        match self.vdevs.first() {
            Some(&(VdevLayout::Mirror, width)) if self.vdevs.iter().all(|v| v.1 == width) => {
                width as u64
            }
            _ => 1,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ashift {}", self.name, self.ashift)?;
        match self.drive_part {
            DrivePart::Whole => Ok(()),
            DrivePart::PartitionAt(begin) => write!(f, ", from {}", human_bytes(begin)),
        }
    }
}

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The drives: devices, or files in their place.
    pub drives: Vec<PathBuf>,
    /// Drives with data that may be lost: by path, or by the end of it.
    pub overwrite: Vec<String>,
    /// The layouts; each takes as many of the drives as it needs, from the first on.
    pub layouts: Vec<Layout>,
    /// The measurements of each pool, and their number.
    pub workload: path::Options,
    /// Properties of each pool's first file system.
    pub properties: Vec<(String, String)>,
}

/// Drives that are ready to be measured.
#[derive(Debug)]
pub struct ArrayBenchmark {
    drives: Vec<Arc<Drive>>,
    options: Options,
}

impl Options {
    /// Examines the drives, and refuses those that may not be overwritten.
    pub fn prepare(self, system: &System) -> Result<ArrayBenchmark, Error> {
        let mut drives: Vec<Arc<Drive>> = Vec::new();
        for path in &self.drives {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            let is_same = |other: &Arc<Drive>| other.path().canonicalize().is_ok_and(|p| p == real);
            if drives.iter().any(is_same) {
                return Err(Error::invalid_request(format!("'{}' is named twice", path.display())));
            }
            drives.push(Arc::new(Drive::open(path, &self.overwrite, system)?));
        }
        if let Some(name) = self.overwrite.iter().find(|name| {
            let is = |drive: &Arc<Drive>| drives::is_named_in(drive.path(), &[(*name).clone()]);
            !drives.iter().any(is)
        }) {
            let what = format!("'{name}' is to be overwritten, but is none of the drives named");
            return Err(Error::invalid_request(what));
        }
        if self.layouts.is_empty() {
            return Err(Error::invalid_request("no layout fits the drives"));
        }
        for layout in &self.layouts {
            let (wanted, given) = (layout.drive_count(), drives.len());
            if wanted == 0 || wanted > given {
                let what = format!("{layout} takes {wanted} drives, and there are {given}");
                return Err(Error::invalid_request(what));
            }
        }
        Ok(ArrayBenchmark { drives, options: self })
    }
}

impl ArrayBenchmark {
    /// The plan, in sentences (dry run).
    pub fn describe_plan(&self) -> Vec<String> {
        let mut all: Vec<String> = (self.drives.iter())
            .map(|drive| {
                let (title, size) = (drive.info.title(), human_bytes(drive.size));
                let data =
                    if drive.had_data { " It is not empty: what it holds is LOST." } else { "" };
                format!("{title}, {size}, would be OVERWRITTEN, and empty at the end.{data}")
            })
            .collect();
        let work = &self.options.workload;
        for layout in &self.options.layouts {
            all.push(format!(
                "A pool of {layout} would be made, measured and destroyed, {} times.",
                work.runs
            ));
        }
        let minutes = (self.min_duration().as_secs_f64() / 60.0).ceil();
        all.push(format!(
            "{} workloads of about {} s, small records and a scrub for each: {minutes:.0} minutes or \
             more. Workloads: {}.",
            work.workload_ids().len(),
            work.run_time.as_secs_f64(),
            work.workload_ids().join(", ")
        ));
        all
    }

    /// How long all takes at least.
    fn min_duration(&self) -> Duration {
        let workloads =
            u32::try_from(self.options.workload.workload_ids().len() + 2).unwrap_or(u32::MAX);
        let turns = self.options.workload.runs.saturating_mul(self.options.layouts.len());
        let turn = self
            .options
            .workload
            .run_time
            .saturating_mul(workloads)
            .saturating_add(POOL_CREATE_TIME);
        turn.saturating_mul(u32::try_from(turns).unwrap_or(u32::MAX))
    }

    /// Measures all layouts; a result for each, in their order.
    pub fn measure(
        &self,
        heading: &Heading,
        course: &Progress<'_>,
        system: &System,
    ) -> Result<Vec<BenchResult>, Error> {
        let began = Instant::now();
        let busy_before = run_quality::measure_background_load(system);
        course.set_remaining(self.min_duration());
        let turns =
            LayoutRunner { drives: &self.drives, options: &self.options, progress: course, system };
        let mut columns: Vec<LayoutResult> = Vec::new();
        columns.resize_with(self.options.layouts.len(), LayoutResult::default);
        'all: for number in 0..self.options.workload.runs {
            for (layout, column) in self.options.layouts.iter().zip(&mut columns) {
                if !turns.run_layout(layout, number, column)? {
                    break 'all;
                }
                if let Some(size) = column.size.filter(|_| number == 0) {
                    self.set_remaining(number, size, course);
                }
            }
        }
        let columns = self.options.layouts.iter().zip(columns);
        let record =
            |(layout, column)| self.build_result(layout, column, heading, busy_before, system);
        let records: Vec<BenchResult> = columns.map(record).collect();
        let seconds = began.elapsed().as_secs_f64();
        Ok(records.into_iter().map(|record| BenchResult { seconds, ..record }).collect())
    }

    /// Reports how long the rounds after the first will take, now that a file's size is known.
    fn set_remaining(&self, number: usize, size: path::file_size::FileSize, course: &Progress<'_>) {
        let work = path::Options { runs: 1, ..self.options.workload.clone() };
        let turn = workload_runner::expected_duration(&work, size)
            + size.pass_duration() * 2
            + POOL_CREATE_TIME;
        let left =
            (self.options.workload.runs - number).saturating_mul(self.options.layouts.len()) - 1;
        course.set_remaining(turn.saturating_mul(u32::try_from(left).unwrap_or(u32::MAX)));
    }

    fn build_result(
        &self,
        layout: &Layout,
        column: LayoutResult,
        heading: &Heading,
        busy_before: Option<f64>,
        system: &System,
    ) -> BenchResult {
        let own = &self.drives[..layout.drive_count().min(self.drives.len())];
        let names: Vec<String> = own.iter().map(|drive| drive.name()).collect();
        let label = match heading.label.as_str() {
            "" => layout.to_string(),
            label => format!("{label}: {layout}"),
        };
        let size = column.size.map_or(0, |size| size.bytes);
        let (mut facts, found) = (column.facts(), column.small_record_finding());
        facts.insert("layout".into(), layout.name.clone().into());
        facts.insert("ashift".into(), layout.ashift.into());
        facts.insert("drives".into(), own.len().into());
        facts.insert("drive_bytes".into(), own.iter().map(|drive| drive.size).collect());
        facts.insert(
            "partition_from".into(),
            match layout.drive_part {
                DrivePart::Whole => Value::Null,
                DrivePart::PartitionAt(begin) => begin.into(),
            },
        );
        facts.insert("busy_before".into(), json!(busy_before));
        let complete = column.completed_runs == self.options.workload.runs;
        let measures = column.tally.into_measures();
        let mut findings = run_quality::path_findings(&measures, busy_before);
        findings.extend(found);
        BenchResult {
            poolhouse_bench: FORMAT_VERSION,
            kind: BenchKind::Array,
            label,
            subject: format!("{layout} of {}", names.join(" ")),
            started: heading.started.clone(),
            seconds: 0.0,
            complete,
            machine: Machine::read(system),
            drives: own.iter().map(|drive| drive.info.clone()).collect(),
            versions: machine::software_versions(system),
            settings: self.settings(size),
            facts,
            findings,
            measures,
            notes: self.notes(size, system),
        }
    }

    fn settings(&self, size: u64) -> Map<String, Value> {
        let work = &self.options.workload;
        let properties =
            self.options.properties.iter().map(|(name, value)| format!("{name}={value}"));
        let value = json!({
            "runs": work.runs,
            "seconds": work.run_time.as_secs_f64(),
            "size_bytes": size,
            "data": if work.use_zeros { "zeros" } else { "incompressible" },
            "files": work.max_files,
            "properties": properties.collect::<Vec<_>>().join(" "),
        });
        value.as_object().cloned().unwrap_or_default()
    }

    fn notes(&self, size: u64, system: &System) -> Vec<String> {
        let work = &self.options.workload;
        let mut notes = vec![
            "Poolhouse's own engine was measured, in this program: no kernel, mount or network \
             lies between."
                .to_owned(),
            "The scrub reads and checks every copy and all parity. The resilver gives one drive, \
             which was emptied, all that it held, from the others; its rate is what that drive took."
                .to_owned(),
        ];
        if work.use_zeros {
            let what = "Zeros were written: with compression, hardly any of it reaches drives.";
            notes.push(what.to_owned());
        }
        if is_quick(work) {
            let what = "A quick look: runs this short say little about drives with caches.";
            notes.push(what.to_owned());
        }
        let memory = Machine::read(system).memory_bytes;
        if size < 2 * memory {
            notes.push(format!(
                "Every read began cold, but the file fits into this machine's memory: what random \
                 reads ask for twice may come from it (--size {} is safe).",
                human_bytes(2 * memory)
            ));
        }
        notes
    }
}
