//! Watches an uninterruptible power supply (UPS) in the network, and decides from its readings when this
//! machine saves energy and when it shuts down.
//!
//! ```text
//! config    the section [ups]                       nut://HOST/UPS, apcupsd://HOST, thresholds
//! nut       client of NUT's upsd, TCP port 3493     LIST VAR, LOGIN, FSD
//! apcupsd   client of apcupsd's NIS, TCP port 3551  status
//! reading   the state of the UPS                    power source, charge, runtime, load
//! stage     readings + thresholds -> a stage        normal, on-battery, quiet, shutdown
//! ```
//!
//! The crate acts on nothing: the daemon stops scrubs, closes pools and runs the shutdown command.
#![forbid(unsafe_code)]

mod apcupsd;
mod config;
mod connection;
mod error;
mod nut;
mod reading;
mod stage;

pub use apcupsd::ApcupsdClient;
pub use config::{Role, ServerAddress, ServerKind, Thresholds, UpsConfig};
pub use error::UpsError;
pub use nut::{Login, NutClient};
pub use reading::{PowerSource, Reading};
pub use stage::{PowerWatch, Stage};
