//! NFSv3: names.

use posix::access::OpenMode;
use posix::{FileType, NewInode, SetAttributes};
use vfs::CreateMode;

use super::{DEFAULT_DIR_MODE, DEFAULT_FILE_MODE, Exchange, new_inode};
use crate::attributes::{NodeAttributes, special_type};
use crate::names::RemoveKind;
use crate::node::{FileNode, Node};
use crate::request::Result;
use crate::wire::status::Status;
use crate::wire::v3::{self, Attributes, CreateHow, DirName, NewNode, ReadDir, VERIFIER_LEN};

/// Bytes of a result of READDIR beside its entries: status, attributes, verifier, the end of the list.
const LIST_OVERHEAD: usize = 4 + 88 + VERIFIER_LEN + 8;
/// The least bytes that a client may request.
const MIN_LIST_BYTES: usize = 512;

impl Exchange<'_> {
    pub(super) fn lookup(&mut self, at: DirName<'_>) -> Result<()> {
        let dir = self.request.resolve(at.dir)?;
        let node = self.request.lookup(&dir, at.name)?;
        let handle = self.request.handle(&node)?;
        self.writer.u32(0);
        self.writer.opaque(&handle);
        self.write_attributes(&node);
        self.write_attributes(&dir);
        Ok(())
    }

    /// Writes the result of a procedure that made a file.
    fn write_created(
        &mut self,
        node: FileNode,
        before: Option<&Attributes>,
        dir: &FileNode,
    ) -> Result<()> {
        let node = Node::File(node);
        let handle = self.request.handle(&node)?;
        self.writer.u32(0);
        self.writer.bool(true);
        self.writer.opaque(&handle);
        self.write_attributes(&node);
        self.write_change(before, dir);
        Ok(())
    }

    pub(super) fn create(&mut self, at: DirName<'_>, how: CreateHow) -> Result<()> {
        let dir = self.request.resolve(at.dir)?;
        let dir = dir.writable()?;
        let before = self.v3_attributes(dir);
        let (set, mode) = match &how {
            CreateHow::Unchecked(set) => (*set, CreateMode::OpenExisting),
            CreateHow::Guarded(set) => (*set, CreateMode::Exclusive),
            CreateHow::Exclusive(verifier) => {
                (v3::SetAttributes::default(), CreateMode::Verified(*verifier))
            }
        };
        let (new, set) = new_inode(&set, DEFAULT_FILE_MODE);
        // a file that exists is not opened here: the client opens it with checks of its own
        let open = (OpenMode::default(), vfs::Access::NONE);
        let (node, opened) = self.request.create_file((dir, at.name), &new, mode, open)?;
        if opened.is_new {
            self.request.finish_create(dir, &node, &set)?;
        } else if opened.attributes.kind == FileType::File {
            let size = SetAttributes { size: set.size, ..SetAttributes::default() };
            self.request.set_attributes(&node, &size)?;
        } else {
            return Err(Status::EXIST);
        }
        self.write_created(node, before.as_ref(), dir)
    }

    pub(super) fn make_dir(&mut self, at: DirName<'_>, set: &v3::SetAttributes) -> Result<()> {
        let (new, set) = new_inode(set, DEFAULT_DIR_MODE);
        self.create_other(at, &NewInode { kind: FileType::Directory, ..new }, &set)
    }

    pub(super) fn symlink(
        &mut self,
        at: DirName<'_>,
        set: &v3::SetAttributes,
        target: &[u8],
    ) -> Result<()> {
        let (_, set) = new_inode(set, 0o777);
        let kind = FileType::Symlink;
        let new = NewInode { kind, mode: 0o777, umask: 0, target, ..NewInode::default() };
        self.create_other(at, &new, &set)
    }

    pub(super) fn make_node(&mut self, at: DirName<'_>, node: &NewNode) -> Result<()> {
        let kind = special_type(node.kind).ok_or(Status::BADTYPE)?;
        let (new, set) = new_inode(&node.set, DEFAULT_FILE_MODE);
        self.create_other(at, &NewInode { kind, rdev: node.rdev, ..new }, &set)
    }

    fn create_other(
        &mut self,
        at: DirName<'_>,
        new: &NewInode<'_>,
        set: &SetAttributes,
    ) -> Result<()> {
        let dir = self.request.resolve(at.dir)?;
        let dir = dir.writable()?;
        let before = self.v3_attributes(dir);
        let set = SetAttributes { size: None, ..*set };
        let node = self.request.create(dir, at.name, new, &set)?;
        self.write_created(node, before.as_ref(), dir)
    }

    pub(super) fn remove(&mut self, at: DirName<'_>, kind: RemoveKind) -> Result<()> {
        let dir = self.request.resolve(at.dir)?;
        let dir = dir.writable()?;
        let before = self.v3_attributes(dir);
        self.request.remove(dir, at.name, kind)?;
        self.writer.u32(0);
        self.write_change(before.as_ref(), dir);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: DirName<'_>, to: DirName<'_>) -> Result<()> {
        let (from_dir, to_dir) = (self.request.resolve(from.dir)?, self.request.resolve(to.dir)?);
        let (from_dir, to_dir) = (from_dir.writable()?, to_dir.writable()?);
        let before = [self.v3_attributes(from_dir), self.v3_attributes(to_dir)];
        self.request.rename((from_dir, from.name), (to_dir, to.name))?;
        self.writer.u32(0);
        self.write_change(before[0].as_ref(), from_dir);
        self.write_change(before[1].as_ref(), to_dir);
        Ok(())
    }

    pub(super) fn link(&mut self, file: &[u8], at: DirName<'_>) -> Result<()> {
        let (node, dir) = (self.request.resolve(file)?, self.request.resolve(at.dir)?);
        let dir = dir.writable()?;
        let before = self.v3_attributes(dir);
        self.request.link(node.writable()?, dir, at.name)?;
        self.writer.u32(0);
        self.write_attributes(&node);
        self.write_change(before.as_ref(), dir);
        Ok(())
    }

    pub(super) fn read_dir(&mut self, list: &ReadDir<'_>) -> Result<()> {
        let dir = self.request.resolve(list.dir)?;
        let most = usize::try_from(list.max_bytes).expect("a 64-bit system");
        if most < MIN_LIST_BYTES {
            return Err(Status::TOOSMALL);
        }
        let start = self.writer.len();
        let limit = start + most.min(self.request.core.options.max_io_bytes) - LIST_OVERHEAD;
        self.writer.u32(0);
        self.write_attributes(&dir);
        self.writer.fixed(&[0; VERIFIER_LEN]);
        let (request, writer) = (self.request, &mut *self.writer);
        let mut is_any = false;
        let is_complete = request.list(&dir, list.cookie, &mut |entry| {
            let before = writer.len();
            writer.bool(true);
            writer.u64(entry.fileid);
            writer.opaque(entry.name);
            writer.u64(entry.cookie);
            if list.is_plus {
                // a name that cannot be looked up is shown without attributes
                let node = entry.target.node(request, entry.name).ok();
                let handle = node.as_ref().and_then(|node| request.handle(node).ok());
                let attributes = node.as_ref().and_then(|node| request.attributes(node).ok());
                Attributes::write_optional(attributes.map(NodeAttributes::to_v3).as_ref(), writer);
                writer.bool(handle.is_some());
                if let Some(handle) = handle {
                    writer.opaque(&handle);
                }
            }
            if writer.len() > limit {
                writer.truncate(before);
                return false;
            }
            is_any = true;
            true
        })?;
        if !is_any && !is_complete {
            return Err(Status::TOOSMALL);
        }
        self.writer.bool(false);
        self.writer.bool(is_complete);
        Ok(())
    }
}
