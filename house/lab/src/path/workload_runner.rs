//! The rounds: all workloads one after the other, and that several times.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::Options;
use super::file_size::FileSize;
use crate::bench_result::Unit;
use crate::histogram::Histogram;
use crate::machine::CpuTimes;
use crate::progress::Progress;
use crate::tally::{MeasureName, Tally};
use crate::target::{BlockTarget, FileTarget};
use crate::test_data::{Random, TestData};
use crate::timed_run::{Operation, Order, RunResult, Task};
use crate::workload::{
    FileWorkload, SEQUENTIAL_BLOCK_SIZE, SMALL_FILE_SIZE, StreamKind, StreamWorkload,
};
use crate::{Error, System};

/// Small files in one folder.
const FILES_PER_DIR: usize = 1000;
/// Small files that are made between two looks at the clock.
const FILES_PER_CLOCK_CHECK: usize = 16;

/// The state that all rounds share.
pub(crate) struct WorkloadRunner<'a> {
    pub(crate) target: &'a dyn FileTarget,
    pub(crate) options: &'a Options,
    pub(crate) size: FileSize,
    pub(crate) progress: &'a Progress<'a>,
    pub(crate) system: &'a System,
}

/// How long all of it will take.
pub(crate) fn expected_duration(wish: &Options, size: FileSize) -> Duration {
    let streams = wish.streams.iter().map(|stream| stream_duration(stream, wish, size));
    let files = wish.run_time * u32::try_from(wish.files.len()).unwrap_or(0);
    let round = streams.sum::<Duration>() + files;
    round * u32::try_from(wish.runs).unwrap_or(1)
}

fn stream_duration(stream: &StreamWorkload, wish: &Options, size: FileSize) -> Duration {
    match stream.verb.access_order() {
        Order::Sequential => size.pass_duration(),
        Order::Random => wish.run_time,
    }
}

impl WorkloadRunner<'_> {
    /// Does all; whether they were done to their end.
    pub(crate) fn run(&self, tally: &mut Tally) -> Result<bool, Error> {
        self.run_rounds(0..self.options.runs, tally)
    }

    /// Does some of them; whether they were done to their end.
    pub(crate) fn run_rounds(
        &self,
        rounds: Range<usize>,
        tally: &mut Tally,
    ) -> Result<bool, Error> {
        let mut file = None;
        for round in rounds {
            for stream in &self.options.streams {
                let name =
                    format!("{}, run {} of {}", stream.title(), round + 1, self.options.runs);
                if !self.run_stream(stream, &name, round, &mut file, tally)? {
                    return Ok(false);
                }
            }
            if !self.options.files.is_empty() && !self.measure_files(round, tally)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One run on the large file; whether it was done to its end.
    fn run_stream(
        &self,
        stream: &StreamWorkload,
        name: &str,
        round: usize,
        file: &mut Option<Box<dyn BlockTarget>>,
        tally: &mut Tally,
    ) -> Result<bool, Error> {
        if stream.verb == StreamKind::Write {
            self.recreate_file(file)?;
        } else if file.is_none() {
            self.progress.start_step("a file to work on", self.size.pass_duration());
            let blocks = self.recreate_file(file)?;
            let write =
                StreamWorkload { verb: StreamKind::Write, block: SEQUENTIAL_BLOCK_SIZE, depth: 1 };
            if self.stream_task(&write, round).run(blocks, self.progress, self.system)?.is_none() {
                return Ok(false);
            }
        }
        let Some(blocks) = file.as_deref() else { return Ok(false) };
        self.progress.start_step(name, stream_duration(stream, self.options, self.size));
        let reads = stream.verb.operation() == Operation::Read;
        let cached = if reads { blocks.drop_cache()? } else { None };
        let Some(ran) = self.stream_task(stream, round).run(blocks, self.progress, self.system)?
        else {
            return Ok(false);
        };
        let name = MeasureName {
            id: stream.id(),
            title: stream.title(),
            group: stream.group().to_owned(),
            unit: stream.unit(),
        };
        tally.add_run(name, &ran, cached);
        Ok(true)
    }

    /// A new file in place of the one before.
    fn recreate_file<'f>(
        &self,
        file: &'f mut Option<Box<dyn BlockTarget>>,
    ) -> Result<&'f dyn BlockTarget, Error> {
        if file.take().is_some() {
            self.target.remove_file("large")?;
            self.target.sync()?;
        }
        Ok(&**file.insert(self.target.create_block_file("large")?))
    }

    fn stream_task(&self, stream: &StreamWorkload, round: usize) -> Task {
        let order = stream.verb.access_order();
        Task {
            operation: stream.verb.operation(),
            order,
            block_size: stream.block,
            queue_depth: stream.depth,
            range: 0..self.size.bytes,
            time_limit: (order == Order::Random).then_some(self.options.run_time),
            use_zeros: self.options.use_zeros,
            // every run writes and visits something else
            seed: (round as u64 + 1) * 100 + stream.depth as u64 + stream.block,
        }
    }

    /// One round on small files; whether it was done to its end.
    fn measure_files(&self, round: usize, tally: &mut Tally) -> Result<bool, Error> {
        self.target.sync()?;
        let mut names = Vec::new();
        let mut folders = Vec::new();
        let verbs = FileWorkload::ALL;
        for verb in verbs {
            let wanted = self.options.files.contains(&verb);
            let what = format!("{}, run {} of {}", verb.title(), round + 1, self.options.runs);
            let takes = if wanted { self.options.run_time } else { Duration::ZERO };
            self.progress.start_step(&what, takes);
            let ran = match verb {
                FileWorkload::Create => self.create_files(round, &mut names, &mut folders)?,
                _ => self.visit_files(verb, round, &names)?,
            };
            if self.progress.is_cancelled() {
                return Ok(false);
            }
            if wanted {
                let (id, what) = (verb.id().to_owned(), verb.title().to_owned());
                let group = "small files".to_owned();
                tally.add_run(
                    MeasureName { id, title: what, group, unit: Unit::OperationsPerSecond },
                    &ran,
                    None,
                );
            }
        }
        folders.iter().try_for_each(|folder| self.target.remove_dir(folder))?;
        Ok(true)
    }

    /// Makes files until the time is over or there are enough.
    fn create_files(
        &self,
        round: usize,
        names: &mut Vec<String>,
        folders: &mut Vec<String>,
    ) -> Result<RunResult, Error> {
        let mut content =
            TestData::new(round as u64 + 1, SMALL_FILE_SIZE, 1, self.options.use_zeros);
        let mut timer = Timer::start(self.system);
        while names.len() < self.options.max_files && !self.progress.is_cancelled() {
            if names.len().is_multiple_of(FILES_PER_CLOCK_CHECK)
                && timer.started.elapsed() >= self.options.run_time
            {
                break;
            }
            if names.len().is_multiple_of(FILES_PER_DIR) {
                let folder = format!("small-{}", folders.len());
                self.target.create_dir(&folder)?;
                folders.push(folder);
            }
            let name = format!("small-{}/{}", folders.len() - 1, names.len());
            timer.time(|| self.target.write_file(&name, content.next_block(SMALL_FILE_SIZE)))?;
            names.push(name);
        }
        self.target.sync()?;
        Ok(timer.stop(self.system))
    }

    /// Does something to each file, in an order that has nothing to do with how they were made.
    fn visit_files(
        &self,
        verb: FileWorkload,
        round: usize,
        names: &[String],
    ) -> Result<RunResult, Error> {
        self.drop_caches(verb, names)?;
        let mut order: Vec<&String> = names.iter().collect();
        let mut random = Random::new(round as u64 + 77);
        for end in (1..order.len()).rev() {
            let other = random.below(end as u64 + 1);
            order.swap(end, usize::try_from(other).unwrap_or(end));
        }
        let mut into = [0_u8; SMALL_FILE_SIZE];
        let mut timer = Timer::start(self.system);
        for name in order {
            timer.time(|| match verb {
                FileWorkload::Stat => self.target.stat_file(name),
                FileWorkload::Read => self.target.read_file(name, &mut into),
                FileWorkload::Create | FileWorkload::Delete => self.target.remove_file(name),
            })?;
            if self.progress.is_cancelled() {
                break;
            }
        }
        if verb == FileWorkload::Delete {
            self.target.sync()?;
        }
        Ok(timer.stop(self.system))
    }

    /// Takes the files' content out of memory, and with `drop_caches` all that is known of them.
    fn drop_caches(&self, verb: FileWorkload, names: &[String]) -> Result<(), Error> {
        let forgets = verb == FileWorkload::Stat && self.target.can_drop_attributes();
        if verb == FileWorkload::Read || forgets {
            self.target.drop_file_caches(names)?;
        }
        if self.options.drop_caches && verb != FileWorkload::Delete {
            let path = self.system.path("proc/sys/vm/drop_caches");
            std::fs::write(&path, "3").map_err(Error::io(&path, "written"))?;
        }
        Ok(())
    }
}

/// Times single operations and all together.
struct Timer {
    started: Instant,
    cpu_times: Option<CpuTimes>,
    histogram: Histogram,
    operations: u64,
}

impl Timer {
    fn start(system: &System) -> Self {
        let cpu_times = CpuTimes::read(system);
        Self { started: Instant::now(), cpu_times, histogram: Histogram::default(), operations: 0 }
    }

    fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let before = Instant::now();
        let done = operation();
        self.histogram.add(before.elapsed());
        self.operations += 1;
        done
    }

    fn stop(self, system: &System) -> RunResult {
        let time = self.started.elapsed();
        let busy =
            self.cpu_times.and_then(|before| before.busy_fraction_until(CpuTimes::read(system)?));
        let bytes = self.operations * SMALL_FILE_SIZE as u64;
        RunResult {
            operations: self.operations,
            bytes,
            duration: time,
            histogram: self.histogram,
            cpu_busy: busy,
        }
    }
}
