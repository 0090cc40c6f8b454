//! Files in snapshots of pools and of repositories: listed, and restored.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method, pool_of};

/// Lists a folder of a snapshot, or of a file system as of its last txg. The names of files are read with the
/// daemon's rights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListFiles {
    /// `FS@NAME`, or `FS`.
    pub dataset: String,
    /// The folder, from the root of the file system on; empty: the root.
    #[serde(default)]
    pub path: String,
    /// The repository of backups that has the snapshot, by its address; none: a pool has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
}

impl Call for ListFiles {
    type Response = Vec<FileEntry>;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/files";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        format!("list files of '{}'", self.dataset)
    }
}

/// A name in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// The name. Bytes that are not UTF-8 are shown as U+FFFD.
    pub name: String,
    /// Whether the name is shown as it is, so that it can be asked for.
    pub is_exact: bool,
    /// The type in the letters of zfs-diff(8): `F` a file, `/` a directory, `@` a symbolic link.
    pub file_type: String,
    /// The size in bytes.
    pub size: u64,
    /// When the content last changed, in seconds since 1970.
    pub modified: i64,
}

/// Restores a file of a snapshot beside the present one, with its owner, permissions, times and extended attributes.
/// No file is overwritten. The answer is the path of the restored file in its file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestoreFile {
    /// `FS@NAME`.
    pub snapshot: String,
    /// The file, from the root of the file system on.
    pub path: String,
    /// The repository of backups that has the snapshot, by its address; none: a pool has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The file system that gets it; none: that of the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
}

impl Call for RestoreFile {
    type Response = String;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/files/restore";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("restore '{}' of '{}'", self.path, self.snapshot)
    }

    fn changed_pools(&self, _: &String) -> Vec<String> {
        vec![pool_of(self.into.as_deref().unwrap_or(&self.snapshot)).to_owned()]
    }
}

/// Restores a folder of a snapshot beside the present one, as a job, with all that is in it. Nothing is overwritten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestoreFolder {
    /// `FS@NAME`.
    pub snapshot: String,
    /// The folder, from the root of the file system on; empty: the root.
    #[serde(default)]
    pub path: String,
    /// The repository of backups that has the snapshot, by its address; none: a pool has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The file system that gets it; none: that of the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
}

impl Call for RestoreFolder {
    type Response = StartedRestore;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/files/restore-folder";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("restore '{}' of '{}'", self.path, self.snapshot)
    }

    fn changed_pools(&self, _: &StartedRestore) -> Vec<String> {
        vec![pool_of(self.into.as_deref().unwrap_or(&self.snapshot)).to_owned()]
    }
}

/// A restore that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedRestore {
    /// The number of its job.
    pub job: u64,
    /// The path of the restored folder in its file system, once the job has ended.
    pub path: String,
}

/// The name of a restored file: the snapshot stands before its extension, as in `letter (monday).txt`.
pub fn restored_name(name: &str, snapshot: &str) -> String {
    let snapshot = snapshot.split_once('@').map_or(snapshot, |(_, name)| name);
    match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => format!("{stem} ({snapshot}).{extension}"),
        _ => format!("{name} ({snapshot})"),
    }
}

#[cfg(test)]
mod tests {
    use super::restored_name;

    #[test]
    fn restored_files_keep_their_extension() {
        let name = |name| restored_name(name, "tank@a.b");
        assert_eq!(name("letter.txt"), "letter (a.b).txt");
        assert_eq!([name("letter"), name(".profile")], ["letter (a.b)", ".profile (a.b)"]);
    }
}
