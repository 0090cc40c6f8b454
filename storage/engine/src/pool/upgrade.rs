//! The guid of a pool, its version and its features: `zpool reguid`, `zpool upgrade`.

use dsl::write;
use ondisk::feature::{FEATURES, Feature};
use serde::{Deserialize, Serialize};
use spa::{ActivePool, FEATURES_VERSION};
use units::Guid;

use super::{Pool, compatibility};
use crate::pool::handles::Properties;
use crate::{Error, Result};

/// The newest version that counts no features.
const NEWEST_LEGACY_VERSION: u64 = 28;

/// The possible upgrades of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeStatus {
    /// The pool.
    pub name: String,
    /// Its version: 1 to 28, or 5000 with feature flags.
    pub version: u64,
    /// Known features that it has not enabled, without those that its `compatibility`
    /// excludes.
    pub disabled: Vec<String>,
}

/// The result of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeResult {
    /// The version before.
    pub old_version: u64,
    /// The version after.
    pub new_version: u64,
    /// The features that were enabled.
    pub enabled: Vec<String>,
}

/// A feature that is known here: its name, its description, and whether systems without it can read pools
/// that use it.
pub fn supported_features() -> impl Iterator<Item = (&'static str, &'static str, bool)> {
    FEATURES.iter().map(|it| (it.name, it.description, it.read_only_compatible))
}

impl Pool {
    /// Gives the pool another guid, so that it can be imported beside a copy of its drives; returns it. All
    /// its drives must be there.
    pub fn set_guid(&self, wanted: Option<u64>) -> Result<u64> {
        self.check_writable()?;
        let failed = |error| match error {
            spa::Error::Checkpoint(_) | spa::Error::DeviceChange(_) => {
                Error::Refused { what: format!("cannot reguid '{}': {error}", self.name()) }
            }
            other => self.explain_error(&other),
        };
        self.0.spa.set_pool_guid(wanted.map(Guid::new)).map(Guid::get).map_err(failed)
    }
}

impl Properties<'_> {
    /// The possible upgrades.
    pub fn upgrade_status(self) -> Result<UpgradeStatus> {
        let disabled = self.pool.disabled_features()?;
        Ok(UpgradeStatus {
            name: self.pool.name().to_owned(),
            version: self.pool.0.spa.version(),
            disabled: disabled.into_iter().map(|feature| feature.name.to_owned()).collect(),
        })
    }

    /// Enables all features that are known here and that its `compatibility` allows; a pool of a legacy
    /// version gets feature flags. `version`: only to that legacy version; a newer pool stays as it is.
    pub fn upgrade(self, version: Option<u64>) -> Result<UpgradeResult> {
        self.pool.check_writable()?;
        let old_version = self.pool.0.spa.version();
        let wanted = check_version(version.unwrap_or(FEATURES_VERSION))?;
        // a newer pool stays as it is
        let new_version = wanted.max(old_version);
        let features =
            if wanted >= FEATURES_VERSION { self.pool.disabled_features()? } else { vec![] };
        let enabled = features.iter().map(|feature| feature.name.to_owned()).collect();
        if new_version != old_version || !features.is_empty() {
            let pool = self.pool.name().to_owned();
            self.pool.run_sync_task(move |active, change| {
                if new_version != old_version {
                    active.set_version(change, new_version).map_err(|error| Error::Refused {
                        what: format!("cannot upgrade '{pool}': {error}"),
                    })?;
                }
                let mut all = features.into_iter();
                all.try_for_each(|feature| enable_feature(active, change, feature))
            })?;
        }
        Ok(UpgradeResult { old_version, new_version, enabled })
    }
}

impl Pool {
    /// Known features that are not enabled, without those that `compatibility` excludes.
    pub(super) fn disabled_features(&self) -> Result<Vec<&'static Feature>> {
        let kept_to = self.0.spa.config().compatibility;
        let allowed = kept_to.map(|sets| compatibility::allowed_features(&sets)).transpose()?;
        let allowed = allowed.flatten();
        let look = self.0.spa.synced_mos();
        let mut disabled = Vec::new();
        for feature in &FEATURES {
            let uses = write::features::refcount(&look, feature);
            let uses = uses.map_err(|error| Error::from_dsl_error(self.name(), &error))?;
            let is_allowed = allowed
                .as_ref()
                .is_none_or(|all| all.iter().any(|other| other.name == feature.name));
            if uses.is_none() && is_allowed {
                disabled.push(feature);
            }
        }
        Ok(disabled)
    }
}

/// Enables a feature of the pool that a sync task changes.
pub(super) fn enable_feature(
    active: &ActivePool,
    change: &write::SyncTaskContext<'_>,
    feature: &Feature,
) -> Result<()> {
    active.enable_feature(change, feature).map_err(|error| match error {
        spa::Error::Datasets(error) => Error::from_dsl_error(change.pool, &error),
        other => {
            Error::Refused { what: format!("cannot enable feature '{}': {other}", feature.name) }
        }
    })
}

/// Refuses a version that is not known.
fn check_version(wanted: u64) -> Result<u64> {
    if wanted == FEATURES_VERSION || (1..=NEWEST_LEGACY_VERSION).contains(&wanted) {
        return Ok(wanted);
    }
    Err(Error::Usage {
        what: format!("'{wanted}' is not a version of pools: it is 1 to 28, or 5000"),
    })
}
