//! The columns of `zfs list`: their sides and least widths, which zfs(8) takes from the kind of a property.

use crate::table::Align;

/// Numbers, which are at the right.
const NUMBERS: [&str; 28] = [
    "available",
    "compressratio",
    "createtxg",
    "filesystem_count",
    "filesystem_limit",
    "guid",
    "logicalreferenced",
    "logicalused",
    "objsetid",
    "pbkdf2iters",
    "quota",
    "recordsize",
    "refcompressratio",
    "referenced",
    "refquota",
    "refreservation",
    "reservation",
    "snapshot_count",
    "snapshot_limit",
    "special_small_blocks",
    "used",
    "usedbychildren",
    "usedbydataset",
    "usedbyrefreservation",
    "usedbysnapshots",
    "userrefs",
    "volblocksize",
    "volsize",
];

/// Properties with words for values, whose column is as wide as the longest word.
const WORDS: [(&str, usize); 17] = [
    ("aclinherit", 13),
    ("aclmode", 11),
    ("acltype", 8),
    ("casesensitivity", 11),
    ("checksum", 9),
    ("compression", 14),
    ("dedup", 13),
    ("direct", 8),
    ("encryption", 11),
    ("keyformat", 10),
    ("logbias", 10),
    ("prefetch", 8),
    ("primarycache", 12),
    ("secondarycache", 14),
    ("snapdir", 8),
    ("sync", 8),
    ("type", 10),
];

/// The side and the least width of a column.
pub(super) fn column_shape(property: &str, header: &str) -> (Align, usize) {
    let is_of_owner = property
        .split_once('@')
        .is_some_and(|(kind, _)| kind.ends_with("used") || kind.ends_with("quota"));
    if NUMBERS.contains(&property) || property.starts_with("written") || is_of_owner {
        return (Align::Right, header.len().max(5));
    }
    let words = WORDS.iter().find(|(name, _)| *name == property).map_or(0, |(_, width)| *width);
    (Align::Left, header.len().max(words))
}
