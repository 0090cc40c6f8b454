//! Sensors and fans of the kernel's hwmon interface.
//!
//! ```text
//! /sys/class/hwmon/hwmon3/           the number changes between starts of the machine
//!   name                             "nct6798": the chip
//!   device -> ../../nct6775.656      the device
//!   temp1_input                      thousandths of a degree Celsius
//!   fan2_input                       revolutions a minute
//!   pwm2                             duty cycle, 0 to 255
//!   pwm2_enable                      0 full speed, 1 by software, 2 and more by the chip
//! ```
//!
//! Chips named `drivetemp` and `nvme` are sensors of drives. Reading `drivetemp` sends a command to the drive, which does
//! not wake it on the drives that the kernel's documentation names.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::FanConfig;

/// The chips that measure drives.
const DRIVE_CHIPS: [&str; 2] = ["drivetemp", "nvme"];
/// The chips that measure the processor.
const CPU_CHIPS: [&str; 5] = ["coretemp", "k10temp", "zenpower", "cpu_thermal", "fam15h_power"];
/// The thousandths of a degree that a working sensor shows.
const PLAUSIBLE: std::ops::RangeInclusive<i64> = -20_000..=125_000;
/// The duty cycle of full speed.
const FULL: u64 = 255;

/// Why a file of hwmon could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HwmonError {
    /// The fan does not exist.
    #[error("there is no {pwm} on a chip {chip}; the chips with fans are: {known}")]
    NoSuchFan {
        /// The name of the chip.
        chip: String,
        /// The name of the output.
        pwm: String,
        /// The fans that there are.
        known: String,
    },
    /// Two chips fit.
    #[error("{count} chips are named {chip}; set `device` of the fan to one of: {known}")]
    Ambiguous {
        /// The name of the chip.
        chip: String,
        /// Their number.
        count: usize,
        /// Their devices.
        known: String,
    },
    /// The file cannot be read or written.
    #[error("'{path}': {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: String,
    },
    /// The sensor shows a value that it cannot measure.
    #[error("'{path}' shows an impossible value: {value}")]
    Implausible {
        /// The file.
        path: PathBuf,
        /// The value.
        value: String,
    },
}

/// The part that a sensor measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SensorKind {
    /// A drive.
    Drive,
    /// The processor.
    Cpu,
}

/// A temperature sensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sensor {
    /// The part that it measures.
    pub kind: SensorKind,
    /// Chip and device: `drivetemp@2:0:0:0`.
    pub name: String,
    path: PathBuf,
}

/// A PWM output and its tachometer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FanPort {
    dir: PathBuf,
    number: u32,
}

/// The hwmon devices in a folder.
#[derive(Clone, Debug)]
pub struct Hwmon {
    dir: PathBuf,
}

/// A hwmon device.
struct Chip {
    dir: PathBuf,
    name: String,
    device: String,
}

impl Hwmon {
    /// The devices in a folder, usually `/sys/class/hwmon`.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    fn chips(&self) -> Vec<Chip> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let chip = |entry: io::Result<fs::DirEntry>| {
            let dir = entry.ok()?.path();
            let name = fs::read_to_string(dir.join("name")).ok()?.trim().to_owned();
            let device = fs::canonicalize(dir.join("device")).unwrap_or_else(|_| dir.clone());
            let device = device.file_name()?.to_string_lossy().into_owned();
            Some(Chip { dir, name, device })
        };
        let mut chips: Vec<_> = entries.filter_map(chip).collect();
        chips.sort_by(|a, b| (&a.name, &a.device).cmp(&(&b.name, &b.device)));
        chips
    }

    /// The sensors of drives and of the processor. Of each chip the first temperature counts: of `nvme` that is the
    /// composite one, of `coretemp` the package.
    pub fn sensors(&self) -> Vec<Sensor> {
        let sensor = |chip: Chip| {
            let kind = if DRIVE_CHIPS.contains(&chip.name.as_str()) {
                SensorKind::Drive
            } else if CPU_CHIPS.contains(&chip.name.as_str()) {
                SensorKind::Cpu
            } else {
                return None;
            };
            let path = chip.dir.join("temp1_input");
            let name = format!("{}@{}", chip.name, chip.device);
            path.exists().then_some(Sensor { kind, name, path })
        };
        self.chips().into_iter().filter_map(sensor).collect()
    }

    /// The fan that the configuration names.
    pub fn find(&self, fan: &FanConfig) -> Result<FanPort, HwmonError> {
        let chips = self.chips();
        let is_wanted = |chip: &&Chip| {
            chip.name == fan.chip && fan.device.as_ref().is_none_or(|device| *device == chip.device)
        };
        let found: Vec<_> = chips.iter().filter(is_wanted).collect();
        if found.len() > 1 {
            let known: Vec<_> = found.iter().map(|chip| chip.device.as_str()).collect();
            let (chip, count) = (fan.chip.clone(), found.len());
            return Err(HwmonError::Ambiguous { chip, count, known: known.join(", ") });
        }
        let port = found.first().map(|chip| FanPort { dir: chip.dir.clone(), number: fan.pwm });
        port.filter(|port| port.pwm().exists()).ok_or_else(|| HwmonError::NoSuchFan {
            chip: fan.chip.clone(),
            pwm: format!("pwm{}", fan.pwm),
            known: known_fans(&chips),
        })
    }
}

/// The fans of all chips: "nct6798 pwm1 pwm2".
fn known_fans(chips: &[Chip]) -> String {
    let outputs = |chip: &Chip| {
        let pwms = (1..=12).filter(|number| chip.dir.join(format!("pwm{number}")).exists());
        let pwms: Vec<_> = pwms.map(|number| format!("pwm{number}")).collect();
        (!pwms.is_empty()).then(|| format!("{} ({}) {}", chip.name, chip.device, pwms.join(" ")))
    };
    let known: Vec<_> = chips.iter().filter_map(outputs).collect();
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}

impl Sensor {
    /// Reads the temperature in degrees Celsius.
    pub fn read(&self) -> Result<f64, HwmonError> {
        let text = read(&self.path)?;
        let value = text.parse::<i64>().ok().filter(|value| PLAUSIBLE.contains(value));
        let whole = value.and_then(|value| i32::try_from(value).ok());
        let implausible = || HwmonError::Implausible { path: self.path.clone(), value: text };
        whole.map(|value| f64::from(value) / 1000.0).ok_or_else(implausible)
    }
}

impl FanPort {
    /// The file of the duty cycle.
    pub fn pwm(&self) -> PathBuf {
        self.dir.join(format!("pwm{}", self.number))
    }

    /// Takes the fan from the chip's own control, and sets its duty cycle in percent.
    pub fn set_percent(&self, percent: u64) -> Result<(), HwmonError> {
        write_pwm(&self.pwm(), percent.min(100) * FULL / 100)
    }

    /// The revolutions a minute; none: the fan has no tachometer.
    pub fn rpm(&self) -> Option<u64> {
        read(&self.dir.join(format!("fan{}_input", self.number))).ok()?.parse().ok()
    }
}

/// Sets a duty cycle from 0 to 255. The chip's own control is switched off each time: firmware takes fans back after
/// a suspend.
pub(crate) fn write_pwm(path: &Path, duty: u64) -> Result<(), HwmonError> {
    let mut enable = path.as_os_str().to_owned();
    enable.push("_enable");
    let enable = PathBuf::from(enable);
    // some drivers have no such file, and are always controlled by software
    if enable.exists() && read(&enable)? != "1" {
        write(&enable, "1")?;
    }
    write(path, &duty.to_string())
}

/// Sets full speed.
pub(crate) fn write_full(path: &Path) -> Result<(), HwmonError> {
    write_pwm(path, FULL)
}

fn read(path: &Path) -> Result<String, HwmonError> {
    let text = fs::read_to_string(path).map_err(|why| file_error(path, &why))?;
    Ok(text.trim().to_owned())
}

fn write(path: &Path, text: &str) -> Result<(), HwmonError> {
    // the file exists: nothing may be created where a chip has vanished
    let file = fs::OpenOptions::new().write(true).truncate(true).open(path);
    let written = file.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|why| file_error(path, &why))
}

fn file_error(path: &Path, why: &io::Error) -> HwmonError {
    HwmonError::File { path: path.to_owned(), why: why.to_string() }
}
