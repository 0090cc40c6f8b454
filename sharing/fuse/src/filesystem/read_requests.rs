//! Handlers of requests that change nothing; `write_requests` has the others.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fusedev::{
    CacheTimeouts, DirentBuffer, ForgottenNode, InitFlags, MAX_REQUEST_BYTES, OpenReply, Reply,
    ReplyData, Request, RequestContext, RequestHandler, Statfs,
};
use posix::Ino;
use posix::acl::nfs4::mask;
use rustix::io::Errno;
use vfs::{DatasetSpace, Error, FileOffset, FileSystem};

use super::{FileSystemServer, O_NOATIME, SHORT_TIMEOUT};
use crate::convert::{file_type_bits, map_errno, to_attr};
use crate::ioctl;
use crate::tree_server::{SEEK_DATA, SEEK_HOLE, encode_xattr_names, xattr_reply};

const R_OK: u32 = 4;
const W_OK: u32 = 2;
const X_OK: u32 = 1;

impl RequestHandler for FileSystemServer {
    fn wanted_flags(&self, offered: InitFlags) -> InitFlags {
        // such kernels invalidate cached pages of a range that is written directly
        self.has_direct_io_mmap.store(offered.contains(InitFlags::DIRECT_IO_ALLOW_MMAP), Relaxed);
        let can_expire = offered.contains(InitFlags::HAS_EXPIRE_ONLY);
        self.can_expire_names.store(can_expire, Relaxed);
        let mut wishes = InitFlags::union_all(&[
            InitFlags::DONT_MASK,
            InitFlags::EXPORT_SUPPORT,
            InitFlags::POSIX_LOCKS,
            InitFlags::FLOCK_LOCKS,
            InitFlags::READDIRPLUS,
            InitFlags::READDIRPLUS_AUTO,
            InitFlags::PARALLEL_DIROPS,
            InitFlags::CACHE_SYMLINKS,
            InitFlags::HANDLE_KILLPRIV_V2,
            InitFlags::EXPLICIT_INVAL_DATA,
            InitFlags::DIRECT_IO_ALLOW_MMAP,
            InitFlags::IOCTL_DIR,
            InitFlags::HAS_EXPIRE_ONLY,
        ]);
        // also with acltype=off, as it can be changed to posix at any time; the flag has the kernel check permissions
        if !self.fs.has_nfs4_acls() {
            wishes = wishes.union(InitFlags::POSIX_ACL);
        }
        wishes
    }

    fn handle(
        &self,
        asker: &RequestContext<'_>,
        ask: Request<'_>,
        out: &mut ReplyData<'_>,
    ) -> Result<Reply, Errno> {
        if let Request::Setlk { lock, waits } = ask {
            // it may wait for long, and a rollback must not wait for it
            return self.set_lock(asker, self.to_ino(asker.nodeid), &lock, waits);
        }
        if self.mounts_snapshot(asker, &ask) {
            return Err(Errno::STALE);
        }
        let _open = self.rollback_gate.read();
        match self.dispatch(asker, ask, out) {
            // the kernel may have the inode number from a name that belongs to another file by now:
            // this error makes it look the name up again
            Err(Errno::NOENT) if !is_name_request(&ask) => Err(Errno::STALE),
            answer => answer,
        }
    }

    fn forget(&self, node: ForgottenNode) {
        let _open = self.rollback_gate.read();
        let ino = self.to_ino(node.nodeid);
        self.known.remove(ino, node.lookups);
        self.fs.forget(ino);
    }

    fn interrupt(&self, unique: u64) {
        self.locks.interrupt(unique);
    }

    fn destroy(&self) {
        self.end_invalidation();
        self.end_locks();
        if let Some(snapshots) = self.snapshots.get() {
            snapshots.unmount_all();
        }
        // while the pool is still there to free them
        drop(self.unlinked_keeper.lock().take());
    }
}

/// Whether the missing object may be a name rather than the node itself.
fn is_name_request(ask: &Request<'_>) -> bool {
    matches!(
        ask,
        Request::Lookup { .. }
            | Request::Symlink { .. }
            | Request::Mknod { .. }
            | Request::Mkdir { .. }
            | Request::Create { .. }
            | Request::Tmpfile { .. }
            | Request::Unlink { .. }
            | Request::Rmdir { .. }
            | Request::Rename { .. }
            | Request::Link { .. }
    )
}

impl FileSystemServer {
    fn dispatch(
        &self,
        asker: &RequestContext<'_>,
        ask: Request<'_>,
        out: &mut ReplyData<'_>,
    ) -> Result<Reply, Errno> {
        let (node, ino) = (asker.nodeid, self.to_ino(asker.nodeid));
        match ask {
            Request::Read { handle, offset, size } => self.read(asker, (handle, offset), size, out),
            Request::Write { .. } => self.write(asker, ask),
            Request::Readdir { handle, offset, size } => self.readdir(handle, offset, size),
            Request::Readdirplus { handle, offset, size } => self.readdirplus(handle, offset, size),
            Request::Lseek { handle, offset, whence } => self.lseek(handle, offset, whence),
            Request::Syncfs => self.sync(asker),
            Request::Getxattr { name, size } => {
                let caller = self.caller(asker);
                let value = if self.is_acl_xattr(name) {
                    Some(self.acl_xattr(&caller.context(), ino, name)?)
                } else if self.hides_posix_acl(name) {
                    None
                } else {
                    map_errno(self.fs.xattr(&caller.context(), ino, name))?
                };
                xattr_reply(value, size)
            }
            Request::Listxattr { size } => {
                let caller = self.caller(asker);
                let mut names = map_errno(self.fs.xattr_names(&caller.context(), ino))?;
                names.extend(self.listed_acl_xattr(&caller.context(), ino));
                xattr_reply(Some(encode_xattr_names(&names, asker.uid)), size)
            }
            Request::Access { mask } => self.access(asker, ino, mask),
            Request::Getlk(lock) => self.get_lock(ino, &lock),
            _ => match map_errno(self.handle_read_request(asker, ask))? {
                Some(answer) => Ok(answer),
                None => self.handle_write_request(asker, node, ask),
            },
        }
    }

    /// Handles requests that change nothing; none: the request is another.
    fn handle_read_request(
        &self,
        asker: &RequestContext<'_>,
        ask: Request<'_>,
    ) -> Result<Option<Reply>, Error> {
        let caller = self.caller(asker);
        let (context, ino) = (&caller.context(), self.to_ino(asker.nodeid));
        Ok(Some(match ask {
            Request::Lookup { name } => self.lookup(context, ino, name)?,
            Request::Getattr => self.attr_reply(&self.fs.attributes(context, ino)?),
            Request::Statx => {
                let found = self.fs.attributes(context, ino)?;
                Reply::statx(&to_attr(&found), self.attr_timeout(&found))
            }
            Request::Readlink => Reply::bytes(self.fs.read_link(context, ino)?),
            Request::Open { flags } => Reply::open(self.open_file(context, ino, flags)?),
            Request::Flush { lock_owner } => {
                self.flush_locks(ino, lock_owner);
                Reply::empty()
            }
            Request::Release { handle, flock_owner } => {
                self.release_locks(ino, handle, flock_owner);
                self.open_files.remove(handle);
                Reply::empty()
            }
            Request::Opendir { flags } => {
                let dir = self.fs.open_dir(context, ino)?;
                let dir = if flags & O_NOATIME != 0 { dir.without_atime() } else { dir };
                Reply::open(OpenReply::new(self.open_dirs.insert(dir.into())))
            }
            Request::Releasedir { handle } => {
                self.open_dirs.remove(handle);
                Reply::empty()
            }
            Request::Statfs => self.statfs(&self.fs.space(context, ino)?),
            Request::Ioctl { command, output_size: room, .. } => {
                let found = self.fs.attributes(context, ino)?;
                return Ok(ioctl::handle_get_ioctl(&found, command, room));
            }
            _ => return Ok(None),
        }))
    }

    /// Commits all changes of the file system. The caller of sync(2) cannot be killed while it
    /// waits, and it waits for all file systems of the machine. So a suspended pool gives an error
    /// at once, whatever its failmode is.
    fn sync(&self, asker: &RequestContext<'_>) -> Result<Reply, Errno> {
        let caller = self.handle_caller(asker);
        let synced = asker.run_blocking(|| self.fs.sync(&caller.context()));
        map_errno(synced).map(|()| Reply::empty())
    }

    /// Whether a program may access a file (access(2)).
    fn access(&self, asker: &RequestContext<'_>, ino: Ino, mask: u32) -> Result<Reply, Errno> {
        if !self.checks_access {
            return Err(Errno::NOSYS);
        }
        let caller = self.caller(asker).with_real_user();
        let rows = [(R_OK, mask::READ_DATA), (W_OK, mask::WRITE_DATA), (X_OK, mask::EXECUTE)];
        let wanted = rows.iter().filter(|row| mask & row.0 != 0).map(|row| row.1).sum();
        let granted = map_errno(self.fs.access(&caller.context(), ino, wanted))?;
        if granted == wanted { Ok(Reply::empty()) } else { Err(Errno::ACCESS) }
    }

    fn statfs(&self, room: &DatasetSpace) -> Reply {
        let free = room.available / 512;
        let all = free + room.referenced / 512;
        Reply::statfs(&Statfs {
            blocks: all,
            free_blocks: free,
            // as with OpenZFS, there can be as many files as there are free sectors
            files: all,
            free_files: free,
            fragment_size: 512,
            block_size: 128 << 10,
            max_name_len: units::narrow::<u32>(self.fs.max_name_len()),
        })
    }

    fn read(
        &self,
        asker: &RequestContext<'_>,
        (handle, offset): (u64, u64),
        size: u32,
        out: &mut ReplyData<'_>,
    ) -> Result<Reply, Errno> {
        let file = self.open_files.get(handle).ok_or(Errno::BADF)?;
        let length = units::to_usize(size.min(MAX_REQUEST_BYTES));
        let (caller, file) = (self.handle_caller(asker), &file.file);
        let context = caller.context();
        let read = |into: &mut [u8]| self.fs.read(&context, FileOffset { file, offset }, into);
        map_errno(out.fill_with(length, read))
    }

    fn readdir(&self, handle: u64, offset: u64, size: u32) -> Result<Reply, Errno> {
        let listing = self.open_dirs.get(handle).ok_or(Errno::BADF)?;
        let mut page = DirentBuffer::new(size);
        let listed = listing.visit_from(offset, &mut |item| {
            page.add_dirent(
                (item.ino.get(), file_type_bits(item.kind)),
                item.next_cookie,
                &item.name,
            )
        });
        map_errno(listed)?;
        Ok(page.into_reply())
    }

    fn readdirplus(&self, handle: u64, offset: u64, size: u32) -> Result<Reply, Errno> {
        let listing = self.open_dirs.get(handle).ok_or(Errno::BADF)?;
        let mut page = DirentBuffer::new(size);
        let most = if listing.is_stored_dir() {
            SHORT_TIMEOUT.min(self.entry_timeout)
        } else {
            Duration::ZERO
        };
        let listed = listing.visit_from(offset, &mut |item| {
            let Some(found) = listing.attributes(item) else {
                return page.add_direntplus_uncached(
                    (item.ino.get(), file_type_bits(item.kind)),
                    item.next_cookie,
                    &item.name,
                );
            };
            let validity = CacheTimeouts { entry: most, attr: most.min(self.attr_timeout(&found)) };
            let how = (self.restored_dirs.generation(&found), validity);
            let is_added = page.add_direntplus(item.next_cookie, &item.name, &to_attr(&found), how);
            // the kernel does not count these two
            if is_added && ![&b"."[..], b".."].contains(&&item.name[..]) {
                self.known.add(found.ino);
            }
            is_added
        });
        map_errno(listed)?;
        Ok(page.into_reply())
    }

    fn lseek(&self, handle: u64, offset: i64, whence: i32) -> Result<Reply, Errno> {
        if whence != SEEK_DATA && whence != SEEK_HOLE {
            return Err(Errno::INVAL);
        }
        match map_errno(self.find_seek_offset(handle, offset, whence))? {
            Some(found) if i64::try_from(found).is_ok() => Ok(Reply::seek_offset(found)),
            Some(_) => Err(Errno::OVERFLOW),
            None => Err(Errno::NXIO),
        }
    }

    fn find_seek_offset(
        &self,
        handle: u64,
        offset: i64,
        whence: i32,
    ) -> Result<Option<u64>, Error> {
        let file = &self.open_files.get(handle).ok_or(Error::NotFound)?.file;
        let Ok(from) = u64::try_from(offset) else { return Ok(None) };
        let size = file.size()?;
        if from >= size {
            return Ok(None);
        }
        // a page that was changed through a mapping may have data where the pool has a hole
        if self.mappable.contains(file.ino()?.get()) {
            return Ok(Some(if whence == SEEK_DATA { from } else { size }));
        }
        match whence {
            SEEK_DATA => file.next_data(from),
            _ => file.next_hole(from).map(Some),
        }
    }
}
