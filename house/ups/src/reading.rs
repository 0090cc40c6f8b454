//! The state of a UPS at one moment, as both protocols give it.

use serde::{Deserialize, Serialize};

/// Where the UPS takes its power from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PowerSource {
    /// The mains.
    Line,
    /// Its battery. A calibration, in which the UPS drains its battery on purpose, counts as `Line`.
    Battery,
}

/// The state of a UPS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The power source.
    pub source: PowerSource,
    /// Whether the UPS reports that its battery is nearly empty (`LB`).
    pub is_battery_low: bool,
    /// Whether the primary machine ordered a shutdown (`FSD`).
    pub is_forced_shutdown: bool,
    /// Whether the UPS reports that its battery must be replaced (`RB`).
    pub needs_battery: bool,
    /// The charge of the battery in percent.
    pub charge: Option<u64>,
    /// The time in seconds that the battery lasts at this load, as the UPS estimates it.
    pub runtime: Option<u64>,
    /// The load in percent of the UPS's capacity.
    pub load: Option<u64>,
    /// The manufacturer and model.
    pub model: Option<String>,
    /// The status words of the protocol: `OB DISCHRG`.
    pub status: String,
}

/// The whole part of a number that a server sent: "87.0 Percent" is 87. A negative number is not a number here.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    let number = text.split_whitespace().next()?;
    let whole = number.split('.').next()?;
    whole.parse().ok()
}
