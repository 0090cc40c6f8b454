//! The way of log records and chain headers back to bytes, little-endian (drawn in the other
//! files of this module).

use units::ObjectId;

use super::{Acl, Attributes, Body, Chain, Create, CreateKind, Record, Rename, RenameKind};
use super::{SetAttr, Write};
use crate::Blkptr;
use crate::writer::FixedWriter;

const FOLD_CASE: u64 = 1 << 63;

impl Chain {
    /// The chain header with no seal yet: that is made when the whole block is known.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        FixedWriter::new(&mut bytes).u64(0).bytes(&self.next.encode()).u64(self.used);
        bytes
    }
}

impl Record {
    /// The whole record, padded to 8 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = BodyWriter(vec![0; Self::HEADER]);
        let kind = self.body.encode(&mut out);
        let BodyWriter(mut bytes) = out;
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let kind = if self.fold_case { kind | FOLD_CASE } else { kind };
        let length = units::to_u64(bytes.len());
        FixedWriter::new(&mut bytes).u64(kind).u64(length).u64(self.txg.get()).u64(self.seq);
        bytes
    }
}

/// Bytes that grow.
struct BodyWriter(Vec<u8>);

impl BodyWriter {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn words(&mut self, words: &[u64]) {
        for word in words {
            self.bytes(&word.to_le_bytes());
        }
    }

    fn object(&mut self, object: ObjectId) {
        self.words(&[object.get()]);
    }

    fn string(&mut self, string: &[u8]) {
        self.bytes(string);
        self.0.push(0);
    }

    fn strings(&mut self, strings: &[Vec<u8>]) {
        for string in strings {
            self.string(string);
        }
    }

    fn attributes(&mut self, attributes: &Attributes) {
        self.bytes(&units::narrow::<u32>(attributes.requested.len()).to_le_bytes());
        for word in &attributes.requested {
            self.bytes(&word.to_le_bytes());
        }
        self.words(&[attributes.values]);
        self.words(&attributes.crtime);
        self.bytes(&attributes.scanstamp);
    }

    fn acl_counts(&mut self, acl: &Acl) {
        let count = |length| units::to_u64(length);
        self.words(&[
            acl.count,
            count(acl.domains.len()),
            count(acl.fuids.len()),
            count(acl.entries.len()),
            acl.flags,
        ]);
    }

    fn acl(&mut self, acl: &Acl) {
        self.bytes(&acl.entries);
        let padding = acl.entries.len().next_multiple_of(8).saturating_sub(acl.entries.len());
        self.0.resize(self.0.len().saturating_add(padding), 0);
        self.words(&acl.fuids);
        self.strings(&acl.domains);
    }
}

impl Body {
    /// Appends the body of the record and returns its kind for the header.
    fn encode(&self, out: &mut BodyWriter) -> u64 {
        match self {
            Self::Create(create) => create.encode(out),
            Self::Remove { dir, name } => encode_named(5, *dir, name, out),
            Self::RemoveDirectory { dir, name } => encode_named(6, *dir, name, out),
            Self::Link { dir, object, name } => {
                out.words(&[dir.get(), object.get()]);
                out.string(name);
                7
            }
            Self::Rename(rename) => rename.encode(out),
            Self::Write(write) => write.encode(out),
            Self::WriteSynced { object, offset, length } => {
                out.words(&[object.get(), *offset, *length, 0]);
                out.bytes(&Blkptr::EMPTY.encode());
                20
            }
            Self::Truncate { object, offset, length } => {
                out.words(&[object.get(), *offset, *length]);
                10
            }
            Self::SetAttr(set) => set.encode(out),
            Self::OldAcl { object, count, entries } => {
                out.words(&[object.get(), *count]);
                out.bytes(entries);
                12
            }
            Self::Acl { object, acl } => {
                out.object(*object);
                out.acl_counts(acl);
                out.acl(acl);
                13
            }
            Self::SetXattr { object, name, value } => {
                out.words(&[object.get(), units::to_u64(value.len())]);
                out.string(name);
                out.bytes(value);
                21
            }
            Self::Clone { object, offset, length, block_size, pointers } => {
                let count = units::to_u64(pointers.len());
                out.words(&[object.get(), *offset, *length, *block_size, count]);
                for pointer in pointers {
                    out.bytes(&pointer.encode());
                }
                24
            }
        }
    }
}

fn encode_named(kind: u64, dir: ObjectId, name: &[u8], out: &mut BodyWriter) -> u64 {
    out.object(dir);
    out.string(name);
    kind
}

impl Create {
    fn encode(&self, out: &mut BodyWriter) -> u64 {
        let slots = u64::from(self.slots.saturating_sub(1)) << 56;
        out.words(&[self.dir.get(), self.object.get() | slots, self.mode, self.uid, self.gid]);
        out.words(&[self.generation, self.crtime[0], self.crtime[1], self.rdev]);
        if let Some(acl) = &self.acl {
            out.acl_counts(acl);
        }
        if let Some(attributes) = &self.attributes {
            out.attributes(attributes);
        }
        match &self.acl {
            Some(acl) => out.acl(acl),
            None => out.strings(&self.domains),
        }
        out.string(&self.name);
        if self.kind == CreateKind::Symlink {
            out.string(&self.target);
        }
        match (self.kind, self.acl.is_some(), self.attributes.is_some()) {
            (CreateKind::File, false, false) => 1,
            (CreateKind::File, true, false) => 14,
            (CreateKind::File, false, true) => 15,
            (CreateKind::File, true, true) => 16,
            (CreateKind::Directory, false, false) => 2,
            (CreateKind::Directory, true, false) => 17,
            (CreateKind::Directory, false, true) => 18,
            (CreateKind::Directory, true, true) => 19,
            (CreateKind::XattrDirectory, ..) => 3,
            (CreateKind::Symlink, ..) => 4,
        }
    }
}

impl Rename {
    fn encode(&self, out: &mut BodyWriter) -> u64 {
        out.words(&[self.source_dir.get(), self.target_dir.get()]);
        if let RenameKind::Whiteout(left) = &self.kind {
            out.words(&[left.object.get(), left.mode, left.uid, left.gid, left.generation]);
            out.words(&[left.crtime[0], left.crtime[1], left.rdev]);
        }
        out.string(&self.source);
        out.string(&self.target);
        match self.kind {
            RenameKind::Plain => 8,
            RenameKind::Exchange => 22,
            RenameKind::Whiteout(_) => 23,
        }
    }
}

impl Write {
    fn encode(&self, out: &mut BodyWriter) -> u64 {
        out.words(&[self.object.get(), self.offset, self.length, 0]);
        out.bytes(&self.pointer.encode());
        out.bytes(self.data.as_deref().unwrap_or_default());
        9
    }
}

impl SetAttr {
    fn encode(&self, out: &mut BodyWriter) -> u64 {
        out.words(&[self.object.get(), self.mask, self.mode, self.uid, self.gid, self.size]);
        out.words(&self.atime);
        out.words(&self.mtime);
        if let Some(attributes) = &self.attributes {
            out.attributes(attributes);
        }
        out.strings(&self.domains);
        11
    }
}
