//! The section `[health]` of the configuration.
//!
//! ```toml
//! [health]
//! interval = 30                    # minutes between two looks at the drives
//! smartctl = "/usr/sbin/smartctl"
//! time_limit = 60                  # seconds that one drive may take
//! short_test_days = 7              # a short self-test of each drive that is awake; 0: none
//! long_test_days = 60              # a long one; it takes up to a day, and stands for a short one
//! kilowatt_hour = 0.30             # its price, for the estimated cost of the drives
//!
//! [[health.drives]]                # drives that Linux does not list, such as those behind a RAID controller
//! path = "/dev/sda"
//! type = "megaraid,3"              # as for smartctl -d
//! ```

use std::path::PathBuf;
use std::time::Duration;

use health::{BlockDevice, HungDrives, Smartctl};
use serde::{Deserialize, Deserializer};

use super::schedule::Schedule;

/// The section `[health]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HealthConfig {
    /// Minutes between two looks.
    #[serde(deserialize_with = "at_least_one")]
    interval: u64,
    /// The program.
    smartctl: PathBuf,
    /// Seconds that one drive may take.
    #[serde(deserialize_with = "at_least_one")]
    time_limit: u64,
    /// Days between two short self-tests of a drive; 0: none.
    short_test_days: u64,
    /// Days between two long self-tests of a drive; 0: none.
    long_test_days: u64,
    /// The price of a kilowatt-hour in thousandths of the currency; 0: not known.
    #[serde(deserialize_with = "thousandths")]
    pub(super) kilowatt_hour: u64,
    /// Drives that are not in /sys/block.
    drives: Vec<ConfiguredDrive>,
}

/// A drive that the user names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfiguredDrive {
    path: PathBuf,
    #[serde(rename = "type", default)]
    kind: Option<String>,
}

impl Default for HealthConfig {
    fn default() -> Self {
        let Smartctl { program, time_limit, .. } = Smartctl::default();
        Self {
            interval: 30,
            smartctl: program,
            time_limit: time_limit.as_secs(),
            short_test_days: 0,
            long_test_days: 0,
            kilowatt_hour: 0,
            drives: Vec::new(),
        }
    }
}

impl HealthConfig {
    /// The time between two looks.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_mins(self.interval)
    }

    /// The runner of smartctl.
    pub(super) fn smartctl(&self, hung: &HungDrives) -> Smartctl {
        let (program, hung) = (self.smartctl.clone(), hung.clone());
        Smartctl { program, time_limit: Duration::from_secs(self.time_limit), hung }
    }

    /// The schedule of self-tests.
    pub(super) fn schedule(&self) -> Schedule {
        Schedule { short_days: self.short_test_days, long_days: self.long_test_days }
    }

    /// The drives that the user names. A type is a part of the name: a controller has many drives at one path.
    pub(super) fn drives(&self) -> impl Iterator<Item = BlockDevice> {
        self.drives.iter().map(|drive| {
            let file = drive.path.file_name().unwrap_or(drive.path.as_os_str()).to_string_lossy();
            let name = match &drive.kind {
                Some(kind) => format!("{file}:{kind}"),
                None => file.into_owned(),
            };
            BlockDevice {
                name,
                path: drive.path.clone(),
                smartctl_type: drive.kind.clone(),
                ..BlockDevice::default()
            }
        })
    }
}

/// A price as thousandths.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000000000")]
fn thousandths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let price = f64::deserialize(deserializer)?;
    if (0.0..=1_000_000.0).contains(&price) {
        return Ok((price * 1000.0).round() as u64);
    }
    Err(serde::de::Error::custom("the price must be 0 to 1000000"))
}

fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(deserializer)?;
    if (1..=1_000_000).contains(&number) {
        return Ok(number);
    }
    Err(serde::de::Error::custom("the value must be 1 to 1000000"))
}
