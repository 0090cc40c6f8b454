//! The measurements of drives: each alone by zone, random reads, writes if requested, then
//! the drives of each controller together, then all together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::Options;
use super::drives::Drive;
use crate::bench_result::Unit;
use crate::histogram::Histogram;
use crate::machine::CpuTimes;
use crate::number::{per_second, to_f64};
use crate::progress::Progress;
use crate::tally::{MeasureName, Tally};
use crate::timed_run::{Operation, Order, RunResult, Task};
use crate::workload::SEQUENTIAL_BLOCK_SIZE;
use crate::{Error, System};

/// The largest zone: the bytes that a drive reads in the longest run.
const MAX_ZONE_SIZE: u64 = 1 << 38;
/// Concurrent reads, so that an SSD reaches its rate; a disk needs only one waiting request.
const SSD_QUEUE_DEPTH: usize = 8;
const HDD_QUEUE_DEPTH: usize = 2;
const RANDOM_BLOCK_SIZE: u64 = 4096;
const RANDOM_QUEUE_DEPTHS: [usize; 2] = [1, 32];

/// The state that all steps share.
pub(super) struct DiskRunner<'a> {
    pub(super) drives: &'a [Drive],
    pub(super) options: &'a Options,
    pub(super) progress: &'a Progress<'a>,
    pub(super) system: &'a System,
}

/// The findings, by the drives' numbers.
#[derive(Debug, Default)]
pub(super) struct DiskRates {
    /// Bytes a second of each drive alone, zone by zone, every run.
    pub(super) zone_rates: Vec<Vec<Vec<f64>>>,
    /// Drives that were read together, and what each of them did, every run.
    pub(super) groups: Vec<GroupRates>,
}

/// Drives that were read at once.
#[derive(Debug)]
pub(super) struct GroupRates {
    /// The controller that they share; none for all drives.
    pub(super) controller: Option<String>,
    pub(super) drives: Vec<usize>,
    /// Bytes a second of each of them, every run.
    pub(super) rates: Vec<Vec<f64>>,
    pub(super) cpu_busy: Vec<f64>,
}

/// The mean; 0 of none.
pub(super) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / to_f64(values.len() as u64) }
}

/// Drives that share a controller with others, but not with all.
fn controller_groups(drives: &[Drive]) -> BTreeMap<String, Vec<usize>> {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, drive) in drives.iter().enumerate() {
        if let Some(controller) = &drive.info.controller {
            groups.entry(controller.clone()).or_default().push(index);
        }
    }
    groups.retain(|_, members| members.len() > 1 && members.len() < drives.len());
    groups
}

/// How long all of it takes.
pub(super) fn expected_duration(drives: &[Drive], wish: &Options) -> Duration {
    let steps = |drive: &Drive| {
        let writes = if drive.can_overwrite { wish.zone_count + 1 } else { 0 };
        wish.zone_count + RANDOM_QUEUE_DEPTHS.len() + writes
    };
    let alone: usize = drives.iter().map(steps).sum();
    let together = controller_groups(drives).len() + usize::from(drives.len() > 1);
    wish.time * u32::try_from((alone + together) * wish.runs).unwrap_or(u32::MAX)
}

impl DiskRunner<'_> {
    /// Does them; whether all were done.
    pub(super) fn run(&self, tally: &mut Tally, found: &mut DiskRates) -> Result<bool, Error> {
        found.zone_rates = vec![vec![Vec::new(); self.options.zone_count]; self.drives.len()];
        for run in 0..self.options.runs {
            for (index, drive) in self.drives.iter().enumerate() {
                let Some(zones) = found.zone_rates.get_mut(index) else { continue };
                let steps = [
                    self.measure_zones(drive, run, tally, zones)?,
                    self.measure_random_reads(drive, run, tally)?,
                ];
                if steps.contains(&false) || !self.measure_writes(drive, run, tally)? {
                    return Ok(false);
                }
            }
        }
        let mut groups: Vec<(Option<String>, Vec<usize>)> = controller_groups(self.drives)
            .into_iter()
            .map(|(controller, members)| (Some(controller), members))
            .collect();
        if self.drives.len() > 1 {
            groups.push((None, (0..self.drives.len()).collect()));
        }
        for (controller, members) in groups {
            if !self.measure_group(controller, members, tally, found)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn measure_zones(
        &self,
        drive: &Drive,
        run: usize,
        tally: &mut Tally,
        rates: &mut [Vec<f64>],
    ) -> Result<bool, Error> {
        let last = self.options.zone_count - 1;
        for (zone, rates) in rates.iter_mut().enumerate() {
            let percent = zone * 100 / last;
            let what = format!("{}: reads at {percent} %", drive.name());
            let Some((ran, cached)) =
                self.run_step(drive, &self.zone_task(drive, zone, Operation::Read), &what, run)?
            else {
                return Ok(false);
            };
            rates.push(per_second(ran.bytes, ran.duration));
            if let Some(end) = zone_name(zone, last) {
                tally.add_run(sequential_measure(drive, "read", end, percent), &ran, cached);
            }
        }
        Ok(true)
    }

    fn measure_random_reads(
        &self,
        drive: &Drive,
        run: usize,
        tally: &mut Tally,
    ) -> Result<bool, Error> {
        for depth in RANDOM_QUEUE_DEPTHS {
            let words = if depth == 1 { String::new() } else { format!(", {depth} at a time") };
            let what = format!("{}: random reads 4K{words}", drive.name());
            let task = Task {
                operation: Operation::Read,
                order: Order::Random,
                block_size: RANDOM_BLOCK_SIZE,
                queue_depth: depth,
                range: 0..drive.size / RANDOM_BLOCK_SIZE * RANDOM_BLOCK_SIZE,
                time_limit: Some(self.options.time),
                use_zeros: false,
                seed: run as u64 + 1,
            };
            let Some((ran, cached)) = self.run_step(drive, &task, &what, run)? else {
                return Ok(false);
            };
            tally.add_run(
                random_measure(drive, &format!("random-read-4k-q{depth}"), what, "reads"),
                &ran,
                cached,
            );
        }
        Ok(true)
    }

    /// Writes along and anywhere, to a drive that may be overwritten.
    fn measure_writes(&self, drive: &Drive, run: usize, tally: &mut Tally) -> Result<bool, Error> {
        if !drive.can_overwrite {
            return Ok(true);
        }
        let last = self.options.zone_count - 1;
        for zone in 0..=last {
            let percent = zone * 100 / last;
            let what = format!("{}: writes at {percent} %", drive.name());
            let task = self.zone_task(drive, zone, Operation::Write);
            let Some((ran, _)) = self.run_step(drive, &task, &what, run)? else { return Ok(false) };
            if let Some(end) = zone_name(zone, last) {
                tally.add_run(sequential_measure(drive, "write", end, percent), &ran, None);
            }
        }
        let what = format!("{}: random writes 4K", drive.name());
        let task = Task {
            operation: Operation::Write,
            order: Order::Random,
            block_size: RANDOM_BLOCK_SIZE,
            queue_depth: 1,
            range: drive.writable_range(),
            time_limit: Some(self.options.time),
            use_zeros: false,
            seed: run as u64 + 1,
        };
        let Some((ran, _)) = self.run_step(drive, &task, &what, run)? else { return Ok(false) };
        tally.add_run(random_measure(drive, "random-write-4k-q1", what, "writes"), &ran, None);
        Ok(true)
    }

    /// Going along a drive, from one of its zones on.
    fn zone_task(&self, drive: &Drive, zone: usize, verb: Operation) -> Task {
        let all = if verb == Operation::Read {
            0..drive.size / SEQUENTIAL_BLOCK_SIZE * SEQUENTIAL_BLOCK_SIZE
        } else {
            drive.writable_range()
        };
        let length =
            ((all.end - all.start) / self.options.zone_count as u64 / SEQUENTIAL_BLOCK_SIZE
                * SEQUENTIAL_BLOCK_SIZE)
                .min(MAX_ZONE_SIZE);
        let room = all.end - all.start - length;
        let begin = all.start
            + room * zone as u64 / (self.options.zone_count as u64 - 1) / SEQUENTIAL_BLOCK_SIZE
                * SEQUENTIAL_BLOCK_SIZE;
        Task {
            operation: verb,
            order: Order::Sequential,
            block_size: SEQUENTIAL_BLOCK_SIZE,
            queue_depth: if drive.info.rotates == Some(true) {
                HDD_QUEUE_DEPTH
            } else {
                SSD_QUEUE_DEPTH
            },
            range: begin..begin + length,
            time_limit: Some(self.options.time),
            use_zeros: false,
            seed: zone as u64 + 1,
        }
    }

    fn run_step(
        &self,
        drive: &Drive,
        task: &Task,
        what: &str,
        run: usize,
    ) -> Result<Option<(RunResult, Option<f64>)>, Error> {
        use crate::target::BlockTarget as _;
        let what = format!("{what}, run {} of {}", run + 1, self.options.runs);
        self.progress.start_step(&what, self.options.time);
        let cached = if task.operation == Operation::Read { drive.drop_cache()? } else { None };
        Ok(task.run(drive, self.progress, self.system)?.map(|ran| (ran, cached)))
    }

    /// Reads some drives at once, each from its begin.
    fn measure_group(
        &self,
        controller: Option<String>,
        members: Vec<usize>,
        tally: &mut Tally,
        found: &mut DiskRates,
    ) -> Result<bool, Error> {
        let which = match &controller {
            Some(controller) => format!("all {} drives at {controller}", members.len()),
            None => format!("all {} drives", members.len()),
        };
        let id = controller.as_deref().unwrap_or("all").to_owned();
        let rates = vec![Vec::new(); members.len()];
        let mut group = GroupRates { controller, drives: members, rates, cpu_busy: Vec::new() };
        for run in 0..self.options.runs {
            let what = format!("{which} read at once, run {} of {}", run + 1, self.options.runs);
            self.progress.start_step(&what, self.options.time);
            let Some(ran) = self.read_group(&mut group)? else { return Ok(false) };
            let name = MeasureName {
                id: format!("{id}/together-read-1m"),
                title: format!("{which} read at once"),
                group: "sequential".to_owned(),
                unit: Unit::BytesPerSecond,
            };
            tally.add_run(name, &ran, None);
        }
        found.groups.push(group);
        Ok(true)
    }

    fn read_group(&self, group: &mut GroupRates) -> Result<Option<RunResult>, Error> {
        let tasks: Vec<(&Drive, Task)> = (group.drives.iter())
            .filter_map(|index| self.drives.get(*index))
            .map(|drive| (drive, self.zone_task(drive, 0, Operation::Read)))
            .collect();
        let (began, busy) = (Instant::now(), CpuTimes::read(self.system));
        let all: Vec<Result<Option<RunResult>, Error>> = std::thread::scope(|scope| {
            let start = |(drive, task)| {
                scope.spawn(move || Task::run(task, drive, self.progress, self.system))
            };
            let threads: Vec<_> = tasks.iter().map(|(drive, task)| start((*drive, task))).collect();
            // a thread that panicked has reported it
            threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(None))).collect()
        });
        let time = began.elapsed();
        let busy = busy.and_then(|before| before.busy_fraction_until(CpuTimes::read(self.system)?));
        let mut sum = RunResult {
            operations: 0,
            bytes: 0,
            duration: time,
            histogram: Histogram::default(),
            cpu_busy: busy,
        };
        let mut rates = Vec::new();
        for ran in all {
            let Some(ran) = ran? else { return Ok(None) };
            rates.push(per_second(ran.bytes, ran.duration));
            sum.operations += ran.operations;
            sum.bytes += ran.bytes;
            sum.histogram.merge(&ran.histogram);
        }
        group.cpu_busy.extend(busy);
        for (mine, rate) in group.rates.iter_mut().zip(rates) {
            mine.push(rate);
        }
        Ok(Some(sum))
    }
}

/// The zones that have a name: the others are in the picture only.
fn zone_name(zone: usize, last: usize) -> Option<&'static str> {
    match zone {
        0 => Some("outer"),
        zone if zone == last => Some("inner"),
        zone if zone == last / 2 => Some("middle"),
        _ => None,
    }
}

fn sequential_measure(drive: &Drive, verb: &str, end: &str, percent: usize) -> MeasureName {
    MeasureName {
        id: format!("{}/{verb}-1m-{end}", drive.name()),
        title: format!("{}: {verb} at {percent} %", drive.name()),
        group: "sequential".to_owned(),
        unit: Unit::BytesPerSecond,
    }
}

fn random_measure(drive: &Drive, id: &str, what: String, verb: &str) -> MeasureName {
    MeasureName {
        id: format!("{}/{id}", drive.name()),
        title: what,
        group: format!("random {verb}"),
        unit: Unit::OperationsPerSecond,
    }
}

impl DiskRates {
    /// For the result: the zones of each drive, and what those read together did.
    pub(super) fn facts(&self, drives: &[Drive]) -> Map<String, Value> {
        let zones: Vec<Value> = (self.zone_rates.iter().zip(drives))
            .map(|(zones, drive)| {
                let last = to_f64(zones.len().saturating_sub(1).max(1) as u64);
                let measured = zones.iter().enumerate().filter(|(_, runs)| !runs.is_empty());
                let points: Vec<[f64; 2]> = measured
                    .map(|(zone, runs)| [to_f64(zone as u64) * 100.0 / last, mean(runs).round()])
                    .collect();
                json!({ "drive": drive.name(), "points": points })
            })
            .collect();
        let names = |group: &GroupRates| {
            let members = group.drives.iter().filter_map(|index| drives.get(*index));
            members.map(|drive| drive.name().to_owned()).collect::<Vec<_>>()
        };
        let together: Vec<Value> = (self.groups.iter())
            .map(|group| {
                json!({
                    "controller": group.controller,
                    "drives": names(group),
                    "bytes_per_second": group.rates.iter().map(|runs| mean(runs)).collect::<Vec<_>>(),
                })
            })
            .collect();
        let value = json!({ "zones": zones, "together": together });
        value.as_object().cloned().unwrap_or_default()
    }
}
