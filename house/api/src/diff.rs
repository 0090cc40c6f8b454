//! The files that differ between two snapshots.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Lists the files that differ between a snapshot and a later one, or its file system. The names of files are
/// read with the daemon's rights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListFileChanges {
    /// The earlier snapshot, `FS@NAME`.
    pub from: String,
    /// The later snapshot; none: the file system as it is now.
    #[serde(default)]
    pub to: Option<String>,
}

impl Call for ListFileChanges {
    type Response = Vec<FileChange>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/snapshots/changes";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        format!("diff '{}'", self.from)
    }
}

/// A file that differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// `+` added, `-` removed, `M` modified, `R` renamed.
    pub change: String,
    /// The path with the mountpoint. Bytes that are not printable are octal, as with zfs-diff(8).
    pub path: String,
    /// The new path of a renamed file.
    pub to: Option<String>,
    /// The type in the letters of zfs-diff(8): `F` a file, `/` a directory, `@` a symbolic link.
    pub file_type: String,
    /// When anything about the file last changed: seconds since 1970, and nanoseconds.
    pub time: (i64, u32),
}
