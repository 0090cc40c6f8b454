//! Changing the files of a held pool, in plain data.

use units::ObjectId;
use zpl::{CloneRange, RenameMode, WriteOffset, XattrMode};

use super::OpenFileSystem;
use crate::files::{File, FileStat, FileType, Result, Time};

/// Who asks for a change, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// The user that owns what is made.
    pub uid: u32,
    /// The group that owns what is made, if the directory does not say otherwise.
    pub gid: u32,
    /// The time.
    pub now: Time,
    /// What the caller does to a file leaves its set-user and set-group bits.
    pub has_cap_fsetid: bool,
}

/// What is to be made.
#[derive(Clone, Debug)]
pub struct NewInode<'a> {
    /// What it is.
    pub kind: FileType,
    /// The permissions that are wanted, with set-id and sticky bits: 12 bits.
    pub mode: u32,
    /// Bits that the caller's umask takes away, where the directory has no default ACL.
    pub umask: u32,
    /// Of a device: major and minor.
    pub rdev: (u32, u32),
    /// Of a symbolic link: where it points.
    pub target: &'a [u8],
}

impl Default for NewInode<'_> {
    fn default() -> Self {
        Self { kind: FileType::File, mode: 0o666, umask: 0o022, rdev: (0, 0), target: b"" }
    }
}

/// What is to be set; nothing by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttributes {
    /// Permissions with set-id and sticky bits: 12 bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size in bytes.
    pub size: Option<u64>,
    /// When it was last read.
    pub atime: Option<Time>,
    /// When its content last changed.
    pub mtime: Option<Time>,
    /// When it was made.
    pub crtime: Option<Time>,
    /// All flags that it is to have of those that Linux knows: 0x10 immutable, 0x20 append only, 0x40
    /// no dump, 0x20000000 files in it inherit the project.
    pub flags: Option<u32>,
    /// The project.
    pub project_id: Option<u64>,
}

/// From where a file goes where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RenameRequest<'a> {
    /// The directory of the old name.
    pub from_dir: ObjectId,
    /// The old name.
    pub from: &'a [u8],
    /// The directory of the new name.
    pub to_dir: ObjectId,
    /// The new name.
    pub to: &'a [u8],
    /// What becomes of the names.
    pub mode: RenameMode,
}

impl Credentials {
    pub(super) fn to_zpl(self) -> zpl::Credentials {
        let Self { uid, gid, now, has_cap_fsetid } = self;
        zpl::Credentials { uid, gid, now: now.to_znode(), has_cap_fsetid }
    }
}

impl<'a> NewInode<'a> {
    fn to_zpl(&self) -> zpl::NewInode<'a> {
        let kind = match self.kind {
            FileType::File | FileType::Other => zpl::FileType::File,
            FileType::Directory => zpl::FileType::Directory,
            FileType::Symlink => zpl::FileType::Symlink,
            FileType::Fifo => zpl::FileType::Fifo,
            FileType::Socket => zpl::FileType::Socket,
            FileType::CharDevice => zpl::FileType::CharDevice,
            FileType::BlockDevice => zpl::FileType::BlockDevice,
        };
        let Self { mode, umask, rdev: device, target, .. } = *self;
        zpl::NewInode { kind, mode, umask, rdev: device, target }
    }
}

impl SetAttributes {
    fn to_zpl(self) -> zpl::SetAttributes {
        zpl::SetAttributes {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            atime: self.atime.map(Time::to_znode),
            mtime: self.mtime.map(Time::to_znode),
            crtime: self.crtime.map(Time::to_znode),
            flags: self.flags.map(zpl::from_linux_flags),
            project_id: self.project_id,
        }
    }
}

/// Who may do what is the caller's to check, but for what the files' own flags forbid.
impl OpenFileSystem {
    /// Keeps a file although it may lose its last name: it is open. Fails if it is gone already.
    pub fn hold_file(&self, file: ObjectId) -> Result<()> {
        Ok(self.writer().hold_file(file)?)
    }

    /// Gives back a hold; with the last one a file without a name goes.
    pub fn release_file(&self, file: ObjectId) -> Result<()> {
        Ok(self.writer().release_file(file)?)
    }

    /// Makes a file, a directory, a symbolic link, a device, a pipe or a socket.
    pub fn create(
        &self,
        by: &Credentials,
        dir: ObjectId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<File> {
        let made = self.writer().create(&by.to_zpl(), dir, name, &new.to_zpl())?;
        self.finish_operation(None, ())?;
        self.reader().file(made.id.get())
    }

    /// Makes a file without a name (O_TMPFILE), and holds it once for the caller. It can be given
    /// a name by [`OpenFileSystem::link`].
    pub fn create_tmpfile(
        &self,
        by: &Credentials,
        dir: ObjectId,
        new: &NewInode<'_>,
    ) -> Result<FileStat> {
        let made = self.writer().create_tmpfile(&by.to_zpl(), dir, &new.to_zpl())?;
        if let Err(why) = self.finish_operation(None, ()) {
            // nobody could come back to it
            let _ = self.writer().release_file(made.id);
            return Err(why);
        }
        Ok(FileStat::new(made.id, &made.attributes))
    }

    /// Gives a file one more name.
    pub fn link(&self, by: &Credentials, file: ObjectId, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.finish_operation(None, self.writer().link(&by.to_zpl(), file, dir, name)?)
    }

    /// Takes a name from a file that is no directory.
    pub fn unlink(&self, by: &Credentials, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.finish_operation(None, self.writer().unlink(&by.to_zpl(), dir, name)?)
    }

    /// Removes a directory, which must be empty.
    pub fn rmdir(&self, by: &Credentials, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.finish_operation(None, self.writer().rmdir(&by.to_zpl(), dir, name)?)
    }

    /// Moves a name.
    pub fn rename(&self, by: &Credentials, how: &RenameRequest<'_>) -> Result<()> {
        let RenameRequest { from_dir, from, to_dir, to, mode: kind } = *how;
        let how = zpl::RenameRequest { from_dir, from_name: from, to_dir, to_name: to, mode: kind };
        self.finish_operation(None, self.writer().rename(&by.to_zpl(), &how)?)
    }

    /// Writes bytes; gives the byte behind them.
    pub fn write(
        &self,
        by: &Credentials,
        file: ObjectId,
        at: WriteOffset,
        bytes: &[u8],
    ) -> Result<u64> {
        self.finish_operation(Some(file), self.writer().write(&by.to_zpl(), file, at, bytes)?)
    }

    /// Makes a stretch of a file the same as one of another by sharing blocks; gives how many bytes
    /// of its beginning. The rest has to be copied.
    pub fn clone_blocks(&self, by: &Credentials, stretch: &CloneRange) -> Result<u64> {
        if !self.has_block_cloning() {
            return Ok(0);
        }
        let done = self.writer().clone_blocks(&by.to_zpl(), stretch)?;
        self.finish_operation(Some(stretch.target), done)
    }

    /// Makes a hole in a file, which keeps its size.
    pub fn punch_hole(
        &self,
        by: &Credentials,
        file: ObjectId,
        range: std::ops::Range<u64>,
    ) -> Result<()> {
        self.finish_operation(Some(file), self.writer().punch_hole(&by.to_zpl(), file, range)?)
    }

    /// Sees to it that a file reaches to `end` at least. Space is not set aside.
    pub fn extend(&self, by: &Credentials, file: ObjectId, end: u64) -> Result<()> {
        self.finish_operation(Some(file), self.writer().extend(&by.to_zpl(), file, end)?)
    }

    /// Sets attributes of a file.
    pub fn set_attributes(
        &self,
        by: &Credentials,
        file: ObjectId,
        set: &SetAttributes,
    ) -> Result<()> {
        self.finish_operation(
            Some(file),
            self.writer().set_attributes(&by.to_zpl(), file, &set.to_zpl())?,
        )
    }

    /// Whether that is noted when a file is read of which this is known.
    pub fn is_atime_due(&self, facts: &FileStat, now: Time) -> bool {
        let times = [facts.atime, facts.mtime, facts.ctime].map(Time::to_znode);
        !self.is_read_only() && self.writer().is_atime_due(times, now.to_znode())
    }

    /// Notes that a file was read, if the dataset wants that.
    pub fn update_atime(&self, file: ObjectId, now: Time) -> Result<()> {
        Ok(self.writer().update_atime(file, now.to_znode())?)
    }

    /// Sets an extended attribute by its name as Linux has it, or removes it if there is no value.
    /// POSIX ACLs are among them.
    pub fn set_xattr(
        &self,
        by: &Credentials,
        file: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        self.finish_operation(
            Some(file),
            self.writer().set_xattr(&by.to_zpl(), file, name, value, mode)?,
        )
    }

    /// Whether names are compared byte by byte: with no regard to case or composition.
    pub fn has_exact_names(&self) -> bool {
        let master = self.writer().fs().master();
        master.case == zpl::CaseSensitivity::Sensitive && master.normalization == 0
    }

    /// The most bytes of a name.
    pub fn max_name_len(&self) -> usize {
        self.writer().max_name_len()
    }

    /// Whether files may have POSIX ACLs.
    pub fn has_posix_acls(&self) -> bool {
        self.writer().fs().options().posix_acls
    }
}
