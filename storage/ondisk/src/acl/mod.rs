//! Access control lists: NFSv4 style entries as ZFS stores them, old and new; and POSIX ones,
//! which Linux keeps as extended attributes.
//!
//! The part of a legacy znode ([`ZnodeAcl`]):
//!
//! ```text
//! offset  size  field     meaning
//!      0     8  external  the object with the entries, if they do not fit here
//!      8     4  size      bytes of all entries; version 0: their number
//!     12     2  version   0 old entries, 1 entries of their own size
//!     14     2  count     how many entries; version 0: nothing
//!     16    72  entries
//!     88
//! ```
//!
//! An old entry is 12 bytes: who 4, mask 4, flags 2, type 2. A new one is 8 bytes: type 2, flags
//! 2, mask 4; if it is not about owner@, group@ or everyone@ 8 bytes of FUID follow; and two
//! object identities of 16 bytes each if it is an object entry of CIFS (types 5 to 8).
//!
//! Learnt from: the field's manual (acl(5) of illumos) and `zdb -dddd`. Proved by: the tests below.

mod encode;

pub(crate) use encode::to_little;
pub use encode::{encode, encode_old, encode_posix};

use posix::acl::{Ace, AceWho, PosixAclEntry};

use crate::{Error, Order, Reader, Result};

const OWNER: u16 = 0x1000;
const GROUP: u16 = 0x2000;
const IDENTIFIER_GROUP: u16 = 0x40;
const EVERYONE: u16 = 0x4000;
/// The flags that tell to whom an entry applies.
const WHO_BITS: u16 = OWNER | GROUP | EVERYONE | IDENTIFIER_GROUP;

/// The longest list; it bounds the memory that a damaged count can claim.
const MAX_ENTRIES: u64 = 65536;

/// The ACL in a legacy znode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZnodeAcl {
    /// The object that holds the entries; 0 if they stand here.
    pub external: u64,
    /// Bytes of all entries, in version 0 their number (z_acl_size).
    pub size: u32,
    /// 0 old entries, 1 new ones.
    pub version: u16,
    /// How many entries, not in version 0 (z_acl_count).
    pub count: u16,
    /// Bytes of the space for entries.
    pub data: [u8; 72],
    /// In which order the numbers of `data` are.
    pub order: Order,
}

impl ZnodeAcl {
    /// Reads it.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let order = reader.order();
        Ok(Self {
            external: reader.u64()?,
            size: reader.u32()?,
            version: reader.u16()?,
            count: reader.u16()?,
            data: reader.array()?,
            order,
        })
    }

    /// Bytes that all entries take.
    pub fn bytes(&self) -> u64 {
        let size = u64::from(self.size);
        if self.version == 0 { size.saturating_mul(12) } else { size }
    }

    /// How many entries there are.
    pub fn entries(&self) -> u64 {
        if self.version == 0 { self.size.into() } else { self.count.into() }
    }

    /// The entries, from `external` bytes if the znode names an object, else from its own.
    pub fn parse(&self, external: Option<&[u8]>, order: Order) -> Result<Vec<Ace>> {
        let (bytes, order) = external.map_or((&self.data[..], self.order), |all| (all, order));
        if self.version == 0 {
            parse_old(bytes, self.entries(), order)
        } else {
            parse(bytes, self.entries(), order)
        }
    }
}

/// The user or group of an entry with these flags.
fn ace_who(flags: u16, fuid: u64) -> AceWho {
    match flags & WHO_BITS {
        OWNER => AceWho::Owner,
        flags if flags == GROUP | IDENTIFIER_GROUP || flags == GROUP => AceWho::Group,
        EVERYONE => AceWho::Everyone,
        IDENTIFIER_GROUP => AceWho::NamedGroup(fuid),
        _ => AceWho::User(fuid),
    }
}

fn read_old_ace(reader: &mut Reader<'_>) -> Result<Ace> {
    let fuid = reader.u32()?;
    let mask = reader.u32()?;
    let flags = reader.u16()?;
    let kind = reader.u16()?;
    let who = ace_who(flags, fuid.into());
    Ok(Ace { who, kind, flags: flags & !WHO_BITS, mask, object: None })
}

fn read_ace(reader: &mut Reader<'_>) -> Result<Ace> {
    let kind = reader.u16()?;
    let flags = reader.u16()?;
    let mask = reader.u32()?;
    let fuid = if is_short(kind, flags) { 0 } else { reader.u64()? };
    let object = if is_object(kind) { Some([reader.array()?, reader.array()?]) } else { None };
    let who = ace_who(flags, fuid);
    Ok(Ace { who, kind, flags: flags & !WHO_BITS, mask, object })
}

/// Whether an entry has no FUID and ends with its mask.
fn is_short(kind: u16, flags: u16) -> bool {
    let abstract_who =
        matches!(ace_who(flags, 0), AceWho::Owner | AceWho::Group | AceWho::Everyone);
    matches!(kind, 0 | 1) && abstract_who && flags & (GROUP | IDENTIFIER_GROUP) != GROUP
}

const fn is_object(kind: u16) -> bool {
    matches!(kind, 5..=8)
}

/// `count` entries of the old kind.
pub fn parse_old(bytes: &[u8], count: u64, order: Order) -> Result<Vec<Ace>> {
    let mut reader = Reader::new("old ACL", bytes, order);
    check_count(count)?;
    (0..count).map(|_| read_old_ace(&mut reader)).collect()
}

/// `count` entries of the new kind (also what ZPL_DACL_ACES holds).
pub fn parse(bytes: &[u8], count: u64, order: Order) -> Result<Vec<Ace>> {
    let mut reader = Reader::new("ACL", bytes, order);
    check_count(count)?;
    (0..count).map(|_| read_ace(&mut reader)).collect()
}

fn check_count(count: u64) -> Result<()> {
    if count <= MAX_ENTRIES {
        return Ok(());
    }
    Err(Error::Rule { structure: "ACL", at: 0, rule: "it has at most 65536 entries", found: count })
}

/// Reads a POSIX ACL from the bytes of its extended attribute.
pub fn parse_posix(bytes: &[u8]) -> Result<Vec<PosixAclEntry>> {
    let mut reader = Reader::new("POSIX ACL", bytes, Order::Little);
    let version = reader.u32()?;
    if version != 2 {
        let found = version.into();
        return Err(Error::Unknown { structure: "POSIX ACL", field: "version", found });
    }
    let mut out = Vec::new();
    while reader.remaining() > 0 {
        let (tag, permissions, id) = (reader.u16()?, reader.u16()?, reader.u32()?);
        out.push(PosixAclEntry { tag, permissions, id });
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
