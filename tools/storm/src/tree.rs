//! The expected content of a file system: the simplest model of POSIX.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::file_state::{FileContent, FileState};

/// A file, a directory or a symbolic link.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    content: FileContent,
    mode: u32,
    owner: u32,
    mtime: i64,
    xattrs: BTreeMap<String, FileContent>,
}

impl Node {
    fn new(content: FileContent, mode: u32, owner: u32, mtime: i64) -> Self {
        Self { content, mode, owner, mtime, xattrs: BTreeMap::new() }
    }
}

/// A tree of files. Paths have no `/` in front; the topmost directory's is empty.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    names: BTreeMap<String, u32>,
    nodes: BTreeMap<u32, Arc<Node>>,
    next_id: u32,
}

/// The owner of new files.
pub(crate) const OWNER_UID: u32 = 1000;

impl Tree {
    /// An empty one, made at `now`.
    pub(crate) fn new(now: i64) -> Self {
        let root = Node::new(FileContent::Directory, 0o755, 0, now);
        Self { names: [(String::new(), 0)].into(), nodes: [(0, Arc::new(root))].into(), next_id: 1 }
    }

    /// The paths of all that is of one kind.
    pub(crate) fn paths(&self, fits: impl Fn(&FileContent) -> bool) -> Vec<&str> {
        let of_kind = |(_, id): &(&String, &u32)| fits(&self.nodes[*id].content);
        self.names.iter().filter(of_kind).map(|(path, _)| path.as_str()).collect()
    }

    pub(crate) fn contains(&self, path: &str) -> bool {
        self.names.contains_key(path)
    }

    /// Whether a directory has no names in it.
    pub(crate) fn is_empty(&self, path: &str) -> bool {
        !self.names.keys().any(|other| other.starts_with(&format!("{path}/")))
    }

    pub(crate) fn is_directory(&self, path: &str) -> bool {
        self.names.get(path).is_some_and(|id| self.nodes[id].content == FileContent::Directory)
    }

    /// Bytes of a file.
    pub(crate) fn size(&self, path: &str) -> usize {
        match self.names.get(path).map(|id| &self.nodes[id].content) {
            Some(FileContent::File(bytes)) => bytes.len(),
            _ => 0,
        }
    }

    /// The bytes of a file.
    pub(crate) fn content(&self, path: &str) -> Arc<Vec<u8>> {
        match self.names.get(path).map(|id| &self.nodes[id].content) {
            Some(FileContent::File(bytes)) => Arc::clone(bytes),
            _ => Arc::default(),
        }
    }

    pub(crate) fn create(&mut self, path: &str, what: FileContent, mode: u32, now: i64) {
        let id = self.next_id;
        self.next_id += 1;
        self.nodes.insert(id, Arc::new(Node::new(what, mode, OWNER_UID, now)));
        self.names.insert(path.to_owned(), id);
        self.set_mtime(parent_path(path), now);
    }

    /// Changes a file's bytes.
    pub(crate) fn edit_content(&mut self, path: &str, now: i64, change: impl FnOnce(&mut Vec<u8>)) {
        let node = self.node_mut(path);
        if let FileContent::File(bytes) = &mut node.content {
            change(Arc::make_mut(bytes));
        }
        node.mtime = now;
    }

    pub(crate) fn set_mode_and_owner(&mut self, path: &str, mode: u32, owner: u32) {
        let node = self.node_mut(path);
        (node.mode, node.owner) = (mode, owner);
    }

    /// Sets or removes an extended attribute.
    pub(crate) fn set_xattr(&mut self, path: &str, name: &str, value: Option<Vec<u8>>) {
        let all = &mut self.node_mut(path).xattrs;
        match value {
            Some(value) => drop(all.insert(name.to_owned(), FileContent::File(Arc::new(value)))),
            None => drop(all.remove(name)),
        }
    }

    pub(crate) fn has_xattr(&self, path: &str, name: &str) -> bool {
        self.names.get(path).is_some_and(|id| self.nodes[id].xattrs.contains_key(name))
    }

    pub(crate) fn link(&mut self, path: &str, to: &str, now: i64) {
        let id = self.names[path];
        self.names.insert(to.to_owned(), id);
        self.set_mtime(parent_path(to), now);
    }

    /// Removes a name, and the file with its last.
    pub(crate) fn unlink(&mut self, path: &str, now: i64) {
        self.remove_name(path);
        self.set_mtime(parent_path(path), now);
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str, now: i64) {
        let id = self.names[from];
        if self.names.get(to) == Some(&id) {
            return;
        }
        if self.contains(to) {
            self.remove_name(to);
        }
        let below = format!("{from}/");
        let moved: Vec<String> = self
            .names
            .keys()
            .filter(|path| *path == from || path.starts_with(&below))
            .cloned()
            .collect();
        for path in moved {
            if let Some(id) = self.names.remove(&path) {
                self.names.insert(format!("{to}{}", &path[from.len()..]), id);
            }
        }
        self.set_mtime(parent_path(from), now);
        self.set_mtime(parent_path(to), now);
    }

    fn remove_name(&mut self, path: &str) {
        if let Some(id) = self.names.remove(path)
            && !self.names.values().any(|other| *other == id)
        {
            self.nodes.remove(&id);
        }
    }

    fn set_mtime(&mut self, path: &str, now: i64) {
        self.node_mut(path).mtime = now;
    }

    fn node_mut(&mut self, path: &str) -> &mut Node {
        let id = self.names[path];
        let node = self.nodes.get_mut(&id);
        Arc::make_mut(node.expect("every name has its node"))
    }

    /// Its visible state.
    pub(crate) fn file_states(&self) -> BTreeMap<String, FileState> {
        let mut first: BTreeMap<u32, &str> = BTreeMap::new();
        let see = |(path, id): (&String, &u32)| (path.clone(), *id);
        let all: Vec<(String, u32)> = self.names.iter().map(see).collect();
        let mut seen = BTreeMap::new();
        for (path, id) in &all {
            let node = &self.nodes[id];
            let same_as = *first.entry(*id).or_insert(path);
            seen.insert(
                path.clone(),
                FileState {
                    content: node.content.clone(),
                    mode: node.mode,
                    owner: node.owner,
                    link_count: self.link_count(path, *id),
                    mtime: node.mtime,
                    xattrs: node.xattrs.clone(),
                    first_path: same_as.to_owned(),
                },
            );
        }
        seen
    }

    fn link_count(&self, path: &str, id: u32) -> u64 {
        if self.nodes[&id].content != FileContent::Directory {
            return self.names.values().filter(|other| **other == id).count() as u64;
        }
        let inside = |other: &&String| !other.is_empty() && parent_path(other) == path;
        let within = self.names.keys().filter(inside);
        2 + within.filter(|other| self.is_directory(other)).count() as u64
    }
}

/// The directory that a path is in.
pub(crate) fn parent_path(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}
