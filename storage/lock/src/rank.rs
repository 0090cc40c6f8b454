//! The ranks: a thread takes locks from the top of this list to the bottom, and may skip any.

/// Names each rank, numbers them in the order of this file, and lists them.
macro_rules! ranks {
    ($($(#[$doc:meta])+ $id:ident = $number:literal, $name:literal;)+) => {
        $($(#[$doc])+ pub const $id: u8 = $number;)+

        /// All ranks, with the names that they have in the documents.
        pub const ALL: &[(u8, &str)] = &[$(($number, $name)),+];
    };
}

ranks! {
    /// One thread copies for a removal, or condenses a mapping. Txgs are synced meanwhile.
    REMOVAL_WORK = 10, "removal work";
    /// One thread rewrites what readers found damaged. Txgs are synced meanwhile.
    REPAIR_WORK = 11, "repair work";
    /// One writer at a time waits for space. Txgs are synced meanwhile.
    SPACE_TURN = 12, "space turn";
    /// The thread that writes a txg.
    SYNC = 20, "sync lock";
    /// The record of the scan, and its position.
    SCAN_STATE = 30, "scan state";
    /// Blocks that could not be repaired.
    ERROR_LOG = 31, "error log";
    /// The records of sequential rebuilds.
    REBUILDS = 32, "rebuilds";
    /// The state of initializing and trims.
    LEAF_ACTIVITIES = 33, "leaf activities";
    /// The record of the removal.
    REMOVAL_ENTRY = 34, "removal record";
    /// The mapping that is condensed.
    CONDENSING = 35, "condensing";
    /// Why a removal or an expansion is paused.
    PAUSE = 36, "pause";
    /// The DTLs of drives, as the pool has noted them.
    SYNCED_DTLS = 40, "DTLs";
    /// Spares and cache devices.
    AUXILIARY = 41, "spares and caches";
    /// The pool's configuration.
    CONFIG = 50, "configuration";
    /// The last uberblock.
    UBERBLOCK = 51, "uberblock";
    /// The uberblock of the checkpoint.
    CHECKPOINT = 52, "checkpoint";
    /// Which datasets are open.
    OPEN_DATASETS = 60, "open datasets";
    /// The accounting of owners.
    ACCOUNTING = 61, "accounting";
    /// How a dataset is stored.
    SETTINGS = 62, "dataset settings";
    /// Changes of a root block that wait for their txg.
    HEADER_EDITS = 63, "header edits";
    /// Features that a txg begins to use.
    DATASET_FEATURES = 64, "dataset features";
    /// One thread looks a block up in the dedup tables, and changes its entry.
    DEDUP = 70, "dedup lock";
    /// The tables of deduplicated blocks.
    DEDUP_TABLES = 71, "dedup tables";
    /// The tables of cloned blocks.
    CLONE_TABLES = 72, "clone tables";
    /// The first error of a change that could not report it.
    DEFERRED_ERROR = 73, "deferred error";
    /// Blocks that were written before their txg, for nothing.
    ORPHANS = 74, "orphans";
    /// Sync tasks that wait.
    TASKS = 80, "sync tasks";
    /// The space maps that a txg has written.
    WRITTEN_MAPS = 90, "written maps";
    /// The places of space maps.
    SPACE_MAPS = 91, "space maps";
    /// The logged changes of space.
    SPACE_LOG = 92, "space log";
    /// The tables of obsolete space.
    OBSOLETE_TABLES = 93, "obsolete tables";
    /// The mapping of the vdev that is being removed.
    REMOVAL_MAPPING = 94, "removal mapping";
    /// Space that recent txgs freed.
    FREED_SPACE = 95, "freed space";
    /// The errors of drives that were not reported yet.
    FAULTS = 100, "faults";
    /// Why the pool writes no more.
    FATAL_ERROR = 101, "fatal error";
}

/// The name of a rank in the documents.
#[cfg(debug_assertions)]
pub(crate) fn name(rank: u8) -> &'static str {
    ALL.iter().find(|(known, _)| *known == rank).map_or("without a rank", |(_, name)| name)
}
