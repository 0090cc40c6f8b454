//! A walk down a tree, folder by folder, as `ls -R`, `find` and `du` make it.

use engine::files::{DirEntry, Error, File, FileSystemReader};

/// An item of a walk.
pub(crate) enum WalkEvent<'a> {
    /// An entry and its path below the start.
    Entry(&'a DirEntry, &'a [u8]),
    /// The end of a folder, after all that is in it.
    EndOfDirectory(&'a [u8]),
    /// A folder that cannot be listed.
    Error(&'a [u8], &'a Error),
}

/// No path of a sound file system nests deeper; deeper ones are circles.
const MAX_DEPTH: usize = 4096;

/// Calls `visit` with everything below a folder, the names of each folder in order, folders
/// followed by their entries, down to `depth`; until it returns false.
pub(crate) fn walk_tree(
    files: &FileSystemReader,
    top: &File,
    depth: usize,
    visit: &mut dyn FnMut(WalkEvent<'_>) -> bool,
) -> bool {
    let mut stack: Vec<(std::vec::IntoIter<DirEntry>, Vec<u8>)> = Vec::new();
    match files.read_dir_sorted(top) {
        Ok(names) => stack.push((names.into_iter(), Vec::new())),
        Err(why) => return visit(WalkEvent::Error(b"", &why)),
    }
    while let Some((names, path)) = stack.last_mut() {
        let Some(name) = names.next() else {
            let (_, path) = stack.pop().unwrap_or_default();
            if !path.is_empty() && !visit(WalkEvent::EndOfDirectory(&path)) {
                return false;
            }
            continue;
        };
        let mut below = path.clone();
        if !below.is_empty() {
            below.push(b'/');
        }
        below.extend_from_slice(&name.name);
        if !visit(WalkEvent::Entry(&name, &below)) {
            return false;
        }
        if name.kind != engine::files::FileType::Directory || stack.len() >= depth.min(MAX_DEPTH) {
            continue;
        }
        match files.file(name.ino).and_then(|folder| files.read_dir_sorted(&folder)) {
            Ok(names) => stack.push((names.into_iter(), below)),
            Err(why) => {
                if !visit(WalkEvent::Error(&below, &why)) {
                    return false;
                }
            }
        }
    }
    true
}
