//! Changes of files by inode number, without access checks: `contract.rs` makes them first.

use std::ops::Range;
use std::sync::atomic::Ordering;

use posix::acl::PosixAclKind;
use posix::{
    Attributes, Capability, ChangeContext, Credentials, FileType, Ino, NewInode, RenameRequest,
    SetAttributes, WriteOffset, XattrMode, acl::Ace, acl::PosixAclEntry,
};
use units::MinusOrZero as _;

use super::{HEAD, OpenFile, PoolFileSystem, file_attributes, volumes};
use crate::{Error, Reason, Result, control_dir};

/// The extended attribute with the file capabilities of a program.
const CAPABILITY_XATTR: &[u8] = b"security.capability";
/// Bytes that a copy reads at a time.
const COPY_CHUNK: usize = 1 << 20;

impl PoolFileSystem {
    fn change_context(&self, by: &Credentials) -> ChangeContext {
        ChangeContext { credentials: by.clone(), now: self.0.clock.next_change() }
    }

    /// Whether a name is that of the control directory `.zfs` in the root, shown or not.
    pub(super) fn is_control_name(&self, dir: Ino, name: &[u8]) -> bool {
        name == control_dir::CONTROL_DIR && dir == self.root_ino()
    }

    /// Refuses `.zfs` in the root with EEXIST, as OpenZFS does whatever `snapdir` is: the control
    /// directory would hide an entry of that name as soon as it is shown.
    fn check_not_control(&self, dir: Ino, name: &[u8]) -> Result<()> {
        if self.is_control_name(dir, name) {
            return Err(Error::Refused { reason: Reason::Exists });
        }
        Ok(())
    }

    /// Creates a file of any type.
    pub(super) fn create_unchecked(
        &self,
        by: &Credentials,
        dir: Ino,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Attributes> {
        self.check_not_control(dir, name)?;
        let object = Self::writable_object(dir)?;
        let make = || self.0.files().create(&self.change_context(by), object, name, new);
        file_attributes(HEAD, &self.0.dir_versions.bump_after(&[dir], make)?)
    }

    /// Creates a file without a name. A close frees it, unless it got a name.
    pub(super) fn create_tmpfile_unchecked(
        &self,
        by: &Credentials,
        dir: Ino,
        new: &NewInode<'_>,
    ) -> Result<(Attributes, OpenFile)> {
        let rollbacks = self.rollbacks();
        let files = self.0.files();
        let made =
            files.create_tmpfile(&self.change_context(by), Self::writable_object(dir)?, new)?;
        let file = files.reader().file(made.ino)?;
        Ok((file_attributes(HEAD, &file)?, OpenFile::from_tmpfile(self, &files, &file, rollbacks)))
    }

    /// Gives a file one more name.
    pub(super) fn link_unchecked(
        &self,
        by: &Credentials,
        file: Ino,
        (dir, name): (Ino, &[u8]),
    ) -> Result<Attributes> {
        self.check_not_control(dir, name)?;
        let (object, to) = (Self::writable_object(file)?, Self::writable_object(dir)?);
        let link = || self.0.files().link(&self.change_context(by), object, to, name);
        self.0.dir_versions.bump_after(&[dir], link)?;
        self.attributes_unchecked(file)
    }

    /// Removes a name of a file that is not a directory.
    pub(super) fn unlink_unchecked(&self, by: &Credentials, dir: Ino, name: &[u8]) -> Result<()> {
        self.check_not_control(dir, name)?;
        let object = Self::writable_object(dir)?;
        let unlink = || self.0.files().unlink(&self.change_context(by), object, name);
        Ok(self.0.dir_versions.bump_after(&[dir], unlink)?)
    }

    /// Removes an empty directory.
    pub(super) fn rmdir_unchecked(&self, by: &Credentials, dir: Ino, name: &[u8]) -> Result<()> {
        self.check_not_control(dir, name)?;
        let object = Self::writable_object(dir)?;
        let rmdir = || self.0.files().rmdir(&self.change_context(by), object, name);
        Ok(self.0.dir_versions.bump_after(&[dir], rmdir)?)
    }

    /// Renames a file.
    pub(super) fn rename_unchecked(
        &self,
        by: &Credentials,
        rename: &RenameRequest<'_, Ino>,
    ) -> Result<()> {
        let RenameRequest { from_dir, from_name, to_dir, to_name, mode } = *rename;
        self.check_not_control(from_dir, from_name)?;
        self.check_not_control(to_dir, to_name)?;
        let dirs = [from_dir, to_dir];
        let (from_dir, to_dir) = (Self::writable_object(from_dir)?, Self::writable_object(to_dir)?);
        let request = RenameRequest { from_dir, from_name, to_dir, to_name, mode };
        let rename = || self.0.files().rename(&self.change_context(by), &request);
        Ok(self.0.dir_versions.bump_after(&dirs, rename)?)
    }

    /// Sets attributes of a file.
    ///
    /// Volumes have no settable attributes. An open with `O_TRUNC` sets the size and the mtime, so these are
    /// accepted and ignored.
    pub(super) fn set_attributes_unchecked(
        &self,
        by: &Credentials,
        file: Ino,
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
        self.0.files().set_attributes(
            &self.change_context(by),
            Self::writable_object(file)?,
            set,
        )?;
        self.attributes_unchecked(file)
    }

    /// Writes bytes to a file.
    pub(super) fn write_unchecked(
        &self,
        by: &Credentials,
        file: Ino,
        at: WriteOffset,
        bytes: &[u8],
    ) -> Result<()> {
        if let (Some(volume), WriteOffset::At(offset)) = (self.find_volume(file)?, at) {
            return volumes::write_volume(&volume, offset, bytes);
        }
        self.0.files().write(&self.change_context(by), Self::writable_object(file)?, at, bytes)?;
        Ok(())
    }

    /// Makes a hole in a file, which keeps its size.
    pub(super) fn punch_hole_unchecked(
        &self,
        by: &Credentials,
        file: Ino,
        range: Range<u64>,
    ) -> Result<()> {
        if let Some(volume) = self.find_volume(file)? {
            let range = range.start.min(volume.size())..range.end.min(volume.size());
            return Ok(volume.write_zeros(range)?);
        }
        Ok(self.0.files().punch_hole(
            &self.change_context(by),
            Self::writable_object(file)?,
            range,
        )?)
    }

    /// Fails if the dataset has no space for a range and a tenth more, as OpenZFS does. No space is reserved:
    /// copy-on-write writes a block elsewhere each time.
    pub(super) fn check_space(&self, file: Ino, range: &Range<u64>) -> Result<()> {
        let wanted = range.end.minus_or_zero(range.start);
        let has_room = wanted.saturating_add(wanted / 10) <= self.space_unchecked().available;
        if has_room || self.find_volume(file)?.is_some() {
            Ok(())
        } else {
            Err(Error::Refused { reason: Reason::NoSpace })
        }
    }

    /// Grows a file to the end of a range, unless it is longer.
    pub(super) fn extend(&self, by: &Credentials, file: Ino, range: &Range<u64>) -> Result<()> {
        if let Some(volume) = self.find_volume(file)? {
            let fits = range.end <= volume.size();
            return if fits { Ok(()) } else { Err(Error::Refused { reason: Reason::NoSpace }) };
        }
        Ok(self.0.files().extend(
            &self.change_context(by),
            Self::writable_object(file)?,
            range.end,
        )?)
    }

    /// Shares blocks of a range with a file of the same pool, which may be of another file system or of a snapshot.
    /// Returns the number of bytes shared from its start.
    pub(super) fn clone_blocks(
        &self,
        by: &Credentials,
        from: (&OpenFile, u64),
        to: (Ino, u64),
        length: u64,
    ) -> Result<u64> {
        let (source, source_offset) = from;
        let (target, target_offset) = (Self::writable_object(to.0)?, to.1);
        if !source.file_system().0.pool.is_same(&self.0.pool) {
            return Ok(0);
        }
        let Some(content) = source.file_content()? else { return Ok(0) };
        let (from, to) = ((&content, source_offset), (target, target_offset));
        Ok(self.0.files().clone_content(&self.change_context(by), from, to, length)?)
    }

    /// Copies bytes between files. Returns their number: fewer than `length` at the end of the source.
    pub(super) fn copy_range_unchecked(
        &self,
        by: &Credentials,
        from: (&OpenFile, u64),
        to: (Ino, u64),
        length: u64,
    ) -> Result<u64> {
        let (source, start) = from;
        let mut done = self.clone_blocks(by, from, to, length)?;
        let mut buffer = vec![0; COPY_CHUNK.min(units::to_usize(length))];
        while done < length {
            let left = units::to_usize(length - done);
            let (piece, _) = buffer.split_at_mut(left.min(COPY_CHUNK));
            let count = source.read(start + done, piece)?;
            if count == 0 {
                break;
            }
            let bytes = piece.get(..count).unwrap_or_default();
            let at = WriteOffset::At(to.1 + done);
            self.write_unchecked(by, to.0, at, bytes)?;
            done += units::to_u64(count);
        }
        Ok(done)
    }

    /// Sets an extended attribute, or removes it if there is no value.
    pub(super) fn set_xattr_unchecked(
        &self,
        by: &Credentials,
        file: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let object = Self::writable_object(file)?;
        let set = self.0.files().set_xattr(&self.change_context(by), object, name, value, mode);
        if name == CAPABILITY_XATTR && value.is_some() {
            // also after an error: the change may be done and only its commit have failed
            self.0.capability_version.fetch_add(1, Ordering::AcqRel);
        }
        Ok(set?)
    }

    /// Removes the file capabilities of a program, as every change of its content does.
    pub(super) fn clear_capabilities(&self, by: &Credentials, file: Ino) -> Result<()> {
        if self.xattr_unchecked(file, CAPABILITY_XATTR)?.is_none() {
            return Ok(());
        }
        match self.set_xattr_unchecked(by, file, CAPABILITY_XATTR, None, XattrMode::Any) {
            Err(Error::Refused { reason: Reason::NoXattr }) => Ok(()),
            other => other,
        }
    }

    /// Clears the set-ID bits of a file whose blocks are allocated or freed, even if its content stays.
    pub(super) fn clear_setid(&self, by: &Credentials, file: Ino) -> Result<()> {
        let found = self.attributes_unchecked(file)?;
        if found.kind != FileType::File {
            return Ok(());
        }
        self.change_mode(by, file, found.mode, posix::mode::without_setid(found.mode))
    }

    /// Clears the set-group-ID bit of a file whose ACL a caller outside its group sets.
    pub(super) fn clear_foreign_setgid(&self, by: &Credentials, file: Ino) -> Result<()> {
        let found = self.attributes_unchecked(file)?;
        if by.has(Capability::FileSetId) || by.is_in_group(found.gid) {
            return Ok(());
        }
        self.change_mode(by, file, found.mode, found.mode & !posix::mode::SET_GID)
    }

    /// Sets a POSIX ACL of a file, or removes it.
    pub(super) fn set_posix_acl_unchecked(
        &self,
        by: &Credentials,
        file: Ino,
        kind: PosixAclKind,
        entries: Option<&[PosixAclEntry]>,
    ) -> Result<()> {
        let object = Self::writable_object(file)?;
        Ok(self.0.files().set_posix_acl(&self.change_context(by), object, kind, entries)?)
    }

    /// Sets the NFSv4 ACL of a file, where the dataset has them (acltype=nfsv4).
    pub(super) fn set_nfs4_acl_unchecked(
        &self,
        by: &Credentials,
        file: Ino,
        entries: &[Ace],
    ) -> Result<()> {
        if !self.has_nfs4_acls() {
            return Err(Error::Refused { reason: Reason::NotSupported });
        }
        let object = Self::writable_object(file)?;
        Ok(self.0.files().set_nfs4_acl(&self.change_context(by), object, entries)?)
    }

    /// Sets the mode of a file, if it changes.
    fn change_mode(&self, by: &Credentials, file: Ino, from: u32, to: u32) -> Result<()> {
        if from == to {
            return Ok(());
        }
        self.set_attributes_unchecked(
            by,
            file,
            &SetAttributes { mode: Some(to), ..SetAttributes::default() },
        )
        .map(drop)
    }
}
