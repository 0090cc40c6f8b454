//! Extended attributes (RFC 8276): those of the namespace `user.`, whose names come without it.

use posix::XattrMode;

use super::compound::Compound;
use crate::node::FileNode;
use crate::request::Result;
use crate::wire::status::Status;

const NAMESPACE: &[u8] = b"user.";
/// Bytes of a result of LISTXATTRS beside the names.
const LIST_OVERHEAD: usize = 16;

fn full_name(name: &[u8]) -> Result<Vec<u8>> {
    if name.is_empty() || name.contains(&0) {
        return Err(Status::INVAL);
    }
    Ok([NAMESPACE, name].concat())
}

impl Compound<'_> {
    pub(super) fn get_xattr(&mut self, name: &[u8]) -> Result<()> {
        let file = self.current()?.file()?;
        let context = self.request.context(file);
        let value = file.export.filesystem.xattr(&context, file.ino, &full_name(name)?)?;
        self.writer.opaque(&value.ok_or(Status::NOXATTR)?);
        Ok(())
    }

    pub(super) fn set_xattr(&mut self, how: u32, name: &[u8], value: &[u8]) -> Result<()> {
        let mode = match how {
            0 => XattrMode::Any,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => return Err(Status::INVAL),
        };
        self.change_xattr(name, Some(value), mode)
    }

    pub(super) fn remove_xattr(&mut self, name: &[u8]) -> Result<()> {
        self.change_xattr(name, None, XattrMode::Replace)
    }

    fn change_xattr(&mut self, name: &[u8], value: Option<&[u8]>, mode: XattrMode) -> Result<()> {
        let node = self.current()?.clone();
        let file: &FileNode = node.writable()?;
        let before = self.request.file_attributes(file)?.change;
        let (fs, context) = (&file.export.filesystem, self.request.context(file));
        fs.set_xattr(&context, file.ino, &full_name(name)?, value, mode)?;
        self.request.commit(file)?;
        self.write_change(before, &node)
    }

    pub(super) fn list_xattrs(&mut self, cookie: u64, max_bytes: u32) -> Result<()> {
        let file = self.current()?.file()?;
        let context = self.request.context(file);
        let mut names = file.export.filesystem.xattr_names(&context, file.ino)?;
        names.retain(|name| name.starts_with(NAMESPACE));
        names.sort_unstable();
        let first = usize::try_from(cookie).ok().filter(|first| *first <= names.len());
        let rest = names.split_off(first.ok_or(Status::BAD_COOKIE)?);
        let most = usize::try_from(max_bytes).expect("a 64-bit system").min(self.room());
        let mut room = most.checked_sub(LIST_OVERHEAD).ok_or(Status::TOOSMALL)?;
        let mut shown = Vec::new();
        for name in &rest {
            let name = name.get(NAMESPACE.len()..).unwrap_or_default();
            // the length, the bytes, and up to 3 of padding
            let Some(left) = room.checked_sub(name.len() + 7) else { break };
            room = left;
            shown.push(name);
        }
        if shown.is_empty() && !rest.is_empty() {
            return Err(Status::TOOSMALL);
        }
        let count = u64::try_from(shown.len()).expect("names in memory");
        self.writer.u64(cookie + count);
        self.writer.count(shown.len());
        for name in &shown {
            self.writer.opaque(name);
        }
        self.writer.bool(shown.len() == rest.len());
        Ok(())
    }
}
