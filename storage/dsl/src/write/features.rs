//! Features of the pool: enabled, and how many things use each.
//!
//! The pool's directory names the tables: `features_for_read` and `features_for_write` hold the
//! counts, `feature_descriptions` sentences, and `feature_enabled_txg` when each was enabled. A
//! pool of an older version has none of them, and no feature is enabled.

use dmu::Objset;
use ondisk::feature::Feature;
use units::ObjectId;
use zap::{Zap, ZapValue};

use super::context::{POOL_DIRECTORY, SyncTaskContext, ZAP_METADATA};
use super::space::{to_i64, with_delta};
use crate::{Error, Result};

/// The features that datasets have to do with.
pub(crate) mod guid {
    pub(crate) const ASYNC_DESTROY: &str = "com.delphix:async_destroy";
    pub(crate) const BOOKMARKS: &str = "com.delphix:bookmarks";
    pub(crate) const BOOKMARK_V2: &str = "com.datto:bookmark_v2";
    pub(crate) const BOOKMARK_WRITTEN: &str = "com.delphix:bookmark_written";
    pub(crate) const EMPTY_BPOBJ: &str = "com.delphix:empty_bpobj";
    pub(crate) const ENABLED_TXG: &str = "com.delphix:enabled_txg";
    pub(crate) const EXTENSIBLE_DATASET: &str = "com.delphix:extensible_dataset";
    pub(crate) const HEAD_ERRLOG: &str = "com.delphix:head_errlog";
    pub(crate) const LIMITS: &str = "com.joyent:filesystem_limits";
    pub(crate) const LIVELIST: &str = "com.delphix:livelist";
    pub(crate) const OBSOLETE_COUNTS: &str = "com.delphix:obsolete_counts";
    pub(crate) const REDACTION_BOOKMARKS: &str = "com.delphix:redaction_bookmarks";
    pub(crate) const REDACTION_SPILL: &str = "com.delphix:redaction_list_spill";
}

const FEATURES_FOR_READ: &str = "features_for_read";
const FEATURES_FOR_WRITE: &str = "features_for_write";
const FEATURE_DESCRIPTIONS: &str = "feature_descriptions";
const FEATURE_ENABLED_TXG: &str = "feature_enabled_txg";

/// Makes the tables of a new pool, and names them in its directory.
pub fn create_feature_zaps(change: &SyncTaskContext<'_>) -> Result<()> {
    for name in [FEATURES_FOR_READ, FEATURES_FOR_WRITE, FEATURE_DESCRIPTIONS] {
        change.create_named_zap(ZAP_METADATA, POOL_DIRECTORY, name)?;
    }
    Ok(())
}

/// How many things use a feature; `None` if it is not enabled.
pub fn refcount(mos: &Objset, feature: &Feature) -> Result<Option<u64>> {
    let directory = Zap::open(mos.object(POOL_DIRECTORY)?)?;
    let Some(table) = directory.lookup_u64(refcount_zap_name(feature).as_bytes())? else {
        return Ok(None);
    };
    let table = Zap::open(mos.object(ObjectId::new(table))?)?;
    Ok(table.lookup_u64(feature.guid.as_bytes())?)
}

/// Enables a feature, and first those that it depends on. An enabled one stays unchanged.
pub fn enable(change: &SyncTaskContext<'_>, feature: &Feature) -> Result<()> {
    if refcount(change.mos, feature)?.is_some() {
        return Ok(());
    }
    for needed in feature.dependencies.iter().filter_map(|name| Feature::by_name(name)) {
        enable(change, needed)?;
    }
    let about = [feature.description.as_bytes(), &[0]].concat();
    change.update(
        feature_zap(change, FEATURE_DESCRIPTIONS)?,
        feature.guid,
        &ZapValue::new(1, about),
    )?;
    set_refcount(change, feature, feature.active_on_enable.into())?;
    if is_enabled(change, guid::ENABLED_TXG)? {
        let times = match change.lookup_u64(POOL_DIRECTORY, FEATURE_ENABLED_TXG)? {
            Some(times) => ObjectId::new(times),
            None => change.create_named_zap(ZAP_METADATA, POOL_DIRECTORY, FEATURE_ENABLED_TXG)?,
        };
        increment(change, guid::ENABLED_TXG)?;
        change.insert_u64(times, feature.guid, change.txg().get())?;
    }
    if feature.guid == guid::HEAD_ERRLOG { drop_error_logs(change) } else { Ok(()) }
}

/// Removes the pool's lists of damaged blocks. With `head_errlog` their entries have another form; the
/// next scrub makes new ones.
fn drop_error_logs(change: &SyncTaskContext<'_>) -> Result<()> {
    for name in ["errlog_last", "errlog_scrub"] {
        if let Some(log) = change.lookup_u64(POOL_DIRECTORY, name)? {
            change.remove(POOL_DIRECTORY, name)?;
            change.free_object_if_set(ObjectId::new(log))?;
        }
    }
    Ok(())
}

pub(crate) fn is_enabled(change: &SyncTaskContext<'_>, guid: &'static str) -> Result<bool> {
    Ok(refcount(change.mos, find_feature(guid)?)?.is_some())
}

pub(crate) fn is_active(change: &SyncTaskContext<'_>, guid: &'static str) -> Result<bool> {
    Ok(refcount(change.mos, find_feature(guid)?)?.is_some_and(|uses| uses > 0))
}

/// One more thing uses a feature.
pub(crate) fn increment(change: &SyncTaskContext<'_>, guid: &'static str) -> Result<()> {
    increment_feature(change, find_feature(guid)?)
}

/// One thing less uses a feature.
pub(crate) fn decrement(change: &SyncTaskContext<'_>, guid: &'static str) -> Result<()> {
    decrement_feature(change, find_feature(guid)?)
}

/// Increments the reference count of a feature.
pub(crate) fn increment_by(
    change: &SyncTaskContext<'_>,
    guid: &'static str,
    count: u64,
) -> Result<()> {
    let feature = find_feature(guid)?;
    add_to_refcount(change, feature, to_i64(count))
}

/// Decrements the reference count of a feature.
pub(crate) fn decrement_by(
    change: &SyncTaskContext<'_>,
    guid: &'static str,
    count: u64,
) -> Result<()> {
    let feature = find_feature(guid)?;
    add_to_refcount(change, feature, -to_i64(count))
}

/// One more thing uses a feature, which must be enabled.
pub fn increment_feature(change: &SyncTaskContext<'_>, feature: &Feature) -> Result<()> {
    add_to_refcount(change, feature, 1)
}

/// One thing less uses a feature.
pub fn decrement_feature(change: &SyncTaskContext<'_>, feature: &Feature) -> Result<()> {
    add_to_refcount(change, feature, -1)
}

fn enabled_refcount(change: &SyncTaskContext<'_>, feature: &Feature) -> Result<u64> {
    refcount(change.mos, feature)?.ok_or(Error::FeatureDisabled { guid: feature.guid })
}

fn add_to_refcount(change: &SyncTaskContext<'_>, feature: &Feature, delta: i64) -> Result<()> {
    let uses = with_delta(enabled_refcount(change, feature)?, delta);
    set_refcount(change, feature, uses)
}

fn set_refcount(change: &SyncTaskContext<'_>, feature: &Feature, uses: u64) -> Result<()> {
    change.update_u64(feature_zap(change, refcount_zap_name(feature))?, feature.guid, uses)
}

const fn refcount_zap_name(feature: &Feature) -> &'static str {
    if feature.read_only_compatible { FEATURES_FOR_WRITE } else { FEATURES_FOR_READ }
}

fn feature_zap(change: &SyncTaskContext<'_>, name: &'static str) -> Result<ObjectId> {
    let id = change.lookup_u64(POOL_DIRECTORY, name)?.ok_or(Error::NoDirectoryEntry { name })?;
    Ok(ObjectId::new(id))
}

fn find_feature(guid: &'static str) -> Result<&'static Feature> {
    Feature::by_guid(guid).ok_or(Error::FeatureDisabled { guid })
}
