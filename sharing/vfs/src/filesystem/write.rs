//! Changing what is in a file system, by numbers.

use std::ops::Range;
use std::sync::atomic::Ordering;

use engine::pool::{
    CloneRange, RenameMode, RenameRequest, SetAttributes, WriteOffset, XattrMode, without_setid,
};

use super::{FileSystem, HEAD, OpenFile, file_attributes, volumes};
use crate::changes::ChangeKind;
use crate::{Attributes, Error, FileType, Reason, Result, control_dir};

/// Who asks for a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// What the user does to a file leaves its set-user and set-group bits.
    pub has_cap_fsetid: bool,
}

/// What is to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// What it is.
    pub kind: FileType,
    /// The permissions that are wanted, with set-id and sticky bits: 12 bits.
    pub mode: u32,
    /// Bits that the user's umask takes away, where the directory has no default ACL.
    pub umask: u32,
    /// Of a device: major and minor.
    pub rdev: (u32, u32),
    /// Of a symbolic link: where it points.
    pub target: &'a [u8],
}

/// What a program may do beyond its user.
const CAPABILITY_XATTR: &[u8] = b"security.capability";
const S_ISGID: u32 = 0o2000;
/// What is copied at once from file to file.
const COPY_CHUNK: usize = 1 << 20;

impl FileSystem {
    fn timed_credentials(&self, by: Credentials) -> engine::pool::Credentials {
        engine::pool::Credentials {
            uid: by.uid,
            gid: by.gid,
            now: self.0.clock.next_change(),
            has_cap_fsetid: by.has_cap_fsetid,
        }
    }

    /// Whether a name is that of the control directory `.zfs` in the root, shown or not.
    pub fn is_control_name(&self, dir: u64, name: &[u8]) -> bool {
        name == control_dir::CONTROL_DIR && dir == self.root_ino()
    }

    /// Refuses `.zfs` in the root with EEXIST, as OpenZFS does whatever `snapdir` says: an entry of
    /// that name would hide behind the control directory as soon as that is shown.
    fn check_not_control(&self, dir: u64, name: &[u8]) -> Result<()> {
        if self.is_control_name(dir, name) {
            return Err(Error::Refused { reason: Reason::Exists });
        }
        Ok(())
    }

    /// Makes a file of any kind under a name.
    pub fn create(
        &self,
        by: Credentials,
        dir: u64,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Attributes> {
        self.check_not_control(dir, name)?;
        let NewInode { kind, mode, umask, rdev: device, target } = *new;
        let new = engine::pool::NewInode { kind, mode, umask, rdev: device, target };
        let object = Self::writable_object(dir)?;
        let by = self.timed_credentials(by);
        let make = || self.0.files().create(&by, object, name, &new);
        let made = self.0.dir_versions.bump_after(&[dir], make);
        self.announce(by.now, dir, ChangeKind::EntryAdded { name: name.to_vec() });
        file_attributes(HEAD, &made?)
    }

    /// Makes a file without a name, which goes when it is closed unless it was given one.
    pub fn create_tmpfile(
        &self,
        by: Credentials,
        dir: u64,
        new: &NewInode<'_>,
    ) -> Result<(Attributes, OpenFile)> {
        let NewInode { kind, mode, umask, rdev: device, target } = *new;
        let new = engine::pool::NewInode { kind, mode, umask, rdev: device, target };
        let files = self.0.files();
        let made =
            files.create_tmpfile(&self.timed_credentials(by), Self::writable_object(dir)?, &new)?;
        let file = files.reader().file(made.ino)?;
        Ok((file_attributes(HEAD, &file)?, OpenFile::from_tmpfile(self, &files, &file)))
    }

    /// Gives a file one more name.
    pub fn link(
        &self,
        by: Credentials,
        file: u64,
        (dir, name): (u64, &[u8]),
    ) -> Result<Attributes> {
        self.check_not_control(dir, name)?;
        let (object, to) = (Self::writable_object(file)?, Self::writable_object(dir)?);
        let by = self.timed_credentials(by);
        let link = || self.0.files().link(&by, object, to, name);
        let linked = self.0.dir_versions.bump_after(&[dir], link);
        self.announce(by.now, dir, ChangeKind::EntryAdded { name: name.to_vec() });
        self.announce(by.now, file, ChangeKind::Attributes);
        linked?;
        self.attributes(file)
    }

    /// Takes a name from a file that is no directory.
    pub fn unlink(&self, by: Credentials, dir: u64, name: &[u8]) -> Result<()> {
        self.check_not_control(dir, name)?;
        let object = Self::writable_object(dir)?;
        let by = self.timed_credentials(by);
        let found = self.named_ino(dir, name);
        let unlink = || self.0.files().unlink(&by, object, name);
        let done = self.0.dir_versions.bump_after(&[dir], unlink);
        self.announce(by.now, dir, ChangeKind::EntryRemoved { name: name.to_vec() });
        if let Some(found) = found {
            self.announce(by.now, found, ChangeKind::Attributes);
        }
        Ok(done?)
    }

    /// Removes a directory, which must be empty.
    pub fn rmdir(&self, by: Credentials, dir: u64, name: &[u8]) -> Result<()> {
        self.check_not_control(dir, name)?;
        let object = Self::writable_object(dir)?;
        let by = self.timed_credentials(by);
        let found = self.named_ino(dir, name);
        let rmdir = || self.0.files().rmdir(&by, object, name);
        let done = self.0.dir_versions.bump_after(&[dir], rmdir);
        self.announce(by.now, dir, ChangeKind::EntryRemoved { name: name.to_vec() });
        if let Some(found) = found {
            self.announce(by.now, found, ChangeKind::Attributes);
        }
        Ok(done?)
    }

    /// Moves a name.
    pub fn rename(
        &self,
        by: Credentials,
        (from_dir, from): (u64, &[u8]),
        (to_dir, to): (u64, &[u8]),
        kind: RenameMode,
    ) -> Result<()> {
        self.check_not_control(from_dir, from)?;
        self.check_not_control(to_dir, to)?;
        let dirs = [from_dir, to_dir];
        let found = [self.named_ino(from_dir, from), self.named_ino(to_dir, to)];
        let (from_dir, to_dir) = (Self::writable_object(from_dir)?, Self::writable_object(to_dir)?);
        let how = RenameRequest { from_dir, from, to_dir, to, mode: kind };
        let by = self.timed_credentials(by);
        let rename = || self.0.files().rename(&by, &how);
        let done = self.0.dir_versions.bump_after(&dirs, rename);
        let (name, to_dir, to_name) = (from.to_vec(), dirs[1], to.to_vec());
        let moved = if kind == RenameMode::Exchange {
            ChangeKind::EntriesExchanged { name, to_dir, to_name }
        } else {
            ChangeKind::EntryRenamed { name, to_dir, to_name }
        };
        self.announce(by.now, dirs[0], moved);
        for ino in found.into_iter().flatten() {
            self.announce(by.now, ino, ChangeKind::Attributes);
        }
        Ok(done?)
    }

    /// Sets attributes of a file.
    /// A volume has none that can be set; that its size is, when it is opened to be written anew,
    /// is no matter.
    pub fn set_attributes(
        &self,
        by: Credentials,
        file: u64,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        if let Some(volume) = self.find_volume(file)? {
            let size =
                SetAttributes { size: set.size, mtime: set.mtime, ..SetAttributes::default() };
            return if *set == size {
                Ok(Self::volume_attributes(file, &volume))
            } else {
                Err(Error::Refused { reason: Reason::NotPermitted })
            };
        }
        let by = self.timed_credentials(by);
        let done = self.0.files().set_attributes(&by, Self::writable_object(file)?, set);
        let kind = if set.size.is_some() { ChangeKind::Data } else { ChangeKind::Attributes };
        self.announce(by.now, file, kind);
        done?;
        self.attributes(file)
    }

    /// Writes bytes to a file.
    pub fn write(&self, by: Credentials, file: u64, at: WriteOffset, bytes: &[u8]) -> Result<()> {
        if let (Some(volume), WriteOffset::At(offset)) = (self.find_volume(file)?, at) {
            return volumes::write_volume(&volume, offset, bytes);
        }
        let by = self.timed_credentials(by);
        let done = self.0.files().write(&by, Self::writable_object(file)?, at, bytes);
        self.announce(by.now, file, ChangeKind::Data);
        done?;
        Ok(())
    }

    /// Makes a hole in a file, which keeps its size.
    pub fn punch_hole(&self, by: Credentials, file: u64, range: Range<u64>) -> Result<()> {
        if let Some(volume) = self.find_volume(file)? {
            let range = range.start.min(volume.size())..range.end.min(volume.size());
            return Ok(volume.write_zeros(range)?);
        }
        let by = self.timed_credentials(by);
        let done = self.0.files().punch_hole(&by, Self::writable_object(file)?, range);
        self.announce(by.now, file, ChangeKind::Data);
        Ok(done?)
    }

    /// Refuses a stretch that there is no room for, with a tenth to spare, as OpenZFS does: nothing can
    /// be kept for it, as what is written later goes elsewhere.
    pub fn check_space(&self, file: u64, range: &Range<u64>) -> Result<()> {
        let wanted = range.end.saturating_sub(range.start);
        let has_room = wanted.saturating_add(wanted / 10) <= self.space().available;
        if has_room || self.find_volume(file)?.is_some() {
            Ok(())
        } else {
            Err(Error::Refused { reason: Reason::NoSpace })
        }
    }

    /// Sees to it that a file reaches to the end of a range at least.
    pub fn extend(&self, by: Credentials, file: u64, range: &Range<u64>) -> Result<()> {
        if let Some(volume) = self.find_volume(file)? {
            let fits = range.end <= volume.size();
            return if fits { Ok(()) } else { Err(Error::Refused { reason: Reason::NoSpace }) };
        }
        let by = self.timed_credentials(by);
        let done = self.0.files().extend(&by, Self::writable_object(file)?, range.end);
        self.announce(by.now, file, ChangeKind::Data);
        Ok(done?)
    }

    /// Shares the blocks of a stretch, as far as that goes from its beginning.
    fn clone_blocks(
        &self,
        by: Credentials,
        from: (&OpenFile, u64),
        to: (u64, u64),
        length: u64,
    ) -> Result<u64> {
        let (source, start) = from;
        // files of snapshots are copied: a snapshot may go meanwhile
        let Ok(from) = Self::writable_object(source.ino()?) else { return Ok(0) };
        let (to, at) = (Self::writable_object(to.0)?, to.1);
        let stretch = CloneRange {
            source: from,
            source_offset: start,
            target: to,
            target_offset: at,
            length,
        };
        let by = self.timed_credentials(by);
        let done = self.0.files().clone_blocks(&by, &stretch);
        self.announce(by.now, to.get(), ChangeKind::Data);
        Ok(done?)
    }

    /// Copies bytes from file to file; gives how many, fewer than asked for at the end.
    pub fn copy_range(
        &self,
        by: Credentials,
        from: (&OpenFile, u64),
        to: (u64, u64),
        length: u64,
    ) -> Result<u64> {
        let (source, start) = from;
        let mut done = self.clone_blocks(by, from, to, length)?;
        let mut buffer = vec![0; COPY_CHUNK.min(usize::try_from(length).unwrap_or(COPY_CHUNK))];
        while done < length {
            let left = usize::try_from(length.saturating_sub(done)).unwrap_or(usize::MAX);
            let (piece, _) = buffer.split_at_mut(left.min(COPY_CHUNK));
            let count = source.read(start.saturating_add(done), piece)?;
            if count == 0 {
                break;
            }
            let bytes = piece.get(..count).unwrap_or_default();
            let at = WriteOffset::At(to.1.saturating_add(done));
            self.write(by, to.0, at, bytes)?;
            done = done.saturating_add(u64::try_from(count).unwrap_or(0));
        }
        Ok(done)
    }

    /// Sets an extended attribute, or removes it if there is no value.
    pub fn set_xattr(
        &self,
        by: Credentials,
        file: u64,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let object = Self::writable_object(file)?;
        let by = self.timed_credentials(by);
        let set = self.0.files().set_xattr(&by, object, name, value, mode);
        self.announce(by.now, file, ChangeKind::Attributes);
        if name == CAPABILITY_XATTR && value.is_some() {
            // whatever is said to have come of it: it may have been done all the same
            self.0.capability_version.fetch_add(1, Ordering::AcqRel);
        }
        Ok(set?)
    }

    /// Takes away what a program may do beyond its user (capabilities), as a change of it must.
    pub fn clear_capabilities(&self, by: Credentials, file: u64) -> Result<()> {
        if self.xattr(file, CAPABILITY_XATTR)?.is_none() {
            return Ok(());
        }
        match self.set_xattr(by, file, CAPABILITY_XATTR, None, XattrMode::Any) {
            Err(Error::Refused { reason: Reason::NoXattr }) => Ok(()),
            other => other,
        }
    }

    /// Takes set-user and set-group away from a file whose blocks somebody arranges, even where that
    /// changes nothing in it.
    pub fn clear_setid(&self, by: Credentials, file: u64) -> Result<()> {
        let found = self.attributes(file)?;
        if found.kind != FileType::File {
            return Ok(());
        }
        self.change_mode(by, file, found.mode, without_setid(found.mode))
    }

    /// Takes set-group away from a file of any kind that is given an access list by somebody who is not
    /// of its group.
    pub fn clear_setgid(&self, by: Credentials, file: u64) -> Result<()> {
        let mode = self.attributes(file)?.mode;
        self.change_mode(by, file, mode, mode & !S_ISGID)
    }

    /// Sets a file's mode, unless it is what it was.
    fn change_mode(&self, by: Credentials, file: u64, from: u32, to: u32) -> Result<()> {
        if from == to {
            return Ok(());
        }
        self.set_attributes(by, file, &SetAttributes { mode: Some(to), ..SetAttributes::default() })
            .map(drop)
    }
}
