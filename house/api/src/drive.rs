//! Drives: their health, their bays, self-tests, and what their owner noted.

use std::path::PathBuf;

use health::{Attribute, BayMap, Sample, SelfTest, SelfTestKind, Verdict};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Lists the drives as they were at the last look. No drive is woken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListDrives {}

impl Call for ListDrives {
    type Answer = DriveList;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/drives";
    const CHANGES: bool = false;
}

/// The drives and the map of bays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveList {
    /// The drives, in the order of their bays, then of their names.
    pub drives: Vec<Drive>,
    /// The map of bays; empty if none is drawn.
    pub bays: BayMap,
    /// Whether all drives have been looked at since the daemon started.
    pub is_complete: bool,
}

/// A drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    /// The kernel's name: `sda`, `nvme0n1`.
    pub name: String,
    /// The device node.
    pub path: PathBuf,
    /// The names in `/dev/disk/by-id`.
    pub ids: Vec<String>,
    /// The serial number.
    pub serial: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The world wide name.
    pub wwn: Option<String>,
    /// The version of the firmware.
    pub firmware: Option<String>,
    /// The size in bytes.
    pub size: u64,
    /// "HDD", "SSD" or "NVMe".
    pub kind: String,
    /// The temperature in degrees Celsius.
    pub temperature: Option<i64>,
    /// Hours that it was powered on.
    pub power_on_hours: Option<u64>,
    /// Whether it slept at the last look: the other values are older.
    pub is_asleep: bool,
    /// When its values were read, in seconds since 1970.
    pub read_at: Option<u64>,
    /// The bay, `ROW-COLUMN`.
    pub bay: Option<String>,
    /// The place in a pool.
    pub place: Option<DrivePlace>,
    /// Whether the system itself uses the drive: a mounted file system, swap, or a device that is built on it.
    #[serde(default)]
    pub is_used_by_system: bool,
    /// The verdict.
    pub verdict: Verdict,
    /// The newest self-test.
    pub self_test: Option<SelfTest>,
    /// The ATA attributes.
    pub attributes: Vec<Attribute>,
}

impl Drive {
    /// Whether neither a pool nor the system uses the drive.
    pub fn is_free(&self) -> bool {
        self.place.is_none() && !self.is_used_by_system
    }

    /// The name that stays with the drive: its serial number, or the kernel's name.
    pub fn id(&self) -> &str {
        self.serial.as_deref().unwrap_or(&self.name)
    }

    /// Whether a user means this drive: by serial number, name, path, WWN or a name in `/dev/disk/by-id`.
    pub fn matches(&self, name: &str) -> bool {
        let id = name.strip_prefix("/dev/disk/by-id/").unwrap_or(name);
        self.id() == name
            || self.name == name
            || self.path.as_os_str() == name
            || self.wwn.as_deref() == Some(name)
            || self.ids.iter().any(|known| known == id)
    }
}

/// The place of a drive in a pool, and the errors that the pool counted on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrivePlace {
    /// The pool.
    pub pool: String,
    /// The top-level vdev: `raidz2-0`.
    pub vdev: String,
    /// The device as `zpool status` names it.
    pub device: String,
    /// ONLINE, FAULTED, ...
    pub state: String,
    /// Failed reads.
    pub read_errors: u64,
    /// Failed writes.
    pub write_errors: u64,
    /// Wrong checksums.
    pub checksum_errors: u64,
}

/// Shows a drive with its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetDrive {
    /// The serial number, name, path, WWN or by-id name.
    pub drive: String,
}

impl Call for GetDrive {
    type Answer = DriveDetails;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/drives/{drive}";
    const CHANGES: bool = false;
}

/// A drive with its history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveDetails {
    /// The drive.
    pub drive: Drive,
    /// The samples of its counters, the oldest first.
    pub samples: Vec<Sample>,
}

/// Looks at all drives now. Sleeping drives stay asleep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckDrives {}

impl Call for CheckDrives {
    type Answer = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/drives/check";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        "check drives".to_owned()
    }
}

/// Starts a self-test of a drive, which wakes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestDrive {
    /// The serial number, name, path, WWN or by-id name.
    pub drive: String,
    /// "short" or "long".
    #[schema(value_type = String)]
    pub kind: SelfTestKind,
}

impl Call for TestDrive {
    type Answer = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/drives/{drive}/test";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("test drive {}", self.drive)
    }
}

/// Notes the findings of a drive: they count again when they get worse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NoteDrive {
    /// The serial number, name, path, WWN or by-id name.
    pub drive: String,
    /// Forget the notes instead.
    #[serde(default)]
    pub forget: bool,
}

impl Call for NoteDrive {
    type Answer = Drive;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/drives/{drive}/note";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("note the findings of drive {}", self.drive)
    }
}

/// Lets the light of a drive blink, so that a person finds it in the case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LocateDrive {
    /// The serial number, name, path, WWN or by-id name.
    pub drive: String,
    /// For how many seconds, at most 3600; 0 ends it.
    pub seconds: u64,
}

impl Call for LocateDrive {
    type Answer = LocateMethod;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/drives/{drive}/locate";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("locate drive {}", self.drive)
    }
}

/// The light by which a drive is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LocateMethod {
    /// The locate light of its slot.
    SlotLight,
    /// Its activity light, by reads in pulses.
    ActivityLight,
    /// None: it was switched off.
    Off,
}
