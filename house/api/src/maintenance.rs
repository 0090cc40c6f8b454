//! Maintenance of pools: checkpoints.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Makes a checkpoint of a pool, or discards it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointPool {
    /// The pool.
    pub name: String,
    /// Discard the checkpoint.
    #[serde(default)]
    pub discard: bool,
}

impl Call for CheckpointPool {
    type Answer = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/pools/{name}/checkpoint";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        let verb = if self.discard { "discard checkpoint in" } else { "checkpoint" };
        format!("{verb} '{}'", self.name)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![self.name.clone()]
    }
}
