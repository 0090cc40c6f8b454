//! The dashboard: turned on by a one-time link, its users, and off.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// The rights of a user of the dashboard. Each role includes those before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees all pages and changes nothing.
    #[default]
    Look,
    /// Cares for drives, scrubs and snapshots, and destroys nothing.
    Operate,
    /// Does all of it: pools, shares, users.
    Administer,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Look, Self::Operate, Self::Administer];

    /// The word in commands and in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Operate => "operate",
            Self::Administer => "administer",
        }
    }

    /// The role of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

/// The user that a setup link without a name is for.
pub const FIRST_USER: &str = "admin";

/// Makes a link by which a user of the dashboard sets a password once. It adds the user, or resets the password
/// and the one-time codes of a known one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetUpDashboard {
    /// The user; none: "admin".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The user's role; none: a known user keeps the role, "admin" administers, others look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

impl Call for SetUpDashboard {
    type Response = DashboardLinks;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/dashboard/setup";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        "set up the dashboard".to_owned()
    }
}

/// Lists the users of the dashboard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListDashboardUsers {}

impl Call for ListDashboardUsers {
    type Response = Vec<DashboardUser>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/dashboard/users";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        "list the users of the dashboard".to_owned()
    }
}

/// A user of the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DashboardUser {
    /// The name.
    pub name: String,
    /// The rights.
    pub role: Role,
    /// Whether a login also needs a one-time code.
    pub has_totp: bool,
    /// The number of open sessions.
    pub sessions: usize,
}

/// Removes a user of the dashboard, and ends the user's sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemoveDashboardUser {
    /// The user.
    pub name: String,
}

impl Call for RemoveDashboardUser {
    type Response = ();
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/dashboard/users/{name}";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("remove user '{}' of the dashboard", self.name)
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

/// Gets the root certificate of the daemon's own CA in PEM; none: the daemon has no CA, as nothing listens with its
/// certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetRootCertificate {}

impl Call for GetRootCertificate {
    type Response = Option<String>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/dashboard/root-certificate";
    const CHANGES: bool = false;
}

/// Turns the dashboard off: forgets its users, and ends all sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TurnOffDashboard {}

impl Call for TurnOffDashboard {
    type Response = ();
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
    type Response = DashboardStatus;
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
    /// Whether a user has a password; without one it shows nothing.
    pub has_password: bool,
    /// The number of open sessions.
    pub sessions: usize,
    /// The certificate of a public CA; none: none is asked for.
    #[serde(default)]
    pub certificate: Option<CertificateStatus>,
}

/// A certificate of a public CA, by ACME.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// The names that it is for.
    pub names: Vec<String>,
    /// The address of the CA.
    pub directory: String,
    /// From when it holds, in seconds since 1970; none: there is none yet.
    pub from: Option<u64>,
    /// Until when it holds, in seconds since 1970; none: there is none yet.
    pub until: Option<u64>,
    /// Why the last try to get or renew it failed.
    pub error: Option<String>,
    /// When that is tried again, in seconds since 1970.
    pub next_try: Option<u64>,
}
