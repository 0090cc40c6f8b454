//! Changes the files of an imported pool, in plain data.

use ondisk::acl::encode_posix;
use posix::acl::{Ace, PosixAclEntry, PosixAclKind};
use posix::{
    ChangeContext, CloneRange, NewInode, RenameRequest, SetAttributes, Time, WriteOffset, XattrMode,
};
use units::ObjectId;

use super::OpenFileSystem;
use crate::files::{Content, File, FileStat, Reason, Result};

/// The caller checks permissions, except for the files' own flags.
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
        by: &ChangeContext,
        dir: ObjectId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<File> {
        let made = self.writer().create(by, dir, name, new)?;
        self.finish_operation(None, ())?;
        self.reader().file(made.id.get())
    }

    /// Makes a file without a name (O_TMPFILE), and holds it once for the caller. It can be given
    /// a name by [`OpenFileSystem::link`].
    pub fn create_tmpfile(
        &self,
        by: &ChangeContext,
        dir: ObjectId,
        new: &NewInode<'_>,
    ) -> Result<FileStat> {
        let made = self.writer().create_tmpfile(by, dir, new)?;
        if let Err(why) = self.finish_operation(None, ()) {
            // it could not be reached again
            let _ = self.writer().release_file(made.id);
            return Err(why);
        }
        Ok(FileStat::new(made.id, &made.attributes))
    }

    /// Gives a file one more name.
    pub fn link(
        &self,
        by: &ChangeContext,
        file: ObjectId,
        dir: ObjectId,
        name: &[u8],
    ) -> Result<()> {
        self.finish_operation(None, self.writer().link(by, file, dir, name)?)
    }

    /// Takes a name from a file that is not a directory.
    pub fn unlink(&self, by: &ChangeContext, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.finish_operation(None, self.writer().unlink(by, dir, name)?)
    }

    /// Removes a directory, which must be empty.
    pub fn rmdir(&self, by: &ChangeContext, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.finish_operation(None, self.writer().rmdir(by, dir, name)?)
    }

    /// Moves a name.
    pub fn rename(&self, by: &ChangeContext, how: &RenameRequest<'_, ObjectId>) -> Result<()> {
        self.finish_operation(None, self.writer().rename(by, how)?)
    }

    /// Writes bytes; gives the byte behind them.
    pub fn write(
        &self,
        by: &ChangeContext,
        file: ObjectId,
        at: WriteOffset,
        bytes: &[u8],
    ) -> Result<u64> {
        self.finish_operation(Some(file), self.writer().write(by, file, at, bytes)?)
    }

    /// Makes a range of a file the same as one of another by sharing blocks. Returns the number of bytes from
    /// its start that are shared. The rest has to be copied.
    pub fn clone_blocks(&self, by: &ChangeContext, range: &CloneRange<ObjectId>) -> Result<u64> {
        self.clone_blocks_of(by, self.writer().fs(), range)
    }

    /// The same from a file of the same pool: of this file system, of another one, or of a snapshot. Both files come
    /// with the offset of the range, in bytes.
    pub fn clone_content(
        &self,
        by: &ChangeContext,
        (source, source_offset): (&Content, u64),
        (target, target_offset): (ObjectId, u64),
        length: u64,
    ) -> Result<u64> {
        let Some(inode) = source.inode() else { return Ok(0) };
        let source = inode.id();
        let range = CloneRange { source, source_offset, target, target_offset, length };
        self.clone_blocks_of(by, inode.fs(), &range)
    }

    fn clone_blocks_of(
        &self,
        by: &ChangeContext,
        source: &zpl::Fs,
        range: &CloneRange<ObjectId>,
    ) -> Result<u64> {
        if !self.has_block_cloning() {
            return Ok(0);
        }
        let done = self.writer().clone_blocks(by, source, range)?;
        self.finish_operation(Some(range.target), done)
    }

    /// Makes a hole in a file, which keeps its size.
    pub fn punch_hole(
        &self,
        by: &ChangeContext,
        file: ObjectId,
        range: std::ops::Range<u64>,
    ) -> Result<()> {
        self.finish_operation(Some(file), self.writer().punch_hole(by, file, range)?)
    }

    /// Sees to it that a file reaches to `end` at least. Space is not set aside.
    pub fn extend(&self, by: &ChangeContext, file: ObjectId, end: u64) -> Result<()> {
        self.finish_operation(Some(file), self.writer().extend(by, file, end)?)
    }

    /// Sets attributes of a file.
    pub fn set_attributes(
        &self,
        by: &ChangeContext,
        file: ObjectId,
        set: &SetAttributes,
    ) -> Result<()> {
        self.finish_operation(Some(file), self.writer().set_attributes(by, file, set)?)
    }

    /// Whether that is noted when a file is read of which this is known.
    pub fn is_atime_due(&self, facts: &FileStat, now: Time) -> bool {
        let times = [facts.atime, facts.mtime, facts.ctime];
        !self.is_read_only() && self.writer().is_atime_due(times, now)
    }

    /// Notes that a file was read, if the dataset wants that.
    pub fn update_atime(&self, file: ObjectId, now: Time) -> Result<()> {
        Ok(self.writer().update_atime(file, now)?)
    }

    /// Sets an extended attribute by its Linux name, or removes it if there is no value.
    /// POSIX ACLs are among them.
    pub fn set_xattr(
        &self,
        by: &ChangeContext,
        file: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        self.finish_operation(Some(file), self.writer().set_xattr(by, file, name, value, mode)?)
    }

    /// Sets a POSIX ACL of a file, or removes it.
    pub fn set_posix_acl(
        &self,
        by: &ChangeContext,
        file: ObjectId,
        kind: PosixAclKind,
        entries: Option<&[PosixAclEntry]>,
    ) -> Result<()> {
        let value = entries.map(encode_posix);
        match self.set_xattr(by, file, kind.xattr_name(), value.as_deref(), XattrMode::Any) {
            // there was none to remove
            Err(why) if entries.is_none() && why.reason() == Reason::NoXattr => Ok(()),
            set => set,
        }
    }

    /// Sets the NFSv4 ACL of a file. The mode becomes the one that the ACL shows.
    pub fn set_nfs4_acl(&self, by: &ChangeContext, file: ObjectId, entries: &[Ace]) -> Result<()> {
        self.finish_operation(Some(file), self.writer().set_acl(by, file, entries)?)
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

    /// Whether NFSv4 ACLs of files can be set, and are inherited (`acltype=nfsv4`).
    pub fn has_nfs4_acls(&self) -> bool {
        self.writer().acl_policy().has_nfs4_acls
    }

    /// Whether files may have POSIX ACLs.
    pub fn has_posix_acls(&self) -> bool {
        self.writer().fs().options().posix_acls
    }
}
