//! The options of a new pool: its version, its features, and its own properties.
//!
//! A pool has all features that are known here, or those of the sets in `compatibility`. With `version=1` to
//! `version=28` it has none: systems of that time can import it.

use ondisk::feature::{FEATURES, Feature, VERSION_FEATURES};
use ondisk::version;
use spa::vdev_layout::{VdevLayout, VdevRole};

use super::properties::{
    ASHIFT, COMPATIBILITY, FEATURE_PREFIX, PoolPropertyChange, parse_property,
};
use super::{NewPool, NewVdev, Pool, compatibility};
use crate::{Error, Result};

const VERSION: &str = "version";

/// The properties of a pool that is to be, and the features that it begins with.
pub struct CreateOptions {
    changes: Vec<PoolPropertyChange>,
    pub(super) features: Vec<&'static Feature>,
    /// 1 to 28, or 5000 with feature flags.
    pub(super) version: u64,
}

impl CreateOptions {
    /// Validates the properties of a new pool: names and values; `feature@NAME` may be "enabled" or
    /// "disabled". It begins with all features, or those of the sets in `compatibility`, unless a legacy version is set.
    ///
    /// `bare`: it begins with only the features that are enabled one by one.
    pub fn parse(properties: &[(String, String)], bare: bool) -> Result<Self> {
        let find = |wanted: &str| properties.iter().find(|(name, _)| name == wanted);
        let version =
            find(VERSION).map_or(Ok(VERSION_FEATURES), |(_, value)| parse_version(value))?;
        let bare = bare || version < VERSION_FEATURES;
        let kept_to = find(COMPATIBILITY);
        let allowed =
            kept_to.map(|(_, sets)| compatibility::allowed_features(sets)).transpose()?.flatten();
        let allowed = allowed.unwrap_or_else(|| FEATURES.iter().collect());
        let mut wanted: Vec<&str> =
            allowed.iter().filter(|_| !bare).map(|feature| feature.name).collect();
        let mut settings = Vec::new();
        for (name, value) in properties.iter().filter(|(name, _)| name != VERSION) {
            match (name.strip_prefix(FEATURE_PREFIX), value.as_str()) {
                (Some(feature), "disabled") if Feature::by_name(feature).is_some() => {
                    wanted.retain(|name| *name != feature);
                }
                _ => match parse_property(name, value)? {
                    PoolPropertyChange::Feature(_) if version < VERSION_FEATURES => {
                        let what = format!(
                            "'{name}' needs feature flags, which a pool of version {version} has not"
                        );
                        return Err(Error::Usage { what });
                    }
                    PoolPropertyChange::Feature(feature) => wanted.push(feature.name),
                    setting => settings.push(setting),
                },
            }
        }
        Ok(Self { changes: settings, features: with_dependencies(&wanted), version })
    }

    /// The names of the features that it begins with.
    pub fn features(&self) -> impl Iterator<Item = &'static str> {
        self.features.iter().map(|feature| feature.name)
    }

    /// Refuses vdevs that the version of the pool does not have.
    pub(super) fn check_vdevs(&self, new: &NewPool) -> Result<()> {
        let needed = new.vdevs.iter().map(version_of).max().unwrap_or(1);
        if needed <= self.version {
            return Ok(());
        }
        let (name, version) = (&new.name, self.version);
        let needed = if needed < VERSION_FEATURES {
            format!("pool version {needed}")
        } else {
            "feature flags".to_owned()
        };
        let what = format!("cannot create '{name}': version={version}: its vdevs need {needed}");
        Err(Error::Usage { what })
    }

    /// For vdevs that come later, the pool keeps the sector size that it was made with.
    pub(super) fn set_ashift(&mut self, shift: u64) {
        self.changes.push(PoolPropertyChange::Number(ASHIFT, shift));
    }

    /// Sets them in the pool that was made.
    pub(super) fn apply_to(self, held: &Pool) -> Result<()> {
        self.changes.into_iter().try_for_each(|setting| held.apply_change(setting))
    }
}

fn parse_version(value: &str) -> Result<u64> {
    let known = value.parse().ok().filter(|version| ondisk::feature::is_known_version(*version));
    known.ok_or_else(|| Error::Usage {
        what: format!("property 'version' number {value} is invalid."),
    })
}

/// The first version of pools that has such a vdev.
fn version_of(vdev: &NewVdev) -> u64 {
    let of_layout = match vdev.layout {
        VdevLayout::Raidz(2) => version::RAIDZ2,
        VdevLayout::Raidz(3) => version::RAIDZ3,
        VdevLayout::Draid(_) => VERSION_FEATURES,
        VdevLayout::Single | VdevLayout::Mirror | VdevLayout::Raidz(_) => 1,
    };
    let of_role = match vdev.role {
        VdevRole::Data => 1,
        VdevRole::Log => version::LOG_DEVICES,
        VdevRole::Spare => version::SPARES,
        VdevRole::Cache => version::CACHE,
        VdevRole::Special | VdevRole::Dedup => VERSION_FEATURES,
    };
    of_layout.max(of_role)
}

/// Features with their dependencies.
pub(super) fn with_dependencies(names: &[&str]) -> Vec<&'static Feature> {
    let mut wanted = names.to_vec();
    let mut at = 0;
    while let Some(name) = wanted.get(at) {
        let needs = Feature::by_name(name).map_or(&[][..], |feature| feature.dependencies);
        wanted.extend(needs);
        at += 1;
        let mut seen = std::collections::BTreeSet::new();
        wanted.retain(|name| seen.insert(*name));
    }
    FEATURES.iter().filter(|feature| wanted.contains(&feature.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::CreateOptions;

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn features_include_their_dependencies() {
        let bare =
            CreateOptions::parse(&pairs(&[("feature@zstd_compress", "enabled")]), true).unwrap();
        let names: Vec<_> = bare.features.iter().map(|feature| feature.name).collect();
        assert_eq!(names, ["extensible_dataset", "zstd_compress"]);
        let all = CreateOptions::parse(&[], false).unwrap();
        let fewer = CreateOptions::parse(&pairs(&[("feature@draid", "disabled")]), false).unwrap();
        assert_eq!(fewer.features.len() + 1, all.features.len());
        let any = CreateOptions::parse(&pairs(&[("compatibility", "off")]), false).unwrap();
        assert_eq!(any.features.len(), all.features.len());
        let of_grub = |more| {
            let all = [("compatibility", "grub2"), ("feature@draid", more)];
            CreateOptions::parse(&pairs(&all), false).unwrap().features.len()
        };
        assert_eq!((of_grub("disabled"), of_grub("enabled")), (22, 23));
        assert!(CreateOptions::parse(&pairs(&[("compatibility", "grub3")]), false).is_err());
    }

    #[test]
    fn legacy_versions_have_no_features() {
        let parse = |all: &[(&str, &str)]| CreateOptions::parse(&pairs(all), false);
        let old = parse(&[("version", "28")]).unwrap();
        assert_eq!((old.version, old.features.len()), (28, 0));
        assert_eq!(parse(&[("version", "5000")]).unwrap().version, 5000);
        for wrong in ["0", "29", "4999", "5001", "new"] {
            assert!(parse(&[("version", wrong)]).is_err(), "{wrong}");
        }
        assert!(parse(&[("version", "28"), ("feature@draid", "enabled")]).is_err());
        assert!(parse(&[("version", "28"), ("feature@draid", "disabled")]).is_ok());
    }
}
