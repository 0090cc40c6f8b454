//! How blocks are stored: what a dataset's properties come to.
//!
//! Metadata is always compressed and checked, and has a copy more than data. The pool's own
//! objects have three copies.

use dmu::PolicyQuery;
use ondisk::{Checksum, Compression, ObjectType, version};
use zio::{Class, Key, WritePolicy};

use crate::FeatureState;

/// Of which metadata there is one more copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RedundantMetadata {
    /// All of it.
    #[default]
    All,
    /// Blocks above data are told from those on the lowest level above it, which have none.
    Most,
    /// Only what stands for a whole dataset.
    Some,
    /// None.
    None,
}

/// How a dataset's blocks are stored.
#[derive(Clone, Debug)]
pub struct StorageSettings {
    /// How data are checked.
    pub checksum: Checksum,
    /// Data are deduplicated by this strong checksum.
    pub dedup: Option<Checksum>,
    /// And compared byte by byte before (verify).
    pub verify: bool,
    /// How data are compressed.
    pub compression: Compression,
    /// The level, for zstd.
    pub zstd_level: i32,
    /// How many copies of data there are.
    pub copies: u8,
    /// Of which metadata there is one more.
    pub redundant_metadata: RedundantMetadata,
    /// Blocks of files up to so many bytes go where metadata go (special_small_blocks).
    pub special_small_blocks: u32,
    /// Whole blocks may go to the drives before their group.
    pub write_through: bool,
    /// The key of an encrypted dataset.
    pub key: Option<Key>,
    /// The dataset is encrypted, and a raw stream is received into it without its key.
    pub keyless: bool,
    /// What the pool's features allow.
    pub features: EnabledFeatures,
}

/// What a pool's features allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "features, each on its own")]
pub struct EnabledFeatures {
    /// Blocks within their pointers (embedded_data).
    pub embedded: bool,
    /// Holes that know their birth (hole_birth).
    pub hole_birth: bool,
    /// Metadata compressed with lz4 (lz4_compress).
    pub lz4: bool,
    /// Packed attributes in the intent log (zilsaxattr).
    pub zilsaxattr: bool,
    /// Accounts by project (project_quota).
    pub project_quota: bool,
    /// More copies of a block than one (pool version 2).
    pub ditto_blocks: bool,
}

impl EnabledFeatures {
    /// By the features that a pool has enabled, and its version.
    pub(crate) fn from_pool(features: &[FeatureState], version: u64) -> Self {
        let has = |guid| features.iter().any(|feature| feature.guid == guid);
        Self {
            embedded: has("com.delphix:embedded_data"),
            hole_birth: has("com.delphix:hole_birth"),
            lz4: has("org.illumos:lz4_compress"),
            zilsaxattr: has("org.openzfs:zilsaxattr"),
            project_quota: has("org.zfsonlinux:project_quota"),
            ditto_blocks: version >= version::DITTO_BLOCKS,
        }
    }
}

impl Default for EnabledFeatures {
    fn default() -> Self {
        Self {
            embedded: true,
            hole_birth: true,
            lz4: true,
            zilsaxattr: true,
            project_quota: true,
            ditto_blocks: true,
        }
    }
}

impl Default for StorageSettings {
    /// As a new dataset has it.
    fn default() -> Self {
        Self {
            checksum: Checksum::Fletcher4,
            dedup: None,
            verify: false,
            compression: Compression::Lz4,
            zstd_level: 0,
            copies: 1,
            redundant_metadata: RedundantMetadata::All,
            special_small_blocks: 0,
            write_through: true,
            key: None,
            keyless: false,
            features: EnabledFeatures::default(),
        }
    }
}

/// In later passes of a sync nothing is compressed any more: what is written again then fits the
/// place that it has, and the passes come to an end.
const LAST_COMPRESSED_PASS: u16 = 3;

impl StorageSettings {
    /// The policy for blocks of a dataset.
    pub(crate) fn write_policy(&self, wanted: PolicyQuery) -> WritePolicy {
        let metadata = wanted.level.get() > 0 || wanted.kind.is_metadata();
        let one_more = match self.redundant_metadata {
            RedundantMetadata::All => metadata,
            RedundantMetadata::Most => {
                metadata && (wanted.level.get() > 1 || wanted.kind.is_metadata())
            }
            RedundantMetadata::Some => wanted.kind.is_metadata() && wanted.level.get() == 0,
            RedundantMetadata::None => false,
        };
        let compression = match wanted.compression {
            0 => self.compression,
            number => Compression::from_number(number).unwrap_or(self.compression),
        };
        let compression = match compression {
            Compression::On | Compression::Inherit => self.metadata_compression(),
            named => named,
        };
        let checksum = match wanted.checksum {
            0 => self.checksum,
            number => Checksum::from_number(number).unwrap_or(self.checksum),
        };
        // with a key only what is ciphered can be told apart by its checksum alone
        let shareable =
            !metadata && !self.keyless && (self.key.is_none() || wanted.kind.is_encrypted());
        let dedup = self.dedup.filter(|_| shareable);
        let checksum = dedup.unwrap_or(checksum);
        let most_copies = if self.features.ditto_blocks { 3 } else { 1 };
        let nopwrite = !metadata && dedup.is_none() && self.key.is_none() && !self.keyless;
        WritePolicy {
            checksum: if metadata { metadata_checksum(checksum) } else { checksum },
            compression: if metadata { self.metadata_compression() } else { compression },
            zstd_level: self.zstd_level,
            copies: (self.copies + u8::from(one_more)).clamp(1, most_copies),
            nopwrite,
            dedup: dedup.is_some(),
            verify: self.verify,
            embedded_data: self.features.embedded,
            zeros_to_hole: metadata || !compression.is_off(),
            hole_birth: self.features.hole_birth,
            key: self.key.clone(),
            keyless: self.keyless,
            class: match wanted.kind {
                ObjectType::DDT_ZAP => Class::Dedup,
                _ if metadata => Class::Special,
                _ => Class::Normal,
            },
            special_small_blocks: if wanted.kind == ObjectType::PLAIN_FILE {
                self.special_small_blocks
            } else {
                0
            },
        }
    }

    fn metadata_compression(&self) -> Compression {
        if self.features.lz4 { Compression::Lz4 } else { Compression::Lzjb }
    }
}

/// Metadata is never without a checksum, nor with a weak one.
fn metadata_checksum(checksum: Checksum) -> Checksum {
    match checksum {
        Checksum::Off | Checksum::NoParity | Checksum::Fletcher2 | Checksum::On => {
            Checksum::Fletcher4
        }
        strong => strong,
    }
}

/// The policy for the pool's own objects in a pass of a sync.
pub(crate) fn mos_write_policy(
    features: EnabledFeatures,
    pass: u16,
    wanted: PolicyQuery,
) -> WritePolicy {
    let settings = StorageSettings { copies: 3, features, ..StorageSettings::default() };
    let mut policy = settings.write_policy(wanted);
    if pass > LAST_COMPRESSED_PASS {
        policy.compression = Compression::Off;
        policy.embedded_data = false;
        policy.zeros_to_hole = false;
    }
    policy
}

#[cfg(test)]
mod tests {
    use dmu::PolicyQuery;
    use ondisk::{Compression, ObjectType};
    use units::Level;

    use super::{EnabledFeatures, StorageSettings, mos_write_policy};

    fn block_request(kind: ObjectType) -> PolicyQuery {
        PolicyQuery { kind, level: Level::new(0), checksum: 0, compression: 0 }
    }

    #[test]
    fn a_pool_without_features_gets_nothing_that_it_does_not_know() {
        let none = EnabledFeatures::from_pool(&[], 28);
        let settings = StorageSettings {
            compression: Compression::On,
            features: none,
            ..StorageSettings::default()
        };
        for kind in [ObjectType::PLAIN_FILE, ObjectType::DIRECTORY] {
            let policy = settings.write_policy(block_request(kind));
            assert_eq!(policy.compression, Compression::Lzjb);
            assert!(!policy.embedded_data && !policy.hole_birth);
        }
    }

    #[test]
    fn the_last_passes_of_a_sync_store_what_fits_its_place_again() {
        let kind = ObjectType::SPACE_MAP;
        assert_eq!(
            mos_write_policy(EnabledFeatures::default(), 1, block_request(kind)).compression,
            Compression::Lz4
        );
        let late = mos_write_policy(EnabledFeatures::default(), 4, block_request(kind));
        assert!(late.compression.is_off() && !late.embedded_data && late.copies == 3);
    }
}
