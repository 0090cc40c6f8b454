//! Requests of the kernel that change something.

use std::time::Instant;

use fusedev::{Reply, Request, RequestContext, SetTime, SetattrRequest, decode_dev};
use posix::mode::PERMISSIONS;
use posix::{
    FileType, NewInode, RenameMode, RenameRequest, SetAttributes, Time, WriteOffset, XattrMode,
};
use rustix::io::Errno;
use vfs::{AllocateMode, Context, CreateMode, FileOffset, FileSystem};

use super::request_waiter::WRITE_OUT_LIMIT;
use super::{FileSystemServer, open_mode};
use crate::convert::map_errno;
use crate::ioctl;

const FALLOC_FL_KEEP_SIZE: i32 = 1;
const FALLOC_FL_PUNCH_HOLE: i32 = 2;
const FALLOC_FL_ZERO_RANGE: i32 = 16;
const O_EXCL: i32 = 0o200;
/// O_DSYNC; O_SYNC contains it.
const O_DSYNC: i32 = 0o10000;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
/// A write from the kernel's page cache: the writer is unknown.
const FUSE_WRITE_CACHE: u32 = 1;
/// A write that clears set-ID bits.
const FUSE_WRITE_KILL_SUIDGID: u32 = 4;
/// Bytes that are copied in one request, so that the caller can be stopped.
const MAX_COPY: u64 = 64 << 20;

impl FileSystemServer {
    /// Handles requests that change an inode or a name.
    pub(super) fn handle_write_request(
        &self,
        request: &RequestContext<'_>,
        node: u64,
        ask: Request<'_>,
    ) -> Result<Reply, Errno> {
        let (fs, ino) = (&self.fs, self.to_ino(node));
        let caller = self.caller(request);
        let context = &caller.context();
        match ask {
            Request::Setattr(wish) => self.setattr(request, node, &wish),
            Request::Symlink { .. } | Request::Mknod { .. } | Request::Mkdir { .. } => {
                let (name, new) = new_inode(ask)?;
                let found = map_errno(fs.create(context, ino, name, &new))?;
                Ok(self.entry_reply(&found))
            }
            Request::Create { .. } => self.create_file(context, node, ask),
            Request::Tmpfile { mode, umask, flags } => {
                let new = NewInode { mode: mode & PERMISSIONS, umask, ..NewInode::default() };
                let made = map_errno(fs.create_tmpfile(context, ino, &new, open_mode(flags)))?;
                let file = self.open_reply(made.file, flags).keep_cache();
                Ok(self.create_reply(&made.attributes, file))
            }
            Request::Unlink { name } => map_done(fs.unlink(context, ino, name)),
            Request::Rmdir { name } => map_done(fs.rmdir(context, ino, name)),
            Request::Rename { name, new_dir, new_name, flags } => {
                let rename = RenameRequest {
                    from_dir: ino,
                    from_name: name,
                    to_dir: self.to_ino(new_dir),
                    to_name: new_name,
                    mode: rename_mode(flags)?,
                };
                map_done(fs.rename(context, &rename))
            }
            Request::Link { old_nodeid, name } => {
                let file = self.to_ino(old_nodeid);
                let found = map_errno(fs.link(context, file, ino, name))?;
                Ok(self.entry_reply(&found))
            }
            Request::Fsync => map_done(fs.commit(context, ino)),
            Request::Fsyncdir => map_done(fs.commit_all(context)),
            Request::Setxattr { .. } | Request::Removexattr { .. } => {
                self.set_xattr(request, node, ask)
            }
            Request::Fallocate { .. } => self.fallocate(request, ask),
            Request::CopyFileRange { .. } => self.copy_file_range(request, ask),
            Request::Ioctl { command, input: given, .. } => {
                self.set_flags(request, node, (command, given))
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn create_file(
        &self,
        context: &Context<'_>,
        dir: u64,
        ask: Request<'_>,
    ) -> Result<Reply, Errno> {
        let Request::Create { name, mode, umask, flags } = ask else { return Err(Errno::INVAL) };
        let new = NewInode { mode: mode & PERMISSIONS, umask, ..NewInode::default() };
        let is_exclusive = flags & O_EXCL != 0;
        let create = if is_exclusive { CreateMode::Exclusive } else { CreateMode::OpenExisting };
        let entry = (self.to_ino(dir), name);
        let made = self.fs.create_and_open(context, entry, &new, create, open_mode(flags));
        let made = map_errno(made)?;
        let file = self.cached_open_reply(made.file, flags);
        Ok(self.create_reply(&made.attributes, file))
    }

    fn setattr(
        &self,
        request: &RequestContext<'_>,
        node: u64,
        wish: &SetattrRequest,
    ) -> Result<Reply, Errno> {
        let time = |when: SetTime| match when {
            SetTime::Now => posix::SetTime::Now,
            SetTime::At(seconds, nanoseconds) => posix::SetTime::At(Time { seconds, nanoseconds }),
        };
        let set = SetAttributes {
            mode: wish.mode.map(|mode| mode & PERMISSIONS),
            uid: wish.uid,
            gid: wish.gid,
            size: wish.size,
            atime: wish.atime.map(time),
            mtime: wish.mtime.map(time),
            ..SetAttributes::default()
        };
        // ftruncate(2) needs no permission but that of the open file
        let only_size =
            SetAttributes { size: set.size, mtime: set.mtime, ..SetAttributes::default() };
        let by_handle = wish.handle.is_some() && set == only_size;
        let caller = if by_handle { self.handle_caller(request) } else { self.caller(request) };
        let caller = caller.dropping_setid();
        let found = self.fs.set_attributes(&caller.context(), self.to_ino(node), &set);
        Ok(self.attr_reply(&map_errno(found)?))
    }

    /// Sets flags and projects.
    fn set_flags(
        &self,
        request: &RequestContext<'_>,
        node: u64,
        (command, given): (u32, &[u8]),
    ) -> Result<Reply, Errno> {
        let caller = self.caller(request);
        let (context, ino) = (caller.context(), self.to_ino(node));
        let found = map_errno(self.fs.attributes(&context, ino))?;
        if let Some(set) = ioctl::parse_set_ioctl(&caller.credentials, &found, command, given)? {
            map_errno(self.fs.set_attributes(&context, ino, &set))?;
            // the kernel does not know that this changes the ctime
            if let Some(notifier) = self.notifier.get() {
                let _ = notifier.invalidate_attributes(request.nodeid);
            }
        }
        Ok(Reply::ioctl(&[]))
    }

    pub(super) fn write(
        &self,
        request: &RequestContext<'_>,
        ask: Request<'_>,
    ) -> Result<Reply, Errno> {
        let Request::Write { handle, offset, data, write_flags, open_flags } = ask else {
            return Err(Errno::INVAL);
        };
        let file = self.open_files.get(handle).ok_or(Errno::BADF)?;
        let keeps_setid = write_flags & FUSE_WRITE_KILL_SUIDGID == 0;
        let mut caller = self.handle_caller(request).keeping_setid(keeps_setid);
        let is_write_out = write_flags & FUSE_WRITE_CACHE != 0;
        let mut deadline = None;
        if is_write_out && self.sync_waits {
            caller = caller.uncancellable();
            deadline = Some(Instant::now() + WRITE_OUT_LIMIT);
        }
        let context = Context { deadline, ..caller.context() };
        map_errno(self.fs.write(&context, &file.file, WriteOffset::At(offset), data))?;
        if open_flags & O_DSYNC != 0 && !is_write_out {
            map_errno(file.file.ino().and_then(|ino| self.fs.commit(&context, ino)))?;
        }
        Ok(Reply::write_size(units::narrow::<u32>(data.len())))
    }

    fn fallocate(&self, request: &RequestContext<'_>, ask: Request<'_>) -> Result<Reply, Errno> {
        let Request::Fallocate { handle, offset, length, mode } = ask else {
            return Err(Errno::INVAL);
        };
        let known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
        if mode & !known != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let file = self.open_files.get(handle).ok_or(Errno::BADF)?;
        let range = offset..offset.checked_add(length).ok_or(Errno::FBIG)?;
        let keeps_size = mode & FALLOC_FL_KEEP_SIZE != 0;
        let size = if keeps_size { AllocateMode::KeepSize } else { AllocateMode::Extend };
        let caller = self.handle_caller(request).dropping_setid();
        let context = caller.context();
        if mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) != 0 {
            map_done(self.fs.punch_hole(&context, &file.file, range, size))
        } else {
            map_done(self.fs.allocate(&context, &file.file, range, size))
        }
    }

    fn set_xattr(
        &self,
        request: &RequestContext<'_>,
        node: u64,
        ask: Request<'_>,
    ) -> Result<Reply, Errno> {
        let (name, value, flags, kill_sgid) = match ask {
            Request::Setxattr { name, value, flags, kill_sgid } => {
                (name, Some(value), flags, kill_sgid)
            }
            Request::Removexattr { name } => (name, None, 0, false),
            _ => return Err(Errno::INVAL),
        };
        let mode = match flags & (XATTR_CREATE | XATTR_REPLACE) {
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        let caller = self.caller(request).keeping_setid(!kill_sgid);
        if self.is_acl_xattr(name) {
            let (context, ino) = (caller.context(), self.to_ino(node));
            return self.set_acl_xattr(&context, ino, name, value, mode).map(|()| Reply::empty());
        }
        map_done(self.fs.set_xattr(&caller.context(), self.to_ino(node), name, value, mode))
    }

    fn copy_file_range(
        &self,
        request: &RequestContext<'_>,
        ask: Request<'_>,
    ) -> Result<Reply, Errno> {
        let Request::CopyFileRange {
            handle,
            offset,
            out_handle,
            out_offset,
            length,
            has_64bit_reply,
        } = ask
        else {
            return Err(Errno::INVAL);
        };
        let source = self.open_files.get(handle).ok_or(Errno::BADF)?;
        let target = self.open_files.get(out_handle).ok_or(Errno::BADF)?;
        let caller = self.handle_caller(request).dropping_setid();
        // the caller continues where this request ends
        let length = length.min(MAX_COPY);
        let from = FileOffset { file: &source.file, offset };
        let to = FileOffset { file: &target.file, offset: out_offset };
        let copied = map_errno(self.fs.copy_range(&caller.context(), from, to, length))?;
        Ok(if has_64bit_reply {
            Reply::copied_bytes(copied)
        } else {
            Reply::write_size(u32::try_from(copied).unwrap_or(u32::MAX))
        })
    }
}

/// The response to a request that has no result.
fn map_done(result: Result<(), vfs::Error>) -> Result<Reply, Errno> {
    map_errno(result).map(|()| Reply::empty())
}

/// The file that a request creates, and its name.
fn new_inode(ask: Request<'_>) -> Result<(&[u8], NewInode<'_>), Errno> {
    match ask {
        Request::Symlink { name, target } => {
            let kind = FileType::Symlink;
            Ok((name, NewInode { kind, mode: 0o777, umask: 0, target, ..NewInode::default() }))
        }
        Request::Mknod { name, mode, umask, rdev } => {
            let (kind, rdev) = (special_file_type(mode).ok_or(Errno::INVAL)?, decode_dev(rdev));
            let mode = mode & PERMISSIONS;
            Ok((name, NewInode { kind, mode, umask, rdev, ..NewInode::default() }))
        }
        Request::Mkdir { name, mode, umask } => {
            let (kind, mode) = (FileType::Directory, mode & PERMISSIONS);
            Ok((name, NewInode { kind, mode, umask, ..NewInode::default() }))
        }
        _ => Err(Errno::INVAL),
    }
}

/// The type of a file that mknod(2) creates.
fn special_file_type(mode: u32) -> Option<FileType> {
    match FileType::from_mode(mode) {
        FileType::Other(0) => Some(FileType::File),
        FileType::Directory | FileType::Symlink | FileType::Other(_) => None,
        kind => Some(kind),
    }
}

fn rename_mode(flags: u32) -> Result<RenameMode, Errno> {
    match flags {
        0 => Ok(RenameMode::Replace),
        1 => Ok(RenameMode::NoReplace),
        2 => Ok(RenameMode::Exchange),
        4 => Ok(RenameMode::Whiteout),
        _ => Err(Errno::INVAL),
    }
}
