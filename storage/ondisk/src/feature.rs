//! Feature flags and pool versions: the parts of the format that a pool uses or may use.
//!
//! The pool directory has three ZAPs: `features_for_read` and `features_for_write` (guid of the
//! feature -> its reference count; 0 is enabled but not in use) and `feature_descriptions`. An
//! unknown feature in use forbids reading if it is in `features_for_read`, and only writing if it
//! is in `features_for_write`. A label repeats those without which not even the pool directory can
//! be read. A dataset's own features are in its ZAP, by guid.
//!
//! Pools before version 5000 have none of this: the version determines their format.
//!
//! Learnt from: the pool properties of the fixtures. Proved by: `known_features`.

/// The demand of a feature on a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ReadRequirement {
    /// None: it concerns writing only, or a reader may ignore it.
    None,
    /// That it be known: without it blocks or structures cannot be read.
    Required,
}

/// A feature flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct Feature {
    /// Its guid on disk: organization and name.
    pub guid: &'static str,
    /// Its short name, as in the property `feature@...`.
    pub name: &'static str,
    /// Whether a system that does not know it may still read the pool.
    pub read_only_compatible: bool,
    /// Whether labels list it, as it is needed to read the pool directory.
    pub in_label: bool,
    /// Whether each dataset that uses it records it.
    pub per_dataset: bool,
    /// Whether it is in use as soon as it is enabled.
    pub active_on_enable: bool,
    /// The features that it depends on.
    pub dependencies: &'static [&'static str],
    /// Its description.
    pub description: &'static str,
}

/// The marks of a feature, in short.
const READ_ONLY_COMPATIBLE: u8 = 1;
const IN_LABEL: u8 = 2;
const PER_DATASET: u8 = 4;
const ACTIVE_ON_ENABLE: u8 = 8;

const fn feature(
    guid: &'static str,
    marks: u8,
    needs: &'static [&'static str],
    about: &'static str,
) -> Feature {
    Feature {
        guid,
        name: name_of_guid(guid),
        read_only_compatible: marks & READ_ONLY_COMPATIBLE != 0,
        in_label: marks & IN_LABEL != 0,
        per_dataset: marks & PER_DATASET != 0,
        active_on_enable: marks & ACTIVE_ON_ENABLE != 0,
        dependencies: needs,
        description: about,
    }
}

/// The name of a feature is its guid without its owner.
const fn name_of_guid(guid: &'static str) -> &'static str {
    let mut rest = guid.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b':' {
            break;
        }
    }
    match std::str::from_utf8(rest) {
        Ok(name) => name,
        Err(_) => guid,
    }
}

const EXTENSIBLE: &[&str] = &["extensible_dataset"];
const BOOKMARKS: &[&str] = &["bookmark_v2", "extensible_dataset", "bookmarks"];

/// Every feature up to OpenZFS 2.3.
pub const FEATURES: [Feature; 44] = [
    feature(
        "com.delphix:async_destroy",
        READ_ONLY_COMPATIBLE,
        &[],
        "datasets are freed after they are gone",
    ),
    feature(
        "com.delphix:empty_bpobj",
        READ_ONLY_COMPATIBLE,
        &[],
        "empty lists of freed blocks are one and the same",
    ),
    feature("org.illumos:lz4_compress", ACTIVE_ON_ENABLE, &[], "lz4 compression"),
    feature("com.joyent:multi_vdev_crash_dump", 0, &[], "crash dumps to pools of several vdevs"),
    feature(
        "com.delphix:spacemap_histogram",
        READ_ONLY_COMPATIBLE,
        &[],
        "space maps count free regions by size",
    ),
    feature(
        "com.delphix:enabled_txg",
        READ_ONLY_COMPATIBLE,
        &[],
        "the txg in which a feature was enabled",
    ),
    feature(
        "com.delphix:hole_birth",
        IN_LABEL | ACTIVE_ON_ENABLE,
        &["enabled_txg"],
        "holes know their birth",
    ),
    feature(
        "com.delphix:zpool_checkpoint",
        READ_ONLY_COMPATIBLE,
        &[],
        "the pool can go back to a checkpoint",
    ),
    feature(
        "com.delphix:spacemap_v2",
        READ_ONLY_COMPATIBLE | ACTIVE_ON_ENABLE,
        &[],
        "space maps with entries of two words",
    ),
    feature("com.delphix:extensible_dataset", 0, &[], "datasets are ZAPs that other features use"),
    feature("com.delphix:bookmarks", READ_ONLY_COMPATIBLE, EXTENSIBLE, "bookmarks"),
    feature(
        "com.joyent:filesystem_limits",
        READ_ONLY_COMPATIBLE,
        EXTENSIBLE,
        "limits on filesystems and snapshots",
    ),
    feature(
        "com.delphix:embedded_data",
        IN_LABEL | ACTIVE_ON_ENABLE,
        &[],
        "small blocks in their pointers",
    ),
    feature(
        "com.delphix:livelist",
        READ_ONLY_COMPATIBLE,
        EXTENSIBLE,
        "clones list their own blocks",
    ),
    feature(
        "com.delphix:log_spacemap",
        READ_ONLY_COMPATIBLE,
        &["spacemap_v2"],
        "one log for all space maps",
    ),
    feature("org.open-zfs:large_blocks", PER_DATASET, EXTENSIBLE, "blocks above 128 KiB"),
    feature("org.zfsonlinux:large_dnode", PER_DATASET, EXTENSIBLE, "dnodes above 512 bytes"),
    feature("org.illumos:sha512", PER_DATASET, EXTENSIBLE, "SHA-512/256 checksums"),
    feature("org.illumos:skein", PER_DATASET, EXTENSIBLE, "Skein checksums"),
    feature("org.illumos:edonr", PER_DATASET, EXTENSIBLE, "Edon-R checksums"),
    feature("com.delphix:redaction_bookmarks", 0, BOOKMARKS, "bookmarks with what to leave out"),
    feature(
        "com.delphix:redacted_datasets",
        PER_DATASET,
        EXTENSIBLE,
        "datasets with parts left out",
    ),
    feature("com.delphix:bookmark_written", 0, BOOKMARKS, "bookmarks with their space"),
    feature("com.delphix:device_removal", IN_LABEL, &[], "top-level vdevs can be removed"),
    feature(
        "com.delphix:obsolete_counts",
        READ_ONLY_COMPATIBLE,
        &["extensible_dataset", "device_removal"],
        "removed vdevs forget blocks that were freed",
    ),
    feature(
        "org.zfsonlinux:userobj_accounting",
        READ_ONLY_COMPATIBLE | PER_DATASET,
        EXTENSIBLE,
        "objects by owner",
    ),
    feature("com.datto:bookmark_v2", 0, &["extensible_dataset", "bookmarks"], "larger bookmarks"),
    feature(
        "com.datto:encryption",
        PER_DATASET,
        &["extensible_dataset", "bookmark_v2"],
        "encrypted datasets",
    ),
    feature(
        "org.zfsonlinux:project_quota",
        READ_ONLY_COMPATIBLE | PER_DATASET,
        EXTENSIBLE,
        "space by project",
    ),
    feature(
        "org.zfsonlinux:allocation_classes",
        READ_ONLY_COMPATIBLE,
        &[],
        "vdevs for metadata or dedup tables",
    ),
    feature(
        "com.datto:resilver_defer",
        READ_ONLY_COMPATIBLE,
        &[],
        "a resilver waits for the one before",
    ),
    feature(
        "org.openzfs:device_rebuild",
        READ_ONLY_COMPATIBLE,
        &[],
        "drives are rebuilt in sequence",
    ),
    feature("org.freebsd:zstd_compress", PER_DATASET, EXTENSIBLE, "zstd compression"),
    feature("org.openzfs:draid", IN_LABEL, &[], "draid"),
    feature(
        "org.openzfs:zilsaxattr",
        READ_ONLY_COMPATIBLE | PER_DATASET,
        EXTENSIBLE,
        "attributes in the intent log",
    ),
    feature("com.delphix:head_errlog", ACTIVE_ON_ENABLE, &[], "the error log by dataset"),
    feature("org.openzfs:blake3", PER_DATASET, EXTENSIBLE, "BLAKE3 checksums"),
    feature("com.fudosecurity:block_cloning", READ_ONLY_COMPATIBLE, &[], "files can share blocks"),
    feature("com.klarasystems:vdev_zaps_v2", IN_LABEL, &[], "the root vdev has a ZAP"),
    feature(
        "com.delphix:redaction_list_spill",
        0,
        &["redaction_bookmarks"],
        "redaction over more snapshots",
    ),
    feature("org.openzfs:raidz_expansion", IN_LABEL, &[], "raidz can be widened"),
    feature("com.klarasystems:fast_dedup", READ_ONLY_COMPATIBLE, &[], "dedup tables with logs"),
    feature("org.zfsonlinux:longname", PER_DATASET, EXTENSIBLE, "file names up to 1023 bytes"),
    feature(
        "com.klarasystems:large_microzap",
        READ_ONLY_COMPATIBLE | PER_DATASET,
        &["extensible_dataset", "large_blocks"],
        "micro ZAPs above 128 KiB",
    ),
];

impl Feature {
    /// The feature of that guid, if we know it.
    pub fn by_guid(guid: &str) -> Option<&'static Self> {
        FEATURES.iter().find(|feature| feature.guid == guid)
    }

    /// The feature of that name, if we know it.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        FEATURES.iter().find(|feature| feature.name == name)
    }

    /// The demand on a reader.
    pub const fn read_requirement(&self) -> ReadRequirement {
        if self.read_only_compatible { ReadRequirement::None } else { ReadRequirement::Required }
    }
}

/// The newest version; since it, feature flags determine the format.
pub const VERSION_FEATURES: u64 = 5000;
/// The last version that counts.
pub const LAST_NUMBERED_VERSION: u64 = 28;

/// The addition of each version, from 1 on.
pub const VERSIONS: [&str; 28] = [
    "the first version",
    "copies of metadata (ditto blocks)",
    "hot spares and raidz2",
    "history",
    "gzip compression",
    "the pool property bootfs",
    "separate intent log devices",
    "delegated permissions",
    "refquota and refreservation",
    "cache devices",
    "faster scrubs",
    "snapshot properties",
    "the property snapused",
    "the property aclinherit passthrough-x",
    "space by user and group",
    "the property stmf",
    "raidz3",
    "holds on snapshots",
    "log devices can be removed",
    "zle compression",
    "dedup",
    "received properties",
    "slim intent log",
    "system attributes",
    "better scrub statistics",
    "better deletion of snapshots",
    "better creation of snapshots",
    "several replacements at once",
];

/// Whether a pool of that version is one that we know.
pub const fn is_known_version(version: u64) -> bool {
    matches!(version, 1..=LAST_NUMBERED_VERSION) || version == VERSION_FEATURES
}

#[cfg(test)]
mod tests {
    use super::{FEATURES, Feature, ReadRequirement, VERSIONS, is_known_version};

    #[test]
    fn known_features() {
        // the properties of a pool of OpenZFS 2.3 with all of them enabled
        let mut golden: Vec<_> = include_str!("../tests/golden/features.txt").lines().collect();
        let mut ours: Vec<_> = FEATURES.iter().map(|feature| feature.name).collect();
        golden.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, golden);
        let compatible = FEATURES
            .iter()
            .filter(|feature| feature.read_requirement() == ReadRequirement::None)
            .count();
        assert_eq!(compatible, 20);
        let lz4 = Feature::by_name("lz4_compress").unwrap();
        assert_eq!(lz4.guid, "org.illumos:lz4_compress");
        assert!(lz4.active_on_enable && !lz4.read_only_compatible);
        assert_eq!(Feature::by_guid("org.openzfs:draid").unwrap().name, "draid");
        assert!(Feature::by_guid("org.example:none").is_none());
    }

    #[test]
    fn features_are_unique_and_dependencies_known() {
        for (index, feature) in FEATURES.iter().enumerate() {
            let rest = &FEATURES[index + 1..];
            assert!(rest.iter().all(|other| other.name != feature.name), "{}", feature.name);
            for need in feature.dependencies {
                assert!(Feature::by_name(need).is_some(), "{need}");
            }
        }
    }

    #[test]
    fn versions() {
        assert_eq!(VERSIONS.len(), 28);
        assert!(is_known_version(1) && is_known_version(28) && is_known_version(5000));
        assert!(!is_known_version(0) && !is_known_version(29) && !is_known_version(5001));
    }
}
