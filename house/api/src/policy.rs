//! Snapshot policies: running them, and the snapshots that they took.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method, pool_of};

/// Takes the snapshots that are due by the policies, and destroys surplus ones, now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunPolicies {}

impl Call for RunPolicies {
    type Response = PolicyRun;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/policies/run";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        "run snapshot policies".to_owned()
    }

    fn changed_pools(&self, answer: &PolicyRun) -> Vec<String> {
        let names = answer.taken.iter().chain(&answer.pruned);
        let mut pools: Vec<_> = names.map(|name| pool_of(name).to_owned()).collect();
        pools.sort();
        pools.dedup();
        pools
    }
}

/// The result of a run of the policies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRun {
    /// The snapshots that it took.
    pub taken: Vec<String>,
    /// The snapshots that it destroyed.
    pub pruned: Vec<String>,
    /// Surplus snapshots that are kept because a replica does not have them yet.
    pub kept: Vec<String>,
    /// A sentence for each thing that failed.
    pub failed: Vec<String>,
}

/// Lists the automatic snapshots of all datasets that have a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetPolicyStatus {}

impl Call for GetPolicyStatus {
    type Response = Vec<PolicyStatus>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/policies";
    const CHANGES: bool = false;
}

/// The automatic snapshots of one kind of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// The file system or volume.
    pub dataset: String,
    /// `hourly`, `daily`, `weekly`, `monthly` or `yearly`.
    pub period: String,
    /// How many are kept.
    pub keep: usize,
    /// How many there are.
    pub count: usize,
    /// The name of the newest, behind the `@`.
    pub newest: Option<String>,
    /// When the newest was taken, in seconds since 1970.
    pub newest_time: Option<u64>,
    /// Whether one is due.
    pub is_due: bool,
}
