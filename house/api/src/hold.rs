//! Holds on snapshots: a snapshot with a hold cannot be destroyed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method, NeededPermission, pool_of};

/// Puts a hold on snapshots, all in the same txg.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlaceHold {
    /// The tag of the hold.
    pub tag: String,
    /// The snapshots, `FS@NAME`.
    pub snapshots: Vec<String>,
    /// Also the snapshots of that name below.
    #[serde(default)]
    pub recursive: bool,
}

impl Call for PlaceHold {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/holds";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("hold '{}'", self.snapshots.join("', '"))
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        let needs = |name: &String| NeededPermission::on_head(name, "hold", self.recursive);
        Some(self.snapshots.iter().map(needs).collect())
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        pools(&self.snapshots)
    }
}

/// Releases a hold of snapshots. A snapshot that waited for that is destroyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseHold {
    /// The tag of the hold.
    pub tag: String,
    /// The snapshots, `FS@NAME`.
    pub snapshots: Vec<String>,
    /// Also the snapshots of that name below.
    #[serde(default)]
    pub recursive: bool,
}

impl Call for ReleaseHold {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/holds/release";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("release '{}'", self.snapshots.join("', '"))
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        let needs = |name: &String| NeededPermission::on_head(name, "release", self.recursive);
        Some(self.snapshots.iter().map(needs).collect())
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        pools(&self.snapshots)
    }
}

/// Lists the holds of snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListHolds {
    /// The snapshots, `FS@NAME`.
    pub snapshots: Vec<String>,
    /// Also the snapshots of that name below.
    #[serde(default)]
    pub recursive: bool,
}

impl Call for ListHolds {
    type Response = Vec<Hold>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/holds";
    const CHANGES: bool = false;
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The snapshot.
    pub snapshot: String,
    /// The tag.
    pub tag: String,
    /// When it was placed, in seconds since 1970.
    pub time: u64,
}

/// The pools of snapshots, each once.
fn pools(snapshots: &[String]) -> Vec<String> {
    let mut pools: Vec<_> = snapshots.iter().map(|name| pool_of(name).to_owned()).collect();
    pools.sort();
    pools.dedup();
    pools
}
