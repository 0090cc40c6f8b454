//! The kernel's questions that change something.

use fusedev::{Reply, Request, RequestContext, SetTime, SetattrRequest, decode_dev};
use rustix::io::Errno;
use vfs::{
    Attributes, Credentials, Error, FileType, NewInode, OpenFile, RenameMode, SetAttributes, Time,
    WriteOffset, XattrMode,
};

use super::{FileSystemServer, credentials, kind_of_mode};
use crate::convert::map_errno;
use crate::ioctl;

const FALLOC_FL_KEEP_SIZE: i32 = 1;
const FALLOC_FL_PUNCH_HOLE: i32 = 2;
const FALLOC_FL_ZERO_RANGE: i32 = 16;
const O_EXCL: i32 = 0o200;
/// O_DSYNC; O_SYNC has it as well.
const O_DSYNC: i32 = 0o10000;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
/// A write that comes from the kernel's memory, so that nobody knows who wrote.
const FUSE_WRITE_CACHE: u32 = 1;
/// A write that takes set-id bits away.
const FUSE_WRITE_KILL_SUIDGID: u32 = 4;
/// Bytes that are copied before the caller is asked again, so that it can be stopped.
const MAX_COPY: u64 = 64 << 20;
/// Permissions with set-id and sticky bits.
const PERMISSION_BITS: u32 = 0o7777;

/// What is to be made: its name, and what the caller's umask takes away.
struct NewEntry<'a> {
    name: &'a [u8],
    kind: FileType,
    mode: u32,
    umask: u32,
    rdev: (u32, u32),
    target: &'a [u8],
}

/// The directory entry that a request for a node other than an open file creates.
fn new_entry<'a>(request: &Request<'a>) -> Result<NewEntry<'a>, Errno> {
    let (rdev, target): ((u32, u32), &[u8]) = ((0, 0), b"");
    Ok(match *request {
        Request::Symlink { name, target } => {
            NewEntry { name, kind: FileType::Symlink, mode: 0o777, umask: 0, rdev, target }
        }
        Request::Mkdir { name, mode, umask } => {
            NewEntry { name, kind: FileType::Directory, mode, umask, rdev, target }
        }
        Request::Mknod { name, mode, umask, rdev } => {
            let kind = kind_of_mode(mode).ok_or(Errno::INVAL)?;
            NewEntry { name, kind, mode, umask, rdev: decode_dev(rdev), target }
        }
        _ => return Err(Errno::NOSYS),
    })
}

impl FileSystemServer {
    /// Answers what changes a node, or something in it.
    pub(super) fn handle_write_request(
        &self,
        asker: &RequestContext<'_>,
        node: u64,
        ask: Request<'_>,
    ) -> Result<Reply, Errno> {
        let live = &self.fs;
        match ask {
            Request::Setattr(wish) => self.setattr(asker, node, &wish),
            Request::Symlink { .. } | Request::Mknod { .. } | Request::Mkdir { .. } => {
                self.create_node(asker, node, &new_entry(&ask)?)
            }
            Request::Create { .. } => self.create_file(asker, node, ask),
            Request::Tmpfile { mode, umask, flags } => {
                self.create_tmpfile(asker, node, (mode, umask, flags))
            }
            Request::Unlink { name } => self.unlink_tracked((node, name), false, || {
                self.run_retried_once(asker, || live.unlink(credentials(asker), node, name))
            }),
            Request::Rmdir { name } => self.unlink_tracked((node, name), false, || {
                self.run_retried_once(asker, || live.rmdir(credentials(asker), node, name))
            }),
            Request::Rename { name, new_dir: dir, new_name, flags } => {
                let kind = rename_mode(flags)?;
                let to = (self.to_ino(dir), new_name);
                let rename = || {
                    self.run_retried_once(asker, || {
                        live.rename(credentials(asker), (node, name), to, kind)
                    })
                };
                match kind {
                    RenameMode::Replace | RenameMode::Whiteout => {
                        self.unlink_tracked(to, true, rename)
                    }
                    RenameMode::NoReplace | RenameMode::Exchange => rename(),
                }
            }
            Request::Link { old_nodeid: file, name } => {
                let file = self.to_ino(file);
                let link = || live.link(credentials(asker), file, (node, name));
                let found = || live.commit_if_sync_always().and_then(|()| live.attributes(file));
                self.retry_once_while_suspended(asker, link, found)
                    .map(|found| self.entry_reply(&found))
            }
            Request::Fsync => self.run_retried(asker, || live.fsync(node)),
            Request::Fsyncdir => self.run_retried(asker, || live.fsync_all()),
            Request::Setxattr { .. } | Request::Removexattr { .. } => {
                self.set_xattr(asker, node, ask)
            }
            Request::Fallocate { offset, length, mode } => {
                if mode & !(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) != 0
                {
                    return Err(Errno::OPNOTSUPP);
                }
                let by = Credentials { has_cap_fsetid: asker.uid == 0, ..credentials(asker) };
                self.run_retried(asker, || self.fallocate(by, node, (offset, length), mode))
            }
            Request::CopyFileRange { .. } => self.copy_file_range(asker, ask),
            Request::Ioctl { command, input: given, .. } => {
                self.set_flags(asker, node, (command, given))
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn run_retried(
        &self,
        asker: &RequestContext<'_>,
        work: impl Fn() -> Result<(), Error>,
    ) -> Result<Reply, Errno> {
        self.retry_while_suspended(asker, work).map(|()| Reply::empty())
    }

    /// The same of what cannot be done twice.
    fn run_retried_once(
        &self,
        asker: &RequestContext<'_>,
        work: impl Fn() -> Result<(), Error>,
    ) -> Result<Reply, Errno> {
        self.retry_once_while_suspended(asker, work, || self.fs.commit_if_sync_always())
            .map(|()| Reply::empty())
    }

    /// Does what takes a name from what has it, which the kernel keeps from others meanwhile.
    /// `is_replaced`: another is given the name.
    fn unlink_tracked(
        &self,
        (dir, name): (u64, &[u8]),
        is_replaced: bool,
        work: impl FnOnce() -> Result<Reply, Errno>,
    ) -> Result<Reply, Errno> {
        let is_dir = |before: &Attributes| before.kind == FileType::Directory;
        let before = self.fs.lookup(dir, name).ok();
        let Some(before) = before.filter(|before| is_dir(before) || before.nlink <= 1) else {
            return work();
        };
        let is_kept = !is_dir(&before) && (is_replaced || before.kind != FileType::File);
        let kept = if is_kept { self.fs.hold_unlinked(before.ino).ok() } else { None };
        let done = work()?;
        // a name that is only spelled otherwise from now on replaces none
        if !is_replaced || self.is_unlinked(&before) {
            self.unlinked.insert(before, kept, self.fs.now());
        }
        Ok(done)
    }

    /// Whether something has no name any more.
    fn is_unlinked(&self, before: &Attributes) -> bool {
        let now = self.fs.attributes(before.ino);
        now.map_or(true, |now| now.generation != before.generation || now.nlink == 0)
    }

    fn create_node(
        &self,
        asker: &RequestContext<'_>,
        dir: u64,
        made: &NewEntry<'_>,
    ) -> Result<Reply, Errno> {
        let NewEntry { name, kind, umask, rdev: device, target, .. } = *made;
        let new = NewInode { kind, mode: made.mode & PERMISSION_BITS, umask, rdev: device, target };
        let make = || self.fs.create(credentials(asker), dir, name, &new);
        let found = || self.fs.commit_if_sync_always().and_then(|()| self.fs.lookup(dir, name));
        self.retry_once_while_suspended(asker, make, found).map(|found| self.entry_reply(&found))
    }

    fn create_file(
        &self,
        asker: &RequestContext<'_>,
        dir: u64,
        ask: Request<'_>,
    ) -> Result<Reply, Errno> {
        let Request::Create { name, mode, umask, flags } = ask else { return Err(Errno::INVAL) };
        let (kind, mode) = (FileType::File, mode & PERMISSION_BITS);
        let new = NewInode { kind, mode, umask, rdev: (0, 0), target: b"" };
        let opens = flags & O_EXCL == 0 && !self.fs.is_control_name(dir, name);
        let make = || match self.fs.create(credentials(asker), dir, name, &new) {
            Err(Error::Refused { reason: vfs::Reason::Exists }) if opens => {
                self.fs.lookup(dir, name)
            }
            made => made,
        };
        let settle = || self.fs.commit_if_sync_always().and_then(|()| self.fs.lookup(dir, name));
        let found = self.retry_once_while_suspended(asker, make, settle)?;
        map_errno(Self::check_open_flags(&found, flags))?;
        let file = map_errno(self.open_file(found.ino, flags))?;
        Ok(self.create_reply(&found, file))
    }

    /// Makes a file without a name, and opens it (O_TMPFILE).
    fn create_tmpfile(
        &self,
        asker: &RequestContext<'_>,
        dir: u64,
        (mode, umask, flags): (u32, u32, i32),
    ) -> Result<Reply, Errno> {
        let (kind, mode) = (FileType::File, mode & PERMISSION_BITS);
        let new = NewInode { kind, mode, umask, rdev: (0, 0), target: b"" };
        let make = || self.fs.create_tmpfile(credentials(asker), dir, &new);
        let (found, file) = self.retry_while_suspended(asker, make)?;
        let file = self.open_reply(file, flags).keep_cache();
        Ok(self.create_reply(&found, file))
    }

    fn setattr(
        &self,
        asker: &RequestContext<'_>,
        node: u64,
        wish: &SetattrRequest,
    ) -> Result<Reply, Errno> {
        let time = |when: SetTime| match when {
            SetTime::Now => self.fs.now(),
            SetTime::At(seconds, nanoseconds) => Time { seconds, nanoseconds },
        };
        let set = SetAttributes {
            mode: wish.mode.map(|mode| mode & PERMISSION_BITS),
            uid: wish.uid,
            gid: wish.gid,
            size: wish.size,
            atime: wish.atime.map(time),
            mtime: wish.mtime.map(time),
            ..SetAttributes::default()
        };
        let by = Credentials { has_cap_fsetid: asker.uid == 0, ..credentials(asker) };
        let drops = set.uid.is_some() || set.gid.is_some() || set.size.is_some();
        let work = || {
            if drops {
                self.fs.clear_capabilities(by, node)?;
            }
            self.fs.set_attributes(by, node, &set)
        };
        self.retry_while_suspended(asker, work).map(|found| self.attr_reply(&found))
    }

    /// Sets flags and projects.
    fn set_flags(
        &self,
        asker: &RequestContext<'_>,
        node: u64,
        (command, given): (u32, &[u8]),
    ) -> Result<Reply, Errno> {
        let found = map_errno(self.attributes(node))?;
        if let Some(set) = ioctl::parse_set_ioctl(credentials(asker), &found, command, given)? {
            self.retry_while_suspended(asker, || {
                self.fs.set_attributes(credentials(asker), node, &set)
            })?;
            // the kernel does not know that this changes the time of the last change
            if let Some(notices) = self.notifier.get() {
                let _ = notices.invalidate_attributes(asker.nodeid);
            }
        }
        Ok(Reply::ioctl(&[]))
    }

    pub(super) fn write(
        &self,
        asker: &RequestContext<'_>,
        ask: Request<'_>,
    ) -> Result<Reply, Errno> {
        let Request::Write { handle, offset, data, write_flags: how, open_flags: flags } = ask
        else {
            return Err(Errno::INVAL);
        };
        let file = self.open_files.get(handle).ok_or(Errno::BADF)?;
        let by = Credentials {
            has_cap_fsetid: how & FUSE_WRITE_KILL_SUIDGID == 0,
            ..credentials(asker)
        };
        let lasts = flags & O_DSYNC != 0 && how & FUSE_WRITE_CACHE == 0;
        let write = || self.write_file(by, &file.file, (offset, data), lasts);
        if how & FUSE_WRITE_CACHE != 0 {
            self.write_out(asker, write)?;
        } else {
            self.retry_while_suspended(asker, write)?;
        }
        Ok(Reply::write_size(u32::try_from(data.len()).unwrap_or(u32::MAX)))
    }

    /// Writes bytes; `lasts`: it is to outlast a power cut at once.
    fn write_file(
        &self,
        by: Credentials,
        file: &OpenFile,
        (offset, bytes): (u64, &[u8]),
        lasts: bool,
    ) -> Result<(), Error> {
        let number = file.ino()?;
        file.clear_capabilities(by)?;
        self.fs.write(by, number, WriteOffset::At(offset), bytes)?;
        if lasts { self.fs.fsync(number) } else { Ok(()) }
    }

    fn fallocate(
        &self,
        by: Credentials,
        file: u64,
        range: (u64, u64),
        mode: i32,
    ) -> Result<(), Error> {
        let (offset, length) = range;
        let range = offset..offset.saturating_add(length);
        if !by.has_cap_fsetid {
            self.fs.clear_setid(by, file)?;
        }
        if mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) != 0 {
            self.fs.punch_hole(by, file, range.clone())?;
        } else {
            self.fs.check_space(file, &range)?;
        }
        if mode & FALLOC_FL_KEEP_SIZE == 0 { self.fs.extend(by, file, &range) } else { Ok(()) }
    }

    fn set_xattr(
        &self,
        asker: &RequestContext<'_>,
        node: u64,
        ask: Request<'_>,
    ) -> Result<Reply, Errno> {
        let (name, value, flags) = match ask {
            Request::Setxattr { name, value, flags, kill_sgid: drops_set_group } => {
                if drops_set_group {
                    self.retry_while_suspended(asker, || {
                        self.fs.clear_setgid(credentials(asker), node)
                    })?;
                }
                (name, Some(value), flags)
            }
            Request::Removexattr { name } => (name, None, 0),
            _ => return Err(Errno::INVAL),
        };
        let mode = match flags & (XATTR_CREATE | XATTR_REPLACE) {
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        self.run_retried_once(asker, || {
            self.fs.set_xattr(credentials(asker), node, name, value, mode)
        })
    }

    fn copy_file_range(
        &self,
        asker: &RequestContext<'_>,
        ask: Request<'_>,
    ) -> Result<Reply, Errno> {
        let Request::CopyFileRange {
            handle,
            offset,
            out_nodeid: file,
            out_offset: to,
            length,
            has_64bit_reply: is_long,
        } = ask
        else {
            return Err(Errno::INVAL);
        };
        let source = self.open_files.get(handle).ok_or(Errno::BADF)?;
        let by = Credentials { has_cap_fsetid: asker.uid == 0, ..credentials(asker) };
        // the caller goes on where this ends
        let length = length.min(MAX_COPY);
        let to = (self.to_ino(file), to);
        let copied = self.retry_while_suspended(asker, || {
            self.fs.copy_range(by, (&source.file, offset), to, length)
        })?;
        Ok(if is_long {
            Reply::copied_bytes(copied)
        } else {
            Reply::write_size(u32::try_from(copied).unwrap_or(u32::MAX))
        })
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
