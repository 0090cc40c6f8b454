//! Why a pool could not be opened, or a txg not committed.

use units::{Guid, MetaslabId, Txg, VdevId};

/// Why a pool could not be opened, or a txg not committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No label of any device could be read (Corrupt).
    #[error("none of the labels holds a valid configuration")]
    NoConfig,
    /// There is no valid uberblock (Corrupt), or none of the requested txg.
    #[error("there is no valid uberblock{}", txg_suffix(*.requested))]
    NoUberblock {
        /// The requested txg.
        requested: Option<Txg>,
    },
    /// A version before the first, or after the last that there is (Unsupported).
    #[error("the pool has version {version}, which this program does not know")]
    UnsupportedVersion {
        /// The version.
        version: u64,
    },
    /// Features in use that are needed for reading and not known (Unsupported).
    #[error("the pool uses features that this program does not know: {}", .guids.join(", "))]
    UnsupportedFeatures {
        /// Their guids.
        guids: Vec<String>,
    },
    /// A vdev that cannot be built (Corrupt or Unsupported).
    #[error("{0}")]
    Vdev(#[from] vdev::Error),
    /// The pool's own objects cannot be read (Corrupt, or Unavailable).
    #[error("the pool's own objects cannot be read: {0}")]
    Mos(#[from] dmu::Error),
    /// The pool's own tables cannot be read (Corrupt, or Unavailable).
    #[error("the pool's own tables cannot be read: {0}")]
    Zap(#[from] zap::Error),
    /// A structure breaks a rule (Corrupt).
    #[error("{0}")]
    Corrupt(#[from] ondisk::Error),
    /// The pool's directory lacks what every pool has (Corrupt).
    #[error("the pool's directory has no '{name}'")]
    NoDirectoryEntry {
        /// The name.
        name: &'static str,
    },
    /// The labels of a top-level vdev could be written to none of its leaves (Unavailable).
    #[error("no drive of vdev {top} could be written")]
    VdevNotWritten {
        /// Its guid.
        top: Guid,
    },
    /// The labels of a spare, or of a drive of the cache, could not be written (Unavailable).
    #[error("{why}")]
    Auxiliary {
        /// The failure, and its place.
        why: String,
    },
    /// A drive may not come into the pool, or leave it.
    #[error("{0}")]
    DeviceChange(#[from] crate::active::DeviceChangeError),
    /// A raidz cannot be expanded.
    #[error("{0}")]
    Expand(#[from] crate::active::ExpandError),
    /// A raidz expansion cannot continue for now.
    #[error("the raidz expansion is paused: {0}")]
    Reflow(#[from] vdev::ReflowPause),
    /// A vdev with data cannot be removed.
    #[error("{0}")]
    Removal(#[from] crate::active::RemovalError),
    /// A pool cannot be split.
    #[error("{0}")]
    Split(#[from] crate::active::SplitError),
    /// The removal of a vdev cannot go on for now.
    #[error("the removal is paused: {0}")]
    Evacuation(#[from] vdev::EvacuationPause),
    /// A checkpoint is not what a command needs it to be.
    #[error("{0}")]
    Checkpoint(#[from] crate::active::CheckpointError),
    /// A scan cannot be started, paused or stopped.
    #[error("{0}")]
    Scan(#[from] crate::scan::ScanError),
    /// No drive took the root of the txg (Unavailable).
    #[error("no drive could be written")]
    NoDeviceWritten,
    /// No MMP heartbeat could be written for so long that another host may have imported the pool
    /// (Unavailable).
    #[error("no MMP heartbeat could be written: another host may have imported the pool")]
    HeartbeatLost,
    /// The vdev has too many drives for a label to describe (Unsupported).
    #[error("the description of a vdev does not fit a label")]
    LabelTooLong,
    /// A table of cloned blocks counts what cannot be (Corrupt).
    #[error("the table of cloned blocks of vdev {vdev} is wrong: {rule}")]
    CloneTable {
        /// The vdev.
        vdev: VdevId,
        /// The rule.
        rule: &'static str,
    },
    /// A metaslab's map contradicts itself, or is not where it should be (Corrupt).
    #[error("the space map of metaslab {metaslab} of vdev {vdev} contradicts itself")]
    SpaceMap {
        /// The vdev.
        vdev: VdevId,
        /// Its metaslab.
        metaslab: MetaslabId,
    },
    /// A vdev cannot have a space map of a checkpoint, as it has no table of its own (Corrupt).
    #[error("vdev {vdev} has no table for the space map of the pool's checkpoint")]
    CheckpointMap {
        /// The vdev.
        vdev: VdevId,
    },
    /// A mapping that is being condensed contradicts itself (Corrupt).
    #[error(
        "the condensed mapping of removed vdev {vdev} has {found} entries where {expected} belong"
    )]
    CondensedMapping {
        /// The removed vdev.
        vdev: VdevId,
        /// Entries that its header counts.
        found: u64,
        /// Entries that belong there.
        expected: u64,
    },
    /// A range of a removed vdev is longer than any that can be condensed (Corrupt).
    #[error("the mapping of removed vdev {vdev} has a range with {bytes} obsolete bytes")]
    ObsoleteBytes {
        /// The removed vdev.
        vdev: VdevId,
        /// Obsolete bytes of the range.
        bytes: u64,
    },
    /// The table of logs of space has an entry that is none (Corrupt).
    #[error("'{name}' is not a log of changes of space")]
    SpaceLog {
        /// The entry's name.
        name: String,
    },
    /// A log of space has a range that is not within a metaslab of its vdev (Corrupt).
    #[error(
        "the log of changes of space of txg {txg} has a range beyond a metaslab of vdev {vdev}"
    )]
    SpaceLogRange {
        /// The txg of the log.
        txg: Txg,
        /// The vdev.
        vdev: VdevId,
    },
    /// The logs of space allocate or free something twice (Corrupt).
    #[error(
        "the logs of changes of space contradict the space map of metaslab {metaslab} of vdev {vdev}: \
         something would be allocated twice"
    )]
    SpaceLogContradiction {
        /// The vdev.
        vdev: VdevId,
        /// Its metaslab.
        metaslab: MetaslabId,
    },
    /// The space of the pool is unknown (Corrupt).
    #[error("{0}")]
    Space(#[from] metaslab::Error),
    /// Only reading is possible for now (Unsupported).
    #[error("the pool can only be read: {why}")]
    NotWritable {
        /// The unsupported state or feature.
        why: String,
    },
    /// The pool is imported read-only.
    #[error("it is imported read-only")]
    ImportedReadOnly,
    /// A drive is too small to be part of a pool.
    #[error("'{path}' is too small: a drive must have 64 MiB at least")]
    TooSmall {
        /// Its path.
        path: String,
    },
    /// Drives cannot stand together so.
    #[error("{why}")]
    VdevLayout {
        /// Why not.
        why: String,
    },
    /// Something of the pool's datasets could not be changed.
    #[error("{0}")]
    Datasets(#[from] dsl::Error),
    /// An intent log could not be read, or not be written.
    #[error("{0}")]
    IntentLog(#[from] zil::Error),
    /// The sync of a txg does not converge.
    #[error("the sync of the pool's own objects does not converge in txg {txg}")]
    SyncNotConverging {
        /// The txg.
        txg: Txg,
    },
    /// Drives fail, and no group can be written until they are back and the pool is cleared
    /// (Unavailable).
    #[error("{why}")]
    Suspended {
        /// The first failure.
        why: String,
    },
    /// Drives failed to flush written data: the txg cannot be committed (Unavailable).
    #[error("drives failed to flush written data, so the last changes may be lost")]
    WritesLost,
    /// Our own sums do not agree: nothing more is written.
    #[error(
        "an internal check failed ({what}), so that nothing more is written to the pool. All that was \
         synced is intact. `zpool clear` imports the pool as it was then; please report this"
    )]
    AssertionFailed {
        /// The message of the assertion.
        what: String,
    },
    /// The pool is no longer imported.
    #[error("the pool is closed")]
    Closed,
    /// The content of a file system could not be made or changed.
    #[error("{why}")]
    Content {
        /// Why, in the words of the floor that knows files.
        why: String,
    },
    /// The pool has no checkpoint.
    #[error("the pool has no checkpoint")]
    NoCheckpoint,
}

fn txg_suffix(wanted: Option<Txg>) -> String {
    wanted.map_or_else(String::new, |txg| format!(" of txg {txg}"))
}
