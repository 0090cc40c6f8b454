//! The daemon itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Gets the version and process of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetDaemon {}

impl Call for GetDaemon {
    type Response = DaemonInfo;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/daemon";
    const CHANGES: bool = false;
}

/// The daemon that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonInfo {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
}

/// Ends the daemon. It writes all changes, and its pools stay this host's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StopDaemon {}

impl Call for StopDaemon {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/daemon/stop";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        "stop the daemon".to_owned()
    }
}
