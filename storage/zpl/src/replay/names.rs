//! The records that make, remove and move names.

use ondisk::zil::{Create, CreateKind, Rename, RenameKind, Whiteout};
use ondisk::znode::{Time, device, flag};
use units::{ObjectId, Txg};

use crate::fs::Inner;
use crate::overlay::Change;
use crate::{Attributes, Error, Kind, Result};

impl Inner {
    pub(super) fn create(&mut self, create: &Create) -> Result<()> {
        let mut attributes = self.made(create.dir, create.mode, create.crtime)?;
        attributes.set_owner(create.uid);
        attributes.set_group(create.gid);
        attributes.generation = Txg::new(create.generation);
        attributes.rdev = device(create.rdev);
        attributes.parent = create.dir;
        match create.kind {
            CreateKind::File => {}
            CreateKind::Directory => (attributes.size, attributes.links) = (2, 2),
            CreateKind::XattrDirectory => {
                (attributes.size, attributes.links) = (2, 2);
                attributes.flags |= flag::XATTR;
            }
            CreateKind::Symlink => {
                attributes.size = u64::try_from(create.target.len()).unwrap_or(0);
            }
        }
        let mut change = Change::new(attributes, None);
        change.target.clone_from(&create.target);
        if let Some(extra) = &create.attributes {
            change.set_extra(extra);
        }
        self.overlay.nodes.insert(create.object, change);
        if create.kind == CreateKind::XattrDirectory {
            self.change(create.dir)?.attributes.xattr_dir = create.object;
            return Ok(());
        }
        self.add_name(create.dir, &create.name, create.object, attributes.kind)
    }

    /// The attributes of something new in a directory.
    fn made(&mut self, dir: ObjectId, mode: u64, crtime: [u64; 2]) -> Result<Attributes> {
        let parent = self.change(dir)?.attributes;
        let mut out = Attributes::blank();
        out.set_mode(mode);
        let time = Time::from_words(crtime);
        (out.atime, out.mtime, out.ctime, out.crtime) = (time, time, time, time);
        out.flags = flag::ACL_TRIVIAL;
        if out.kind == Kind::File {
            out.flags |= flag::ARCHIVE | flag::AV_MODIFIED;
        }
        if parent.flags & flag::PROJINHERIT != 0 && matches!(out.kind, Kind::File | Kind::Directory)
        {
            out.flags |= flag::PROJINHERIT | flag::PROJID;
            out.project = parent.project;
        }
        Ok(out)
    }

    pub(super) fn remove(&mut self, dir: ObjectId, name: &[u8]) -> Result<()> {
        let object = self.take_name(dir, name)?;
        self.unlink(object)
    }

    pub(super) fn link(&mut self, dir: ObjectId, object: ObjectId, name: &[u8]) -> Result<()> {
        let attributes = &mut self.change(object)?.attributes;
        attributes.links = attributes.links.saturating_add(1);
        let kind = attributes.kind;
        self.add_name(dir, name, object, kind)
    }

    pub(super) fn rename(&mut self, rename: &Rename) -> Result<()> {
        let Rename { kind, source_dir, target_dir, source, target } = rename;
        let moved = self.take_name(*source_dir, source)?;
        let other = match self.lookup(*target_dir, target)? {
            Some(_) => Some(self.take_name(*target_dir, target)?),
            None => None,
        };
        match (kind, other) {
            (RenameKind::Exchange, Some(other)) => self.place(*source_dir, source, other)?,
            (_, Some(other)) => self.unlink(other)?,
            (_, None) => {}
        }
        self.place(*target_dir, target, moved)?;
        if let RenameKind::Whiteout(whiteout) = kind {
            self.whiteout(*source_dir, source, whiteout)?;
        }
        Ok(())
    }

    fn whiteout(&mut self, dir: ObjectId, name: &[u8], whiteout: &Whiteout) -> Result<()> {
        let mut attributes = self.made(dir, whiteout.mode, whiteout.crtime)?;
        attributes.set_owner(whiteout.uid);
        attributes.set_group(whiteout.gid);
        attributes.generation = Txg::new(whiteout.generation);
        attributes.rdev = device(whiteout.rdev);
        attributes.parent = dir;
        self.overlay.nodes.insert(whiteout.object, Change::new(attributes, None));
        self.add_name(dir, name, whiteout.object, attributes.kind)
    }

    /// Puts a file that has lost this name elsewhere under another one.
    fn place(&mut self, dir: ObjectId, name: &[u8], object: ObjectId) -> Result<()> {
        let attributes = &mut self.change(object)?.attributes;
        attributes.parent = dir;
        let kind = attributes.kind;
        self.add_name(dir, name, object, kind)
    }

    fn add_name(&mut self, dir: ObjectId, name: &[u8], object: ObjectId, kind: Kind) -> Result<()> {
        let parent = self.change(dir)?;
        parent.names.added.insert(name.to_vec(), (object, kind));
        let attributes = &mut parent.attributes;
        attributes.size = attributes.size.saturating_add(1);
        if kind == Kind::Directory {
            attributes.links = attributes.links.saturating_add(1);
        }
        Ok(())
    }

    /// Takes a name out of its directory; the file it named keeps its links.
    fn take_name(&mut self, dir: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let Some((stored, object)) = self.lookup_stored_name(dir, name)? else {
            let rule = "a name that the intent log removes must be there";
            return Err(Error::Rule { objset: self.objset.id(), object: dir, rule });
        };
        let kind = self.attributes(object)?.kind;
        let parent = self.change(dir)?;
        if parent.names.added.remove(&stored).is_none() {
            parent.names.hidden.insert(stored);
        }
        let attributes = &mut parent.attributes;
        attributes.size = attributes.size.saturating_sub(1);
        if kind == Kind::Directory {
            attributes.links = attributes.links.saturating_sub(1);
        }
        Ok(object)
    }

    /// A file lost a name for good; with its last one it is gone.
    fn unlink(&mut self, object: ObjectId) -> Result<()> {
        let change = self.change(object)?;
        let attributes = &mut change.attributes;
        attributes.links = match attributes.kind {
            Kind::Directory => 0,
            _ => attributes.links.saturating_sub(1),
        };
        change.is_gone = attributes.links == 0;
        Ok(())
    }
}
