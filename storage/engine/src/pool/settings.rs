//! From a dataset's properties to how it is stored, read and written.

use arc::SecondaryCachePolicy;
use dsl::Dataset;
use ondisk::{Checksum, Compression};
use posix::acl::{AclInherit, AclMode, AclPolicy};
use spa::{RedundantMetadata, StorageSettings};

use super::sync_policy::{Snapdir, SyncMode, SyncPolicy};

fn property_value(dataset: &Dataset, name: &str) -> String {
    dataset.property(name).ok().flatten().map_or_else(String::new, |found| found.value)
}

fn property_number(dataset: &Dataset, name: &str) -> Option<u64> {
    let text = property_value(dataset, name);
    text.parse().ok().or_else(|| units::parse_binary(&text))
}

/// Which of its blocks go to drives of the cache.
pub(super) fn l2arc_policy(dataset: &Dataset) -> SecondaryCachePolicy {
    match property_value(dataset, "secondarycache").as_str() {
        "none" => SecondaryCachePolicy::None,
        "metadata" => SecondaryCachePolicy::Metadata,
        _ => SecondaryCachePolicy::All,
    }
}

/// How its blocks are stored.
pub(super) fn block_settings(dataset: &Dataset) -> StorageSettings {
    let (compression, zstd_level) = parse_compression(&property_value(dataset, "compression"));
    StorageSettings {
        checksum: parse_checksum(&property_value(dataset, "checksum")),
        dedup: parse_dedup(&property_value(dataset, "dedup")),
        verify: property_value(dataset, "dedup").contains("verify"),
        compression,
        zstd_level,
        copies: property_number(dataset, "copies")
            .and_then(|copies| copies.try_into().ok())
            .unwrap_or(1),
        special_small_blocks: property_number(dataset, "special_small_blocks")
            .and_then(|bytes| bytes.try_into().ok())
            .unwrap_or(0),
        redundant_metadata: match property_value(dataset, "redundant_metadata").as_str() {
            "most" => RedundantMetadata::Most,
            "some" => RedundantMetadata::Some,
            "none" => RedundantMetadata::None,
            _ => RedundantMetadata::All,
        },
        // the intent log needs it at once, and takes it from memory
        write_through: sync_policy(dataset).sync != SyncMode::Always,
        key: dataset.key().ok().flatten(),
        ..StorageSettings::default()
    }
}

fn parse_checksum(word: &str) -> Checksum {
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

/// The checksum of deduplication. Its `,verify` is returned separately.
fn parse_dedup(word: &str) -> Option<Checksum> {
    match word.strip_suffix(",verify").unwrap_or(word) {
        "on" | "verify" => Some(Checksum::Sha256),
        "" | "off" => None,
        word => Some(parse_checksum(word)),
    }
}

/// The method, and the level for zstd.
fn parse_compression(word: &str) -> (Compression, i32) {
    let (name, level) = word.split_once('-').unwrap_or((word, ""));
    match (name, level) {
        ("off", _) => (Compression::Off, 0),
        ("lzjb", _) => (Compression::Lzjb, 0),
        ("zle", _) => (Compression::Zle, 0),
        ("gzip", level) => (Compression::Gzip(level.parse().unwrap_or(6)), 0),
        ("zstd", level) => (Compression::Zstd, parse_zstd_level(level)),
        ("lz4", _) => (Compression::Lz4, 0),
        _ => (Compression::On, 0),
    }
}

fn parse_zstd_level(level: &str) -> i32 {
    match level.strip_prefix("fast") {
        Some(fast) => -fast.trim_start_matches('-').parse().unwrap_or(1),
        None => level.parse().unwrap_or(3),
    }
}

/// The policy of sync requests, whether it is read-only, and whether snapshots are shown.
pub(super) fn sync_policy(dataset: &Dataset) -> SyncPolicy {
    SyncPolicy {
        sync: match property_value(dataset, "sync").as_str() {
            "disabled" => SyncMode::Disabled,
            "always" => SyncMode::Always,
            _ => SyncMode::Standard,
        },
        is_logbias_throughput: property_value(dataset, "logbias") == "throughput",
        read_only: property_value(dataset, "readonly") == "on",
        snapdir: match property_value(dataset, "snapdir").as_str() {
            "visible" => Snapdir::Visible,
            "disabled" => Snapdir::Disabled,
            _ => Snapdir::Hidden,
        },
    }
}

/// How it is read.
pub(super) fn read_options(dataset: &Dataset) -> zpl::FsOptions {
    zpl::FsOptions {
        posix_acls: matches!(property_value(dataset, "acltype").as_str(), "posix" | "posixacl"),
        user_xattrs: property_value(dataset, "xattr") != "off",
        ..zpl::FsOptions::default()
    }
}

/// How NFSv4 ACLs are inherited and changed.
fn acl_policy(dataset: &Dataset) -> AclPolicy {
    AclPolicy {
        has_nfs4_acls: property_value(dataset, "acltype") == "nfsv4",
        inherit: match property_value(dataset, "aclinherit").as_str() {
            "discard" => AclInherit::Discard,
            "noallow" => AclInherit::NoAllow,
            "passthrough" => AclInherit::Passthrough,
            "passthrough-x" => AclInherit::PassthroughExecute,
            _ => AclInherit::Restricted,
        },
        chmod: match property_value(dataset, "aclmode").as_str() {
            "groupmask" => AclMode::GroupMask,
            "passthrough" => AclMode::Passthrough,
            "restricted" => AclMode::Restricted,
            _ => AclMode::Discard,
        },
    }
}

/// The write settings of its files. Those of the pool's features stay as in `before`.
pub(super) fn write_settings(dataset: &Dataset, before: &zpl::WriteSettings) -> zpl::WriteSettings {
    let record = property_number(dataset, "recordsize").and_then(|size| size.try_into().ok());
    let slots = match property_value(dataset, "dnodesize").as_str() {
        "auto" | "1k" => 2,
        "2k" => 4,
        "4k" => 8,
        "8k" => 16,
        "16k" => 32,
        _ => 1,
    };
    let atime = match (
        property_value(dataset, "atime").as_str(),
        property_value(dataset, "relatime").as_str(),
    ) {
        ("off", _) => zpl::AtimeMode::Off,
        (_, "off") => zpl::AtimeMode::On,
        _ => zpl::AtimeMode::Relative,
    };
    zpl::WriteSettings {
        record_size: record.unwrap_or(128 << 10),
        dnode_slots: slots,
        xattr_sa: matches!(property_value(dataset, "xattr").as_str(), "sa" | "on"),
        has_long_names: property_value(dataset, "longname") == "on",
        atime,
        acl_policy: acl_policy(dataset),
        ..*before
    }
}
