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
//! window = "22:00-06:00"                 # when it may run, local time; at any time without it
//! max-age = "2d"                         # an alert when the newest copy is older: 36h, 2d, 1w
//! away = "30d"                           # surplus snapshots go when it was not brought up to date for so long
//! test = "weekly"                        # how often the copy is read back and compared; never without it
//! wake = "00:11:22:33:44:55"             # the address to which Wake-on-LAN is sent if the host does not reply
//! wake-address = "192.168.1.255:9"       # where to; all of this host's network without it
//! sleep = ["systemctl", "suspend"]       # the command that is run there afterwards if the host was woken
//! ```
//!
//! A pull has the other host as its source: `source = "ssh://backup@nas/pool/photos"`, `target = "tank/photos"`.
//! It leaves a bookmark there. One end of a replica is a pool of this host.
//!
//! Encrypted datasets are sent raw: the target never has the key. A copy that began otherwise
//! continues that way. A dataset is sent from the newest snapshot that both sides have, or from a
//! bookmark of it. An interrupted transfer resumes; so does one that the end of its window interrupted. The target is
//! never rolled back.

mod endpoint;
mod limits;
mod restore_test;
mod source;
mod ssh;
mod state;
mod transfer;
mod wake;

use std::net::SocketAddr;

use serde::Deserialize;
use units::MinusOrZero as _;

pub(crate) use endpoint::{LocalTarget, ReplicaTarget};
pub(crate) use limits::{MaxAge, RateLimit, Throttle, Window};
pub(crate) use restore_test::{RestoreTest, TestResult};
pub(crate) use source::{LocalSource, ReplicaSource, SshSource};
pub(crate) use ssh::SshHost;
pub(crate) use state::{ReplicaState, ReplicaStates, SafeCopy};
pub(crate) use transfer::{Transfer, TransferControl};
pub(crate) use wake::{MacAddress, wake_host};

use crate::policy::Period;
use crate::{Error, Result};

/// A dataset and its copy, for work on both.
pub(crate) struct CopyPair<'a, Target: ?Sized> {
    pub(crate) source: &'a dyn ReplicaSource,
    /// The dataset of the source.
    pub(crate) dataset: &'a str,
    /// The side with the copy.
    pub(crate) target: &'a Target,
    /// The dataset of the target.
    pub(crate) copy: &'a str,
    pub(crate) control: &'a TransferControl,
    pub(crate) rate: Option<RateLimit>,
}

/// A section `[[replica]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplicaConfig {
    /// The name: of the bookmarks at the source, and in messages.
    pub(crate) name: ReplicaName,
    /// The file system or volume that is copied.
    pub(crate) source: DatasetAddress,
    /// Where the copy is.
    pub(crate) target: DatasetAddress,
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
    /// When it may run.
    pub(crate) window: Option<Window>,
    /// How old the newest copy may become.
    #[serde(rename = "max-age")]
    pub(crate) max_age: Option<MaxAge>,
    /// After this time without success, snapshots are not kept for it.
    pub(crate) away: Option<MaxAge>,
    /// How often the copy is read back and compared.
    pub(crate) test: Option<Schedule>,
    /// The hardware address of the other host, which Wake-on-LAN wakes.
    pub(crate) wake: Option<MacAddress>,
    /// Where Wake-on-LAN's packets go.
    #[serde(default = "wake::broadcast", rename = "wake-address")]
    pub(crate) wake_address: SocketAddr,
    /// The command that sends a host to sleep again that was woken.
    #[serde(default)]
    pub(crate) sleep: Vec<String>,
}

/// The time in seconds for which snapshots wait for a replica that has no copy, if the configuration does not say.
const DEFAULT_AWAY: u64 = 30 * 24 * 3600;

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

/// Where a source or a copy is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum DatasetAddress {
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

impl TryFrom<String> for DatasetAddress {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let bad = |why: &str| Err(format!("\"{text}\" is not the place of a dataset: {why}"));
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

impl DatasetAddress {
    /// The name of the top dataset on its host.
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
    /// Whether the replica has a copy of a dataset of this host.
    pub(crate) fn covers(&self, dataset: &str) -> bool {
        let DatasetAddress::Local(source) = &self.source else { return false };
        let rest = dataset.strip_prefix(source.as_str());
        rest.is_some_and(|rest| rest.is_empty() || (self.recursive && rest.starts_with('/')))
    }

    /// Whether the replica was not brought up to date for so long that snapshots are not kept for it. Its bookmark stays:
    /// the next increment starts there. A dataset without a copy has no bookmark, but the first copy needs only one
    /// snapshot; its snapshots wait for a limited time, also if the configuration has no limit.
    pub(crate) fn is_away(&self, state: &ReplicaState, has_copy: bool, now: u64) -> bool {
        let limit = self.away.map(|MaxAge(limit)| limit);
        let limit = if has_copy { limit } else { limit.or(Some(DEFAULT_AWAY)) };
        let since = state.succeeded.or(state.since).map(|since| now.minus_or_zero(since));
        since.zip(limit).is_some_and(|(since, limit)| since > limit)
    }
}

#[cfg(test)]
mod tests {
    use super::{DatasetAddress, ReplicaConfig, ReplicaState};

    #[test]
    fn addresses_are_read() {
        let read = |text: &str| DatasetAddress::try_from(text.to_owned());
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
    fn replica_is_away_after_its_time() {
        let read = |text: &str| toml_edit::de::from_str::<ReplicaConfig>(text).unwrap();
        let plain = "name = 'off'\nsource = 'tank'\ntarget = 'backup/tank'";
        let (never, replica) = (read(plain), read(&format!("{plain}\naway = '1d'")));
        let state = |succeeded| ReplicaState { succeeded, ..ReplicaState::default() };
        assert!(replica.is_away(&state(Some(1000)), true, 1000 + 86_401));
        assert!(!replica.is_away(&state(Some(1000)), true, 1000 + 86_400));
        assert!(!replica.is_away(&state(None), true, u64::MAX));
        assert!(!never.is_away(&state(Some(0)), true, u64::MAX));
    }

    #[test]
    fn first_copy_is_waited_for_a_limited_time() {
        let read = |text: &str| toml_edit::de::from_str::<ReplicaConfig>(text).unwrap();
        let plain = "name = 'off'\nsource = 'tank'\ntarget = 'backup/tank'";
        let (default, short) = (read(plain), read(&format!("{plain}\naway = '1d'")));
        let known = ReplicaState { since: Some(1000), ..ReplicaState::default() };
        let day = 86_400;
        assert!(!default.is_away(&known, false, 1000 + 30 * day));
        assert!(default.is_away(&known, false, 1001 + 30 * day));
        assert!(short.is_away(&known, false, 1001 + day));
        assert!(!short.is_away(&known, false, 1000 + day));
        // nobody knows since when
        assert!(!default.is_away(&ReplicaState::default(), false, u64::MAX));
    }

    #[test]
    fn mistakes_in_a_replica_are_named() {
        let read = |text: &str| toml_edit::de::from_str::<ReplicaConfig>(text);
        let good = "name = 'off'\nsource = 'tank'\ntarget = 'backup/tank'";
        assert!(read(good).is_ok());
        let why = read(&good.replace("off", "a b")).unwrap_err().to_string();
        assert!(why.contains("is not a name of 1 to 64 letters"), "{why}");
        assert!(read(&format!("{good}\nevery = 'minute'")).is_err());
        assert!(read(&format!("{good}\ntest = 'minute'")).is_err());
        assert!(read(&format!("{good}\ntest = 'weekly'\nsleep = ['poweroff']")).is_ok());
    }
}
