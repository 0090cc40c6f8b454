//! Keys of delegated permissions (`zfs allow`).
//!
//! The ZAP of a directory's delegations (`dd_deleg_zapobj`) has these keys. The value of each is the number of another
//! ZAP, whose names are permissions and whose values are 0:
//!
//! ```text
//! key        who                                                                    where
//! ul$1000    the user 1000; gl$ a group                                             this dataset
//! ud$1000    the same; gd$ a group                                                  the datasets below
//! el$  ed$   everyone                                                               this dataset, those below
//! c-$        who creates a dataset below gets the permissions on that dataset
//! s-$@name   no subject: a permission set
//! ```
//!
//! Where the first letter is upper case the names are those of permission sets.
//!
//! Learnt from: `dsl_deleg.c`, `zfs_deleg.c`. Proved by: `zfs allow` of OpenZFS, and the tests of this file.

use std::fmt;

/// The subject to which permissions are delegated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grantee {
    /// The user of that id.
    User(u64),
    /// The members of the group of that id.
    Group(u64),
    /// Every user.
    Everyone,
    /// The user who creates a dataset below.
    Creator,
    /// A permission set of that name, with the `@`.
    Set(String),
}

/// The datasets for which permissions are delegated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DelegationScope {
    /// The dataset itself.
    Local,
    /// The datasets and snapshots below.
    Descendent,
    /// Neither: the grantee is a creator or a set.
    None,
}

/// A key of a ZAP of delegations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelegationKey {
    /// The subject.
    pub grantee: Grantee,
    /// For which datasets.
    pub scope: DelegationScope,
    /// Whether the names are those of permission sets.
    pub holds_sets: bool,
}

impl DelegationKey {
    /// Reads a key; none if it is not one.
    pub fn parse(key: &str) -> Option<Self> {
        let (head, name) = key.split_once('$')?;
        let mut letters = head.chars();
        let (kind, scope) = (letters.next()?, letters.next()?);
        if letters.next().is_some() {
            return None;
        }
        let scope = match scope {
            'l' => DelegationScope::Local,
            'd' => DelegationScope::Descendent,
            '-' => DelegationScope::None,
            _ => return None,
        };
        let grantee = match kind.to_ascii_lowercase() {
            'u' => Grantee::User(name.parse().ok()?),
            'g' => Grantee::Group(name.parse().ok()?),
            'e' if name.is_empty() => Grantee::Everyone,
            'c' if name.is_empty() => Grantee::Creator,
            's' if name.starts_with('@') => Grantee::Set(name.to_owned()),
            _ => return None,
        };
        let has_scope = scope != DelegationScope::None;
        let is_valid = has_scope != matches!(grantee, Grantee::Creator | Grantee::Set(_));
        is_valid.then_some(Self { grantee, scope, holds_sets: kind.is_ascii_uppercase() })
    }
}

impl fmt::Display for DelegationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match &self.grantee {
            Grantee::User(id) => ('u', id.to_string()),
            Grantee::Group(id) => ('g', id.to_string()),
            Grantee::Everyone => ('e', String::new()),
            Grantee::Creator => ('c', String::new()),
            Grantee::Set(name) => ('s', name.clone()),
        };
        let kind = if self.holds_sets { kind.to_ascii_uppercase() } else { kind };
        let scope = match self.scope {
            DelegationScope::Local => 'l',
            DelegationScope::Descendent => 'd',
            DelegationScope::None => '-',
        };
        write!(f, "{kind}{scope}${name}")
    }
}

#[cfg(test)]
mod tests {
    use super::{DelegationKey, DelegationScope, Grantee};

    #[test]
    fn keys_are_read_as_they_are_written() {
        for key in ["ul$1000", "Ud$0", "gl$7", "Gd$7", "el$", "Ed$", "c-$", "C-$", "s-$@a", "S-$@a"]
        {
            assert_eq!(DelegationKey::parse(key).unwrap().to_string(), key);
        }
        let key = DelegationKey::parse("Ud$12").unwrap();
        let (grantee, scope) = (Grantee::User(12), DelegationScope::Descendent);
        assert_eq!(key, DelegationKey { grantee, scope, holds_sets: true });
    }

    #[test]
    fn other_keys_are_refused() {
        for key in ["", "u", "ul", "ul$", "ul$x", "u-$1", "cl$", "c-$x", "s-$a", "xl$1", "ull$1"] {
            assert!(DelegationKey::parse(key).is_none(), "{key}");
        }
    }
}
