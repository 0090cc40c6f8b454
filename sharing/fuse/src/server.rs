//! The kernel's questions, answered from the tree.

use std::time::Duration;

use fusedev::{
    Ability, Answer, Answers, Ask, Asker, Figures, LARGEST, Opened, Out, Page, Validity,
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
const ALWAYS: Validity = Validity { name: FOR_EVER, attributes: FOR_EVER };

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
pub(crate) fn xattr(value: Option<Vec<u8>>, room: u32) -> std::result::Result<Answer, Errno> {
    let value = value.ok_or(Errno::NODATA)?;
    let size = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    match room {
        0 => Ok(Answer::size(size)),
        room if room < size => Err(Errno::RANGE),
        _ => Ok(Answer::bytes(value)),
    }
}

/// Names of extended attributes for a user, each with a zero byte at its end. The kernel lets only
/// root read those that are trusted, and leaves it to us to tell nobody else of them.
pub(crate) fn names(names: &[Vec<u8>], uid: u32) -> Vec<u8> {
    let names = names.iter().filter(|name| uid == 0 || !name.starts_with(b"trusted."));
    names.flat_map(|name| name.iter().chain(&[0])).copied().collect()
}

type Told = std::result::Result<Answer, Errno>;

impl Answers for Server {
    fn wishes(&self, _offered: Ability) -> Ability {
        let wishes = Ability::all(&[
            Ability::READDIRPLUS,
            Ability::READDIRPLUS_AUTO,
            Ability::PARALLEL_DIROPS,
            Ability::CACHE_SYMLINKS,
            Ability::IOCTL_DIR,
        ]);
        if self.checks_permissions { wishes.and(Ability::POSIX_ACL) } else { wishes }
    }

    fn answer(&self, asker: &Asker<'_>, ask: Ask<'_>, out: &mut Out<'_>) -> Told {
        let node = self.number(asker.node);
        match ask {
            Ask::Read { handle, offset, size } => {
                let reader = self.readers.find(handle).ok_or(Errno::BADF)?;
                let length = usize::try_from(size.min(LARGEST)).unwrap_or(0);
                let mut answer = None;
                let read = reader.read(offset, length, |bytes| answer = Some(out.give(bytes)));
                self.found(node, read)?;
                Ok(answer.unwrap_or_else(Answer::done))
            }
            Ask::Readdir { .. } | Ask::Readdirplus { .. } => self.list(node, ask),
            Ask::Open { flags } => {
                if flags & O_ACCMODE != 0 {
                    return Err(Errno::ROFS);
                }
                let reader = self.found(node, self.tree.open_file(node))?;
                let file = Opened::new(self.readers.add(reader));
                Ok(Answer::opened(file.keeps_content().without_flush()))
            }
            Ask::Opendir => {
                let listing = self.found(node, self.tree.open_dir(node))?;
                let listing = Opened::new(self.listings.add(listing.into()));
                Ok(Answer::opened(listing.keeps_content().keeps_listing()))
            }
            Ask::Lseek { handle, offset, whence } => self.seek(node, handle, (offset, whence)),
            Ask::Release { handle } => {
                self.readers.remove(handle);
                Ok(Answer::done())
            }
            Ask::Releasedir { handle } => {
                self.listings.remove(handle);
                Ok(Answer::done())
            }
            Ask::Listxattr { size } => {
                let found = names(&self.found(node, self.tree.xattr_names(node))?, asker.uid);
                xattr(Some(found), size)
            }
            _ => self.facts(node, ask),
        }
    }
}

impl Server {
    /// Answers questions about a node itself.
    fn facts(&self, node: u64, ask: Ask<'_>) -> Told {
        let tree = &self.tree;
        match ask {
            Ask::Lookup { name } => {
                let found = self.found(node, tree.lookup(node, name))?;
                Ok(Answer::entry(&attributes(&found), found.generation, ALWAYS))
            }
            Ask::Getattr => {
                let found = self.found(node, tree.attributes(node))?;
                Ok(Answer::attributes(&attributes(&found), FOR_EVER))
            }
            Ask::Statx => {
                let found = self.found(node, tree.attributes(node))?;
                Ok(Answer::statx(&attributes(&found), FOR_EVER))
            }
            Ask::Readlink => Ok(Answer::bytes(self.found(node, tree.read_link(node))?)),
            Ask::Access { mask } if mask & W_OK != 0 => Err(Errno::ROFS),
            Ask::Access { .. } | Ask::Flush => Ok(Answer::done()),
            Ask::Statfs => self.figures(node),
            Ask::Getxattr { name, size } => xattr(self.found(node, tree.xattr(node, name))?, size),
            Ask::Ioctl { command, room, .. } => self.ioctl(node, command, room),
            _ => Err(Errno::NOSYS),
        }
    }

    fn figures(&self, node: u64) -> Told {
        let room = self.tree.space(node).map_err(|why| errno(&why))?;
        let free = room.available / 512;
        Ok(Answer::figures(&Figures {
            sectors: free.saturating_add(room.referenced / 512),
            free_sectors: free,
            files: 0,
            free_files: 0,
            sector_size: 512,
            block_size: 128 << 10,
            longest_name: 255,
        }))
    }

    fn list(&self, node: u64, ask: Ask<'_>) -> Told {
        let (handle, offset, size, is_plain) = match ask {
            Ask::Readdir { handle, offset, size } => (handle, offset, size, true),
            Ask::Readdirplus { handle, offset, size } => (handle, offset, size, false),
            _ => return Err(Errno::INVAL),
        };
        let listing = self.listings.find(handle).ok_or(Errno::BADF)?;
        let mut page = Page::new(size);
        let listed = listing.visit_from(offset, &mut |item| {
            if is_plain {
                return page.add((item.ino, kind_bits(item.kind)), item.next_cookie, &item.name);
            }
            match listing.attributes(item) {
                Some(found) => {
                    let how = (found.generation, ALWAYS);
                    page.add_with(item.next_cookie, &item.name, &attributes(&found), how)
                }
                None => {
                    page.add_without((item.ino, kind_bits(item.kind)), item.next_cookie, &item.name)
                }
            }
        });
        self.found(node, listed)?;
        Ok(page.answer())
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
            Some(found) if i64::try_from(found).is_ok() => Ok(Answer::offset(found)),
            Some(_) => Err(Errno::OVERFLOW),
            None => Err(Errno::NXIO),
        }
    }
}
