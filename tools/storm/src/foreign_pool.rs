//! Pools of other systems: imported, changed, and cut.
//!
//! The expected content of such a pool is read from it: before the import, and after each step
//! of its changes. After a cut it equals the state after one of two neighbouring steps, never older
//! than the last sync.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use device::{Device, MemoryDevice};
use engine::dataset::DatasetQuery;
use engine::files::{File, FileSystemReader, FileType, Time};
use engine::pool::{Environment, ImportOptions, OpenFileSystem, Pool, import_devices_with};
use engine::{OpenOptions, RescuePool};
use posix::{ChangeContext, Credentials, SetAttributes, WriteOffset};
use sim::DiskArray;
use units::ObjectId;

use crate::content::generate_content;
use crate::pool::environment;
use crate::power_cut::verify_pool;

/// When changes are made, in seconds since 1970.
const CHANGE_TIME: i64 = 1_800_000_000;
/// The bytes compared at each end of a longer file.
const END_BYTES: u64 = 4 << 20;

/// The most files of a file system that are changed: all of a step fits in one txg.
const MAX_CHANGED_FILES: usize = 600;

/// A file system: its paths, and their states. None: another dataset type, or locked.
type FilesystemContents = Option<BTreeMap<Vec<u8>, String>>;

/// The content of all file systems and snapshots.
type PoolContents = BTreeMap<String, FilesystemContents>;

/// A pool that was imported and changed.
#[derive(Debug)]
pub struct ForeignPool {
    name: String,
    array: DiskArray,
    states: Vec<RecordedState>,
}

#[derive(Debug)]
struct RecordedState {
    /// How many requests there were when what led to it began,
    requests_before: usize,
    /// and when it was done.
    requests_after: usize,
    txg: u64,
    contents: PoolContents,
}

impl ForeignPool {
    /// Imports the pool on some drives, changes it in two steps, and exports it; at most `dirty`
    /// bytes are dirty. None: it cannot be imported, or is not healthy.
    pub fn new(
        name: &str,
        drives: Vec<MemoryDevice>,
        seed: u64,
        dirty: u64,
    ) -> Result<Option<Self>, String> {
        let storm = DiskArray::from_memory(drives);
        let (name, devices) = (name.to_owned(), storm.devices());
        let mut taken = Self { name, array: storm, states: Vec::new() };
        if verify_pool(&open_pool(&devices, &taken.name)?).is_err() {
            return Ok(None);
        }
        taken.record_state(0)?;
        let how = ImportOptions::default();
        let world = Environment { max_dirty: dirty, ..environment(seed) };
        let Ok(held) = import_devices_with(&devices, &taken.name, &how, &world) else {
            return Ok(None);
        };
        let said = |error: engine::Error| error.to_string();
        held.sync().map_err(said)?;
        taken.record_state(0)?;
        for all in [false, true] {
            let from = taken.array.journal().len();
            change_pool(&held, &taken.last_state().contents, all, seed)?;
            held.sync().map_err(said)?;
            taken.record_state(from)?;
        }
        let from = taken.array.journal().len();
        held.export().map_err(said)?;
        taken.record_state(from)?;
        Ok(Some(taken))
    }

    /// How many moments there are at which it can be cut.
    pub fn cut_point_count(&self) -> usize {
        self.array.journal().len() + 1
    }

    /// How many of them are within its taking over, in which its intent logs are done again.
    pub fn import_cut_point_count(&self) -> usize {
        self.states.get(1).map_or(0, |state| state.requests_after) + 1
    }

    /// How many files there are less at the end than there were.
    pub fn removed_file_count(&self) -> usize {
        let count = |state: &RecordedState| {
            state.contents.values().flatten().map(BTreeMap::len).sum::<usize>()
        };
        self.states.first().map_or(0, |first| count(first).saturating_sub(count(self.last_state())))
    }

    fn last_state(&self) -> &RecordedState {
        &self.states[self.states.len() - 1]
    }

    fn record_state(&mut self, from: usize) -> Result<(), String> {
        let pool = open_pool(&self.array.devices(), &self.name)?;
        let (to, txg) = (self.array.journal().len(), pool.txg());
        self.states.push(RecordedState {
            requests_before: from,
            requests_after: to,
            txg,
            contents: read_pool(&pool)?,
        });
        Ok(())
    }

    /// Cuts it at a moment, and checks the result.
    pub fn verify_power_cut(&self, at: usize, way: u64) -> Result<(), String> {
        let storm = DiskArray::from_memory(self.array.journal().cut_power(at, way));
        self.verify_devices(at, &storm, way).map_err(|why| format!("cut at {at}, way {way}: {why}"))
    }

    fn verify_devices(&self, at: usize, storm: &DiskArray, way: u64) -> Result<(), String> {
        let devices = storm.devices();
        let pool = open_pool(&devices, &self.name)?;
        let txg = pool.txg();
        let allowed = self.allowed_states(at, txg)?;
        let found = read_pool(&pool)?;
        let wrong: Vec<String> = allowed
            .iter()
            .filter_map(|state| describe_difference(&state.contents, &found))
            .collect();
        if wrong.len() == allowed.len() {
            return Err(format!("txg {txg}: {}", wrong.join("\nor ")));
        }
        verify_pool(&pool).map_err(|why| format!("txg {txg}: {why}"))?;
        drop(pool);
        let how = ImportOptions { force: true, ..ImportOptions::default() };
        let held = import_devices_with(&devices, &self.name, &how, &environment(way));
        let held = held.map_err(|error| format!("cannot be held: {error}"))?;
        if way.is_multiple_of(2) {
            change_pool(&held, &found, way.is_multiple_of(4), way)?;
        }
        held.export().map_err(|error| format!("at its export: {error}"))?;
        verify_pool(&open_pool(&devices, &self.name)?)
            .map_err(|why| format!("afterwards: {why}"))?;
        Ok(())
    }

    /// The possible states of a pool found at a txg after this many requests.
    fn allowed_states(&self, at: usize, txg: u64) -> Result<&[RecordedState], String> {
        let least = self
            .states
            .iter()
            .filter(|state| state.requests_after <= at)
            .map(|state| state.txg)
            .max();
        if Some(txg) < least {
            return Err(format!("the pool is at txg {txg}, and {least:?} was there already"));
        }
        let by = self.states.iter().position(|state| state.txg >= txg);
        let by = by.ok_or_else(|| format!("txg {txg} was never written"))?;
        if self.states[by].requests_before > at {
            return Err(format!("the pool is at txg {txg}, which was not begun yet"));
        }
        Ok(&self.states[by.saturating_sub(1)..=by])
    }
}

fn open_pool(devices: &[Arc<dyn Device>], name: &str) -> Result<RescuePool, String> {
    let search = engine::search_devices(devices);
    search.open(name, &OpenOptions::default()).map_err(|error| format!("cannot be opened: {error}"))
}

/// Looks at all of a pool.
fn read_pool(pool: &RescuePool) -> Result<PoolContents, String> {
    let mut names = Vec::new();
    let mut trouble = Vec::new();
    let wanted = DatasetQuery { properties: vec!["type".to_owned()], ..DatasetQuery::default() };
    let listed = pool.list_datasets(
        pool.name(),
        &wanted,
        &mut |dataset| names.push((dataset.name, dataset.kind)),
        &mut |event| trouble.push(format!("{event:?}")),
    );
    listed.map_err(|error| format!("datasets: {error}"))?;
    if !trouble.is_empty() {
        return Err(format!("datasets: {trouble:?}"));
    }
    let mut all = PoolContents::new();
    for (name, kind) in names {
        // an incomplete dataset is neither shown as files nor changed
        let is_whole = kind != "bookmark" && matches!(pool.incomplete_kind(&name), Ok(None));
        let files = is_whole.then(|| pool.open_filesystem(&name).ok()).flatten();
        let seen = match files {
            Some((_, log)) if log.error.is_some() => {
                return Err(format!("{name}: {:?}", log.error));
            }
            Some((files, _)) => {
                Some(read_filesystem(&files).map_err(|error| format!("{name}: {error}"))?)
            }
            None => None,
        };
        all.insert(name, seen);
    }
    Ok(all)
}

fn read_filesystem(
    files: &FileSystemReader,
) -> Result<BTreeMap<Vec<u8>, String>, engine::files::Error> {
    let mut seen = BTreeMap::new();
    let mut todo = vec![(Vec::new(), files.root()?)];
    while let Some((path, file)) = todo.pop() {
        if file.stat().is_directory() {
            for entry in files.read_dir_sorted(&file)? {
                let below = [&path, &b"/"[..], &entry.name].concat();
                todo.push((below, files.file(entry.ino)?));
            }
        }
        seen.insert(path, describe_file(&file)?);
    }
    Ok(seen)
}

/// The type and content of a file without its times, which the replay of a log sets.
fn describe_file(file: &File) -> Result<String, engine::files::Error> {
    let facts = file.stat();
    let mut sum = DefaultHasher::new();
    match facts.kind {
        FileType::File => {
            let ends =
                [0..facts.size.min(END_BYTES), facts.size.saturating_sub(END_BYTES)..facts.size];
            for end in ends {
                let length = usize::try_from(end.end - end.start).unwrap_or(0);
                let mut bytes = vec![0; length];
                file.content().read(end.start, &mut bytes)?;
                bytes.hash(&mut sum);
            }
        }
        FileType::Symlink => file.read_link()?.hash(&mut sum),
        _ => {}
    }
    file.xattrs()?.hash(&mut sum);
    let (kind, size, mode, links) = (facts.kind, facts.size, facts.mode, facts.nlink);
    let size = if facts.is_directory() { 0 } else { size };
    Ok(format!("{kind:?} {size} {mode:o} {links} {} {:x}", facts.uid, sum.finish()))
}

fn describe_difference(expected: &PoolContents, found: &PoolContents) -> Option<String> {
    let names = |all: &PoolContents| all.keys().cloned().collect::<Vec<_>>();
    if names(expected) != names(found) {
        return Some(format!("{:?} instead of {:?}", names(found), names(expected)));
    }
    let (set, (expected, found)) = expected
        .iter()
        .map(|(set, seen)| (set, (seen, &found[set])))
        .find(|(_, (expected, found))| expected != found)?;
    let (Some(expected), Some(found)) = (expected, found) else {
        return Some(format!("{set} can be read, or not, unlike before"));
    };
    let paths = expected.keys().chain(found.keys());
    let path = paths.into_iter().find(|path| expected.get(*path) != found.get(*path))?;
    let name = String::from_utf8_lossy(path);
    Some(format!("{set}:{name} is {:?} instead of {:?}", found.get(path), expected.get(path)))
}

/// Deletes a third of the files, overwrites the middle of another and truncates the last; or
/// deletes all. Changes that a quota forbids are skipped.
fn change_pool(pool: &Pool, now: &PoolContents, all: bool, seed: u64) -> Result<(), String> {
    for (set, seen) in now {
        let (Some(seen), false) = (seen, set.contains('@')) else { continue };
        let fs = pool.datasets().filesystem(set).map_err(|error| format!("{set}: {error}"))?;
        let files = seen.iter().filter(|(_, facts)| facts.starts_with("File"));
        for (index, (path, _)) in files.take(MAX_CHANGED_FILES).enumerate() {
            let way = if all { 0 } else { index % 3 };
            if let Err(why) = change_file(&fs, path, way, seed)
                && !why.contains("OverQuota")
            {
                return Err(format!("{set}:{}: {why}", String::from_utf8_lossy(path)));
            }
        }
    }
    Ok(())
}

fn change_file(fs: &OpenFileSystem, path: &[u8], way: usize, seed: u64) -> Result<(), String> {
    let now = Time { seconds: CHANGE_TIME, nanoseconds: 0 };
    let credentials = ChangeContext { credentials: Credentials::new(0, 0), now };
    let said = |error: engine::files::Error| format!("{error:?}");
    let find = |path: &[u8]| {
        let found = fs.reader().find(path).map_err(said)?;
        found.ok_or_else(|| "it is not there".to_owned())
    };
    let file = find(path)?;
    let (id, size) = (ObjectId::new(file.ino()), file.stat().size);
    match way {
        0 => {
            let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            let (folder, name) = (find(&path[..slash])?, &path[slash + 1..]);
            fs.unlink(&credentials, ObjectId::new(folder.ino()), name).map_err(said)
        }
        1 => {
            let bytes = generate_content(seed, 20_000);
            fs.write(&credentials, id, WriteOffset::At(size / 3), &bytes).map(drop).map_err(said)
        }
        _ => {
            let half = SetAttributes { size: Some(size / 2), ..SetAttributes::default() };
            fs.set_attributes(&credentials, id, &half).map(drop).map_err(said)
        }
    }
}
