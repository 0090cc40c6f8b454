//! Versions of Samba, and those that must not serve.

use std::fmt;

use crate::{Error, Result};

/// A version of Samba, as 4.17.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u16, pub u16, pub u16);

/// The first and last version of each series that fails with Time Machine of macOS 26, since they lack
/// fruit:posix_rename.
const BROKEN: [(Version, Version); 2] =
    [(Version(4, 22, 0), Version(4, 22, 5)), (Version(4, 23, 0), Version(4, 23, 2))];

impl Version {
    /// The version in the text of `smbd --version`: `Version 4.17.12-Debian`.
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.trim().strip_prefix("Version ")?;
        let mut parts = number.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some(Self(parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?))
    }

    /// Refuses versions that break backups.
    pub fn check(self) -> Result<()> {
        match BROKEN.into_iter().find(|(first, last)| (*first..=*last).contains(&self)) {
            None => Ok(()),
            Some((_, Version(major, minor, patch))) => {
                let fixed = Version(major, minor, patch + 1);
                Err(Error::BrokenVersion { version: self, fixed })
            }
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn broken_versions_are_refused_by_name() {
        let check = |text: &str| Version::parse(text).unwrap().check();
        for text in
            ["Version 4.17.12-Debian", "Version 4.22.6\n", "Version 4.23.3", "Version 4.24.0rc1"]
        {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        let why = check("Version 4.22.3-Ubuntu").unwrap_err().to_string();
        assert!(
            why.contains("Samba 4.22.3 breaks Time Machine") && why.contains("4.22.6"),
            "{why}"
        );
        assert!(check("Version 4.23.0").is_err());
        assert!(Version::parse("4.17.12").is_none() && Version::parse("Version four").is_none());
    }
}
