//! From a dataset's properties to how it is stored, read and written.

use arc::Kept;
use dsl::Dataset;
use ondisk::{Checksum, Compression};
use spa::{Redundant, Settings};

use super::keep::{Keeps, Manner, SnapshotFolder};

fn value(dataset: &Dataset, name: &str) -> String {
    dataset.property(name).ok().flatten().map_or_else(String::new, |found| found.value)
}

fn number(dataset: &Dataset, name: &str) -> Option<u64> {
    let text = value(dataset, name);
    text.parse().ok().or_else(|| units::parse_binary(&text))
}

/// Which of its blocks go to drives of the cache.
pub(super) fn of_caching(dataset: &Dataset) -> Kept {
    match value(dataset, "secondarycache").as_str() {
        "none" => Kept::Nothing,
        "metadata" => Kept::Metadata,
        _ => Kept::All,
    }
}

/// How its blocks are stored.
pub(super) fn of_blocks(dataset: &Dataset) -> Settings {
    let (compression, zstd_level) = compression(&value(dataset, "compression"));
    Settings {
        checksum: checksum(&value(dataset, "checksum")),
        dedup: dedup(&value(dataset, "dedup")),
        verify: value(dataset, "dedup").contains("verify"),
        compression,
        zstd_level,
        copies: number(dataset, "copies").and_then(|copies| copies.try_into().ok()).unwrap_or(1),
        small: number(dataset, "special_small_blocks")
            .and_then(|bytes| bytes.try_into().ok())
            .unwrap_or(0),
        redundant: match value(dataset, "redundant_metadata").as_str() {
            "most" => Redundant::Most,
            "some" => Redundant::Some,
            "none" => Redundant::Nothing,
            _ => Redundant::All,
        },
        // the intent log is to have it at once, and takes it from memory
        early: of_promises(dataset).keeps != Keeps::Always,
        key: dataset.key().ok().flatten(),
        ..Settings::default()
    }
}

fn checksum(word: &str) -> Checksum {
    match word {
        "off" => Checksum::Off,
        "fletcher2" => Checksum::Fletcher2,
        "sha256" => Checksum::Sha256,
        "noparity" => Checksum::NoParity,
        "sha512" => Checksum::Sha512,
        "skein" => Checksum::Skein,
        "edonr" => Checksum::EdonR,
        "blake3" => Checksum::Blake3,
        _ => Checksum::Fletcher4,
    }
}

/// By which checksum blocks are deduplicated. Whether they are compared besides (`,verify`) is told
/// apart.
fn dedup(word: &str) -> Option<Checksum> {
    match word.strip_suffix(",verify").unwrap_or(word) {
        "on" | "verify" => Some(Checksum::Sha256),
        "" | "off" => None,
        word => Some(checksum(word)),
    }
}

/// The method, and the level for zstd.
fn compression(word: &str) -> (Compression, i32) {
    let (name, level) = word.split_once('-').unwrap_or((word, ""));
    match (name, level) {
        ("off", _) => (Compression::Off, 0),
        ("lzjb", _) => (Compression::Lzjb, 0),
        ("zle", _) => (Compression::Zle, 0),
        ("gzip", level) => (Compression::Gzip(level.parse().unwrap_or(6)), 0),
        ("zstd", level) => (Compression::Zstd, zstd_level(level)),
        ("lz4", _) => (Compression::Lz4, 0),
        _ => (Compression::On, 0),
    }
}

fn zstd_level(level: &str) -> i32 {
    match level.strip_prefix("fast") {
        Some(fast) => -fast.trim_start_matches('-').parse().unwrap_or(1),
        None => level.parse().unwrap_or(3),
    }
}

/// How promises are kept, whether anything may be changed, and whether snapshots are shown.
pub(super) fn of_promises(dataset: &Dataset) -> Manner {
    Manner {
        keeps: match value(dataset, "sync").as_str() {
            "disabled" => Keeps::Never,
            "always" => Keeps::Always,
            _ => Keeps::Asked,
        },
        throughput: value(dataset, "logbias") == "throughput",
        read_only: value(dataset, "readonly") == "on",
        folder: match value(dataset, "snapdir").as_str() {
            "visible" => SnapshotFolder::Listed,
            "disabled" => SnapshotFolder::Absent,
            _ => SnapshotFolder::Hidden,
        },
    }
}

/// How it is read.
pub(super) fn of_reading(dataset: &Dataset) -> zpl::Options {
    zpl::Options {
        posix_acls: matches!(value(dataset, "acltype").as_str(), "posix" | "posixacl"),
        user_xattrs: value(dataset, "xattr") != "off",
        ..zpl::Options::default()
    }
}

/// How its files are written. What the pool's features allow stays as in `before`.
pub(super) fn of_writing(dataset: &Dataset, before: &zpl::Settings) -> zpl::Settings {
    let record = number(dataset, "recordsize").and_then(|size| size.try_into().ok());
    let slots = match value(dataset, "dnodesize").as_str() {
        "auto" | "1k" => 2,
        "2k" => 4,
        "4k" => 8,
        "8k" => 16,
        "16k" => 32,
        _ => 1,
    };
    let atime = match (value(dataset, "atime").as_str(), value(dataset, "relatime").as_str()) {
        ("off", _) => zpl::Atime::Off,
        (_, "off") => zpl::Atime::On,
        _ => zpl::Atime::Relative,
    };
    zpl::Settings {
        record_size: record.unwrap_or(128 << 10),
        slots,
        xattr_sa: matches!(value(dataset, "xattr").as_str(), "sa" | "on"),
        long_names: value(dataset, "longname") == "on",
        atime,
        ..*before
    }
}
