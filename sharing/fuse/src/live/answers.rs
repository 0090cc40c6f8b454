//! Each question of the kernel, and its answer.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use vfs::{Attributes, By, Kind, MoveKind, New, Set, XattrMode};

use super::{KEEP_SIZE, LiveServer, PUNCH_HOLE, SHORT, ZERO_RANGE, by, done, kind_of};
use crate::convert::{self, attributes, errno, file_type};
use crate::server::{LARGEST, SEEK_DATA, SEEK_HOLE, xattr};

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
/// O_DSYNC; O_SYNC has it as well.
const O_DSYNC: i32 = 0o10000;
/// Bytes that are copied before the caller is asked again, so that it can be stopped.
const MOST_COPIED: u64 = 64 << 20;

impl Filesystem for LiveServer {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // without any of them the mount works all the same
        for wish in [
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_SPLICE_READ,
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
        ] {
            let _ = config.add_capabilities(wish);
        }
        // kernels that know of this forget what they keep of a range that is written directly
        self.direct = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
        if self.live.has_posix_acls() {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        let _ = config.set_max_write(LARGEST);
        if let Err(most) = config.set_max_readahead(LARGEST) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(64);
        let _ = config.set_time_granularity(Duration::from_nanos(1));
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let parent = self.number(parent);
        self.entry(reply, self.live.lookup(parent, name.as_bytes()));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.attr(reply, self.live.attributes(self.number(ino)));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let number = self.number(ino);
        let time = |time: TimeOrNow| match time {
            TimeOrNow::SpecificTime(time) => convert::moment(time),
            TimeOrNow::Now => self.live.now(),
        };
        let set = Set {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(time),
            mtime: mtime.map(time),
            crtime: crtime.map(convert::moment),
            project: None,
        };
        let by = By { keeps_setid: req.uid() == 0, ..by(req) };
        let drops = uid.is_some() || gid.is_some() || size.is_some();
        let ask = move |server: &Self| {
            if drops {
                server.live.drop_capabilities(by, number)?;
            }
            server.live.set(by, number, &set)
        };
        self.patiently(req, ask, |server, found| server.attr(reply, found));
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.live.target(self.number(ino)) {
            Ok(target) => reply.data(&target),
            Err(why) => reply.error(errno(&why)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = kind_of(mode) else { return reply.error(Errno::EINVAL) };
        let device = convert::numbers(rdev);
        let new = New { kind, mode: mode & 0o7777, umask, device, target: b"" };
        let (dir, name, by) = (self.number(parent), name.as_bytes().to_vec(), by(req));
        let ask = move |server: &Self| server.live.make(by, dir, &name, &new);
        self.patiently(req, ask, |server, made| server.entry(reply, made));
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let kind = Kind::Directory;
        let new = New { kind, mode: mode & 0o7777, umask, device: (0, 0), target: b"" };
        let (dir, name, by) = (self.number(parent), name.as_bytes().to_vec(), by(req));
        let ask = move |server: &Self| server.live.make(by, dir, &name, &new);
        self.patiently(req, ask, |server, made| server.entry(reply, made));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name, by) = (self.number(parent), name.as_bytes().to_vec(), by(req));
        let ask = move |server: &Self| server.live.unlink(by, dir, &name);
        self.patiently(req, ask, |_, gone| done(reply, gone));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name, by) = (self.number(parent), name.as_bytes().to_vec(), by(req));
        let ask = move |server: &Self| server.live.rmdir(by, dir, &name);
        self.patiently(req, ask, |_, gone| done(reply, gone));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes().to_vec();
        let (dir, name, by) = (self.number(parent), link_name.as_bytes().to_vec(), by(req));
        let ask = move |server: &Self| {
            let (kind, target) = (Kind::Symlink, &target[..]);
            let new = New { kind, mode: 0o777, umask: 0, device: (0, 0), target };
            server.live.make(by, dir, &name, &new)
        };
        self.patiently(req, ask, |server, made| server.entry(reply, made));
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let kind = match flags.bits() {
            0 => MoveKind::Replace,
            1 => MoveKind::NoReplace,
            2 => MoveKind::Exchange,
            4 => MoveKind::Whiteout,
            _ => return reply.error(Errno::EINVAL),
        };
        let from = (self.number(parent), name.as_bytes().to_vec());
        let to = (self.number(newparent), newname.as_bytes().to_vec());
        let by = by(req);
        let ask =
            move |server: &Self| server.live.rename(by, (from.0, &from.1), (to.0, &to.1), kind);
        self.patiently(req, ask, |_, moved| done(reply, moved));
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let (file, dir) = (self.number(ino), self.number(newparent));
        let (name, by) = (newname.as_bytes().to_vec(), by(req));
        let ask = move |server: &Self| server.live.link(by, file, (dir, &name));
        self.patiently(req, ask, |server, linked| server.entry(reply, linked));
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let kind = Kind::File;
        let new = New { kind, mode: mode & 0o7777, umask, device: (0, 0), target: b"" };
        let (dir, name, by) = (self.number(parent), name.to_owned(), by(req));
        let ask = move |server: &Self| server.created(by, (dir, &name), &new, flags);
        let ways = self.ways(flags);
        self.patiently(req, ask, move |_, made| match made {
            Ok((made, handle)) => {
                let generation = Generation(made.generation);
                reply.created(&SHORT, &attributes(&made), generation, handle, ways);
            }
            Err(why) => reply.error(errno(&why)),
        });
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(self.number(ino)) {
            Ok(handle) => reply.opened(handle, self.ways(flags.0)),
            Err(why) => reply.error(errno(&why)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(file) = self.files.find(fh.0) else { return reply.error(Errno::EBADF) };
        let length = usize::try_from(size.min(LARGEST)).unwrap_or(0);
        let mut reply = Some(reply);
        let read = file.read(offset, length, |bytes| {
            if let Some(reply) = reply.take() {
                reply.data(bytes);
            }
        });
        if let (Err(why), Some(reply)) = (read, reply) {
            reply.error(errno(&why));
        }
    }

    fn write(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(file) = self.files.find(fh.0) else { return reply.error(Errno::EBADF) };
        let keeps_setid = !write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let by = By { keeps_setid, ..by(req) };
        let lasts = flags.0 & O_DSYNC != 0 && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let tell = move |_: &Self, written| match written {
            Ok(()) => reply.written(count),
            Err(why) => reply.error(errno(&why)),
        };
        let first = self.written(by, &file, (offset, data), lasts);
        if !self.is_to_wait(&first) {
            return tell(self, first);
        }
        // only who waits needs bytes of their own
        let data = data.to_vec();
        let ask = move |server: &Self| server.written(by, &file, (offset, &data), lasts);
        self.patiently(req, ask, tell);
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
        self.files.remove(fh.0);
        reply.ok();
    }

    fn fsync(&self, req: &Request, ino: INodeNo, _fh: FileHandle, _: bool, reply: ReplyEmpty) {
        let number = self.number(ino);
        let ask = move |server: &Self| server.live.fsync(number);
        self.patiently(req, ask, |_, kept| done(reply, kept));
    }

    fn fsyncdir(&self, req: &Request, _ino: INodeNo, _fh: FileHandle, _: bool, reply: ReplyEmpty) {
        let ask = |server: &Self| server.live.fsync_all();
        self.patiently(req, ask, |_, kept| done(reply, kept));
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.live.list(self.number(ino)) {
            Ok(listing) => {
                let handle = FileHandle(self.listings.add(listing.into()));
                reply.opened(handle, FopenFlags::empty());
            }
            Err(why) => reply.error(errno(&why)),
        }
    }

    fn readdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
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
            Err(why) => reply.error(errno(&why)),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let Some(listing) = self.listings.find(fh.0) else { return reply.error(Errno::EBADF) };
        let listed = listing.from(offset, &mut |item| {
            let name = OsStr::from_bytes(&item.name);
            let (found, time) = match listing.attributes(item) {
                Ok(found) if !item.is_preliminary => (found, SHORT.min(self.names)),
                Ok(found) => (found, Duration::ZERO),
                // it went meanwhile, or what is wrong with it is told to who looks it up
                Err(_) => (Attributes::unknown(item), Duration::ZERO),
            };
            let generation = Generation(found.generation);
            let found = attributes(&found);
            !reply.add(INodeNo(item.number), item.next, name, &time, &found, generation)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(why) => reply.error(errno(&why)),
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

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let room = self.live.room();
        let free = room.available / 512;
        let all = free.saturating_add(room.referenced / 512);
        // as with OpenZFS, there can be as many files as there are free sectors
        reply.statfs(all, free, free, all, free, 128 << 10, 255, 512);
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags & (XATTR_CREATE | XATTR_REPLACE) {
            XATTR_CREATE => XattrMode::New,
            XATTR_REPLACE => XattrMode::There,
            _ => XattrMode::Any,
        };
        let (by, number) = (by(req), self.number(ino));
        let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
        let ask = move |server: &Self| server.live.set_xattr(by, number, &name, Some(&value), mode);
        self.patiently(req, ask, |_, set| done(reply, set));
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (by, number, name) = (by(req), self.number(ino), name.as_bytes().to_vec());
        let mode = XattrMode::Any;
        let ask = move |server: &Self| server.live.set_xattr(by, number, &name, None, mode);
        self.patiently(req, ask, |_, gone| done(reply, gone));
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.live.xattr(self.number(ino), name.as_bytes()) {
            Ok(Some(value)) => xattr(reply, &value, size),
            Ok(None) => reply.error(Errno::NO_XATTR),
            Err(why) => reply.error(errno(&why)),
        }
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match self.live.xattr_names(self.number(ino)) {
            Ok(names) => {
                let ended = names.iter().flat_map(|name| name.iter().chain(&[0])).copied();
                xattr(reply, &ended.collect::<Vec<u8>>(), size);
            }
            Err(why) => reply.error(errno(&why)),
        }
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode & !(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE) != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let by = By { keeps_setid: req.uid() == 0, ..by(req) };
        let number = self.number(ino);
        let ask = move |server: &Self| server.allocated(by, number, (offset, length), mode);
        self.patiently(req, ask, |_, made| done(reply, made));
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
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
            Err(why) => reply.error(errno(&why)),
        }
    }

    fn copy_file_range(
        &self,
        req: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let Some(source) = self.files.find(fh_in.0) else { return reply.error(Errno::EBADF) };
        let by = By { keeps_setid: req.uid() == 0, ..by(req) };
        // the caller goes on where this ends
        let length = len.min(MOST_COPIED);
        let to = (self.number(ino_out), offset_out);
        let ask = move |server: &Self| server.live.copy(by, (&source, offset_in), to, length);
        self.patiently(req, ask, |_, copied| match copied {
            Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(why) => reply.error(errno(&why)),
        });
    }
}
