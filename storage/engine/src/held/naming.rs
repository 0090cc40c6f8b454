//! How the names of a file system's files are compared: chosen when it is made, for ever.
//!
//! Where nothing is chosen it is as in the file system above.

use dsl::{Dataset, Kind};
use zpl::Case;

use super::NewDataset;
use crate::{Error, Result};

const CASE: &str = "casesensitivity";
const NORMALIZATION: &str = "normalization";
const UTF8: &str = "utf8only";

/// How names are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naming {
    pub(super) case: Case,
    pub(super) normalization: u64,
    pub(super) utf8_only: bool,
}

impl Default for Naming {
    fn default() -> Self {
        Self { case: Case::Sensitive, normalization: 0, utf8_only: false }
    }
}

impl Naming {
    /// As it is in a file system.
    fn of(above: &Dataset) -> Self {
        let word = |name| match above.property(name).ok().flatten() {
            Some(found) => dsl::property::parse_once(name, &found.value),
            None => None,
        };
        Self {
            case: case(word(CASE).unwrap_or(0)),
            normalization: word(NORMALIZATION).unwrap_or(0),
            utf8_only: word(UTF8) == Some(1),
        }
    }

    /// Takes what is about names out of the properties of a file system that is to be.
    pub(super) fn take(new: &mut NewDataset, above: Option<&Dataset>) -> Result<Self> {
        let is_file_system = |above: &&Dataset| matches!(above.kind(), Ok(Kind::Filesystem));
        let mut naming = above.filter(is_file_system).map_or_else(Self::default, Self::of);
        let names = [CASE, NORMALIZATION, UTF8];
        let (about, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut new.properties)
            .into_iter()
            .partition(|(name, _)| names.contains(&name.as_str()));
        new.properties = rest;
        let mut asked_for = None;
        for (name, value) in about {
            let refused =
                || Error::Usage { what: format!("{name}={value}: there is no such word") };
            let word = dsl::property::parse_once(&name, &value).ok_or_else(refused)?;
            match name.as_str() {
                CASE => naming.case = case(word),
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

fn case(word: u64) -> Case {
    match word {
        1 => Case::Insensitive,
        2 => Case::Mixed,
        _ => Case::Sensitive,
    }
}

#[cfg(test)]
mod tests {
    use super::Naming;
    use crate::held::NewDataset;

    fn taken(properties: &[(&str, &str)]) -> crate::Result<(Naming, usize)> {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut new =
            NewDataset { name: String::new(), properties: properties.iter().map(pair).collect() };
        Naming::take(&mut new, None).map(|naming| (naming, new.properties.len()))
    }

    #[test]
    fn what_is_chosen_is_taken_out_and_what_makes_no_sense_is_refused() {
        let (naming, left) = taken(&[("atime", "off"), ("normalization", "formD")]).unwrap();
        assert!(naming.utf8_only && naming.normalization == 16 && left == 1);
        assert!(taken(&[("casesensitivity", "mixed")]).is_ok_and(|(_, left)| left == 0));
        for wrong in [
            &[("casesensitivity", "blind")][..],
            &[("normalization", "formX")],
            &[("utf8only", "perhaps")],
            &[("utf8only", "off"), ("normalization", "formC")],
        ] {
            assert!(taken(wrong).is_err(), "{wrong:?}");
        }
    }
}
