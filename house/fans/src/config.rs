//! The section `[fans]` of the configuration.
//!
//! ```toml
//! [fans]
//! drive_target = 40          # °C at which the hottest drive is held
//! drive_limit = 50           # °C from which all fans turn at full speed
//! cpu_target = 65
//! cpu_limit = 85
//! interval = 5               # seconds between two looks
//!
//! [[fans.fan]]
//! name = "front"
//! chip = "nct6798"           # the file `name` of the hwmon device
//! device = "nct6775.656"     # the last part of its device's path, where two chips have one name
//! pwm = 2                    # pwm2 and fan2_input
//! min = 25                   # percent at which it surely turns; see: poolhouse fans calibrate
//! start = 40                 # percent at which it starts from rest
//! follows = "drives"         # or "cpu", or "both"
//! ```

use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

/// The section `[fans]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FansConfig {
    /// The target temperature of the hottest drive, in degrees Celsius.
    #[serde(deserialize_with = "celsius")]
    pub drive_target: i64,
    /// Degrees Celsius of a drive from which all fans turn at full speed.
    #[serde(deserialize_with = "celsius")]
    pub drive_limit: i64,
    /// The target temperature of the processor, in degrees Celsius.
    #[serde(deserialize_with = "celsius")]
    pub cpu_target: i64,
    /// Degrees Celsius of the processor from which all fans turn at full speed.
    #[serde(deserialize_with = "celsius")]
    pub cpu_limit: i64,
    /// Seconds between two looks.
    #[serde(deserialize_with = "interval")]
    pub interval: u64,
    /// The folder of hwmon devices.
    pub hwmon: PathBuf,
    /// The fans; none: no fan is controlled.
    pub fan: Vec<FanConfig>,
}

/// A fan.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FanConfig {
    /// Its name in messages.
    pub name: String,
    /// The name of its hwmon chip.
    pub chip: String,
    /// The last part of the path of the chip's device.
    #[serde(default)]
    pub device: Option<String>,
    /// The number of its PWM output and tachometer.
    pub pwm: u32,
    /// The lowest percent at which it surely turns.
    #[serde(default = "default_min", deserialize_with = "percent")]
    pub min: u64,
    /// The percent at which it starts from rest.
    #[serde(default = "default_start", deserialize_with = "percent")]
    pub start: u64,
    /// The temperatures that it follows.
    #[serde(default)]
    pub follows: Follows,
}

/// The temperatures that a fan follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Follows {
    /// The hottest drive.
    #[default]
    Drives,
    /// The processor.
    Cpu,
    /// Whichever needs more air.
    Both,
}

impl Default for FansConfig {
    fn default() -> Self {
        Self {
            drive_target: 40,
            drive_limit: 50,
            cpu_target: 65,
            cpu_limit: 85,
            interval: 5,
            hwmon: "/sys/class/hwmon".into(),
            fan: Vec::new(),
        }
    }
}

impl FansConfig {
    /// A sentence about fields that contradict each other.
    pub fn problem(&self) -> Option<String> {
        let pairs = [
            ("drive", self.drive_target, self.drive_limit),
            ("cpu", self.cpu_target, self.cpu_limit),
        ];
        if let Some((name, ..)) = pairs.iter().find(|(_, target, limit)| target >= limit) {
            return Some(format!("fans.{name}_target must be below fans.{name}_limit"));
        }
        let mut names: Vec<_> = self.fan.iter().map(|fan| &fan.name).collect();
        names.sort();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1])?;
        Some(format!("two fans have the name {}", twice[0]))
    }
}

const fn default_min() -> u64 {
    30
}

const fn default_start() -> u64 {
    50
}

fn bounded<'de, D: Deserializer<'de>>(
    deserializer: D,
    (low, high): (i64, i64),
) -> Result<i64, D::Error> {
    let number = i64::deserialize(deserializer)?;
    if (low..=high).contains(&number) {
        return Ok(number);
    }
    Err(serde::de::Error::custom(format!("the value must be {low} to {high}")))
}

fn celsius<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    bounded(deserializer, (20, 110))
}

fn interval<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    bounded(deserializer, (1, 60)).map(i64::unsigned_abs)
}

fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    bounded(deserializer, (0, 100)).map(i64::unsigned_abs)
}
