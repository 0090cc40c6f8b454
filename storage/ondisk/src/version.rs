//! Pool versions: from which version on a pool may hold which structure.
//!
//! Versions 1 to 28 count upwards; since version 5000 feature flags determine the format. A pool of
//! an older version gets only structures of its version, because systems of its time must read it.
//!
//! Learnt from: the list of `zpool upgrade -v`, and pools of versions 1 to 15 of the tests of OpenZFS.

/// Metadata may have more copies than one (ditto blocks).
pub const DITTO_BLOCKS: u64 = 2;
/// Dnodes count their space in bytes, and not in sectors; lists of block pointers count bytes before
/// compression; space is counted without parity.
pub const DEFLATE: u64 = 3;
/// raidz with two parity columns.
pub const RAIDZ2: u64 = 3;
/// Hot spares.
pub const SPARES: u64 = 3;
/// The pool keeps a history.
pub const HISTORY: u64 = 4;
/// gzip compression.
pub const GZIP: u64 = 5;
/// The pool property bootfs.
pub const BOOTFS: u64 = 6;
/// Log devices.
pub const LOG_DEVICES: u64 = 7;
/// Permissions can be delegated.
pub const DELEGATED_PERMISSIONS: u64 = 8;
/// refquota, refreservation, and exact counts of the space unique to a dataset.
pub const UNIQUE_ACCURATE: u64 = 9;
/// Cache devices.
pub const CACHE: u64 = 10;
/// Snapshots list their clones, and every dataset is a clone of `$ORIGIN`.
pub const NEXT_CLONES: u64 = 11;
/// Snapshots have properties of their own.
pub const SNAPSHOT_PROPERTIES: u64 = 12;
/// Directories record a breakdown of their used space.
pub const USED_BREAKDOWN: u64 = 13;
/// The value `passthrough-x` of the property `aclinherit`.
pub const ACL_PASSTHROUGH_X: u64 = 14;
/// Space is counted by user and group.
pub const USERSPACE: u64 = 15;
/// raidz with three parity columns.
pub const RAIDZ3: u64 = 17;
/// Snapshots can have holds.
pub const HOLDS: u64 = 18;
/// zle compression.
pub const ZLE: u64 = 20;
/// Deduplication.
pub const DEDUP: u64 = 21;
/// The intent log has the newer form of blocks.
pub const SLIM_ZIL: u64 = 23;
/// Files have system attributes in place of znodes.
pub const SYSTEM_ATTRIBUTES: u64 = 24;
/// Deadlists are sorted by birth, destroyed snapshots go to the pool's list, and directories list their
/// clones.
pub const DEADLISTS: u64 = 26;

/// The version of a new file system in a pool of a version.
pub const fn filesystem_version(pool: u64) -> u64 {
    match pool {
        SYSTEM_ATTRIBUTES.. => 5,
        USERSPACE.. => 4,
        UNIQUE_ACCURATE.. => 3,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn new_filesystems_fit_the_pool() {
        let versions = [1, 8, 9, 14, 15, 23, 24, 28, 5000].map(super::filesystem_version);
        assert_eq!(versions, [2, 2, 3, 3, 4, 4, 5, 5, 5]);
    }
}
