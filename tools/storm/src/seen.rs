//! What someone sees who looks at a file system.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::files::{File, FileSystemReader, FileType};

/// What a file is and holds.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// A file, with its bytes.
    File(Arc<Vec<u8>>),
    Directory,
    /// A symbolic link, with its target.
    Link(String),
    /// None of these.
    Strange(FileType),
}

/// What is seen of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) what: What,
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    pub(crate) links: u64,
    pub(crate) mtime: i64,
    /// Its extended attributes, like files.
    pub(crate) attributes: BTreeMap<String, What>,
    /// The first path that leads to the same file.
    pub(crate) same_as: String,
}

impl std::fmt::Debug for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(bytes) => {
                let sum = bytes
                    .iter()
                    .fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
                write!(f, "a file of {} bytes ({sum:08x})", bytes.len())
            }
            Self::Directory => write!(f, "a directory"),
            Self::Link(target) => write!(f, "a link to {target}"),
            Self::Strange(kind) => write!(f, "{kind:?}"),
        }
    }
}

/// Looks at all of a file system.
pub(crate) fn look(files: &FileSystemReader) -> Result<BTreeMap<String, Seen>, String> {
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
                    return Err(format!("{path}: an entry says what its file is not"));
                }
                let name = String::from_utf8_lossy(&name.name).into_owned();
                let below = if path.is_empty() { name } else { format!("{path}/{name}") };
                todo.push((below, child));
            }
        }
        ids.insert(path.clone(), file.ino());
        seen.insert(path.clone(), look_at(&file).map_err(failed)?);
    }
    let mut first: BTreeMap<u64, String> = BTreeMap::new();
    for (path, seen) in &mut seen {
        let same = first.entry(ids[path]).or_insert_with(|| path.clone());
        seen.same_as.clone_from(same);
    }
    Ok(seen)
}

fn look_at(file: &File) -> Result<Seen, engine::files::Error> {
    let facts = file.stat();
    let what = match facts.kind {
        FileType::File => {
            let mut bytes = vec![0; usize::try_from(facts.size).unwrap_or(0)];
            file.content().read(0, &mut bytes)?;
            What::File(Arc::new(bytes))
        }
        FileType::Directory => What::Directory,
        FileType::Symlink => What::Link(String::from_utf8_lossy(&file.read_link()?).into_owned()),
        other => What::Strange(other),
    };
    let attributes = file.xattrs()?.into_iter().map(|(name, value)| {
        (String::from_utf8_lossy(&name).into_owned(), What::File(Arc::new(value)))
    });
    Ok(Seen {
        what,
        mode: facts.mode,
        owner: facts.uid,
        links: facts.nlink,
        mtime: facts.mtime.seconds,
        attributes: attributes.collect(),
        same_as: String::new(),
    })
}

/// How what is there differs from what should be; `times` are compared, or not.
pub(crate) fn differences(
    expected: &BTreeMap<String, Seen>,
    found: &BTreeMap<String, Seen>,
    times: bool,
) -> Option<String> {
    let same = |one: &Seen, other: &Seen| {
        let mtime = if times { one.mtime } else { other.mtime };
        Seen { mtime, ..one.clone() } == *other
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
