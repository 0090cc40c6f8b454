//! What the procedures of all versions do with files: handles to files, names to files, attributes, content.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use posix::acl::nfs4::mask;
use posix::{Attributes, FileFlags, FileType, Ino, SetAttributes, WriteOffset};
use vfs::{
    BootVerifier, Context, FileHandle, FileOffset, LeaseAction, OpenFile, Stability, Written,
};

use crate::attributes::NodeAttributes;
use crate::clock;
use crate::core::Core;
use crate::dispatch::Channel;
use crate::export::{Caller, ExportTable, PathNode, parent, pseudo_id};
use crate::node::{FileNode, Node, parse_pseudo_handle, pseudo_handle};
use crate::v4::StateTable;
use crate::wire::status::Status;
use crate::wire::xdr::Writer;

/// The result of a step of a procedure.
pub(crate) type Result<T> = std::result::Result<T, Status>;

/// A request of a client.
pub(crate) struct Request<'a> {
    pub(crate) core: &'a Core,
    /// The state of NFSv4 clients, whose delegations others meet.
    pub(crate) state: &'a StateTable,
    pub(crate) caller: &'a Caller,
    /// The exports as they were when the request came.
    pub(crate) table: Arc<ExportTable>,
    /// The NFSv4 client; 0 for NFSv3.
    pub(crate) client: u64,
    /// Tells when the client has gone, and carries calls to it.
    pub(crate) channel: Channel<'a>,
    /// The exports that the connection uses.
    pub(crate) usage: &'a ExportUsage,
    /// Lets another thread receive the next request of the connection: this one may wait.
    pub(crate) end_turn: &'a dyn Fn(),
}

/// The paths of the exports that a connection has used.
#[derive(Default)]
pub(crate) struct ExportUsage(Mutex<BTreeSet<String>>);

impl ExportUsage {
    fn note(&self, path: &str) {
        let mut paths = self.0.lock();
        if !paths.contains(path) {
            paths.insert(path.to_owned());
        }
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }
}

/// The bits of ACCESS.
pub(crate) mod access {
    pub(crate) const READ: u32 = 0x1;
    pub(crate) const LOOKUP: u32 = 0x2;
    pub(crate) const MODIFY: u32 = 0x4;
    pub(crate) const EXTEND: u32 = 0x8;
    pub(crate) const DELETE: u32 = 0x10;
    pub(crate) const EXECUTE: u32 = 0x20;
    pub(crate) const XATTR_READ: u32 = 0x40;
    pub(crate) const XATTR_WRITE: u32 = 0x80;
    pub(crate) const XATTR_LIST: u32 = 0x100;
    /// The bits that change something.
    pub(crate) const CHANGES: u32 = MODIFY | EXTEND | DELETE | XATTR_WRITE;
}

/// What each bit of ACCESS asks for, of files and of directories; 0: it has no meaning.
const ACCESS_MASKS: [(u32, u32, u32); 9] = [
    (access::READ, mask::READ_DATA, mask::LIST_DIRECTORY),
    (access::LOOKUP, 0, mask::EXECUTE),
    (access::MODIFY, mask::WRITE_DATA, mask::ADD_FILE | mask::DELETE_CHILD),
    (access::EXTEND, mask::APPEND_DATA, mask::ADD_FILE | mask::ADD_SUBDIRECTORY),
    (access::DELETE, 0, mask::DELETE_CHILD),
    (access::EXECUTE, mask::EXECUTE, 0),
    (access::XATTR_READ, mask::READ_DATA, mask::LIST_DIRECTORY),
    (access::XATTR_WRITE, mask::WRITE_DATA, mask::ADD_FILE),
    (access::XATTR_LIST, mask::READ_NAMED_ATTRIBUTES, mask::READ_NAMED_ATTRIBUTES),
];

/// How long a request waits until another client returns a delegation. Then the reply is NFS4ERR_DELAY.
const RECALL_WAIT: Duration = Duration::from_secs(1);
/// How long a change waits for a suspended pool. Then the reply is NFS4ERR_DELAY, so that requests to other pools get the
/// threads of the connection and the slots of the session. A change that is done, and is not committed yet, waits longer.
const SUSPEND_WAIT: Duration = Duration::from_secs(1);
/// Bytes of the smallest read whose data is sent without a copy. A part more to send costs as much as a copy of less.
const MIN_EXTERNAL_READ: usize = 16 << 10;
/// The file system of pseudo directories.
const PSEUDO_FSID: u64 = 0x7073_6575_646f;

impl Request<'_> {
    /// The circumstances of a call into the file system of a file.
    pub(crate) fn context<'b>(&'b self, node: &'b FileNode) -> Context<'b> {
        let context = Context::new(&node.admission.credentials, node.export.door);
        let now = Instant::now();
        Context {
            client: self.client,
            waiter: Some(self.channel.waiter()),
            recall_deadline: Some(now + RECALL_WAIT),
            suspend_deadline: Some(now + SUSPEND_WAIT),
            ..context
        }
    }

    /// The same for the rest of a request whose change is done. The client cannot repeat such a request, so that it waits
    /// until the pool resumes.
    pub(crate) fn context_of_rest<'b>(&'b self, node: &'b FileNode) -> Context<'b> {
        Context { suspend_deadline: None, ..self.context(node) }
    }

    /// The top of the pseudo file system.
    pub(crate) fn root(&self) -> Result<Node> {
        let root = self.table.find("/", self.caller.address).ok_or(Status::SERVERFAULT)?;
        self.open_path(root)
    }

    /// The node of an exported path.
    pub(crate) fn find_path(&self, path: &str) -> Result<Node> {
        let found = self.table.find(path, self.caller.address).ok_or(Status::ACCESS)?;
        if let PathNode::Pseudo(path) = &found
            && let Some(stored) = self.stored_passage(path)
        {
            return Ok(Node::File(stored));
        }
        self.open_path(found)
    }

    pub(crate) fn open_path(&self, found: PathNode) -> Result<Node> {
        let export = match found {
            PathNode::Pseudo(path) => return Ok(Node::Pseudo(path)),
            PathNode::Export(export) => export,
        };
        let admission = export.admit(self.caller).ok_or(Status::ACCESS)?;
        let (ino, handle) = (export.root, export.root_handle);
        Ok(Node::File(FileNode { export, ino, handle, admission }))
    }

    /// The node of a handle.
    pub(crate) fn resolve(&self, handle: &[u8]) -> Result<Node> {
        if let Some(id) = parse_pseudo_handle(handle) {
            let path = self.table.pseudo_path(&id);
            let found = path.and_then(|path| self.table.find(path, self.caller.address));
            return match found {
                Some(PathNode::Pseudo(path)) => Ok(Node::Pseudo(path)),
                // the path was exported since: the client mounts it when it looks the name up again
                Some(PathNode::Export(_)) => Err(Status::STALE),
                None => Err(self.core.unexported_status()),
            };
        }
        let handle = FileHandle::decode(&self.core.handle_key, handle)?;
        let export = self.table.by_handle(&handle);
        let export = Arc::clone(export.ok_or_else(|| self.core.unexported_status())?);
        let admission = export.admit(self.caller).ok_or(Status::ACCESS)?;
        self.usage.note(&export.path);
        let ino = export.filesystem.resolve_handle(&handle)?;
        Ok(Node::File(FileNode { export, ino, handle, admission }))
    }

    /// The bytes of a node's handle.
    pub(crate) fn handle(&self, node: &Node) -> Result<Vec<u8>> {
        match node {
            Node::Pseudo(path) => Ok(pseudo_handle(path)),
            Node::File(file) => Ok(file.handle.encode(&self.core.handle_key)?.to_vec()),
        }
    }

    /// The node that a name in a directory leads to.
    pub(crate) fn lookup(&self, dir: &Node, name: &[u8]) -> Result<Node> {
        if name == b".." {
            return self.parent(dir);
        }
        if name == b"." {
            return Ok(dir.clone());
        }
        match dir {
            Node::Pseudo(path) => {
                let found = self.table.child(path, name, self.caller.address);
                self.open_path(found.ok_or(Status::NOENT)?)
            }
            Node::File(file) => {
                if let Some(crossing) = self.crossing(file, name) {
                    return self.open_path(crossing);
                }
                let context = self.context(file);
                let found = file.export.filesystem.lookup(&context, file.ino, name)?;
                file.sibling(found.ino).map(Node::File)
            }
        }
    }

    /// The directory above. The root has itself above it.
    pub(crate) fn parent(&self, dir: &Node) -> Result<Node> {
        match dir {
            Node::Pseudo(path) => self.find_path(parent(path).unwrap_or("/")),
            Node::File(file) if file.is_export_root() => {
                parent(&file.export.path).map_or_else(|| Ok(dir.clone()), |up| self.find_path(up))
            }
            Node::File(file) => {
                let context = self.context(file);
                let found = file.export.filesystem.lookup(&context, file.ino, b"..")?;
                file.sibling(found.ino).map(Node::File)
            }
        }
    }

    /// The attributes of a node. The handle is the permission to read them.
    pub(crate) fn attributes(&self, node: &Node) -> Result<NodeAttributes> {
        match node {
            Node::Pseudo(path) => Ok(self.pseudo_attributes(path)),
            Node::File(file) => self.file_attributes(file),
        }
    }

    pub(crate) fn file_attributes(&self, file: &FileNode) -> Result<NodeAttributes> {
        let context = self.context(file).checked_by_door();
        if let Some(attributes) = self.delegated_attributes(file, &context) {
            return Ok(attributes);
        }
        let stat = file.export.filesystem.attributes(&context, file.ino)?;
        Ok(to_node_attributes(&file.handle, &stat))
    }

    /// The attributes of a file of which another client has a write delegation, with the changes in that client's cache
    /// (RFC 5661, section 10.4.3). None: there is no such client, or it does not answer and must return the delegation.
    /// A client of NFSv4.0 asks for the attributes of its own delegation without saying who it is.
    fn delegated_attributes(
        &self,
        file: &FileNode,
        context: &Context<'_>,
    ) -> Option<NodeAttributes> {
        let fs = &file.export.filesystem;
        if !fs.leases().has_conflict(file.ino, context.lease_holder(), LeaseAction::Read) {
            return None;
        }
        let asker = (self.client, self.caller.address);
        let (holder, cached) = self.state.cached_attributes(asker, &file.handle)?;
        // for the holder: its own requests do not recall its delegation
        let stat = fs.attributes(&Context { client: holder, ..*context }, file.ino).ok()?;
        let unchanged = to_node_attributes(&file.handle, &stat);
        let Some(cached) = cached else { return Some(unchanged) };
        if cached.change == unchanged.change && cached.size == stat.size {
            return Some(unchanged);
        }
        // the change attribute of later changes is a later time
        let now = clock::now();
        let change = clock::nanoseconds(now).max(unchanged.change + 1);
        let stat = Attributes { size: cached.size, mtime: now, ctime: now, ..stat };
        Some(NodeAttributes { stat, change, ..unchanged })
    }

    fn pseudo_attributes(&self, path: &str) -> NodeAttributes {
        let [a, b, c, d, e, f, g, h, ..] = pseudo_id(path);
        // bit 63 stays free: some clients take the number as signed
        let fileid = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
        let children = self.table.children(path, self.caller.address).count();
        let links = u64::try_from(children).expect("a table in memory") + 2;
        let started = self.core.started;
        let stat = Attributes {
            ino: Ino::new(fileid),
            kind: FileType::Directory,
            mode: 0o555,
            uid: 0,
            gid: 0,
            size: links,
            allocated: 0,
            block_size: 4096,
            nlink: links,
            atime: started,
            mtime: started,
            ctime: started,
            crtime: started,
            rdev: (0, 0),
            flags: FileFlags::NONE,
            project_id: 0,
            generation: 0,
        };
        NodeAttributes { stat, fsid: PSEUDO_FSID, fileid, change: self.table.version }
    }

    /// The bits of ACCESS that the caller has, among those that the type of the file gives a meaning.
    pub(crate) fn access(&self, node: &Node, wanted: u32) -> Result<(u32, u32)> {
        let attributes = self.attributes(node)?;
        let is_dir = attributes.stat.kind.is_directory();
        let masks = ACCESS_MASKS.map(|(bit, file, dir)| (bit, if is_dir { dir } else { file }));
        let known = masks.iter().filter(|(bit, mask)| wanted & bit != 0 && *mask != 0);
        let Node::File(file) = node else {
            let supported: u32 = known.map(|(bit, _)| bit).sum();
            return Ok((supported, supported & (access::READ | access::LOOKUP)));
        };
        let all = known.clone().fold(0, |all, (_, mask)| all | mask);
        let fs = &file.export.filesystem;
        let granted = fs.access(&self.context(file), file.ino, all)?;
        let closed = if file.admission.is_writable { 0 } else { access::CHANGES };
        let has = known.clone().filter(|(bit, mask)| granted & mask == *mask && bit & closed == 0);
        let granted = has.map(|(bit, _)| bit).sum();
        Ok((known.map(|(bit, _)| bit).sum(), granted))
    }

    /// A regular file, opened for a request that names it by its handle alone. The owner may always read and write:
    /// its client has checked that when it opened the file, and the mode may have changed since.
    pub(crate) fn open_by_handle(&self, node: &FileNode, writes: bool) -> Result<Arc<OpenFile>> {
        let attributes = self.file_attributes(node)?;
        match attributes.stat.kind {
            FileType::File => {}
            FileType::Directory => return Err(Status::ISDIR),
            _ => return Err(Status::INVAL),
        }
        if attributes.stat.uid != node.admission.credentials.uid {
            self.check_access(node, writes)?;
        }
        Ok(self.core.opens.open(self, node, writes)?)
    }

    /// Checks that the caller may read or write the content of a file. A caller that may execute a program may read it.
    pub(crate) fn check_access(&self, node: &FileNode, writes: bool) -> Result<()> {
        let wanted = if writes { mask::WRITE_DATA } else { mask::READ_DATA | mask::EXECUTE };
        match node.export.filesystem.access(&self.context(node), node.ino, wanted)? {
            0 => Err(Status::ACCESS),
            _ => Ok(()),
        }
    }

    /// Reads from an open file and writes the data as opaque data: without a copy of it where it is in memory, unless the
    /// answer `is_kept`. Returns the number of bytes, and whether the file ends there.
    pub(crate) fn read(
        &self,
        node: &FileNode,
        from: FileOffset<'_, OpenFile>,
        (most, is_kept): (usize, bool),
        writer: &mut Writer,
    ) -> Result<(usize, bool)> {
        let (file, offset) = (from.file, from.offset);
        let (fs, context) = (&node.export.filesystem, self.context(node));
        if !is_kept && most >= MIN_EXTERNAL_READ && !writer.has_external() {
            let from = FileOffset { file, offset };
            if let Some(parts) = fs.read_in_memory(&context, from, most)? {
                let count = writer.external_opaque(parts);
                return Ok((count, is_end((file, offset), count, most)));
            }
        }
        (self.end_turn)();
        let count = writer.opaque_with(most, |buffer| fs.read(&context, from, buffer))?;
        Ok((count, is_end((file, offset), count, most)))
    }

    /// Writes to an open file.
    pub(crate) fn write(
        &self,
        node: &FileNode,
        (file, offset): (&OpenFile, u64),
        data: &[u8],
        stability: Stability,
    ) -> Result<Written> {
        let fs = &node.export.filesystem;
        let context = self.context(node);
        let write = || fs.write_with(&context, file, WriteOffset::At(offset), data, stability);
        Ok(match stability {
            Stability::Unstable => write()?,
            Stability::Stable => self.core.log_wait.measure(write)?,
        })
    }

    /// Commits a file for COMMIT. Returns the number that changes when writes that were not committed may have been lost.
    pub(crate) fn commit_writes(&self, node: &FileNode) -> Result<BootVerifier> {
        self.commit_with(node, &self.context(node).checked_by_door())
    }

    /// Commits a change that is done: of a file, or of the names of a directory. The client cannot repeat the request.
    pub(crate) fn commit(&self, node: &FileNode) -> Result<()> {
        self.commit_with(node, &self.context_of_rest(node).checked_by_door()).map(drop)
    }

    fn commit_with(&self, node: &FileNode, context: &Context<'_>) -> Result<BootVerifier> {
        let fs = &node.export.filesystem;
        let commit = || fs.commit_range(context, node.ino, 0..u64::MAX);
        Ok(self.core.log_wait.measure(commit)?)
    }

    /// Sets attributes and commits them.
    pub(crate) fn set_attributes(&self, node: &FileNode, set: &SetAttributes) -> Result<()> {
        if *set == SetAttributes::default() {
            return Ok(());
        }
        // the client has checked a program's right to set the size when the program opened the file
        let context = self.context(node).with_owner_override();
        node.export.filesystem.set_attributes(&context, node.ino, set)?;
        self.commit(node)
    }
}

/// Whether a file ends where a read of `wanted` bytes from an offset on did, which has read `count`.
fn is_end((file, offset): (&OpenFile, u64), count: usize, wanted: usize) -> bool {
    let read = u64::try_from(count).expect("a buffer in memory");
    // a read that was cut short ends the file, unless it was extended meanwhile
    count < wanted
        || offset.checked_add(read).is_none_or(|end| file.size().is_ok_and(|size| end >= size))
}

fn to_node_attributes(handle: &FileHandle, stat: &Attributes) -> NodeAttributes {
    let fileid = if handle.object == 0 { stat.ino.get() } else { handle.object };
    let change = vfs::change_version(stat.ctime);
    NodeAttributes { stat: *stat, fsid: handle.objset_guid.get(), fileid, change }
}
