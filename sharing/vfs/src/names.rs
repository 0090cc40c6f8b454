//! The path of a node, found from its number: for messages only, because it is slow.

use engine::files::FileSystemReader;
use posix::Ino;

use crate::DatasetTree;
use crate::vnode::Vnode;

/// No path has more parts.
const MAX_DEPTH: usize = 2048;

/// A node's path for messages: `POOL/FS@SNAP:/PATH`.
pub(crate) fn display_name(tree: &DatasetTree, number: Ino) -> String {
    let Ok((node, dataset)) = tree.vnode(number) else { return format!("node {number}") };
    let Vnode::File(_, object) = node else { return dataset.name.clone() };
    let Ok(files) = tree.files(&dataset) else { return dataset.name.clone() };
    match object_path(&files, object) {
        Some(path) => format!("{}:{path}", dataset.name),
        None => format!("{}: object {object}", dataset.name),
    }
}

/// The path from the root to a file, as far as its directories know it.
fn object_path(files: &FileSystemReader, object: u64) -> Option<String> {
    let (mut parts, mut at) = (Vec::new(), object);
    while at != files.root_object() {
        let parent = files.stat(at).ok()?.parent;
        let dir = files.file(parent).ok()?;
        let mut found = None;
        let looked = files.read_dir(&dir, &mut |name| {
            if name.ino == at {
                found = Some(name.name);
            }
            found.is_none()
        });
        looked.ok()?;
        parts.push(String::from_utf8_lossy(&found?).into_owned());
        if parts.len() > MAX_DEPTH {
            return None;
        }
        at = parent;
    }
    parts.reverse();
    Some(format!("/{}", parts.join("/")))
}
