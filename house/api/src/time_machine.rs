//! Destinations of Time Machine: each is a file system with an SMB share of one user.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method, pool_of};

/// Creates a file system for the backups of a user's Mac, and shares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddTimeMachine {
    /// The user, as `user list` shows it.
    pub user: String,
    /// The new file system. Missing parents are created.
    pub dataset: String,
    /// The most space that the backups may use, as the value of the property refquota; none: all space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<String>,
}

impl Call for AddTimeMachine {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/timemachine";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("create '{}'", self.dataset)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![pool_of(&self.dataset).to_owned()]
    }
}

/// Lists the destinations of Time Machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListTimeMachines {}

impl Call for ListTimeMachines {
    type Response = Vec<TimeMachine>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/timemachine";
    const CHANGES: bool = false;

    fn action(&self) -> String {
        "list destinations of Time Machine".to_owned()
    }

    fn response_without_daemon(&self) -> Option<Vec<TimeMachine>> {
        Some(Vec::new())
    }
}

/// A destination of Time Machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeMachine {
    /// The user whose Mac backs up there.
    pub user: String,
    /// The name of the share.
    pub share: String,
    /// The file system.
    pub dataset: String,
    /// The bytes that the backups may use; none: all space.
    pub quota: Option<u64>,
    /// The bytes that the backups use, without those unique to snapshots.
    pub used: u64,
    /// When a Mac last finished a backup, in seconds since 1970; none: never.
    pub last_backup: Option<u64>,
    /// The snapshots of finished backups, oldest first.
    pub snapshots: Vec<TimeMachineSnapshot>,
    /// A sentence: why no snapshot is taken.
    pub problem: Option<String>,
}

/// A snapshot of a finished backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeMachineSnapshot {
    /// Its name after the `@`.
    pub name: String,
    /// When it was taken, in seconds since 1970.
    pub created: u64,
}

/// Rolls the backups of a user back to a snapshot. A Mac that is connected is disconnected first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RollBackTimeMachine {
    /// The user.
    pub user: String,
    /// A snapshot, `NAME` or `FS@NAME`; none: the newest one of a finished backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Destroy newer snapshots and bookmarks.
    #[serde(default)]
    pub destroy_newer: bool,
}

impl Call for RollBackTimeMachine {
    /// The snapshot, `FS@NAME`.
    type Response = String;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/timemachine/{user}/rollback";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("rollback the backups of '{}'", self.user)
    }

    fn changed_pools(&self, snapshot: &String) -> Vec<String> {
        vec![pool_of(snapshot).to_owned()]
    }
}
