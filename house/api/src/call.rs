//! The trait of all requests, and their replies.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::NeededPermission;

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads; its fields are in the query string.
    Get,
    /// Creates something or starts something.
    Post,
    /// Sets something to a value.
    Put,
    /// Changes a part of something.
    Patch,
    /// Destroys or cancels something; its fields are in the query string.
    Delete,
}

impl Method {
    /// The word in the request line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Whether the request has a body.
    pub const fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch)
    }
}

/// A request to the daemon.
pub trait Call: Serialize + DeserializeOwned + ToSchema + Send + 'static {
    /// The value that the daemon answers with.
    type Response: Serialize + DeserializeOwned + Send + 'static;

    /// The method.
    const METHOD: Method;
    /// The path below `/api/v1`; `{field}` stands for a field of the request.
    const PATH: &'static str;
    /// Whether the call changes something. A client repeats only calls that change nothing.
    const CHANGES: bool;
    /// Whether only root and the daemon's own user may make the call. Calls that change nothing are open to
    /// every local user, as with OpenZFS, unless they show secrets or read files with the daemon's rights.
    const OWNER_ONLY: bool = Self::CHANGES;
    /// Whether the role operate may make the call, though it changes something: it cares for drives, scrubs and
    /// snapshots, and destroys nothing.
    const OPERATES: bool = false;
    /// Whether the daemon uses less memory after the call.
    const FREES_MEMORY: bool = false;

    /// The action in zfs(8)'s words, for "cannot ...: permission denied".
    fn action(&self) -> String {
        format!("{} {}", Self::METHOD.as_str(), Self::PATH)
    }

    /// The delegated permissions (`zfs allow`) with which an ordinary user may make a call that is otherwise for the
    /// owner only. None: nothing opens it to others.
    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        None
    }

    /// The reply without a daemon that could be reached or started: no pool is imported then. None:
    /// the call fails.
    fn response_without_daemon(&self) -> Option<Self::Response> {
        None
    }

    /// The pool that the call removes. The daemon records the command in its history first.
    fn removed_pool(&self) -> Option<&str> {
        None
    }

    /// The pools that the call changed. The daemon records the command in their history.
    fn changed_pools(&self, _answer: &Self::Response) -> Vec<String> {
        Vec::new()
    }
}

/// The answer to a call that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply<T> {
    /// The value of the answer.
    pub value: T,
    /// Sentences that the user should read though the call succeeded.
    #[serde(default = "Vec::new")]
    pub warnings: Vec<String>,
}

impl<T> From<T> for Reply<T> {
    fn from(value: T) -> Self {
        Self { value, warnings: Vec::new() }
    }
}

impl Reply<()> {
    /// The reply of a call without a value.
    pub const fn with_warnings(warnings: Vec<String>) -> Self {
        Self { value: (), warnings }
    }
}

/// The answer to a call that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The sentence for the user.
    pub error: String,
    /// The exit status of the command.
    pub status: u8,
}
