//! The section `[ups]` of the configuration.
//!
//! ```toml
//! [ups]
//! server = "nut://localhost/cellar"      # or "apcupsd://localhost"; without it no UPS is watched
//! user = "poolhouse"                     # of upsd.users; the primary then waits for this machine
//! password_file = "/etc/poolhouse/ups-password"
//! ca_file = "/etc/poolhouse/upsd.pem"    # STARTTLS: the certificate of upsd, or its root; without it nothing is encrypted
//! role = "secondary"                     # or "primary": tells the others to shut down, and waits for them
//! interval = 5                           # seconds between two looks
//! quiet_after = 60                       # seconds on battery until scrubs and replication stop
//! shutdown_after = 0                     # seconds on battery until the shutdown; 0: the battery decides
//! shutdown_charge = 20                   # percent of charge
//! shutdown_runtime = 300                 # seconds that the battery lasts
//! resume_after = 30                      # seconds on line power until work continues
//! dead_time = 15                         # seconds of silence after a reading on battery until the shutdown
//! secondaries_wait = 15                  # seconds for which the primary waits for the others
//! shutdown_command = ["systemctl", "poweroff"]
//! power_down_flag = "/etc/killpower"     # POWERDOWNFLAG of upsmon.conf: NUT switches the UPS off at the end
//! ```

use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

/// The port of upsd.
const NUT_PORT: u16 = 3493;
/// The port of apcupsd.
const APCUPSD_PORT: u16 = 3551;

/// The section `[ups]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpsConfig {
    /// The server of the UPS; none: no UPS is watched.
    pub server: Option<ServerAddress>,
    /// The user at upsd; none: the server does not count this machine.
    pub user: Option<String>,
    /// The file with the user's password.
    pub password_file: Option<PathBuf>,
    /// The certificates in PEM by which upsd is trusted: its own, or its root. The connection is encrypted with them only.
    pub ca_file: Option<PathBuf>,
    /// The role of this machine.
    pub role: Role,
    /// Seconds between two looks.
    #[serde(deserialize_with = "at_least_one")]
    pub interval: u64,
    /// Seconds on battery until background work stops.
    pub quiet_after: u64,
    /// Seconds on battery until the shutdown; 0: no limit.
    pub shutdown_after: u64,
    /// The charge in percent at which the shutdown begins; 0: no limit.
    pub shutdown_charge: u64,
    /// The runtime in seconds at which the shutdown begins; 0: no limit.
    pub shutdown_runtime: u64,
    /// Seconds on line power until work resumes.
    pub resume_after: u64,
    /// Seconds without contact, after a reading on battery, until the shutdown.
    pub dead_time: u64,
    /// Seconds for which the primary waits for the other machines.
    pub secondaries_wait: u64,
    /// The program and its arguments that shut the machine down.
    #[serde(deserialize_with = "not_empty")]
    pub shutdown_command: Vec<String>,
    /// The file that makes NUT's system-shutdown script switch the UPS off.
    pub power_down_flag: Option<PathBuf>,
}

/// The limits of the stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Seconds on battery until background work stops.
    pub quiet_after: u64,
    /// Seconds on battery until the shutdown; 0: no limit.
    pub shutdown_after: u64,
    /// The charge in percent at which the shutdown begins; 0: no limit.
    pub shutdown_charge: u64,
    /// The runtime in seconds at which the shutdown begins; 0: no limit.
    pub shutdown_runtime: u64,
    /// Seconds on line power until work resumes.
    pub resume_after: u64,
    /// Seconds without contact, after a reading on battery, until the shutdown.
    pub dead_time: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            quiet_after: 60,
            shutdown_after: 0,
            shutdown_charge: 20,
            shutdown_runtime: 300,
            resume_after: 30,
            dead_time: 15,
        }
    }
}

/// The role of a machine among those that a UPS feeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Follows the primary, and may shut down earlier by its own limits.
    #[default]
    Secondary,
    /// Makes the others shut down, and shuts down last.
    Primary,
}

/// The address of a UPS server: `nut://HOST[:PORT]/UPS` or `apcupsd://HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// The protocol.
    pub kind: ServerKind,
    /// The host.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// The protocol of a UPS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// NUT's upsd, with the name of the UPS there.
    Nut(String),
    /// apcupsd, which has one UPS.
    Apcupsd,
}

impl ServerAddress {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "the value must be \"nut://HOST/UPS\" or \"apcupsd://HOST\"";
        let (kind, host, port) = if let Some(rest) = text.strip_prefix("nut://") {
            let (host, ups) = rest.split_once('/').ok_or(WRONG)?;
            if ups.is_empty() || !ups.chars().all(|c| c.is_ascii_graphic() && c != '"') {
                return Err(WRONG);
            }
            (ServerKind::Nut(ups.to_owned()), host, NUT_PORT)
        } else {
            let host = text.strip_prefix("apcupsd://").ok_or(WRONG)?;
            (ServerKind::Apcupsd, host, APCUPSD_PORT)
        };
        let (host, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, port),
            Some((host, rest)) => (host, parse_port(rest.strip_prefix(':').ok_or(WRONG)?)?),
            None => match host.split_once(':') {
                Some((host, port)) => (host, parse_port(port)?),
                None => (host, port),
            },
        };
        if host.is_empty() || !host.chars().all(|c| c.is_ascii_alphanumeric() || ".-:_".contains(c))
        {
            return Err(WRONG);
        }
        Ok(Self { kind, host: host.to_owned(), port })
    }
}

impl std::fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, host, port } = self;
        match kind {
            ServerKind::Nut(ups) => write!(f, "{ups}@{host}:{port}"),
            ServerKind::Apcupsd => write!(f, "apcupsd at {host}:{port}"),
        }
    }
}

fn parse_port(text: &str) -> Result<u16, &'static str> {
    text.parse().ok().filter(|port| *port > 0).ok_or("the port must be 1 to 65535")
}

impl Default for UpsConfig {
    fn default() -> Self {
        let limits = Thresholds::default();
        Self {
            server: None,
            user: None,
            password_file: None,
            ca_file: None,
            role: Role::Secondary,
            interval: 5,
            quiet_after: limits.quiet_after,
            shutdown_after: limits.shutdown_after,
            shutdown_charge: limits.shutdown_charge,
            shutdown_runtime: limits.shutdown_runtime,
            resume_after: limits.resume_after,
            dead_time: limits.dead_time,
            secondaries_wait: 15,
            shutdown_command: ["systemctl", "poweroff"].map(str::to_owned).to_vec(),
            power_down_flag: None,
        }
    }
}

impl UpsConfig {
    /// The limits of the stages.
    pub fn thresholds(&self) -> Thresholds {
        Thresholds {
            quiet_after: self.quiet_after,
            shutdown_after: self.shutdown_after,
            shutdown_charge: self.shutdown_charge,
            shutdown_runtime: self.shutdown_runtime,
            resume_after: self.resume_after,
            dead_time: self.dead_time,
        }
    }
}

impl<'de> Deserialize<'de> for ServerAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(deserializer)?;
    if (1..=3600).contains(&number) {
        return Ok(number);
    }
    Err(serde::de::Error::custom("the value must be 1 to 3600 seconds"))
}

fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let words = Vec::<String>::deserialize(deserializer)?;
    if words.first().is_some_and(|program| !program.is_empty()) {
        return Ok(words);
    }
    Err(serde::de::Error::custom("the value must be a program and its arguments"))
}
