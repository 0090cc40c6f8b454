//! Features of the pool: enabled, and how many things use each.
//!
//! The pool's directory names the tables: `features_for_read` and `features_for_write` hold the
//! counts, `feature_descriptions` sentences, and `feature_enabled_txg` when each was enabled. A
//! pool of an older version has none of them, and no feature is enabled.

use dmu::Objset;
use ondisk::feature::Feature;
use units::ObjectId;
use zap::{Zap, ZapValue};

use super::change::{Change, DIRECTORY, TABLE};
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

const READ: &str = "features_for_read";
const WRITE: &str = "features_for_write";
const DESCRIPTIONS: &str = "feature_descriptions";
const ENABLED_TXG: &str = "feature_enabled_txg";

/// Makes the tables of a new pool, and names them in its directory.
pub fn create_tables(change: &Change<'_>) -> Result<()> {
    for name in [READ, WRITE, DESCRIPTIONS] {
        change.new_named_table(TABLE, DIRECTORY, name)?;
    }
    Ok(())
}

/// How many things use a feature; `None` if it is not enabled.
pub fn uses(mos: &Objset, feature: &Feature) -> Result<Option<u64>> {
    let directory = Zap::open(mos.object(DIRECTORY)?)?;
    let Some(table) = directory.lookup_u64(table_of(feature).as_bytes())? else { return Ok(None) };
    let table = Zap::open(mos.object(ObjectId::new(table))?)?;
    Ok(table.lookup_u64(feature.guid.as_bytes())?)
}

/// Enables a feature, and before it those that it needs. One that is enabled stays as it is.
pub fn enable(change: &Change<'_>, feature: &Feature) -> Result<()> {
    if uses(change.mos, feature)?.is_some() {
        return Ok(());
    }
    for needed in feature.needs.iter().filter_map(|name| Feature::by_name(name)) {
        enable(change, needed)?;
    }
    let about = [feature.about.as_bytes(), &[0]].concat();
    change.put(table(change, DESCRIPTIONS)?, feature.guid, &ZapValue::new(1, about))?;
    set_uses(change, feature, feature.at_once.into())?;
    if is_enabled(change, guid::ENABLED_TXG)? {
        let times = match change.number(DIRECTORY, ENABLED_TXG)? {
            Some(times) => ObjectId::new(times),
            None => change.new_named_table(TABLE, DIRECTORY, ENABLED_TXG)?,
        };
        add(change, guid::ENABLED_TXG)?;
        change.insert(times, feature.guid, change.txg().get())?;
    }
    if feature.guid == guid::HEAD_ERRLOG { drop_error_logs(change) } else { Ok(()) }
}

/// Removes the pool's lists of damaged blocks. With `head_errlog` their entries have another form; the
/// next scrub makes new ones.
fn drop_error_logs(change: &Change<'_>) -> Result<()> {
    for name in ["errlog_last", "errlog_scrub"] {
        if let Some(log) = change.number(DIRECTORY, name)? {
            change.remove(DIRECTORY, name)?;
            change.free_if_any(ObjectId::new(log))?;
        }
    }
    Ok(())
}

pub(crate) fn is_enabled(change: &Change<'_>, guid: &'static str) -> Result<bool> {
    Ok(uses(change.mos, known(guid)?)?.is_some())
}

pub(crate) fn is_active(change: &Change<'_>, guid: &'static str) -> Result<bool> {
    Ok(uses(change.mos, known(guid)?)?.is_some_and(|uses| uses > 0))
}

/// One more thing uses a feature.
pub(crate) fn add(change: &Change<'_>, guid: &'static str) -> Result<()> {
    add_use(change, known(guid)?)
}

/// One thing less uses a feature.
pub(crate) fn take(change: &Change<'_>, guid: &'static str) -> Result<()> {
    take_use(change, known(guid)?)
}

/// So many more things use a feature.
pub(crate) fn add_many(change: &Change<'_>, guid: &'static str, count: u64) -> Result<()> {
    let feature = known(guid)?;
    set_uses(change, feature, enabled_uses(change, feature)?.saturating_add(count))
}

/// So many things less use a feature.
pub(crate) fn take_many(change: &Change<'_>, guid: &'static str, count: u64) -> Result<()> {
    let feature = known(guid)?;
    set_uses(change, feature, enabled_uses(change, feature)?.saturating_sub(count))
}

/// One more thing uses a feature, which must be enabled.
pub fn add_use(change: &Change<'_>, feature: &Feature) -> Result<()> {
    set_uses(change, feature, enabled_uses(change, feature)?.saturating_add(1))
}

/// One thing less uses a feature.
pub fn take_use(change: &Change<'_>, feature: &Feature) -> Result<()> {
    set_uses(change, feature, enabled_uses(change, feature)?.saturating_sub(1))
}

fn enabled_uses(change: &Change<'_>, feature: &Feature) -> Result<u64> {
    uses(change.mos, feature)?.ok_or(Error::FeatureDisabled { guid: feature.guid })
}

fn set_uses(change: &Change<'_>, feature: &Feature, uses: u64) -> Result<()> {
    change.put_number(table(change, table_of(feature))?, feature.guid, uses)
}

const fn table_of(feature: &Feature) -> &'static str {
    if feature.read_only_compatible { WRITE } else { READ }
}

fn table(change: &Change<'_>, name: &'static str) -> Result<ObjectId> {
    let id = change.number(DIRECTORY, name)?.ok_or(Error::Missing { name })?;
    Ok(ObjectId::new(id))
}

fn known(guid: &'static str) -> Result<&'static Feature> {
    Feature::by_guid(guid).ok_or(Error::FeatureDisabled { guid })
}
