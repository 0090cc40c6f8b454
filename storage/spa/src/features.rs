//! Which features a pool uses, and whether we can read it in spite of them.

use dmu::Objset;
use ondisk::feature::FEATURES;
use txg::Tx;
use zap::Zap;

use crate::{Error, PoolDirectory};

/// A feature of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureState {
    /// Its guid: organization and name, "org.illumos:lz4_compress".
    pub guid: String,
    /// How many things use it; 0: enabled, and not in use.
    pub refcount: u64,
    /// Whether the pool can be read without knowing it.
    pub read_only_compatible: bool,
    /// Whether this program knows it.
    pub is_supported: bool,
}

/// The permissions that follow from the features of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeatureCheck {
    /// All are known.
    Supported,
    /// The unknown ones do not matter for reading.
    ReadOnly(Vec<String>),
    /// The pool cannot be read without knowing these.
    Unsupported(Vec<String>),
}

/// The features that the pool's directory lists.
pub(crate) fn read(directory: &PoolDirectory) -> Result<Vec<FeatureState>, Error> {
    let mut found = Vec::new();
    for (name, read_only_compatible) in [("features_for_read", false), ("features_for_write", true)]
    {
        let Some(object) = directory.object(name)? else { continue };
        for entry in Zap::open(object)?.entries() {
            let entry = entry?;
            let guid = String::from_utf8_lossy(&entry.name).into_owned();
            let known = FEATURES.iter().any(|feature| feature.guid == guid);
            let uses = entry.value.u64().unwrap_or(0);
            found.push(FeatureState {
                guid,
                refcount: uses,
                read_only_compatible,
                is_supported: known,
            });
        }
    }
    found.sort_by(|a, b| a.guid.cmp(&b.guid));
    Ok(found)
}

/// How a feature's number of uses changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefcountChange {
    /// The change of the count.
    Delta(i64),
    /// To just that.
    Exact(u64),
}

/// Changes how often a feature is in use. One that is not enabled is left alone.
pub(crate) fn update_refcount(
    mos: &Objset,
    tx: &Tx,
    guid: &str,
    uses: RefcountChange,
) -> Result<(), Error> {
    let directory = PoolDirectory::open(mos.clone())?;
    for name in ["features_for_read", "features_for_write"] {
        let Some(object) = directory.object(name)? else { continue };
        let table = Zap::open(object)?;
        let Some(before) = table.lookup_u64(guid.as_bytes())? else { continue };
        let after = match uses {
            RefcountChange::Delta(more) => before.saturating_add_signed(more),
            RefcountChange::Exact(just) => just,
        };
        if after != before {
            table.update_u64(tx, guid.as_bytes(), after)?;
        }
    }
    Ok(())
}

/// The permissions from features.
pub(crate) fn check_features(features: &[FeatureState]) -> FeatureCheck {
    let unknown = |harmless: bool| -> Vec<String> {
        let strange = features.iter().filter(|feature| {
            !feature.is_supported
                && feature.refcount > 0
                && feature.read_only_compatible == harmless
        });
        strange.map(|feature| feature.guid.clone()).collect()
    };
    let (refused, harmless) = (unknown(false), unknown(true));
    if !refused.is_empty() {
        return FeatureCheck::Unsupported(refused);
    }
    if harmless.is_empty() { FeatureCheck::Supported } else { FeatureCheck::ReadOnly(harmless) }
}

/// Refuses a pool whose label already names unknown features.
pub(crate) fn check_label_features(guids: &[String]) -> Result<(), Error> {
    let known = |guid: &String| FEATURES.iter().any(|feature| feature.guid == *guid);
    let guids: Vec<String> = guids.iter().filter(|guid| !known(guid)).cloned().collect();
    if guids.is_empty() { Ok(()) } else { Err(Error::UnsupportedFeatures { guids }) }
}
