//! Settings of vdevs (vdevprops(7)): `allocating`, `failfast`, and how many errors of a drive are too many.
//!
//! ```text
//! checksum_n checksum_t   so many checksum errors within so many seconds: the drive is DEGRADED
//! io_n io_t               the same for I/O errors: the drive is FAULTED
//! slow_io_n slow_io_t     the same for slow I/Os: the drive is DEGRADED; without both they do not count
//! ```
//!
//! Each is a number in the vdev's ZAP. A drive has the thresholds that are set on it, or on the nearest vdev above it.
//! `failfast` is stored for OpenZFS: requests to drives have no such flag here.

use ondisk::label::VdevConfig;
use units::Guid;
use zap::Zap;

use super::vdev_properties::vdev_zap;
use super::{Pool, PoolProperty};
use crate::{Error, Result};

pub(super) const ALLOCATING: &str = "allocating";
const FAILFAST: &str = "failfast";
/// The settings with a number; the value of one that is not set.
const THRESHOLDS: [&str; 6] =
    ["checksum_n", "checksum_t", "io_n", "io_t", "slow_io_n", "slow_io_t"];
const UNSET: u64 = u64::MAX;

/// A setting that is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VdevSetting {
    /// Whether new blocks go to the vdev.
    Allocating(bool),
    /// The number of an entry.
    Number(&'static str, u64),
}

impl VdevSetting {
    /// The setting of that name; none: it is another property.
    pub(super) fn parse(name: &str, value: &str) -> Option<Result<Self>> {
        if name == ALLOCATING {
            return Some(parse_switch(name, value).map(Self::Allocating));
        }
        if name == FAILFAST {
            return Some(
                parse_switch(name, value).map(|is_on| Self::Number(FAILFAST, is_on.into())),
            );
        }
        let known = THRESHOLDS.iter().find(|known| **known == name)?;
        let number = match value {
            "none" => Some(UNSET),
            value => units::parse_binary(value).filter(|number| *number < UNSET),
        };
        let wrong = || Error::Usage { what: format!("bad numeric value '{value}'") };
        Some(number.map(|number| Self::Number(known, number)).ok_or_else(wrong))
    }
}

fn parse_switch(name: &str, value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Error::Usage { what: format!("'{name}' must be one of 'on | off'") }),
    }
}

/// So many events within so many seconds are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Threshold {
    pub(super) events: u64,
    pub(super) seconds: u64,
}

impl Threshold {
    /// As with OpenZFS.
    const DEFAULT: Self = Self { events: 10, seconds: 600 };
}

/// The thresholds of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FaultThresholds {
    pub(super) checksum: Threshold,
    pub(super) io: Threshold,
    /// None: slow I/Os do not degrade a drive.
    pub(super) slow: Option<Threshold>,
}

impl Default for FaultThresholds {
    fn default() -> Self {
        Self { checksum: Threshold::DEFAULT, io: Threshold::DEFAULT, slow: None }
    }
}

impl FaultThresholds {
    /// From the numbers of the settings in the order of [`THRESHOLDS`].
    fn from_settings(set: [Option<u64>; THRESHOLDS.len()]) -> Self {
        let [checksum_n, checksum_t, io_n, io_t, slow_n, slow_t] = set;
        let threshold = |events: Option<u64>, seconds: Option<u64>| Threshold {
            events: events.unwrap_or(Threshold::DEFAULT.events),
            seconds: seconds.unwrap_or(Threshold::DEFAULT.seconds),
        };
        let slow = slow_n.zip(slow_t).map(|(events, seconds)| Threshold { events, seconds });
        Self { checksum: threshold(checksum_n, checksum_t), io: threshold(io_n, io_t), slow }
    }
}

impl Pool {
    /// The thresholds of a drive. Those that cannot be read are at their defaults.
    pub(super) fn fault_thresholds(&self, drive: Guid) -> FaultThresholds {
        let mut set = [None; THRESHOLDS.len()];
        let config = self.0.spa.config();
        for vdev in config.tree.iter().flat_map(|root| path_to(root, drive)) {
            for (number, name) in set.iter_mut().zip(THRESHOLDS) {
                let found = self.vdev_number(vdev, name).ok().flatten();
                *number = found.filter(|found| *found != UNSET).or(*number);
            }
        }
        FaultThresholds::from_settings(set)
    }

    /// A number in the ZAP of a vdev.
    fn vdev_number(&self, vdev: &VdevConfig, name: &str) -> Result<Option<u64>> {
        let Some(table) = vdev_zap(vdev) else { return Ok(None) };
        let damaged = |why: &dyn std::fmt::Display| Error::DamagedPool {
            pool: self.name().to_owned(),
            why: why.to_string(),
        };
        let object = self.0.spa.synced_mos().object(table).map_err(|why| damaged(&why))?;
        let table = Zap::open(object).map_err(|why| damaged(&why))?;
        table.lookup_u64(name.as_bytes()).map_err(|why| damaged(&why))
    }

    /// The rows of the settings with a number that `zpool get` shows for a vdev.
    pub(super) fn number_settings(&self, vdev: &VdevConfig) -> Result<Vec<PoolProperty>> {
        let row = |name: &str, value: String, is_set: bool| PoolProperty {
            name: name.to_owned(),
            value,
            source: if is_set { "local" } else { "default" }.to_owned(),
        };
        let is_off = self.vdev_number(vdev, FAILFAST)? == Some(0);
        let mut rows = vec![row(FAILFAST, if is_off { "off" } else { "on" }.to_owned(), is_off)];
        for name in THRESHOLDS {
            let set = self.vdev_number(vdev, name)?.filter(|number| *number != UNSET);
            let value = set.map_or_else(|| "-".to_owned(), |number| number.to_string());
            rows.push(row(name, value, set.is_some()));
        }
        Ok(rows)
    }
}

/// The vdevs from the root to a drive.
fn path_to(vdev: &VdevConfig, drive: Guid) -> Vec<&VdevConfig> {
    if vdev.guid == drive {
        return vec![vdev];
    }
    for child in &vdev.children {
        let mut path = path_to(child, drive);
        if !path.is_empty() {
            path.insert(0, vdev);
            return path;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::{FaultThresholds, Threshold, UNSET, VdevSetting};

    #[test]
    fn settings_are_parsed_as_in_openzfs() {
        let parse = |name: &str, value: &str| VdevSetting::parse(name, value).map(Result::ok);
        assert_eq!(parse("allocating", "off"), Some(Some(VdevSetting::Allocating(false))));
        assert_eq!(parse("failfast", "on"), Some(Some(VdevSetting::Number("failfast", 1))));
        assert_eq!(parse("io_n", "7"), Some(Some(VdevSetting::Number("io_n", 7))));
        assert_eq!(parse("io_n", "none"), Some(Some(VdevSetting::Number("io_n", UNSET))));
        for (name, wrong) in [("io_t", "soon"), ("failfast", "yes"), ("allocating", "1")] {
            assert_eq!(parse(name, wrong), Some(None), "{name}={wrong}");
        }
        assert_eq!(parse("comment", "x"), None);
    }

    #[test]
    fn slow_requests_count_with_both_numbers() {
        let set = [None, Some(5), Some(3), None, Some(4), None];
        let found = FaultThresholds::from_settings(set);
        assert_eq!(found.checksum, Threshold { events: 10, seconds: 5 });
        assert_eq!((found.io, found.slow), (Threshold { events: 3, seconds: 600 }, None));
        let set = [None, None, None, None, Some(4), Some(60)];
        let slow = FaultThresholds::from_settings(set).slow;
        assert_eq!(slow, Some(Threshold { events: 4, seconds: 60 }));
    }
}
