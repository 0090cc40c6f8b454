//! The files that differ between two snapshots, in the words of zfs-diff(8).

use api::{FileChange, ListFileChanges};
use engine::files::{FileChangeKind, FileSystemReader};
use posix::FileType;

use super::{ManagedPool, Pools};
use crate::{Error, Result};

impl Pools {
    pub(crate) fn list_file_changes(&self, call: &ListFileChanges) -> Result<Vec<FileChange>> {
        let Some((head, _)) = call.from.split_once('@') else {
            return Err(Error::usage_error(format!("'{}' is not a snapshot: FS@NAME", call.from)));
        };
        let later = call.to.as_deref().unwrap_or(head);
        if later.split('@').next() != Some(head) {
            return Err(Error::refused_error(format!(
                "'{later}' is not of the same file system as '{}'",
                call.from
            )));
        }
        let pool = self.pool_of_dataset(head)?;
        check_order(&pool, head, &call.from, call.to.as_deref())?;
        pool.handle.sync()?;
        let open = |name: &str| pool.handle.datasets().synced_reader(name);
        let (before, after) = (open(&call.from)?, open(later)?);
        let top = pool.shown_mountpoint(head);
        list(&before, &after, &top).map_err(|why| {
            Error::refused_error(format!("cannot compare '{}' with '{later}': {why}", call.from))
        })
    }
}

/// Refuses snapshots that are not in their order, in the words of zfs-diff(8).
fn check_order(pool: &ManagedPool, head: &str, from: &str, to: Option<&str>) -> Result<()> {
    let snapshots = pool.handle.snapshots().list(head)?;
    let position = |name: &str| {
        let part = name.split_once('@').map(|(_, part)| part);
        snapshots.iter().position(|snapshot| Some(snapshot.name.as_str()) == part)
    };
    if let (Some(from), Some(to)) = (position(from), to.and_then(position))
        && from >= to
    {
        let why = "Unable to obtain diffs: \n   Not an earlier snapshot from the same fs";
        return Err(Error::refused_error(why));
    }
    Ok(())
}

fn list(
    before: &FileSystemReader,
    after: &FileSystemReader,
    top: &str,
) -> engine::files::Result<Vec<FileChange>> {
    let shown = |path: &[u8]| format!("{top}{}", escape(path));
    let changes = before.file_changes(after)?.into_iter().map(|found| {
        let (change, to) = match &found.kind {
            FileChangeKind::Added => ("+", None),
            FileChangeKind::Removed => ("-", None),
            FileChangeKind::Modified => ("M", None),
            FileChangeKind::Renamed { to } => ("R", Some(shown(to))),
        };
        FileChange {
            change: change.to_owned(),
            path: shown(&found.path),
            to,
            file_type: letter(found.file_type).to_owned(),
            time: (found.time.seconds, found.time.nanoseconds),
        }
    });
    Ok(changes.collect())
}

pub(super) const fn letter(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "/",
        FileType::Symlink => "@",
        FileType::BlockDevice => "B",
        FileType::CharDevice => "C",
        FileType::Fifo => "|",
        FileType::Socket => "=",
        _ => "F",
    }
}

/// A path in which bytes that are not printable are octal.
fn escape(path: &[u8]) -> String {
    let mut text = String::new();
    for byte in path {
        match byte {
            b'\\' | 0..=b' ' | 127.. => text.push_str(&format!("\\{byte:04o}")),
            _ => text.push(char::from(*byte)),
        }
    }
    text
}

impl ManagedPool {
    /// The directory of a file system; its name where it has none.
    fn shown_mountpoint(&self, name: &str) -> String {
        let found = self.list_filesystems(name, Some(0)).ok();
        let dir = found.as_ref().and_then(|all| self.mountpoint_dir(all.first()?));
        let dir = dir.map_or_else(|| format!("/{name}"), |dir| dir.display().to_string());
        dir.trim_end_matches('/').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn unprintable_bytes_are_octal() {
        assert_eq!(escape(b"/a b\\\xff~"), "/a\\0040b\\0134\\0377~");
    }
}
