//! A simulated chassis: drives that make heat, and fans that remove it.
//!
//! Each drive: C dT/dt = P - (g0 + g1 * airflow) (T - ambient), with C of a 3.5 inch drive.

use fans::{Controller, FanConfig, FansConfig, Follows, Inputs, Outputs, SensorKind};

/// The heat capacity of a drive in joules per kelvin.
const CAPACITY: f64 = 450.0;
/// The cooling without and with full airflow in watts per kelvin.
const COOLING: (f64, f64) = (0.12, 0.55);
/// The percent below which a fan of the model stops, and that at which it starts.
const STOPS: f64 = 18.0;
const STARTS: f64 = 30.0;
/// The revolutions a minute at full speed.
const FULL_RPM: f64 = 1500.0;

pub(crate) struct Chassis {
    pub(crate) ambient: f64,
    /// The watts of each drive.
    pub(crate) power: Vec<f64>,
    pub(crate) temperatures: Vec<f64>,
    pub(crate) controller: Controller,
    pub(crate) is_stuck: bool,
    pub(crate) broken_sensor: Option<usize>,
    speed: f64,
    rpm: f64,
}

pub(crate) fn config() -> FansConfig {
    FansConfig {
        fan: vec![FanConfig {
            name: "front".to_owned(),
            chip: "sim".to_owned(),
            device: None,
            pwm: 1,
            min: 20,
            start: 35,
            follows: Follows::Drives,
        }],
        ..FansConfig::default()
    }
}

impl Chassis {
    pub(crate) fn new(ambient: f64, power: Vec<f64>) -> Self {
        Self {
            ambient,
            temperatures: vec![ambient; power.len()],
            power,
            controller: Controller::new(&config()),
            is_stuck: false,
            broken_sensor: None,
            speed: 100.0,
            rpm: FULL_RPM,
        }
    }

    /// Simulates the time between two looks, and makes a look.
    pub(crate) fn step(&mut self, seconds: f64) -> Outputs {
        let turns = !self.is_stuck
            && if self.rpm > 0.0 { self.speed >= STOPS } else { self.speed >= STARTS };
        self.rpm = if turns { FULL_RPM * self.speed / 100.0 } else { 0.0 };
        let airflow = self.rpm / FULL_RPM;
        for (temperature, power) in self.temperatures.iter_mut().zip(&self.power) {
            let cooling = COOLING.0 + COOLING.1 * airflow;
            let heat = power - cooling * (*temperature - self.ambient);
            *temperature += heat * seconds / CAPACITY;
        }
        let outputs = self.controller.step(&self.read_inputs(seconds));
        self.speed =
            outputs.percents.first().map_or(100.0, |it| f64::from(u32::try_from(*it).unwrap()));
        outputs
    }

    /// The sensors show whole degrees, as drives do.
    fn read_inputs(&self, seconds: f64) -> Inputs {
        let sensor = |(at, celsius): (usize, &f64)| {
            let value = (self.broken_sensor != Some(at)).then(|| celsius.round());
            (SensorKind::Drive, format!("drivetemp@{at}"), value)
        };
        let temperatures = self.temperatures.iter().enumerate().map(sensor).collect();
        let rpm = if self.rpm >= 1.0 { 1000 } else { 0 };
        Inputs { temperatures, rpm: vec![Some(rpm)], seconds }
    }

    pub(crate) fn hottest(&self) -> f64 {
        self.temperatures.iter().copied().fold(f64::MIN, f64::max)
    }
}
