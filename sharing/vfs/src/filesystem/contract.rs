//! The contract of file protocols, kept by a file system of an imported pool.
//!
//! Each request checks permissions, changes the file by a method of `write.rs`, and waits for a
//! suspended pool if its context allows that.

use std::ops::Range;
use std::sync::atomic::Ordering;

use engine::files::DatasetSpace;
use posix::access::{self, OpenMode};
use posix::acl::nfs4::mask;
use posix::acl::{Ace, PosixAclEntry, PosixAclKind};
use posix::{
    Attributes, FileType, Ino, NewInode, RenameMode, RenameRequest, SetAttributes, Time,
    WriteOffset, XattrMode,
};

use super::checks::check_open_mode;
use super::{OpenDir, OpenFile, PoolFileSystem};
use crate::changes::ChangeKind;
use crate::leases::LeaseAction;
use crate::{
    AccessChecks, AllocateMode, Context, CreateMode, DirEntry, Error, FileOffset, FileSystem,
    Limits, Opened, Reason, Result,
};

impl FileSystem for PoolFileSystem {
    type File = OpenFile;
    type Directory = OpenDir;

    fn root(&self) -> Result<Ino> {
        Ok(self.root_ino())
    }

    fn limits(&self) -> Limits {
        Limits {
            max_name_len: self.max_name_len(),
            has_exact_names: self.has_exact_names(),
            has_posix_acls: self.has_posix_acls(),
            has_nfs4_acls: self.has_nfs4_acls(),
            is_read_only: self.0.files().is_read_only(),
        }
    }

    fn space(&self, _context: &Context<'_>, _ino: Ino) -> Result<DatasetSpace> {
        Ok(self.space_unchecked())
    }

    fn sync(&self, _context: &Context<'_>) -> Result<()> {
        self.sync_unchecked()
    }

    fn lookup(&self, context: &Context<'_>, dir: Ino, name: &[u8]) -> Result<Attributes> {
        self.check_dir_mask(context, dir, mask::EXECUTE)?;
        match name {
            b"." => self.attributes_unchecked(dir),
            b".." => self.attributes_unchecked(self.parent_ino(dir)?),
            name => {
                let found = self.lookup_unchecked(dir, name)?;
                if self.0.doors.leases.is_empty() {
                    return Ok(found);
                }
                // a client that keeps changes in its cache writes them back first
                drop(self.begin(context, found.ino, LeaseAction::Read)?);
                self.lookup_unchecked(dir, name)
            }
        }
    }

    fn attributes(&self, context: &Context<'_>, ino: Ino) -> Result<Attributes> {
        self.check_mask(context, ino, mask::READ_ATTRIBUTES)?;
        // a client that keeps changes in its cache writes them back first
        drop(self.begin(context, ino, LeaseAction::Read)?);
        self.attributes_or_unlinked(ino)
    }

    fn access(&self, context: &Context<'_>, ino: Ino, wanted: u32) -> Result<u32> {
        if !context.is_enforced() {
            return Ok(wanted);
        }
        Ok(access::granted(context.credentials, &self.target(ino)?, wanted))
    }

    fn set_attributes(
        &self,
        context: &Context<'_>,
        ino: Ino,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        let credentials = context.credentials;
        let set = match context.checks {
            AccessChecks::Enforced => {
                access::check_set_attributes(credentials, &self.target(ino)?, set)?
            }
            AccessChecks::OwnerOverride => {
                let target = self.target(ino)?;
                access::check_set_attributes_with_owner_override(credentials, &target, set)?
            }
            AccessChecks::DoneByDoor => *set,
        };
        self.set_attributes_retried(context, ino, &set)
    }

    fn read_link(&self, _context: &Context<'_>, ino: Ino) -> Result<Vec<u8>> {
        self.read_link_unchecked(ino)
    }

    fn create(
        &self,
        context: &Context<'_>,
        dir: Ino,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Attributes> {
        if let Some(snapshot) = self.create_snapshot_dir(context, (dir, name), new)? {
            return Ok(snapshot);
        }
        self.check_dir(context, dir, |credentials, target| {
            access::check_create(credentials, target, new.kind, new.rdev)
        })?;
        let create = || self.create_unchecked(context.credentials, dir, name, new);
        self.add_entry(context, (dir, name), || {
            self.retry_once(context, create, || self.settle_entry(dir, name))
        })
    }

    fn create_and_open(
        &self,
        context: &Context<'_>,
        (dir, name): (Ino, &[u8]),
        new: &NewInode<'_>,
        create: CreateMode,
        open: OpenMode,
    ) -> Result<Opened<OpenFile>> {
        if let CreateMode::Verified(verifier) = create {
            return self.create_verified(context, (dir, name), new, verifier, open);
        }
        let is_exclusive = create == CreateMode::Exclusive || self.is_control_name(dir, name);
        self.check_dir_mask(context, dir, mask::EXECUTE)?;
        // a file that exists opens even in a directory that the caller cannot write
        if !is_exclusive && context.is_enforced() {
            match self.lookup_unchecked(dir, name) {
                Ok(found) => return self.open_existing(context, found, open),
                Err(Error::NotFound) => {}
                Err(why) => return Err(why),
            }
        }
        match self.create(context, dir, name, new) {
            Ok(attributes) => {
                // the caller that creates a file may use it whatever its mode is
                let file = self.open_registered(context, attributes.ino, open)?;
                Ok(Opened { attributes, file, is_new: true })
            }
            // another request was faster
            Err(Error::Refused { reason: Reason::Exists }) if !is_exclusive => {
                let found = self.lookup_unchecked(dir, name)?;
                self.open_existing(context, found, open)
            }
            Err(why) => Err(why),
        }
    }

    fn create_tmpfile(
        &self,
        context: &Context<'_>,
        dir: Ino,
        new: &NewInode<'_>,
        open: OpenMode,
    ) -> Result<Opened<OpenFile>> {
        self.check_dir_mask(context, dir, mask::ADD_FILE | mask::EXECUTE)?;
        let create = || self.create_tmpfile_unchecked(context.credentials, dir, new);
        let (attributes, file) = self.retry(context, create)?;
        let registered = self.register_open(context, attributes.ino, open)?;
        let file = file.with_mode(open).with_registration(registered);
        Ok(Opened { attributes, file, is_new: true })
    }

    fn link(&self, context: &Context<'_>, file: Ino, dir: Ino, name: &[u8]) -> Result<Attributes> {
        self.check_link(context, dir, file)?;
        let link = || self.link_unchecked(context.credentials, file, (dir, name));
        let settle = || self.commit_if_sync_always().and_then(|()| self.attributes_unchecked(file));
        let _operation = self.begin(context, file, LeaseAction::ChangeName)?;
        let result =
            self.add_entry(context, (dir, name), || self.retry_once(context, link, settle));
        self.announce(context, file, || ChangeKind::Attributes);
        result
    }

    fn unlink(&self, context: &Context<'_>, dir: Ino, name: &[u8]) -> Result<()> {
        self.check_delete(context, (dir, name))?;
        let unlink =
            || self.retry_change(context, || self.unlink_unchecked(context.credentials, dir, name));
        self.remove_entry(context, (dir, name), || self.unlink_tracked((dir, name), false, unlink))
    }

    fn rmdir(&self, context: &Context<'_>, dir: Ino, name: &[u8]) -> Result<()> {
        self.remove_directory(context, (dir, name))
    }

    fn rename(&self, context: &Context<'_>, rename: &RenameRequest<'_, Ino>) -> Result<()> {
        if self.rename_snapshot_dir(context, rename)? {
            return Ok(());
        }
        let RenameRequest { from_dir, from_name, to_dir, to_name, mode } = *rename;
        self.check_rename(context, (from_dir, from_name), (to_dir, to_name), mode)?;
        let work =
            || self.retry_change(context, || self.rename_unchecked(context.credentials, rename));
        self.move_entry(context, rename, || match mode {
            RenameMode::Replace | RenameMode::Whiteout => {
                self.unlink_tracked((to_dir, to_name), true, work)
            }
            RenameMode::NoReplace | RenameMode::Exchange => work(),
        })
    }

    fn open(&self, context: &Context<'_>, ino: Ino, open: OpenMode) -> Result<OpenFile> {
        self.check_open(context, ino, open)?;
        let file = self.open_registered(context, ino, open)?;
        if open.truncate {
            let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
            self.set_attributes_retried(context, ino, &set)?;
        }
        Ok(file)
    }

    fn read(
        &self,
        context: &Context<'_>,
        from: FileOffset<'_, OpenFile>,
        into: &mut [u8],
    ) -> Result<usize> {
        check_open_mode(context, from.file.mode().read || from.file.mode().execute)?;
        let _operation = self.begin(context, from.file.ino()?, LeaseAction::Read)?;
        from.file.read(from.offset, into)
    }

    fn write(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        at: WriteOffset,
        bytes: &[u8],
    ) -> Result<()> {
        check_open_mode(context, file.mode().write || file.mode().append)?;
        let at = if context.is_enforced() && file.mode().append { WriteOffset::End } else { at };
        let write = || {
            file.clear_capabilities(context.credentials)?;
            self.write_unchecked(context.credentials, file.ino()?, at, bytes)
        };
        self.change(context, (file.ino()?, ChangeKind::Data), || match at {
            WriteOffset::At(_) => self.retry(context, write),
            // a second append would repeat the bytes
            WriteOffset::End => self.retry_change(context, write),
        })
    }

    fn commit(&self, context: &Context<'_>, ino: Ino) -> Result<()> {
        self.retry(context, || self.fsync(ino))
    }

    fn commit_all(&self, context: &Context<'_>) -> Result<()> {
        self.retry(context, || self.fsync_all())
    }

    fn truncate(&self, context: &Context<'_>, file: &OpenFile, size: u64) -> Result<()> {
        check_open_mode(context, file.mode().write)?;
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.set_attributes_retried(context, file.ino()?, &set).map(drop)
    }

    fn allocate(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        range: Range<u64>,
        mode: AllocateMode,
    ) -> Result<()> {
        check_open_mode(context, file.mode().write)?;
        self.change(context, (file.ino()?, ChangeKind::Data), || {
            self.retry(context, || {
                let ino = self.prepare_arrangement(context, file)?;
                self.check_space(ino, &range)?;
                self.extend_if(context, ino, &range, mode)
            })
        })
    }

    fn punch_hole(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        range: Range<u64>,
        mode: AllocateMode,
    ) -> Result<()> {
        check_open_mode(context, file.mode().write)?;
        self.change(context, (file.ino()?, ChangeKind::Data), || {
            self.retry(context, || {
                let ino = self.prepare_arrangement(context, file)?;
                self.punch_hole_unchecked(context.credentials, ino, range.clone())?;
                self.extend_if(context, ino, &range, mode)
            })
        })
    }

    fn seek_data(&self, _: &Context<'_>, file: &OpenFile, from: u64) -> Result<Option<u64>> {
        file.next_data(from)
    }

    fn seek_hole(&self, _: &Context<'_>, file: &OpenFile, from: u64) -> Result<u64> {
        file.next_hole(from)
    }

    fn clone_range(
        &self,
        context: &Context<'_>,
        from: FileOffset<'_, OpenFile>,
        to: FileOffset<'_, OpenFile>,
        length: u64,
    ) -> Result<u64> {
        self.copy_between(context, &from, &to, |source, target| {
            self.clone_blocks(context.credentials, source, target, length)
        })
    }

    fn copy_range(
        &self,
        context: &Context<'_>,
        from: FileOffset<'_, OpenFile>,
        to: FileOffset<'_, OpenFile>,
        length: u64,
    ) -> Result<u64> {
        self.copy_between(context, &from, &to, |source, target| {
            self.copy_range_unchecked(context.credentials, source, target, length)
        })
    }

    fn open_dir(&self, context: &Context<'_>, ino: Ino) -> Result<OpenDir> {
        self.check_dir_mask(context, ino, mask::LIST_DIRECTORY)?;
        match self.open_dir_unchecked(ino) {
            Err(Error::NotFound) if self.0.unlinked.get(ino).is_some() => {
                Ok(self.open_removed_dir(ino))
            }
            dir => dir,
        }
    }

    fn read_dir(
        &self,
        _context: &Context<'_>,
        dir: &OpenDir,
        cookie: u64,
        visit: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        dir.visit_from(cookie, visit)
    }

    fn xattr_names(&self, context: &Context<'_>, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let mut names = self.xattr_names_unchecked(ino)?;
        names.retain(|name| access::is_xattr_listed(context.credentials, name));
        Ok(names)
    }

    fn xattr(&self, context: &Context<'_>, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check(context, ino, |credentials, target| {
            access::check_get_xattr(credentials, target, name)
        })?;
        self.xattr_unchecked(ino, name)
    }

    fn set_xattr(
        &self,
        context: &Context<'_>,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        self.check(context, ino, |credentials, target| {
            access::check_set_xattr(credentials, target, name)
        })?;
        self.change(context, (ino, ChangeKind::Attributes), || {
            if name == PosixAclKind::Access.xattr_name() && value.is_some() {
                self.retry(context, || self.clear_foreign_setgid(context.credentials, ino))?;
            }
            self.retry_change(context, || {
                self.set_xattr_unchecked(context.credentials, ino, name, value, mode)
            })
        })
    }

    fn posix_acl(
        &self,
        _context: &Context<'_>,
        ino: Ino,
        kind: PosixAclKind,
    ) -> Result<Option<Vec<PosixAclEntry>>> {
        Ok(self.file(ino)?.posix_acl(kind)?)
    }

    fn set_posix_acl(
        &self,
        context: &Context<'_>,
        ino: Ino,
        kind: PosixAclKind,
        entries: Option<&[PosixAclEntry]>,
    ) -> Result<()> {
        self.check(context, ino, access::check_set_acl)?;
        self.change(context, (ino, ChangeKind::Attributes), || {
            if kind == PosixAclKind::Access && entries.is_some() {
                self.retry(context, || self.clear_foreign_setgid(context.credentials, ino))?;
            }
            self.retry(context, || {
                self.set_posix_acl_unchecked(context.credentials, ino, kind, entries)
            })
        })
    }

    fn nfs4_acl(&self, context: &Context<'_>, ino: Ino) -> Result<Vec<Ace>> {
        self.check_mask(context, ino, mask::READ_ACL)?;
        Ok(self.file(ino)?.nfs4_acl()?)
    }

    fn set_nfs4_acl(&self, context: &Context<'_>, ino: Ino, entries: &[Ace]) -> Result<()> {
        self.check(context, ino, access::check_set_acl)?;
        self.change(context, (ino, ChangeKind::Attributes), || {
            self.retry(context, || self.set_nfs4_acl_unchecked(context.credentials, ino, entries))
        })
    }
}

impl PoolFileSystem {
    /// Creates a file with a verifier, or finds the one that the same request has created before.
    fn create_verified(
        &self,
        context: &Context<'_>,
        (dir, name): (Ino, &[u8]),
        new: &NewInode<'_>,
        verifier: [u8; 8],
        open: OpenMode,
    ) -> Result<Opened<OpenFile>> {
        let times = verifier_times(verifier);
        let new = NewInode { times: Some(times), ..*new };
        let attributes = match self.create(context, dir, name, &new) {
            Err(Error::Refused { reason: Reason::Exists }) if !self.is_control_name(dir, name) => {
                let found = self.lookup_unchecked(dir, name)?;
                let is_own = found.kind == FileType::File && [found.atime, found.mtime] == times;
                if !is_own {
                    return Err(Error::Refused { reason: Reason::Exists });
                }
                found
            }
            created => created?,
        };
        let file = self.open_registered(context, attributes.ino, open)?;
        Ok(Opened { attributes, file, is_new: true })
    }

    /// Opens a file that [`FileSystem::create_and_open`] found.
    fn open_existing(
        &self,
        context: &Context<'_>,
        attributes: Attributes,
        open: OpenMode,
    ) -> Result<Opened<OpenFile>> {
        let file = self.open(context, attributes.ino, open)?;
        Ok(Opened { attributes, file, is_new: false })
    }

    /// Opens a file for a client, and adds it to the table of opens. The entry comes before the recall: a lease that
    /// is granted meanwhile sees it.
    fn open_registered(&self, context: &Context<'_>, ino: Ino, open: OpenMode) -> Result<OpenFile> {
        let registered = self.register_open(context, ino, open)?;
        let action = if open.is_writing() { LeaseAction::Write } else { LeaseAction::Read };
        drop(self.begin(context, ino, action)?);
        let file = self.open_file(ino)?.with_mode(open).with_registration(registered);
        Ok(if open.no_atime { file.without_atime() } else { file })
    }

    /// Commits an entry that is done but was not committed.
    fn settle_entry(&self, dir: Ino, name: &[u8]) -> Result<Attributes> {
        self.commit_if_sync_always()?;
        self.lookup_unchecked(dir, name)
    }

    fn set_attributes_retried(
        &self,
        context: &Context<'_>,
        ino: Ino,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        let drops = set.uid.is_some() || set.gid.is_some() || set.size.is_some();
        let kind = if set.size.is_some() { ChangeKind::Data } else { ChangeKind::Attributes };
        let apply = || {
            if !drops {
                return self.set_attributes_unchecked(context.credentials, ino, set);
            }
            if set.if_ctime.is_none() {
                self.clear_capabilities(context.credentials, ino)?;
                return self.set_attributes_unchecked(context.credentials, ino, set);
            }
            // the removal of capabilities changes the ctime that the guard compares
            self.set_attributes_unchecked(context.credentials, ino, set)?;
            self.clear_capabilities(context.credentials, ino)?;
            self.attributes_unchecked(ino)
        };
        // a guard would refuse a repetition
        let settle = || match set.if_ctime {
            Some(_) => self.commit_if_sync_always().and_then(|()| self.attributes_unchecked(ino)),
            None => apply(),
        };
        self.change(context, (ino, kind), || self.retry_once(context, apply, settle))
    }

    /// Drops the set-ID bits of a file whose blocks an unprivileged caller allocates or frees.
    /// Returns its inode.
    fn prepare_arrangement(&self, context: &Context<'_>, file: &OpenFile) -> Result<Ino> {
        let ino = file.ino()?;
        if !context.credentials.has(posix::Capability::FileSetId) {
            self.clear_setid(context.credentials, ino)?;
        }
        Ok(ino)
    }

    fn extend_if(
        &self,
        context: &Context<'_>,
        ino: Ino,
        range: &Range<u64>,
        mode: AllocateMode,
    ) -> Result<()> {
        match mode {
            AllocateMode::KeepSize => Ok(()),
            AllocateMode::Extend => self.extend(context.credentials, ino, range),
        }
    }

    /// Runs work that takes a name from an inode, and keeps the inode if that was its last name and a door
    /// may still know it. `is_replaced`: the work gives the name to another inode.
    pub(super) fn unlink_tracked(
        &self,
        (dir, name): (Ino, &[u8]),
        is_replaced: bool,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if self.0.unlinked_keepers.load(Ordering::Relaxed) == 0 {
            return work();
        }
        let is_dir = |before: &Attributes| before.kind == FileType::Directory;
        let before = self.lookup_unchecked(dir, name).ok();
        let Some(before) = before.filter(|before| is_dir(before) || before.nlink <= 1) else {
            return work();
        };
        let is_held = !is_dir(&before) && (is_replaced || before.kind != FileType::File);
        let hold = if is_held { self.hold_unlinked(before.ino).ok() } else { None };
        work()?;
        // a rename that only changes the spelling of a name replaces nothing
        if !is_replaced || self.is_unlinked(&before) {
            self.0.unlinked.insert(before, hold, self.now());
        }
        Ok(())
    }

    /// Whether an inode has no name any more.
    fn is_unlinked(&self, before: &Attributes) -> bool {
        let now = self.attributes_unchecked(before.ino);
        now.map_or(true, |now| now.generation != before.generation || now.nlink == 0)
    }
}

/// The times of a file that store the verifier of its creation.
fn verifier_times(verifier: [u8; 8]) -> [Time; 2] {
    let [a, b, c, d, e, f, g, h] = verifier;
    [[a, b, c, d], [e, f, g, h]]
        .map(|half| Time { seconds: u32::from_be_bytes(half).into(), nanoseconds: 0 })
}

impl PoolFileSystem {
    /// Checks the files of a copy, then copies: `copy` takes the source and the target with their offsets.
    fn copy_between(
        &self,
        context: &Context<'_>,
        from: &FileOffset<'_, OpenFile>,
        to: &FileOffset<'_, OpenFile>,
        copy: impl Fn((&OpenFile, u64), (Ino, u64)) -> Result<u64>,
    ) -> Result<u64> {
        check_open_mode(context, from.file.mode().read)?;
        check_open_mode(context, to.file.mode().write && !to.file.mode().append)?;
        let (source, target) = ((from.file, from.offset), (to.file.ino()?, to.offset));
        let source_fs = from.file.file_system();
        let _operation = source_fs.begin(context, from.file.ino()?, LeaseAction::Read)?;
        self.change(context, (target.0, ChangeKind::Data), || {
            self.retry(context, || {
                to.file.clear_capabilities(context.credentials)?;
                copy(source, target)
            })
        })
    }
}
