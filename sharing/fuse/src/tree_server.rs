//! The request handler of a read-only tree of datasets.

use std::time::Duration;

use fusedev::{
    CacheTimeouts, DirentBuffer, InitFlags, MAX_REQUEST_BYTES, OpenReply, Reply, ReplyData,
    Request, RequestContext, RequestHandler, Statfs,
};
use posix::Ino;
use rustix::io::Errno;
use vfs::{DatasetTree, Error, FileReader, Result, TreeDir};

use crate::ROOT_NODEID;
use crate::convert::{file_type_bits, to_attr, to_errno};
use crate::handle_table::HandleTable;
use crate::ioctl;

/// The request handler.
pub(crate) struct TreeServer {
    tree: DatasetTree,
    root_ino: Ino,
    /// The kernel is to check permissions, ACLs with them.
    default_permissions: bool,
    open_files: HandleTable<FileReader>,
    open_dirs: HandleTable<TreeDir>,
}

/// Nothing changes while the pool is mounted.
const FOREVER: Duration = Duration::from_hours(365 * 24);
const FOREVER_TIMEOUTS: CacheTimeouts = CacheTimeouts { entry: FOREVER, attr: FOREVER };

const O_ACCMODE: i32 = 3;
/// The write bit of access(2).
const W_OK: u32 = 2;

pub(crate) const SEEK_DATA: i32 = 3;
pub(crate) const SEEK_HOLE: i32 = 4;

impl TreeServer {
    pub(crate) fn new(tree: DatasetTree, root_ino: Ino, default_permissions: bool) -> Self {
        let (open_files, open_dirs) = (HandleTable::new(), HandleTable::new());
        Self { tree, root_ino, default_permissions, open_files, open_dirs }
    }

    /// The kernel calls the root 1, whatever its inode number is.
    fn to_ino(&self, node: u64) -> Ino {
        if node == ROOT_NODEID { self.root_ino } else { Ino::new(node) }
    }

    /// Returns the result, and reports unreadable files to the user as well.
    fn report_error<T>(&self, number: Ino, found: Result<T>) -> std::result::Result<T, Errno> {
        found.map_err(|why| {
            self.tree.report_unreadable(number, &why);
            to_errno(&why)
        })
    }

    fn find_seek_offset(&self, handle: u64, offset: i64, whence: i32) -> Result<Option<u64>> {
        let reader = self.open_files.get(handle).ok_or(Error::NotFound)?;
        let Ok(from) = u64::try_from(offset) else { return Ok(None) };
        if from >= reader.size() {
            return Ok(None);
        }
        match whence {
            SEEK_DATA => reader.next_data(from),
            _ => reader.next_hole(from).map(Some),
        }
    }
}

/// The value of an attribute, or its size if the buffer is empty.
pub(crate) fn xattr_reply(value: Option<Vec<u8>>, room: u32) -> std::result::Result<Reply, Errno> {
    let value = value.ok_or(Errno::NODATA)?;
    let size = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    match room {
        0 => Ok(Reply::xattr_size(size)),
        room if room < size => Err(Errno::RANGE),
        _ => Ok(Reply::bytes(value)),
    }
}

/// Names of extended attributes for a user, each with a zero byte at its end. The kernel lets only
/// root read trusted ones; the server hides their names from others.
pub(crate) fn encode_xattr_names(names: &[Vec<u8>], uid: u32) -> Vec<u8> {
    let names = names.iter().filter(|name| uid == 0 || !name.starts_with(b"trusted."));
    names.flat_map(|name| name.iter().chain(&[0])).copied().collect()
}

type ReplyResult = std::result::Result<Reply, Errno>;

impl RequestHandler for TreeServer {
    fn wanted_flags(&self, _offered: InitFlags) -> InitFlags {
        let wishes = InitFlags::union_all(&[
            InitFlags::READDIRPLUS,
            InitFlags::READDIRPLUS_AUTO,
            InitFlags::PARALLEL_DIROPS,
            InitFlags::CACHE_SYMLINKS,
            InitFlags::IOCTL_DIR,
        ]);
        if self.default_permissions { wishes.union(InitFlags::POSIX_ACL) } else { wishes }
    }

    fn handle(
        &self,
        asker: &RequestContext<'_>,
        ask: Request<'_>,
        out: &mut ReplyData<'_>,
    ) -> ReplyResult {
        let node = self.to_ino(asker.nodeid);
        match ask {
            Request::Read { handle, offset, size } => {
                let reader = self.open_files.get(handle).ok_or(Errno::BADF)?;
                let length = units::to_usize(size.min(MAX_REQUEST_BYTES));
                let mut answer = None;
                let read = reader.read(offset, length, |bytes| answer = Some(out.send(bytes)));
                self.report_error(node, read)?;
                Ok(answer.unwrap_or_else(Reply::empty))
            }
            Request::Readdir { .. } | Request::Readdirplus { .. } => self.readdir(node, ask),
            Request::Open { flags } => {
                if flags & O_ACCMODE != 0 {
                    return Err(Errno::ROFS);
                }
                let reader = self.report_error(node, self.tree.open_file(node))?;
                let file = OpenReply::new(self.open_files.insert(reader));
                Ok(Reply::open(file.keep_cache().no_flush()))
            }
            Request::Opendir { .. } => {
                let listing = self.report_error(node, self.tree.open_dir(node))?;
                let listing = OpenReply::new(self.open_dirs.insert(listing.into()));
                Ok(Reply::open(listing.keep_cache().cache_dir()))
            }
            Request::Lseek { handle, offset, whence } => self.lseek(node, handle, (offset, whence)),
            Request::Release { handle, .. } => {
                self.open_files.remove(handle);
                Ok(Reply::empty())
            }
            Request::Releasedir { handle } => {
                self.open_dirs.remove(handle);
                Ok(Reply::empty())
            }
            Request::Listxattr { size } => {
                let found = encode_xattr_names(
                    &self.report_error(node, self.tree.xattr_names(node))?,
                    asker.uid,
                );
                xattr_reply(Some(found), size)
            }
            _ => self.handle_node_request(node, ask),
        }
    }
}

impl TreeServer {
    /// Handles requests about a node itself.
    fn handle_node_request(&self, node: Ino, ask: Request<'_>) -> ReplyResult {
        let tree = &self.tree;
        match ask {
            Request::Lookup { name } => {
                let found = self.report_error(node, tree.lookup(node, name))?;
                Ok(Reply::entry(&to_attr(&found), found.generation, FOREVER_TIMEOUTS))
            }
            Request::Getattr => {
                let found = self.report_error(node, tree.attributes(node))?;
                Ok(Reply::attr(&to_attr(&found), FOREVER))
            }
            Request::Statx => {
                let found = self.report_error(node, tree.attributes(node))?;
                Ok(Reply::statx(&to_attr(&found), FOREVER))
            }
            Request::Readlink => Ok(Reply::bytes(self.report_error(node, tree.read_link(node))?)),
            Request::Access { mask } if mask & W_OK != 0 => Err(Errno::ROFS),
            Request::Access { .. } | Request::Flush { .. } => Ok(Reply::empty()),
            Request::Statfs => self.statfs(node),
            Request::Getxattr { name, size } => {
                xattr_reply(self.report_error(node, tree.xattr(node, name))?, size)
            }
            Request::Ioctl { command, output_size: room, .. } => self.ioctl(node, command, room),
            _ => Err(Errno::NOSYS),
        }
    }

    fn statfs(&self, node: Ino) -> ReplyResult {
        let room = self.tree.space(node).map_err(|why| to_errno(&why))?;
        let free = room.available / 512;
        Ok(Reply::statfs(&Statfs {
            blocks: free + room.referenced / 512,
            free_blocks: free,
            files: 0,
            free_files: 0,
            fragment_size: 512,
            block_size: 128 << 10,
            max_name_len: 255,
        }))
    }

    fn readdir(&self, node: Ino, ask: Request<'_>) -> ReplyResult {
        let (handle, offset, size, is_plain) = match ask {
            Request::Readdir { handle, offset, size } => (handle, offset, size, true),
            Request::Readdirplus { handle, offset, size } => (handle, offset, size, false),
            _ => return Err(Errno::INVAL),
        };
        let listing = self.open_dirs.get(handle).ok_or(Errno::BADF)?;
        let mut page = DirentBuffer::new(size);
        let listed = listing.visit_from(offset, &mut |item| {
            if is_plain {
                return page.add_dirent(
                    (item.ino.get(), file_type_bits(item.kind)),
                    item.next_cookie,
                    &item.name,
                );
            }
            match listing.attributes(item) {
                Some(found) => {
                    let how = (found.generation, FOREVER_TIMEOUTS);
                    page.add_direntplus(item.next_cookie, &item.name, &to_attr(&found), how)
                }
                None => page.add_direntplus_uncached(
                    (item.ino.get(), file_type_bits(item.kind)),
                    item.next_cookie,
                    &item.name,
                ),
            }
        });
        self.report_error(node, listed)?;
        Ok(page.into_reply())
    }

    fn ioctl(&self, node: Ino, command: u32, room: u32) -> ReplyResult {
        let found = self.report_error(node, self.tree.attributes(node))?;
        ioctl::handle_get_ioctl(&found, command, room).ok_or(Errno::NOTTY)
    }

    fn lseek(&self, node: Ino, handle: u64, (offset, whence): (i64, i32)) -> ReplyResult {
        if whence != SEEK_DATA && whence != SEEK_HOLE {
            return Err(Errno::INVAL);
        }
        match self.report_error(node, self.find_seek_offset(handle, offset, whence))? {
            Some(found) if i64::try_from(found).is_ok() => Ok(Reply::seek_offset(found)),
            Some(_) => Err(Errno::OVERFLOW),
            None => Err(Errno::NXIO),
        }
    }
}
