//! The UPS: its state, and the stage of a power failure.

use serde::{Deserialize, Serialize};
use ups::{Reading, Stage};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Shows the UPS as it was at the last look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetUps {}

impl Call for GetUps {
    /// None: no UPS is configured.
    type Response = Option<UpsStatus>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/ups";
    const CHANGES: bool = false;
}

/// The UPS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpsStatus {
    /// The server and the name of the UPS there.
    pub server: String,
    /// "primary" or "secondary".
    pub role: String,
    /// The stage of a power failure.
    pub stage: Stage,
    /// The last reading.
    pub reading: Option<Reading>,
    /// When it was read, in seconds since 1970.
    pub read_at: Option<u64>,
    /// Why the UPS could not be read at the last look.
    pub error: Option<String>,
    /// The seconds on battery in this power failure.
    pub battery_seconds: Option<u64>,
    /// The pools whose scrubs wait for line power.
    pub stopped_scrubs: Vec<String>,
    /// Whether the pools are closed until line power returns.
    pub are_pools_closed: bool,
    /// Why the machine could not be shut down.
    pub shutdown_error: Option<String>,
}
