//! One cut: the drives as they could be found, and what must be true of the pool on them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use device::{Device, Memory};
use engine::check::{Findings, Verify};
use engine::dataset::Wanted;
use engine::held::Held;
use engine::{OpenOptions, Pool};

use crate::model::Model;
use crate::op::{Act, Op};
use crate::pool::{POOL, hold};
use crate::run::{Point, Run};
use crate::seen::{differences, look};
use crate::{Shape, Workload};

/// A moment of a run, and a way in which the drives could be found then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The pool.
    pub shape: Shape,
    /// What ran on it.
    pub workload: Workload,
    /// After how many requests to the drives.
    pub at: usize,
    /// Which way.
    pub way: u64,
}

/// What is wrong after a cut.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which cut.
    pub cut: Cut,
    /// What is wrong.
    pub why: String,
}

/// When changes are made after a cut, in seconds since 1970.
const LATER: i64 = 1_800_000_000;

impl Run {
    /// Cuts the run at a moment, and judges what is found.
    pub fn cut(&self, at: usize, way: u64) -> Result<(), Failure> {
        let drives = self.storm.journal().cut(at, way);
        self.judge(at, drives, way).map_err(|why| {
            let (shape, workload) = (self.shape, self.workload);
            Failure { cut: Cut { shape, workload, at, way }, why }
        })
    }

    fn judge(&self, at: usize, drives: Vec<Memory>, way: u64) -> Result<(), String> {
        let devices: Vec<Arc<dyn Device>> =
            drives.into_iter().map(|drive| Arc::new(drive) as Arc<dyn Device>).collect();
        let pool = open(&devices)?;
        let point = self.point(at, pool.txg())?;
        matches(&pool, &point.model)?;
        clean(&pool)?;
        drop(pool);
        let held = hold(&devices, way).map_err(|why| format!("cannot be held: {why}"))?;
        matches_held(&held, &point.model)?;
        if !way.is_multiple_of(4) {
            return Ok(());
        }
        let done = go_on(&held, &devices, &point.model);
        done.map_err(|why| format!("after txg {}: {why}", point.txg))
    }

    /// The point that the pool is at; it must be one of those that it may be at.
    fn point(&self, at: usize, txg: u64) -> Result<&Point, String> {
        let least = self.points.iter().filter(|point| point.to <= at).map(|point| point.txg).max();
        let found = self.points.iter().find(|point| point.txg == txg);
        let found = found.ok_or_else(|| format!("txg {txg} was never written"))?;
        if Some(txg) < least {
            return Err(format!("the pool is at txg {txg}, and {least:?} was there already"));
        }
        if found.from > at {
            return Err(format!("the pool is at txg {txg}, which was not begun yet"));
        }
        Ok(found)
    }
}

fn open(devices: &[Arc<dyn Device>]) -> Result<Pool, String> {
    let search = engine::search_on(devices);
    search.open(POOL, &OpenOptions::default()).map_err(|why| format!("cannot be opened: {why}"))
}

/// Whether the pool holds what it must, snapshots included.
fn matches(pool: &Pool, model: &Model) -> Result<(), String> {
    let expected = model.all();
    let mut found = Vec::new();
    let mut trouble = Vec::new();
    let wanted = Wanted { properties: vec!["type".to_owned()], ..Wanted::default() };
    let listed = pool.list(POOL, &wanted, &mut |dataset| found.push(dataset.name), &mut |event| {
        trouble.push(format!("{event:?}"))
    });
    listed.map_err(|why| format!("datasets: {why}"))?;
    found.sort_unstable();
    let names: Vec<&String> = expected.keys().collect();
    if !trouble.is_empty() || found.iter().ne(names.iter().copied()) {
        return Err(format!("datasets: {found:?} instead of {names:?}; {trouble:?}"));
    }
    for (name, tree) in expected {
        let (files, log) = pool.files(&name).map_err(|why| format!("{name}: {why}"))?;
        if let Some(trouble) = log.trouble {
            return Err(format!("{name}: {trouble}"));
        }
        let seen = look(&files).map_err(|why| format!("{name}: {why}"))?;
        if let Some(wrong) = differences(&tree.seen(), &seen) {
            return Err(format!("{name}:\n  {wrong}"));
        }
    }
    Ok(())
}

/// Whether the pool that is held shows what it must.
fn matches_held(held: &Held, model: &Model) -> Result<(), String> {
    for (name, set) in &model.sets {
        let live = held.files(name).map_err(|why| format!("{name}, held: {why}"))?;
        let seen = look(live.files()).map_err(|why| format!("{name}, held: {why}"))?;
        if let Some(wrong) = differences(&set.tree.seen(), &seen) {
            return Err(format!("{name}, held:\n  {wrong}"));
        }
    }
    Ok(())
}

/// Whether the examiner finds nothing wrong.
fn clean(pool: &Pool) -> Result<(), String> {
    let verify = Verify::new(pool, Arc::default()).map_err(|why| why.to_string())?;
    verify.work();
    while verify.next_round() {
        verify.work();
    }
    let findings = verify.findings();
    if findings.clean && findings.complete { Ok(()) } else { Err(faults(&findings)) }
}

fn faults(findings: &Findings) -> String {
    let notes = findings.notes.iter().filter(|note| note.is_fault).map(|note| note.what.clone());
    let mut wrong: Vec<String> = notes.collect();
    wrong.extend(findings.damaged.iter().map(|damaged| format!("{damaged:?}")));
    let off = |space: &&engine::check::Space| {
        space.leaked_bytes + space.unallocated_bytes + space.contradicting_bytes > 0
    };
    wrong.extend(findings.space.iter().filter(off).map(|space| format!("{space:?}")));
    if wrong.is_empty() {
        wrong.push(format!("{findings:?}"));
    }
    format!("check: {}", wrong.join("\n  "))
}

/// Whether the pool can be changed after the cut.
fn go_on(held: &Held, devices: &[Arc<dyn Device>], model: &Model) -> Result<(), String> {
    let mut model = model.clone();
    let set = POOL.to_owned();
    let path = "after the storm".to_owned();
    let acts = [Act::Create { path: path.clone() }, Act::Append { path, length: 50_000, seed: 3 }];
    for (now, act) in (LATER..).zip(acts) {
        let op = Op::File { set: set.clone(), act };
        op.pool(held, now).map_err(|why| format!("afterwards: {why}"))?;
        op.model(&mut model, now);
    }
    held.sync().map_err(|why| format!("afterwards: {why}"))?;
    let right = |when: &str| {
        let pool = open(devices).map_err(|why| format!("{when}: {why}"))?;
        let right = matches(&pool, &model).and_then(|()| clean(&pool));
        right.map_err(|why| format!("{when}: {why}"))
    };
    right("afterwards")?;
    held.export().map_err(|why| format!("at its export: {why}"))?;
    right("exported")
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.shape, self.workload, self.at, self.way)
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let [shape, workload, at, way] = parts[..] else {
            return Err(format!("'{text}' is not SHAPE:WORKLOAD:AT:WAY"));
        };
        let number = |text: &str| text.parse::<u64>().map_err(|why| format!("'{text}': {why}"));
        Ok(Self {
            shape: shape.parse()?,
            workload: workload.parse()?,
            at: usize::try_from(number(at)?).unwrap_or(usize::MAX),
            way: number(way)?,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  (POOLHOUSE_STORM={} does it again)", self.why, self.cut)
    }
}
