//! The visible state of a file system.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::files::{File, FileSystemReader, FileType};

/// The type and content of a file.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum FileContent {
    /// A file, with its bytes.
    File(Arc<Vec<u8>>),
    Directory,
    /// A symbolic link, with its target.
    Symlink(String),
    /// Another type.
    Other(FileType),
}

/// The visible state of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) content: FileContent,
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    pub(crate) link_count: u64,
    pub(crate) mtime: i64,
    /// Its extended attributes, like files.
    pub(crate) xattrs: BTreeMap<String, FileContent>,
    /// The first path that leads to the same file.
    pub(crate) first_path: String,
}

impl std::fmt::Debug for FileContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(bytes) => {
                let sum = bytes
                    .iter()
                    .fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
                write!(f, "a file of {} bytes ({sum:08x})", bytes.len())
            }
            Self::Directory => write!(f, "a directory"),
            Self::Symlink(target) => write!(f, "a link to {target}"),
            Self::Other(kind) => write!(f, "{kind:?}"),
        }
    }
}

/// Looks at all of a file system.
pub(crate) fn read_file_states(
    files: &FileSystemReader,
) -> Result<BTreeMap<String, FileState>, String> {
    let mut seen = BTreeMap::new();
    let mut ids = BTreeMap::new();
    let root = files.root().map_err(|error| error.to_string())?;
    let mut todo = vec![(String::new(), root)];
    while let Some((path, file)) = todo.pop() {
        let failed = |error: engine::files::Error| format!("{path}: {error}");
        if file.stat().is_directory() {
            for name in files.read_dir_sorted(&file).map_err(failed)? {
                let child = files.file(name.ino).map_err(failed)?;
                if child.stat().kind != name.kind {
                    return Err(format!("{path}: an entry has another type than its file"));
                }
                let name = String::from_utf8_lossy(&name.name).into_owned();
                let below = if path.is_empty() { name } else { format!("{path}/{name}") };
                todo.push((below, child));
            }
        }
        ids.insert(path.clone(), file.ino());
        seen.insert(path.clone(), read_file_state(&file).map_err(failed)?);
    }
    let mut first: BTreeMap<u64, String> = BTreeMap::new();
    for (path, seen) in &mut seen {
        let same = first.entry(ids[path]).or_insert_with(|| path.clone());
        seen.first_path.clone_from(same);
    }
    Ok(seen)
}

fn read_file_state(file: &File) -> Result<FileState, engine::files::Error> {
    let facts = file.stat();
    let what = match facts.kind {
        FileType::File => {
            let mut bytes = vec![0; usize::try_from(facts.size).unwrap_or(0)];
            file.content().read(0, &mut bytes)?;
            FileContent::File(Arc::new(bytes))
        }
        FileType::Directory => FileContent::Directory,
        FileType::Symlink => {
            FileContent::Symlink(String::from_utf8_lossy(&file.read_link()?).into_owned())
        }
        other => FileContent::Other(other),
    };
    let attributes = file.xattrs()?.into_iter().map(|(name, value)| {
        (String::from_utf8_lossy(&name).into_owned(), FileContent::File(Arc::new(value)))
    });
    Ok(FileState {
        content: what,
        mode: facts.mode,
        owner: facts.uid,
        link_count: facts.nlink,
        mtime: facts.mtime.seconds,
        xattrs: attributes.collect(),
        first_path: String::new(),
    })
}

/// The differences from the expected state; `times` are compared, or not.
pub(crate) fn differences(
    expected: &BTreeMap<String, FileState>,
    found: &BTreeMap<String, FileState>,
    times: bool,
) -> Option<String> {
    let same = |one: &FileState, other: &FileState| {
        let mtime = if times { one.mtime } else { other.mtime };
        FileState { mtime, ..one.clone() } == *other
    };
    let mut lines = Vec::new();
    for (path, seen) in expected {
        match found.get(path) {
            None => lines.push(format!("/{path} is not there: {seen:?}")),
            Some(other) if !same(seen, other) => {
                lines.push(format!("/{path} should be {seen:?}, and is {other:?}"));
            }
            Some(_) => {}
        }
    }
    let more = found.iter().filter(|(path, _)| !expected.contains_key(*path));
    lines.extend(more.map(|(path, seen)| format!("/{path} should not be there: {seen:?}")));
    (!lines.is_empty()).then(|| lines.join("\n  "))
}
