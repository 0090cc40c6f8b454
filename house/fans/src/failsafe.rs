//! Full speed for all fans: the reaction to every fault, and the last action of the daemon, its
//! watchdog and systemd.

use std::path::PathBuf;

use crate::HwmonError;
use crate::hwmon::write_full;

/// Sets fans to full speed. All are tried; returns why some could not be set.
pub fn set_full_speed(pwms: &[PathBuf]) -> Vec<HwmonError> {
    pwms.iter().filter_map(|pwm| write_full(pwm).err()).collect()
}
