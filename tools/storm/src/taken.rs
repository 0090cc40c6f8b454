//! Pools that somebody else made: taken over, changed, and cut.
//!
//! What such a pool must hold is learnt from reading it: before it is taken over, and after each step
//! of what is done to it. After a cut it holds what one of two neighbouring steps has left, never less
//! than what was synced.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use device::{Device, Memory};
use engine::dataset::DatasetQuery;
use engine::files::{File, FileSystemReader, FileType, Time};
use engine::pool::{Environment, ImportOptions, OpenFileSystem, Pool, import_devices_with};
use engine::{OpenOptions, RescuePool};
use posix::{ChangeContext, Credentials, SetAttributes, WriteOffset};
use sim::Storm;
use units::ObjectId;

use crate::bytes::content;
use crate::cut::clean;
use crate::pool::world;

/// When changes are made, in seconds since 1970.
const NOW: i64 = 1_800_000_000;
/// Of a longer file so many bytes are looked at at its ends.
const ENDS: u64 = 4 << 20;

/// So many files of a file system are changed at most: all of a step has room in one group.
const MOST: usize = 600;

/// A file system: its paths, and what is there. None: what is no file system, or is locked.
type Seen = Option<BTreeMap<Vec<u8>, String>>;

/// What all file systems and snapshots hold.
type All = BTreeMap<String, Seen>;

/// A pool that was taken over and changed.
#[derive(Debug)]
pub struct Taken {
    name: String,
    storm: Storm,
    states: Vec<State>,
}

#[derive(Debug)]
struct State {
    /// How many requests there were when what led to it began,
    from: usize,
    /// and when it was done.
    to: usize,
    txg: u64,
    all: All,
}

impl Taken {
    /// Takes the pool on some drives over, changes it in two steps, and exports it; no more than `dirty`
    /// bytes wait for a group. None: it cannot be taken over, or not all is well with it.
    pub fn new(
        name: &str,
        drives: Vec<Memory>,
        seed: u64,
        dirty: u64,
    ) -> Result<Option<Self>, String> {
        let storm = Storm::from_memory(drives);
        let (name, devices) = (name.to_owned(), storm.devices());
        let mut taken = Self { name, storm, states: Vec::new() };
        if clean(&open(&devices, &taken.name)?).is_err() {
            return Ok(None);
        }
        taken.note(0)?;
        let how = ImportOptions::default();
        let world = Environment { max_dirty: dirty, ..world(seed) };
        let Ok(held) = import_devices_with(&devices, &taken.name, &how, &world) else {
            return Ok(None);
        };
        let said = |why: engine::Error| why.to_string();
        held.sync().map_err(said)?;
        taken.note(0)?;
        for all in [false, true] {
            let from = taken.storm.journal().len();
            change(&held, &taken.last().all, all, seed)?;
            held.sync().map_err(said)?;
            taken.note(from)?;
        }
        let from = taken.storm.journal().len();
        held.export().map_err(said)?;
        taken.note(from)?;
        Ok(Some(taken))
    }

    /// How many moments there are at which it can be cut.
    pub fn moments(&self) -> usize {
        self.storm.journal().len() + 1
    }

    /// How many of them are within its taking over, in which its intent logs are done again.
    pub fn beginning(&self) -> usize {
        self.states.get(1).map_or(0, |state| state.to) + 1
    }

    /// How many files there are less at the end than there were.
    pub fn removed(&self) -> usize {
        let count = |state: &State| state.all.values().flatten().map(BTreeMap::len).sum::<usize>();
        self.states.first().map_or(0, |first| count(first).saturating_sub(count(self.last())))
    }

    fn last(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    fn note(&mut self, from: usize) -> Result<(), String> {
        let pool = open(&self.storm.devices(), &self.name)?;
        let (to, txg) = (self.storm.journal().len(), pool.txg());
        self.states.push(State { from, to, txg, all: look(&pool)? });
        Ok(())
    }

    /// Cuts it at a moment, and judges what is found.
    pub fn cut(&self, at: usize, way: u64) -> Result<(), String> {
        let storm = Storm::from_memory(self.storm.journal().cut(at, way));
        self.judge(at, &storm, way).map_err(|why| format!("cut at {at}, way {way}: {why}"))
    }

    fn judge(&self, at: usize, storm: &Storm, way: u64) -> Result<(), String> {
        let devices = storm.devices();
        let pool = open(&devices, &self.name)?;
        let txg = pool.txg();
        let allowed = self.allowed(at, txg)?;
        let found = look(&pool)?;
        let wrong: Vec<String> =
            allowed.iter().filter_map(|state| difference(&state.all, &found)).collect();
        if wrong.len() == allowed.len() {
            return Err(format!("txg {txg}: {}", wrong.join("\nor ")));
        }
        clean(&pool).map_err(|why| format!("txg {txg}: {why}"))?;
        drop(pool);
        let how = ImportOptions { force: true, ..ImportOptions::default() };
        let held = import_devices_with(&devices, &self.name, &how, &world(way));
        let held = held.map_err(|why| format!("cannot be held: {why}"))?;
        if way.is_multiple_of(2) {
            change(&held, &found, way.is_multiple_of(4), way)?;
        }
        held.export().map_err(|why| format!("at its export: {why}"))?;
        clean(&open(&devices, &self.name)?).map_err(|why| format!("afterwards: {why}"))?;
        Ok(())
    }

    /// The states that a pool which is found at a txg after so many requests may be in.
    fn allowed(&self, at: usize, txg: u64) -> Result<&[State], String> {
        let least = self.states.iter().filter(|state| state.to <= at).map(|state| state.txg).max();
        if Some(txg) < least {
            return Err(format!("the pool is at txg {txg}, and {least:?} was there already"));
        }
        let by = self.states.iter().position(|state| state.txg >= txg);
        let by = by.ok_or_else(|| format!("txg {txg} was never written"))?;
        if self.states[by].from > at {
            return Err(format!("the pool is at txg {txg}, which was not begun yet"));
        }
        Ok(&self.states[by.saturating_sub(1)..=by])
    }
}

fn open(devices: &[Arc<dyn Device>], name: &str) -> Result<RescuePool, String> {
    let search = engine::search_devices(devices);
    search.open(name, &OpenOptions::default()).map_err(|why| format!("cannot be opened: {why}"))
}

/// Looks at all of a pool.
fn look(pool: &RescuePool) -> Result<All, String> {
    let mut names = Vec::new();
    let mut trouble = Vec::new();
    let wanted = DatasetQuery { properties: vec!["type".to_owned()], ..DatasetQuery::default() };
    let listed = pool.list_datasets(
        pool.name(),
        &wanted,
        &mut |dataset| names.push((dataset.name, dataset.kind)),
        &mut |event| trouble.push(format!("{event:?}")),
    );
    listed.map_err(|why| format!("datasets: {why}"))?;
    if !trouble.is_empty() {
        return Err(format!("datasets: {trouble:?}"));
    }
    let mut all = All::new();
    for (name, kind) in names {
        // what is there in part only is not shown as files, nor changed
        let is_whole = kind != "bookmark" && matches!(pool.incomplete_kind(&name), Ok(None));
        let files = is_whole.then(|| pool.open_filesystem(&name).ok()).flatten();
        let seen = match files {
            Some((_, log)) if log.error.is_some() => {
                return Err(format!("{name}: {:?}", log.error));
            }
            Some((files, _)) => Some(look_at(&files).map_err(|why| format!("{name}: {why}"))?),
            None => None,
        };
        all.insert(name, seen);
    }
    Ok(all)
}

fn look_at(files: &FileSystemReader) -> Result<BTreeMap<Vec<u8>, String>, engine::files::Error> {
    let mut seen = BTreeMap::new();
    let mut todo = vec![(Vec::new(), files.root()?)];
    while let Some((path, file)) = todo.pop() {
        if file.stat().is_directory() {
            for entry in files.read_dir_sorted(&file)? {
                let below = [&path, &b"/"[..], &entry.name].concat();
                todo.push((below, files.file(entry.ino)?));
            }
        }
        seen.insert(path, facts(&file)?);
    }
    Ok(seen)
}

/// What a file is and holds, but for its times, which the replay of a log sets.
fn facts(file: &File) -> Result<String, engine::files::Error> {
    let facts = file.stat();
    let mut sum = DefaultHasher::new();
    match facts.kind {
        FileType::File => {
            let ends = [0..facts.size.min(ENDS), facts.size.saturating_sub(ENDS)..facts.size];
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

fn difference(expected: &All, found: &All) -> Option<String> {
    let names = |all: &All| all.keys().cloned().collect::<Vec<_>>();
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

/// Deletes a third of the files, rewrites the midst of another and shortens the last; or deletes all.
/// What a quota forbids is left.
fn change(held: &Pool, now: &All, all: bool, seed: u64) -> Result<(), String> {
    for (set, seen) in now {
        let (Some(seen), false) = (seen, set.contains('@')) else { continue };
        let live = held.filesystem(set).map_err(|why| format!("{set}: {why}"))?;
        let files = seen.iter().filter(|(_, facts)| facts.starts_with("File"));
        for (index, (path, _)) in files.take(MOST).enumerate() {
            let way = if all { 0 } else { index % 3 };
            if let Err(why) = change_one(&live, path, way, seed)
                && !why.contains("OverQuota")
            {
                return Err(format!("{set}:{}: {why}", String::from_utf8_lossy(path)));
            }
        }
    }
    Ok(())
}

fn change_one(live: &OpenFileSystem, path: &[u8], way: usize, seed: u64) -> Result<(), String> {
    let now = Time { seconds: NOW, nanoseconds: 0 };
    let by = ChangeContext { credentials: Credentials::new(0, 0), now };
    let said = |why: engine::files::Error| format!("{why:?}");
    let find = |path: &[u8]| {
        let found = live.reader().find(path).map_err(said)?;
        found.ok_or_else(|| "it is not there".to_owned())
    };
    let file = find(path)?;
    let (id, size) = (ObjectId::new(file.ino()), file.stat().size);
    match way {
        0 => {
            let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            let (folder, name) = (find(&path[..slash])?, &path[slash + 1..]);
            live.unlink(&by, ObjectId::new(folder.ino()), name).map_err(said)
        }
        1 => {
            let bytes = content(seed, 20_000);
            live.write(&by, id, WriteOffset::At(size / 3), &bytes).map(drop).map_err(said)
        }
        _ => {
            let half = SetAttributes { size: Some(size / 2), ..SetAttributes::default() };
            live.set_attributes(&by, id, &half).map(drop).map_err(said)
        }
    }
}
