//! The list behind the first BEGIN of a compound stream: file systems, their snapshots and properties.
//!
//! A packed list of names and values (XDR); its length is the payload length of the BEGIN record.
//!
//! ```text
//! fromsnap       string   the name of the base snapshot, without @ (incremental streams)
//! tosnap         string   the name of the last snapshot, without @
//! not_recursive  flag     the stream has one file system or volume (no -R)
//! raw            flag     blocks are sent as they are stored, still encrypted
//! fss            list     0xGUID -> list, one per file system or volume, by its guid in hex:
//!   name            string   its full name on the sender
//!   parentfromsnap  u64      guid of the base snapshot of its parent; 0: none
//!   origin          u64      guid of the snapshot that it is a clone of (clones)
//!   is_encroot      flag     it is an encryption root (encrypted datasets)
//!   props           list     property -> u64 or string, those that are set
//!   snaps           list     snapshot -> u64, its guid
//!   snapprops       list     snapshot -> list of its properties
//!   snapholds       list     snapshot -> list of its holds, tag -> u64 time (-h)
//! ```
//!
//! Learnt from: streams of `zfs send -R`, `-p` and `-I`. Proved by: `golden_package`, and the exchange of
//! streams with OpenZFS (tools/oracle).

use crate::nvlist::{Encoding, Nvlist, Value};
use crate::{Error, Result};

const STRUCTURE: &str = "list of a compound stream";

/// The list of a compound stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// The name of the base snapshot; none: the stream is full.
    pub from_snapshot: Option<String>,
    /// The name of the last snapshot.
    pub to_snapshot: String,
    /// The stream has the file systems below, too (-R).
    pub is_recursive: bool,
    /// Blocks are sent as they are stored, still encrypted (-w).
    pub is_raw: bool,
    /// The file systems and volumes.
    pub datasets: Vec<PackagedDataset>,
}

/// A file system or volume of a compound stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackagedDataset {
    /// The guid of the file system or volume.
    pub guid: u64,
    /// The full name on the sender.
    pub name: String,
    /// The guid of the base snapshot of the parent; 0: none.
    pub parent_from_snapshot: u64,
    /// The guid of the snapshot that it is a clone of.
    pub origin: Option<u64>,
    /// It is an encryption root.
    pub is_encryption_root: bool,
    /// The properties that are set.
    pub properties: Vec<(String, PackagedValue)>,
    /// The snapshots and their guids.
    pub snapshots: Vec<(String, u64)>,
    /// The properties of snapshots.
    pub snapshot_properties: Vec<(String, Vec<(String, PackagedValue)>)>,
    /// The holds of each snapshot, their tags and times in seconds since 1970. Empty without -h.
    pub holds: Vec<(String, Vec<(String, u64)>)>,
}

/// The value of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackagedValue {
    /// A number; for properties with words, the number of the word.
    Number(u64),
    /// A text.
    Text(String),
}

impl PackagedValue {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::U64(number) => Some(Self::Number(*number)),
            Value::Str(text) => Some(Self::Text(String::from_utf8_lossy(text).into_owned())),
            _ => None,
        }
    }

    fn to_value(&self) -> Value {
        match self {
            Self::Number(number) => Value::U64(*number),
            Self::Text(text) => Value::Str(text.clone().into_bytes()),
        }
    }
}

impl Package {
    /// Reads the payload of a compound stream's BEGIN. `None` where it is empty: a stream of several
    /// snapshots without properties (`-I` alone) has no list.
    pub fn decode(payload: &[u8]) -> Result<Option<Self>> {
        if payload.is_empty() {
            return Ok(None);
        }
        let list = Nvlist::decode(payload)?;
        let datasets = list.nvlist("fss").ok_or_else(|| broken("it lists file systems (fss)"))?;
        Ok(Some(Self {
            from_snapshot: list.text("fromsnap"),
            to_snapshot: list
                .text("tosnap")
                .ok_or_else(|| broken("it names the last snapshot (tosnap)"))?,
            is_recursive: !list.flag("not_recursive"),
            is_raw: list.flag("raw"),
            datasets: datasets.iter().map(read_dataset).collect::<Result<_>>()?,
        }))
    }

    /// The payload of a compound stream's BEGIN.
    pub fn encode(&self) -> Vec<u8> {
        let mut list = Nvlist::new();
        if let Some(from) = &self.from_snapshot {
            list.push("fromsnap", Value::Str(from.clone().into_bytes()));
        }
        list.push("tosnap", Value::Str(self.to_snapshot.clone().into_bytes()));
        if !self.is_recursive {
            list.push("not_recursive", Value::Flag);
        }
        if self.is_raw {
            list.push("raw", Value::Flag);
        }
        let mut datasets = Nvlist::new();
        for dataset in &self.datasets {
            datasets.push(&format!("0x{:x}", dataset.guid), Value::List(write_dataset(dataset)));
        }
        list.push("fss", Value::List(datasets));
        list.encode(Encoding::Xdr)
    }
}

fn broken(rule: &'static str) -> Error {
    Error::Rule { structure: STRUCTURE, at: 0, rule, found: 0 }
}

fn read_dataset((key, value): (&str, &Value)) -> Result<PackagedDataset> {
    let Value::List(list) = value else { return Err(broken("a file system has a list")) };
    let guid = key.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let properties = |list: &Nvlist| {
        let known = |(name, value): (&str, &Value)| {
            Some((name.to_owned(), PackagedValue::from_value(value)?))
        };
        list.iter().filter_map(known).collect::<Vec<_>>()
    };
    let empty = Nvlist::new();
    let part = |name: &str| list.nvlist(name).unwrap_or(&empty);
    let snapshot = |(name, value): (&str, &Value)| Some((name.to_owned(), value.u64()?));
    let of_snapshot = |(name, value): (&str, &Value)| match value {
        Value::List(list) => Some((name.to_owned(), properties(list))),
        _ => None,
    };
    Ok(PackagedDataset {
        guid: guid.ok_or_else(|| broken("a file system is listed by its guid"))?,
        name: list.text("name").ok_or_else(|| broken("a file system has a name"))?,
        parent_from_snapshot: list.u64("parentfromsnap").unwrap_or(0),
        origin: list.u64("origin"),
        is_encryption_root: list.flag("is_encroot"),
        properties: properties(part("props")),
        snapshots: part("snaps").iter().filter_map(snapshot).collect(),
        snapshot_properties: part("snapprops").iter().filter_map(of_snapshot).collect(),
        holds: part("snapholds").iter().filter_map(read_holds).collect(),
    })
}

fn read_holds((snapshot, value): (&str, &Value)) -> Option<(String, Vec<(String, u64)>)> {
    let Value::List(list) = value else { return None };
    let holds = list.iter().filter_map(|(tag, time)| Some((tag.to_owned(), time.u64()?)));
    Some((snapshot.to_owned(), holds.collect()))
}

fn write_dataset(dataset: &PackagedDataset) -> Nvlist {
    let properties = |all: &[(String, PackagedValue)]| {
        let mut list = Nvlist::new();
        for (name, value) in all {
            list.push(name, value.to_value());
        }
        list
    };
    let mut list = Nvlist::new();
    list.push("name", Value::Str(dataset.name.clone().into_bytes()));
    list.push("parentfromsnap", Value::U64(dataset.parent_from_snapshot));
    if let Some(origin) = dataset.origin {
        list.push("origin", Value::U64(origin));
    }
    list.push("props", Value::List(properties(&dataset.properties)));
    if dataset.is_encryption_root {
        list.push("is_encroot", Value::Flag);
    }
    let mut snapshots = Nvlist::new();
    for (name, guid) in &dataset.snapshots {
        snapshots.push(name, Value::U64(*guid));
    }
    list.push("snaps", Value::List(snapshots));
    let mut of_snapshots = Nvlist::new();
    for (name, all) in &dataset.snapshot_properties {
        of_snapshots.push(name, Value::List(properties(all)));
    }
    list.push("snapprops", Value::List(of_snapshots));
    if !dataset.holds.is_empty() {
        let mut of_snapshots = Nvlist::new();
        for (name, holds) in &dataset.holds {
            let mut list = Nvlist::new();
            for (tag, time) in holds {
                list.push(tag, Value::U64(*time));
            }
            of_snapshots.push(name, Value::List(list));
        }
        list.push("snapholds", Value::List(of_snapshots));
    }
    list
}
