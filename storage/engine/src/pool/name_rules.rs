//! How the names of a file system's files are compared, which is chosen once, when it is created, and the version of
//! its format.
//!
//! The rules of names are inherited from the file system above. The version is not: it is the newest that the pool has.

use dsl::{Dataset, DatasetKind};
use zpl::CaseSensitivity;

use super::NewDataset;
use crate::{Error, Result};

const CASE_SENSITIVITY: &str = "casesensitivity";
const NORMALIZATION: &str = "normalization";
const UTF8_ONLY: &str = "utf8only";
const VERSION: &str = "version";
/// The newest version (ZPL_VERSION).
const NEWEST_VERSION: u64 = 5;

/// How names are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameRules {
    pub(super) case: CaseSensitivity,
    pub(super) normalization: u64,
    pub(super) utf8_only: bool,
    /// The version of the file system's format; none: the newest that the pool has.
    pub(super) version: Option<u64>,
}

impl Default for NameRules {
    fn default() -> Self {
        Self { case: CaseSensitivity::Sensitive, normalization: 0, utf8_only: false, version: None }
    }
}

impl NameRules {
    /// As it is in a file system.
    fn from_parent(above: &Dataset) -> Self {
        let word = |name| match above.property(name).ok().flatten() {
            Some(found) => dsl::property::parse_create_only(name, &found.value),
            None => None,
        };
        Self {
            case: parse_case(word(CASE_SENSITIVITY).unwrap_or(0)),
            normalization: word(NORMALIZATION).unwrap_or(0),
            utf8_only: word(UTF8_ONLY) == Some(1),
            version: None,
        }
    }

    /// Takes the properties about names out of those of a new file system.
    pub(super) fn extract(new: &mut NewDataset, above: Option<&Dataset>) -> Result<Self> {
        let is_file_system = |above: &&Dataset| matches!(above.kind(), Ok(DatasetKind::Filesystem));
        let mut naming = above.filter(is_file_system).map_or_else(Self::default, Self::from_parent);
        let names = [CASE_SENSITIVITY, NORMALIZATION, UTF8_ONLY, VERSION];
        let (about, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut new.properties)
            .into_iter()
            .partition(|(name, _)| names.contains(&name.as_str()));
        new.properties = rest;
        let mut asked_for = None;
        let mut is_normalization_given = false;
        for (name, value) in about {
            if name == VERSION {
                naming.version = parse_version(&value)?;
                continue;
            }
            let refused = || Error::Usage {
                what: format!("{name}={value}: the property does not have this value"),
            };
            let word = dsl::property::parse_create_only(&name, &value).ok_or_else(refused)?;
            match name.as_str() {
                CASE_SENSITIVITY => naming.case = parse_case(word),
                NORMALIZATION => {
                    naming.normalization = word;
                    is_normalization_given = true;
                }
                _ => asked_for = Some(word == 1),
            }
        }
        naming.utf8_only = asked_for.unwrap_or(naming.utf8_only);
        if asked_for == Some(false) && !is_normalization_given {
            // the parent's normalization is not inherited then
            naming.normalization = 0;
        }
        if naming.normalization != 0 && asked_for == Some(false) {
            let what = "normalization wants names in UTF-8: utf8only=off does not go with it";
            return Err(Error::Usage { what: what.to_owned() });
        }
        naming.utf8_only |= naming.normalization != 0;
        Ok(naming)
    }
}

/// A version that is written out; none: the newest.
fn parse_version(value: &str) -> Result<Option<u64>> {
    if value == "current" {
        return Ok(None);
    }
    let version = value.parse().ok().filter(|version| (1..=NEWEST_VERSION).contains(version));
    version.map(Some).ok_or_else(|| Error::Usage {
        what: format!(
            "version={value}: a file system has a version from 1 to {NEWEST_VERSION}, or 'current'"
        ),
    })
}

fn parse_case(word: u64) -> CaseSensitivity {
    match word {
        1 => CaseSensitivity::Insensitive,
        2 => CaseSensitivity::Mixed,
        _ => CaseSensitivity::Sensitive,
    }
}

#[cfg(test)]
mod tests {
    use super::NameRules;
    use crate::pool::NewDataset;

    fn extract(properties: &[(&str, &str)]) -> crate::Result<(NameRules, usize)> {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut new =
            NewDataset { name: String::new(), properties: properties.iter().map(pair).collect() };
        NameRules::extract(&mut new, None).map(|naming| (naming, new.properties.len()))
    }

    #[test]
    fn name_properties_are_extracted_and_checked() {
        let (naming, left) = extract(&[("atime", "off"), ("normalization", "formD")]).unwrap();
        assert!(naming.utf8_only && naming.normalization == 16 && left == 1);
        assert!(extract(&[("casesensitivity", "mixed")]).is_ok_and(|(_, left)| left == 0));
        assert!(extract(&[("version", "3")]).is_ok_and(|(rules, _)| rules.version == Some(3)));
        assert!(extract(&[("version", "current")]).is_ok_and(|(rules, _)| rules.version.is_none()));
        for wrong in [
            &[("casesensitivity", "blind")][..],
            &[("normalization", "formX")],
            &[("utf8only", "perhaps")],
            &[("version", "0")],
            &[("version", "6")],
            &[("utf8only", "off"), ("normalization", "formC")],
        ] {
            assert!(extract(wrong).is_err(), "{wrong:?}");
        }
    }
}
