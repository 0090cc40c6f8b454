//! Ways to copy: the same tree by each of them to each destination, in turns.
//!
//! ```text
//! tree           the source, and the copied part
//! parallel_copy  our own copier: several files at a time
//! copy_method    the copier, and common programs
//! destination    folders, mounted shares, other machines by ssh
//! ```
//!
//! Each run begins without the source in memory and counts until the copy is safe on its
//! drives. The copy is counted, compared with the source, and removed again.

mod copy_method;
mod destination;
mod parallel_copy;
mod tree;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use units::human_bytes;

use crate::bench_result::{BenchKind, BenchResult, FORMAT_VERSION, Measure, Unit};
use crate::formatting::{format_value, percent};
use crate::histogram::Histogram;
use crate::machine::CpuTimes;
use crate::mount::Mount;
use crate::path::Heading;
use crate::progress::Progress;
use crate::tally::{MeasureName, Tally};
use crate::timed_run::RunResult;
use crate::{Error, Machine, System, drive_info, machine, run_quality};
pub use copy_method::CopyMethod;
use destination::Destination;
use tree::FileTree;

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The tree.
    pub source: PathBuf,
    /// Folders, or `HOST:PATH`.
    pub destinations: Vec<String>,
    /// The ways to be compared, where they are possible.
    pub methods: Vec<CopyMethod>,
    /// How often each is run.
    pub runs: usize,
    /// After how long a run is ended, though not all is copied.
    pub time_limit: Option<Duration>,
}

/// A tree and destinations that are ready to be copied to.
#[derive(Debug)]
pub struct CopyBenchmark {
    options: Options,
    tree: FileTree,
    destinations: Vec<Destination>,
    /// For each place the ways that lead to it, and why others do not.
    methods: Vec<Vec<CopyMethod>>,
    skipped: Vec<String>,
}

impl Options {
    /// Looks at the tree and the destinations, without touching either.
    pub fn prepare(self, system: &System) -> Result<CopyBenchmark, Error> {
        let tree = FileTree::scan(&self.source)?;
        if tree.bytes == 0 {
            let what = format!("there is nothing to copy in '{}'", self.source.display());
            return Err(Error::invalid_request(what));
        }
        let places: Vec<Destination> = (self.destinations.iter())
            .map(|destination| Destination::parse(destination, &self.source, &tree, system))
            .collect::<Result<_, _>>()?;
        let mut ways = Vec::new();
        let mut left_out = Vec::new();
        for place in &places {
            let mut possible = Vec::new();
            for way in &self.methods {
                match way.unavailable_reason(place) {
                    None => possible.push(*way),
                    Some(why) => {
                        left_out.push(format!("{} to {}: {why}", way.name(), place.name()));
                    }
                }
            }
            ways.push(possible);
        }
        if ways.iter().all(Vec::is_empty) {
            return Err(Error::invalid_request(format!(
                "no way to copy is left: {}",
                left_out.join("; ")
            )));
        }
        Ok(CopyBenchmark {
            options: self,
            tree,
            destinations: places,
            methods: ways,
            skipped: left_out,
        })
    }
}

impl CopyBenchmark {
    /// How many copies are made.
    pub fn copy_count(&self) -> usize {
        self.options.runs * self.methods.iter().map(Vec::len).sum::<usize>()
    }

    /// Ends runs after so long.
    pub fn set_time_limit(&mut self, limit: Duration) {
        self.options.time_limit = Some(limit);
    }

    /// The plan, in sentences (dry run).
    pub fn describe_plan(&self) -> Vec<String> {
        let FileTree { bytes, files, .. } = self.tree;
        let source = self.options.source.display();
        let mut all = vec![format!(
            "'{source}' has {files} files with {}; each copy is removed before the next is made.",
            human_bytes(bytes)
        )];
        for (place, ways) in self.destinations.iter().zip(&self.methods) {
            let names: Vec<&str> = ways.iter().map(|way| way.name()).collect();
            all.push(format!(
                "{} copies by each of {} to the new folder '{}'.",
                self.options.runs,
                run_quality::join_names(&names),
                place.scratch_path()
            ));
        }
        all.extend(self.skipped.iter().map(|why| format!("Left out: {why}.")));
        all
    }

    /// Copies, in turns.
    pub fn measure(
        &self,
        heading: Heading,
        course: &Progress<'_>,
        system: &System,
    ) -> Result<BenchResult, Error> {
        let began = Instant::now();
        let before = run_quality::measure_background_load(system);
        let mut tally = Tally::default();
        let complete = self.run_rounds(&mut tally, course, system)?;
        let measures = tally.into_measures();
        let mount = Mount::find(system, &self.options.source).unwrap_or_default();
        Ok(BenchResult {
            poolhouse_bench: FORMAT_VERSION,
            kind: BenchKind::Copy,
            label: heading.label,
            subject: self.options.source.display().to_string(),
            started: heading.started,
            seconds: began.elapsed().as_secs_f64(),
            complete,
            machine: Machine::read(system),
            drives: drive_info::underlying_drives(system, &mount.device),
            versions: self.versions(system),
            settings: self.settings(),
            facts: self.facts(&mount, before),
            findings: self.findings(&measures, before),
            measures,
            notes: self.notes(),
        })
    }

    fn run_rounds(
        &self,
        tally: &mut Tally,
        course: &Progress<'_>,
        system: &System,
    ) -> Result<bool, Error> {
        // the duration of a copy is unknown before the first
        let mut each = self.options.time_limit.unwrap_or(Duration::from_secs(10));
        let mut left = self.copy_count();
        for place in &self.destinations {
            place.create_scratch_dir()?;
        }
        for run in 0..self.options.runs {
            for (place, ways) in self.destinations.iter().zip(&self.methods) {
                for way in ways {
                    course.set_remaining(each * u32::try_from(left).unwrap_or(u32::MAX));
                    let what = format!("{} to {}", way.name(), place.name());
                    let step = format!("{what}, run {} of {}", run + 1, self.options.runs);
                    course.start_step(&step, each);
                    let Some((copied, ran)) = self.copy_once(*way, place, course, system)? else {
                        return Ok(false);
                    };
                    (each, left) = ((each + ran.duration) / 2, left - 1);
                    Self::add_runs(tally, *way, place, &copied, &ran);
                }
            }
        }
        Ok(true)
    }

    /// One copy; none if the work was stopped.
    fn copy_once(
        &self,
        way: CopyMethod,
        place: &Destination,
        course: &Progress<'_>,
        system: &System,
    ) -> Result<Option<(FileTree, RunResult)>, Error> {
        self.tree.drop_cache();
        place.create_run_dir()?;
        let (began, busy) = (Instant::now(), CpuTimes::read(system));
        let whole = way.copy(&self.options.source, place, self.options.time_limit, course)?;
        place.sync()?;
        let time = began.elapsed();
        let busy = busy.and_then(|before| before.busy_fraction_until(CpuTimes::read(system)?));
        if course.is_cancelled() {
            return Ok(None);
        }
        let copied = place.copied_tree(whole)?;
        if whole && (copied.files, copied.bytes) != (self.tree.files, self.tree.bytes) {
            return Err(Error::Program {
                program: way.name().to_owned(),
                why: format!(
                    "{} of {} files arrived at {}, with {} of {} bytes",
                    copied.files,
                    self.tree.files,
                    place.name(),
                    copied.bytes,
                    self.tree.bytes
                ),
            });
        }
        place.remove_run_dir()?;
        let histogram = Histogram::default();
        let ran = RunResult {
            operations: copied.files,
            bytes: copied.bytes,
            duration: time,
            histogram,
            cpu_busy: busy,
        };
        Ok(Some((copied, ran)))
    }

    fn add_runs(
        tally: &mut Tally,
        way: CopyMethod,
        place: &Destination,
        copied: &FileTree,
        ran: &RunResult,
    ) {
        let to = place.name();
        let id = format!("{to}/{}", way.id());
        let name = |id: String, what: String, unit| MeasureName {
            id,
            title: what,
            group: "copies".to_owned(),
            unit,
        };
        tally.add_run(
            name(id.clone(), format!("{} to {to}", way.name()), Unit::BytesPerSecond),
            ran,
            None,
        );
        if copied.files > 1 {
            let what = format!("{} to {to}, files", way.name());
            tally.add_run(name(format!("{id}-files"), what, Unit::OperationsPerSecond), ran, None);
        }
    }

    fn versions(&self, system: &System) -> BTreeMap<String, String> {
        let mut all = machine::software_versions(system);
        let ways: Vec<CopyMethod> = self.methods.concat();
        for way in ways {
            all.extend(way.program_version());
        }
        all
    }

    fn settings(&self) -> Map<String, Value> {
        let value = json!({
            "runs": self.options.runs,
            "limit_seconds": self.options.time_limit.map(|limit| limit.as_secs_f64()),
            "size_bytes": self.tree.bytes,
            "files": self.tree.files,
        });
        value.as_object().cloned().unwrap_or_default()
    }

    fn facts(&self, mount: &Mount, before: Option<f64>) -> Map<String, Value> {
        let destinations: BTreeMap<&str, Option<&Mount>> =
            self.destinations.iter().map(|place| (place.name(), place.mount())).collect();
        let value = json!({ "mount": mount, "destinations": destinations, "busy_before": before });
        value.as_object().cloned().unwrap_or_default()
    }

    /// For each destination the fastest way, and how far behind the others are.
    fn findings(&self, measures: &[Measure], before: Option<f64>) -> Vec<String> {
        let mut all: Vec<String> =
            run_quality::background_load_finding(before).into_iter().collect();
        for (place, ways) in self.destinations.iter().zip(&self.methods) {
            let mean = |way: &CopyMethod| {
                let id = format!("{}/{}", place.name(), way.id());
                let measure = measures.iter().find(|measure| measure.id == id)?;
                Some((*way, measure.summary?.mean))
            };
            let mut rates: Vec<(CopyMethod, f64)> = ways.iter().filter_map(mean).collect();
            rates.sort_by(|a, b| b.1.total_cmp(&a.1));
            let [(best, most), others @ ..] = rates.as_slice() else { continue };
            let behind: Vec<String> = (others.iter())
                .map(|(way, rate)| format!("{} {}", way.name(), percent(rate / most)))
                .collect();
            let behind: Vec<&str> = behind.iter().map(String::as_str).collect();
            if !behind.is_empty() {
                all.push(format!(
                    "To {} the fastest way is {} with {}; of that reach {}.",
                    place.title(),
                    best.name(),
                    format_value(*most, Unit::BytesPerSecond),
                    behind.join(", ")
                ));
            }
        }
        let short = measures.iter().any(|measure| measure.shortest_run < 2.0);
        all.extend((short && self.options.time_limit.is_none()).then(|| {
            "The tree is copied in less than two seconds, which is too short for a reliable figure: use a larger one."
                .to_owned()
        }));
        all.extend(run_quality::spread_finding(measures));
        all
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> =
            self.skipped.iter().map(|why| format!("Left out: {why}.")).collect();
        if self.options.time_limit.is_some() {
            notes.push(
                "Runs were ended before the whole tree was copied; the copied part counts.".into(),
            );
        }
        if self.options.methods.contains(&CopyMethod::BuiltIn) {
            notes.push(
                "poolhouse's own copier keeps modes, owners and times, but neither hard links, \
                 holes, attributes nor access lists, as cp -a does."
                    .into(),
            );
        }
        notes.push(
            "No way may share blocks between source and copy (reflinks): every byte is moved."
                .into(),
        );
        notes
    }
}
