//! Jobs: work that takes long, can be watched and cancelled.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Lists jobs, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListJobs {}

impl Call for ListJobs {
    type Response = Vec<Job>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/jobs";
    const CHANGES: bool = false;
}

/// Cancels a running job. It stops where it leaves something whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CancelJob {
    /// Its number.
    pub id: u64,
}

impl Call for CancelJob {
    type Response = ();
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/jobs/{id}";
    const CHANGES: bool = true;
    const OPERATES: bool = true;

    fn action(&self) -> String {
        format!("cancel job {}", self.id)
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number, which no other job of this daemon ever has.
    pub id: u64,
    /// The kind of work: "destroy", "import", "scrub".
    pub kind: String,
    /// The pool or dataset.
    pub subject: String,
    /// The user that started it.
    pub uid: u32,
    /// Whether it runs, and how it ended.
    pub state: JobState,
    /// How far it is.
    pub progress: JobProgress,
    /// When it started, in seconds since 1970.
    pub started: u64,
    /// When it ended, in seconds since 1970.
    pub finished: Option<u64>,
    /// Sentences about it, the error among them.
    pub log: Vec<String>,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It runs.
    Running,
    /// It succeeded.
    Finished,
    /// It failed; its log has the reason.
    Failed,
    /// A user cancelled it.
    Cancelled,
    /// The daemon ended while it ran.
    Interrupted,
}

impl JobState {
    /// The word in JSON and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// How far a job is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobProgress {
    /// Units that are done.
    pub done: u64,
    /// Units in all; 0 if that is not known.
    pub total: u64,
    /// The unit: "bytes", "datasets".
    pub unit: String,
}
