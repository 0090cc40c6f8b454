//! The contract between file protocols and file systems.
//!
//! A protocol keeps no file of its own: it calls a [`FileSystem`] with the caller's credentials,
//! and the file system checks permissions, waits for a suspended pool, drops set-ID bits and
//! capabilities, and keeps open files whose last name is gone. So a file behaves the same in every
//! protocol.
//!
//! Permission to read and write is checked when a file is opened; reads and writes check only the
//! open mode, as POSIX requires.

use std::ops::Range;

use engine::files::DatasetSpace;
use posix::access::OpenMode;
use posix::acl::{Ace, PosixAclEntry, PosixAclKind};
use posix::{Attributes, Ino, NewInode, RenameRequest, SetAttributes, WriteOffset, XattrMode};

use crate::{Context, DirEntry, Result};

/// The abilities of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of its own")]
pub struct Limits {
    /// The most bytes of a name.
    pub max_name_len: usize,
    /// Whether two names are the same only if all their bytes are.
    pub has_exact_names: bool,
    /// Whether files have POSIX ACLs.
    pub has_posix_acls: bool,
    /// Whether NFSv4 ACLs of files can be set.
    pub has_nfs4_acls: bool,
    /// Whether nothing can be changed.
    pub is_read_only: bool,
}

/// Whether space beyond the end of a file becomes part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocateMode {
    /// The file grows to the end of the range.
    Extend,
    /// The file keeps its size (`FALLOC_FL_KEEP_SIZE`).
    KeepSize,
}

/// Whether a file that exists is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateMode {
    /// A file that exists is opened (`O_CREAT`).
    OpenExisting,
    /// A name that exists is an error (`O_CREAT | O_EXCL`).
    Exclusive,
    /// A name that exists is an error, unless this verifier has created it (NFS EXCLUSIVE). The verifier is stored
    /// in the access and modification time, which the client then sets.
    Verified([u8; 8]),
}

/// A file that was created, or found, and opened.
pub struct Opened<F> {
    /// Its attributes.
    pub attributes: Attributes,
    /// The open file.
    pub file: F,
    /// Whether it is new.
    pub is_new: bool,
}

/// Bytes of an open file from an offset on.
pub struct FileOffset<'a, F> {
    /// The open file.
    pub file: &'a F,
    /// The first byte.
    pub offset: u64,
}

/// A file system, as file protocols use it.
///
/// Every call fails with [`crate::Error::AccessDenied`] (`EACCES`) or with
/// [`crate::Reason::NotPermitted`] (`EPERM`) if the caller may not do it.
pub trait FileSystem: Send + Sync {
    /// An open file. It keeps its content until it is dropped, even without a name.
    type File: Send + Sync;
    /// An open directory.
    type Directory: Send + Sync;

    /// The topmost directory.
    fn root(&self) -> Result<Ino>;

    /// The abilities of the file system.
    fn limits(&self) -> Limits;

    /// The space of the dataset that an inode is in.
    fn space(&self, context: &Context<'_>, ino: Ino) -> Result<DatasetSpace>;

    /// Commits all changes to stable storage.
    fn sync(&self, context: &Context<'_>) -> Result<()>;

    /// The file of a name in a directory. `.` and `..` are names of every directory.
    fn lookup(&self, context: &Context<'_>, dir: Ino, name: &[u8]) -> Result<Attributes>;

    /// The attributes of a file.
    fn attributes(&self, context: &Context<'_>, ino: Ino) -> Result<Attributes>;

    /// The permissions among `wanted` ([`posix::acl::nfs4::mask`]) that the caller has.
    fn access(&self, context: &Context<'_>, ino: Ino, wanted: u32) -> Result<u32>;

    /// Sets attributes of a file. Returns all attributes.
    ///
    /// [`crate::Reason::ChangedMeanwhile`]: the ctime of the file is not `set.if_ctime`, and nothing was set.
    fn set_attributes(
        &self,
        context: &Context<'_>,
        ino: Ino,
        set: &SetAttributes,
    ) -> Result<Attributes>;

    /// The target of a symbolic link.
    fn read_link(&self, context: &Context<'_>, ino: Ino) -> Result<Vec<u8>>;

    /// Creates a file of any type. Fails if the name exists.
    fn create(
        &self,
        context: &Context<'_>,
        dir: Ino,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Attributes>;

    /// Creates a regular file and opens it. The mode of a new file does not limit this open.
    fn create_and_open(
        &self,
        context: &Context<'_>,
        entry: (Ino, &[u8]),
        new: &NewInode<'_>,
        create: CreateMode,
        open: OpenMode,
    ) -> Result<Opened<Self::File>>;

    /// Creates a regular file without a name and opens it (`O_TMPFILE`). [`FileSystem::link`] can name it.
    fn create_tmpfile(
        &self,
        context: &Context<'_>,
        dir: Ino,
        new: &NewInode<'_>,
        open: OpenMode,
    ) -> Result<Opened<Self::File>>;

    /// Gives a file one more name.
    fn link(&self, context: &Context<'_>, file: Ino, dir: Ino, name: &[u8]) -> Result<Attributes>;

    /// Removes a name of a file that is not a directory.
    fn unlink(&self, context: &Context<'_>, dir: Ino, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn rmdir(&self, context: &Context<'_>, dir: Ino, name: &[u8]) -> Result<()>;

    /// Renames a file.
    fn rename(&self, context: &Context<'_>, rename: &RenameRequest<'_, Ino>) -> Result<()>;

    /// Opens a file that is not a directory.
    fn open(&self, context: &Context<'_>, ino: Ino, open: OpenMode) -> Result<Self::File>;

    /// Reads bytes. Returns their number: fewer than requested at the end of the file.
    fn read(
        &self,
        context: &Context<'_>,
        from: FileOffset<'_, Self::File>,
        into: &mut [u8],
    ) -> Result<usize>;

    /// Writes bytes. They are on stable storage after [`FileSystem::commit`].
    fn write(
        &self,
        context: &Context<'_>,
        file: &Self::File,
        at: WriteOffset,
        bytes: &[u8],
    ) -> Result<()>;

    /// Commits all changes to a file, and all earlier changes of names, to stable storage (`fsync`).
    fn commit(&self, context: &Context<'_>, ino: Ino) -> Result<()>;

    /// Commits all changes of the file system to stable storage, but not of volumes shown in it.
    fn commit_all(&self, context: &Context<'_>) -> Result<()>;

    /// Sets the size of an open file.
    fn truncate(&self, context: &Context<'_>, file: &Self::File, size: u64) -> Result<()>;

    /// Checks that there is space for a range, and makes it part of the file. No space is reserved.
    fn allocate(
        &self,
        context: &Context<'_>,
        file: &Self::File,
        range: Range<u64>,
        mode: AllocateMode,
    ) -> Result<()>;

    /// Makes a hole in a file.
    fn punch_hole(
        &self,
        context: &Context<'_>,
        file: &Self::File,
        range: Range<u64>,
        mode: AllocateMode,
    ) -> Result<()>;

    /// The first byte from `from` on that is not in a hole; none if there is only a hole.
    fn seek_data(&self, context: &Context<'_>, file: &Self::File, from: u64)
    -> Result<Option<u64>>;

    /// The first byte from `from` on that is in a hole. The end of the file is one.
    fn seek_hole(&self, context: &Context<'_>, file: &Self::File, from: u64) -> Result<u64>;

    /// Shares blocks of one file with another. Returns the number of bytes shared from the start of the
    /// range: fewer than `length` if the rest cannot be shared.
    fn clone_range(
        &self,
        context: &Context<'_>,
        from: FileOffset<'_, Self::File>,
        to: FileOffset<'_, Self::File>,
        length: u64,
    ) -> Result<u64>;

    /// Copies bytes from one file to another, sharing blocks where possible. Returns their number: fewer
    /// than `length` at the end of the source.
    fn copy_range(
        &self,
        context: &Context<'_>,
        from: FileOffset<'_, Self::File>,
        to: FileOffset<'_, Self::File>,
        length: u64,
    ) -> Result<u64>;

    /// Opens a directory.
    fn open_dir(&self, context: &Context<'_>, ino: Ino) -> Result<Self::Directory>;

    /// Shows the entries of a directory from a cookie on, until `visit` returns false. Cookies stay valid
    /// while names come and go; 0 is the first.
    fn read_dir(
        &self,
        context: &Context<'_>,
        dir: &Self::Directory,
        cookie: u64,
        visit: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()>;

    /// The names of the extended attributes of a file that the caller may see.
    fn xattr_names(&self, context: &Context<'_>, ino: Ino) -> Result<Vec<Vec<u8>>>;

    /// The value of an extended attribute; none if it does not exist.
    fn xattr(&self, context: &Context<'_>, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Sets an extended attribute, or removes it if there is no value.
    fn set_xattr(
        &self,
        context: &Context<'_>,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()>;

    /// A POSIX ACL of a file; none if the mode has all permissions.
    fn posix_acl(
        &self,
        context: &Context<'_>,
        ino: Ino,
        kind: PosixAclKind,
    ) -> Result<Option<Vec<PosixAclEntry>>>;

    /// Sets a POSIX ACL of a file, or removes it.
    fn set_posix_acl(
        &self,
        context: &Context<'_>,
        ino: Ino,
        kind: PosixAclKind,
        entries: Option<&[PosixAclEntry]>,
    ) -> Result<()>;

    /// The NFSv4 ACL of a file; that of its mode if none is stored.
    fn nfs4_acl(&self, context: &Context<'_>, ino: Ino) -> Result<Vec<Ace>>;

    /// Sets the NFSv4 ACL of a file. The mode becomes the one that the ACL shows.
    fn set_nfs4_acl(&self, context: &Context<'_>, ino: Ino, entries: &[Ace]) -> Result<()>;
}
