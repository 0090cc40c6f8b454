//! A result: the subject, the machine, the options and the figures. The JSON files hold this.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::drive_info::DriveInfo;
use crate::histogram::Latency;
use crate::machine::Machine;
use crate::statistics::Summary;

/// The form that this version writes; others are refused.
pub const FORMAT_VERSION: u32 = 1;

/// The kind of the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BenchKind {
    /// A folder: any file system or mount.
    Path,
    /// Drives.
    Disk,
    /// The network between two machines.
    Net,
    /// Ways to copy.
    Copy,
    /// Drives in a layout.
    Array,
}

impl BenchKind {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Disk => "disk",
            Self::Net => "net",
            Self::Copy => "copy",
            Self::Array => "array",
        }
    }

    /// As a title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Path => "Speed",
            Self::Disk => "Speed of drives",
            Self::Net => "Speed of the network",
            Self::Copy => "Ways to copy",
            Self::Array => "Speed of an array",
        }
    }
}

/// The unit of a measure's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Unit {
    /// Bytes a second.
    #[serde(rename = "bytes/s")]
    BytesPerSecond,
    /// Bits a second, as networks are counted.
    #[serde(rename = "bits/s")]
    BitsPerSecond,
    /// Operations a second.
    #[serde(rename = "1/s")]
    OperationsPerSecond,
    /// Milliseconds, where less is better.
    #[serde(rename = "ms")]
    Milliseconds,
}

/// One thing measured, and all runs of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Names it for programs, the same in all results: `random-read-4k-q32`.
    pub id: String,
    /// Its name for a user.
    pub what: String,
    /// Its chart: `sequential`, `random reads`.
    pub group: String,
    /// The unit of its numbers.
    pub unit: Unit,
    /// Every run, in their order.
    pub runs: Vec<f64>,
    /// Their mean and its confidence.
    pub summary: Option<Summary>,
    /// How long single operations took, all runs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Part of all processors that was busy meanwhile, the mean of all runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors_busy: Option<f64>,
    /// Part of the data that lay in the machine's memory just before a read; 0 is as it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_in_cache: Option<f64>,
    /// Seconds of the shortest run.
    pub shortest_run: f64,
}

/// A result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// [`FORMAT_VERSION`].
    pub poolhouse_bench: u32,
    /// The subject.
    pub kind: BenchKind,
    /// The user's label; the heading of its column.
    pub label: String,
    /// The subject's name: the folder, the drives, the host.
    pub subject: String,
    /// When it began, in RFC 3339 form.
    pub started: String,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Whether all was measured; not if it was interrupted.
    pub complete: bool,
    /// The machine.
    pub machine: Machine,
    /// The drives below it, as far as they are known.
    pub drives: Vec<DriveInfo>,
    /// Programs that took part, with their versions.
    pub versions: BTreeMap<String, String>,
    /// How it was measured.
    pub settings: Map<String, Value>,
    /// Further facts about the subject.
    pub facts: Map<String, Value>,
    /// The measures.
    pub measures: Vec<Measure>,
    /// The findings, in sentences.
    pub findings: Vec<String>,
    /// Notes that the reader must know.
    pub notes: Vec<String>,
}

/// Why a text is not a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is something else.
    #[error("it is not a result of `poolhouse bench`: {why}")]
    NotAResult {
        /// The error.
        why: String,
    },
    /// Another version wrote it.
    #[error("it has form {version} of results, and this version knows form {FORMAT_VERSION}")]
    UnsupportedVersion {
        /// The version of the format.
        version: u64,
    },
}

impl BenchResult {
    /// Reads one.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let foreign = |why: String| ParseError::NotAResult { why };
        let value: Value =
            serde_json::from_str(text).map_err(|error| foreign(error.to_string()))?;
        match value.get("poolhouse_bench").and_then(Value::as_u64) {
            None => return Err(foreign("the field poolhouse_bench is missing".to_owned())),
            Some(found) if found != u64::from(FORMAT_VERSION) => {
                return Err(ParseError::UnsupportedVersion { version: found });
            }
            Some(_) => {}
        }
        let mut record: Self =
            serde_json::from_value(value).map_err(|error| foreign(error.to_string()))?;
        for measure in &mut record.measures {
            // the shown figures are computed from the runs, not from the rest of the file
            measure.summary = Summary::from_runs(&measure.runs);
        }
        Ok(record)
    }

    /// One in which nothing was measured.
    #[cfg(test)]
    pub(crate) fn empty(label: &str) -> Self {
        Self {
            poolhouse_bench: FORMAT_VERSION,
            kind: BenchKind::Path,
            label: label.to_owned(),
            subject: "/tank".to_owned(),
            started: "2026-11-21T12:00:00Z".to_owned(),
            seconds: 1.0,
            complete: true,
            machine: Machine::default(),
            drives: Vec::new(),
            versions: BTreeMap::new(),
            settings: Map::new(),
            facts: Map::new(),
            measures: Vec::new(),
            findings: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The measure of that id.
    pub fn measure(&self, id: &str) -> Option<&Measure> {
        self.measures.iter().find(|measure| measure.id == id)
    }

    /// The mean of the measure of that id.
    pub fn mean(&self, id: &str) -> Option<f64> {
        self.measure(id)?.summary.map(|summary| summary.mean)
    }
}

impl Measure {
    /// One without runs.
    pub fn new(id: &str, what: &str, group: &str, unit: Unit) -> Self {
        Self {
            id: id.to_owned(),
            what: what.to_owned(),
            group: group.to_owned(),
            unit,
            runs: Vec::new(),
            summary: None,
            latency: None,
            processors_busy: None,
            found_in_cache: None,
            shortest_run: 0.0,
        }
    }

    /// A result with these runs, of which the shortest took this many seconds.
    #[must_use]
    pub fn with_runs(mut self, runs: Vec<f64>, shortest_run: f64) -> Self {
        self.summary = Summary::from_runs(&runs);
        self.runs = runs;
        self.shortest_run = shortest_run;
        self
    }
}
