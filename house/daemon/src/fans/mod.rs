//! The fan monitor: a thread reads temperatures and tachometers, and sets the fans.
//!
//! ```text
//! daemon                                watchdog (a process of its own)
//!   look, set fans, one byte  ──pipe──> reads; no byte for 3 min, or the end: all fans at full speed
//! ```
//!
//! So the fans turn at full speed when the daemon ends, is killed, or hangs. systemd does the same once more by
//! `ExecStopPost=poolhouse fans full`, for the case that both processes were killed.

mod watchdog;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::fans::{
    Calibration, Controller, FanPort, FanState, FansConfig, Hwmon, HwmonError, Inputs, Sensor,
    SensorKind, calibrate,
};
use api::FanStatus;
use parking_lot::Mutex;

use crate::config::Config;
use crate::events::unix_seconds;
use crate::log::Log;
use crate::monitor::MonitorState;
use crate::{Error, Result, StateDir};

use watchdog::Watchdog;
pub use watchdog::watch;

/// The time that a fan needs for a steady speed during a calibration.
const SETTLE: Duration = Duration::from_secs(4);
/// The degrees below its limit at which a calibration ends.
const CALIBRATION_RESERVE: f64 = 3.0;

/// The monitor of fans.
pub(crate) struct FanMonitor {
    log: Arc<Log>,
    state: MonitorState<FansConfig, FanStatus>,
    /// Locked while fans are set, so that a calibration is alone.
    setting: Mutex<()>,
    watchdog: Mutex<Option<Watchdog>>,
}

/// The thread's own part of the monitor.
struct Session {
    config: FansConfig,
    controller: Controller,
    last_look: Instant,
    /// The faults at the last look, for the log.
    faults: Vec<String>,
}

impl FanMonitor {
    pub(crate) fn new(log: Arc<Log>) -> Self {
        Self {
            log,
            state: MonitorState::default(),
            setting: Mutex::default(),
            watchdog: Mutex::default(),
        }
    }

    /// Sets the configuration.
    pub(crate) fn configure(&self, config: FansConfig) -> Result<()> {
        if let Some(why) = config.problem() {
            // the fans stay as they were configured
            return Err(Error::refused_error(why));
        }
        self.state.configure(config);
        Ok(())
    }

    /// Ends the thread, and sets all fans to full speed.
    pub(crate) fn stop(&self) {
        self.state.stop();
        let _setting = self.setting.lock();
        for why in full_speed(&self.state.config()) {
            self.log.write_line(&format!("fans: {why}"));
        }
    }

    /// The fans as they were at the last look; none if none is configured.
    pub(crate) fn status(&self) -> Option<FanStatus> {
        self.state.status()
    }

    /// Controls the fans until [`Self::stop`].
    pub(crate) fn run(&self) {
        let mut session: Option<Session> = None;
        while let Some(config) = self.state.next_look(|config| config.interval) {
            if config.fan.is_empty() {
                if let Some(Session { config, .. }) = session.take() {
                    let _setting = self.setting.lock();
                    full_speed(&config);
                    *self.watchdog.lock() = None;
                }
                self.state.set_status(None);
                continue;
            }
            if session.as_ref().is_none_or(|it| it.config != config) {
                session = Some(self.begin(&config));
            }
            let Some(session) = &mut session else { continue };
            let setting = self.setting.lock();
            if self.state.is_stopped() {
                return;
            }
            let mut status = session.read_and_control();
            status.has_watchdog = self.report_life();
            drop(setting);
            if status.faults != session.faults {
                let line = match status.faults.as_slice() {
                    [] => "fans: they are controlled again".to_owned(),
                    faults => format!("fans: full speed: {}", faults.join("; ")),
                };
                self.log.write_line(&line);
                session.faults.clone_from(&status.faults);
            }
            self.state.set_status(Some(status));
        }
    }

    fn begin(&self, config: &FansConfig) -> Session {
        let pwms = pwm_files(config);
        let started = Watchdog::start(&pwms).inspect_err(|why| {
            self.log.write_line(&format!("fans: no watchdog process: {why}"));
        });
        *self.watchdog.lock() = started.ok();
        Session {
            config: config.clone(),
            controller: Controller::new(config),
            last_look: Instant::now(),
            faults: Vec::new(),
        }
    }

    /// Sends the watchdog a heartbeat. Returns whether it was received.
    fn report_life(&self) -> bool {
        self.watchdog.lock().as_mut().is_some_and(Watchdog::report_life)
    }

    /// Calibrates a fan. The control of all fans waits meanwhile; the temperatures are watched.
    pub(crate) fn calibrate(&self, name: &str) -> Result<Calibration> {
        let config = self.state.config();
        let Some(fan) = config.fan.iter().find(|fan| fan.name == name) else {
            let known: Vec<_> = config.fan.iter().map(|fan| fan.name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Error::refused_error(format!(
                "no fan '{name}' is configured; configured are: {known}"
            )));
        };
        let hwmon = Hwmon::new(&config.hwmon);
        let port = hwmon.find(fan).map_err(|why| Error::refused_error(why.to_string()))?;
        let _setting = self.setting.lock();
        let found = calibrate(|percent| {
            if self.state.is_stopped() {
                return Err("the daemon is shutting down".to_owned());
            }
            check_heat(&hwmon, &config)?;
            self.report_life();
            port.set_percent(percent).map_err(|why| why.to_string())?;
            std::thread::sleep(SETTLE);
            port.rpm().ok_or_else(|| "the fan has no tachometer".to_owned())
        });
        // the control continues from full speed, also after an error
        let _ = port.set_percent(100);
        found.map_err(|why| Error::refused_error(format!("fan {name}: {why}")))
    }
}

impl Session {
    /// Makes a look: reads, decides, sets.
    fn read_and_control(&mut self) -> FanStatus {
        let hwmon = Hwmon::new(&self.config.hwmon);
        let ports: Vec<_> = self.config.fan.iter().map(|fan| hwmon.find(fan)).collect();
        let rpm = |port: &std::result::Result<FanPort, HwmonError>| port.as_ref().ok()?.rpm();
        let inputs = Inputs {
            temperatures: hwmon.sensors().iter().map(measure).collect(),
            rpm: ports.iter().map(rpm).collect(),
            seconds: self.last_look.elapsed().as_secs_f64().max(0.1),
        };
        self.last_look = Instant::now();
        let outputs = self.controller.step(&inputs);
        let mut fans = Vec::new();
        for ((fan, port), percent) in self.config.fan.iter().zip(&ports).zip(outputs.percents) {
            let set = port.clone().and_then(|port| port.set_percent(percent));
            fans.push(FanState {
                name: fan.name.clone(),
                percent: set.is_ok().then_some(percent),
                rpm: rpm(port),
                error: set.err().map(|why| why.to_string()),
            });
        }
        FanStatus {
            fans,
            drive: outputs.drive,
            cpu: outputs.cpu,
            is_over_limit: outputs.is_over_limit,
            faults: outputs.faults,
            read_at: unix_seconds(),
            has_watchdog: false,
        }
    }
}

fn measure(sensor: &Sensor) -> (SensorKind, String, Option<f64>) {
    (sensor.kind, sensor.name.clone(), sensor.read().ok())
}

/// Refuses a calibration near the limit of a part.
fn check_heat(hwmon: &Hwmon, config: &FansConfig) -> std::result::Result<(), String> {
    for sensor in hwmon.sensors() {
        let limit = match sensor.kind {
            SensorKind::Drive => config.drive_limit,
            SensorKind::Cpu => config.cpu_limit,
        };
        let limit = i32::try_from(limit).map_or(f64::MAX, f64::from);
        let celsius = sensor.read().map_err(|why| why.to_string())?;
        if celsius > limit - CALIBRATION_RESERVE {
            let name = &sensor.name;
            return Err(format!("{name} is at {celsius:.0} °C, too near its limit: try it later"));
        }
    }
    Ok(())
}

/// The PWM files of the fans that exist.
fn pwm_files(config: &FansConfig) -> Vec<PathBuf> {
    let hwmon = Hwmon::new(&config.hwmon);
    config.fan.iter().filter_map(|fan| hwmon.find(fan).ok()).map(|port| port.pwm()).collect()
}

/// Sets all fans to full speed. Returns a sentence for each that could not be set.
fn full_speed(config: &FansConfig) -> Vec<String> {
    let failed = ::fans::set_full_speed(&pwm_files(config));
    failed.iter().map(ToString::to_string).collect()
}

/// Sets the fans of a configuration file to full speed, without a daemon. Returns a sentence for each that could not
/// be set.
pub fn set_fans_full(state_dir: &StateDir) -> Result<Vec<String>> {
    let path = state_dir.config();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(Error::file_error(&path, &why)),
    };
    let config = Config::parse(&text).map_err(|problems| describe(&path, &problems))?;
    Ok(full_speed(&config.section::<FansConfig>("fans")))
}

fn describe(path: &Path, problems: &[crate::ConfigProblem]) -> Error {
    let lines: Vec<_> = problems.iter().map(|it| format!("{}: {it}", path.display())).collect();
    Error::usage_error(lines.join("\n"))
}
