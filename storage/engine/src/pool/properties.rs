//! The pool's own properties (zpoolprops(7)): their valid values, and their present ones.
//!
//! Set properties are in a table of the pool. The comment and the compatibility sets are in its
//! configuration, so that they are visible before the pool is open. Features have tables of their
//! own.

use std::sync::atomic::Ordering;

use dsl::write;
use ondisk::feature::{FEATURES, Feature, VERSION_FEATURES};
use ondisk::version;
use serde::{Deserialize, Serialize};
use spa::PoolDirectory;
use units::ObjsetId;
use vdev::DEFAULT_BACKGROUND_SHARE;

use super::Pool;
use super::compatibility;
use super::create_options::with_dependencies;
use super::history::record_pool_event;
use super::upgrade::enable_feature;
use crate::pool::handles::{Properties, Scans};
use crate::{Error, Result};

/// A property of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolProperty {
    /// Its name.
    pub name: String,
    /// Its value: numbers in full, sizes in bytes.
    pub value: String,
    /// "local", "default", or "-" for read-only ones.
    pub source: String,
}

/// A property that can be set, and its words, by their numbers.
struct EnumProperty {
    name: &'static str,
    values: &'static [&'static str],
    default: usize,
}

/// A property of users' own: how many of a hundred I/Os of a busy drive scans have at most.
const SCAN_SHARE: &str = "poolhouse:scan_share";

const ON_OFF: &[&str] = &["off", "on"];

const ENUM_PROPERTIES: [EnumProperty; 7] = [
    EnumProperty { name: "autoexpand", values: ON_OFF, default: 0 },
    EnumProperty { name: "autoreplace", values: ON_OFF, default: 0 },
    EnumProperty { name: "autotrim", values: ON_OFF, default: 0 },
    EnumProperty { name: "delegation", values: ON_OFF, default: 1 },
    EnumProperty { name: "failmode", values: &["wait", "continue", "panic"], default: 0 },
    EnumProperty { name: "listsnapshots", values: ON_OFF, default: 0 },
    EnumProperty { name: MULTIHOST, values: ON_OFF, default: 0 },
];

/// The prefix of the properties of features.
pub(super) const FEATURE_PREFIX: &str = "feature@";
const MULTIHOST: &str = "multihost";
pub(super) const ASHIFT: &str = "ashift";
const BOOTFS: &str = "bootfs";
const DEDUP_TABLE_QUOTA: &str = "dedup_table_quota";
const COMMENT: &str = "comment";
pub(super) const COMPATIBILITY: &str = "compatibility";
const MAX_COMMENT_LEN: usize = 32;
/// Properties that can be looked at only.
const READ_ONLY_PROPERTIES: [&str; 16] = [
    "allocated",
    "capacity",
    "checkpoint",
    "dedup_table_size",
    "dedupratio",
    "expandsize",
    "fragmentation",
    "free",
    "freeing",
    "guid",
    "health",
    "last_scrubbed_txg",
    "leaked",
    "load_guid",
    "readonly",
    "size",
];

/// The action for a property.
#[derive(Clone)]
pub(super) enum PoolPropertyChange {
    Number(&'static str, u64),
    Comment(Option<String>),
    Compatibility(Option<String>),
    Bootfs(Option<String>),
    Feature(&'static Feature),
    /// A property of a user's own, by name; an empty value removes it.
    User(String, String),
}

/// Validates the new value of a property.
pub(super) fn parse_property(name: &str, value: &str) -> Result<PoolPropertyChange> {
    let usage = |what: String| Err(Error::Usage { what });
    if let Some(choice) = ENUM_PROPERTIES.iter().find(|choice| choice.name == canonical_name(name))
    {
        let Some(number) = choice.values.iter().position(|word| *word == value) else {
            let words = match choice.values {
                ["off", "on"] => "on | off".to_owned(),
                words => words.join(" | "),
            };
            return usage(format!("'{name}' must be one of '{words}'"));
        };
        return Ok(PoolPropertyChange::Number(choice.name, units::to_u64(number)));
    }
    if let Some(feature) = name.strip_prefix(FEATURE_PREFIX) {
        return match (Feature::by_name(feature), value) {
            (Some(feature), "enabled") => Ok(PoolPropertyChange::Feature(feature)),
            (Some(_), "disabled") => {
                usage(format!("property '{name}' can only be set to 'disabled' at creation time"))
            }
            (Some(_), _) => {
                usage(format!("property '{name}' can only be set to 'enabled' or 'disabled'"))
            }
            (None, _) => usage(format!("feature '{feature}' unsupported by kernel")),
        };
    }
    match name {
        ASHIFT => match value.parse::<u64>() {
            Ok(shift) if shift == 0 || (9..=16).contains(&shift) => {
                Ok(PoolPropertyChange::Number(ASHIFT, shift))
            }
            _ => usage(format!(
                "property 'ashift' number {value} is invalid, only values between 9 and 16 are allowed."
            )),
        },
        BOOTFS => {
            Ok(PoolPropertyChange::Bootfs(Some(value.to_owned()).filter(|name| !name.is_empty())))
        }
        COMMENT if value.len() > MAX_COMMENT_LEN => {
            usage(format!("comment must not exceed {MAX_COMMENT_LEN} characters"))
        }
        COMMENT if !value.chars().all(|c| c.is_ascii_graphic() || c == ' ') => {
            usage("comment: it may have letters, digits, signs and spaces of ASCII only".to_owned())
        }
        COMMENT => {
            Ok(PoolPropertyChange::Comment(Some(value.to_owned()).filter(|text| !text.is_empty())))
        }
        COMPATIBILITY => {
            compatibility::allowed_features(value)?;
            Ok(PoolPropertyChange::Compatibility(
                Some(value.to_owned()).filter(|sets| !sets.is_empty()),
            ))
        }
        "readonly" => usage("property 'readonly' can only be set at import time".to_owned()),
        DEDUP_TABLE_QUOTA => match parse_dedup_table_quota(value) {
            Some(quota) => Ok(PoolPropertyChange::Number(DEDUP_TABLE_QUOTA, quota)),
            None => usage(format!("bad numeric value '{value}'")),
        },
        name if READ_ONLY_PROPERTIES.contains(&name) => usage(format!("'{name}' is readonly")),
        name if name.contains(':') => {
            check_user_property(name, value)?;
            if name == SCAN_SHARE && !value.is_empty() && parse_scan_share(value).is_none() {
                return usage(format!(
                    "{SCAN_SHARE}: '{value}' is not a percentage from 1 to 50 (unset: {DEFAULT_BACKGROUND_SHARE})"
                ));
            }
            Ok(PoolPropertyChange::User(name.to_owned(), value.to_owned()))
        }
        _ => usage(format!("invalid property '{name}'")),
    }
}

/// The share of scans in the I/O of a busy drive, in percent.
fn parse_scan_share(value: &str) -> Option<u64> {
    value.parse().ok().filter(|percent| (1..=50).contains(percent))
}

/// Refuses a property of a user's own that OpenZFS does not take.
pub(super) fn check_user_property(name: &str, value: &str) -> Result<()> {
    dsl::property::parse_value(name, dsl::DatasetKind::Filesystem, value)
        .map(drop)
        .map_err(|why| Error::Usage { what: why.to_string() })
}

/// Some names have a short form.
fn canonical_name(name: &str) -> &str {
    if name == "listsnaps" { "listsnapshots" } else { name }
}

impl Properties<'_> {
    /// Sets a property of the pool; a feature is enabled with its dependencies.
    ///
    /// Refused for a feature that the sets lack which the pool is kept to.
    pub fn set_pool(self, name: &str, value: &str) -> Result<()> {
        let setting = parse_property(name, value)?;
        match &setting {
            PoolPropertyChange::Feature(feature) => {
                self.pool.require_version(VERSION_FEATURES, name)?;
                self.pool.check_compatibility(feature)?;
            }
            PoolPropertyChange::Bootfs(_) => self.pool.require_version(version::BOOTFS, name)?,
            PoolPropertyChange::Number(..)
            | PoolPropertyChange::Comment(_)
            | PoolPropertyChange::Compatibility(_)
            | PoolPropertyChange::User(..) => {}
        }
        self.pool.apply_change(setting)?;
        match name {
            SCAN_SHARE => self.pool.apply_scan_share(),
            "autotrim" => self.pool.apply_autotrim(),
            _ => {}
        }
        Ok(())
    }
}

impl Pool {
    /// The pool's `ashift` property, if it is set and names one.
    pub(super) fn default_ashift(&self) -> Result<Option<u64>> {
        let found =
            self.properties().of_pool()?.into_iter().find(|property| property.name == ASHIFT);
        Ok(found.and_then(|property| property.value.parse().ok()).filter(|shift| *shift != 0))
    }

    /// Whether a property of the values on and off is on.
    pub(super) fn is_property_on(&self, name: &str) -> Result<bool> {
        let mut all = self.properties().of_pool()?.into_iter();
        Ok(all.any(|property| property.name == name && property.value == "on"))
    }

    /// Has scans, rebuilds, removals and initializing keep to the share that the pool's property sets.
    pub(super) fn apply_scan_share(&self) {
        let all = self.properties().of_pool().unwrap_or_default();
        let set = all.iter().find(|property| property.name == SCAN_SHARE);
        let percent = set.and_then(|property| parse_scan_share(&property.value));
        self.0.spa.tree().set_background_share(percent.unwrap_or(DEFAULT_BACKGROUND_SHARE));
    }
}

impl Scans<'_> {
    /// Sets how much memory (bytes) the blocks take that a scan sorts: the more, the fewer seeks.
    pub fn set_memory(self, bytes: u64) {
        self.pool.0.spa.set_scan_memory(bytes);
    }
}

impl Pool {
    /// Refuses a value that the pool's version does not support.
    pub(super) fn require_version(&self, needed: u64, what: &str) -> Result<()> {
        let (pool, version) = (self.name(), self.0.spa.config().version);
        if version >= needed {
            return Ok(());
        }
        let what = format!(
            "{what}: this requires pool version {needed}, and pool '{pool}' has version {version}"
        );
        Err(Error::Refused { what })
    }

    fn check_compatibility(&self, feature: &Feature) -> Result<()> {
        let Some(kept_to) = self.0.spa.config().compatibility else { return Ok(()) };
        let allowed = compatibility::allowed_features(&kept_to)?;
        if allowed.is_none_or(|all| all.iter().any(|other| other.name == feature.name)) {
            return Ok(());
        }
        let (name, pool) = (feature.name, self.name());
        Err(Error::Usage {
            what: format!(
                "{FEATURE_PREFIX}{name}: pool '{pool}' is kept to compatibility={kept_to}, which lacks \
                 it; after `zpool set compatibility=off {pool}` it can be enabled, and systems \
                 without it may not import the pool any more"
            ),
        })
    }

    pub(super) fn apply_change(&self, setting: PoolPropertyChange) -> Result<()> {
        let pool = self.name().to_owned();
        let done = self.run_sync_task(move |active, change| {
            let failed = |error: dsl::Error| Error::from_dsl_error(&pool, &error);
            match setting {
                PoolPropertyChange::Number(name, number) => {
                    match name {
                        MULTIHOST => active.set_heartbeat(number == 1),
                        DEDUP_TABLE_QUOTA => active.set_dedup_table_quota(number),
                        _ => {}
                    }
                    write::set_pool_property(change, name, number).map_err(failed)?;
                    record_pool_event(active, change, "set", &format!("{name}={number}"));
                    Ok(())
                }
                PoolPropertyChange::Comment(text) => {
                    active.set_comment(text);
                    Ok(())
                }
                PoolPropertyChange::Compatibility(sets) => {
                    let word = sets.as_deref().unwrap_or("off");
                    record_pool_event(active, change, "set", &format!("{COMPATIBILITY}={word}"));
                    active.set_compatibility(sets);
                    Ok(())
                }
                PoolPropertyChange::User(name, value) => {
                    if value.is_empty() {
                        write::unset_pool_property(change, &name).map_err(failed)?;
                    } else {
                        write::set_pool_property_text(change, &name, &value).map_err(failed)?;
                    }
                    record_pool_event(active, change, "set", &format!("{name}={value}"));
                    Ok(())
                }
                PoolPropertyChange::Bootfs(None) => {
                    write::unset_pool_property(change, BOOTFS).map_err(failed)
                }
                PoolPropertyChange::Bootfs(Some(name)) => {
                    let id = write::head_id(change, &name)
                        .map_err(|error| Error::from_dsl_error(&name, &error))?;
                    write::set_pool_property(change, BOOTFS, id.get()).map_err(failed)
                }
                PoolPropertyChange::Feature(feature) => with_dependencies(&[feature.name])
                    .into_iter()
                    .try_for_each(|feature| enable_feature(active, change, feature)),
            }
        });
        self.load_failmode();
        done
    }

    /// Reads failmode now: once drives fail past redundancy it may be unreadable.
    pub(super) fn load_failmode(&self) {
        let look = self.0.spa.synced_mos();
        let read = || {
            let table = PoolDirectory::open(look.clone()).ok()?.object("pool_props").ok()??;
            zap::Zap::open(table).ok()?.lookup_u64(b"failmode").ok()?
        };
        self.0.is_failmode_continue.store(read() == Some(1), Ordering::Release);
    }
}

impl Properties<'_> {
    /// Whether a caller that got an error of a suspended pool should retry: it is or was suspended,
    /// and may be cleared (failmode is not `continue`; `panic` is not supported).
    pub fn has_failmode_wait(self) -> bool {
        !self.pool.0.spa.txgs().is_stopped()
            && !self.pool.0.is_failmode_continue.load(Ordering::Acquire)
    }
}

impl Pool {
    /// Whether drives failed, and nothing is written until they are back and the pool is cleared.
    pub fn is_suspended(&self) -> bool {
        self.0.spa.is_suspended()
    }
}

impl Properties<'_> {
    /// All properties of the pool except sizes: set ones, features, and identity.
    pub fn of_pool(self) -> Result<Vec<PoolProperty>> {
        let look = self.pool.0.spa.synced_mos();
        let directory = PoolDirectory::open(look.clone());
        let directory = directory.map_err(|error| self.pool.explain_error(&error))?;
        let table =
            directory.object("pool_props").map_err(|error| self.pool.explain_error(&error))?;
        let table = table.map(zap::Zap::open).transpose();
        let table = table.map_err(|error| self.pool.damage_error(&error))?;
        let number = |name: &str| {
            let Some(table) = &table else { return Ok(None) };
            table.lookup_u64(name.as_bytes()).map_err(|error| self.pool.damage_error(&error))
        };
        let source_of = |is_set: bool| if is_set { "local" } else { "default" };
        let last_scrubbed = self.pool.0.spa.last_scrubbed_txg();
        let last_scrubbed = last_scrubbed.map_err(|error| self.pool.explain_error(&error))?;
        let ashift = number(ASHIFT)?;
        let quota = number(DEDUP_TABLE_QUOTA)?;
        let (has_quota, quota) = (quota.is_some(), format_dedup_table_quota(quota));
        let version = match self.pool.0.spa.config().version {
            VERSION_FEATURES => "-".to_owned(),
            version => version.to_string(),
        };
        let mut all = vec![
            property("guid", self.pool.guid().to_string(), "-"),
            property("load_guid", self.pool.0.import_nonce.to_string(), "-"),
            property("dedup_table_quota", quota, source_of(has_quota)),
            property(ASHIFT, ashift.unwrap_or(0).to_string(), source_of(ashift.is_some())),
            property(
                "readonly",
                if self.pool.is_read_only() { "on" } else { "off" }.to_owned(),
                "-",
            ),
            property("last_scrubbed_txg", last_scrubbed.to_string(), "-"),
            property("version", version, "default"),
        ];
        all.extend(self.pool.space_properties()?);
        for choice in &ENUM_PROPERTIES {
            let set = number(choice.name)?.and_then(|number| usize::try_from(number).ok());
            let word = choice.values.get(set.unwrap_or(choice.default)).copied().unwrap_or("-");
            all.push(property(choice.name, word.to_owned(), source_of(set.is_some())));
        }
        let boot = number(BOOTFS)?.and_then(|id| self.pool.dataset_name(ObjsetId::new(id)));
        let config = self.pool.0.spa.config();
        for (name, value, without) in [
            (BOOTFS, boot, "-"),
            (COMMENT, config.comment, "-"),
            (COMPATIBILITY, config.compatibility, "off"),
        ] {
            let source = source_of(value.is_some());
            all.push(property(name, value.unwrap_or_else(|| without.to_owned()), source));
        }
        all.extend(self.pool.user_properties(table.as_ref())?);
        for feature in &FEATURES {
            let uses = write::features::refcount(&look, feature);
            let state = match uses.map_err(|error| self.pool.damage_error(&error))? {
                None => "disabled",
                Some(0) => "enabled",
                Some(_) => "active",
            };
            all.push(property(
                &format!("{FEATURE_PREFIX}{}", feature.name),
                state.to_owned(),
                "local",
            ));
        }
        Ok(all)
    }
}

impl Pool {
    /// Bytes to be freed, cloned and deduplicated.
    fn space_properties(&self) -> Result<[PoolProperty; 6]> {
        let (cloned, saved) = self.0.spa.clone_space();
        Ok([
            property("freeing", self.freeing()?.to_string(), "-"),
            property("leaked", "0".to_owned(), "-"),
            property("bcloneused", cloned.to_string(), "-"),
            property("bclonesaved", saved.to_string(), "-"),
            property("bcloneratio", clone_ratio(cloned, saved), "-"),
            property("dedup_table_size", self.0.spa.dedup_table_bytes().to_string(), "-"),
        ])
    }

    /// The properties of users' own in the table of the pool's properties.
    fn user_properties(&self, table: Option<&zap::Zap>) -> Result<Vec<PoolProperty>> {
        let mut found = Vec::new();
        for entry in table.into_iter().flat_map(zap::Zap::entries) {
            let entry = entry.map_err(|error| self.damage_error(&error))?;
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            if let Some(value) = entry.value.as_str().filter(|_| name.contains(':')) {
                let (value, source) = (value.to_owned(), "local".to_owned());
                found.push(PoolProperty { name, value, source });
            }
        }
        Ok(found)
    }

    /// Bytes of destroyed datasets that are not freed yet.
    fn freeing(&self) -> Result<u64> {
        let (tree, name) = (self.tree()?, format!("{}/$FREE", self.name()));
        Ok(tree.dirs().find(|dir| dir.path() == name).map_or(0, |dir| dir.phys().used))
    }

    fn dataset_name(&self, id: ObjsetId) -> Option<String> {
        Some(self.tree().ok()?.dataset(id).ok()?.name())
    }

    fn damage_error(&self, why: &dyn std::fmt::Display) -> Error {
        Error::DamagedPool { pool: self.name().to_owned(), why: why.to_string() }
    }
}

fn property(name: &str, value: String, source: &str) -> PoolProperty {
    PoolProperty { name: name.to_owned(), value, source: source.to_owned() }
}

fn parse_dedup_table_quota(value: &str) -> Option<u64> {
    match value {
        "none" => Some(0),
        "auto" => Some(u64::MAX),
        // the largest number is no size
        bytes => units::parse_binary(bytes).filter(|bytes| *bytes < u64::MAX),
    }
}

/// The words of a quota of deduplication tables: OpenZFS stores 0 for none and the largest numbers for automatic.
fn format_dedup_table_quota(stored: Option<u64>) -> String {
    match stored {
        Some(0) => "none".to_owned(),
        Some(bytes) if bytes < u64::MAX => bytes.to_string(),
        _ => "auto".to_owned(),
    }
}

/// How many times cloned blocks are referred to, with two digits behind the point.
fn clone_ratio(cloned: u64, saved: u64) -> String {
    let hundredths = (u128::from(cloned) + u128::from(saved)) * 100;
    let hundredths = hundredths.checked_div(u128::from(cloned)).unwrap_or(100);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::parse_property;

    #[test]
    fn what_pools_have_not_is_refused() {
        for (name, value) in [
            ("colour", "red"),
            ("failmode", "never"),
            ("size", "1T"),
            ("feature@magic", "enabled"),
            ("feature@draid", "yes"),
            ("comment", "a comment that is longer than thirty-two bytes"),
        ] {
            assert!(parse_property(name, value).is_err(), "{name}={value}");
        }
        assert!(
            parse_property("failmode", "continue").is_ok()
                && parse_property("listsnaps", "on").is_ok()
        );
    }
}
