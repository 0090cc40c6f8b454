//! Pools that lack features, as older systems want them, and what cannot be had in them.

use engine::pool::{CreateOptions, Pool};
use sim::Random;

use super::{RoundError, random_element};

/// Sets of features, and nothing.
const COMPATIBILITY_SETS: [&str; 12] = [
    "legacy",
    "zol-0.6.1",
    "zol-0.6.4",
    "zol-0.6.5",
    "freebsd-11.2",
    "zol-0.7",
    "zol-0.8",
    "openzfs-2.0-linux",
    "openzfs-2.1-freebsd",
    "openzfs-2.2",
    "grub2",
    "openzfsonosx-1.8.1,grub2",
];

/// Features that nothing in a round cannot do without.
const OPTIONAL_FEATURES: [&str; 34] = [
    "async_destroy",
    "blake3",
    "block_cloning",
    "bookmark_v2",
    "bookmarks",
    "device_removal",
    "draid",
    "edonr",
    "embedded_data",
    "empty_bpobj",
    "enabled_txg",
    "encryption",
    "extensible_dataset",
    "fast_dedup",
    "filesystem_limits",
    "head_errlog",
    "hole_birth",
    "large_blocks",
    "large_dnode",
    "large_microzap",
    "livelist",
    "log_spacemap",
    "longname",
    "lz4_compress",
    "obsolete_counts",
    "project_quota",
    "sha512",
    "skein",
    "spacemap_histogram",
    "spacemap_v2",
    "userobj_accounting",
    "vdev_zaps_v2",
    "zilsaxattr",
    "zstd_compress",
];

/// Properties of a pool that lacks features: one set that it is kept to, or some that are left out.
pub(super) fn random_restrictions(chance: &mut Random) -> Vec<(String, String)> {
    if chance.chance_percent(50) {
        return vec![(
            "compatibility".to_owned(),
            random_element(chance, &COMPATIBILITY_SETS).to_owned(),
        )];
    }
    let percent = random_element(chance, &[10, 30, 60]);
    let out = OPTIONAL_FEATURES.into_iter().filter(|_| chance.chance_percent(percent));
    out.map(|name| (format!("feature@{name}"), "disabled".to_owned())).collect()
}

/// The features that a pool has.
pub(super) struct Features(Vec<String>);

impl Features {
    /// Of a pool that is to be.
    pub(super) fn from_options(wishes: &CreateOptions) -> Self {
        Self(wishes.features().map(str::to_owned).collect())
    }

    /// Of a pool.
    pub(super) fn from_pool(held: &Pool) -> Result<Self, RoundError> {
        let all = held.properties().of_pool().map_err(|error| format!("properties: {error}"))?;
        let here = all.iter().filter(|property| property.value != "disabled");
        let names = here.filter_map(|property| property.name.strip_prefix("feature@"));
        Ok(Self(names.map(str::to_owned).collect()))
    }

    pub(super) fn is_enabled(&self, feature: &str) -> bool {
        self.0.iter().any(|name| name == feature)
    }

    /// Whether a property may have this value.
    pub(super) fn allows_property(&self, (property, value): (&str, &str)) -> bool {
        let wanted = match (property, value) {
            ("recordsize", "256K" | "1M" | "4M") => "large_blocks",
            ("dnodesize", value) if value != "legacy" => "large_dnode",
            ("compression", "lz4") => "lz4_compress",
            ("compression", value) if value.starts_with("zstd") => "zstd_compress",
            ("checksum" | "dedup", value) => match value.split(',').next() {
                Some(name @ ("sha512" | "skein" | "edonr" | "blake3")) => name,
                _ => return true,
            },
            ("special_small_blocks", _) => "allocation_classes",
            ("encryption" | "keyformat" | "keylocation" | "pbkdf2iters", _) => "encryption",
            _ => return true,
        };
        self.is_enabled(wanted)
    }

    /// Leaves out values that are not allowed.
    pub(super) fn retain_allowed(&self, properties: &mut Vec<(String, String)>) {
        properties.retain(|(name, value)| self.allows_property((name, value)));
    }
}
