//! The current and the saved file, and operations on names.

use posix::{FileType, NewInode};

use super::attributes::{RequestedAttributes, to_set_attributes};
use super::compound::Compound;
use crate::attributes::special_type;
use crate::names::RemoveKind;
use crate::node::Node;
use crate::request::Result;
use crate::wire::status::Status;
use crate::wire::v4::{Bitmap, CreateKind, SetAttributes, StateId, attr};

/// The flavor AUTH_SYS.
const AUTH_SYS: u32 = 1;
/// The type of a directory.
const DIRECTORY: u32 = 2;
/// Cookies below this have meanings of their own.
const FIRST_COOKIE: u64 = 3;
/// Bytes of a result of READDIR beside its entries: verifier, the end of the list.
const LIST_OVERHEAD: usize = 8 + 8;
/// Bytes of a name that no file system finds too long.
const SHORT_NAME: usize = 255;
const DEFAULT_MODE: u32 = 0o755;

/// Checks a name that a client sends.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Status::INVAL),
        b"." | b".." => Err(Status::BADNAME),
        name if name.contains(&b'/') || name.contains(&0) => Err(Status::BADNAME),
        _ => Ok(()),
    }
}

impl Compound<'_> {
    /// Makes a file the current one.
    pub(super) fn set_current(&mut self, node: Node) {
        self.current = Some(node);
        self.current_state = None;
    }

    pub(super) fn put_handle(&mut self, handle: &[u8]) -> Result<()> {
        let node = self.request.resolve(handle)?;
        self.set_current(node);
        Ok(())
    }

    pub(super) fn put_root(&mut self) -> Result<()> {
        let node = self.request.root()?;
        self.set_current(node);
        Ok(())
    }

    pub(super) fn get_handle(&mut self) -> Result<()> {
        let handle = self.request.handle(self.current()?)?;
        self.writer.opaque(&handle);
        Ok(())
    }

    pub(super) fn save_handle(&mut self) -> Result<()> {
        self.saved = Some(self.current()?.clone());
        self.saved_state = self.current_state;
        Ok(())
    }

    pub(super) fn restore_handle(&mut self) -> Result<()> {
        self.current = Some(self.saved.clone().ok_or(Status::RESTOREFH)?);
        self.current_state = self.saved_state;
        Ok(())
    }

    /// The current file, which must be a directory.
    pub(super) fn current_dir(&self) -> Result<&Node> {
        let node = self.current()?;
        match self.request.attributes(node)?.stat.kind {
            FileType::Directory => Ok(node),
            FileType::Symlink => Err(Status::SYMLINK),
            _ => Err(Status::NOTDIR),
        }
    }

    pub(super) fn lookup(&mut self, name: &[u8]) -> Result<()> {
        let dir = self.current_dir()?;
        check_name(name)?;
        let is_too_long = match dir {
            Node::File(file) if name.len() > SHORT_NAME => {
                name.len() > file.export.filesystem.limits().max_name_len
            }
            _ => name.len() > SHORT_NAME,
        };
        if is_too_long {
            return Err(Status::NAMETOOLONG);
        }
        let node = self.request.lookup(dir, name)?;
        self.set_current(node);
        Ok(())
    }

    pub(super) fn lookup_parent(&mut self) -> Result<()> {
        let dir = self.current_dir()?;
        if matches!(dir, Node::Pseudo(path) if path == "/") {
            return Err(Status::NOENT);
        }
        let node = self.request.parent(dir)?;
        self.set_current(node);
        Ok(())
    }

    pub(super) fn security_info(&mut self, name: &[u8]) -> Result<()> {
        let dir = self.current_dir()?;
        check_name(name)?;
        self.request.lookup(dir, name)?;
        self.security_info_no_name(false)
    }

    /// Writes the flavors that a client may use. The current file is none after this, but in NFSv4.0.
    pub(super) fn security_info_no_name(&mut self, is_of_parent: bool) -> Result<()> {
        if is_of_parent {
            self.lookup_parent()?;
        }
        self.current()?;
        self.writer.count(1);
        self.writer.u32(AUTH_SYS);
        if self.minor_version > 0 {
            (self.current, self.current_state) = (None, None);
        }
        Ok(())
    }

    pub(super) fn read_link(&mut self) -> Result<()> {
        let node = self.current()?;
        let file = node.file()?;
        if self.request.file_attributes(file)?.stat.kind != FileType::Symlink {
            return Err(Status::WRONG_TYPE);
        }
        let target = file.export.filesystem.read_link(&self.request.context(file), file.ino)?;
        self.writer.opaque(&target);
        Ok(())
    }

    pub(super) fn create(
        &mut self,
        kind: &CreateKind<'_>,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<()> {
        let node = self.current_dir()?.clone();
        check_name(name)?;
        let dir = node.writable()?;
        let (file_type, rdev, target) = match *kind {
            CreateKind::Symlink(target) => (FileType::Symlink, (0, 0), target),
            CreateKind::Device(kind, rdev) => {
                (special_type(kind).ok_or(Status::BADTYPE)?, rdev, &b""[..])
            }
            CreateKind::Other(DIRECTORY) => (FileType::Directory, (0, 0), &b""[..]),
            CreateKind::Other(kind) => {
                (special_type(kind).ok_or(Status::BADTYPE)?, (0, 0), &b""[..])
            }
        };
        let later = to_set_attributes(set)?;
        let mode = later.mode.unwrap_or(DEFAULT_MODE);
        let umask = set.umask.unwrap_or(0);
        let new = NewInode { kind: file_type, mode, umask, rdev, target, ..NewInode::default() };
        let later = posix::SetAttributes { mode: None, size: None, ..later };
        let before = self.request.file_attributes(dir)?.change;
        let made = self.request.create(dir, name, &new, &later)?;
        self.set_acl(&made, set)?;
        self.write_change(before, &node)?;
        set.set.without(&Bitmap::of(&[attr::SIZE])).write(self.writer);
        self.set_current(Node::File(made));
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Result<()> {
        let node = self.current_dir()?.clone();
        check_name(name)?;
        let dir = node.writable()?;
        let before = self.request.file_attributes(dir)?.change;
        self.request.remove(dir, name, RemoveKind::Any)?;
        self.write_change(before, &node)
    }

    pub(super) fn rename(&mut self, from_name: &[u8], to_name: &[u8]) -> Result<()> {
        let (from, to) = (self.saved()?.clone(), self.current_dir()?.clone());
        check_name(from_name)?;
        check_name(to_name)?;
        if !self.request.attributes(&from)?.stat.kind.is_directory() {
            return Err(Status::NOTDIR);
        }
        let (from_dir, to_dir) = (from.writable()?, to.writable()?);
        let before = [from_dir, to_dir].map(|dir| self.request.file_attributes(dir));
        let [from_before, to_before] = before;
        self.request.rename((from_dir, from_name), (to_dir, to_name))?;
        self.write_change(from_before?.change, &from)?;
        self.write_change(to_before?.change, &to)
    }

    pub(super) fn link(&mut self, name: &[u8]) -> Result<()> {
        let (file, dir) = (self.saved()?.clone(), self.current_dir()?.clone());
        check_name(name)?;
        let target = dir.writable()?;
        if self.request.attributes(&file)?.stat.kind.is_directory() {
            return Err(Status::ISDIR);
        }
        let before = self.request.file_attributes(target)?.change;
        self.request.link(file.writable()?, target, name)?;
        self.write_change(before, &dir)
    }

    pub(super) fn read_dir(&mut self, cookie: u64, max_bytes: u32, wanted: &Bitmap) -> Result<()> {
        if wanted.has(attr::TIME_ACCESS_SET) || wanted.has(attr::TIME_MODIFY_SET) {
            return Err(Status::INVAL);
        }
        if (1..FIRST_COOKIE).contains(&cookie) {
            return Err(Status::BAD_COOKIE);
        }
        let dir = self.current_dir()?.clone();
        let most = usize::try_from(max_bytes).expect("a 64-bit system");
        let room = self.room().min(self.request.core.options.max_io_bytes);
        let most = most.min(room).checked_sub(LIST_OVERHEAD).ok_or(Status::TOOSMALL)?;
        // the verifier
        self.writer.u64(0);
        let limit = self.writer.len() + most;
        let (request, writer, minor) = (&self.request, &mut *self.writer, self.minor_version);
        let mut is_any = false;
        // `.` and `..` are no entries here
        let is_complete = request.list(&dir, cookie.max(FIRST_COOKIE - 1), &mut |entry| {
            let before = writer.len();
            writer.bool(true);
            writer.u64(entry.cookie);
            writer.opaque(entry.name);
            let node = entry.target.node(request, entry.name);
            let attributes = RequestedAttributes { bitmap: *wanted, minor_version: minor };
            if let Err(status) = attributes.write_entry(request, &node, entry.fileid, writer) {
                // an entry whose attributes cannot be read, and whose client takes no error for it, is left out
                writer.truncate(before);
                return status != Status::TOOSMALL;
            }
            if writer.len() > limit {
                writer.truncate(before);
                return false;
            }
            is_any = true;
            true
        })?;
        if !is_any && !is_complete {
            return Err(Status::TOOSMALL);
        }
        self.writer.bool(false);
        self.writer.bool(is_complete);
        Ok(())
    }

    /// The state that the next operation means by the current one.
    pub(super) fn set_current_state(&mut self, state: StateId) {
        self.current_state = Some(state);
    }
}
