//! The workloads: what is done to a place, under names that all results share.

use serde::{Deserialize, Serialize};

use crate::record::Unit;
use crate::timed::{Order, Verb};

/// Bytes of an operation that goes along, as `dd bs=1M` does.
pub(crate) const LONG: u64 = 1 << 20;
/// Bytes of each of many small files.
pub(crate) const SMALL_FILE: usize = 4096;
const KIB: u64 = 1024;

/// A workload on the bytes of one large file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// What is done.
    pub verb: StreamVerb,
    /// Bytes of an operation.
    pub block: u64,
    /// Operations at a time.
    pub depth: usize,
}

/// What is done to a large file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamVerb {
    /// A new file is written from its begin to its end.
    Write,
    /// It is read from its begin to its end.
    Read,
    /// It is written again from its begin to its end.
    Rewrite,
    /// It is read anywhere.
    RandomRead,
    /// It is written anywhere.
    RandomWrite,
    /// It is written anywhere, and each write is safe before the next.
    SyncWrite,
}

impl StreamVerb {
    pub(crate) fn verb(self) -> Verb {
        match self {
            Self::Read | Self::RandomRead => Verb::Read,
            Self::Write | Self::Rewrite | Self::RandomWrite => Verb::Write,
            Self::SyncWrite => Verb::Sync,
        }
    }

    pub(crate) fn order(self) -> Order {
        match self {
            Self::Write | Self::Read | Self::Rewrite => Order::Once,
            Self::RandomRead | Self::RandomWrite | Self::SyncWrite => Order::Random,
        }
    }
}

impl Stream {
    const fn new(verb: StreamVerb, block: u64, depth: usize) -> Self {
        Self { verb, block, depth }
    }

    /// Its name in results.
    pub fn id(&self) -> String {
        let verb = match self.verb {
            StreamVerb::Write => "write",
            StreamVerb::Read => "read",
            StreamVerb::Rewrite => "rewrite",
            StreamVerb::RandomRead => "random-read",
            StreamVerb::RandomWrite => "random-write",
            StreamVerb::SyncWrite => "sync-write",
        };
        format!("{verb}-{}-q{}", units::human_bytes(self.block).to_lowercase(), self.depth)
    }

    /// Its name for people.
    pub fn what(&self) -> String {
        let verb = match self.verb {
            StreamVerb::Write => "sequential write",
            StreamVerb::Read => "sequential read",
            StreamVerb::Rewrite => "sequential rewrite",
            StreamVerb::RandomRead => "random read",
            StreamVerb::RandomWrite => "random write",
            StreamVerb::SyncWrite => "safe write",
        };
        let block = units::human_bytes(self.block);
        match self.depth {
            1 => format!("{verb} {block}"),
            depth => format!("{verb} {block}, {depth} at a time"),
        }
    }

    /// What it is drawn with.
    pub fn group(&self) -> &'static str {
        match self.verb {
            StreamVerb::Write | StreamVerb::Read | StreamVerb::Rewrite => "sequential",
            StreamVerb::RandomRead => "random reads",
            StreamVerb::RandomWrite | StreamVerb::SyncWrite => "random writes",
        }
    }

    /// What its figures are.
    pub fn unit(&self) -> Unit {
        match self.verb.order() {
            Order::Once => Unit::Rate,
            Order::Random => Unit::Operations,
        }
    }
}

/// A workload on many small files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Files {
    /// They are made.
    Create,
    /// Their attributes are asked for.
    Stat,
    /// They are read.
    Read,
    /// They are deleted.
    Delete,
}

impl Files {
    /// All, in the order in which they can be done.
    pub const ALL: [Self; 4] = [Self::Create, Self::Stat, Self::Read, Self::Delete];

    /// Its name in results.
    pub fn id(self) -> &'static str {
        match self {
            Self::Create => "file-create",
            Self::Stat => "file-stat",
            Self::Read => "file-read",
            Self::Delete => "file-delete",
        }
    }

    /// Its name for people.
    pub fn what(self) -> &'static str {
        match self {
            Self::Create => "files of 4K created",
            Self::Stat => "files looked at (stat)",
            Self::Read => "files of 4K read",
            Self::Delete => "files deleted",
        }
    }
}

/// The streams that are measured where nobody asks for others, in their order: a new file, reading
/// it before anything is written over it, then writing over it.
pub fn usual() -> Vec<Stream> {
    use StreamVerb::{RandomRead, RandomWrite, Read, Rewrite, SyncWrite, Write};
    let small = [4 * KIB, 16 * KIB, 128 * KIB];
    let depths = [1, 32];
    let random = |verb| {
        small.into_iter().flat_map(move |block| {
            depths.into_iter().map(move |depth| Stream::new(verb, block, depth))
        })
    };
    let mut all =
        vec![Stream::new(Write, LONG, 1), Stream::new(Read, LONG, 1), Stream::new(Read, LONG, 8)];
    all.extend(random(RandomRead));
    all.extend([Stream::new(Rewrite, LONG, 1), Stream::new(Rewrite, LONG, 8)]);
    all.extend(random(RandomWrite));
    all.push(Stream::new(SyncWrite, 4 * KIB, 1));
    all
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::usual;

    #[test]
    fn names_are_unique_and_the_file_is_made_first() {
        let all = usual();
        let ids: HashSet<String> = all.iter().map(super::Stream::id).collect();
        assert_eq!(ids.len(), all.len());
        assert_eq!(all[0].id(), "write-1m-q1");
        assert!(ids.contains("random-read-4k-q32") && ids.contains("sync-write-4k-q1"), "{ids:?}");
    }
}
