//! The workloads, under names that all results share.

use serde::{Deserialize, Serialize};

use crate::bench_result::Unit;
use crate::timed_run::{Operation, Order};

/// Bytes of an operation that goes along, as `dd bs=1M` does.
pub(crate) const SEQUENTIAL_BLOCK_SIZE: u64 = 1 << 20;
/// Bytes of each of many small files.
pub(crate) const SMALL_FILE_SIZE: usize = 4096;
const KIB: u64 = 1024;

/// A workload on the bytes of one large file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamWorkload {
    /// The kind of operation.
    pub verb: StreamKind,
    /// Bytes of an operation.
    pub block: u64,
    /// Operations at a time.
    pub depth: usize,
}

/// An operation on a large file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamKind {
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

impl StreamKind {
    pub(crate) fn operation(self) -> Operation {
        match self {
            Self::Read | Self::RandomRead => Operation::Read,
            Self::Write | Self::Rewrite | Self::RandomWrite => Operation::Write,
            Self::SyncWrite => Operation::SyncWrite,
        }
    }

    pub(crate) fn access_order(self) -> Order {
        match self {
            Self::Write | Self::Read | Self::Rewrite => Order::Sequential,
            Self::RandomRead | Self::RandomWrite | Self::SyncWrite => Order::Random,
        }
    }
}

impl StreamWorkload {
    const fn new(verb: StreamKind, block: u64, depth: usize) -> Self {
        Self { verb, block, depth }
    }

    /// Its name in results.
    pub fn id(&self) -> String {
        let verb = match self.verb {
            StreamKind::Write => "write",
            StreamKind::Read => "read",
            StreamKind::Rewrite => "rewrite",
            StreamKind::RandomRead => "random-read",
            StreamKind::RandomWrite => "random-write",
            StreamKind::SyncWrite => "sync-write",
        };
        format!("{verb}-{}-q{}", units::human_bytes(self.block).to_lowercase(), self.depth)
    }

    /// Its name for a user.
    pub fn title(&self) -> String {
        let verb = match self.verb {
            StreamKind::Write => "sequential write",
            StreamKind::Read => "sequential read",
            StreamKind::Rewrite => "sequential rewrite",
            StreamKind::RandomRead => "random read",
            StreamKind::RandomWrite => "random write",
            StreamKind::SyncWrite => "safe write",
        };
        let block = units::human_bytes(self.block);
        match self.depth {
            1 => format!("{verb} {block}"),
            depth => format!("{verb} {block}, {depth} at a time"),
        }
    }

    /// Its chart.
    pub fn group(&self) -> &'static str {
        match self.verb {
            StreamKind::Write | StreamKind::Read | StreamKind::Rewrite => "sequential",
            StreamKind::RandomRead => "random reads",
            StreamKind::RandomWrite | StreamKind::SyncWrite => "random writes",
        }
    }

    /// The unit of its figures.
    pub fn unit(&self) -> Unit {
        match self.verb.access_order() {
            Order::Sequential => Unit::BytesPerSecond,
            Order::Random => Unit::OperationsPerSecond,
        }
    }
}

/// A workload on many small files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileWorkload {
    /// They are made.
    Create,
    /// Reads of their attributes.
    Stat,
    /// They are read.
    Read,
    /// They are deleted.
    Delete,
}

impl FileWorkload {
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

    /// Its name for a user.
    pub fn title(self) -> &'static str {
        match self {
            Self::Create => "files of 4K created",
            Self::Stat => "files looked at (stat)",
            Self::Read => "files of 4K read",
            Self::Delete => "files deleted",
        }
    }
}

/// The default streams in their order: a new file, reading it before anything is overwritten, then
/// overwriting it.
pub fn default_streams() -> Vec<StreamWorkload> {
    use StreamKind::{RandomRead, RandomWrite, Read, Rewrite, SyncWrite, Write};
    let small = [4 * KIB, 16 * KIB, 128 * KIB];
    let depths = [1, 32];
    let random = |verb| {
        small.into_iter().flat_map(move |block| {
            depths.into_iter().map(move |depth| StreamWorkload::new(verb, block, depth))
        })
    };
    let mut all = vec![
        StreamWorkload::new(Write, SEQUENTIAL_BLOCK_SIZE, 1),
        StreamWorkload::new(Read, SEQUENTIAL_BLOCK_SIZE, 1),
        StreamWorkload::new(Read, SEQUENTIAL_BLOCK_SIZE, 8),
    ];
    all.extend(random(RandomRead));
    all.extend([
        StreamWorkload::new(Rewrite, SEQUENTIAL_BLOCK_SIZE, 1),
        StreamWorkload::new(Rewrite, SEQUENTIAL_BLOCK_SIZE, 8),
    ]);
    all.extend(random(RandomWrite));
    all.push(StreamWorkload::new(SyncWrite, 4 * KIB, 1));
    all
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::default_streams;

    #[test]
    fn ids_are_unique_and_write_comes_first() {
        let all = default_streams();
        let ids: HashSet<String> = all.iter().map(super::StreamWorkload::id).collect();
        assert_eq!(ids.len(), all.len());
        assert_eq!(all[0].id(), "write-1m-q1");
        assert!(ids.contains("random-read-4k-q32") && ids.contains("sync-write-4k-q1"), "{ids:?}");
    }
}
