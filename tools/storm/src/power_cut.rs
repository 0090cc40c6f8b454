//! One cut: the possible content of the drives, and the checks of the pool on them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use device::{Device, MemoryDevice};
use engine::check::{Findings, PoolVerifier};
use engine::dataset::DatasetQuery;
use engine::pool::{Pool, Rewind};
use engine::{OpenOptions, RescuePool};
use sim::{DiskArray, Random};

use crate::file_state::{differences, read_file_states};
use crate::model::{DatasetModel, Model};
use crate::op::{FileOp, Op};
use crate::pool::{POOL, import_pool, import_rewound_pool};
use crate::run::{AllowedState, Run};
use crate::{PoolLayout, Workload};

/// A moment of a run, and a way in which the drives could be found then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// The pool.
    pub layout: PoolLayout,
    /// The run.
    pub workload: Workload,
    /// After how many requests to the drives.
    pub after_requests: usize,
    /// Which way.
    pub seed: u64,
}

/// A failed check after a cut.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which cut.
    pub cut: PowerCut,
    /// The error.
    pub reason: String,
}

/// When changes are made after a cut, in seconds since 1970.
const TIME_AFTER_CUT: i64 = 1_800_000_000;

impl Run {
    /// Cuts the run at a moment, and checks the result.
    pub fn verify_power_cut(&self, at: usize, way: u64) -> Result<(), Failure> {
        let drives = self.array.journal().cut_power(at, way);
        self.verify_devices(at, drives, way).map(drop).map_err(|why| {
            let (shape, workload) = (self.layout, self.workload);
            Failure {
                cut: PowerCut { layout: shape, workload, after_requests: at, seed: way },
                reason: why,
            }
        })
    }

    /// Checks the pool on these of the drives after the whole run, without faults.
    /// Returns the number of blocks of which drives are known to lack a part.
    pub fn verify_final_state(&self, drives: &[usize]) -> Result<u64, String> {
        let disks = self.array.disks();
        let found = drives.iter().map(|index| disks[*index].memory()).collect();
        self.verify_devices(self.array.journal().len(), found, 0)
    }

    /// Rewinds the pool by this many txgs after the whole run, and checks its state, and
    /// that it works on from there. False if there are not that many.
    pub fn verify_rewind(&self, groups: u64, way: u64) -> Result<bool, String> {
        let drives = self.array.disks().iter().map(|disk| disk.memory()).collect();
        let storm = DiskArray::from_memory(drives);
        let devices = storm.devices();
        let newest = open_pool(&devices)?.txg();
        let txg = newest.saturating_sub(groups);
        let states = self.models_at_txg(txg);
        if states.is_empty() {
            return Ok(false);
        }
        let held = import_rewound_pool(&devices, Rewind::Txg(txg), way)?;
        if held.rewind_target().map(|rewound| rewound.txg) != Some(txg) {
            return Err(format!("it is not at txg {txg}: {:?}", held.rewind_target()));
        }
        let mut wrong = Vec::new();
        let found = states
            .into_iter()
            .map(|model| KnownState { model: model.clone(), are_times_known: true });
        let mut found = found.filter(|found| {
            compare_imported_pool(&held, found).map_err(|why| wrong.push(why)).is_ok()
        });
        let found = found.next();
        let Some(found) = found else { return Err(format!("txg {txg}: {}", wrong.join("\nor "))) };
        let last = self.steps.last().map(|step| &step.model).ok_or("nothing was done")?;
        let newest = KnownState { model: last.clone(), are_times_known: true }.into_allowed();
        let done = verify_further_use(&held, &storm, (found, Some(&newest)), way);
        done.map_err(|why| format!("after it was rewound to txg {txg}: {why}"))?;
        Ok(true)
    }

    fn verify_devices(
        &self,
        at: usize,
        drives: Vec<MemoryDevice>,
        way: u64,
    ) -> Result<u64, String> {
        let storm = DiskArray::from_memory(drives);
        let devices = storm.devices();
        let pool = open_pool(&devices)?;
        let (txg, mut wrong) = (pool.txg(), Vec::new());
        let mut found = None;
        for allowed in self.allowed_states(at, txg)? {
            match compare_rescue_pool(&pool, &allowed) {
                Ok(model) => found = Some(model),
                Err(why) => wrong.push(why),
            }
        }
        let Some(found) = found else { return Err(format!("txg {txg}: {}", wrong.join("\nor "))) };
        let stale = verify_pool(&pool).map_err(|why| format!("txg {txg}: {why}"))?;
        drop(pool);
        let held =
            import_pool(&devices, way).map_err(|why| format!("cannot be imported: {why}"))?;
        compare_imported_pool(&held, &found).map_err(|why| format!("txg {txg}: {why}"))?;
        if !way.is_multiple_of(4) {
            return Ok(stale);
        }
        let done = verify_further_use(&held, &storm, (found, None), way);
        done.map(|()| stale).map_err(|why| format!("after txg {txg}: {why}"))
    }
}

/// The content of a pool, as far as it is known.
struct KnownState {
    model: Model,
    /// Whether the times of files are known.
    are_times_known: bool,
}

fn open_pool(devices: &[Arc<dyn Device>]) -> Result<RescuePool, String> {
    let search = engine::search_devices(devices);
    search.open(POOL, &OpenOptions::default()).map_err(|error| format!("cannot be opened: {error}"))
}

/// Whether the pool has an expected state, snapshots included; returns which one.
fn compare_rescue_pool(pool: &RescuePool, allowed: &AllowedState) -> Result<KnownState, String> {
    let expected = allowed.model.all_trees();
    let mut found = Vec::new();
    let mut trouble = Vec::new();
    let wanted = DatasetQuery { properties: vec!["type".to_owned()], ..DatasetQuery::default() };
    let listed =
        pool.list_datasets(POOL, &wanted, &mut |dataset| found.push(dataset.name), &mut |event| {
            trouble.push(format!("{event:?}"));
        });
    listed.map_err(|error| format!("datasets: {error}"))?;
    found.sort_unstable();
    let names: Vec<&String> = expected.keys().collect();
    if !trouble.is_empty() || found.iter().ne(names.iter().copied()) {
        return Err(format!("datasets: {found:?} instead of {names:?}; {trouble:?}"));
    }
    let mut found = KnownState { model: allowed.model.clone(), are_times_known: true };
    for (name, tree) in expected {
        let (files, log) =
            pool.open_filesystem(&name).map_err(|error| format!("{name}: {error}"))?;
        if let Some(trouble) = log.error {
            return Err(format!("{name}: {trouble}"));
        }
        let seen = read_file_states(&files).map_err(|why| format!("{name}: {why}"))?;
        let alone = [(Arc::clone(tree), true)];
        let choices = allowed.heads.get(&name).map_or(&alone[..], Vec::as_slice);
        let mut wrong = Vec::new();
        let right = choices.iter().find(|(tree, times)| {
            let wrongs = differences(&tree.file_states(), &seen, *times);
            wrong.extend(wrongs.clone());
            wrongs.is_none()
        });
        let Some((tree, times)) = right else {
            return Err(format!("{name}:\n  {}", wrong.join("\n or\n  ")));
        };
        if allowed.heads.contains_key(&name) {
            found.model.dataset_mut(&name).tree = Arc::clone(tree);
        }
        found.are_times_known &= times;
    }
    Ok(found)
}

/// Whether the imported pool shows the expected state.
fn compare_imported_pool(held: &Pool, expected: &KnownState) -> Result<(), String> {
    for (name, set) in &expected.model.datasets {
        let fs = held
            .datasets()
            .filesystem(name)
            .map_err(|error| format!("{name}, imported: {error}"))?;
        let seen =
            read_file_states(fs.reader()).map_err(|why| format!("{name}, imported: {why}"))?;
        if let Some(wrong) = differences(&set.tree.file_states(), &seen, expected.are_times_known) {
            return Err(format!("{name}, imported:\n  {wrong}"));
        }
    }
    Ok(())
}

/// Whether the examiner finds nothing wrong. Gives of how many blocks drives are known to lack a
/// part.
pub(crate) fn verify_pool(pool: &RescuePool) -> Result<u64, String> {
    let verify = PoolVerifier::new(pool, Arc::default()).map_err(|error| error.to_string())?;
    verify.work();
    while verify.next_round() {
        verify.work();
    }
    let findings = verify.findings();
    let stale = findings.devices.iter().map(|device| device.stale).sum();
    if findings.clean && findings.complete { Ok(stale) } else { Err(describe_findings(&findings)) }
}

fn describe_findings(findings: &Findings) -> String {
    let notes = findings.notes.iter().filter(|note| note.is_fault).map(|note| note.what.clone());
    let mut wrong: Vec<String> = notes.collect();
    wrong.extend(findings.damaged.iter().map(|damaged| format!("{damaged:?}")));
    let off = |space: &&engine::check::VdevSpaceReport| {
        space.leaked_bytes + space.unallocated_bytes + space.contradicting_bytes > 0
    };
    wrong.extend(findings.space.iter().filter(off).map(|space| format!("{space:?}")));
    if wrong.is_empty() {
        wrong.push(format!("{findings:?}"));
    }
    format!("check: {}", wrong.join("\n  "))
}

/// Whether the pool can be changed after the cut, with another power failure meanwhile. The content
/// of the drives before is `newest`, if the pool was rewound from there.
fn verify_further_use(
    held: &Pool,
    storm: &DiskArray,
    (before, newest): (KnownState, Option<&AllowedState>),
    way: u64,
) -> Result<(), String> {
    let mut after = before.model.clone();
    let set = POOL.to_owned();
    let path = "after the storm".to_owned();
    let acts =
        [FileOp::Create { path: path.clone() }, FileOp::Append { path, length: 50_000, seed: 3 }];
    for (now, act) in (TIME_AFTER_CUT..).zip(acts) {
        let op = Op::File { dataset: set.clone(), op: act };
        op.apply_to_pool(held, now).map_err(|why| format!("afterwards: {why}"))?;
        op.apply_to_model(&mut after, now);
    }
    held.sync().map_err(|error| format!("afterwards: {error}"))?;
    let synced = storm.journal().len();
    let times = before.are_times_known;
    let (before, after) =
        (before.into_allowed(), KnownState { model: after, are_times_known: times }.into_allowed());
    verify_allowed_states(&storm.devices(), &[&after])
        .map_err(|why| format!("afterwards: {why}"))?;
    held.export().map_err(|error| format!("at its export: {error}"))?;
    verify_allowed_states(&storm.devices(), &[&after]).map_err(|why| format!("exported: {why}"))?;
    let at = usize::try_from(Random::new(way).next_below(storm.journal().len() as u64 + 1));
    let at = at.unwrap_or(0);
    let drives = storm.journal().cut_power(at, way / 4);
    let devices: Vec<Arc<dyn Device>> =
        drives.into_iter().map(|drive| Arc::new(drive) as Arc<dyn Device>).collect();
    let mut may_be = vec![&after];
    if at < synced {
        may_be.push(&before);
        may_be.extend(newest);
    }
    verify_allowed_states(&devices, &may_be).map_err(|why| format!("cut again after {at}: {why}"))
}

impl KnownState {
    /// Just that.
    fn into_allowed(self) -> AllowedState {
        let head = |(name, set): (&String, &DatasetModel)| {
            (name.clone(), vec![(Arc::clone(&set.tree), self.are_times_known)])
        };
        let heads = self.model.datasets.iter().map(head).collect();
        AllowedState { heads, model: self.model }
    }
}

/// Whether the pool on these devices holds one of these, and nothing is wrong with it.
fn verify_allowed_states(
    devices: &[Arc<dyn Device>],
    allowed: &[&AllowedState],
) -> Result<(), String> {
    let pool = open_pool(devices)?;
    let mut wrong = Vec::new();
    if allowed
        .iter()
        .any(|each| compare_rescue_pool(&pool, each).map_err(|why| wrong.push(why)).is_ok())
    {
        return verify_pool(&pool).map(drop);
    }
    Err(wrong.join("\nor "))
}

impl fmt::Display for PowerCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.layout, self.workload, self.after_requests, self.seed)
    }
}

impl FromStr for PowerCut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let [shape, workload, at, way] = parts[..] else {
            return Err(format!("'{text}' is not SHAPE:WORKLOAD:AT:WAY"));
        };
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("'{text}': {error}"));
        Ok(Self {
            layout: shape.parse()?,
            workload: workload.parse()?,
            after_requests: usize::try_from(number(at)?).unwrap_or(usize::MAX),
            seed: number(way)?,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  (POOLHOUSE_STORM={} does it again)", self.reason, self.cut)
    }
}
