//! Access checks of requests, unless their door has made them.

use posix::access::{self, Check, OpenMode, Target};
use posix::{Credentials, Ino, RenameMode};

use super::{PoolFileSystem, Vnode};
use crate::{AccessChecks, Context, Error, Result};

impl PoolFileSystem {
    /// The facts of an inode for access checks.
    pub(super) fn target(&self, ino: Ino) -> Result<Target> {
        match Self::vnode(ino)? {
            Vnode::File(..) => match self.file(ino).and_then(|file| Ok(file.access_target()?)) {
                Err(Error::NotFound) => Ok(Target::from(&self.attributes_or_unlinked(ino)?)),
                target => target,
            },
            _ => Ok(Target::from(&self.attributes_unchecked(ino)?)),
        }
    }

    /// Runs a check of an inode.
    pub(super) fn check(
        &self,
        context: &Context<'_>,
        ino: Ino,
        check: impl FnOnce(&Credentials, &Target) -> Check,
    ) -> Result<()> {
        if context.is_enforced() {
            check(context.credentials, &self.target(ino)?)?;
        }
        Ok(())
    }

    /// Checks whether the caller has permissions of an inode.
    pub(super) fn check_mask(&self, context: &Context<'_>, ino: Ino, wanted: u32) -> Result<()> {
        self.check(context, ino, |credentials, target| access::check(credentials, target, wanted))
    }

    /// Runs a check of a directory. An inode of another type is an error whatever its permissions are.
    pub(super) fn check_dir(
        &self,
        context: &Context<'_>,
        dir: Ino,
        check: impl FnOnce(&Credentials, &Target) -> Check,
    ) -> Result<()> {
        if context.is_enforced() {
            check(context.credentials, &self.directory(dir)?)?;
        }
        Ok(())
    }

    /// Checks whether the caller has permissions of a directory.
    pub(super) fn check_dir_mask(
        &self,
        context: &Context<'_>,
        dir: Ino,
        wanted: u32,
    ) -> Result<()> {
        self.check_dir(context, dir, |credentials, target| {
            access::check(credentials, target, wanted)
        })
    }

    /// Checks whether the caller may open a file.
    pub(super) fn check_open(&self, context: &Context<'_>, ino: Ino, open: OpenMode) -> Result<()> {
        let credentials = context.credentials;
        match context.checks {
            AccessChecks::Enforced => access::check_open(credentials, &self.target(ino)?, open)?,
            AccessChecks::OwnerOverride => {
                access::check_open_with_owner_override(credentials, &self.target(ino)?, open)?;
            }
            // the kernel does not know the flags of files
            AccessChecks::DoneByDoor if open.is_writing() => {
                access::check_open_flags(self.attributes_or_unlinked(ino)?.flags, open)?;
            }
            AccessChecks::DoneByDoor => {}
        }
        Ok(())
    }

    /// Checks whether the caller may give a file the name, which is in `dir`.
    pub(super) fn check_link(&self, context: &Context<'_>, dir: Ino, file: Ino) -> Result<()> {
        if !context.is_enforced() {
            return Ok(());
        }
        let (dir, file) = (self.directory(dir)?, self.target(file)?);
        Ok(access::check_link(context.credentials, &dir, &file)?)
    }

    /// Checks whether the caller may remove a name from a directory.
    pub(super) fn check_delete(
        &self,
        context: &Context<'_>,
        (dir, name): (Ino, &[u8]),
    ) -> Result<()> {
        if !context.is_enforced() {
            return Ok(());
        }
        let dir_target = self.searchable(context.credentials, dir)?;
        let file = self.target(self.lookup_unchecked(dir, name)?.ino)?;
        Ok(access::check_delete(context.credentials, &dir_target, &file)?)
    }

    /// Checks whether the caller may rename a file.
    pub(super) fn check_rename(
        &self,
        context: &Context<'_>,
        (from_dir, from_name): (Ino, &[u8]),
        (to_dir, to_name): (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        if !context.is_enforced() {
            return Ok(());
        }
        let credentials = context.credentials;
        let from = self.searchable(credentials, from_dir)?;
        let to = self.searchable(credentials, to_dir)?;
        let file = self.target(self.lookup_unchecked(from_dir, from_name)?.ino)?;
        let replaced = match self.lookup_unchecked(to_dir, to_name) {
            Ok(found) => Some(self.target(found.ino)?),
            Err(Error::NotFound) => None,
            Err(why) => return Err(why),
        };
        let to = (&to, replaced.as_ref());
        let is_same_dir = from_dir == to_dir;
        Ok(access::check_rename(credentials, (&from, &file), to, is_same_dir, mode)?)
    }

    fn directory(&self, dir: Ino) -> Result<Target> {
        let target = self.target(dir)?;
        if target.kind.is_directory() { Ok(target) } else { Err(Error::NotDirectory) }
    }

    /// A directory in which the caller may look up names: others must not learn which names exist.
    fn searchable(&self, credentials: &Credentials, dir: Ino) -> Result<Target> {
        let target = self.directory(dir)?;
        access::check(credentials, &target, posix::acl::nfs4::mask::EXECUTE)?;
        Ok(target)
    }
}

/// Whether an open file may be used so; the kernel checks that itself.
pub(super) fn check_open_mode(context: &Context<'_>, is_open_so: bool) -> Result<()> {
    if context.is_enforced() && !is_open_so { Err(Error::WrongOpenMode) } else { Ok(()) }
}
