//! Procedures that change names: create, remove, rename, link, and the listing of directories.
//!
//! A change of names is on stable storage when it is answered, as both versions of the protocol
//! require.

use posix::access::OpenMode;
use posix::{NewInode, RenameMode, RenameRequest, SetAttributes};
use vfs::{CreateMode, OpenFile, Opened};

use crate::node::{FileNode, Node};
use crate::request::{Request, Result};
use crate::wire::status::Status;

/// An entry of a directory, as a client sees it.
pub(crate) struct ListedEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) cookie: u64,
    pub(crate) fileid: u64,
    /// The object of the entry.
    pub(crate) target: EntryTarget<'a>,
}

/// The object of an entry. It is looked up only if the client requests its attributes.
pub(crate) enum EntryTarget<'a> {
    /// A file of the same export.
    File(&'a FileNode, posix::Ino),
    /// A name to be looked up: a crossing, a snapshot, or `.` and `..`.
    Lookup(&'a Node),
}

/// Cookies of names in the root of an export that only stand for crossings begin here; those of a pseudo directory
/// begin at 3, behind `.` and `..`.
const CROSSING_COOKIE: u64 = 1 << 62;
const FIRST_COOKIE: u64 = 3;

impl EntryTarget<'_> {
    /// The node that the entry names.
    pub(crate) fn node(&self, request: &Request<'_>, name: &[u8]) -> Result<Node> {
        match self {
            Self::File(dir, ino) => dir.sibling(*ino).map(Node::File),
            Self::Lookup(dir) => request.lookup(dir, name),
        }
    }
}

/// A name that a client may give a file.
pub(crate) fn check_new_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Status::INVAL),
        b"." | b".." => Err(Status::EXIST),
        name if name.contains(&b'/') || name.contains(&0) => Err(Status::INVAL),
        _ => Ok(()),
    }
}

impl Request<'_> {
    /// Whether a name in a directory is a crossing to another export: no request changes it.
    fn check_no_crossing(&self, dir: &FileNode, name: &[u8]) -> Result<()> {
        if self.crossing(dir, name).is_some() { Err(Status::EXIST) } else { Ok(()) }
    }

    /// Creates a file that is no regular one, or a regular one without opening it. `set` is applied to it.
    pub(crate) fn create(
        &self,
        dir: &FileNode,
        name: &[u8],
        new: &NewInode<'_>,
        set: &SetAttributes,
    ) -> Result<FileNode> {
        check_new_name(name)?;
        self.check_no_crossing(dir, name)?;
        let fs = &dir.export.filesystem;
        let made = fs.create(&self.context(dir), dir.ino, name, new)?;
        let node = dir.sibling(made.ino)?;
        self.finish_create(dir, &node, set)?;
        Ok(node)
    }

    /// Creates and opens a regular file. `deny` are the accesses denied to other clients meanwhile.
    pub(crate) fn create_file(
        &self,
        (dir, name): (&FileNode, &[u8]),
        new: &NewInode<'_>,
        create: CreateMode,
        (mode, deny): (OpenMode, vfs::Access),
    ) -> Result<(FileNode, Opened<OpenFile>)> {
        check_new_name(name)?;
        self.check_no_crossing(dir, name)?;
        let context = vfs::Context { deny, ..self.context(dir) };
        let fs = &dir.export.filesystem;
        let opened = fs.create_and_open(&context, (dir.ino, name), new, create, mode)?;
        Ok((dir.sibling(opened.attributes.ino)?, opened))
    }

    /// Sets the further attributes of a new file, and commits it with its name. Its creator may do so whatever its
    /// mode is, but not give it away.
    pub(crate) fn finish_create(
        &self,
        dir: &FileNode,
        node: &FileNode,
        set: &SetAttributes,
    ) -> Result<()> {
        let fs = &node.export.filesystem;
        let owned = SetAttributes { size: None, ..*set };
        if let Some(size) = set.size {
            let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
            fs.set_attributes(&self.context_of_rest(node).checked_by_door(), node.ino, &set)?;
        }
        if owned != SetAttributes::default() {
            fs.set_attributes(&self.context_of_rest(node), node.ino, &owned)?;
        }
        self.commit(dir)
    }

    /// Removes a name: of a directory, of anything else, or of either.
    pub(crate) fn remove(&self, dir: &FileNode, name: &[u8], kind: RemoveKind) -> Result<()> {
        if matches!(name, b"." | b"..") {
            return Err(Status::INVAL);
        }
        if self.check_no_crossing(dir, name).is_err() {
            return Err(Status::NOTEMPTY);
        }
        let (fs, context) = (&dir.export.filesystem, self.context(dir));
        let found = fs.lookup(&context, dir.ino, name)?;
        let is_dir = match (kind, found.kind.is_directory()) {
            (RemoveKind::NotDirectory, true) => return Err(Status::ISDIR),
            (RemoveKind::Directory, false) => return Err(Status::NOTDIR),
            (_, is_dir) => is_dir,
        };
        if is_dir {
            fs.rmdir(&context, dir.ino, name)?;
        } else {
            let handle = fs.handle(found.ino).ok();
            fs.unlink(&context, dir.ino, name)?;
            if let Some(handle) = handle {
                self.core.opens.close(&handle);
            }
        }
        self.commit(dir)
    }

    /// Renames a file.
    pub(crate) fn rename(
        &self,
        (from, from_name): (&FileNode, &[u8]),
        (to, to_name): (&FileNode, &[u8]),
    ) -> Result<()> {
        if matches!(from_name, b"." | b"..") || matches!(to_name, b"." | b"..") {
            return Err(Status::INVAL);
        }
        check_new_name(to_name)?;
        if from.export.root_handle != to.export.root_handle {
            return Err(Status::XDEV);
        }
        self.check_no_crossing(from, from_name)?;
        self.check_no_crossing(to, to_name)?;
        let (fs, context) = (&from.export.filesystem, self.context(from));
        let replaced = fs.lookup(&context, to.ino, to_name).ok();
        let replaced = replaced.and_then(|found| fs.handle(found.ino).ok());
        let rename = RenameRequest {
            from_dir: from.ino,
            from_name,
            to_dir: to.ino,
            to_name,
            mode: RenameMode::Replace,
        };
        fs.rename(&context, &rename)?;
        if let Some(handle) = replaced {
            self.core.opens.close(&handle);
        }
        self.commit(to)?;
        if from.ino == to.ino { Ok(()) } else { self.commit(from) }
    }

    /// Gives a file one more name.
    pub(crate) fn link(&self, file: &FileNode, dir: &FileNode, name: &[u8]) -> Result<()> {
        check_new_name(name)?;
        if file.export.root_handle != dir.export.root_handle {
            return Err(Status::XDEV);
        }
        self.check_no_crossing(dir, name)?;
        dir.export.filesystem.link(&self.context(dir), file.ino, dir.ino, name)?;
        self.commit(dir)
    }

    /// Shows the entries of a directory from a cookie on, until `visit` returns false. Returns whether all were shown.
    /// Entries `.` and `..` come first, with the cookies 1 and 2.
    pub(crate) fn list(
        &self,
        dir: &Node,
        cookie: u64,
        visit: &mut dyn FnMut(&ListedEntry<'_>) -> bool,
    ) -> Result<bool> {
        let file = match dir {
            Node::Pseudo(path) => return self.list_pseudo(dir, (path, cookie), visit),
            Node::File(file) => file,
        };
        let path = self.passage_path(file);
        let address = self.caller.address;
        let mut is_complete = true;
        if cookie < CROSSING_COOKIE {
            let (fs, context) = (&file.export.filesystem, self.context(file));
            let open = fs.open_dir(&context, file.ino)?;
            fs.read_dir(&context, &open, cookie, &mut |entry| {
                let child = |path: &str| self.table.child(path, &entry.name, address);
                let is_crossing = path.is_some_and(|path| child(path).is_some());
                let is_dots = matches!(&entry.name[..], b"." | b"..");
                let target = if is_crossing || entry.needs_lookup || is_dots {
                    EntryTarget::Lookup(dir)
                } else {
                    EntryTarget::File(file, entry.ino)
                };
                let (cookie, fileid) = (entry.next_cookie, entry_fileid(file, entry.ino));
                is_complete = visit(&ListedEntry { name: &entry.name, cookie, fileid, target });
                is_complete
            })?;
        }
        let Some(path) = path.filter(|_| is_complete) else { return Ok(is_complete) };
        let is_stored = |name: &str| {
            let context = self.context(file).checked_by_door();
            file.export.filesystem.lookup(&context, file.ino, name.as_bytes()).is_ok()
        };
        let crossings = self.table.children(path, address).filter(|(name, _)| !is_stored(name));
        Ok(visit_names(crossings.map(|(name, _)| name), (dir, CROSSING_COOKIE), cookie, visit))
    }

    /// The inode number that the listing of a directory shows for a crossing in it.
    pub(crate) fn entry_fileid(&self, dir: &Node, name: &str) -> u64 {
        let Node::File(file) = dir else { return FIRST_COOKIE - 1 + name_cookie(name) };
        let context = self.context(file).checked_by_door();
        let found = file.export.filesystem.lookup(&context, file.ino, name.as_bytes());
        let stored = found.map(|found| entry_fileid(file, found.ino));
        stored.unwrap_or_else(|_| CROSSING_COOKIE + name_cookie(name))
    }

    fn list_pseudo(
        &self,
        dir: &Node,
        (path, cookie): (&str, u64),
        visit: &mut dyn FnMut(&ListedEntry<'_>) -> bool,
    ) -> Result<bool> {
        for (at, name) in [(1, &b"."[..]), (2, b"..")] {
            let fileid = self.attributes(&self.lookup(dir, name)?)?.fileid;
            let target = EntryTarget::Lookup(dir);
            if cookie < at && !visit(&ListedEntry { name, cookie: at, fileid, target }) {
                return Ok(false);
            }
        }
        let names = self.table.children(path, self.caller.address).map(|(name, _)| name);
        Ok(visit_names(names, (dir, FIRST_COOKIE - 1), cookie, visit))
    }
}

/// Whether REMOVE takes files, directories, or either.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RemoveKind {
    NotDirectory,
    Directory,
    Any,
}

/// Visits the names with cookies from `base` on. A cookie is a hash of its name, so that it stays
/// valid when other exports are added and removed.
fn visit_names<'a>(
    names: impl Iterator<Item = &'a str>,
    (dir, base): (&Node, u64),
    cookie: u64,
    visit: &mut dyn FnMut(&ListedEntry<'_>) -> bool,
) -> bool {
    let mut names: Vec<(u64, &str)> = names.map(|name| (base + name_cookie(name), name)).collect();
    names.sort_unstable();
    for (at, name) in names.into_iter().filter(|(at, _)| *at > cookie) {
        let target = EntryTarget::Lookup(dir);
        let entry = ListedEntry { name: name.as_bytes(), cookie: at, fileid: at, target };
        if !visit(&entry) {
            return false;
        }
    }
    true
}

/// A number from 1 on for a name.
fn name_cookie(name: &str) -> u64 {
    let hash = blake3::hash(name.as_bytes());
    let first = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    (u64::from_be_bytes(*first) >> 3) + 1
}

/// The inode number of an entry: the object number within the dataset.
fn entry_fileid(dir: &FileNode, ino: posix::Ino) -> u64 {
    /// Bits of an inode number that hold the object number.
    const OBJECT_BITS: u64 = (1 << 40) - 1;
    /// Numbers from here on are of directories below `.zfs`, which are not objects.
    const FIRST_SYNTHETIC: u64 = 1 << 61;
    if dir.handle.object == 0 || ino.get() >= FIRST_SYNTHETIC {
        ino.get()
    } else {
        ino.get() & OBJECT_BITS
    }
}
