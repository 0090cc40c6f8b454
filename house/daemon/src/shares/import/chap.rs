//! The secrets of CHAP in the files of other servers: each gets a file of its own, which only the daemon's user may
//! read.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{FoundShare, field, quoted};

/// Bytes of the shortest secret that a target takes.
const LEAST_SECRET: usize = 12;

/// A user of CHAP with the secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FoundUser {
    pub(super) name: String,
    pub(super) secret: String,
}

/// The secret is not shown.
impl fmt::Debug for FoundUser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FoundUser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The users of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FoundChap {
    /// The user that initiators must prove to be.
    pub(super) initiator: Option<FoundUser>,
    /// The user as which the target proves itself.
    pub(super) target: Option<FoundUser>,
}

/// A file with a secret that is to be written.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretFile {
    pub(crate) path: PathBuf,
    pub(crate) secret: String,
}

impl FoundUser {
    /// A user of a name and a secret; none if either is missing.
    pub(super) fn new(name: Option<&str>, secret: Option<&str>) -> Option<Self> {
        let given = |text: Option<&str>| text.filter(|it| !it.is_empty()).map(str::to_owned);
        Some(Self { name: given(name)?, secret: given(secret)? })
    }
}

impl FoundChap {
    /// The users of a target. Refuses what `[[share]]` cannot say and what a target refuses.
    pub(super) fn new(initiators: &[FoundUser], targets: &[FoundUser]) -> Result<Self, String> {
        let (initiator, target) = match (initiators, targets) {
            ([], []) => return Ok(Self::default()),
            ([], _) => {
                return Err(
                    "its target proves itself and its initiators do not: add it by hand".to_owned()
                );
            }
            ([one], [] | [_]) => (one, targets.first()),
            _ => {
                return Err(
                    "it has several CHAP users, and a [[share]] has one: add it by hand".to_owned()
                );
            }
        };
        for user in [Some(initiator), target].into_iter().flatten() {
            let length = user.secret.len();
            if length < LEAST_SECRET {
                return Err(format!(
                    "the CHAP password of '{}' has {length} characters, and must have {LEAST_SECRET}: \
                     set a longer one there and at the initiators",
                    user.name
                ));
            }
        }
        if target.is_some_and(|target| target.secret == initiator.secret) {
            return Err(
                "its two CHAP passwords are the same, which lets an initiator pass for the \
                        target: set another one"
                    .to_owned(),
            );
        }
        Ok(Self { initiator: Some(initiator.clone()), target: target.cloned() })
    }
}

/// Adds the fields of CHAP to a share, with files in a directory. Returns these files.
pub(super) fn add_fields(found: &mut FoundShare, directory: &Path) -> Vec<SecretFile> {
    let target = found.options.iter().find(|(name, _)| name == "target");
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-.:".contains(c) { c } else { '-' };
    let target: String =
        target.map_or("", |(_, name)| name.trim().trim_matches('"')).chars().map(plain).collect();
    let mut files = Vec::new();
    let users = [("chap", &found.chap.initiator), ("mutual", &found.chap.target)];
    for (kind, user) in users {
        let Some(FoundUser { name, secret }) = user else { continue };
        let path = directory.join(format!("{target}-{kind}"));
        let shown = path.to_string_lossy();
        found.options.push(field(&format!("{kind}_user"), quoted(name)));
        found.options.push(field(&format!("{kind}_secret_file"), quoted(&shown)));
        files.push(SecretFile { path, secret: secret.clone() });
    }
    files
}
