//! How the names of a file system's files are compared: chosen when it is made, for ever.
//!
//! Where nothing is chosen it is as in the file system above.

use dsl::{Dataset, DatasetKind};
use zpl::CaseSensitivity;

use super::NewDataset;
use crate::{Error, Result};

const CASE_SENSITIVITY: &str = "casesensitivity";
const NORMALIZATION: &str = "normalization";
const UTF8_ONLY: &str = "utf8only";

/// How names are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameRules {
    pub(super) case: CaseSensitivity,
    pub(super) normalization: u64,
    pub(super) utf8_only: bool,
}

impl Default for NameRules {
    fn default() -> Self {
        Self { case: CaseSensitivity::Sensitive, normalization: 0, utf8_only: false }
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
        }
    }

    /// Takes what is about names out of the properties of a file system that is to be.
    pub(super) fn extract(new: &mut NewDataset, above: Option<&Dataset>) -> Result<Self> {
        let is_file_system = |above: &&Dataset| matches!(above.kind(), Ok(DatasetKind::Filesystem));
        let mut naming = above.filter(is_file_system).map_or_else(Self::default, Self::from_parent);
        let names = [CASE_SENSITIVITY, NORMALIZATION, UTF8_ONLY];
        let (about, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut new.properties)
            .into_iter()
            .partition(|(name, _)| names.contains(&name.as_str()));
        new.properties = rest;
        let mut asked_for = None;
        for (name, value) in about {
            let refused =
                || Error::Usage { what: format!("{name}={value}: there is no such word") };
            let word = dsl::property::parse_create_only(&name, &value).ok_or_else(refused)?;
            match name.as_str() {
                CASE_SENSITIVITY => naming.case = parse_case(word),
                NORMALIZATION => naming.normalization = word,
                _ => asked_for = Some(word == 1),
            }
        }
        naming.utf8_only = asked_for.unwrap_or(naming.utf8_only);
        if naming.normalization != 0 && asked_for == Some(false) {
            let what = "normalization wants names in UTF-8: utf8only=off does not go with it";
            return Err(Error::Usage { what: what.to_owned() });
        }
        naming.utf8_only |= naming.normalization != 0;
        Ok(naming)
    }
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
    fn what_is_chosen_is_taken_out_and_what_makes_no_sense_is_refused() {
        let (naming, left) = extract(&[("atime", "off"), ("normalization", "formD")]).unwrap();
        assert!(naming.utf8_only && naming.normalization == 16 && left == 1);
        assert!(extract(&[("casesensitivity", "mixed")]).is_ok_and(|(_, left)| left == 0));
        for wrong in [
            &[("casesensitivity", "blind")][..],
            &[("normalization", "formX")],
            &[("utf8only", "perhaps")],
            &[("utf8only", "off"), ("normalization", "formC")],
        ] {
            assert!(extract(wrong).is_err(), "{wrong:?}");
        }
    }
}
