//! Access control lists to bytes, least significant byte first.

use posix::acl::{Ace, AceWho, PosixAclEntry};

use super::{EVERYONE, GROUP, IDENTIFIER_GROUP, OWNER, ZnodeAcl, is_object, is_short, read_ace};
use crate::{Order, Reader};

/// The flags that tell to whom an entry applies.
const fn stored_flags(ace: &Ace) -> u16 {
    ace.flags
        | match ace.who {
            AceWho::Owner => OWNER,
            AceWho::Group => GROUP | IDENTIFIER_GROUP,
            AceWho::Everyone => EVERYONE,
            AceWho::User(_) => 0,
            AceWho::NamedGroup(_) => IDENTIFIER_GROUP,
        }
}

/// The FUID of an entry; all ones if it names no user or group.
const fn stored_fuid(ace: &Ace) -> u64 {
    match ace.who {
        AceWho::User(fuid) | AceWho::NamedGroup(fuid) => fuid,
        AceWho::Owner | AceWho::Group | AceWho::Everyone => u64::MAX,
    }
}

fn encode_ace(ace: &Ace, out: &mut Vec<u8>) {
    out.extend(ace.kind.to_le_bytes());
    out.extend(stored_flags(ace).to_le_bytes());
    out.extend(ace.mask.to_le_bytes());
    if !is_short(ace.kind, stored_flags(ace)) {
        out.extend(stored_fuid(ace).to_le_bytes());
    }
    if is_object(ace.kind) {
        out.extend(ace.object.unwrap_or_default().concat());
    }
}

/// Entries of the new kind, one after the other.
pub fn encode(entries: &[Ace]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len().saturating_mul(16));
    for entry in entries {
        encode_ace(entry, &mut out);
    }
    out
}

/// Entries of the old kind, which name their subject with 32 bits.
pub fn encode_old(entries: &[Ace]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len().saturating_mul(12));
    for entry in entries {
        out.extend(stored_fuid(entry).to_le_bytes().iter().take(4));
        out.extend(entry.mask.to_le_bytes());
        out.extend(stored_flags(entry).to_le_bytes());
        out.extend(entry.kind.to_le_bytes());
    }
    out
}

/// Entries of the new kind from the other byte order. Bytes that are not a whole entry stay
/// unchanged.
pub(crate) fn to_little(bytes: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new("ACL", bytes, Order::Big);
    let mut out = Vec::with_capacity(bytes.len());
    while reader.remaining() > 0 {
        match read_ace(&mut reader) {
            Ok(entry) => encode_ace(&entry, &mut out),
            Err(_) => return bytes.to_vec(),
        }
    }
    out
}

/// A POSIX ACL as its extended attribute holds it.
pub fn encode_posix(entries: &[PosixAclEntry]) -> Vec<u8> {
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
