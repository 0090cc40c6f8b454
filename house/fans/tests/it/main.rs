//! The tests of the crate.

mod calibrate;
mod chassis;
mod control;
mod hwmon;
