//! Heads: each lists the snapshots and index objects of one generation of the repository.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::key::BlockKey;

/// The number of a head.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Generation(pub u64);

impl Generation {
    /// The generation after this.
    #[must_use]
    pub const fn next(self) -> Self {
        // a billion heads a second reach the end in 500 years
        Self(self.0.wrapping_add(1))
    }

    pub(crate) fn head_name(self) -> String {
        format!("{HEADS}{self}")
    }
}

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Generation {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 16 || !text.bytes().all(is_lower) {
            return Err(());
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| ())
    }
}

pub(crate) const HEADS: &str = "heads/";
pub(crate) const PACKS: &str = "packs/";
pub(crate) const INDEX: &str = "index/";
pub(crate) const SNAPSHOTS: &str = "snapshots/";

/// The name of a pack, index object or manifest: the generation of the head on which its writer builds, and
/// a random number, so that no name is used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectId {
    /// The generation of the head on which the writer builds.
    pub generation: Generation,
    /// Random.
    pub id: [u8; 16],
}

impl ObjectId {
    pub(crate) fn name(&self, folder: &str) -> String {
        format!("{folder}{self}")
    }
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{:032x}", self.generation, u128::from_be_bytes(self.id))
    }
}

impl FromStr for ObjectId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (generation, id) = text.split_once('-').ok_or(())?;
        let (high, low) = id.split_at_checked(16).ok_or(())?;
        let (high, low): (Generation, Generation) = (high.parse()?, low.parse()?);
        let id = (u128::from(high.0) << 64 | u128::from(low.0)).to_be_bytes();
        Ok(Self { generation: generation.parse()?, id })
    }
}

impl TryFrom<String> for ObjectId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|()| format!("'{text}' is not the name of an object"))
    }
}

impl From<ObjectId> for String {
    fn from(id: ObjectId) -> Self {
        id.to_string()
    }
}

/// A snapshot as the head lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotSummary {
    /// Its manifest.
    pub manifest: ObjectId,
    /// The dataset's full name.
    pub dataset: String,
    /// The part after `@`.
    pub snapshot: String,
    /// The snapshot's guid.
    pub guid: u64,
    /// The guid of the pool.
    pub pool: u64,
    /// The txg in which the snapshot was created.
    pub txg: u64,
    /// When it was created, seconds since 1970.
    pub creation: u64,
    /// Whether its dataset is encrypted.
    pub encrypted: bool,
    /// Whether it is a snapshot of a volume.
    pub volume: bool,
    /// Bytes that it refers to.
    pub referenced: u64,
    /// Bytes that its backup added to the repository.
    pub added: u64,
    /// The guid of the older snapshot from which its backup walked; none: it walked all.
    pub base: Option<u64>,
}

impl SnapshotSummary {
    /// The snapshot's full name.
    pub fn name(&self) -> String {
        format!("{}@{}", self.dataset, self.snapshot)
    }
}

/// An index object as the head lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexSummary {
    /// The object.
    pub id: ObjectId,
    /// The guid of the pool.
    pub pool: u64,
    /// Its number of records.
    pub blocks: u64,
    /// Stored bytes of its blocks.
    pub bytes: u64,
    /// The key of its first record.
    pub first: Bound,
    /// The key of its last record.
    pub last: Bound,
}

/// A key, of which the first three fields suffice: birth, vdev, offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bound {
    /// Physical birth txg.
    pub birth: u64,
    /// Offset of the first copy, bytes.
    pub offset: u64,
    /// Vdev of the first copy.
    pub vdev: u32,
}

impl From<&BlockKey> for Bound {
    fn from(key: &BlockKey) -> Self {
        Self { birth: key.birth, offset: key.offset, vdev: key.vdev }
    }
}

/// A head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The repository's ID.
    pub repository: String,
    /// Its own number.
    pub generation: Generation,
    /// When it was written, seconds since 1970 by the writer's clock.
    pub time: u64,
    /// The work that wrote it: "init", "run", "prune".
    pub writer: String,
    /// The snapshots.
    pub snapshots: Vec<SnapshotSummary>,
    /// The index objects.
    pub index: Vec<IndexSummary>,
}

impl Head {
    /// Parses the object of a head. The error is the rule that it breaks.
    pub fn parse(object: &[u8]) -> Result<Self, String> {
        crate::sealed::open(object)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Generation, ObjectId};

    proptest! {
        #[test]
        fn names_are_parsed_as_they_are_printed(generation: u64, id: [u8; 16]) {
            let id = ObjectId { generation: Generation(generation), id };
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        #[test]
        fn other_names_are_refused(text in ".{0,60}") {
            let parsed: Result<ObjectId, ()> = text.parse();
            prop_assert!(parsed.is_err());
        }
    }
}
