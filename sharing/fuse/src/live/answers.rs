//! Each question of the kernel, and its answer. Those that change something are in `changes`.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fusedev::{
    CacheTimeouts, DirentBuffer, InitFlags, MAX_REQUEST_BYTES, OpenReply, Reply, ReplyData,
    Request, RequestContext, RequestHandler, Statfs,
};
use rustix::io::Errno;
use vfs::Error;

use super::{LiveServer, SHORT, is_writing};
use crate::convert::{attributes, kind_bits, told};
use crate::ioctl;
use crate::server::{SEEK_DATA, SEEK_HOLE, names, xattr};

impl RequestHandler for LiveServer {
    fn wanted_flags(&self, offered: InitFlags) -> InitFlags {
        // kernels that know of this forget what they keep of a range that is written directly
        self.direct.store(offered.contains(InitFlags::DIRECT_IO_ALLOW_MMAP), Relaxed);
        let mut wishes = InitFlags::union_all(&[
            InitFlags::DONT_MASK,
            InitFlags::EXPORT_SUPPORT,
            InitFlags::READDIRPLUS,
            InitFlags::READDIRPLUS_AUTO,
            InitFlags::PARALLEL_DIROPS,
            InitFlags::CACHE_SYMLINKS,
            InitFlags::HANDLE_KILLPRIV_V2,
            InitFlags::EXPLICIT_INVAL_DATA,
            InitFlags::DIRECT_IO_ALLOW_MMAP,
            InitFlags::IOCTL_DIR,
        ]);
        if self.live.has_posix_acls() {
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
        let _open = self.gate.read();
        match self.answered(asker, ask, out) {
            // the kernel may have had its number from a name that is another's by now: told so, it
            // looks the name up anew
            Err(Errno::NOENT) if !is_about_name(&ask) => Err(Errno::STALE),
            answer => answer,
        }
    }

    fn forget(&self, node: u64) {
        let _open = self.gate.read();
        self.removed.forget(self.number(node));
    }

    fn destroy(&self) {
        // while the pool is still there to free them
        self.removed.take();
    }
}

/// Whether what is not there may be a name rather than the node itself.
fn is_about_name(ask: &Request<'_>) -> bool {
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

impl LiveServer {
    fn answered(
        &self,
        asker: &RequestContext<'_>,
        ask: Request<'_>,
        out: &mut ReplyData<'_>,
    ) -> Result<Reply, Errno> {
        let node = self.number(asker.nodeid);
        match ask {
            Request::Read { handle, offset, size } => self.read(handle, offset, size, out),
            Request::Write { .. } => self.write(asker, ask),
            Request::Readdir { handle, offset, size } => self.list(handle, offset, size),
            Request::Readdirplus { handle, offset, size } => self.list_with(handle, offset, size),
            Request::Lseek { handle, offset, whence } => self.seek(handle, offset, whence),
            Request::Syncfs => self.sync(asker),
            Request::Getxattr { name, size } => xattr(told(self.live.xattr(node, name))?, size),
            Request::Listxattr { size } => {
                let found = names(&told(self.live.xattr_names(node))?, asker.uid);
                xattr(Some(found), size)
            }
            _ => match told(self.looked(node, ask))? {
                Some(answer) => Ok(answer),
                None => self.change(asker, node, ask),
            },
        }
    }

    /// Answers what changes nothing; none: something else was asked.
    fn looked(&self, node: u64, ask: Request<'_>) -> Result<Option<Reply>, Error> {
        Ok(Some(match ask {
            Request::Lookup { name } => self.looked_up(node, name)?,
            Request::Getattr => self.facts(&self.attributes(node)?),
            Request::Statx => {
                let found = self.attributes(node)?;
                Reply::statx(&attributes(&found), self.keeps(&found))
            }
            Request::Readlink => Reply::bytes(self.live.read_link(node)?),
            Request::Open { flags } => {
                if is_writing(flags) {
                    Self::may_open(&self.attributes(node)?, flags)?;
                }
                Reply::open(self.open_file(node, flags)?)
            }
            Request::Flush => Reply::empty(),
            Request::Release { handle } => {
                self.files.remove(handle);
                Reply::empty()
            }
            Request::Opendir => {
                let listing = match self.live.open_dir(node) {
                    Err(Error::NotFound) if self.removed.find(node).is_some() => {
                        self.live.open_removed_dir(node)
                    }
                    listing => listing?,
                };
                Reply::open(OpenReply::new(self.listings.add(listing.into())))
            }
            Request::Releasedir { handle } => {
                self.listings.remove(handle);
                Reply::empty()
            }
            Request::Statfs => self.figures(),
            Request::Ioctl { command, output_size: room, .. } => {
                return Ok(ioctl::told(&self.attributes(node)?, command, room));
            }
            _ => return Ok(None),
        }))
    }

    /// Commits all that was done to the file system. The caller of sync(2) cannot be killed while it waits,
    /// and it waits for all file systems of the machine: so a suspended pool gives an error at once, whatever
    /// its failmode is.
    fn sync(&self, asker: &RequestContext<'_>) -> Result<Reply, Errno> {
        told(asker.run_blocking(|| self.live.sync())).map(|()| Reply::empty())
    }

    fn figures(&self) -> Reply {
        let room = self.live.space();
        let free = room.available / 512;
        let all = free.saturating_add(room.referenced / 512);
        Reply::statfs(&Statfs {
            blocks: all,
            free_blocks: free,
            // as with OpenZFS, there can be as many files as there are free sectors
            files: all,
            free_files: free,
            fragment_size: 512,
            block_size: 128 << 10,
            max_name_len: u32::try_from(self.live.max_name_len()).unwrap_or(u32::MAX),
        })
    }

    fn read(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        out: &mut ReplyData<'_>,
    ) -> Result<Reply, Errno> {
        let file = self.files.find(handle).ok_or(Errno::BADF)?;
        let length = usize::try_from(size.min(MAX_REQUEST_BYTES)).unwrap_or(0);
        told(out.fill_with(length, |into| file.file.read(offset, into)))
    }

    fn list(&self, handle: u64, offset: u64, size: u32) -> Result<Reply, Errno> {
        let listing = self.listings.find(handle).ok_or(Errno::BADF)?;
        let mut page = DirentBuffer::new(size);
        let listed = listing.visit_from(offset, &mut |item| {
            page.add_dirent((item.ino, kind_bits(item.kind)), item.next_cookie, &item.name)
        });
        told(listed)?;
        Ok(page.into_reply())
    }

    fn list_with(&self, handle: u64, offset: u64, size: u32) -> Result<Reply, Errno> {
        let listing = self.listings.find(handle).ok_or(Errno::BADF)?;
        let mut page = DirentBuffer::new(size);
        let most = if listing.is_stored_dir() { SHORT.min(self.names) } else { Duration::ZERO };
        let listed = listing.visit_from(offset, &mut |item| {
            let Some(found) = listing.attributes(item) else {
                return page.add_direntplus_uncached(
                    (item.ino, kind_bits(item.kind)),
                    item.next_cookie,
                    &item.name,
                );
            };
            let validity = CacheTimeouts { entry: most, attr: most.min(self.keeps(&found)) };
            let how = (self.revived.generation(&found), validity);
            page.add_direntplus(item.next_cookie, &item.name, &attributes(&found), how)
        });
        told(listed)?;
        Ok(page.into_reply())
    }

    fn seek(&self, handle: u64, offset: i64, whence: i32) -> Result<Reply, Errno> {
        if whence != SEEK_DATA && whence != SEEK_HOLE {
            return Err(Errno::INVAL);
        }
        match told(self.sought(handle, offset, whence))? {
            Some(found) if i64::try_from(found).is_ok() => Ok(Reply::seek_offset(found)),
            Some(_) => Err(Errno::OVERFLOW),
            None => Err(Errno::NXIO),
        }
    }

    fn sought(&self, handle: u64, offset: i64, whence: i32) -> Result<Option<u64>, Error> {
        let file = &self.files.find(handle).ok_or(Error::NotFound)?.file;
        let Ok(from) = u64::try_from(offset) else { return Ok(None) };
        let size = file.size()?;
        if from >= size {
            return Ok(None);
        }
        // a page that was changed through a mapping may have data where the pool has a hole
        if self.mappable.contains(file.ino()?) {
            return Ok(Some(if whence == SEEK_DATA { from } else { size }));
        }
        match whence {
            SEEK_DATA => file.next_data(from),
            _ => file.next_hole(from).map(Some),
        }
    }
}
