//! The history of a drive: samples of its counters, and what its owner noted.
//!
//! A drive has one JSON file, named after its serial number. It holds at most [`MAX_SAMPLES`]
//! samples: those of the last two days, and of each earlier day the last one. The file is replaced
//! whole, so that a power cut leaves the old or the new one.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Counter, Grade};

/// The most samples of a drive: two days of samples, and two years of days.
pub const MAX_SAMPLES: usize = 800;
/// The seconds of a day.
pub(crate) const DAY: u64 = 24 * 60 * 60;
/// The age in seconds after which a day keeps one sample.
const FULL_DETAIL: u64 = 2 * DAY;
/// The shortest time in seconds between two samples with equal counters.
const MIN_INTERVAL: u64 = 60 * 60;
/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// The counters of a drive at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since 1970.
    pub time: u64,
    /// The temperature in degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<i64>,
    /// The counters.
    pub counters: BTreeMap<Counter, u64>,
}

/// A finding that the owner knows of. It counts again when it gets worse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The value that the owner knows.
    pub value: u64,
    /// The grade that the owner knows.
    pub grade: Grade,
    /// When it was noted, in seconds since 1970.
    pub time: u64,
}

/// The history of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The samples, the oldest first.
    pub samples: Vec<Sample>,
    /// The notes, by the key of the finding.
    #[serde(default)]
    pub notes: BTreeMap<String, Note>,
    /// When the schedule started the last self-test of each kind, in seconds since 1970.
    #[serde(default)]
    pub self_tests: BTreeMap<String, u64>,
}

/// The change of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The value at the beginning.
    pub(crate) from: u64,
    /// Seconds between the sample with that value and now.
    pub(crate) age: u64,
}

impl History {
    /// Adds a sample. Equal counters are stored once an hour. Returns whether something was stored.
    pub fn add(&mut self, sample: Sample) -> bool {
        if let Some(last) = self.samples.last() {
            let is_new = last.counters != sample.counters;
            let is_due = last.time.checked_add(MIN_INTERVAL).is_none_or(|due| sample.time >= due);
            // the clock was set back: the samples of the future would stay last forever
            if sample.time < last.time {
                self.samples.retain(|old| old.time < sample.time);
            } else if !is_new && !is_due {
                return false;
            }
        }
        let now = sample.time;
        self.samples.push(sample);
        self.thin(now);
        true
    }

    /// Removes the samples that are more than the file may hold.
    fn thin(&mut self, now: u64) {
        let days: Vec<u64> = self.samples.iter().map(|sample| sample.time / DAY).collect();
        let mut at = 0;
        self.samples.retain(|sample| {
            let is_last_of_day = days.get(at + 1) != days.get(at);
            at += 1;
            is_last_of_day || now - sample.time < FULL_DETAIL
        });
        let surplus = self.samples.len().checked_sub(MAX_SAMPLES);
        self.samples.drain(..surplus.unwrap_or(0));
    }

    /// The value of a counter about `window` seconds ago; of the oldest sample if the history is shorter.
    pub(crate) fn change(&self, counter: Counter, now: u64, window: u64) -> Option<Change> {
        let with_counter = || {
            let of = |sample: &Sample| Some((sample.time, *sample.counters.get(&counter)?));
            self.samples.iter().filter_map(of).filter(|(time, _)| *time <= now)
        };
        let before = with_counter().rfind(|(time, _)| now - time >= window);
        let (time, from) = before.or_else(|| with_counter().next())?;
        Some(Change { from, age: now - time })
    }
}

/// Why the history of a drive cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the history of a drive, '{path}', cannot be used: {why}")]
pub struct StoreError {
    /// The file.
    pub path: PathBuf,
    /// The system's reason.
    pub why: std::io::Error,
}

/// The histories of all drives: one file each in a directory of the daemon.
#[derive(Clone, Debug)]
pub struct HistoryStore {
    dir: PathBuf,
}

impl HistoryStore {
    /// The store in a directory, which is created when the first history is saved.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The history of a drive. Of a drive without a file it is empty. A file that is damaged is an error, and
    /// stays where it is.
    pub fn load(&self, drive: &str) -> Result<History, StoreError> {
        let path = self.path(drive);
        let failed = |why| StoreError { path: path.clone(), why };
        let length = match fs::metadata(&path) {
            Ok(facts) => facts.len(),
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(History::default()),
            Err(why) => return Err(failed(why)),
        };
        if length > MAX_FILE {
            return Err(failed(std::io::Error::other("it is longer than a history can be")));
        }
        let bytes = fs::read(&path).map_err(failed)?;
        let mut history: History =
            serde_json::from_slice(&bytes).map_err(|why| failed(why.into()))?;
        history.samples.sort_by_key(|sample| sample.time);
        Ok(history)
    }

    /// Saves the history of a drive.
    pub fn save(&self, drive: &str, history: &History) -> Result<(), StoreError> {
        let path = self.path(drive);
        let failed = |why| StoreError { path: path.clone(), why };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(failed)?;
        let bytes = serde_json::to_vec(history).map_err(|why| failed(why.into()))?;
        replace(&path, &bytes).map_err(failed)
    }

    fn path(&self, drive: &str) -> PathBuf {
        self.dir.join(drive_file_name(drive))
    }
}

/// The name of the file about a drive. Serial numbers come from drives: only letters and digits of them stand for
/// themselves.
pub fn drive_file_name(drive: &str) -> String {
    let mut name = String::new();
    for byte in drive.bytes().take(100) {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' => name.push(char::from(byte)),
            other => name.push_str(&format!("_{other:02x}")),
        }
    }
    name.push_str(".json");
    name
}

fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}
