//! The kernel's questions, answered from the tree.

use std::time::Duration;

use fusedev::{
    CacheTimeouts, DirentBuffer, InitFlags, MAX_REQUEST_BYTES, OpenReply, Reply, ReplyData,
    Request, RequestContext, RequestHandler, Statfs,
};
use rustix::io::Errno;
use vfs::{DatasetTree, Error, FileReader, Result, TreeDir};

use crate::ROOT;
use crate::convert::{attributes, errno, kind_bits};
use crate::handles::Handles;
use crate::ioctl;

/// Answers the kernel.
pub(crate) struct Server {
    tree: DatasetTree,
    root: u64,
    /// The kernel is to check permissions, ACLs with them.
    checks_permissions: bool,
    readers: Handles<FileReader>,
    listings: Handles<TreeDir>,
}

/// Nothing changes while the pool is mounted.
const FOR_EVER: Duration = Duration::from_hours(365 * 24);
const ALWAYS: CacheTimeouts = CacheTimeouts { entry: FOR_EVER, attr: FOR_EVER };

const O_ACCMODE: i32 = 3;
/// Writing, as access(2) is asked about it.
const W_OK: u32 = 2;

pub(crate) const SEEK_DATA: i32 = 3;
pub(crate) const SEEK_HOLE: i32 = 4;

impl Server {
    pub(crate) fn new(tree: DatasetTree, root: u64, checks_permissions: bool) -> Self {
        let (readers, listings) = (Handles::new(), Handles::new());
        Self { tree, root, checks_permissions, readers, listings }
    }

    /// The kernel calls the root 1, whatever its number is.
    fn number(&self, node: u64) -> u64 {
        if node == ROOT { self.root } else { node }
    }

    /// Gives what was found, or tells the user too what cannot be read.
    fn found<T>(&self, number: u64, found: Result<T>) -> std::result::Result<T, Errno> {
        found.map_err(|why| {
            self.tree.report_unreadable(number, &why);
            errno(&why)
        })
    }

    fn sought(&self, handle: u64, offset: i64, whence: i32) -> Result<Option<u64>> {
        let reader = self.readers.find(handle).ok_or(Error::NotFound)?;
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

/// The value of an attribute, or its size where no room is offered.
pub(crate) fn xattr(value: Option<Vec<u8>>, room: u32) -> std::result::Result<Reply, Errno> {
    let value = value.ok_or(Errno::NODATA)?;
    let size = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    match room {
        0 => Ok(Reply::xattr_size(size)),
        room if room < size => Err(Errno::RANGE),
        _ => Ok(Reply::bytes(value)),
    }
}

/// Names of extended attributes for a user, each with a zero byte at its end. The kernel lets only
/// root read those that are trusted, and leaves it to us to tell nobody else of them.
pub(crate) fn names(names: &[Vec<u8>], uid: u32) -> Vec<u8> {
    let names = names.iter().filter(|name| uid == 0 || !name.starts_with(b"trusted."));
    names.flat_map(|name| name.iter().chain(&[0])).copied().collect()
}

type Told = std::result::Result<Reply, Errno>;

impl RequestHandler for Server {
    fn wanted_flags(&self, _offered: InitFlags) -> InitFlags {
        let wishes = InitFlags::union_all(&[
            InitFlags::READDIRPLUS,
            InitFlags::READDIRPLUS_AUTO,
            InitFlags::PARALLEL_DIROPS,
            InitFlags::CACHE_SYMLINKS,
            InitFlags::IOCTL_DIR,
        ]);
        if self.checks_permissions { wishes.union(InitFlags::POSIX_ACL) } else { wishes }
    }

    fn handle(
        &self,
        asker: &RequestContext<'_>,
        ask: Request<'_>,
        out: &mut ReplyData<'_>,
    ) -> Told {
        let node = self.number(asker.nodeid);
        match ask {
            Request::Read { handle, offset, size } => {
                let reader = self.readers.find(handle).ok_or(Errno::BADF)?;
                let length = usize::try_from(size.min(MAX_REQUEST_BYTES)).unwrap_or(0);
                let mut answer = None;
                let read = reader.read(offset, length, |bytes| answer = Some(out.send(bytes)));
                self.found(node, read)?;
                Ok(answer.unwrap_or_else(Reply::empty))
            }
            Request::Readdir { .. } | Request::Readdirplus { .. } => self.list(node, ask),
            Request::Open { flags } => {
                if flags & O_ACCMODE != 0 {
                    return Err(Errno::ROFS);
                }
                let reader = self.found(node, self.tree.open_file(node))?;
                let file = OpenReply::new(self.readers.add(reader));
                Ok(Reply::open(file.keep_cache().no_flush()))
            }
            Request::Opendir => {
                let listing = self.found(node, self.tree.open_dir(node))?;
                let listing = OpenReply::new(self.listings.add(listing.into()));
                Ok(Reply::open(listing.keep_cache().cache_dir()))
            }
            Request::Lseek { handle, offset, whence } => self.seek(node, handle, (offset, whence)),
            Request::Release { handle } => {
                self.readers.remove(handle);
                Ok(Reply::empty())
            }
            Request::Releasedir { handle } => {
                self.listings.remove(handle);
                Ok(Reply::empty())
            }
            Request::Listxattr { size } => {
                let found = names(&self.found(node, self.tree.xattr_names(node))?, asker.uid);
                xattr(Some(found), size)
            }
            _ => self.facts(node, ask),
        }
    }
}

impl Server {
    /// Answers questions about a node itself.
    fn facts(&self, node: u64, ask: Request<'_>) -> Told {
        let tree = &self.tree;
        match ask {
            Request::Lookup { name } => {
                let found = self.found(node, tree.lookup(node, name))?;
                Ok(Reply::entry(&attributes(&found), found.generation, ALWAYS))
            }
            Request::Getattr => {
                let found = self.found(node, tree.attributes(node))?;
                Ok(Reply::attr(&attributes(&found), FOR_EVER))
            }
            Request::Statx => {
                let found = self.found(node, tree.attributes(node))?;
                Ok(Reply::statx(&attributes(&found), FOR_EVER))
            }
            Request::Readlink => Ok(Reply::bytes(self.found(node, tree.read_link(node))?)),
            Request::Access { mask } if mask & W_OK != 0 => Err(Errno::ROFS),
            Request::Access { .. } | Request::Flush => Ok(Reply::empty()),
            Request::Statfs => self.figures(node),
            Request::Getxattr { name, size } => {
                xattr(self.found(node, tree.xattr(node, name))?, size)
            }
            Request::Ioctl { command, output_size: room, .. } => self.ioctl(node, command, room),
            _ => Err(Errno::NOSYS),
        }
    }

    fn figures(&self, node: u64) -> Told {
        let room = self.tree.space(node).map_err(|why| errno(&why))?;
        let free = room.available / 512;
        Ok(Reply::statfs(&Statfs {
            blocks: free.saturating_add(room.referenced / 512),
            free_blocks: free,
            files: 0,
            free_files: 0,
            fragment_size: 512,
            block_size: 128 << 10,
            max_name_len: 255,
        }))
    }

    fn list(&self, node: u64, ask: Request<'_>) -> Told {
        let (handle, offset, size, is_plain) = match ask {
            Request::Readdir { handle, offset, size } => (handle, offset, size, true),
            Request::Readdirplus { handle, offset, size } => (handle, offset, size, false),
            _ => return Err(Errno::INVAL),
        };
        let listing = self.listings.find(handle).ok_or(Errno::BADF)?;
        let mut page = DirentBuffer::new(size);
        let listed = listing.visit_from(offset, &mut |item| {
            if is_plain {
                return page.add_dirent(
                    (item.ino, kind_bits(item.kind)),
                    item.next_cookie,
                    &item.name,
                );
            }
            match listing.attributes(item) {
                Some(found) => {
                    let how = (found.generation, ALWAYS);
                    page.add_direntplus(item.next_cookie, &item.name, &attributes(&found), how)
                }
                None => page.add_direntplus_uncached(
                    (item.ino, kind_bits(item.kind)),
                    item.next_cookie,
                    &item.name,
                ),
            }
        });
        self.found(node, listed)?;
        Ok(page.into_reply())
    }

    fn ioctl(&self, node: u64, command: u32, room: u32) -> Told {
        let found = self.found(node, self.tree.attributes(node))?;
        ioctl::told(&found, command, room).ok_or(Errno::NOTTY)
    }

    fn seek(&self, node: u64, handle: u64, (offset, whence): (i64, i32)) -> Told {
        if whence != SEEK_DATA && whence != SEEK_HOLE {
            return Err(Errno::INVAL);
        }
        match self.found(node, self.sought(handle, offset, whence))? {
            Some(found) if i64::try_from(found).is_ok() => Ok(Reply::seek_offset(found)),
            Some(_) => Err(Errno::OVERFLOW),
            None => Err(Errno::NXIO),
        }
    }
}
