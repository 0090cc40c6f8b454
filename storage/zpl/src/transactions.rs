//! What operations that change files want from whoever owns the pool.

use dmu::Objset;
use ondisk::zil::Body;
use txg::Tx;
use units::ObjectId;

use crate::Result;

/// What an operation may take at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceNeed {
    /// Bytes of content and of metadata.
    pub bytes: u64,
    /// They come in blocks of so many bytes; 0: in blocks of any size.
    pub block_size: u64,
    /// Bytes of blocks that are there already: they count for quotas, and take no space.
    pub cloned_bytes: u64,
    /// Objects.
    pub objects: u64,
    /// In the end there will be more space than before: must go through on a full pool.
    pub frees_space: bool,
    /// Blocks that it may free, of an operation that frees many and takes several transactions for it:
    /// others' groups are not to take for ever.
    pub freed_blocks: u64,
    /// Whose quotas must have room for it, as stored: user, group and project.
    pub quota_owners: [Option<u64>; 3],
    /// It only makes ready for what was asked for, which comes with another transaction.
    pub is_preparation: bool,
}

/// What is promised to have happened, for the intent log.
#[derive(Debug)]
pub enum LogRecord<'a> {
    /// Anything but a write.
    Record(Body),
    /// The same, or a write with its data, to what nobody asks for by itself: it is promised with
    /// whatever is promised next.
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

/// Where transactions come from, and promises go.
pub trait Transactions: Send + Sync {
    /// Begins a transaction, waiting for room if need be. Never called within one.
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

    /// Something was done within the transaction that no promise tells: who wants it to last must
    /// wait for the group, and so must who wants anything to last that is done after it. Called before
    /// anything else is promised of the same change.
    fn require_txg_sync(&self, tx: &Tx) {
        let _ = tx;
    }

    /// A file gets another name: what was promised of it before must be kept once that is. Called
    /// before the promise of it.
    fn on_rename(&self, object: ObjectId) {
        let _ = object;
    }

    /// Whether what is done now was done before, and promised: it is done again after a crash, and was
    /// judged then. What made it allowed (a flag that was taken away, a project) may not be promised.
    fn is_replay(&self) -> bool {
        false
    }

    /// A file is no more: what was promised of its content need not be kept.
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
