//! Each question of the kernel, and its answer. Those that change something are in `changes`.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fusedev::{
    Ability, Answer, Answers, Ask, Asker, Figures, LARGEST, Opened, Out, Page, Validity,
};
use rustix::io::Errno;
use vfs::Error;

use super::{LiveServer, SHORT, is_writing};
use crate::convert::{attributes, kind_bits, told};
use crate::ioctl;
use crate::server::{SEEK_DATA, SEEK_HOLE, names, xattr};

impl Answers for LiveServer {
    fn wishes(&self, offered: Ability) -> Ability {
        // kernels that know of this forget what they keep of a range that is written directly
        self.direct.store(offered.has(Ability::DIRECT_IO_ALLOW_MMAP), Relaxed);
        let mut wishes = Ability::all(&[
            Ability::DONT_MASK,
            Ability::EXPORT_SUPPORT,
            Ability::READDIRPLUS,
            Ability::READDIRPLUS_AUTO,
            Ability::PARALLEL_DIROPS,
            Ability::CACHE_SYMLINKS,
            Ability::HANDLE_KILLPRIV_V2,
            Ability::EXPLICIT_INVAL_DATA,
            Ability::DIRECT_IO_ALLOW_MMAP,
            Ability::IOCTL_DIR,
        ]);
        if self.live.has_posix_acls() {
            wishes = wishes.and(Ability::POSIX_ACL);
        }
        wishes
    }

    fn answer(&self, asker: &Asker<'_>, ask: Ask<'_>, out: &mut Out<'_>) -> Result<Answer, Errno> {
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

    fn end(&self) {
        // while the pool is still there to free them
        self.removed.take();
    }
}

/// Whether what is not there may be a name rather than the node itself.
fn is_about_name(ask: &Ask<'_>) -> bool {
    matches!(
        ask,
        Ask::Lookup { .. }
            | Ask::Symlink { .. }
            | Ask::Mknod { .. }
            | Ask::Mkdir { .. }
            | Ask::Create { .. }
            | Ask::Tmpfile { .. }
            | Ask::Unlink { .. }
            | Ask::Rmdir { .. }
            | Ask::Rename { .. }
            | Ask::Link { .. }
    )
}

impl LiveServer {
    fn answered(
        &self,
        asker: &Asker<'_>,
        ask: Ask<'_>,
        out: &mut Out<'_>,
    ) -> Result<Answer, Errno> {
        let node = self.number(asker.node);
        match ask {
            Ask::Read { handle, offset, size } => self.read(handle, offset, size, out),
            Ask::Write { .. } => self.write(asker, ask),
            Ask::Readdir { handle, offset, size } => self.list(handle, offset, size),
            Ask::Readdirplus { handle, offset, size } => self.list_with(handle, offset, size),
            Ask::Lseek { handle, offset, whence } => self.seek(handle, offset, whence),
            Ask::Syncfs => self.sync(asker),
            Ask::Getxattr { name, size } => xattr(told(self.live.xattr(node, name))?, size),
            Ask::Listxattr { size } => {
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
    fn looked(&self, node: u64, ask: Ask<'_>) -> Result<Option<Answer>, Error> {
        Ok(Some(match ask {
            Ask::Lookup { name } => self.looked_up(node, name)?,
            Ask::Getattr => self.facts(&self.attributes(node)?),
            Ask::Statx => {
                let found = self.attributes(node)?;
                Answer::statx(&attributes(&found), self.keeps(&found))
            }
            Ask::Readlink => Answer::bytes(self.live.read_link(node)?),
            Ask::Open { flags } => {
                if is_writing(flags) {
                    Self::may_open(&self.attributes(node)?, flags)?;
                }
                Answer::opened(self.open_file(node, flags)?)
            }
            Ask::Flush => Answer::done(),
            Ask::Release { handle } => {
                self.files.remove(handle);
                Answer::done()
            }
            Ask::Opendir => {
                let listing = match self.live.open_dir(node) {
                    Err(Error::NotFound) if self.removed.find(node).is_some() => {
                        self.live.open_removed_dir(node)
                    }
                    listing => listing?,
                };
                Answer::opened(Opened::new(self.listings.add(listing.into())))
            }
            Ask::Releasedir { handle } => {
                self.listings.remove(handle);
                Answer::done()
            }
            Ask::Statfs => self.figures(),
            Ask::Ioctl { command, room, .. } => {
                return Ok(ioctl::told(&self.attributes(node)?, command, room));
            }
            _ => return Ok(None),
        }))
    }

    /// Commits all that was done to the file system. The caller of sync(2) cannot be killed while it waits,
    /// and it waits for all file systems of the machine: so a suspended pool gives an error at once, whatever
    /// its failmode is.
    fn sync(&self, asker: &Asker<'_>) -> Result<Answer, Errno> {
        told(asker.at_leisure(|| self.live.sync())).map(|()| Answer::done())
    }

    fn figures(&self) -> Answer {
        let room = self.live.space();
        let free = room.available / 512;
        let all = free.saturating_add(room.referenced / 512);
        Answer::figures(&Figures {
            sectors: all,
            free_sectors: free,
            // as with OpenZFS, there can be as many files as there are free sectors
            files: all,
            free_files: free,
            sector_size: 512,
            block_size: 128 << 10,
            longest_name: u32::try_from(self.live.max_name_len()).unwrap_or(u32::MAX),
        })
    }

    fn read(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        out: &mut Out<'_>,
    ) -> Result<Answer, Errno> {
        let file = self.files.find(handle).ok_or(Errno::BADF)?;
        let length = usize::try_from(size.min(LARGEST)).unwrap_or(0);
        told(out.fill(length, |into| file.file.read(offset, into)))
    }

    fn list(&self, handle: u64, offset: u64, size: u32) -> Result<Answer, Errno> {
        let listing = self.listings.find(handle).ok_or(Errno::BADF)?;
        let mut page = Page::new(size);
        let listed = listing.visit_from(offset, &mut |item| {
            page.add((item.ino, kind_bits(item.kind)), item.next_cookie, &item.name)
        });
        told(listed)?;
        Ok(page.answer())
    }

    fn list_with(&self, handle: u64, offset: u64, size: u32) -> Result<Answer, Errno> {
        let listing = self.listings.find(handle).ok_or(Errno::BADF)?;
        let mut page = Page::new(size);
        let most = if listing.is_stored_dir() { SHORT.min(self.names) } else { Duration::ZERO };
        let listed = listing.visit_from(offset, &mut |item| {
            let Some(found) = listing.attributes(item) else {
                return page.add_without(
                    (item.ino, kind_bits(item.kind)),
                    item.next_cookie,
                    &item.name,
                );
            };
            let validity = Validity { name: most, attributes: most.min(self.keeps(&found)) };
            let how = (self.revived.generation(&found), validity);
            page.add_with(item.next_cookie, &item.name, &attributes(&found), how)
        });
        told(listed)?;
        Ok(page.answer())
    }

    fn seek(&self, handle: u64, offset: i64, whence: i32) -> Result<Answer, Errno> {
        if whence != SEEK_DATA && whence != SEEK_HOLE {
            return Err(Errno::INVAL);
        }
        match told(self.sought(handle, offset, whence))? {
            Some(found) if i64::try_from(found).is_ok() => Ok(Answer::offset(found)),
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
