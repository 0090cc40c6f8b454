//! What is done to drives: each alone by zone, random reads, writing where that was asked for, then
//! those of each controller together, then all together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::Wish;
use super::drives::Drive;
use crate::course::Course;
use crate::histogram::Histogram;
use crate::machine::Busy;
use crate::number::{float, per_second};
use crate::record::Unit;
use crate::tally::{Name, Tally};
use crate::timed::{Order, Ran, Task, Verb};
use crate::workload::LONG;
use crate::{Error, System};

/// A zone is this large at most: what a drive reads in the longest run.
const LARGEST_ZONE: u64 = 1 << 38;
/// Reads at a time, so that a drive without moving parts shows what it can do; a disk needs no
/// more than the next one waiting.
const DEPTH: usize = 8;
const DEPTH_TURNING: usize = 2;
const SMALL: u64 = 4096;
const RANDOM_DEPTHS: [usize; 2] = [1, 32];

/// What all steps share.
pub(super) struct Steps<'a> {
    pub(super) drives: &'a [Drive],
    pub(super) wish: &'a Wish,
    pub(super) course: &'a Course<'a>,
    pub(super) system: &'a System,
}

/// What was found, by the drives' numbers.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Bytes a second of each drive alone, zone by zone, every run.
    pub(super) zones: Vec<Vec<Vec<f64>>>,
    /// Drives that were read together, and what each of them did, every run.
    pub(super) together: Vec<Together>,
}

/// Drives that were read at once.
#[derive(Debug)]
pub(super) struct Together {
    /// The controller that they share; none for all drives.
    pub(super) controller: Option<String>,
    pub(super) drives: Vec<usize>,
    /// Bytes a second of each of them, every run.
    pub(super) rates: Vec<Vec<f64>>,
    pub(super) busy: Vec<f64>,
}

/// The mean; 0 of none.
pub(super) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / float(values.len() as u64) }
}

/// Drives that share a controller with others, but not with all.
fn controllers(drives: &[Drive]) -> BTreeMap<String, Vec<usize>> {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, drive) in drives.iter().enumerate() {
        if let Some(controller) = &drive.facts.controller {
            groups.entry(controller.clone()).or_default().push(index);
        }
    }
    groups.retain(|_, members| members.len() > 1 && members.len() < drives.len());
    groups
}

/// How long all of it takes.
pub(super) fn expected(drives: &[Drive], wish: &Wish) -> Duration {
    let steps = |drive: &Drive| {
        let writes = if drive.overwrites { wish.zones + 1 } else { 0 };
        wish.zones + RANDOM_DEPTHS.len() + writes
    };
    let alone: usize = drives.iter().map(steps).sum();
    let together = controllers(drives).len() + usize::from(drives.len() > 1);
    wish.time * u32::try_from((alone + together) * wish.runs).unwrap_or(u32::MAX)
}

impl Steps<'_> {
    /// Does them; whether all were done.
    pub(super) fn run(&self, tally: &mut Tally, found: &mut Found) -> Result<bool, Error> {
        found.zones = vec![vec![Vec::new(); self.wish.zones]; self.drives.len()];
        for run in 0..self.wish.runs {
            for (index, drive) in self.drives.iter().enumerate() {
                let Some(zones) = found.zones.get_mut(index) else { continue };
                let steps =
                    [self.zones(drive, run, tally, zones)?, self.random(drive, run, tally)?];
                if steps.contains(&false) || !self.writes(drive, run, tally)? {
                    return Ok(false);
                }
            }
        }
        let mut groups: Vec<(Option<String>, Vec<usize>)> = controllers(self.drives)
            .into_iter()
            .map(|(controller, members)| (Some(controller), members))
            .collect();
        if self.drives.len() > 1 {
            groups.push((None, (0..self.drives.len()).collect()));
        }
        for (controller, members) in groups {
            if !self.together(controller, members, tally, found)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn zones(
        &self,
        drive: &Drive,
        run: usize,
        tally: &mut Tally,
        rates: &mut [Vec<f64>],
    ) -> Result<bool, Error> {
        let last = self.wish.zones - 1;
        for (zone, rates) in rates.iter_mut().enumerate() {
            let percent = zone * 100 / last;
            let what = format!("{}: reads at {percent} %", drive.name());
            let Some((ran, cached)) =
                self.step(drive, &self.zone(drive, zone, Verb::Read), &what, run)?
            else {
                return Ok(false);
            };
            rates.push(per_second(ran.bytes, ran.time));
            if let Some(end) = named(zone, last) {
                tally.add(sequential(drive, "read", end, percent), &ran, cached);
            }
        }
        Ok(true)
    }

    fn random(&self, drive: &Drive, run: usize, tally: &mut Tally) -> Result<bool, Error> {
        for depth in RANDOM_DEPTHS {
            let words = if depth == 1 { String::new() } else { format!(", {depth} at a time") };
            let what = format!("{}: random reads 4K{words}", drive.name());
            let task = Task {
                verb: Verb::Read,
                order: Order::Random,
                block: SMALL,
                depth,
                span: 0..drive.size / SMALL * SMALL,
                time: Some(self.wish.time),
                zeros: false,
                seed: run as u64 + 1,
            };
            let Some((ran, cached)) = self.step(drive, &task, &what, run)? else {
                return Ok(false);
            };
            tally.add(
                operations(drive, &format!("random-read-4k-q{depth}"), what, "reads"),
                &ran,
                cached,
            );
        }
        Ok(true)
    }

    /// Writes along and anywhere, to a drive that may be overwritten.
    fn writes(&self, drive: &Drive, run: usize, tally: &mut Tally) -> Result<bool, Error> {
        if !drive.overwrites {
            return Ok(true);
        }
        let last = self.wish.zones - 1;
        for zone in 0..=last {
            let percent = zone * 100 / last;
            let what = format!("{}: writes at {percent} %", drive.name());
            let task = self.zone(drive, zone, Verb::Write);
            let Some((ran, _)) = self.step(drive, &task, &what, run)? else { return Ok(false) };
            if let Some(end) = named(zone, last) {
                tally.add(sequential(drive, "write", end, percent), &ran, None);
            }
        }
        let what = format!("{}: random writes 4K", drive.name());
        let task = Task {
            verb: Verb::Write,
            order: Order::Random,
            block: SMALL,
            depth: 1,
            span: drive.inside(),
            time: Some(self.wish.time),
            zeros: false,
            seed: run as u64 + 1,
        };
        let Some((ran, _)) = self.step(drive, &task, &what, run)? else { return Ok(false) };
        tally.add(operations(drive, "random-write-4k-q1", what, "writes"), &ran, None);
        Ok(true)
    }

    /// Going along a drive, from one of its zones on.
    fn zone(&self, drive: &Drive, zone: usize, verb: Verb) -> Task {
        let all = if verb == Verb::Read { 0..drive.size / LONG * LONG } else { drive.inside() };
        let length =
            ((all.end - all.start) / self.wish.zones as u64 / LONG * LONG).min(LARGEST_ZONE);
        let room = all.end - all.start - length;
        let begin = all.start + room * zone as u64 / (self.wish.zones as u64 - 1) / LONG * LONG;
        Task {
            verb,
            order: Order::Once,
            block: LONG,
            depth: if drive.facts.rotates == Some(true) { DEPTH_TURNING } else { DEPTH },
            span: begin..begin + length,
            time: Some(self.wish.time),
            zeros: false,
            seed: zone as u64 + 1,
        }
    }

    fn step(
        &self,
        drive: &Drive,
        task: &Task,
        what: &str,
        run: usize,
    ) -> Result<Option<(Ran, Option<f64>)>, Error> {
        use crate::store::Blocks as _;
        let what = format!("{what}, run {} of {}", run + 1, self.wish.runs);
        self.course.begin(&what, self.wish.time);
        let cached = if task.verb == Verb::Read { drive.chill()? } else { None };
        Ok(task.run(drive, self.course, self.system)?.map(|ran| (ran, cached)))
    }

    /// Reads some drives at once, each from its begin.
    fn together(
        &self,
        controller: Option<String>,
        members: Vec<usize>,
        tally: &mut Tally,
        found: &mut Found,
    ) -> Result<bool, Error> {
        let which = match &controller {
            Some(controller) => format!("all {} drives at {controller}", members.len()),
            None => format!("all {} drives", members.len()),
        };
        let id = controller.as_deref().unwrap_or("all").to_owned();
        let rates = vec![Vec::new(); members.len()];
        let mut group = Together { controller, drives: members, rates, busy: Vec::new() };
        for run in 0..self.wish.runs {
            let what = format!("{which} read at once, run {} of {}", run + 1, self.wish.runs);
            self.course.begin(&what, self.wish.time);
            let Some(ran) = self.at_once(&mut group)? else { return Ok(false) };
            let name = Name {
                id: format!("{id}/together-read-1m"),
                what: format!("{which} read at once"),
                group: "sequential".to_owned(),
                unit: Unit::Rate,
            };
            tally.add(name, &ran, None);
        }
        found.together.push(group);
        Ok(true)
    }

    fn at_once(&self, group: &mut Together) -> Result<Option<Ran>, Error> {
        let tasks: Vec<(&Drive, Task)> = (group.drives.iter())
            .filter_map(|index| self.drives.get(*index))
            .map(|drive| (drive, self.zone(drive, 0, Verb::Read)))
            .collect();
        let (began, busy) = (Instant::now(), Busy::now(self.system));
        let all: Vec<Result<Option<Ran>, Error>> = std::thread::scope(|scope| {
            let start = |(drive, task)| {
                scope.spawn(move || Task::run(task, drive, self.course, self.system))
            };
            let threads: Vec<_> = tasks.iter().map(|(drive, task)| start((*drive, task))).collect();
            // a thread that panicked has said so
            threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(None))).collect()
        });
        let time = began.elapsed();
        let busy = busy.and_then(|before| before.until(Busy::now(self.system)?));
        let mut sum = Ran { operations: 0, bytes: 0, time, histogram: Histogram::default(), busy };
        let mut rates = Vec::new();
        for ran in all {
            let Some(ran) = ran? else { return Ok(None) };
            rates.push(per_second(ran.bytes, ran.time));
            sum.operations += ran.operations;
            sum.bytes += ran.bytes;
            sum.histogram.merge(&ran.histogram);
        }
        group.busy.extend(busy);
        for (mine, rate) in group.rates.iter_mut().zip(rates) {
            mine.push(rate);
        }
        Ok(Some(sum))
    }
}

/// The zones that have a name: the others are in the picture only.
fn named(zone: usize, last: usize) -> Option<&'static str> {
    match zone {
        0 => Some("outer"),
        zone if zone == last => Some("inner"),
        zone if zone == last / 2 => Some("middle"),
        _ => None,
    }
}

fn sequential(drive: &Drive, verb: &str, end: &str, percent: usize) -> Name {
    Name {
        id: format!("{}/{verb}-1m-{end}", drive.name()),
        what: format!("{}: {verb} at {percent} %", drive.name()),
        group: "sequential".to_owned(),
        unit: Unit::Rate,
    }
}

fn operations(drive: &Drive, id: &str, what: String, verb: &str) -> Name {
    Name {
        id: format!("{}/{id}", drive.name()),
        what,
        group: format!("random {verb}"),
        unit: Unit::Operations,
    }
}

impl Found {
    /// For the result: the zones of each drive, and what those read together did.
    pub(super) fn facts(&self, drives: &[Drive]) -> Map<String, Value> {
        let zones: Vec<Value> = (self.zones.iter().zip(drives))
            .map(|(zones, drive)| {
                let last = float(zones.len().saturating_sub(1).max(1) as u64);
                let measured = zones.iter().enumerate().filter(|(_, runs)| !runs.is_empty());
                let points: Vec<[f64; 2]> = measured
                    .map(|(zone, runs)| [float(zone as u64) * 100.0 / last, mean(runs).round()])
                    .collect();
                json!({ "drive": drive.name(), "points": points })
            })
            .collect();
        let names = |group: &Together| {
            let members = group.drives.iter().filter_map(|index| drives.get(*index));
            members.map(|drive| drive.name().to_owned()).collect::<Vec<_>>()
        };
        let together: Vec<Value> = (self.together.iter())
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
