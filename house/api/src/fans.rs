//! The fans: their speeds, the temperatures that they follow, and their calibration.

use fans::{Calibration, FanState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Shows the fans as they were at the last look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetFans {}

impl Call for GetFans {
    /// None: no fan is configured.
    type Response = Option<FanStatus>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/fans";
    const CHANGES: bool = false;
}

/// The fans.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FanStatus {
    /// The fans, in the order of the configuration.
    pub fans: Vec<FanState>,
    /// The hottest drive in degrees Celsius.
    pub drive: Option<f64>,
    /// The processor in degrees Celsius.
    pub cpu: Option<f64>,
    /// Whether a part passed its limit.
    pub is_over_limit: bool,
    /// Why all fans turn at full speed, as sentences; none: they are controlled.
    pub faults: Vec<String>,
    /// When they were looked at, in seconds since 1970.
    pub read_at: u64,
    /// Whether a process sets full speed when the daemon dies.
    pub has_watchdog: bool,
}

/// Calibrates a fan: finds at which percent it stops and starts. Takes a few minutes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CalibrateFan {
    /// The name of the fan.
    pub fan: String,
}

impl Call for CalibrateFan {
    type Response = Calibration;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/fans/{fan}/calibrate";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("calibrate fan {}", self.fan)
    }
}
