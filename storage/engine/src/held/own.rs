//! The pool's own properties (zpoolprops(7)): what they may be, and what they are.
//!
//! Those that somebody set stand in a table of the pool; the comment and the sets of features that
//! it is kept to stand in its configuration, so that they are seen before the pool is open; features
//! have tables of their own.

use std::sync::atomic::Ordering;

use dsl::write;
use ondisk::feature::{FEATURES, Feature, VERSION_FEATURES};
use ondisk::version;
use serde::{Deserialize, Serialize};
use spa::Directory;
use units::ObjsetId;

use super::Held;
use super::history::note_of_pool;
use super::sets;
use crate::{Error, Result};

/// A property of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolProperty {
    /// Its name.
    pub name: String,
    /// Its value: numbers in full, sizes in bytes.
    pub value: String,
    /// "local", "default", or "-" where nobody can set it.
    pub source: String,
}

/// A property that can be set, and its words, by their numbers.
struct Choice {
    name: &'static str,
    words: &'static [&'static str],
    default: usize,
}

const SWITCH: &[&str] = &["off", "on"];

const CHOICES: [Choice; 7] = [
    Choice { name: "autoexpand", words: SWITCH, default: 0 },
    Choice { name: "autoreplace", words: SWITCH, default: 0 },
    Choice { name: "autotrim", words: SWITCH, default: 0 },
    Choice { name: "delegation", words: SWITCH, default: 1 },
    Choice { name: "failmode", words: &["wait", "continue", "panic"], default: 0 },
    Choice { name: "listsnapshots", words: SWITCH, default: 0 },
    Choice { name: MULTIHOST, words: SWITCH, default: 0 },
];

/// What names of features begin with.
const FEATURE: &str = "feature@";
const MULTIHOST: &str = "multihost";
const ASHIFT: &str = "ashift";
const BOOT: &str = "bootfs";
const COMMENT: &str = "comment";
const COMPATIBILITY: &str = "compatibility";
const LONGEST_COMMENT: usize = 32;
/// Properties that can be looked at only.
const FACTS: [&str; 14] = [
    "allocated",
    "capacity",
    "checkpoint",
    "dedupratio",
    "expandsize",
    "fragmentation",
    "free",
    "freeing",
    "guid",
    "health",
    "leaked",
    "load_guid",
    "readonly",
    "size",
];

/// What is to be done about a property.
#[derive(Clone)]
enum Setting {
    Choice(&'static str, u64),
    Comment(Option<String>),
    Sets(Option<String>),
    Boot(Option<String>),
    Feature(&'static Feature),
}

/// Judges what a property is to be.
fn judge(name: &str, value: &str) -> Result<Setting> {
    let usage = |what: String| Err(Error::Usage { what });
    if let Some(choice) = CHOICES.iter().find(|choice| choice.name == full_name(name)) {
        let Some(number) = choice.words.iter().position(|word| *word == value) else {
            return usage(format!("{name}={value}: it is {}", choice.words.join(" or ")));
        };
        return Ok(Setting::Choice(choice.name, u64::try_from(number).unwrap_or(0)));
    }
    if let Some(feature) = name.strip_prefix(FEATURE) {
        return match (Feature::by_name(feature), value) {
            (Some(feature), "enabled") => Ok(Setting::Feature(feature)),
            (Some(_), _) => {
                usage(format!("{name}={value}: a feature of a pool can be enabled only"))
            }
            (None, _) => usage(format!("{name}: no such feature is known")),
        };
    }
    match name {
        ASHIFT => match value.parse::<u64>() {
            Ok(shift) if shift == 0 || (9..=16).contains(&shift) => {
                Ok(Setting::Choice(ASHIFT, shift))
            }
            _ => usage(format!("ashift={value}: it is 9 to 16, or 0 for what suits")),
        },
        BOOT => Ok(Setting::Boot(Some(value.to_owned()).filter(|name| !name.is_empty()))),
        COMMENT if value.len() > LONGEST_COMMENT => {
            usage(format!("comment: it has {} bytes, of {LONGEST_COMMENT} at most", value.len()))
        }
        COMMENT if !value.chars().all(|c| c.is_ascii_graphic() || c == ' ') => {
            usage("comment: it may have letters, digits, signs and spaces of ASCII only".to_owned())
        }
        COMMENT => Ok(Setting::Comment(Some(value.to_owned()).filter(|text| !text.is_empty()))),
        COMPATIBILITY => {
            sets::allowed(value)?;
            Ok(Setting::Sets(Some(value.to_owned()).filter(|sets| !sets.is_empty())))
        }
        name if FACTS.contains(&name) => usage(format!("{name} can be looked at only")),
        _ => usage(format!("{name}: pools have no such property")),
    }
}

/// Some names have a short form.
fn full_name(name: &str) -> &str {
    if name == "listsnaps" { "listsnapshots" } else { name }
}

/// The properties of a pool that is to be, and the features that it begins with.
pub struct Wishes {
    settings: Vec<Setting>,
    pub(super) features: Vec<&'static Feature>,
}

impl Wishes {
    /// Judges what a new pool is to have: names and values; `feature@NAME` may be "enabled" or
    /// "disabled". It begins with all features, or those of the sets that `compatibility` names.
    ///
    /// `bare`: it begins with no features but those that are asked for one by one.
    pub fn of(properties: &[(String, String)], bare: bool) -> Result<Self> {
        let kept_to = properties.iter().find(|(name, _)| name == COMPATIBILITY);
        let allowed = kept_to.map(|(_, sets)| sets::allowed(sets)).transpose()?.flatten();
        let allowed = allowed.unwrap_or_else(|| FEATURES.iter().collect());
        let mut wanted: Vec<&str> =
            allowed.iter().filter(|_| !bare).map(|feature| feature.name).collect();
        let mut settings = Vec::new();
        for (name, value) in properties {
            match (name.strip_prefix(FEATURE), value.as_str()) {
                (Some(feature), "disabled") if Feature::by_name(feature).is_some() => {
                    wanted.retain(|name| *name != feature);
                }
                _ => match judge(name, value)? {
                    Setting::Feature(feature) => wanted.push(feature.name),
                    setting => settings.push(setting),
                },
            }
        }
        Ok(Self { settings, features: with_needs(&wanted) })
    }

    /// The names of the features that it begins with.
    pub fn features(&self) -> impl Iterator<Item = &'static str> {
        self.features.iter().map(|feature| feature.name)
    }

    /// For vdevs that come later, the pool keeps the sector size that it was made with.
    pub(super) fn keep_ashift(&mut self, shift: u64) {
        self.settings.push(Setting::Choice(ASHIFT, shift));
    }

    /// Sets them in the pool that was made.
    pub(super) fn fulfil(self, held: &Held) -> Result<()> {
        self.settings.into_iter().try_for_each(|setting| held.apply(setting))
    }
}

/// Features, and those that they need.
fn with_needs(names: &[&str]) -> Vec<&'static Feature> {
    let mut wanted = names.to_vec();
    let mut at = 0;
    while let Some(name) = wanted.get(at) {
        let needs = Feature::by_name(name).map_or(&[][..], |feature| feature.needs);
        wanted.extend(needs);
        at += 1;
        let mut seen = std::collections::BTreeSet::new();
        wanted.retain(|name| seen.insert(*name));
    }
    FEATURES.iter().filter(|feature| wanted.contains(&feature.name)).collect()
}

impl Held {
    /// Sets a property of the pool; a feature is enabled with those that it needs.
    ///
    /// Refused for a feature that the sets lack which the pool is kept to.
    pub fn set_pool_property(&self, name: &str, value: &str) -> Result<()> {
        let setting = judge(name, value)?;
        match &setting {
            Setting::Feature(feature) => {
                self.require_version(VERSION_FEATURES, name)?;
                self.keeps_to(feature)?;
            }
            Setting::Boot(_) => self.require_version(version::BOOTFS, name)?,
            Setting::Choice(..) | Setting::Comment(_) | Setting::Sets(_) => {}
        }
        self.apply(setting)
    }

    /// Refuses what the pool's version lacks.
    pub(super) fn require_version(&self, needed: u64, what: &str) -> Result<()> {
        let (pool, version) = (self.name(), self.0.owned.config().version);
        if version >= needed {
            return Ok(());
        }
        let what = format!(
            "{what}: this requires pool version {needed}, and pool '{pool}' has version {version}"
        );
        Err(Error::Refused { what })
    }

    fn keeps_to(&self, feature: &Feature) -> Result<()> {
        let Some(kept_to) = self.0.owned.config().compatibility else { return Ok(()) };
        let allowed = sets::allowed(&kept_to)?;
        if allowed.is_none_or(|all| all.iter().any(|other| other.name == feature.name)) {
            return Ok(());
        }
        let (name, pool) = (feature.name, self.name());
        Err(Error::Usage {
            what: format!(
                "{FEATURE}{name}: pool '{pool}' is kept to compatibility={kept_to}, which lacks \
                 it; after `zpool set compatibility=off {pool}` it can be enabled, and systems \
                 without it may not import the pool any more"
            ),
        })
    }

    fn apply(&self, setting: Setting) -> Result<()> {
        let pool = self.name().to_owned();
        let done = self.change(move |owned, change| {
            let failed = |error: dsl::Error| Error::of_dataset(&pool, &error);
            match setting {
                Setting::Choice(name, number) => {
                    if name == MULTIHOST {
                        owned.set_signs(number == 1);
                    }
                    write::set_pool_number(change, name, number).map_err(failed)?;
                    note_of_pool(owned, change, "set", &format!("{name}={number}"));
                    Ok(())
                }
                Setting::Comment(text) => {
                    owned.set_comment(text);
                    Ok(())
                }
                Setting::Sets(sets) => {
                    let word = sets.as_deref().unwrap_or("off");
                    note_of_pool(owned, change, "set", &format!("{COMPATIBILITY}={word}"));
                    owned.set_compatibility(sets);
                    Ok(())
                }
                Setting::Boot(None) => write::unset_pool_property(change, BOOT).map_err(failed),
                Setting::Boot(Some(name)) => {
                    let id = write::head_of(change, &name)
                        .map_err(|error| Error::of_dataset(&name, &error))?;
                    write::set_pool_number(change, BOOT, id.get()).map_err(failed)
                }
                Setting::Feature(feature) => with_needs(&[feature.name])
                    .into_iter()
                    .try_for_each(|feature| write::features::enable(change, feature))
                    .map_err(failed),
            }
        });
        self.learn_failmode();
        done
    }

    /// Reads what is to be done when drives fail past redundancy: then it may be too late.
    pub(super) fn learn_failmode(&self) {
        let look = self.0.owned.look();
        let read = || {
            let table = Directory::open(look.clone()).ok()?.object("pool_props").ok()??;
            zap::Zap::open(table).ok()?.lookup_u64(b"failmode").ok()?
        };
        self.0.goes_on.store(read() == Some(1), Ordering::Release);
    }

    /// Whether who was told that the pool takes no changes is to ask again: it stands still, or did,
    /// and may be cleared (failmode is not `continue`; nobody panics here).
    pub fn waits(&self) -> bool {
        !self.0.owned.groups().is_stopped() && !self.0.goes_on.load(Ordering::Acquire)
    }

    /// Whether drives failed, and nothing is written until they are back and the pool is cleared.
    pub fn is_standing_still(&self) -> bool {
        self.0.owned.is_standing_still()
    }

    /// All properties of the pool that are not sizes: what was set, features, and who it is.
    pub fn pool_properties(&self) -> Result<Vec<PoolProperty>> {
        let look = self.0.owned.look();
        let directory = Directory::open(look.clone());
        let directory = directory.map_err(|why| self.explain(&why))?;
        let table = directory.object("pool_props").map_err(|why| self.explain(&why))?;
        let table = table.map(zap::Zap::open).transpose();
        let table = table.map_err(|why| self.damaged(&why))?;
        let number = |name: &str| {
            let Some(table) = &table else { return Ok(None) };
            table.lookup_u64(name.as_bytes()).map_err(|why| self.damaged(&why))
        };
        let property = |name: &str, value: String, source: &str| PoolProperty {
            name: name.to_owned(),
            value,
            source: source.to_owned(),
        };
        let (cloned, saved) = self.0.owned.cloned();
        let hundredths = cloned.saturating_add(saved).saturating_mul(100).checked_div(cloned);
        let hundredths = hundredths.unwrap_or(100);
        let ratio = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        let ashift = number(ASHIFT)?;
        let version = match self.0.owned.config().version {
            VERSION_FEATURES => "-".to_owned(),
            version => version.to_string(),
        };
        let mut all = vec![
            property("guid", self.guid().to_string(), "-"),
            property(
                ASHIFT,
                ashift.unwrap_or(0).to_string(),
                if ashift.is_some() { "local" } else { "default" },
            ),
            property("readonly", if self.is_read_only() { "on" } else { "off" }.to_owned(), "-"),
            property("freeing", self.freeing()?.to_string(), "-"),
            property("leaked", "0".to_owned(), "-"),
            property("bcloneused", cloned.to_string(), "-"),
            property("bclonesaved", saved.to_string(), "-"),
            property("bcloneratio", ratio, "-"),
            property("cachefile", "-".to_owned(), "default"),
            property("version", version, "default"),
        ];
        for choice in &CHOICES {
            let set = number(choice.name)?.and_then(|number| usize::try_from(number).ok());
            let word = choice.words.get(set.unwrap_or(choice.default)).copied().unwrap_or("-");
            let source = if set.is_some() { "local" } else { "default" };
            all.push(property(choice.name, word.to_owned(), source));
        }
        let boot = number(BOOT)?.and_then(|id| self.name_of(ObjsetId::new(id)));
        let config = self.0.owned.config();
        for (name, value, without) in [
            (BOOT, boot, "-"),
            (COMMENT, config.comment, "-"),
            (COMPATIBILITY, config.compatibility, "off"),
        ] {
            let source = if value.is_some() { "local" } else { "default" };
            all.push(property(name, value.unwrap_or_else(|| without.to_owned()), source));
        }
        for feature in &FEATURES {
            let uses = write::features::uses(&look, feature);
            let state = match uses.map_err(|why| self.damaged(&why))? {
                None => "disabled",
                Some(0) => "enabled",
                Some(_) => "active",
            };
            all.push(property(&format!("{FEATURE}{}", feature.name), state.to_owned(), "local"));
        }
        Ok(all)
    }

    /// Bytes of what is destroyed and not yet given up.
    fn freeing(&self) -> Result<u64> {
        let (tree, name) = (self.tree()?, format!("{}/$FREE", self.name()));
        Ok(tree.dirs().find(|dir| dir.path() == name).map_or(0, |dir| dir.phys().used))
    }

    fn name_of(&self, id: ObjsetId) -> Option<String> {
        Some(self.tree().ok()?.dataset(id).ok()?.name())
    }

    fn damaged(&self, why: &dyn std::fmt::Display) -> Error {
        Error::Damaged { pool: self.name().to_owned(), why: why.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Wishes, judge};

    fn words(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn features_come_with_those_that_they_need() {
        let bare = Wishes::of(&words(&[("feature@zstd_compress", "enabled")]), true).unwrap();
        let names: Vec<_> = bare.features.iter().map(|feature| feature.name).collect();
        assert_eq!(names, ["extensible_dataset", "zstd_compress"]);
        let all = Wishes::of(&[], false).unwrap();
        let fewer = Wishes::of(&words(&[("feature@draid", "disabled")]), false).unwrap();
        assert_eq!(fewer.features.len() + 1, all.features.len());
        let any = Wishes::of(&words(&[("compatibility", "off")]), false).unwrap();
        assert_eq!(any.features.len(), all.features.len());
        let of_grub = |more| {
            let all = [("compatibility", "grub2"), ("feature@draid", more)];
            Wishes::of(&words(&all), false).unwrap().features.len()
        };
        assert_eq!((of_grub("disabled"), of_grub("enabled")), (22, 23));
        assert!(Wishes::of(&words(&[("compatibility", "grub3")]), false).is_err());
    }

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
            assert!(judge(name, value).is_err(), "{name}={value}");
        }
        assert!(judge("failmode", "continue").is_ok() && judge("listsnaps", "on").is_ok());
    }
}
