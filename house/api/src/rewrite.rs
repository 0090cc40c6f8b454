//! The blocks of files written again as they are (zfs-rewrite(8)).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Starts a job that rewrites files of imported pools in place: their blocks get the present layout of the pool,
/// and the compression, checksum and copies that their dataset has now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct RewriteFiles {
    /// Absolute paths in mounted file systems, or `FS:/PATH` in any file system.
    pub paths: Vec<String>,
    /// Rewrites the files below directories.
    #[serde(default)]
    pub recursive: bool,
    /// Stays in the file systems of the paths, although others are mounted below them.
    #[serde(default)]
    pub one_filesystem: bool,
    /// The first byte of each file to rewrite.
    #[serde(default)]
    pub offset: u64,
    /// The number of bytes of each file to rewrite; none: up to the end.
    #[serde(default)]
    pub length: Option<u64>,
    /// Leaves blocks as they are that files share by cloning.
    #[serde(default)]
    pub skip_cloned: bool,
    /// Leaves blocks as they are that the newest snapshot shares.
    #[serde(default)]
    pub skip_snapshots: bool,
    /// Rewrites only blocks that were written before this txg; none: all that are there when the job starts.
    #[serde(default)]
    pub born_before: Option<u64>,
    /// Keeps the names of rewritten files for [`GetRewrite`].
    #[serde(default)]
    pub names: bool,
}

/// A rewrite that was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedRewrite {
    /// The number of its job.
    pub job: u64,
    /// The txg before which the blocks were written that it rewrites. A later call with it continues the job.
    pub born_before: u64,
}

impl Call for RewriteFiles {
    type Response = StartedRewrite;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/files/rewrite";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("rewrite '{}'", self.paths.join("', '"))
    }
}

/// Shows how far a rewrite is. It may have ended a short time ago.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetRewrite {
    /// The number of its job.
    pub job: u64,
}

impl Call for GetRewrite {
    type Response = RewriteStatus;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/files/rewrite/{job}";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        format!("show rewrite job {}", self.job)
    }
}

/// The sums of a rewrite so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewriteStatus {
    /// Files that were rewritten, or of which nothing was to be rewritten.
    pub files: u64,
    /// Files that could not be rewritten, or only in part.
    pub failed_files: u64,
    /// Bytes of the blocks that were rewritten, as the files have them.
    pub rewritten: u64,
    /// Bytes of the blocks that were left as they are.
    pub skipped: u64,
    /// The rewritten files since the last call, if the job keeps their names.
    pub names: Vec<String>,
    /// Why files could not be rewritten, since the last call.
    pub errors: Vec<String>,
    /// Whether the job has ended.
    pub has_ended: bool,
}
