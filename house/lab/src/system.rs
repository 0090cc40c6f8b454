//! Where facts about the machine are read: the kernel's files, or a copy of them in a test.

use std::path::{Path, PathBuf};

/// The root below which `/proc`, `/sys` and `/etc` lie.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        Self::with_root("/")
    }
}

impl System {
    /// A system whose files are below `root`.
    pub fn with_root(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where a file of it lies; `path` has no leading slash.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// A file's text without white space at its ends; none if the file does not exist.
    pub fn read_text(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = std::fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// A file that holds one number.
    pub fn read_number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.read_text(path)?.parse().ok()
    }

    /// The names in a folder, sorted; none if the folder does not exist.
    pub fn list_dir(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The target of a link, without the path above the root.
    pub fn resolve_link(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let root = self.root.canonicalize().ok()?;
        let full = self.path(path).canonicalize().ok()?;
        full.strip_prefix(root).ok().map(Path::to_path_buf)
    }
}
