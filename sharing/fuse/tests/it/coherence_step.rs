//! Steps of random histories, done to a folder or by an in-process client of a file system.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Instant;

use posix::access::OpenMode;
use posix::{
    Credentials, FileType, Ino, NewInode, RenameMode, RenameRequest, SetAttributes, WriteOffset,
    XattrMode,
};
use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};
use vfs::{
    AllocateMode, Context, CreateMode, DoorId, Error, FileOffset, FileSystem as _, OpenFile,
    PoolFileSystem, Reason, Result, SharedFileSystem as _,
};

use crate::coherence::{Tree, hash_of};
use crate::mounted_pool::Random;

/// One change. Files are called f, symbolic links s, directories d, so that none becomes another.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Step {
    Write { path: String, at: u64, fill: Fill },
    Append { path: String, fill: Fill },
    Truncate { path: String, size: u64 },
    Punch { path: String, at: u64, length: u64 },
    Chmod { path: String, mode: u32 },
    Xattr { path: String, value: Vec<u8> },
    Unlink { path: String },
    Link { path: String, to: String },
    Symlink { path: String, target: String },
    Mkdir { path: String },
    Rmdir { path: String },
    Rename { path: String, to: String },
    Exchange { path: String, to: String },
}

/// Bytes to be written, all the same.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Fill {
    byte: u8,
    length: usize,
}

impl Fill {
    fn bytes(self) -> Vec<u8> {
        vec![self.byte; self.length]
    }
}

const DIRS: [&str; 6] = ["", "a/", "b/", "a/c/", "d0/", "a/d1/"];
const NAMES: u64 = 3;

/// All names that a step can use.
pub(crate) fn step_names() -> Vec<String> {
    let of_dir = |dir: &&str| {
        let dir = (*dir).to_owned();
        let letters = ["f", "s", "d"].into_iter();
        letters.flat_map(move |letter| {
            let dir = dir.clone();
            (0..NAMES).map(move |number| format!("{dir}{letter}{number}"))
        })
    };
    DIRS.iter().flat_map(of_dir).collect()
}

impl Step {
    pub(crate) fn roll(random: &mut Random) -> Self {
        let what = random.next_below(18);
        let letter = match what {
            10 => 's',
            11..=13 => 'd',
            14 | 15 => ['f', 's', 'd'][usize::try_from(random.next_below(3)).unwrap()],
            _ => 'f',
        };
        let mut name = || {
            let dir = DIRS[usize::try_from(random.next_below(6)).unwrap()];
            // most steps are in few places, so that they meet
            let dir = if random.next_below(2) == 0 { "" } else { dir };
            format!("{dir}{letter}{}", random.next_below(NAMES))
        };
        let (path, to) = (name(), name());
        let (at, length) = (random.next_below(40_000), random.next_below(9000) + 1);
        let fill = u8::try_from(random.next_below(255) + 1).unwrap();
        let (byte, fill_length) = (fill, usize::try_from(length).unwrap());
        let data = Fill { byte, length: fill_length };
        match what {
            0..=2 => Self::Write { path, at, fill: data },
            3 => Self::Append { path, fill: data },
            4 => Self::Truncate { path, size: at },
            5 => Self::Punch { path, at, length: length * 4 },
            6 => Self::Chmod { path, mode: 0o600 | u32::from(fill) & 0o177 },
            7 => Self::Xattr { path, value: vec![fill; 3] },
            8 | 9 => Self::Unlink { path },
            10 if fill < 100 => Self::Unlink { path },
            10 => Self::Symlink { path, target: format!("to-{at}") },
            11 | 12 => Self::Mkdir { path },
            13 => Self::Rmdir { path },
            14 | 15 => Self::Rename { path, to },
            16 => Self::Exchange { path, to },
            _ => Self::Link { path, to },
        }
    }

    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Write { path, .. }
            | Self::Append { path, .. }
            | Self::Truncate { path, .. }
            | Self::Punch { path, .. }
            | Self::Chmod { path, .. }
            | Self::Xattr { path, .. }
            | Self::Unlink { path }
            | Self::Link { path, .. }
            | Self::Symlink { path, .. }
            | Self::Mkdir { path }
            | Self::Rmdir { path }
            | Self::Rename { path, .. }
            | Self::Exchange { path, .. } => path,
        }
    }

    /// Does it to a folder.
    pub(crate) fn apply_to_dir(&self, root: &Path) -> io::Result<()> {
        let path = root.join(self.path());
        let open = || OpenOptions::new().read(true).write(true).open(&path);
        match self {
            Self::Write { at, fill, .. } => {
                let how = OpenOptions::new().create(true).truncate(false).write(true).clone();
                how.open(&path)?.write_all_at(&fill.bytes(), *at)
            }
            Self::Append { fill, .. } => {
                OpenOptions::new().append(true).open(&path)?.write_all(&fill.bytes())
            }
            Self::Truncate { size, .. } => open()?.set_len(*size),
            Self::Punch { at, length, .. } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(fallocate(&open()?, flags, *at, *length)?)
            }
            Self::Chmod { mode, .. } => fs::set_permissions(&path, Permissions::from_mode(*mode)),
            Self::Xattr { value, .. } => {
                let flags = rustix::fs::XattrFlags::empty();
                Ok(rustix::fs::setxattr(&path, "user.step", value, flags)?)
            }
            Self::Unlink { .. } => fs::remove_file(&path),
            Self::Link { to, .. } => fs::hard_link(&path, root.join(to)),
            Self::Symlink { target, .. } => symlink(target, &path),
            Self::Mkdir { .. } => fs::create_dir(&path),
            Self::Rmdir { .. } => fs::remove_dir(&path),
            Self::Rename { to, .. } => fs::rename(&path, root.join(to)),
            Self::Exchange { to, .. } => {
                let flags = RenameFlags::EXCHANGE;
                Ok(renameat_with(CWD, &path, CWD, root.join(to), flags)?)
            }
        }
    }
}

/// A client of a file system within the process, by a door of its own.
#[derive(Clone)]
pub(crate) struct InProcess {
    fs: PoolFileSystem,
    door: DoorId,
}

impl InProcess {
    pub(crate) fn new(fs: &PoolFileSystem) -> Self {
        Self { fs: fs.clone(), door: DoorId::new_unique() }
    }

    /// Waits until the mount has handled all that this client has changed.
    pub(crate) fn wait_until_handled(&self, deadline: Instant) {
        assert!(self.fs.changes().wait_until_handled(self.door, deadline), "a mount hangs");
    }

    fn context(&self) -> Context<'static> {
        Context::new(&Credentials::ROOT, self.door)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<posix::Attributes> {
        self.fs.lookup(&self.context(), dir, name)
    }

    /// The directory of a path, and the last name in it.
    fn parent<'a>(&self, path: &'a str) -> Result<(Ino, &'a [u8])> {
        let mut parts: Vec<&str> = path.split('/').collect();
        let name = parts.pop().unwrap().as_bytes();
        let mut dir = self.fs.root_ino();
        for part in parts {
            dir = self.lookup(dir, part.as_bytes())?.ino;
        }
        Ok((dir, name))
    }

    fn find(&self, path: &str) -> Result<Ino> {
        let (dir, name) = self.parent(path)?;
        Ok(self.lookup(dir, name)?.ino)
    }

    fn open(&self, path: &str) -> Result<OpenFile> {
        self.fs.open(&self.context(), self.find(path)?, OpenMode::READ_WRITE)
    }

    fn create(&self, path: &str, kind: FileType, target: &[u8]) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        self.fs.create(&self.context(), dir, name, &new_inode(kind, target)).map(drop)
    }

    fn set(&self, path: &str, set: &SetAttributes) -> Result<()> {
        self.fs.set_attributes(&self.context(), self.find(path)?, set).map(drop)
    }

    pub(crate) fn apply(&self, step: &Step) -> Result<()> {
        let (context, none) = (self.context(), SetAttributes::default());
        match step {
            Step::Write { path, at, fill } => {
                let new = new_inode(FileType::File, b"");
                let (create, open) = (CreateMode::OpenExisting, OpenMode::READ_WRITE);
                let entry = self.parent(path)?;
                let file = self.fs.create_and_open(&context, entry, &new, create, open)?.file;
                self.fs.write(&context, &file, WriteOffset::At(*at), &fill.bytes())
            }
            Step::Append { path, fill } => {
                self.fs.write(&context, &self.open(path)?, WriteOffset::End, &fill.bytes())
            }
            Step::Truncate { path, size } => self.fs.truncate(&context, &self.open(path)?, *size),
            Step::Punch { path, at, length } => {
                let (file, range) = (self.open(path)?, *at..at + length);
                self.fs.punch_hole(&context, &file, range, AllocateMode::KeepSize)
            }
            Step::Chmod { path, mode } => {
                self.set(path, &SetAttributes { mode: Some(*mode), ..none })
            }
            Step::Xattr { path, value } => {
                let (file, value) = (self.find(path)?, Some(&value[..]));
                self.fs.set_xattr(&context, file, b"user.step", value, XattrMode::Any)
            }
            Step::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                self.fs.unlink(&context, dir, name)
            }
            Step::Link { path, to } => {
                let (file, (dir, name)) = (self.find(path)?, self.parent(to)?);
                self.fs.link(&context, file, dir, name).map(drop)
            }
            Step::Symlink { path, target } => {
                self.create(path, FileType::Symlink, target.as_bytes())
            }
            Step::Mkdir { path } => self.create(path, FileType::Directory, b""),
            Step::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                self.fs.rmdir(&context, dir, name)
            }
            Step::Rename { path, to } => self.rename(path, to, RenameMode::Replace),
            Step::Exchange { path, to } => self.rename(path, to, RenameMode::Exchange),
        }
    }

    fn rename(&self, from: &str, to: &str, mode: RenameMode) -> Result<()> {
        // the kernel's checks before it sends a request
        let is_below = |path: &str, dir: &str| path.starts_with(&format!("{dir}/"));
        if is_below(to, from) || is_below(from, to) {
            self.find(from)?;
            return Err(Error::Refused { reason: Reason::Invalid });
        }
        let ((from_dir, from_name), (to_dir, to_name)) = (self.parent(from)?, self.parent(to)?);
        let request = RenameRequest { from_dir, from_name, to_dir, to_name, mode };
        self.fs.rename(&self.context(), &request)
    }

    /// Everything that the client sees.
    pub(crate) fn read_tree(&self) -> Tree {
        let context = self.context();
        let (mut all, mut dirs) = (Tree::new(), vec![(String::new(), self.fs.root_ino())]);
        while let Some((above, dir)) = dirs.pop() {
            let mut names = Vec::new();
            let list = self.fs.open_dir(&context, dir).unwrap();
            let shown = self.fs.read_dir(&context, &list, 0, &mut |entry| {
                names.push(entry.name.clone());
                true
            });
            shown.unwrap();
            for name in names.iter().filter(|name| ![&b"."[..], b".."].contains(&&name[..])) {
                let found = self.lookup(dir, name).unwrap();
                let path = format!("{above}{}", str::from_utf8(name).unwrap());
                let (bits, content, links) = match found.kind {
                    FileType::Directory => (0o40_000, Vec::new(), 0),
                    FileType::Symlink => {
                        let target = self.fs.read_link(&context, found.ino).unwrap();
                        (0o120_000, target, found.nlink)
                    }
                    _ => (0o100_000, self.read(found.ino, found.size), found.nlink),
                };
                if found.kind == FileType::Directory {
                    dirs.push((format!("{path}/"), found.ino));
                }
                all.insert(path, (bits | found.mode, links, hash_of(&content)));
            }
        }
        all
    }

    fn read(&self, ino: Ino, size: u64) -> Vec<u8> {
        let file = &self.fs.open(&self.context(), ino, OpenMode::READ).unwrap();
        let mut bytes = vec![0; usize::try_from(size).unwrap()];
        let from = FileOffset { file, offset: 0 };
        let count = self.fs.read(&self.context(), from, &mut bytes).unwrap();
        assert_eq!(count, bytes.len());
        bytes
    }

    /// Changes files through the mount's own door, so that the mount is not notified, and then
    /// reports lost changes.
    pub(crate) fn change_unheard(&self, mount: DoorId) {
        let unheard = Self { fs: self.fs.clone(), door: mount };
        for (path, length) in [("f0", 5), ("a/c/f2", 100), ("a/new", 3)] {
            let (path, fill) = (path.to_owned(), Fill { byte: b'n', length });
            unheard.apply(&Step::Write { path, at: 0, fill }).unwrap();
        }
        unheard.apply(&Step::Unlink { path: "a/f1".to_owned() }).unwrap();
        self.fs.changes().publish_overflow(self.door);
        self.wait_until_handled(Instant::now() + std::time::Duration::from_secs(30));
    }
}

fn new_inode(kind: FileType, target: &[u8]) -> NewInode<'_> {
    let mode = match kind {
        FileType::Directory => 0o755,
        FileType::Symlink => 0o777,
        _ => 0o644,
    };
    NewInode { kind, mode, umask: 0, rdev: (0, 0), target, times: None }
}
