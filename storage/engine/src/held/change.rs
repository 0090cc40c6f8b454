//! Changing the files of a held pool, in plain data.

use units::ObjectId;
use zpl::{MoveKind, Position, Stretch, XattrMode};

use super::LiveFiles;
use crate::files::{Facts, File, Kind, Result, Time};

/// Who asks for a change, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The user that owns what is made.
    pub uid: u32,
    /// The group that owns what is made, if the directory does not say otherwise.
    pub gid: u32,
    /// The time.
    pub now: Time,
    /// What the caller does to a file leaves its set-user and set-group bits.
    pub keeps_setid: bool,
}

/// What is to be made.
#[derive(Clone, Debug)]
pub struct New<'a> {
    /// What it is.
    pub kind: Kind,
    /// The permissions that are wanted, with set-id and sticky bits: 12 bits.
    pub mode: u32,
    /// Bits that the caller's umask takes away, where the directory has no default ACL.
    pub umask: u32,
    /// Of a device: major and minor.
    pub device: (u32, u32),
    /// Of a symbolic link: where it points.
    pub target: &'a [u8],
}

impl Default for New<'_> {
    fn default() -> Self {
        Self { kind: Kind::File, mode: 0o666, umask: 0o022, device: (0, 0), target: b"" }
    }
}

/// What is to be set; nothing by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Set {
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
    pub project: Option<u64>,
}

/// From where a file goes where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move<'a> {
    /// The directory of the old name.
    pub from_dir: ObjectId,
    /// The old name.
    pub from: &'a [u8],
    /// The directory of the new name.
    pub to_dir: ObjectId,
    /// The new name.
    pub to: &'a [u8],
    /// What becomes of the names.
    pub kind: MoveKind,
}

impl Caller {
    pub(super) fn below(&self) -> zpl::Caller {
        let Self { uid, gid, now, keeps_setid } = *self;
        zpl::Caller { uid, gid, now: now.below(), keeps_setid }
    }
}

impl<'a> New<'a> {
    fn below(&self) -> zpl::New<'a> {
        let kind = match self.kind {
            Kind::File | Kind::Other => zpl::Kind::File,
            Kind::Directory => zpl::Kind::Directory,
            Kind::Symlink => zpl::Kind::Symlink,
            Kind::Fifo => zpl::Kind::Fifo,
            Kind::Socket => zpl::Kind::Socket,
            Kind::CharDevice => zpl::Kind::CharDevice,
            Kind::BlockDevice => zpl::Kind::BlockDevice,
        };
        let Self { mode, umask, device, target, .. } = *self;
        zpl::New { kind, mode, umask, device, target }
    }
}

impl Set {
    fn below(&self) -> zpl::Set {
        zpl::Set {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            atime: self.atime.map(Time::below),
            mtime: self.mtime.map(Time::below),
            crtime: self.crtime.map(Time::below),
            flags: self.flags.map(zpl::flags_of_linux),
            project: self.project,
        }
    }
}

/// Who may do what is the caller's to check, but for what the files' own flags forbid.
impl LiveFiles {
    /// Keeps a file although it may lose its last name: it is open. Fails if it is gone already.
    pub fn hold(&self, file: ObjectId) -> Result<()> {
        Ok(self.writer().hold(file)?)
    }

    /// Gives back a hold; with the last one a file without a name goes.
    pub fn release(&self, file: ObjectId) -> Result<()> {
        Ok(self.writer().release(file)?)
    }

    /// Makes a file, a directory, a symbolic link, a device, a pipe or a socket.
    pub fn make(&self, by: &Caller, dir: ObjectId, name: &[u8], new: &New<'_>) -> Result<File> {
        let made = self.writer().make(&by.below(), dir, name, &new.below())?;
        self.done(None, ())?;
        self.files().file(made.id.get())
    }

    /// Makes a file without a name (O_TMPFILE), and holds it once for the caller. It can be given
    /// a name by [`LiveFiles::link`].
    pub fn make_unnamed(&self, by: &Caller, dir: ObjectId, new: &New<'_>) -> Result<Facts> {
        let made = self.writer().make_unnamed(&by.below(), dir, &new.below())?;
        if let Err(why) = self.done(None, ()) {
            // nobody could come back to it
            let _ = self.writer().release(made.id);
            return Err(why);
        }
        Ok(Facts::new(made.id, &made.attributes))
    }

    /// Gives a file one more name.
    pub fn link(&self, by: &Caller, file: ObjectId, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.done(None, self.writer().link(&by.below(), file, dir, name)?)
    }

    /// Takes a name from a file that is no directory.
    pub fn unlink(&self, by: &Caller, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.done(None, self.writer().unlink(&by.below(), dir, name)?)
    }

    /// Removes a directory, which must be empty.
    pub fn rmdir(&self, by: &Caller, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.done(None, self.writer().rmdir(&by.below(), dir, name)?)
    }

    /// Moves a name.
    pub fn rename(&self, by: &Caller, how: &Move<'_>) -> Result<()> {
        let Move { from_dir, from, to_dir, to, kind } = *how;
        let how = zpl::Move { from_dir, from, to_dir, to, kind };
        self.done(None, self.writer().rename(&by.below(), &how)?)
    }

    /// Writes bytes; gives the byte behind them.
    pub fn write(&self, by: &Caller, file: ObjectId, at: Position, bytes: &[u8]) -> Result<u64> {
        self.done(Some(file), self.writer().write(&by.below(), file, at, bytes)?)
    }

    /// Makes a stretch of a file the same as one of another by sharing blocks; gives how many bytes
    /// of its beginning. The rest has to be copied.
    pub fn share(&self, by: &Caller, stretch: &Stretch) -> Result<u64> {
        if !self.shares() {
            return Ok(0);
        }
        let done = self.writer().share(&by.below(), stretch)?;
        self.done(Some(stretch.to), done)
    }

    /// Makes a hole in a file, which keeps its size.
    pub fn punch(&self, by: &Caller, file: ObjectId, range: std::ops::Range<u64>) -> Result<()> {
        self.done(Some(file), self.writer().punch(&by.below(), file, range)?)
    }

    /// Sees to it that a file reaches to `end` at least. Space is not set aside.
    pub fn extend(&self, by: &Caller, file: ObjectId, end: u64) -> Result<()> {
        self.done(Some(file), self.writer().extend(&by.below(), file, end)?)
    }

    /// Sets attributes of a file.
    pub fn set(&self, by: &Caller, file: ObjectId, set: &Set) -> Result<()> {
        self.done(Some(file), self.writer().set(&by.below(), file, &set.below())?)
    }

    /// Whether that is noted when a file is read of which this is known.
    pub fn is_access_due(&self, facts: &Facts, now: Time) -> bool {
        let times = [facts.atime, facts.mtime, facts.ctime].map(Time::below);
        !self.is_read_only() && self.writer().is_access_due(times, now.below())
    }

    /// Notes that a file was read, if the dataset wants that.
    pub fn accessed(&self, file: ObjectId, now: Time) -> Result<()> {
        Ok(self.writer().accessed(file, now.below())?)
    }

    /// Sets an extended attribute by its name as Linux has it, or removes it if there is no value.
    /// POSIX ACLs are among them.
    pub fn set_xattr(
        &self,
        by: &Caller,
        file: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        self.done(Some(file), self.writer().set_xattr(&by.below(), file, name, value, mode)?)
    }

    /// Whether names are compared byte by byte: with no regard to case or composition.
    pub fn names_are_exact(&self) -> bool {
        let master = self.writer().fs().master();
        master.case == zpl::Case::Sensitive && master.normalization == 0
    }

    /// The most bytes of a name.
    pub fn longest_name(&self) -> usize {
        self.writer().longest_name()
    }

    /// Whether files may have POSIX ACLs.
    pub fn has_posix_acls(&self) -> bool {
        self.writer().fs().options().posix_acls
    }
}
