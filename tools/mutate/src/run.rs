//! Runs mutants by number, each in a thread of its own with an eye on the clock and on memory.

use std::collections::HashSet;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use device::{Device, File};
use fixtures::Fixture;
use peak_alloc::PeakAlloc;
use units::Guid;

use crate::Family;
use crate::contents::{self, PoolContents, ReadOptions};
use crate::hostile::Plan;
use crate::image::{self, Targets};

/// Every program that makes mutants counts its memory.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// No mutant may make us take more, in bytes.
pub const MAX_MEMORY: usize = 1 << 30;

/// A pool to make mutants of.
#[derive(Debug)]
pub struct Subject {
    name: String,
    devices: Vec<Arc<dyn Device>>,
    other_devices: Vec<Arc<dyn Device>>,
    targets: Targets,
    baseline: PoolContents,
    options: ReadOptions,
    /// It was left by a crash or a running system: its logs end where they become unreadable.
    has_logs: bool,
    /// Datasets without checksums, whose damage cannot be detected.
    unchecksummed_datasets: HashSet<String>,
}

/// A problem with a mutant's examination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The pool.
    pub subject: String,
    /// The mutation.
    pub family: &'static str,
    /// Which of all that can be done.
    pub seed: u64,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, family, seed, problem: what } = self;
        write!(f, "mutate {subject} {family} {seed}: {what}")
    }
}

impl Subject {
    /// A fixture's pool; `other` lends devices of another pool.
    ///
    /// # Panics
    /// If the fixture's images cannot be opened, or the pool in them.
    pub fn new(fixture: &Fixture, other: Option<&Fixture>) -> Self {
        let devices = open_images(fixture);
        let other_devices = other.map(open_images).unwrap_or_default();
        let (found, _) = spa::scan_devices(&devices);
        let pool = found.iter().find(|pool| pool.name() == fixture.pool_name());
        let open = pool.and_then(|pool| pool.open(&spa::PoolOpenOptions::default()).ok());
        let guid: Option<Guid> = open.as_ref().map(spa::Pool::guid);
        let options = ReadOptions { guid, keys: fixture.keys(), plan: None };
        let unchecksummed_datasets = find_unchecksummed_datasets(fixture);
        let mut baseline = contents::read_contents(&devices, &options);
        baseline.items.retain(|what, _| is_checksummed(what, &unchecksummed_datasets));
        let targets = Targets::find(&devices, open.as_ref());
        let has_logs = fixture.state() != "exported";
        let name = fixture.name.clone();
        Self {
            name,
            devices,
            other_devices,
            targets,
            baseline,
            options,
            has_logs,
            unchecksummed_datasets,
        }
    }

    /// The visible content of the unchanged pool.
    pub fn baseline(&self) -> &PoolContents {
        &self.baseline
    }

    /// Reads one mutant; returns whether its content can be compared.
    pub fn read_mutant(&self, family: Family, seed: u64) -> (PoolContents, bool) {
        match family {
            Family::Hostile => {
                let wish = ReadOptions { plan: Some(Plan::new(seed)), ..self.options.clone() };
                (contents::read_contents(&self.devices, &wish), false)
            }
            Family::Image => {
                let mutant = image::mutate(&self.devices, &self.other_devices, &self.targets, seed);
                let seen = contents::read_contents(&mutant.devices, &self.options);
                (seen, !mutant.is_forged && !self.has_logs)
            }
        }
    }

    /// Examines one mutant; returns its wrong content.
    pub fn examine_mutant(&self, family: Family, seed: u64) -> Vec<String> {
        let (mut seen, can_be_judged) = self.read_mutant(family, seed);
        seen.items.retain(|what, _| is_checksummed(what, &self.unchecksummed_datasets));
        if can_be_judged { contents::silent_corruptions(&self.baseline, &seen) } else { Vec::new() }
    }

    /// The changes of a mutant, for output.
    pub fn describe_mutant(&self, family: Family, seed: u64) -> Vec<String> {
        match family {
            Family::Hostile => vec![format!("{:?}", Plan::new(seed))],
            Family::Image => {
                image::mutate(&self.devices, &self.other_devices, &self.targets, seed).changes
            }
        }
    }
}

/// How mutants are run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// At a time.
    pub workers: usize,
    /// A mutant that takes longer hangs.
    pub timeout: Duration,
}

/// Examines the mutants `seeds` of each family in turn, and returns their problems.
///
/// # Panics
/// If no thread can be made.
pub fn run_mutants(
    subject: &Arc<Subject>,
    families: &[Family],
    seeds: std::ops::Range<u64>,
    pace: RunOptions,
) -> Vec<Failure> {
    let next = AtomicU64::new(seeds.start);
    let mut failures = std::thread::scope(|scope| {
        let work = || {
            let mut failures = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end || failures.len() > 20 {
                    return failures;
                }
                for family in families {
                    failures.extend(run_mutant(subject, *family, seed, pace.timeout));
                }
            }
        };
        let workers: Vec<_> = (0..pace.workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect::<Vec<_>>()
    });
    failures.sort_by_key(|failure| failure.seed);
    failures
}

fn run_mutant(
    subject: &Arc<Subject>,
    family: Family,
    seed: u64,
    longest: Duration,
) -> Option<Failure> {
    let theirs = Arc::clone(subject);
    let label = format!("mutate {} {} {seed}", subject.name, family.name());
    let what = run_watched(&label, longest, move || theirs.examine_mutant(family, seed));
    let (subject, family) = (subject.name.clone(), family.name());
    what.map(|what| Failure { subject, family, seed, problem: what })
}

/// Runs work in a thread of its own and returns its problems: wrong content, a panic, too much time
/// or memory. Work that hangs continues in the background.
///
/// # Panics
/// If no thread can be made.
pub fn run_watched(
    label: &str,
    longest: Duration,
    work: impl FnOnce() -> Vec<String> + Send + 'static,
) -> Option<String> {
    let (done, result) = channel();
    let begun = Instant::now();
    ALLOCATOR.reset_peak_usage();
    // a stack overflow, which ends the process, names the thread
    let builder = std::thread::Builder::new().name(label.to_owned());
    let thread = builder.spawn(move || {
        let _ = done.send(std::panic::catch_unwind(AssertUnwindSafe(work)));
    });
    let thread = thread.expect("a thread");
    let what = match result.recv_timeout(longest) {
        Ok(Ok(lies)) if lies.is_empty() => None,
        Ok(Ok(lies)) => Some(format!("lies: {}", lies[..lies.len().min(5)].join("; "))),
        Ok(Err(panic)) => Some(format!("panics: {}", panic_message(&*panic))),
        Err(RecvTimeoutError::Timeout) => Some(format!("hangs for {longest:?}")),
        Err(RecvTimeoutError::Disconnected) => Some("ends without a word".to_owned()),
    };
    if !thread.is_finished() && what.as_ref().is_none_or(|what| !what.starts_with("hangs")) {
        let _ = thread.join();
    }
    let peak = ALLOCATOR.peak_usage();
    let what = what.or_else(|| (peak > MAX_MEMORY).then(|| format!("takes {} MiB", peak >> 20)));
    if std::env::var_os("MUTATE_SHOW").is_some() {
        eprintln!("{label}: {:?}, {} MiB, {what:?}", begun.elapsed(), peak >> 20);
    }
    what
}

fn is_checksummed(what: &str, unjudged: &HashSet<String>) -> bool {
    what.split_once(':').is_none_or(|(dataset, _)| !unjudged.contains(dataset))
}

fn find_unchecksummed_datasets(fixture: &Fixture) -> HashSet<String> {
    let datasets = fixture.manifest.get("datasets").and_then(|datasets| datasets.as_array());
    let is_off = |dataset: &&serde_json::Value| {
        let checksum = &dataset["properties"]["checksum"];
        checksum == "off" || checksum[0] == "off"
    };
    let names = datasets.into_iter().flatten().filter(is_off);
    names.filter_map(|dataset| dataset["name"].as_str().map(str::to_owned)).collect()
}

fn open_images(fixture: &Fixture) -> Vec<Arc<dyn Device>> {
    let open = |path: PathBuf| Arc::new(File::open(&path).expect("an image")) as Arc<dyn Device>;
    fixture.images().into_iter().map(open).collect()
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "something".to_owned())
}
