//! The intent log laid over a file system in memory, as an import would replay it on disk.
//!
//! OpenZFS sets some times to the time of the replay; this replay keeps the old ones, because it
//! has no clock. Both stop at a record that cannot be applied. One exception: for the removal of a
//! missing attribute (one in the attribute directory) OpenZFS 2.3 stops, and this replay continues.

mod names;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ondisk::acl;
use ondisk::zil::{Attributes as Extra, Body, Record, SetAttr, Write};
use ondisk::znode::flag;
use posix::{FileType, Time, acl::Ace};
use units::ObjectId;
use zil::extents::ExtentContent;
use zil::{LogEnd, LogReader, WrittenBlock};

use crate::attributes::AttributeError;
use crate::fs::FsInner;
use crate::log_overlay::FileOverlay;
use crate::{Error, Result};

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplaySummary {
    /// How many records were applied.
    pub records: u64,
    /// Where the log came to its end; `None` if no log was given, or it was not read to its end.
    pub log_end: Option<LogEnd>,
    /// The record that could not be applied, by its number, and why.
    pub failed_record: Option<(u64, Error)>,
}

/// Lays the records of `log` over the file system.
pub(crate) fn apply_log(inner: &mut FsInner, log: &mut LogReader) -> ReplaySummary {
    let mut out = ReplaySummary::default();
    for entry in &mut *log {
        let Ok(entry) = entry else { break }; // the stop reports it
        if let Err(why) = inner.apply_record(&entry.record, entry.block.as_ref()) {
            out.failed_record = Some((entry.record.seq, why));
            return out;
        }
        out.records = out.records.saturating_add(1);
    }
    out.log_end = log.end().cloned();
    out
}

/// The object that a record needs. Changes of a file are in any order, and the file may be gone at
/// the end of the log. Names in a missing directory are extended attributes of a file that was
/// unlinked while open: OpenZFS does not log them, older versions of Poolhouse did.
pub(crate) fn required_object(body: &Body) -> Option<ObjectId> {
    match body {
        Body::Create(create) => Some(create.dir),
        Body::Remove { dir, .. } => Some(*dir),
        body => body.changed_object(),
    }
}

impl FsInner {
    /// Applies one record.
    pub(crate) fn apply_record(
        &mut self,
        record: &Record,
        block: Option<&WrittenBlock>,
    ) -> Result<()> {
        if let Some(object) = required_object(&record.body)
            && !self.file_exists(object)?
        {
            return Ok(());
        }
        match &record.body {
            Body::Create(create) => self.apply_create(create),
            Body::Remove { dir, name } | Body::RemoveDirectory { dir, name } => {
                self.apply_remove(*dir, name)
            }
            Body::Link { dir, object, name } => self.apply_link(*dir, *object, name),
            Body::Rename(rename) => self.apply_rename(rename),
            Body::Write(write) => self.apply_write(write, block),
            Body::WriteSynced { object, offset, length } => {
                let change = self.file_overlay_mut(*object)?;
                change.extend_size(offset.saturating_add(*length));
                Ok(())
            }
            Body::Truncate { object, offset, length } => {
                let record_size = self.options.record_size;
                self.file_overlay_mut(*object)?.free_range(*offset, *length, record_size);
                Ok(())
            }
            Body::SetAttr(set) => self.apply_setattr(set),
            Body::OldAcl { object, count, entries } => {
                let entries = acl::parse_old(entries, *count, record.order);
                self.apply_acl(*object, entries)
            }
            Body::Acl { object, acl } => {
                let entries = acl::parse(&acl.entries, acl.count, record.order);
                self.apply_acl(*object, entries)
            }
            Body::SetXattr { object, name, value } => self.apply_xattr(*object, name, value),
            Body::Clone { object, offset, length, block_size, pointers } => {
                let change = self.file_overlay_mut(*object)?;
                let end = offset.saturating_add(*length);
                let mut at = *offset;
                for pointer in pointers {
                    let next = at.saturating_add(*block_size).min(end);
                    let content = if pointer.is_hole() {
                        ExtentContent::Zeros
                    } else {
                        ExtentContent::Block { pointer: Arc::new(pointer.clone()), skip: 0 }
                    };
                    change.extents.insert(at, next, content);
                    at = next;
                }
                change.block_layout.clone_to(*block_size, end);
                change.extend_size(end);
                Ok(())
            }
        }
    }

    /// Whether a file exists at this point of the log.
    fn file_exists(&self, id: ObjectId) -> Result<bool> {
        if let Some(change) = self.log_overlay.get(id) {
            return Ok(!change.is_removed);
        }
        match self.objset.dnode(id) {
            Ok(_) => Ok(true),
            Err(why) if why.is_not_found() => Ok(false),
            Err(why) => Err(why.into()),
        }
    }

    /// A file as the log leaves it so far, to be changed.
    fn file_overlay_mut(&mut self, id: ObjectId) -> Result<&mut FileOverlay> {
        if !self.log_overlay.files.contains_key(&id) {
            let (attributes, object) = (self.attributes(id)?, self.objset.object(id)?);
            self.log_overlay.files.insert(id, FileOverlay::new(attributes, Some(&object)));
        }
        let gone = self.not_found(id);
        match self.log_overlay.files.get_mut(&id) {
            Some(change) if !change.is_removed => Ok(change),
            _ => Err(gone),
        }
    }

    fn apply_write(&mut self, write: &Write, block: Option<&WrittenBlock>) -> Result<()> {
        let record_size = self.options.record_size;
        let change = self.file_overlay_mut(write.object)?;
        let end = write.offset.saturating_add(write.length);
        if let Some(data) = &write.data {
            let content = ExtentContent::Bytes { data: data.as_slice().into(), skip: 0 };
            change.extents.insert(write.offset, end, content);
            change.block_layout.write_to(end, record_size);
            change.extend_size(end);
        } else if let Some(block) = block {
            let length = u64::try_from(block.content.len()).unwrap_or(0);
            let block_end = block.offset.saturating_add(length);
            let pointer = Arc::new(write.pointer.clone());
            change.extents.insert(
                block.offset,
                block_end,
                ExtentContent::Block { pointer, skip: 0 },
            );
            change.block_layout.write_to(block_end, record_size);
            // a whole block is written. OpenZFS truncates the file after the written range only if
            // the record made it longer: a block that reaches beyond the end of the file leaves it
            // longer
            let is_longer = change.attributes.size < end;
            change.extend_size(if is_longer { end } else { block_end });
        } else {
            change.extents.insert(write.offset, end, ExtentContent::Zeros);
            change.block_layout.write_to(end, record_size);
            change.extend_size(end);
        }
        Ok(())
    }

    fn apply_setattr(&mut self, set: &SetAttr) -> Result<()> {
        let record_size = self.options.record_size;
        let change = self.file_overlay_mut(set.object)?;
        let has = |bit| set.mask & bit != 0;
        if has(SetAttr::SIZE) && change.attributes.kind == FileType::File {
            change.free_range(set.size, 0, record_size);
        }
        let attributes = &mut change.attributes;
        if has(SetAttr::MODE) {
            let kind = u64::from(attributes.kind.type_bits()) << 12;
            attributes.set_mode(kind | (set.mode & 0o7777));
        }
        if has(SetAttr::UID) {
            attributes.set_owner(set.uid);
        }
        if has(SetAttr::GID) {
            attributes.set_group(set.gid);
        }
        if has(SetAttr::ATIME) {
            attributes.atime = Time::from_words(set.atime);
        }
        if has(SetAttr::MTIME) || has(SetAttr::SIZE) {
            attributes.mtime = Time::from_words(set.mtime);
        }
        if let Some(extra) = &set.attributes {
            change.set_optional_attributes(extra);
        }
        Ok(())
    }

    fn apply_acl(&mut self, object: ObjectId, entries: ondisk::Result<Vec<Ace>>) -> Result<()> {
        let entries =
            entries.map_err(|why| self.attribute_error(object, AttributeError::Format(why)))?;
        let change = self.file_overlay_mut(object)?;
        change.attributes.flags &= !flag::ACL_TRIVIAL;
        change.acl = Some(entries);
        Ok(())
    }

    fn apply_xattr(&mut self, object: ObjectId, name: &[u8], value: &[u8]) -> Result<()> {
        let change = self.file_overlay_mut(object)?;
        let (known, is_new) = (change.xattrs.take(), change.is_new);
        let mut all = match known {
            Some(all) => all,
            None if is_new => std::collections::BTreeMap::new(),
            None => {
                let stored = self.objset.object(object)?;
                self.stored_sa_xattrs(object, Some(&stored))?
            }
        };
        if value.is_empty() {
            all.remove(name);
        } else {
            all.insert(name.to_vec(), value.to_vec());
        }
        self.file_overlay_mut(object)?.xattrs = Some(all);
        Ok(())
    }
}

impl FileOverlay {
    /// The file reaches to `end` at least.
    fn extend_size(&mut self, end: u64) {
        self.attributes.size = self.attributes.size.max(end);
    }

    /// Frees a range; a length of 0 stands for everything behind, which ends the file there.
    fn free_range(&mut self, offset: u64, length: u64, record_size: u32) {
        let size = self.attributes.size;
        let end = offset.saturating_add(length);
        if end > size {
            self.block_layout.extend_to(end, record_size);
        }
        if offset > size {
            self.attributes.size = end;
        } else if length == 0 {
            self.extents.insert(offset, u64::MAX, ExtentContent::Zeros);
            self.attributes.size = offset;
        } else {
            self.extents.insert(offset, end, ExtentContent::Zeros);
            self.extend_size(end);
        }
    }

    /// Sets flags, the time of making and the project.
    fn set_optional_attributes(&mut self, extra: &Extra) {
        let requested = extra.requested.first().copied().map_or(0, u64::from);
        let attributes = &mut self.attributes;
        for (bit, flag) in ATTR_FLAGS {
            if requested & bit != 0 {
                attributes.flags &= !flag;
                if extra.values & bit != 0 {
                    attributes.flags |= flag;
                }
            }
        }
        if requested & ATTR_CREATE_TIME != 0 {
            attributes.crtime = Time::from_words(extra.crtime);
        }
        if requested & ATTR_PROJECT != 0 {
            attributes.project_id = extra.project;
            attributes.flags |= flag::PROJID;
        }
    }
}

const ATTR_CREATE_TIME: u64 = 0x1;
const ATTR_PROJECT: u64 = 0x40000;

/// The bits of extra attributes in a record and the flags of a file that they stand for.
pub(crate) const ATTR_FLAGS: [(u64, u64); 15] = [
    (0x2, flag::ARCHIVE),
    (0x4, flag::SYSTEM),
    (0x8, flag::READONLY),
    (0x10, flag::HIDDEN),
    (0x20, flag::NOUNLINK),
    (0x40, flag::IMMUTABLE),
    (0x80, flag::APPENDONLY),
    (0x100, flag::NODUMP),
    (0x200, flag::OPAQUE),
    (0x400, flag::AV_QUARANTINED),
    (0x800, flag::AV_MODIFIED),
    (0x2000, flag::REPARSE),
    (0x8000, flag::OFFLINE),
    (0x10000, flag::SPARSE),
    (0x20000, flag::PROJINHERIT),
];
