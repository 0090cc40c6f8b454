//! The kernel's questions that change something.

use fusedev::{Reply, Request, RequestContext, SetTime, SetattrRequest, decode_dev};
use rustix::io::Errno;
use vfs::{
    Attributes, Credentials, Error, FileType, NewInode, OpenFile, RenameMode, SetAttributes, Time,
    WriteOffset, XattrMode,
};

use super::{LiveServer, by, kind_of};
use crate::convert::told;
use crate::ioctl;

const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;
const O_EXCL: i32 = 0o200;
/// O_DSYNC; O_SYNC has it as well.
const O_DSYNC: i32 = 0o10000;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
/// A write that comes from the kernel's memory, so that nobody knows who wrote.
const FROM_CACHE: u32 = 1;
/// A write that takes set-id bits away.
const DROPS_SETID: u32 = 4;
/// Bytes that are copied before the caller is asked again, so that it can be stopped.
const MOST_COPIED: u64 = 64 << 20;
/// Permissions with set-id and sticky bits.
const PERMISSIONS: u32 = 0o7777;

/// What is to be made: its name, and what the caller's umask takes away.
struct Made<'a> {
    name: &'a [u8],
    kind: FileType,
    mode: u32,
    umask: u32,
    device: (u32, u32),
    target: &'a [u8],
}

impl LiveServer {
    /// Answers what changes a node, or something in it.
    pub(super) fn change(
        &self,
        asker: &RequestContext<'_>,
        node: u64,
        ask: Request<'_>,
    ) -> Result<Reply, Errno> {
        let live = &self.live;
        match ask {
            Request::Setattr(wish) => self.set(asker, node, &wish),
            Request::Symlink { name, target } => {
                let kind = FileType::Symlink;
                self.make(
                    asker,
                    node,
                    &Made { name, kind, mode: 0o777, umask: 0, device: (0, 0), target },
                )
            }
            Request::Mknod { name, mode, umask, rdev: device } => {
                let kind = kind_of(mode).ok_or(Errno::INVAL)?;
                let device = decode_dev(device);
                self.make(asker, node, &Made { name, kind, mode, umask, device, target: b"" })
            }
            Request::Mkdir { name, mode, umask } => {
                let (kind, device) = (FileType::Directory, (0, 0));
                self.make(asker, node, &Made { name, kind, mode, umask, device, target: b"" })
            }
            Request::Create { .. } => self.create(asker, node, ask),
            Request::Tmpfile { mode, umask, flags } => {
                self.make_unnamed(asker, node, (mode, umask, flags))
            }
            Request::Unlink { name } => self.taking((node, name), false, || {
                self.done_once(asker, || live.unlink(by(asker), node, name))
            }),
            Request::Rmdir { name } => self.taking((node, name), false, || {
                self.done_once(asker, || live.rmdir(by(asker), node, name))
            }),
            Request::Rename { name, new_dir: dir, new_name, flags } => {
                let kind = kind_of_move(flags)?;
                let to = (self.number(dir), new_name);
                let rename =
                    || self.done_once(asker, || live.rename(by(asker), (node, name), to, kind));
                match kind {
                    RenameMode::Replace | RenameMode::Whiteout => self.taking(to, true, rename),
                    RenameMode::NoReplace | RenameMode::Exchange => rename(),
                }
            }
            Request::Link { old_nodeid: file, name } => {
                let file = self.number(file);
                let link = || live.link(by(asker), file, (node, name));
                let found = || live.commit_if_sync_always().and_then(|()| live.attributes(file));
                self.patiently_once(asker, link, found).map(|found| self.entry(&found))
            }
            Request::Fsync => self.done(asker, || live.fsync(node)),
            Request::Fsyncdir => self.done(asker, || live.fsync_all()),
            Request::Setxattr { .. } | Request::Removexattr { .. } => {
                self.set_xattr(asker, node, ask)
            }
            Request::Fallocate { offset, length, mode } => {
                if mode & !(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE) != 0 {
                    return Err(Errno::OPNOTSUPP);
                }
                let by = Credentials { has_cap_fsetid: asker.uid == 0, ..by(asker) };
                self.done(asker, || self.allocated(by, node, (offset, length), mode))
            }
            Request::CopyFileRange { .. } => self.copy(asker, ask),
            Request::Ioctl { command, input: given, .. } => {
                self.set_flags(asker, node, (command, given))
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn done(
        &self,
        asker: &RequestContext<'_>,
        work: impl Fn() -> Result<(), Error>,
    ) -> Result<Reply, Errno> {
        self.patiently(asker, work).map(|()| Reply::empty())
    }

    /// The same of what cannot be done twice.
    fn done_once(
        &self,
        asker: &RequestContext<'_>,
        work: impl Fn() -> Result<(), Error>,
    ) -> Result<Reply, Errno> {
        self.patiently_once(asker, work, || self.live.commit_if_sync_always())
            .map(|()| Reply::empty())
    }

    /// Does what takes a name from what has it, which the kernel keeps from others meanwhile.
    /// `is_replaced`: another is given the name.
    fn taking(
        &self,
        (dir, name): (u64, &[u8]),
        is_replaced: bool,
        work: impl FnOnce() -> Result<Reply, Errno>,
    ) -> Result<Reply, Errno> {
        let is_dir = |before: &Attributes| before.kind == FileType::Directory;
        let before = self.live.lookup(dir, name).ok();
        let Some(before) = before.filter(|before| is_dir(before) || before.nlink <= 1) else {
            return work();
        };
        let is_kept = !is_dir(&before) && (is_replaced || before.kind != FileType::File);
        let kept = if is_kept { self.live.hold_unlinked(before.ino).ok() } else { None };
        let done = work()?;
        // a name that is only spelled otherwise from now on replaces none
        if !is_replaced || self.is_gone(&before) {
            self.removed.add(before, kept, self.live.now());
        }
        Ok(done)
    }

    /// Whether something has no name any more.
    fn is_gone(&self, before: &Attributes) -> bool {
        let now = self.live.attributes(before.ino);
        now.map_or(true, |now| now.generation != before.generation || now.nlink == 0)
    }

    fn make(&self, asker: &RequestContext<'_>, dir: u64, made: &Made<'_>) -> Result<Reply, Errno> {
        let Made { name, kind, umask, device, target, .. } = *made;
        let new = NewInode { kind, mode: made.mode & PERMISSIONS, umask, rdev: device, target };
        let make = || self.live.create(by(asker), dir, name, &new);
        let found = || self.live.commit_if_sync_always().and_then(|()| self.live.lookup(dir, name));
        self.patiently_once(asker, make, found).map(|found| self.entry(&found))
    }

    fn create(
        &self,
        asker: &RequestContext<'_>,
        dir: u64,
        ask: Request<'_>,
    ) -> Result<Reply, Errno> {
        let Request::Create { name, mode, umask, flags } = ask else { return Err(Errno::INVAL) };
        let (kind, mode) = (FileType::File, mode & PERMISSIONS);
        let new = NewInode { kind, mode, umask, rdev: (0, 0), target: b"" };
        let opens = flags & O_EXCL == 0 && !self.live.is_control_name(dir, name);
        let make = || match self.live.create(by(asker), dir, name, &new) {
            Err(Error::Refused { reason: vfs::Reason::Exists }) if opens => {
                self.live.lookup(dir, name)
            }
            made => made,
        };
        let settle =
            || self.live.commit_if_sync_always().and_then(|()| self.live.lookup(dir, name));
        let found = self.patiently_once(asker, make, settle)?;
        told(Self::may_open(&found, flags))?;
        let file = told(self.open_file(found.ino, flags))?;
        Ok(self.created(&found, file))
    }

    /// Makes a file without a name, and opens it (O_TMPFILE).
    fn make_unnamed(
        &self,
        asker: &RequestContext<'_>,
        dir: u64,
        (mode, umask, flags): (u32, u32, i32),
    ) -> Result<Reply, Errno> {
        let (kind, mode) = (FileType::File, mode & PERMISSIONS);
        let new = NewInode { kind, mode, umask, rdev: (0, 0), target: b"" };
        let make = || self.live.create_tmpfile(by(asker), dir, &new);
        let (found, file) = self.patiently(asker, make)?;
        let file = self.opened(file, flags).keep_cache();
        Ok(self.created(&found, file))
    }

    fn set(
        &self,
        asker: &RequestContext<'_>,
        node: u64,
        wish: &SetattrRequest,
    ) -> Result<Reply, Errno> {
        let time = |when: SetTime| match when {
            SetTime::Now => self.live.now(),
            SetTime::At(seconds, nanoseconds) => Time { seconds, nanoseconds },
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
        let by = Credentials { has_cap_fsetid: asker.uid == 0, ..by(asker) };
        let drops = set.uid.is_some() || set.gid.is_some() || set.size.is_some();
        let work = || {
            if drops {
                self.live.clear_capabilities(by, node)?;
            }
            self.live.set_attributes(by, node, &set)
        };
        self.patiently(asker, work).map(|found| self.facts(&found))
    }

    /// Sets flags and projects.
    fn set_flags(
        &self,
        asker: &RequestContext<'_>,
        node: u64,
        (command, given): (u32, &[u8]),
    ) -> Result<Reply, Errno> {
        let found = told(self.attributes(node))?;
        if let Some(set) = ioctl::wished(by(asker), &found, command, given)? {
            self.patiently(asker, || self.live.set_attributes(by(asker), node, &set))?;
            // the kernel does not know that this changes the time of the last change
            if let Some(notices) = self.notices.get() {
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
        let file = self.files.find(handle).ok_or(Errno::BADF)?;
        let by = Credentials { has_cap_fsetid: how & DROPS_SETID == 0, ..by(asker) };
        let lasts = flags & O_DSYNC != 0 && how & FROM_CACHE == 0;
        let write = || self.written(by, &file.file, (offset, data), lasts);
        if how & FROM_CACHE != 0 {
            self.write_out(asker, write)?;
        } else {
            self.patiently(asker, write)?;
        }
        Ok(Reply::write_size(u32::try_from(data.len()).unwrap_or(u32::MAX)))
    }

    /// Writes bytes; `lasts`: it is to outlast a power cut at once.
    fn written(
        &self,
        by: Credentials,
        file: &OpenFile,
        (offset, bytes): (u64, &[u8]),
        lasts: bool,
    ) -> Result<(), Error> {
        let number = file.ino()?;
        file.clear_capabilities(by)?;
        self.live.write(by, number, WriteOffset::At(offset), bytes)?;
        if lasts { self.live.fsync(number) } else { Ok(()) }
    }

    fn allocated(
        &self,
        by: Credentials,
        file: u64,
        range: (u64, u64),
        mode: i32,
    ) -> Result<(), Error> {
        let (offset, length) = range;
        let range = offset..offset.saturating_add(length);
        if !by.has_cap_fsetid {
            self.live.clear_setid(by, file)?;
        }
        if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
            self.live.punch_hole(by, file, range.clone())?;
        } else {
            self.live.check_space(file, &range)?;
        }
        if mode & KEEP_SIZE == 0 { self.live.extend(by, file, &range) } else { Ok(()) }
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
                    self.patiently(asker, || self.live.clear_setgid(by(asker), node))?;
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
        self.done_once(asker, || self.live.set_xattr(by(asker), node, name, value, mode))
    }

    fn copy(&self, asker: &RequestContext<'_>, ask: Request<'_>) -> Result<Reply, Errno> {
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
        let source = self.files.find(handle).ok_or(Errno::BADF)?;
        let by = Credentials { has_cap_fsetid: asker.uid == 0, ..by(asker) };
        // the caller goes on where this ends
        let length = length.min(MOST_COPIED);
        let to = (self.number(file), to);
        let copied =
            self.patiently(asker, || self.live.copy_range(by, (&source.file, offset), to, length))?;
        Ok(if is_long {
            Reply::copied_bytes(copied)
        } else {
            Reply::write_size(u32::try_from(copied).unwrap_or(u32::MAX))
        })
    }
}

fn kind_of_move(flags: u32) -> Result<RenameMode, Errno> {
    match flags {
        0 => Ok(RenameMode::Replace),
        1 => Ok(RenameMode::NoReplace),
        2 => Ok(RenameMode::Exchange),
        4 => Ok(RenameMode::Whiteout),
        _ => Err(Errno::INVAL),
    }
}
