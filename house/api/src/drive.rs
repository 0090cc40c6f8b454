//! Drives: their health, their bays, self-tests, and what their owner noted.

use std::path::PathBuf;

use health::{Attribute, BayMap, BurnIn, BurnInVerdict, Sample, SelfTest, SelfTestKind, Verdict};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Lists the drives as they were at the last look. No drive is woken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListDrives {}

impl Call for ListDrives {
    type Response = DriveList;
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
    /// An estimate of the power that they take.
    #[serde(default)]
    pub power: DrivePower,
}

/// An estimate of the power that drives take, by their kinds and states.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrivePower {
    /// Milliwatts of all drives.
    pub milliwatts: u64,
    /// The drives that sleep.
    pub asleep: usize,
    /// The cost of a year in this state, in the currency of `health.kilowatt_hour`; none: no price is set.
    pub cost_of_year: Option<u64>,
}

impl DrivePower {
    /// A sentence: "The drives take about 33 W, 87 a year; 2 sleep."
    pub fn sentence(&self) -> String {
        let watts = self.milliwatts.div_ceil(1000);
        let cost = self.cost_of_year.map(|cost| format!(", which costs {cost} a year"));
        let asleep = match self.asleep {
            0 => String::new(),
            1 => "; 1 sleeps".to_owned(),
            count => format!("; {count} sleep"),
        };
        format!("The drives take about {watts} W{}{asleep} (estimated).", cost.unwrap_or_default())
    }
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
    /// Whether a burn-in of the drive runs, which overwrites it.
    #[serde(default)]
    pub is_in_burn_in: bool,
    /// The verdict.
    pub verdict: Verdict,
    /// The newest self-test.
    pub self_test: Option<SelfTest>,
    /// The ATA attributes.
    pub attributes: Vec<Attribute>,
}

impl Drive {
    /// Whether neither a pool nor the system nor a burn-in uses the drive.
    pub fn is_free(&self) -> bool {
        self.place.is_none() && !self.is_used_by_system && !self.is_in_burn_in
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
    type Response = DriveDetails;
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
    /// The newest burn-in.
    #[serde(default)]
    pub burn_in: Option<BurnInReport>,
}

/// Looks at all drives now. Sleeping drives stay asleep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckDrives {}

impl Call for CheckDrives {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/drives/check";
    const CHANGES: bool = true;
    const OPERATES: bool = true;

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
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/drives/{drive}/test";
    const CHANGES: bool = true;
    const OPERATES: bool = true;

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
    type Response = Drive;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/drives/{drive}/note";
    const CHANGES: bool = true;
    const OPERATES: bool = true;

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
    type Response = LocateMethod;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/drives/{drive}/locate";
    const CHANGES: bool = true;
    const OPERATES: bool = true;

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

/// Starts a burn-in of a drive, as a job: a pattern is written over all of it, read back and compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BurnInDrive {
    /// The serial number, name, path, WWN or by-id name.
    pub drive: String,
    /// Its serial number, or its name if it has none: all data of the drive are lost.
    pub confirm: String,
    /// Test a sample of regions, 1 GiB in all.
    #[serde(default)]
    pub quick: bool,
    /// Overwrite a drive with the labels of a pool or with a file system as well.
    #[serde(default)]
    pub force: bool,
    /// Continue the burn-in that was cancelled.
    #[serde(default)]
    pub resume: bool,
}

impl Call for BurnInDrive {
    type Response = BurnInReport;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/drives/{drive}/burn-in";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("burn in drive {}", self.drive)
    }
}

/// Shows the newest burn-in of a drive: its progress, or its results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetBurnIn {
    /// The serial number, name, path, WWN or by-id name.
    pub drive: String,
}

impl Call for GetBurnIn {
    type Response = BurnInReport;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/drives/{drive}/burn-in";
    const CHANGES: bool = false;
}

/// A burn-in of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BurnInReport {
    /// The serial number, or the kernel's name of a drive without one.
    pub drive: String,
    /// The model.
    pub model: Option<String>,
    /// Whether it runs, and how it ended.
    pub state: BurnInState,
    /// The number of the newest job.
    pub job: u64,
    /// The user that started it.
    pub uid: u32,
    /// When it started, in seconds since 1970.
    pub started: u64,
    /// When it ended, in seconds since 1970.
    pub finished: Option<u64>,
    /// The progress and the results.
    pub results: BurnIn,
    /// The verdict of the results.
    pub verdict: BurnInVerdict,
    /// The reason why it stopped.
    pub note: Option<String>,
}

impl BurnInReport {
    /// The seconds that it still takes at its speed so far; none before the first request.
    pub fn seconds_left(&self) -> Option<u64> {
        let results = &self.results;
        let spent = u128::from(results.write.nanoseconds) + u128::from(results.read.nanoseconds);
        let done = u128::from(results.write.bytes) + u128::from(results.read.bytes);
        let left = u128::from(2 * results.pass_length() - results.bytes_done());
        u64::try_from((left * spent).checked_div(done)? / 1_000_000_000).ok()
    }
}

/// The state of a burn-in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BurnInState {
    /// It runs. After a restart of the daemon it continues.
    Running,
    /// It was cancelled, or could not continue.
    #[default]
    Stopped,
    /// It ended with a verdict.
    Done,
}
