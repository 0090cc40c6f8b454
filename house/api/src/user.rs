//! Users of shares: each has a password of its own, and the rights of a user of the system.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method, Secret};

/// Lists the users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListUsers {}

impl Call for ListUsers {
    type Response = Vec<ShareUser>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/users";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        "list users".to_owned()
    }
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareUser {
    /// The name with which clients log in.
    pub name: String,
    /// The system user whose rights it has.
    pub system_user: String,
}

/// Adds a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddUser {
    /// The name with which clients log in.
    pub name: String,
    /// The system user whose rights it has; without it the one of that name, or the daemon's own
    /// user if that is not root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_user: Option<String>,
    /// The password.
    pub password: Secret,
}

impl Call for AddUser {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/users";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("add user '{}'", self.name)
    }
}

/// Sets the password of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetUserPassword {
    /// The user.
    pub name: String,
    /// The password.
    pub password: Secret,
}

impl Call for SetUserPassword {
    type Response = ();
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/users/{name}/password";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("set the password of user '{}'", self.name)
    }
}

/// Removes a user. The user of the system and all files stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemoveUser {
    /// The user.
    pub name: String,
}

impl Call for RemoveUser {
    type Response = ();
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/users/{name}";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("remove user '{}'", self.name)
    }
}
