//! The behaviour of every file system, checked through the contract of file protocols.
//!
//! The checks know only [`FileSystem`]. `vfs` runs them on a pool in memory, `fuse` on a mount.
//!
//! Two users call: Alice (1001, groups 201 and 203) and Bob (1002, group 202); root prepares. Each check has
//! a directory of its own.

mod access;
mod acls;
mod content;
mod directories;
mod links;
mod names;
mod renames;
mod times;

use posix::access::OpenMode;
use posix::{Attributes, Credentials, FileType, Ino, NewInode, SetAttributes, WriteOffset};
use vfs::{Context, DoorId, Error, FileOffset, FileSystem, Reason, Result};

/// A file system under test, and the directory of the running check.
pub(crate) struct Bed<'a, F: FileSystem> {
    pub(crate) fs: &'a F,
    pub(crate) dir: Ino,
    pub(crate) root: Credentials,
    pub(crate) alice: Credentials,
    pub(crate) bob: Credentials,
}

type CheckFn<F> = fn(&Bed<'_, F>);

/// Runs all checks, each in a new directory below the root of the file system.
pub(crate) fn run_all<F: FileSystem>(fs: &F) {
    let checks: &[(&str, CheckFn<F>)] = &[
        ("names", names::check),
        ("links", links::check),
        ("renames", renames::check),
        ("rename failures", renames::check_failures),
        ("modes", access::check_modes),
        ("owners", access::check_owners),
        ("set-ID bits", access::check_setid),
        ("sticky directories", access::check_sticky),
        ("extended attributes", access::check_xattrs),
        ("POSIX ACLs", acls::check),
        ("times", times::check),
        ("holes", content::check_holes),
        ("sizes", content::check_sizes),
        ("append", content::check_append),
        ("exclusive creation", content::check_exclusive),
        ("copies", content::check_copies),
        ("files without names", content::check_unlinked),
        ("directory cookies", directories::check),
    ];
    for (name, check) in checks {
        let root = Credentials::ROOT;
        let context = Context::new(&root, DoorId::new(7));
        let top = fs.root().expect("a root");
        let new =
            NewInode { kind: FileType::Directory, mode: 0o777, umask: 0, ..NewInode::default() };
        eprintln!("conformance: {name}");
        let dir = fs.create(&context, top, name.as_bytes(), &new).expect("a directory").ino;
        check(&Bed {
            fs,
            dir,
            root,
            alice: Credentials::new(1001, 201).with_groups(&[203]),
            bob: Credentials::new(1002, 202),
        });
    }
}

pub(crate) fn context(credentials: &Credentials) -> Context<'_> {
    Context::new(credentials, DoorId::new(7))
}

/// The kind of an error, to be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    NotFound,
    Access,
    NotDirectory,
    IsDirectory,
    OpenMode,
    Refused(Reason),
    Other,
}

impl Failure {
    pub(crate) const EXISTS: Self = Self::Refused(Reason::Exists);
    pub(crate) const NOT_PERMITTED: Self = Self::Refused(Reason::NotPermitted);
}

/// The failure of a call that must fail.
#[expect(clippy::needless_pass_by_value, reason = "calls stand as its argument")]
pub(crate) fn failure<T>(result: Result<T>) -> Failure {
    match result {
        Ok(_) => panic!("the call succeeds"),
        Err(Error::NotFound) => Failure::NotFound,
        Err(Error::AccessDenied) => Failure::Access,
        Err(Error::NotDirectory) => Failure::NotDirectory,
        Err(Error::IsDirectory) => Failure::IsDirectory,
        Err(Error::WrongOpenMode) => Failure::OpenMode,
        Err(Error::Refused { reason }) => Failure::Refused(reason),
        Err(_) => Failure::Other,
    }
}

impl<F: FileSystem> Bed<'_, F> {
    /// Creates something as root.
    pub(crate) fn create(&self, name: &str, kind: FileType, mode: u32) -> Attributes {
        let new = NewInode { kind, mode, umask: 0, ..NewInode::default() };
        self.fs.create(&context(&self.root), self.dir, name.as_bytes(), &new).expect(name)
    }

    pub(crate) fn file(&self, name: &str) -> Ino {
        self.create(name, FileType::File, 0o644).ino
    }

    pub(crate) fn subdir(&self, name: &str) -> Ino {
        self.create(name, FileType::Directory, 0o777).ino
    }

    /// Creates a file of Alice with a mode.
    pub(crate) fn file_of_alice(&self, name: &str, mode: u32) -> Ino {
        let ino = self.file(name);
        self.set(
            ino,
            SetAttributes { uid: Some(1001), gid: Some(201), ..SetAttributes::default() },
        );
        self.set(ino, SetAttributes { mode: Some(mode), ..SetAttributes::default() });
        ino
    }

    /// Sets attributes as root.
    pub(crate) fn set(&self, ino: Ino, set: SetAttributes) -> Attributes {
        self.fs.set_attributes(&context(&self.root), ino, &set).expect("attributes")
    }

    pub(crate) fn stat(&self, ino: Ino) -> Attributes {
        self.fs.attributes(&context(&self.root), ino).expect("attributes")
    }

    pub(crate) fn lookup(&self, name: &str) -> Result<Attributes> {
        self.fs.lookup(&context(&self.root), self.dir, name.as_bytes())
    }

    pub(crate) fn open(&self, by: &Credentials, ino: Ino, mode: OpenMode) -> Result<F::File> {
        self.fs.open(&context(by), ino, mode)
    }

    /// Opens a file as root to write only: the kernel hides holes while a file may be mapped writable.
    pub(crate) fn writer(&self, ino: Ino) -> F::File {
        let mode = OpenMode { write: true, ..OpenMode::default() };
        self.open(&self.root, ino, mode).expect("an open file")
    }

    pub(crate) fn write(&self, file: &F::File, offset: u64, bytes: &[u8]) -> Result<()> {
        self.fs.write(&context(&self.root), file, WriteOffset::At(offset), bytes)
    }

    /// Up to 64 KiB of a file from an offset on.
    pub(crate) fn read_open(&self, file: &F::File, offset: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0xaa; 1 << 16];
        let from = FileOffset { file, offset };
        let count = self.fs.read(&context(&self.root), from, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    pub(crate) fn read(&self, ino: Ino) -> Vec<u8> {
        let file = self.open(&self.root, ino, OpenMode::READ).expect("an open file");
        self.read_open(&file, 0).expect("content")
    }
}
