//! Controls fans by the temperatures of drives and processor. Every fault leads to full speed.
//!
//! ```text
//! config      the section [fans]                       targets, limits, the fans
//! hwmon       sensors and fans in /sys/class/hwmon     found by chip name and device, never by hwmonN
//! pid         one controller                           temperature -> percent
//! control     temperatures + tachometers -> percents   faults, slew rate, start kick
//! calibrate   one fan                                  at which percent it stops and starts
//! failsafe    full speed                               by the daemon, its watchdog, and systemd after both
//! ```
//!
//! The crate has no thread and no clock: the daemon calls it at an interval, and a simulated chassis does in tests.
#![forbid(unsafe_code)]

mod calibrate;
mod config;
mod control;
mod failsafe;
mod hwmon;
mod pid;

pub use calibrate::{Calibration, calibrate};
pub use config::{FanConfig, FansConfig, Follows};
pub use control::{Controller, FanState, Inputs, Outputs};
pub use failsafe::set_full_speed;
pub use hwmon::{FanPort, Hwmon, HwmonError, Sensor, SensorKind};
