//! The columns of `zpool list`: their heads, widths and sides; and the order of all properties of pools.

use crate::table::Align;

/// The order of `zpool get all`, before the features.
const PROPERTY_ORDER: [&str; 34] = [
    "size",
    "capacity",
    "altroot",
    "health",
    "guid",
    "version",
    "bootfs",
    "delegation",
    "autoreplace",
    "cachefile",
    "failmode",
    "listsnapshots",
    "autoexpand",
    "dedupratio",
    "free",
    "allocated",
    "readonly",
    "ashift",
    "comment",
    "expandsize",
    "freeing",
    "fragmentation",
    "leaked",
    "multihost",
    "checkpoint",
    "load_guid",
    "autotrim",
    "compatibility",
    "bcloneused",
    "bclonesaved",
    "bcloneratio",
    "dedup_table_size",
    "dedup_table_quota",
    "last_scrubbed_txg",
];

/// The order of features in OpenZFS 2.3. Later ones follow by name.
const FEATURE_ORDER: [&str; 42] = [
    "async_destroy",
    "empty_bpobj",
    "lz4_compress",
    "multi_vdev_crash_dump",
    "spacemap_histogram",
    "enabled_txg",
    "hole_birth",
    "extensible_dataset",
    "embedded_data",
    "bookmarks",
    "filesystem_limits",
    "large_blocks",
    "large_dnode",
    "sha512",
    "skein",
    "edonr",
    "userobj_accounting",
    "encryption",
    "project_quota",
    "device_removal",
    "obsolete_counts",
    "zpool_checkpoint",
    "spacemap_v2",
    "allocation_classes",
    "resilver_defer",
    "bookmark_v2",
    "redaction_bookmarks",
    "redacted_datasets",
    "bookmark_written",
    "log_spacemap",
    "livelist",
    "device_rebuild",
    "zstd_compress",
    "draid",
    "zilsaxattr",
    "head_errlog",
    "blake3",
    "block_cloning",
    "vdev_zaps_v2",
    "redaction_list_spill",
    "raidz_expansion",
    "fast_dedup",
];

/// Properties whose column is at the left.
const LEFT: [&str; 16] = [
    "name",
    "altroot",
    "autoexpand",
    "autoreplace",
    "autotrim",
    "bootfs",
    "cachefile",
    "comment",
    "compatibility",
    "delegation",
    "failmode",
    "listsnapshots",
    "multihost",
    "readonly",
    "source",
    "value",
];

/// The place of a property in `zpool get all`: figures and settings, features, then the user's own.
pub(super) fn property_rank(name: &str) -> (usize, usize) {
    let place = |all: &[&str], name: &str| all.iter().position(|known| *known == name);
    match name.strip_prefix("feature@") {
        Some(feature) => (1, place(&FEATURE_ORDER, feature).unwrap_or(FEATURE_ORDER.len())),
        None => place(&PROPERTY_ORDER, name).map_or((2, 0), |place| (0, place)),
    }
}

/// The side and the least width of a column.
pub(super) fn column_shape(property: &str, header: &str) -> (Align, usize) {
    let is_left = LEFT.contains(&property) || property.contains(['@', ':']);
    match property {
        "health" => (Align::Right, 8),
        "failmode" => (Align::Left, 8),
        _ if is_left => (Align::Left, header.len()),
        _ => (Align::Right, header.len().max(5)),
    }
}
