//! Measuring a folder: any file system or mount, by the same workloads.
//!
//! ```text
//! size    a short write says how large the file must be for runs that are long enough
//! round   new file: write, read, random reads, rewrite, random writes; then small files
//! rounds  at least three, so that what changes meanwhile touches all workloads alike
//! ```

pub(crate) mod file_size;
pub(crate) mod workload_runner;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use units::human_bytes;

use crate::bench_result::{BenchKind, BenchResult, FORMAT_VERSION};
use crate::mount::Mount;
use crate::progress::Progress;
use crate::scratch_dir::ScratchDir;
use crate::tally::Tally;
use crate::workload::{FileWorkload, StreamWorkload};
use crate::{Error, Machine, System, machine, run_quality};

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each workload is run.
    pub runs: usize,
    /// How long a run takes.
    pub run_time: Duration,
    /// Bytes of the file; none: as many as are written in that time, and 4 GiB at least.
    pub size: Option<u64>,
    /// The default minimum of the file's size, in bytes.
    pub min_size: u64,
    /// Zeros instead of data that cannot be compressed.
    pub use_zeros: bool,
    /// Through the page cache, as most programs do it.
    pub buffered: bool,
    /// Empty the machine's caches of names and attributes before small files; only root may.
    pub drop_caches: bool,
    /// The operations on the large file.
    pub streams: Vec<StreamWorkload>,
    /// The operations on small files.
    pub files: Vec<FileWorkload>,
    /// How many small files at most.
    pub max_files: usize,
}

/// The heading of a result, from the caller.
#[derive(Clone, Debug)]
pub struct Heading {
    /// The user's label.
    pub label: String,
    /// The time, in RFC 3339 form.
    pub started: String,
}

impl Options {
    /// The names of all workloads of this wish.
    pub fn workload_ids(&self) -> Vec<String> {
        let streams = self.streams.iter().map(StreamWorkload::id);
        streams.chain(self.files.iter().map(|files| files.id().to_owned())).collect()
    }

    /// Keeps the workloads of these names only.
    pub fn retain_workloads(&mut self, names: &[String]) -> Result<(), Error> {
        let known = self.workload_ids();
        if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
            let known = known.join(", ");
            return Err(Error::invalid_request(format!(
                "workload '{unknown}' does not exist; choose from: {known}"
            )));
        }
        self.streams.retain(|stream| names.contains(&stream.id()));
        self.files.retain(|files| names.iter().any(|name| name == files.id()));
        Ok(())
    }

    /// The plan for `dir`, in sentences (dry run).
    pub fn describe_plan(&self, dir: &Path, system: &System) -> Result<Vec<String>, Error> {
        let mount = find_mount(dir, system)?;
        let scratch = crate::scratch_dir::scratch_path(dir);
        let size = match self.size {
            Some(size) => format!("a file of {}", human_bytes(size)),
            None => format!(
                "a file of {}, or as large as {:.0} s of writing if that is more",
                human_bytes(self.min_size),
                self.run_time.as_secs_f64()
            ),
        };
        let mut all = vec![format!("'{}' lies on {}.", dir.display(), mount.description())];
        all.push(format!(
            "All would happen in the new folder '{}', which is removed at the end: {size}{}.",
            scratch.display(),
            if self.files.is_empty() {
                String::new()
            } else {
                format!(", and up to {} files of 4K", self.max_files)
            }
        ));
        all.push(format!(
            "{} workloads, {} runs of each of about {} s, take {:.0} minutes or more: {}.",
            self.workload_ids().len(),
            self.runs,
            self.run_time.as_secs_f64(),
            (self.min_duration().as_secs_f64() / 60.0).ceil(),
            self.workload_ids().join(", ")
        ));
        if self.drop_caches {
            all.push("The machine's caches would be emptied (/proc/sys/vm/drop_caches).".into());
        }
        Ok(all)
    }

    /// How long all runs take together.
    fn min_duration(&self) -> Duration {
        let runs = self.runs * (self.streams.len() + self.files.len());
        self.run_time * u32::try_from(runs).unwrap_or(u32::MAX)
    }

    fn settings(&self, size: u64, direct: bool) -> Map<String, Value> {
        let value = json!({
            "runs": self.runs,
            "seconds": self.run_time.as_secs_f64(),
            "size_bytes": size,
            "data": if self.use_zeros { "zeros" } else { "incompressible" },
            "direct": direct,
            "caches_dropped": self.drop_caches,
            "files": self.max_files,
        });
        value.as_object().cloned().unwrap_or_default()
    }
}

fn find_mount(dir: &Path, system: &System) -> Result<Mount, Error> {
    let facts = std::fs::metadata(dir).map_err(Error::io(dir, "looked at"))?;
    if !facts.is_dir() {
        return Err(Error::invalid_request(format!("'{}' is not a folder", dir.display())));
    }
    Ok(Mount::find(system, dir).unwrap_or_default())
}

/// Measures a folder.
pub fn measure(
    dir: &Path,
    wish: &Options,
    heading: Heading,
    course: &Progress<'_>,
    system: &System,
) -> Result<BenchResult, Error> {
    let began = Instant::now();
    let mount = find_mount(dir, system)?;
    let folder = ScratchDir::create(dir, wish.buffered)?;
    let busy_before = run_quality::measure_background_load(system);
    let size = file_size::choose_size(&folder, wish, &mount, course, system)?;
    let mut tally = Tally::default();
    let mut notes = Vec::new();
    let complete = match size {
        None => false,
        Some(chosen) => {
            notes.extend(file_size::notes(&folder, wish, &mount, chosen.bytes, system));
            course.set_remaining(workload_runner::expected_duration(wish, chosen));
            let all = workload_runner::WorkloadRunner {
                target: &folder,
                options: wish,
                size: chosen,
                progress: course,
                system,
            };
            all.run(&mut tally)?
        }
    };
    let measures = tally.into_measures();
    Ok(BenchResult {
        poolhouse_bench: FORMAT_VERSION,
        kind: BenchKind::Path,
        label: heading.label,
        subject: dir.display().to_string(),
        started: heading.started,
        seconds: began.elapsed().as_secs_f64(),
        complete,
        machine: Machine::read(system),
        drives: mount.drives(system),
        versions: machine::software_versions(system),
        settings: wish.settings(size.map_or(0, |size| size.bytes), folder.is_direct()),
        facts: facts(&mount, busy_before),
        findings: run_quality::path_findings(&measures, busy_before),
        measures,
        notes,
    })
}

fn facts(mount: &Mount, busy_before: Option<f64>) -> Map<String, Value> {
    let value = json!({ "mount": mount, "busy_before": busy_before });
    value.as_object().cloned().unwrap_or_default()
}
