//! The interface between operations that change files and the pool's owner.

use dmu::Objset;
use ondisk::zil::Body;
use txg::Tx;
use units::ObjectId;

use crate::Result;

/// The most space that an operation may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceNeed {
    /// Bytes of content and of metadata.
    pub bytes: u64,
    /// The block size of the data; 0: blocks of any size.
    pub block_size: u64,
    /// Bytes of existing blocks: they count for quotas, and use no new space.
    pub cloned_bytes: u64,
    /// Objects.
    pub objects: u64,
    /// In the end there will be more space than before: must go through on a full pool.
    pub frees_space: bool,
    /// Blocks that it may free, for an operation that frees many in several transactions: one txg
    /// must not free too much.
    pub freed_blocks: u64,
    /// The owners whose quotas it needs, as stored: user, group and project.
    pub quota_owners: [Option<u64>; 3],
    /// It only prepares an operation, which uses another transaction.
    pub is_preparation: bool,
}

/// A record for the intent log.
#[derive(Debug)]
pub enum LogRecord<'a> {
    /// Anything but a write.
    Record(Body),
    /// A record of a change, or a write with its data, to an object that is never synced by itself:
    /// it is committed with the next commit.
    WithNextCommit(Body),
    /// Bytes were written to a file.
    Write {
        /// The file.
        object: ObjectId,
        /// From which byte on.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
}

/// The source of transactions, and the receiver of log records.
pub trait Transactions: Send + Sync {
    /// Begins a transaction, and waits for space if needed. Never called within one.
    fn begin_tx(&self, need: &SpaceNeed) -> Result<Tx>;

    /// The same for clones of blocks of another dataset, or of this one. `None` if the source was destroyed or
    /// rolled back: the blocks must be copied.
    fn begin_clone_tx(&self, need: &SpaceNeed, source: &Objset) -> Result<Option<Tx>> {
        let _ = source;
        self.begin_tx(need).map(Some)
    }

    /// Takes down what was done. Called within the transaction and under the locks of the files,
    /// so that promises about one file come in the order in which they were kept.
    fn log_record(&self, tx: &Tx, promise: LogRecord<'_>) {
        let _ = (tx, promise);
    }

    /// The transaction has a change without a log record: every fsync of this and later changes
    /// must wait for the txg. It is called before the other records of the same change: a crash
    /// between them would replay later records without this change.
    fn require_txg_sync(&self, tx: &Tx) {
        let _ = tx;
    }

    /// A file is renamed: its earlier records must be committed with the rename. It is called
    /// before the record of the rename.
    fn on_rename(&self, object: ObjectId) {
        let _ = object;
    }

    /// Whether changes are replayed: they were checked and logged before the crash, and must not be
    /// checked again. A condition of that check (a flag that was removed, a project) may not be in
    /// the log.
    fn is_replay(&self) -> bool {
        false
    }

    /// A file is freed: its content records need no commit.
    fn forget_log_of(&self, object: ObjectId) {
        let _ = object;
    }

    /// A random number, for the salt of a table.
    fn random_u64(&self) -> u64;

    /// The dataset gets its first name of 256 bytes or more (the feature longname).
    fn activate_long_names(&self, tx: &Tx) {
        let _ = tx;
    }
}
