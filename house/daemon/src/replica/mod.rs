//! Replicas: copies of file systems and volumes in another pool, here or on another host.
//!
//! ```toml
//! [[replica]]
//! name = "offsite"                       # letters, digits, - and _
//! source = "tank/photos"                 # and what is below it, unless recursive = false
//! target = "ssh://backup@nas/pool/photos"   # or a file system of a pool that is imported here
//! every = "daily"                        # hourly (the default), daily, weekly or monthly
//! ssh = ["ssh", "-i", "/root/.ssh/nas"]  # the ssh command; "ssh" without it
//! rate = "20M"                           # bytes per second; as fast as it goes without it
//! window = "22:00-06:00"                 # when it may begin, local time; at any time without it
//! max-age = "2d"                         # an alert when the newest copy is older: 36h, 2d, 1w
//! ```
//!
//! Encrypted datasets are sent raw: the target never has the key. A copy that began otherwise
//! continues that way. A dataset is sent from the newest snapshot that both sides have, or from a
//! bookmark of it. An interrupted transfer resumes. The target is never rolled back.

mod endpoint;
mod limits;
mod state;
mod transfer;

use serde::Deserialize;

pub(crate) use endpoint::{LocalTarget, ReplicaTarget, SshTarget};
pub(crate) use limits::{MaxAge, RateLimit, Throttle, Window};
pub(crate) use state::{ReplicaState, ReplicaStates, SafeCopy};
pub(crate) use transfer::{Transfer, TransferControl};

use crate::policy::Period;
use crate::{Error, Result};

/// A section `[[replica]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplicaConfig {
    /// The name: of the bookmarks at the source, and in messages.
    pub(crate) name: ReplicaName,
    /// The file system or volume that is copied.
    pub(crate) source: String,
    /// Where the copy is.
    pub(crate) target: TargetAddress,
    /// Also the descendants of the source.
    #[serde(default = "enabled")]
    pub(crate) recursive: bool,
    /// How often it is copied.
    #[serde(default)]
    pub(crate) every: Schedule,
    /// The ssh command and its options.
    #[serde(default = "ssh_command")]
    pub(crate) ssh: Vec<String>,
    /// How fast it sends.
    pub(crate) rate: Option<RateLimit>,
    /// When it may begin.
    pub(crate) window: Option<Window>,
    /// How old the newest copy may become.
    #[serde(rename = "max-age")]
    pub(crate) max_age: Option<MaxAge>,
}

const fn enabled() -> bool {
    true
}

pub(crate) fn ssh_command() -> Vec<String> {
    vec!["ssh".to_owned()]
}

/// How often a replica is brought up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Schedule {
    #[default]
    Hourly,
    Daily,
    Weekly,
    Monthly,
}

impl Schedule {
    pub(crate) const fn period(self) -> Period {
        match self {
            Self::Hourly => Period::Hourly,
            Self::Daily => Period::Daily,
            Self::Weekly => Period::Weekly,
            Self::Monthly => Period::Monthly,
        }
    }
}

/// The name of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ReplicaName(pub(crate) String);

impl TryFrom<String> for ReplicaName {
    type Error = String;

    fn try_from(name: String) -> std::result::Result<Self, String> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(is_word) {
            return Err(format!("\"{name}\" is not a name of 1 to 64 letters, digits, - and _"));
        }
        Ok(Self(name))
    }
}

/// Where a copy is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum TargetAddress {
    /// A file system or volume of a pool that is imported here.
    Local(String),
    /// One of another host, whose `zfs` command is run by ssh.
    Ssh {
        /// `USER@HOST` or `HOST`.
        host: String,
        port: Option<u16>,
        dataset: String,
    },
}

impl TryFrom<String> for TargetAddress {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let bad = |why: &str| Err(format!("\"{text}\" is not a target: {why}"));
        let Some(rest) = text.strip_prefix("ssh://") else {
            if text.is_empty() || text.contains(['@', '#', ':']) || text.starts_with('/') {
                return bad("it is POOL/FILESYSTEM or ssh://USER@HOST/POOL/FILESYSTEM");
            }
            return Ok(Self::Local(text));
        };
        let Some((host, dataset)) = rest.split_once('/') else {
            return bad("the file system is missing: ssh://USER@HOST/POOL/FILESYSTEM");
        };
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(']') || host.starts_with('[') => {
                let Ok(port) = port.parse() else { return bad("its port is not a number") };
                (host, Some(port))
            }
            _ => (host, None),
        };
        // ssh takes what begins with a dash for an option
        if host.is_empty() || host.starts_with('-') || dataset.is_empty() {
            return bad("the host or the file system is missing");
        }
        Ok(Self::Ssh { host: host.to_owned(), port, dataset: dataset.to_owned() })
    }
}

impl TargetAddress {
    /// The name of the target's top dataset.
    pub(crate) fn dataset(&self) -> &str {
        match self {
            Self::Local(dataset) | Self::Ssh { dataset, .. } => dataset,
        }
    }

    /// The address as in the configuration.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Local(dataset) => dataset.clone(),
            Self::Ssh { host, port, dataset } => {
                let port = port.map_or_else(String::new, |port| format!(":{port}"));
                format!("ssh://{host}{port}/{dataset}")
            }
        }
    }

    /// Reads an address of a command line.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Self::try_from(text.to_owned()).map_err(Error::usage_error)
    }
}

impl ReplicaConfig {
    /// Whether the replica has a copy of a dataset.
    pub(crate) fn covers(&self, dataset: &str) -> bool {
        let rest = dataset.strip_prefix(&self.source);
        rest.is_some_and(|rest| rest.is_empty() || (self.recursive && rest.starts_with('/')))
    }
}

#[cfg(test)]
mod tests {
    use super::{ReplicaConfig, TargetAddress};

    #[test]
    fn targets_are_read() {
        let read = |text: &str| TargetAddress::try_from(text.to_owned());
        for text in ["backup/photos", "ssh://me@nas/pool/photos", "ssh://nas:2222/pool"] {
            assert_eq!(read(text).unwrap().to_text(), text);
        }
        assert_eq!(read("ssh://nas:2222/pool/a").unwrap().dataset(), "pool/a");
        for text in
            ["", "/tank", "tank@a", "ssh://nas", "ssh://-oProxyCommand=x/a", "ssh://nas:x/a"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn mistakes_in_a_replica_are_named() {
        let read = |text: &str| toml_edit::de::from_str::<ReplicaConfig>(text);
        let good = "name = 'off'\nsource = 'tank'\ntarget = 'backup/tank'";
        assert!(read(good).is_ok());
        let why = read(&good.replace("off", "a b")).unwrap_err().to_string();
        assert!(why.contains("is not a name of 1 to 64 letters"), "{why}");
        assert!(read(&format!("{good}\nevery = 'minute'")).is_err());
    }
}
