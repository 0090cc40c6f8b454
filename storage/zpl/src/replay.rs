//! The intent log laid over a file system in memory, as an import would replay it on disk.
//!
//! Where OpenZFS sets a time to that of the replay, this keeps what was there: there is no clock
//! here. What it does with a record that it cannot apply is what this does: it stops there. But where an
//! attribute is to be removed that is not there (one that was kept in a directory), OpenZFS 2.3 stops, and
//! this goes on.

mod names;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ondisk::acl;
use ondisk::zil::{Attributes as Extra, Body, Record, SetAttr, Write};
use ondisk::znode::{Time, flag};
use units::ObjectId;
use zil::extents::Content;
use zil::{Records, Stop, WrittenBlock};

use crate::attributes::Fault;
use crate::fs::Inner;
use crate::overlay::Change;
use crate::{Error, Kind, Result};

/// What came of a log.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// How many records were applied.
    pub records: u64,
    /// Where the log came to its end; `None` if no log was given, or it was not read to its end.
    pub stop: Option<Stop>,
    /// The record that could not be applied, by its number, and why.
    pub failed: Option<(u64, Error)>,
}

/// Lays the records of `log` over the file system.
pub(crate) fn apply(inner: &mut Inner, log: &mut Records) -> Replayed {
    let mut out = Replayed::default();
    for entry in &mut *log {
        let Ok(entry) = entry else { break }; // the stop tells it
        if let Err(why) = inner.apply(&entry.record, entry.block.as_ref()) {
            out.failed = Some((entry.record.seq, why));
            return out;
        }
        out.records = out.records.saturating_add(1);
    }
    out.stop = log.stop().cloned();
    out
}

/// What a record is nothing without. What is done to a file is written in any order, and the file
/// may be gone by the end of the log. Names in a directory that is gone are extended attributes of a
/// file that was open when it was removed: OpenZFS does not log them, we did once.
pub(crate) fn needed(body: &Body) -> Option<ObjectId> {
    match body {
        Body::Create(create) => Some(create.dir),
        Body::Remove { dir, .. } => Some(*dir),
        body => body.changed_object(),
    }
}

impl Inner {
    /// Applies one record.
    pub(crate) fn apply(&mut self, record: &Record, block: Option<&WrittenBlock>) -> Result<()> {
        if let Some(object) = needed(&record.body)
            && !self.exists(object)?
        {
            return Ok(());
        }
        match &record.body {
            Body::Create(create) => self.create(create),
            Body::Remove { dir, name } | Body::RemoveDirectory { dir, name } => {
                self.remove(*dir, name)
            }
            Body::Link { dir, object, name } => self.link(*dir, *object, name),
            Body::Rename(rename) => self.rename(rename),
            Body::Write(write) => self.write(write, block),
            Body::WritePlaced { object, offset, length } => {
                let change = self.change(*object)?;
                change.grow(offset.saturating_add(*length));
                Ok(())
            }
            Body::Truncate { object, offset, length } => {
                let record_size = self.options.record_size;
                self.change(*object)?.free(*offset, *length, record_size);
                Ok(())
            }
            Body::SetAttr(set) => self.set(set),
            Body::OldAcl { object, count, entries } => {
                let entries = acl::parse_old(entries, *count, record.order);
                self.set_acl(*object, entries)
            }
            Body::Acl { object, acl } => {
                let entries = acl::parse(&acl.entries, acl.count, record.order);
                self.set_acl(*object, entries)
            }
            Body::SetXattr { object, name, value } => self.set_xattr(*object, name, value),
            Body::Clone { object, offset, length, block_size, pointers } => {
                let change = self.change(*object)?;
                let end = offset.saturating_add(*length);
                let mut at = *offset;
                for pointer in pointers {
                    let next = at.saturating_add(*block_size).min(end);
                    let content = if pointer.is_hole() {
                        Content::Zeros
                    } else {
                        Content::Block { pointer: Arc::new(pointer.clone()), skip: 0 }
                    };
                    change.data.put(at, next, content);
                    at = next;
                }
                change.blocks.share(*block_size, end);
                change.grow(end);
                Ok(())
            }
        }
    }

    /// Whether a file is there, as the log leaves it so far.
    fn exists(&self, id: ObjectId) -> Result<bool> {
        if let Some(change) = self.overlay.get(id) {
            return Ok(!change.is_gone);
        }
        match self.objset.dnode(id) {
            Ok(_) => Ok(true),
            Err(why) if why.is_not_found() => Ok(false),
            Err(why) => Err(why.into()),
        }
    }

    /// A file as the log leaves it so far, to be changed.
    fn change(&mut self, id: ObjectId) -> Result<&mut Change> {
        if !self.overlay.nodes.contains_key(&id) {
            let (attributes, object) = (self.attributes(id)?, self.objset.object(id)?);
            self.overlay.nodes.insert(id, Change::new(attributes, Some(&object)));
        }
        let gone = self.gone(id);
        match self.overlay.nodes.get_mut(&id) {
            Some(change) if !change.is_gone => Ok(change),
            _ => Err(gone),
        }
    }

    fn write(&mut self, write: &Write, block: Option<&WrittenBlock>) -> Result<()> {
        let record_size = self.options.record_size;
        let change = self.change(write.object)?;
        let end = write.offset.saturating_add(write.length);
        if let Some(data) = &write.data {
            let content = Content::Bytes { all: data.as_slice().into(), skip: 0 };
            change.data.put(write.offset, end, content);
            change.blocks.take(end, record_size);
            change.grow(end);
        } else if let Some(block) = block {
            let length = u64::try_from(block.content.len()).unwrap_or(0);
            let block_end = block.offset.saturating_add(length);
            let pointer = Arc::new(write.pointer.clone());
            change.data.put(block.offset, block_end, Content::Block { pointer, skip: 0 });
            change.blocks.take(block_end, record_size);
            // a block is written whole. OpenZFS cuts the file after what was meant only where that
            // made it longer: a block that reaches beyond the end of the file leaves it longer
            let is_longer = change.attributes.size < end;
            change.grow(if is_longer { end } else { block_end });
        } else {
            change.data.put(write.offset, end, Content::Zeros);
            change.blocks.take(end, record_size);
            change.grow(end);
        }
        Ok(())
    }

    fn set(&mut self, set: &SetAttr) -> Result<()> {
        let record_size = self.options.record_size;
        let change = self.change(set.object)?;
        let has = |bit| set.mask & bit != 0;
        if has(SetAttr::SIZE) && change.attributes.kind == Kind::File {
            change.free(set.size, 0, record_size);
        }
        let attributes = &mut change.attributes;
        if has(SetAttr::MODE) {
            let kind = u64::from(attributes.kind.number()) << 12;
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
            change.set_extra(extra);
        }
        Ok(())
    }

    fn set_acl(
        &mut self,
        object: ObjectId,
        entries: ondisk::Result<Vec<acl::Entry>>,
    ) -> Result<()> {
        let entries = entries.map_err(|why| self.fault(object, Fault::Format(why)))?;
        let change = self.change(object)?;
        change.attributes.flags &= !flag::ACL_TRIVIAL;
        change.acl = Some(entries);
        Ok(())
    }

    fn set_xattr(&mut self, object: ObjectId, name: &[u8], value: &[u8]) -> Result<()> {
        let change = self.change(object)?;
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
        self.change(object)?.xattrs = Some(all);
        Ok(())
    }
}

impl Change {
    /// The file reaches to `end` at least.
    fn grow(&mut self, end: u64) {
        self.attributes.size = self.attributes.size.max(end);
    }

    /// Frees a range; a length of 0 stands for everything behind, which ends the file there.
    fn free(&mut self, offset: u64, length: u64, record_size: u32) {
        let size = self.attributes.size;
        let end = offset.saturating_add(length);
        if end > size {
            self.blocks.reach(end, record_size);
        }
        if offset > size {
            self.attributes.size = end;
        } else if length == 0 {
            self.data.put(offset, u64::MAX, Content::Zeros);
            self.attributes.size = offset;
        } else {
            self.data.put(offset, end, Content::Zeros);
            self.grow(end);
        }
    }

    /// Sets flags, the time of making and the project.
    fn set_extra(&mut self, extra: &Extra) {
        let requested = extra.requested.first().copied().map_or(0, u64::from);
        let attributes = &mut self.attributes;
        for (bit, flag) in EXTRA {
            if requested & bit != 0 {
                attributes.flags &= !flag;
                if extra.values & bit != 0 {
                    attributes.flags |= flag;
                }
            }
        }
        if requested & CREATE_TIME != 0 {
            attributes.crtime = Time::from_words(extra.crtime);
        }
        if requested & PROJECT != 0 {
            attributes.project = extra.project;
            attributes.flags |= flag::PROJID;
        }
    }
}

const CREATE_TIME: u64 = 0x1;
const PROJECT: u64 = 0x40000;

/// The bits of extra attributes in a record and the flags of a file that they stand for.
pub(crate) const EXTRA: [(u64, u64); 15] = [
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
