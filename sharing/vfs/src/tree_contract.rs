//! The contract of file protocols for a tree of datasets that never changes.

use std::ops::Range;
use std::sync::Arc;

use engine::files::DatasetSpace;
use posix::access::{self, Check, OpenMode, Target};
use posix::acl::nfs4::mask;
use posix::acl::{Ace, PosixAclEntry, PosixAclKind};
use posix::{
    Attributes, Credentials, Ino, NewInode, RenameRequest, SetAttributes, WriteOffset, XattrMode,
};

use crate::vnode::Vnode;
use crate::{
    AllocateMode, Context, CreateMode, DatasetTree, DirEntry, Error, FileOffset, FileReader,
    FileSystem, Limits, Opened, Reason, Result, TreeDir,
};

const READ_ONLY: Error = Error::Refused { reason: Reason::ReadOnly };
/// The most bytes of a name, with the feature longname.
const MAX_NAME_LEN: usize = 1023;
/// Permissions that no caller has here.
const CHANGES: u32 = mask::WRITE_DATA
    | mask::APPEND_DATA
    | mask::WRITE_NAMED_ATTRIBUTES
    | mask::WRITE_ATTRIBUTES
    | mask::WRITE_ACL
    | mask::WRITE_OWNER
    | mask::DELETE
    | mask::DELETE_CHILD;

impl DatasetTree {
    fn target(&self, ino: Ino) -> Result<Target> {
        match self.vnode(ino)?.0 {
            Vnode::File(..) => Ok(self.file(ino)?.access_target()?),
            _ => Ok(Target::from(&self.attributes(ino)?)),
        }
    }

    fn check(
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

    fn check_dir(&self, context: &Context<'_>, dir: Ino, wanted: u32) -> Result<()> {
        if !context.is_enforced() {
            return Ok(());
        }
        let target = self.target(dir)?;
        if !target.kind.is_directory() {
            return Err(Error::NotDirectory);
        }
        Ok(access::check(context.credentials, &target, wanted)?)
    }
}

impl FileSystem for DatasetTree {
    type File = Arc<FileReader>;
    type Directory = TreeDir;

    fn root(&self) -> Result<Ino> {
        self.root_ino()
    }

    fn limits(&self) -> Limits {
        Limits {
            max_name_len: MAX_NAME_LEN,
            // each dataset compares names in its own way
            has_exact_names: false,
            has_posix_acls: false,
            has_nfs4_acls: false,
            is_read_only: true,
        }
    }

    fn space(&self, _context: &Context<'_>, ino: Ino) -> Result<DatasetSpace> {
        self.space(ino)
    }

    fn sync(&self, _context: &Context<'_>) -> Result<()> {
        Ok(())
    }

    fn lookup(&self, context: &Context<'_>, dir: Ino, name: &[u8]) -> Result<Attributes> {
        self.check_dir(context, dir, mask::EXECUTE)?;
        match name {
            b"." => self.attributes(dir),
            b".." => self.attributes(self.open_dir(dir)?.parent_ino()),
            name => self.lookup(dir, name),
        }
    }

    fn attributes(&self, context: &Context<'_>, ino: Ino) -> Result<Attributes> {
        self.check(context, ino, |credentials, target| {
            access::check(credentials, target, mask::READ_ATTRIBUTES)
        })?;
        self.attributes(ino)
    }

    fn access(&self, context: &Context<'_>, ino: Ino, wanted: u32) -> Result<u32> {
        let wanted = wanted & !CHANGES;
        if !context.is_enforced() {
            return Ok(wanted);
        }
        Ok(access::granted(context.credentials, &self.target(ino)?, wanted))
    }

    fn set_attributes(&self, _: &Context<'_>, _: Ino, _: &SetAttributes) -> Result<Attributes> {
        Err(READ_ONLY)
    }

    fn read_link(&self, _context: &Context<'_>, ino: Ino) -> Result<Vec<u8>> {
        self.read_link(ino)
    }

    fn create(&self, _: &Context<'_>, _: Ino, _: &[u8], _: &NewInode<'_>) -> Result<Attributes> {
        Err(READ_ONLY)
    }

    fn create_and_open(
        &self,
        context: &Context<'_>,
        (dir, name): (Ino, &[u8]),
        _new: &NewInode<'_>,
        create: CreateMode,
        open: OpenMode,
    ) -> Result<Opened<Arc<FileReader>>> {
        let found = FileSystem::lookup(self, context, dir, name);
        match (found, create) {
            (Ok(_), CreateMode::Exclusive | CreateMode::Verified(_)) => {
                Err(Error::Refused { reason: Reason::Exists })
            }
            (Ok(attributes), CreateMode::OpenExisting) => {
                let file = FileSystem::open(self, context, attributes.ino, open)?;
                Ok(Opened { attributes, file, is_new: false })
            }
            (Err(Error::NotFound), _) => Err(READ_ONLY),
            (Err(why), _) => Err(why),
        }
    }

    fn create_tmpfile(
        &self,
        _: &Context<'_>,
        _: Ino,
        _: &NewInode<'_>,
        _: OpenMode,
    ) -> Result<Opened<Arc<FileReader>>> {
        Err(READ_ONLY)
    }

    fn link(&self, _: &Context<'_>, _: Ino, _: Ino, _: &[u8]) -> Result<Attributes> {
        Err(READ_ONLY)
    }

    fn unlink(&self, _: &Context<'_>, _: Ino, _: &[u8]) -> Result<()> {
        Err(READ_ONLY)
    }

    fn rmdir(&self, _: &Context<'_>, _: Ino, _: &[u8]) -> Result<()> {
        Err(READ_ONLY)
    }

    fn rename(&self, _: &Context<'_>, _: &RenameRequest<'_, Ino>) -> Result<()> {
        Err(READ_ONLY)
    }

    fn open(&self, context: &Context<'_>, ino: Ino, open: OpenMode) -> Result<Arc<FileReader>> {
        if open.write || open.append || open.truncate {
            return Err(READ_ONLY);
        }
        self.check(context, ino, |credentials, target| {
            access::check_open(credentials, target, open)
        })?;
        self.open_file(ino)
    }

    fn read(
        &self,
        _context: &Context<'_>,
        from: FileOffset<'_, Arc<FileReader>>,
        into: &mut [u8],
    ) -> Result<usize> {
        from.file.read(from.offset, into.len(), |bytes| {
            let (filled, _) = into.split_at_mut(bytes.len());
            filled.copy_from_slice(bytes);
            bytes.len()
        })
    }

    fn write(&self, _: &Context<'_>, _: &Arc<FileReader>, _: WriteOffset, _: &[u8]) -> Result<()> {
        Err(READ_ONLY)
    }

    fn commit(&self, _context: &Context<'_>, _ino: Ino) -> Result<()> {
        Ok(())
    }

    fn commit_all(&self, _context: &Context<'_>) -> Result<()> {
        Ok(())
    }

    fn truncate(&self, _: &Context<'_>, _: &Arc<FileReader>, _: u64) -> Result<()> {
        Err(READ_ONLY)
    }

    fn allocate(
        &self,
        _: &Context<'_>,
        _: &Arc<FileReader>,
        _: Range<u64>,
        _: AllocateMode,
    ) -> Result<()> {
        Err(READ_ONLY)
    }

    fn punch_hole(
        &self,
        _: &Context<'_>,
        _: &Arc<FileReader>,
        _: Range<u64>,
        _: AllocateMode,
    ) -> Result<()> {
        Err(READ_ONLY)
    }

    fn seek_data(
        &self,
        _context: &Context<'_>,
        file: &Arc<FileReader>,
        from: u64,
    ) -> Result<Option<u64>> {
        file.next_data(from)
    }

    fn seek_hole(&self, _: &Context<'_>, file: &Arc<FileReader>, from: u64) -> Result<u64> {
        file.next_hole(from)
    }

    fn clone_range(
        &self,
        _: &Context<'_>,
        _: FileOffset<'_, Arc<FileReader>>,
        _: FileOffset<'_, Arc<FileReader>>,
        _: u64,
    ) -> Result<u64> {
        Err(READ_ONLY)
    }

    fn copy_range(
        &self,
        _: &Context<'_>,
        _: FileOffset<'_, Arc<FileReader>>,
        _: FileOffset<'_, Arc<FileReader>>,
        _: u64,
    ) -> Result<u64> {
        Err(READ_ONLY)
    }

    fn open_dir(&self, context: &Context<'_>, ino: Ino) -> Result<TreeDir> {
        self.check_dir(context, ino, mask::LIST_DIRECTORY)?;
        self.open_dir(ino)
    }

    fn read_dir(
        &self,
        _context: &Context<'_>,
        dir: &TreeDir,
        cookie: u64,
        visit: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        dir.visit_from(cookie, visit)
    }

    fn xattr_names(&self, context: &Context<'_>, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let mut names = self.xattr_names(ino)?;
        names.retain(|name| access::is_xattr_listed(context.credentials, name));
        Ok(names)
    }

    fn xattr(&self, context: &Context<'_>, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check(context, ino, |credentials, target| {
            access::check_get_xattr(credentials, target, name)
        })?;
        self.xattr(ino, name)
    }

    fn set_xattr(
        &self,
        _: &Context<'_>,
        _: Ino,
        _: &[u8],
        _: Option<&[u8]>,
        _: XattrMode,
    ) -> Result<()> {
        Err(READ_ONLY)
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
        _: &Context<'_>,
        _: Ino,
        _: PosixAclKind,
        _: Option<&[PosixAclEntry]>,
    ) -> Result<()> {
        Err(READ_ONLY)
    }

    fn nfs4_acl(&self, context: &Context<'_>, ino: Ino) -> Result<Vec<Ace>> {
        self.check(context, ino, |credentials, target| {
            access::check(credentials, target, mask::READ_ACL)
        })?;
        Ok(self.file(ino)?.nfs4_acl()?)
    }

    fn set_nfs4_acl(&self, _: &Context<'_>, _: Ino, _: &[Ace]) -> Result<()> {
        Err(READ_ONLY)
    }
}
