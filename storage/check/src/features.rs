//! Per-dataset features: which ones a dataset declares, and which ones its blocks and dnodes use.
//!
//! A dataset declares a feature by an entry of the feature's guid in its own ZAP. The pool counts in
//! `features_for_read` and `features_for_write` how many datasets declare it. Software that does not
//! know a feature relies on both: a dataset that uses a feature without declaring it may be sent to,
//! or imported on, a system that cannot read it.

use std::collections::BTreeMap;

use dmu::Objset;
use ondisk::blkptr::{Checksum, Compression};
use ondisk::dnode::Dnode;
use ondisk::feature::{FEATURES, Feature};
use ondisk::{Blkptr, ObjectType};
use spa::FeatureState;
use units::{ObjectId, ObjsetId};
use zap::Zap;

use crate::Error;
use crate::tally::Tally;

/// Bytes of the largest block that a pool may have without `large_blocks`.
const LARGEST_PLAIN_BLOCK: u32 = 128 << 10;

/// A set of per-dataset features: bit N stands for the Nth entry of [`FEATURES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeatureSet(u64);

impl FeatureSet {
    fn insert(&mut self, name: &str) {
        if let Some(at) = FEATURES.iter().position(|feature| feature.name == name) {
            self.0 |= 1 << at;
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    fn iter(self) -> impl Iterator<Item = &'static Feature> {
        let has = move |at: usize| self.0 & (1 << at) != 0;
        FEATURES.iter().enumerate().filter(move |(at, _)| has(*at)).map(|(_, feature)| feature)
    }

    /// The features that a dataset uses because of such a block.
    pub(crate) fn from_block(pointer: &Blkptr) -> Self {
        let mut found = Self::default();
        let compression = match pointer {
            Blkptr::Regular(block) => {
                let name = match block.checksum {
                    Checksum::Sha512 => "sha512",
                    Checksum::Skein => "skein",
                    Checksum::EdonR => "edonr",
                    Checksum::Blake3 => "blake3",
                    _ => "",
                };
                found.insert_if(!name.is_empty(), name);
                found.insert_if(block.lsize > LARGEST_PLAIN_BLOCK, "large_blocks");
                block.compression
            }
            Blkptr::Embedded(block) => block.compression,
            Blkptr::Hole(_) | Blkptr::Redacted(_) => return found,
        };
        found.insert_if(compression == Compression::Zstd, "zstd_compress");
        found
    }

    fn insert_if(&mut self, used: bool, name: &str) {
        if used {
            self.insert(name);
        }
    }

    /// The features that a dataset uses because of a block of dnodes.
    pub(crate) fn from_dnodes(content: &[u8]) -> Self {
        let (mut found, mut at) = (Self::default(), 0_usize);
        while let Some(rest) = content.get(at * Dnode::SLOT..).filter(|rest| !rest.is_empty()) {
            let slots = Dnode::peek_slots(rest).unwrap_or(1);
            found.insert_if(slots > 1, "large_dnode");
            at += usize::from(slots.max(1));
        }
        found
    }
}

/// The features that datasets declare, and those that they use, as far as the walk has come.
#[derive(Debug, Default)]
pub(crate) struct FeatureUsage {
    declared: BTreeMap<ObjsetId, FeatureSet>,
    used: BTreeMap<ObjsetId, FeatureSet>,
}

impl FeatureUsage {
    /// Records the features that the dataset `id` declares in its ZAP.
    pub(crate) fn add_declared(&mut self, mos: &Objset, id: ObjectId) -> Result<(), Error> {
        let object = mos.object(id)?;
        let mut declared = FeatureSet::default();
        if object.dnode().kind != ObjectType::DSL_DATASET {
            for entry in Zap::open(object)?.entries() {
                let name = entry?.name;
                let feature = FEATURES.iter().find(|known| known.guid.as_bytes() == name);
                declared.insert(feature.map_or("", |feature| feature.name));
            }
        }
        self.declared.insert(ObjsetId::new(id.get()), declared);
        Ok(())
    }

    /// Notes what an object set uses.
    pub(crate) fn add_used(&mut self, id: ObjsetId, used: FeatureSet) {
        if used != FeatureSet::default() {
            self.used.entry(id).or_default().merge(used);
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.declared.extend(other.declared);
        for (id, used) in other.used {
            self.add_used(id, used);
        }
    }

    /// Reports datasets that use undeclared features, and features whose count differs from the
    /// number of datasets that declare them.
    pub(crate) fn report_mismatches(&self, pool: &[FeatureState], tally: &mut Tally) {
        for (id, declared) in &self.declared {
            let used = self.used.get(id).copied().unwrap_or_default();
            for feature in used.difference(*declared).iter() {
                let name = feature.name;
                let what = format!(
                    "dataset {id} uses the feature {name} and does not declare it: other systems \
                     may fail to read it"
                );
                tally.add_note(true, what);
            }
        }
        for feature in FEATURES.iter().filter(|feature| feature.per_dataset) {
            let state = pool.iter().find(|state| state.guid == feature.guid);
            let counted = state.map_or(0, |state| state.refcount);
            let is_declared = |set: &&FeatureSet| set.iter().any(|known| known == feature);
            let found = self.declared.values().filter(is_declared).count() as u64;
            if counted != found {
                let name = feature.name;
                let what = format!(
                    "the feature {name} is counted {counted} times, and {found} datasets declare it"
                );
                tally.add_note(true, what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ondisk::dnode::Dnode;
    use spa::FeatureState;
    use units::ObjsetId;

    use super::{FeatureSet, FeatureUsage};
    use crate::tally::Tally;

    fn feature_state(guid: &str, uses: u64) -> FeatureState {
        let (read_only_compatible, known) = (false, true);
        FeatureState {
            guid: guid.to_owned(),
            refcount: uses,
            read_only_compatible,
            is_supported: known,
        }
    }

    #[test]
    fn large_dnodes_are_found_in_a_block() {
        let mut block = vec![0; 4 * Dnode::SLOT];
        block[Dnode::SLOT] = 19;
        assert_eq!(FeatureSet::from_dnodes(&block), FeatureSet::default());
        block[Dnode::SLOT + 12] = 1;
        let found: Vec<_> = FeatureSet::from_dnodes(&block).iter().map(|f| f.name).collect();
        assert_eq!(found, ["large_dnode"]);
    }

    #[test]
    fn undeclared_use_and_wrong_count_are_reported() {
        let mut features = FeatureUsage::default();
        let mut zstd = FeatureSet::default();
        zstd.insert("zstd_compress");
        features.declared.insert(ObjsetId::new(7), FeatureSet::default());
        features.add_used(ObjsetId::new(7), zstd);
        let mut tally = Tally::default();
        features.report_mismatches(&[feature_state("org.freebsd:zstd_compress", 1)], &mut tally);
        let notes: Vec<_> = tally.notes.iter().map(|note| note.message.as_str()).collect();
        assert!(notes[0].starts_with("dataset 7 uses the feature zstd_compress"), "{notes:?}");
        assert!(notes[1].contains("is counted 1 times, and 0 datasets"), "{notes:?}");
        features.declared.insert(ObjsetId::new(7), zstd);
        let mut tally = Tally::default();
        features.report_mismatches(&[feature_state("org.freebsd:zstd_compress", 1)], &mut tally);
        assert!(tally.notes.is_empty());
    }
}
