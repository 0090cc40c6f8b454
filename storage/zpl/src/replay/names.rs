//! The records that make, remove and move names.

use ondisk::zil::{Create, CreateKind, Rename, RenameKind, Whiteout};
use ondisk::znode::{device, flag};
use posix::{FileType, Time};
use units::{ObjectId, Txg};

use crate::fs::FsInner;
use crate::log_overlay::FileOverlay;
use crate::{Error, Result, ZnodeAttributes};

impl FsInner {
    pub(super) fn apply_create(&mut self, create: &Create) -> Result<()> {
        let mut attributes = self.new_attributes(create.dir, create.mode, create.crtime)?;
        attributes.set_owner(create.uid);
        attributes.set_group(create.gid);
        attributes.generation = Txg::new(create.generation);
        attributes.rdev = device(create.rdev);
        attributes.parent = create.dir;
        match create.kind {
            CreateKind::File => {}
            CreateKind::Directory => (attributes.size, attributes.nlink) = (2, 2),
            CreateKind::XattrDirectory => {
                (attributes.size, attributes.nlink) = (2, 2);
                attributes.flags |= flag::XATTR;
            }
            CreateKind::Symlink => {
                attributes.size = units::to_u64(create.target.len());
            }
        }
        let mut change = FileOverlay::new(attributes, None);
        change.target.clone_from(&create.target);
        if let Some(extra) = &create.attributes {
            change.set_optional_attributes(extra);
        }
        self.log_overlay.files.insert(create.object, change);
        if create.kind == CreateKind::XattrDirectory {
            self.file_overlay_mut(create.dir)?.attributes.xattr_dir = create.object;
            return Ok(());
        }
        self.add_name(create.dir, &create.name, create.object, attributes.kind)
    }

    /// The attributes of something new in a directory.
    fn new_attributes(
        &mut self,
        dir: ObjectId,
        mode: u64,
        crtime: [u64; 2],
    ) -> Result<ZnodeAttributes> {
        let parent = self.file_overlay_mut(dir)?.attributes;
        let mut out = ZnodeAttributes::empty();
        out.set_mode(mode);
        let time = Time::from_words(crtime);
        (out.atime, out.mtime, out.ctime, out.crtime) = (time, time, time, time);
        out.flags = flag::ACL_TRIVIAL;
        if out.kind == FileType::File {
            out.flags |= flag::ARCHIVE | flag::AV_MODIFIED;
        }
        if parent.flags & flag::PROJINHERIT != 0
            && matches!(out.kind, FileType::File | FileType::Directory)
        {
            out.flags |= flag::PROJINHERIT | flag::PROJID;
            out.project_id = parent.project_id;
        }
        Ok(out)
    }

    pub(super) fn apply_remove(&mut self, dir: ObjectId, name: &[u8]) -> Result<()> {
        let object = self.remove_name(dir, name)?;
        self.drop_link(object)
    }

    pub(super) fn apply_link(
        &mut self,
        dir: ObjectId,
        object: ObjectId,
        name: &[u8],
    ) -> Result<()> {
        let attributes = &mut self.file_overlay_mut(object)?.attributes;
        attributes.nlink = attributes.nlink.saturating_add(1);
        let kind = attributes.kind;
        self.add_name(dir, name, object, kind)
    }

    pub(super) fn apply_rename(&mut self, rename: &Rename) -> Result<()> {
        let Rename { kind, source_dir, target_dir, source, target } = rename;
        let moved = self.remove_name(*source_dir, source)?;
        let other = match self.lookup(*target_dir, target)? {
            Some(_) => Some(self.remove_name(*target_dir, target)?),
            None => None,
        };
        match (kind, other) {
            (RenameKind::Exchange, Some(other)) => self.relink(*source_dir, source, other)?,
            (_, Some(other)) => self.drop_link(other)?,
            (_, None) => {}
        }
        self.relink(*target_dir, target, moved)?;
        if let RenameKind::Whiteout(whiteout) = kind {
            self.apply_whiteout(*source_dir, source, whiteout)?;
        }
        Ok(())
    }

    fn apply_whiteout(&mut self, dir: ObjectId, name: &[u8], whiteout: &Whiteout) -> Result<()> {
        let mut attributes = self.new_attributes(dir, whiteout.mode, whiteout.crtime)?;
        attributes.set_owner(whiteout.uid);
        attributes.set_group(whiteout.gid);
        attributes.generation = Txg::new(whiteout.generation);
        attributes.rdev = device(whiteout.rdev);
        attributes.parent = dir;
        self.log_overlay.files.insert(whiteout.object, FileOverlay::new(attributes, None));
        self.add_name(dir, name, whiteout.object, attributes.kind)
    }

    /// Puts a file that has lost this name elsewhere under another one.
    fn relink(&mut self, dir: ObjectId, name: &[u8], object: ObjectId) -> Result<()> {
        let attributes = &mut self.file_overlay_mut(object)?.attributes;
        attributes.parent = dir;
        let kind = attributes.kind;
        self.add_name(dir, name, object, kind)
    }

    fn add_name(
        &mut self,
        dir: ObjectId,
        name: &[u8],
        object: ObjectId,
        kind: FileType,
    ) -> Result<()> {
        let parent = self.file_overlay_mut(dir)?;
        parent.dir_names.added.insert(name.to_vec(), (object, kind));
        let attributes = &mut parent.attributes;
        attributes.size = attributes.size.saturating_add(1);
        if kind == FileType::Directory {
            attributes.nlink = attributes.nlink.saturating_add(1);
        }
        Ok(())
    }

    /// Takes a name out of its directory; the file it named keeps its links.
    fn remove_name(&mut self, dir: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let Some((stored, object)) = self.lookup_stored_name(dir, name)? else {
            let rule = "a name that the intent log removes must be there";
            return Err(Error::Malformed { objset: self.objset.id(), object: dir, rule });
        };
        let kind = self.attributes(object)?.kind;
        let parent = self.file_overlay_mut(dir)?;
        if parent.dir_names.added.remove(&stored).is_none() {
            parent.dir_names.removed.insert(stored);
        }
        let attributes = &mut parent.attributes;
        attributes.size = attributes.size.saturating_sub(1);
        if kind == FileType::Directory {
            attributes.nlink = attributes.nlink.saturating_sub(1);
        }
        Ok(object)
    }

    /// A file lost a name; with its last one it is removed.
    fn drop_link(&mut self, object: ObjectId) -> Result<()> {
        let change = self.file_overlay_mut(object)?;
        let attributes = &mut change.attributes;
        attributes.nlink = match attributes.kind {
            FileType::Directory => 0,
            _ => attributes.nlink.saturating_sub(1),
        };
        change.is_removed = attributes.nlink == 0;
        Ok(())
    }
}
