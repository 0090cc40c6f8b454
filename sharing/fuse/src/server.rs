//! The kernel's questions, answered from the tree.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{
    AccessFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyXattr, Request,
};
use vfs::{Attributes, Error, Listing, Reader, Result, Tree};

use crate::convert::{attributes, errno, file_type};
use crate::handles::Handles;

/// Answers the kernel.
pub(crate) struct Server {
    tree: Tree,
    root: u64,
    /// The kernel is to check permissions, ACLs with them.
    checks_permissions: bool,
    readers: Handles<Reader>,
    listings: Handles<Listing>,
}

/// Nothing changes while the pool is mounted.
const FOR_EVER: Duration = Duration::from_hours(365 * 24);
/// Bytes of the largest request.
pub(crate) const LARGEST: u32 = 1 << 20;

const GETFLAGS: u32 = 0x8008_6601;
const GETFLAGS_32: u32 = 0x8004_6601;
const FSGETXATTR: u32 = 0x801c_581f;

pub(crate) const SEEK_DATA: i32 = 3;
pub(crate) const SEEK_HOLE: i32 = 4;

impl Server {
    pub(crate) fn new(tree: Tree, root: u64, checks_permissions: bool) -> Self {
        let (readers, listings) = (Handles::new(), Handles::new());
        Self { tree, root, checks_permissions, readers, listings }
    }

    /// The kernel calls the root 1, whatever its number is.
    fn number(&self, inode: INodeNo) -> u64 {
        if inode == INodeNo::ROOT { self.root } else { inode.0 }
    }

    /// What to tell the kernel of an error; what cannot be read is also told to the user.
    fn failed(&self, inode: INodeNo, why: &Error) -> Errno {
        self.tree.complain(self.number(inode), why);
        errno(why)
    }

    fn sought(&self, handle: FileHandle, offset: i64, whence: i32) -> Result<Option<u64>> {
        let reader = self.readers.find(handle.0).ok_or(Error::Absent)?;
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

pub(crate) fn xattr(reply: ReplyXattr, value: &[u8], room: u32) {
    let Ok(size) = u32::try_from(value.len()) else { return reply.error(Errno::E2BIG) };
    match room {
        0 => reply.size(size),
        room if room < size => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}

/// struct fsxattr: flags, extent size, extents, project, CoW extent size, 8 unused bytes.
fn fsxattr(of: &Attributes) -> [u8; 28] {
    let pairs = [(0x10, 0x8), (0x20, 0x10), (0x40, 0x80), (0x2000_0000, 0x200)];
    let flags = pairs.iter().filter(|pair| of.flags & pair.0 != 0);
    let flags: u32 = flags.map(|pair| pair.1).sum();
    let project = u32::try_from(of.project).unwrap_or(u32::MAX);
    let mut out = [0; 28];
    for (at, word) in [(0, flags), (12, project)] {
        for (slot, byte) in out.iter_mut().skip(at).zip(word.to_ne_bytes()) {
            *slot = byte;
        }
    }
    out
}

impl Filesystem for Server {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // without any of them the mount works all the same
        for wish in [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_HAS_IOCTL_DIR,
            InitFlags::FUSE_SPLICE_READ,
        ] {
            let _ = config.add_capabilities(wish);
        }
        if self.checks_permissions {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        let _ = config.set_max_write(LARGEST);
        if let Err(most) = config.set_max_readahead(LARGEST) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.tree.lookup(self.number(parent), name.as_bytes()) {
            Ok(found) => {
                reply.entry(&FOR_EVER, &attributes(&found), Generation(found.generation));
            }
            Err(why) => reply.error(self.failed(parent, &why)),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree.attributes(self.number(ino)) {
            Ok(found) => reply.attr(&FOR_EVER, &attributes(&found)),
            Err(why) => reply.error(self.failed(ino, &why)),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.tree.target(self.number(ino)) {
            Ok(target) => reply.data(&target),
            Err(why) => reply.error(self.failed(ino, &why)),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        match self.tree.read(self.number(ino)) {
            Ok(reader) => {
                let handle = FileHandle(self.readers.add(reader));
                reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
            }
            Err(why) => reply.error(self.failed(ino, &why)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(reader) = self.readers.find(fh.0) else { return reply.error(Errno::EBADF) };
        let length = usize::try_from(size.min(LARGEST)).unwrap_or(0);
        let mut reply = Some(reply);
        let read = reader.read(offset, length, |bytes| {
            if let Some(reply) = reply.take() {
                reply.data(bytes);
            }
        });
        if let (Err(why), Some(reply)) = (read, reply) {
            reply.error(self.failed(ino, &why));
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.readers.remove(fh.0);
        reply.ok();
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.tree.list(self.number(ino)) {
            Ok(listing) => {
                let handle = FileHandle(self.listings.add(listing.into()));
                let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
                reply.opened(handle, flags);
            }
            Err(why) => reply.error(self.failed(ino, &why)),
        }
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(listing) = self.listings.find(fh.0) else { return reply.error(Errno::EBADF) };
        let listed = listing.from(offset, &mut |item| {
            let name = OsStr::from_bytes(&item.name);
            !reply.add(INodeNo(item.number), item.next, file_type(item.kind), name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(why) => reply.error(self.failed(ino, &why)),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let Some(listing) = self.listings.find(fh.0) else { return reply.error(Errno::EBADF) };
        let listed = listing.from(offset, &mut |item| {
            let name = OsStr::from_bytes(&item.name);
            let (found, time) = match listing.attributes(item) {
                Ok(found) if !item.is_preliminary => (found, FOR_EVER),
                Ok(found) => (found, Duration::ZERO),
                // the name is told of; what is wrong with it, to who looks it up
                Err(_) => (Attributes::unknown(item), Duration::ZERO),
            };
            let generation = Generation(found.generation);
            let found = attributes(&found);
            !reply.add(INodeNo(item.number), item.next, name, &time, &found, generation)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(why) => reply.error(self.failed(ino, &why)),
        }
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings.remove(fh.0);
        reply.ok();
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.tree.room(self.number(ino)) {
            Ok(room) => {
                let free = room.available / 512;
                let all = free.saturating_add(room.referenced / 512);
                reply.statfs(all, free, free, 0, 0, 128 << 10, 255, 512);
            }
            Err(why) => reply.error(errno(&why)),
        }
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.tree.xattr(self.number(ino), name.as_bytes()) {
            Ok(Some(value)) => xattr(reply, &value, size),
            Ok(None) => reply.error(Errno::NO_XATTR),
            Err(why) => reply.error(self.failed(ino, &why)),
        }
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match self.tree.xattr_names(self.number(ino)) {
            Ok(names) => {
                let ended = names.iter().flat_map(|name| name.iter().chain(&[0])).copied();
                xattr(reply, &ended.collect::<Vec<u8>>(), size);
            }
            Err(why) => reply.error(self.failed(ino, &why)),
        }
    }

    fn access(&self, _req: &Request, _ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        if mask.contains(AccessFlags::W_OK) {
            return reply.error(Errno::EROFS);
        }
        reply.ok();
    }

    fn ioctl(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        _in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        let found = match self.tree.attributes(self.number(ino)) {
            Ok(found) => found,
            Err(why) => return reply.error(self.failed(ino, &why)),
        };
        let room = usize::try_from(out_size).unwrap_or(0);
        match cmd {
            GETFLAGS | GETFLAGS_32 => {
                let mut flags = found.flags.to_ne_bytes().to_vec();
                flags.resize(room.clamp(4, 8), 0);
                reply.ioctl(0, &flags);
            }
            FSGETXATTR => reply.ioctl(0, &fsxattr(&found)),
            _ => reply.error(Errno::ENOTTY),
        }
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        if whence != SEEK_DATA && whence != SEEK_HOLE {
            return reply.error(Errno::EINVAL);
        }
        match self.sought(fh, offset, whence) {
            Ok(Some(found)) => match i64::try_from(found) {
                Ok(found) => reply.offset(found),
                Err(_) => reply.error(Errno::EOVERFLOW),
            },
            Ok(None) => reply.error(Errno::ENXIO),
            Err(why) => reply.error(self.failed(ino, &why)),
        }
    }
}
