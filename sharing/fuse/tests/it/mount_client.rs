//! The contract of file protocols over a mounted directory: a client of the kernel.
//!
//! The conformance checks of `vfs` use it to test a mount. It knows inodes by descriptors (`O_PATH`), so that
//! it needs no paths; each call runs on a thread with the credentials of its caller. The umask belongs to the
//! process, so one check may run at a time.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use posix::access::OpenMode;
use posix::acl::nfs4::mask;
use posix::acl::{Ace, PosixAclEntry, PosixAclKind};
use posix::{
    Attributes, Credentials, FileFlags, FileType, Ino, NewInode, RenameMode, RenameRequest,
    SetAttributes, SetTime, Time, WriteOffset, XattrMode,
};
use rustix::fs::{
    self, Access, AtFlags, CWD, FallocateFlags, Mode, OFlags, RawDir, RenameFlags, SeekFrom,
    StatxFlags, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use vfs::{
    AllocateMode, Context, CreateMode, DatasetSpace, DirEntry, Error, FileOffset, FileSystem,
    Limits, Opened, Reason, Result,
};

/// A mounted directory.
pub(crate) struct MountClient {
    root: Ino,
    has_posix_acls: bool,
    inodes: Mutex<HashMap<Ino, Arc<OwnedFd>>>,
}

const UNSUPPORTED: Error = Error::Refused { reason: Reason::NotSupported };
const ALL_XATTRS: usize = 1 << 16;

/// The error of a system call, as a file system reports it.
fn to_error(why: Errno) -> Error {
    let reason = match why {
        Errno::NOENT => return Error::NotFound,
        Errno::ACCESS => return Error::AccessDenied,
        Errno::NOTDIR => return Error::NotDirectory,
        Errno::ISDIR => return Error::IsDirectory,
        Errno::BADF => return Error::WrongOpenMode,
        Errno::PERM => Reason::NotPermitted,
        Errno::EXIST => Reason::Exists,
        Errno::NOTEMPTY => Reason::NotEmpty,
        Errno::NAMETOOLONG => Reason::NameTooLong,
        Errno::INVAL => Reason::Invalid,
        Errno::NODATA => Reason::NoXattr,
        other => return Error::Unreadable { why: other.to_string() },
    };
    Error::Refused { reason }
}

/// Runs system calls with the credentials of a caller. Linux keeps these for each thread.
fn run_as<T: Send>(
    context: &Context<'_>,
    calls: impl FnOnce() -> rustix::io::Result<T> + Send,
) -> Result<T> {
    let by = context.credentials;
    if *by == Credentials::ROOT {
        return calls().map_err(to_error);
    }
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let groups: Vec<Gid> = by.groups().iter().copied().map(Gid::from_raw).collect();
            rustix::thread::set_thread_groups(&groups)?;
            let (gid, uid) = (Gid::from_raw(by.gid), Uid::from_raw(by.uid));
            rustix::thread::set_thread_res_gid(gid, gid, gid)?;
            rustix::thread::set_thread_res_uid(uid, uid, uid)?;
            calls()
        });
        thread.join().expect("the calls return")
    });
    result.map_err(to_error)
}

/// A path that leads to a descriptor's file.
fn path_of(fd: &OwnedFd) -> String {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn to_mode(mode: u32) -> Mode {
    Mode::from_bits_retain(mode & posix::mode::PERMISSIONS)
}

fn open_flags(open: OpenMode) -> OFlags {
    let access = match (open.read, open.write || open.append) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    let rows = [
        (open.append, OFlags::APPEND),
        (open.truncate, OFlags::TRUNC),
        (open.no_atime, OFlags::NOATIME),
    ];
    rows.iter().filter(|row| row.0).fold(access | OFlags::CLOEXEC, |all, row| all | row.1)
}

fn stat(fd: &OwnedFd) -> rustix::io::Result<Attributes> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = fs::statx(fd, "", AtFlags::EMPTY_PATH, wanted)?;
    let time = |at: fs::StatxTimestamp| Time { seconds: at.tv_sec, nanoseconds: at.tv_nsec };
    let mode = u32::from(found.stx_mode);
    Ok(Attributes {
        ino: Ino::new(found.stx_ino),
        kind: FileType::from_mode(mode),
        mode: mode & posix::mode::PERMISSIONS,
        uid: found.stx_uid,
        gid: found.stx_gid,
        size: found.stx_size,
        allocated: found.stx_blocks * 512,
        block_size: found.stx_blksize.into(),
        nlink: found.stx_nlink.into(),
        atime: time(found.stx_atime),
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
        crtime: time(found.stx_btime),
        rdev: (found.stx_rdev_major, found.stx_rdev_minor),
        flags: FileFlags::NONE,
        project_id: 0,
        generation: 0,
    })
}

impl MountClient {
    pub(crate) fn open(mountpoint: &Path, has_posix_acls: bool) -> Self {
        let fd = fs::open(mountpoint, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let client = Self { root: Ino::new(0), has_posix_acls, inodes: Mutex::default() };
        let root = client.remember(fd.expect("a mount")).expect("a mount").ino;
        Self { root, ..client }
    }

    fn inode(&self, ino: Ino) -> Result<Arc<OwnedFd>> {
        self.inodes.lock().unwrap().get(&ino).cloned().ok_or(Error::NotFound)
    }

    fn remember(&self, fd: OwnedFd) -> Result<Attributes> {
        let found = stat(&fd).map_err(to_error)?;
        self.inodes.lock().unwrap().insert(found.ino, Arc::new(fd));
        Ok(found)
    }

    /// Looks a name up as root: the check of the caller is done.
    fn find(&self, dir: &OwnedFd, name: &[u8]) -> Result<Attributes> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.remember(fs::openat(dir, name, flags, Mode::empty()).map_err(to_error)?)
    }

    fn opened(&self, fd: OwnedFd, is_new: bool) -> Result<Opened<File>> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let inode = fs::open(path_of(&fd), flags, Mode::empty()).map_err(to_error)?;
        Ok(Opened { attributes: self.remember(inode)?, file: fd.into(), is_new })
    }
}

fn create_node(dir: &OwnedFd, name: &[u8], new: &NewInode<'_>) -> rustix::io::Result<()> {
    let mode = to_mode(new.mode);
    let special = |kind| fs::mknodat(dir, name, kind, mode, fs::makedev(new.rdev.0, new.rdev.1));
    match new.kind {
        FileType::Directory => fs::mkdirat(dir, name, mode),
        FileType::Symlink => fs::symlinkat(new.target, dir, name),
        FileType::Fifo => special(fs::FileType::Fifo),
        FileType::Socket => special(fs::FileType::Socket),
        FileType::CharDevice => special(fs::FileType::CharacterDevice),
        FileType::BlockDevice => special(fs::FileType::BlockDevice),
        FileType::File | FileType::Other(_) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            fs::openat(dir, name, flags, mode).map(drop)
        }
    }
}

fn set(path: &str, set: &SetAttributes) -> rustix::io::Result<()> {
    if set.uid.is_some() || set.gid.is_some() {
        let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
        fs::chownat(CWD, path, uid, gid, AtFlags::empty())?;
    }
    if let Some(mode) = set.mode {
        fs::chmodat(CWD, path, to_mode(mode), AtFlags::empty())?;
    }
    if set.atime.is_some() || set.mtime.is_some() {
        let time = |time: Option<SetTime>| match time {
            None => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
            Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
            Some(SetTime::At(at)) => {
                Timespec { tv_sec: at.seconds, tv_nsec: at.nanoseconds.into() }
            }
        };
        let times = Timestamps { last_access: time(set.atime), last_modification: time(set.mtime) };
        fs::utimensat(CWD, path, &times, AtFlags::empty())?;
    }
    Ok(())
}

impl FileSystem for MountClient {
    type File = File;
    type Directory = OwnedFd;

    fn root(&self) -> Result<Ino> {
        Ok(self.root)
    }

    fn limits(&self) -> Limits {
        Limits {
            max_name_len: 255,
            has_exact_names: true,
            has_posix_acls: self.has_posix_acls,
            has_nfs4_acls: false,
            is_read_only: false,
        }
    }

    fn space(&self, _context: &Context<'_>, _ino: Ino) -> Result<DatasetSpace> {
        Err(UNSUPPORTED)
    }

    fn sync(&self, _context: &Context<'_>) -> Result<()> {
        fs::syncfs(self.inode(self.root)?).map_err(to_error)
    }

    fn lookup(&self, context: &Context<'_>, dir: Ino, name: &[u8]) -> Result<Attributes> {
        let dir = self.inode(dir)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.remember(run_as(context, || fs::openat(&dir, name, flags, Mode::empty()))?)
    }

    fn attributes(&self, context: &Context<'_>, ino: Ino) -> Result<Attributes> {
        let inode = self.inode(ino)?;
        run_as(context, || stat(&inode))
    }

    fn access(&self, context: &Context<'_>, ino: Ino, wanted: u32) -> Result<u32> {
        let path = path_of(&*self.inode(ino)?);
        let rows = [
            (mask::READ_DATA, Access::READ_OK),
            (mask::WRITE_DATA, Access::WRITE_OK),
            (mask::EXECUTE, Access::EXEC_OK),
        ];
        run_as(context, || {
            let may = |access| fs::accessat(CWD, &path, access, AtFlags::EACCESS).is_ok();
            let granted = rows.iter().filter(|row| wanted & row.0 != 0 && may(row.1));
            Ok(granted.map(|row| row.0).sum())
        })
    }

    fn set_attributes(
        &self,
        context: &Context<'_>,
        ino: Ino,
        change: &SetAttributes,
    ) -> Result<Attributes> {
        let inode = self.inode(ino)?;
        run_as(context, || set(&path_of(&inode), change))?;
        stat(&inode).map_err(to_error)
    }

    fn read_link(&self, context: &Context<'_>, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        let target = run_as(context, || fs::readlinkat(&*inode, "", Vec::new()))?;
        Ok(target.into_bytes())
    }

    fn create(
        &self,
        context: &Context<'_>,
        dir: Ino,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Attributes> {
        let dir = self.inode(dir)?;
        rustix::process::umask(to_mode(new.umask));
        run_as(context, || create_node(&dir, name, new))?;
        self.find(&dir, name)
    }

    fn create_and_open(
        &self,
        context: &Context<'_>,
        (dir, name): (Ino, &[u8]),
        new: &NewInode<'_>,
        create: CreateMode,
        open: OpenMode,
    ) -> Result<Opened<File>> {
        let dir = self.inode(dir)?;
        rustix::process::umask(to_mode(new.umask));
        let flags = open_flags(open) | OFlags::CREATE | OFlags::EXCL;
        let made = run_as(context, || fs::openat(&dir, name, flags, to_mode(new.mode)));
        match made {
            Err(Error::Refused { reason: Reason::Exists })
                if create == CreateMode::OpenExisting =>
            {
                let flags = open_flags(open);
                let fd = run_as(context, || fs::openat(&dir, name, flags, Mode::empty()))?;
                self.opened(fd, false)
            }
            made => self.opened(made?, true),
        }
    }

    fn create_tmpfile(
        &self,
        context: &Context<'_>,
        dir: Ino,
        new: &NewInode<'_>,
        open: OpenMode,
    ) -> Result<Opened<File>> {
        let path = path_of(&*self.inode(dir)?);
        rustix::process::umask(to_mode(new.umask));
        let flags = open_flags(open) | OFlags::TMPFILE;
        self.opened(run_as(context, || fs::open(&path, flags, to_mode(new.mode)))?, true)
    }

    fn link(&self, context: &Context<'_>, file: Ino, dir: Ino, name: &[u8]) -> Result<Attributes> {
        let (inode, dir) = (self.inode(file)?, self.inode(dir)?);
        let path = path_of(&inode);
        run_as(context, || fs::linkat(CWD, &path, &dir, name, AtFlags::SYMLINK_FOLLOW))?;
        stat(&inode).map_err(to_error)
    }

    fn unlink(&self, context: &Context<'_>, dir: Ino, name: &[u8]) -> Result<()> {
        let dir = self.inode(dir)?;
        run_as(context, || fs::unlinkat(&dir, name, AtFlags::empty()))
    }

    fn rmdir(&self, context: &Context<'_>, dir: Ino, name: &[u8]) -> Result<()> {
        let dir = self.inode(dir)?;
        run_as(context, || fs::unlinkat(&dir, name, AtFlags::REMOVEDIR))
    }

    fn rename(&self, context: &Context<'_>, rename: &RenameRequest<'_, Ino>) -> Result<()> {
        let RenameRequest { from_dir, from_name, to_dir, to_name, mode } = *rename;
        let (from_dir, to_dir) = (self.inode(from_dir)?, self.inode(to_dir)?);
        let flags = match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
            RenameMode::Whiteout => RenameFlags::WHITEOUT,
        };
        run_as(context, || fs::renameat_with(&from_dir, from_name, &to_dir, to_name, flags))
    }

    fn open(&self, context: &Context<'_>, ino: Ino, open: OpenMode) -> Result<File> {
        let path = path_of(&*self.inode(ino)?);
        Ok(run_as(context, || fs::open(&path, open_flags(open), Mode::empty()))?.into())
    }

    fn read(
        &self,
        _context: &Context<'_>,
        from: FileOffset<'_, File>,
        into: &mut [u8],
    ) -> Result<usize> {
        rustix::io::pread(from.file, into, from.offset).map_err(to_error)
    }

    fn write(
        &self,
        context: &Context<'_>,
        file: &File,
        at: WriteOffset,
        bytes: &[u8],
    ) -> Result<()> {
        run_as(context, || {
            let written = match at {
                WriteOffset::At(offset) => file.write_all_at(bytes, offset),
                WriteOffset::End => (&*file).write_all(bytes),
            };
            written.map_err(|why| Errno::from_io_error(&why).unwrap_or(Errno::IO))
        })
    }

    fn commit(&self, _context: &Context<'_>, ino: Ino) -> Result<()> {
        let path = path_of(&*self.inode(ino)?);
        let file = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        file.and_then(fs::fsync).map_err(to_error)
    }

    fn commit_all(&self, context: &Context<'_>) -> Result<()> {
        self.sync(context)
    }

    fn truncate(&self, context: &Context<'_>, file: &File, size: u64) -> Result<()> {
        run_as(context, || fs::ftruncate(file, size))
    }

    fn allocate(
        &self,
        context: &Context<'_>,
        file: &File,
        range: Range<u64>,
        mode: AllocateMode,
    ) -> Result<()> {
        let flags = match mode {
            AllocateMode::Extend => FallocateFlags::empty(),
            AllocateMode::KeepSize => FallocateFlags::KEEP_SIZE,
        };
        run_as(context, || fs::fallocate(file, flags, range.start, range.end - range.start))
    }

    fn punch_hole(
        &self,
        context: &Context<'_>,
        file: &File,
        range: Range<u64>,
        mode: AllocateMode,
    ) -> Result<()> {
        let flags = match mode {
            AllocateMode::Extend => FallocateFlags::ZERO_RANGE,
            AllocateMode::KeepSize => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        };
        run_as(context, || fs::fallocate(file, flags, range.start, range.end - range.start))
    }

    fn seek_data(&self, _: &Context<'_>, file: &File, from: u64) -> Result<Option<u64>> {
        match fs::seek(file, SeekFrom::Data(from)) {
            Err(Errno::NXIO) => Ok(None),
            found => found.map(Some).map_err(to_error),
        }
    }

    fn seek_hole(&self, _: &Context<'_>, file: &File, from: u64) -> Result<u64> {
        fs::seek(file, SeekFrom::Hole(from)).map_err(to_error)
    }

    fn clone_range(
        &self,
        _context: &Context<'_>,
        _from: FileOffset<'_, File>,
        _to: FileOffset<'_, File>,
        _length: u64,
    ) -> Result<u64> {
        Err(UNSUPPORTED)
    }

    fn copy_range(
        &self,
        context: &Context<'_>,
        from: FileOffset<'_, File>,
        to: FileOffset<'_, File>,
        length: u64,
    ) -> Result<u64> {
        run_as(context, || {
            let (mut start, mut at) = (from.offset, to.offset);
            while start < from.offset + length {
                let left = usize::try_from(from.offset + length - start).unwrap();
                let (source, target) = (Some(&mut start), Some(&mut at));
                if fs::copy_file_range(from.file, source, to.file, target, left)? == 0 {
                    break;
                }
            }
            Ok(start - from.offset)
        })
    }

    fn open_dir(&self, context: &Context<'_>, ino: Ino) -> Result<OwnedFd> {
        let path = path_of(&*self.inode(ino)?);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        run_as(context, || fs::open(&path, flags, Mode::empty()))
    }

    fn read_dir(
        &self,
        _context: &Context<'_>,
        dir: &OwnedFd,
        cookie: u64,
        visit: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        fs::seek(dir, SeekFrom::Start(cookie)).map_err(to_error)?;
        let mut buffer = vec![MaybeUninit::uninit(); 1 << 15];
        let mut entries = RawDir::new(dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(to_error)?;
            let shown = DirEntry {
                name: entry.file_name().to_bytes().to_vec(),
                ino: Ino::new(entry.ino()),
                kind: FileType::from_mode(entry.file_type().as_raw_mode()),
                next_cookie: entry.next_entry_cookie(),
                needs_lookup: true,
            };
            if !visit(&shown) {
                break;
            }
        }
        Ok(())
    }

    fn xattr_names(&self, context: &Context<'_>, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let path = path_of(&*self.inode(ino)?);
        let mut bytes = vec![0; ALL_XATTRS];
        let count = run_as(context, || fs::listxattr(&path, &mut bytes[..]))?;
        let names = bytes[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    fn xattr(&self, context: &Context<'_>, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let path = path_of(&*self.inode(ino)?);
        let mut bytes = vec![0; ALL_XATTRS];
        match run_as(context, || fs::getxattr(&path, name, &mut bytes[..])) {
            Err(Error::Refused { reason: Reason::NoXattr }) => Ok(None),
            count => {
                bytes.truncate(count?);
                Ok(Some(bytes))
            }
        }
    }

    fn set_xattr(
        &self,
        context: &Context<'_>,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let path = path_of(&*self.inode(ino)?);
        let flags = match mode {
            XattrMode::Any => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        run_as(context, || match value {
            Some(value) => fs::setxattr(&path, name, value, flags),
            None => fs::removexattr(&path, name),
        })
    }

    fn posix_acl(
        &self,
        context: &Context<'_>,
        ino: Ino,
        kind: PosixAclKind,
    ) -> Result<Option<Vec<PosixAclEntry>>> {
        let Some(bytes) = self.xattr(context, ino, kind.xattr_name())? else { return Ok(None) };
        let half = |entry: &[u8], at| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let entries = bytes[4..].chunks_exact(8).map(|entry| PosixAclEntry {
            tag: half(entry, 0),
            permissions: half(entry, 2),
            id: u32::from(half(entry, 4)) | u32::from(half(entry, 6)) << 16,
        });
        Ok(Some(entries.collect()))
    }

    fn set_posix_acl(
        &self,
        context: &Context<'_>,
        ino: Ino,
        kind: PosixAclKind,
        entries: Option<&[PosixAclEntry]>,
    ) -> Result<()> {
        let value = entries.map(|entries| {
            let mut bytes = 2_u32.to_le_bytes().to_vec();
            for entry in entries {
                bytes.extend(entry.tag.to_le_bytes());
                bytes.extend(entry.permissions.to_le_bytes());
                bytes.extend(entry.id.to_le_bytes());
            }
            bytes
        });
        self.set_xattr(context, ino, kind.xattr_name(), value.as_deref(), XattrMode::Any)
    }

    fn nfs4_acl(&self, _context: &Context<'_>, _ino: Ino) -> Result<Vec<Ace>> {
        Err(UNSUPPORTED)
    }

    fn set_nfs4_acl(&self, _context: &Context<'_>, _ino: Ino, _entries: &[Ace]) -> Result<()> {
        Err(UNSUPPORTED)
    }
}
