//! The dashboard: turned on by a one-time link, and off.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Makes a link by which the password of the dashboard can be set once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetUpDashboard {}

impl Call for SetUpDashboard {
    type Answer = DashboardLinks;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/dashboard/setup";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        "set up the dashboard".to_owned()
    }
}

/// The links to set the password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DashboardLinks {
    /// The link for each address; none: the dashboard listens nowhere.
    pub links: Vec<String>,
    /// The minutes for which they hold.
    pub minutes: u64,
}

/// Turns the dashboard off: forgets its password, and ends all sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TurnOffDashboard {}

impl Call for TurnOffDashboard {
    type Answer = ();
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/dashboard";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        "turn the dashboard off".to_owned()
    }
}

/// Gets whether the dashboard is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetDashboard {}

impl Call for GetDashboard {
    type Answer = DashboardStatus;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/dashboard";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        "look at the dashboard".to_owned()
    }
}

/// Whether the dashboard is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DashboardStatus {
    /// The addresses on which it listens.
    pub addresses: Vec<SocketAddr>,
    /// Whether a password is set; without one it shows nothing.
    pub has_password: bool,
    /// The number of open sessions.
    pub sessions: usize,
}
