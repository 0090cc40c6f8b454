//! Snapshots, bookmarks and clones.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method, Mounting, NeededPermission, pool_of};

/// Creates snapshots, all in the same txg.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateSnapshots {
    /// Their names, `FS@NAME`.
    pub names: Vec<String>,
    /// Also of all datasets below.
    #[serde(default)]
    pub recursive: bool,
    /// Their properties.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
}

impl Call for CreateSnapshots {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/snapshots";
    const CHANGES: bool = true;
    const OPERATES: bool = true;
    // a snapshot of each of many file systems changes as many tables in one txg
    const FREES_MEMORY: bool = true;

    fn action(&self) -> String {
        format!("create snapshot '{}'", self.names.join("', '"))
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        let mut needed = Vec::new();
        for name in &self.names {
            needed.push(NeededPermission::on_head(name, "snapshot", self.recursive));
            if !self.properties.is_empty() {
                needed.push(NeededPermission::on_head(name, "userprop", self.recursive));
            }
        }
        Some(needed)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        self.names.first().map(|name| pool_of(name).to_owned()).into_iter().collect()
    }
}

/// Creates a bookmark of a snapshot or bookmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateBookmark {
    /// `FS@SNAPSHOT`, or `FS#BOOKMARK`.
    pub snapshot: String,
    /// `FS#BOOKMARK`.
    pub bookmark: String,
}

impl Call for CreateBookmark {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/bookmarks";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("create bookmark '{}'", self.bookmark)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        Some(vec![NeededPermission::on_head(&self.bookmark, "bookmark", false)])
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![pool_of(&self.bookmark).to_owned()]
    }
}

/// Creates a redaction bookmark of a snapshot: a list of the blocks that redacted streams leave out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RedactSnapshot {
    /// `FS@SNAPSHOT`.
    pub snapshot: String,
    /// The bookmark's name behind the `#`.
    pub bookmark: String,
    /// Snapshots of clones. A block is redacted if all of them changed it.
    pub redaction_snapshots: Vec<String>,
}

impl Call for RedactSnapshot {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/bookmarks/redaction";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("redact '{}'", self.snapshot)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        Some(vec![NeededPermission::on_head(&self.snapshot, "bookmark", false)])
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![pool_of(&self.snapshot).to_owned()]
    }
}

/// Rolls a dataset back to a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RollbackDataset {
    /// `FS@SNAPSHOT`.
    pub snapshot: String,
    /// Destroy newer snapshots and bookmarks.
    #[serde(default)]
    pub destroy_newer: bool,
    /// Destroy their clones, too.
    #[serde(default)]
    pub destroy_clones: bool,
    /// Also while programs have files of those clones open.
    #[serde(default)]
    pub force: bool,
}

impl Call for RollbackDataset {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/snapshots/{snapshot}/rollback";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        let head = self.snapshot.split('@').next().unwrap_or_default();
        format!("rollback '{head}'")
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        if self.destroy_clones || self.force {
            return None;
        }
        let permissions: &[_] =
            if self.destroy_newer { &["rollback", "destroy", "mount"] } else { &["rollback"] };
        let needs =
            |permission: &&str| NeededPermission::on_head(&self.snapshot, permission, false);
        Some(permissions.iter().map(needs).collect())
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![pool_of(&self.snapshot).to_owned()]
    }
}

/// Creates a clone of a snapshot, and mounts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CloneSnapshot {
    /// `FS@SNAPSHOT`.
    pub snapshot: String,
    /// The name of the clone.
    pub name: String,
    /// Its properties.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// Create missing parents.
    #[serde(default)]
    pub parents: bool,
}

impl Call for CloneSnapshot {
    type Response = Mounting;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/snapshots/{snapshot}/clone";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("create '{}'", self.name)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        // the daemon mounts it, and ordinary users choose no directories for that
        if self.parents || self.properties.iter().any(|(property, _)| property == "mountpoint") {
            return None;
        }
        let mut needed = NeededPermission::create(&self.name, &self.properties)?;
        needed.push(NeededPermission::on_head(&self.snapshot, "clone", false));
        Some(needed)
    }

    fn changed_pools(&self, _answer: &Mounting) -> Vec<String> {
        vec![pool_of(&self.name).to_owned()]
    }
}
