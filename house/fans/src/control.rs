//! The control of all fans: temperatures and tachometers in, percents out.
//!
//! ```text
//! a sensor unreadable for 30 s, no sensor, a limit passed, a fan stopped        -> all fans 100 %
//! else                 PID of drives, PID of the processor -> the greater one   -> not below min
//! slew rate            up at most 10 % a second, down at most 1 % a second
//! start kick           a fan that stopped gets `start`, and full speed if that is not enough
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::pid::Pid;
use crate::{FansConfig, Follows, SensorKind};

/// The age in seconds up to which the last good value of a sensor counts.
const STALE_SECONDS: f64 = 30.0;
/// The percents a second by which a fan may become faster, and slower.
const SLEW: (f64, f64) = (10.0, 1.0);
/// The readings after which a fan that does not turn counts as stuck.
const STUCK_LOOKS: u32 = 4;
/// The degrees below its limit at which a part no longer demands full speed.
const LIMIT_HYSTERESIS: f64 = 3.0;

/// The measurements of one look.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Kind, name and temperature of each sensor; no temperature: it could not be read.
    pub temperatures: Vec<(SensorKind, String, Option<f64>)>,
    /// The revolutions a minute of each fan of the configuration; none: no tachometer.
    pub rpm: Vec<Option<u64>>,
    /// The seconds since the last look.
    pub seconds: f64,
}

/// The decision of one look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs {
    /// The percent of each fan of the configuration.
    pub percents: Vec<u64>,
    /// The hottest drive in degrees Celsius.
    pub drive: Option<f64>,
    /// The processor in degrees Celsius.
    pub cpu: Option<f64>,
    /// Whether a part passed its limit.
    pub is_over_limit: bool,
    /// Why all fans turn at full speed, as sentences; none: they are controlled.
    pub faults: Vec<String>,
}

/// A fan as it was at the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FanState {
    /// Its name.
    pub name: String,
    /// The percent that was set; none: it could not be set.
    pub percent: Option<u64>,
    /// The revolutions a minute.
    pub rpm: Option<u64>,
    /// Why it could not be found or set.
    pub error: Option<String>,
}

/// The controller of all fans.
#[derive(Clone, Debug)]
pub struct Controller {
    config: FansConfig,
    drives: Pid,
    cpu: Pid,
    /// The last good value of each sensor, and its age in seconds.
    sensors: BTreeMap<String, (Option<f64>, f64)>,
    /// The percent of each fan before rounding.
    percents: Vec<f64>,
    /// The looks for which each fan stood still.
    still: Vec<u32>,
    /// Whether drives and processor passed their limits.
    over: (bool, bool),
}

impl Controller {
    /// The controller of a configuration. It begins at full speed.
    pub fn new(config: &FansConfig) -> Self {
        let count = config.fan.len();
        Self {
            drives: Pid::new(degrees(config.drive_target)),
            cpu: Pid::new(degrees(config.cpu_target)),
            config: config.clone(),
            sensors: BTreeMap::new(),
            percents: vec![100.0; count],
            still: vec![0; count],
            over: (false, false),
        }
    }

    /// Decides the percents of all fans.
    pub fn step(&mut self, inputs: &Inputs) -> Outputs {
        let mut faults = Vec::new();
        self.remember(inputs);
        let drive = self.hottest(inputs, SensorKind::Drive, &mut faults);
        let cpu = self.hottest(inputs, SensorKind::Cpu, &mut faults);
        self.check_limits(drive, cpu, &mut faults);
        self.check_sensors(drive, cpu, &mut faults);
        self.check_tachometers(inputs, &mut faults);
        let needs = (
            drive.map(|celsius| self.drives.step(celsius, 0.0, inputs.seconds)),
            cpu.map(|celsius| self.cpu.step(celsius, 0.0, inputs.seconds)),
        );
        let is_full = !faults.is_empty();
        let count = self.config.fan.len();
        let percents = (0..count).map(|at| self.shape(at, needs, is_full, inputs)).collect();
        let is_over_limit = self.over.0 || self.over.1;
        Outputs { percents, drive, cpu, is_over_limit, faults }
    }

    /// Updates the values of the sensors. A sensor that no longer exists belonged to a drive that
    /// was pulled.
    fn remember(&mut self, inputs: &Inputs) {
        let is_there =
            |name: &String| inputs.temperatures.iter().any(|(_, known, _)| known == name);
        self.sensors.retain(|name, _| is_there(name));
        for (_, name, value) in &inputs.temperatures {
            let sensor = self.sensors.entry(name.clone()).or_insert((None, 0.0));
            *sensor = match value {
                Some(value) => (Some(*value), 0.0),
                None => (sensor.0, sensor.1 + inputs.seconds),
            };
        }
    }

    /// The highest temperature of a kind. A sensor without a value, or with an old one, is a fault.
    fn hottest(&self, inputs: &Inputs, kind: SensorKind, faults: &mut Vec<String>) -> Option<f64> {
        let mut hottest: Option<f64> = None;
        for (_, name, _) in inputs.temperatures.iter().filter(|(of, ..)| *of == kind) {
            match self.sensors.get(name) {
                Some((Some(value), age)) if *age <= STALE_SECONDS => {
                    hottest = Some(hottest.map_or(*value, |other| other.max(*value)));
                }
                _ => faults.push(format!("the sensor {name} cannot be read")),
            }
        }
        hottest
    }

    /// A part above its limit is a fault until it is some degrees below.
    fn check_limits(&mut self, drive: Option<f64>, cpu: Option<f64>, faults: &mut Vec<String>) {
        let check = |over: &mut bool, celsius: Option<f64>, limit: i64, part: &str| {
            let celsius = celsius?;
            let limit = degrees(limit);
            *over = celsius >= limit || (*over && celsius > limit - LIMIT_HYSTERESIS);
            over.then(|| format!("{part} is at {celsius:.0} °C, and its limit is {limit:.0} °C"))
        };
        let config = &self.config;
        faults.extend(check(&mut self.over.0, drive, config.drive_limit, "a drive"));
        faults.extend(check(&mut self.over.1, cpu, config.cpu_limit, "the processor"));
    }

    /// A fan that follows temperatures that no sensor shows is a fault.
    fn check_sensors(&self, drive: Option<f64>, cpu: Option<f64>, faults: &mut Vec<String>) {
        let follows = |wanted: Follows| {
            self.config.fan.iter().any(|fan| fan.follows == wanted || fan.follows == Follows::Both)
        };
        if drive.is_none() && follows(Follows::Drives) {
            faults.push(
                "no sensor shows the temperature of a drive; load the kernel's module: modprobe drivetemp"
                    .to_owned(),
            );
        }
        if cpu.is_none() && follows(Follows::Cpu) {
            faults.push("no sensor shows the temperature of the processor".to_owned());
        }
    }

    fn check_tachometers(&mut self, inputs: &Inputs, faults: &mut Vec<String>) {
        for (at, fan) in self.config.fan.iter().enumerate() {
            let (Some(still), Some(percent)) = (self.still.get_mut(at), self.percents.get(at))
            else {
                continue;
            };
            let is_still = inputs.rpm.get(at) == Some(&Some(0)) && *percent > 0.0;
            *still = if is_still { *still + 1 } else { 0 };
            if *still >= STUCK_LOOKS {
                faults.push(format!("fan {} does not turn", fan.name));
            }
        }
    }

    /// The percent of one fan: full speed, or what its parts need, by slew rate and start kick.
    fn shape(
        &mut self,
        at: usize,
        needs: (Option<f64>, Option<f64>),
        is_full: bool,
        inputs: &Inputs,
    ) -> u64 {
        let (Some(fan), Some(percent), Some(still)) =
            (self.config.fan.get(at), self.percents.get_mut(at), self.still.get(at))
        else {
            return 100;
        };
        let (drive, cpu) = (needs.0.unwrap_or(100.0), needs.1.unwrap_or(100.0));
        let need = match fan.follows {
            Follows::Drives => drive,
            Follows::Cpu => cpu,
            Follows::Both if needs.1.is_none() => drive,
            Follows::Both => drive.max(cpu),
        };
        let min = percent_of(fan.min);
        *percent = if is_full {
            100.0
        } else {
            let (up, down) = (SLEW.0 * inputs.seconds, SLEW.1 * inputs.seconds);
            need.max(min).clamp(*percent - down, *percent + up).clamp(min, 100.0)
        };
        let kicked = match *still {
            0 => *percent,
            1 => percent.max(percent_of(fan.start)),
            _ => 100.0,
        };
        to_percent(kicked)
    }
}

fn percent_of(percent: u64) -> f64 {
    u32::try_from(percent).map_or(100.0, f64::from)
}

/// The next whole percent above.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
fn to_percent(value: f64) -> u64 {
    value.clamp(0.0, 100.0).ceil() as u64
}

fn degrees(celsius: i64) -> f64 {
    i32::try_from(celsius).map_or(f64::from(i32::MAX), f64::from)
}
