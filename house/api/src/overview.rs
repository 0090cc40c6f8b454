//! The overview: all that the first page of the dashboard shows, as it was at the daemon's last look.

use std::path::PathBuf;

use alerts::Alert;
use health::Grade;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, DriveList, EventRecord, FanStatus, Job, Method, PoolReport, UpsStatus};

/// Gets an overview of the system. The reply is some seconds old, so that no call waits for a
/// drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetOverview {}

impl Call for GetOverview {
    type Response = Overview;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/overview";
    const CHANGES: bool = false;
}

/// How everything is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Overview {
    /// The name of this machine.
    pub host: String,
    /// When the daemon looked, in seconds since 1970.
    pub time: u64,
    /// The verdict on all of it.
    pub grade: Grade,
    /// The verdict as a sentence, with the next step.
    pub sentence: String,
    /// The pools.
    pub pools: Vec<PoolReport>,
    /// The drives and their bays.
    pub drives: DriveList,
    /// The UPS, if one is configured.
    #[serde(default)]
    pub ups: Option<UpsStatus>,
    /// The fans, if some are controlled.
    #[serde(default)]
    pub fans: Option<FanStatus>,
    /// The jobs, the oldest first.
    pub jobs: Vec<Job>,
    /// The mounts: datasets and directories.
    pub mounts: Vec<(String, PathBuf)>,
    /// The latest events, the oldest first.
    pub events: Vec<EventRecord>,
    /// The open alerts, the most urgent first.
    pub alerts: Vec<Alert>,
}
