//! The properties of a drive: its speed, its failure rate, its power. By class, and each
//! figure can be given instead.

use serde::Serialize;

use crate::Error;

/// A kind of drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriveClass {
    /// A desktop's hard disk.
    Desktop,
    /// A hard disk made for a NAS.
    #[default]
    Nas,
    /// A data centre's hard disk.
    Enterprise,
    /// A SATA SSD.
    Ssd,
    /// An NVMe SSD.
    Nvme,
}

impl DriveClass {
    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "desktop" => Self::Desktop,
            "nas" => Self::Nas,
            "enterprise" => Self::Enterprise,
            "ssd" => Self::Ssd,
            "nvme" => Self::Nvme,
            _ => return None,
        })
    }
}

/// The properties of one drive. All drives of a plan are equal in these.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DriveSpec {
    /// Sequential speed over its whole surface in the mean, bytes a second.
    pub bytes_per_second: f64,
    /// Random reads or writes a second.
    pub operations_per_second: f64,
    /// The annual failure rate.
    pub annual_failure_rate: f64,
    /// Chance that a bit cannot be read.
    pub unreadable_per_bit: f64,
    /// Its mean power, watts.
    pub watts: f64,
}

impl From<DriveClass> for DriveSpec {
    fn from(class: DriveClass) -> Self {
        let (speed, operations, failures, unreadable, watts) = match class {
            DriveClass::Desktop => (150e6, 75.0, 0.02, 1e-14, 5.0),
            DriveClass::Nas => (180e6, 90.0, 0.015, 1e-14, 6.0),
            DriveClass::Enterprise => (210e6, 120.0, 0.010, 1e-15, 7.5),
            DriveClass::Ssd => (500e6, 50_000.0, 0.007, 1e-17, 2.5),
            DriveClass::Nvme => (3000e6, 300_000.0, 0.006, 1e-17, 5.0),
        };
        Self {
            bytes_per_second: speed,
            operations_per_second: operations,
            annual_failure_rate: failures,
            unreadable_per_bit: unreadable,
            watts,
        }
    }
}

/// Reads a speed in bytes a second: `180MB`, `180MB/s`.
pub fn parse_rate(text: &str) -> Option<f64> {
    let bytes = text.trim().strip_suffix("/s").unwrap_or(text);
    units::parse_bytes(bytes).filter(|bytes| *bytes > 0).map(crate::capacity::to_f64)
}

impl DriveSpec {
    /// Refuses figures that no drive can have.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let positive = f64::MIN_POSITIVE..f64::INFINITY;
        let part = 0.0..1.0;
        for (what, value, range) in [
            ("a drive's speed", self.bytes_per_second, &positive),
            ("a drive's operations a second", self.operations_per_second, &positive),
            ("the annual failure rate", self.annual_failure_rate, &part),
            ("the rate of unreadable bits", self.unreadable_per_bit, &part),
            ("a drive's watts", self.watts, &(0.0..f64::INFINITY)),
        ] {
            if !range.contains(&value) {
                return Err(Error::OutOfRange { parameter: what, value });
            }
        }
        Ok(())
    }

    /// Failures of one drive in an hour.
    pub(crate) fn failures_per_hour(&self) -> f64 {
        -(-self.annual_failure_rate).ln_1p() / crate::safety::HOURS_PER_YEAR
    }
}
