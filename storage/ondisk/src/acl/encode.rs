//! Access control lists to bytes, least significant byte first.

use super::{
    EVERYONE, Entry, GROUP, IDENTIFIER_GROUP, OWNER, PosixEntry, Principal, ZnodeAcl, is_object,
    is_short,
};
use crate::{Order, Reader};

impl Entry {
    /// The flags with the bits that say who.
    const fn all_flags(&self) -> u16 {
        self.flags
            | match self.principal {
                Principal::Owner => OWNER,
                Principal::Group => GROUP | IDENTIFIER_GROUP,
                Principal::Everyone => EVERYONE,
                Principal::User(_) => 0,
                Principal::NamedGroup(_) => IDENTIFIER_GROUP,
            }
    }

    /// Whom it names; all ones where that is nobody.
    const fn fuid(&self) -> u64 {
        match self.principal {
            Principal::User(fuid) | Principal::NamedGroup(fuid) => fuid,
            Principal::Owner | Principal::Group | Principal::Everyone => u64::MAX,
        }
    }

    fn append_to(&self, out: &mut Vec<u8>) {
        out.extend(self.kind.to_le_bytes());
        out.extend(self.all_flags().to_le_bytes());
        out.extend(self.mask.to_le_bytes());
        if !is_short(self.kind, self.all_flags()) {
            out.extend(self.fuid().to_le_bytes());
        }
        if is_object(self.kind) {
            out.extend(self.object.unwrap_or_default().concat());
        }
    }
}

/// Entries of the new kind, one after the other.
pub fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len().saturating_mul(16));
    for entry in entries {
        entry.append_to(&mut out);
    }
    out
}

/// Entries of the old kind, which have 32 bits for whom they name.
pub fn encode_old(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len().saturating_mul(12));
    for entry in entries {
        out.extend(entry.fuid().to_le_bytes().iter().take(4));
        out.extend(entry.mask.to_le_bytes());
        out.extend(entry.all_flags().to_le_bytes());
        out.extend(entry.kind.to_le_bytes());
    }
    out
}

/// Entries of the new kind from the other byte order. What is no entry is left as it stands.
pub(crate) fn to_little(bytes: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new("ACL", bytes, Order::Big);
    let mut out = Vec::with_capacity(bytes.len());
    while reader.remaining() > 0 {
        match Entry::read(&mut reader) {
            Ok(entry) => entry.append_to(&mut out),
            Err(_) => return bytes.to_vec(),
        }
    }
    out
}

/// A POSIX ACL as its extended attribute holds it.
pub fn encode_posix(entries: &[PosixEntry]) -> Vec<u8> {
    let mut out = 2_u32.to_le_bytes().to_vec();
    for entry in entries {
        out.extend(entry.tag.to_le_bytes());
        out.extend(entry.permissions.to_le_bytes());
        out.extend(entry.id.to_le_bytes());
    }
    out
}

impl ZnodeAcl {
    /// As it stands in a legacy znode; `data` must be in little order already.
    pub fn encode(&self) -> [u8; 88] {
        let fields = self.external.to_le_bytes().into_iter().chain(self.size.to_le_bytes());
        let fields = fields.chain(self.version.to_le_bytes()).chain(self.count.to_le_bytes());
        let mut out = [0; 88];
        for (to, from) in out.iter_mut().zip(fields.chain(self.data)) {
            *to = from;
        }
        out
    }
}
