//! Passages: the directories of an export on the way to further exports below it.
//!
//! ```text
//! /tank               export
//! /tank/docs          passage: a directory of the file system tank, with its other names; a pseudo directory if there
//!                     is none
//! /tank/docs/photos   export
//! ```
//!
//! A passage is found by its path each time, since the directories on the way may be renamed, removed and created.

use crate::export::{PathNode, ServedExport, join};
use crate::node::FileNode;
use crate::request::Request;

impl Request<'_> {
    /// The path of a directory, if it is the root of its export or a passage to another one.
    pub(crate) fn passage_path<'b>(&'b self, dir: &'b FileNode) -> Option<&'b str> {
        self.find_passage(dir, &|_| true)
    }

    /// The same, of those paths that `is_wanted`.
    fn find_passage<'b>(
        &'b self,
        dir: &'b FileNode,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Option<&'b str> {
        if dir.is_export_root() {
            return Some(&dir.export.path).filter(|path| is_wanted(path)).map(String::as_str);
        }
        let mut passages = self.table.passages(&dir.export).iter().filter(|path| is_wanted(path));
        let is_dir = |path: &&String| {
            let found = self.walk(dir.root(), path);
            found.is_some_and(|found| found.ino == dir.ino)
        };
        passages.find(is_dir).map(String::as_str)
    }

    /// The crossing that a name in a directory of an export stands for: another export, or a pseudo directory on the way
    /// to one.
    pub(crate) fn crossing(&self, dir: &FileNode, name: &[u8]) -> Option<PathNode> {
        let child = |path: &str| self.table.child(path, name, self.caller.address);
        // most names are none of a crossing: no directory is looked up for them
        let found = child(self.find_passage(dir, &|path| child(path).is_some())?)?;
        let is_stored = match &found {
            PathNode::Export(_) => false,
            // an export that does not admit the client hides what it is mounted over all the same
            PathNode::Pseudo(path) if self.table.is_export(path) => false,
            PathNode::Pseudo(_) => self.child_directory(dir, name).is_some(),
        };
        (!is_stored).then_some(found)
    }

    /// The directory of an export that a pseudo path is, if there is one that the client may see.
    pub(crate) fn stored_passage(&self, path: &str) -> Option<FileNode> {
        if self.table.is_export(path) {
            return None;
        }
        let export = self.table.export_above(path)?;
        let admission = export.admit(self.caller)?;
        let (ino, handle) = (export.root, export.root_handle);
        let root = FileNode { export: export.clone(), ino, handle, admission };
        self.walk(root, path)
    }

    /// The directory of a path, from the root of its export on.
    fn walk(&self, root: FileNode, path: &str) -> Option<FileNode> {
        let below = path.strip_prefix(&*join(&root.export.path, ""))?;
        let mut parts = below.split('/');
        parts.try_fold(root, |dir, name| self.child_directory(&dir, name.as_bytes()))
    }

    /// A directory in a directory of the same file system. The right to search is not asked for: the client's requests
    /// name the directory by its handle.
    fn child_directory(&self, dir: &FileNode, name: &[u8]) -> Option<FileNode> {
        let context = self.context(dir).checked_by_door();
        let found = dir.export.filesystem.lookup(&context, dir.ino, name).ok()?;
        if !found.kind.is_directory() {
            return None;
        }
        dir.sibling(found.ino).ok()
    }
}

impl FileNode {
    /// The root of its export.
    fn root(&self) -> Self {
        let ServedExport { root, root_handle, .. } = *self.export;
        Self { ino: root, handle: root_handle, ..self.clone() }
    }
}
