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

use crate::{Error, Order, Reader, Result};

const OWNER: u16 = 0x1000;
const GROUP: u16 = 0x2000;
const IDENTIFIER_GROUP: u16 = 0x40;
const EVERYONE: u16 = 0x4000;

/// No list is longer; a bound for what a damaged count may ask of memory.
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
    /// Room for entries.
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
    pub fn parse(&self, external: Option<&[u8]>, order: Order) -> Result<Vec<Entry>> {
        let (bytes, order) = external.map_or((&self.data[..], self.order), |all| (all, order));
        if self.version == 0 {
            parse_old(bytes, self.entries(), order)
        } else {
            parse(bytes, self.entries(), order)
        }
    }
}

/// Of whom an entry speaks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Principal {
    /// owner@
    Owner,
    /// group@
    Group,
    /// everyone@
    Everyone,
    /// A user, as FUID: domain index in the upper half, number in the lower.
    User(u64),
    /// A group, as FUID.
    NamedGroup(u64),
}

/// An entry of an NFSv4 ACL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Of whom it speaks.
    pub principal: Principal,
    /// 0 allow, 1 deny, 2 audit, 3 alarm; above: kinds of CIFS.
    pub kind: u16,
    /// Inheritance and the like, without the bits that say who.
    pub flags: u16,
    /// What is allowed or denied: the access mask of NFSv4.
    pub mask: u32,
    /// The two identities of a CIFS object entry.
    pub object: Option<[[u8; 16]; 2]>,
}

impl Entry {
    fn principal_from(flags: u16, fuid: u64) -> Principal {
        match flags & (OWNER | GROUP | EVERYONE | IDENTIFIER_GROUP) {
            OWNER => Principal::Owner,
            flags if flags == GROUP | IDENTIFIER_GROUP || flags == GROUP => Principal::Group,
            EVERYONE => Principal::Everyone,
            IDENTIFIER_GROUP => Principal::NamedGroup(fuid),
            _ => Principal::User(fuid),
        }
    }

    const fn without_principal_flags(flags: u16) -> u16 {
        flags & !(OWNER | GROUP | EVERYONE | IDENTIFIER_GROUP)
    }

    fn read_old(reader: &mut Reader<'_>) -> Result<Self> {
        let fuid = reader.u32()?;
        let mask = reader.u32()?;
        let flags = reader.u16()?;
        let kind = reader.u16()?;
        let who = Self::principal_from(flags, fuid.into());
        Ok(Self {
            principal: who,
            kind,
            flags: Self::without_principal_flags(flags),
            mask,
            object: None,
        })
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let kind = reader.u16()?;
        let flags = reader.u16()?;
        let mask = reader.u32()?;
        let fuid = if is_short(kind, flags) { 0 } else { reader.u64()? };
        let object = if is_object(kind) { Some([reader.array()?, reader.array()?]) } else { None };
        let who = Self::principal_from(flags, fuid);
        Ok(Self { principal: who, kind, flags: Self::without_principal_flags(flags), mask, object })
    }
}

/// Whether an entry names nobody, and so ends with its mask.
fn is_short(kind: u16, flags: u16) -> bool {
    let abstract_who = matches!(
        Entry::principal_from(flags, 0),
        Principal::Owner | Principal::Group | Principal::Everyone
    );
    matches!(kind, 0 | 1) && abstract_who && flags & (GROUP | IDENTIFIER_GROUP) != GROUP
}

const fn is_object(kind: u16) -> bool {
    matches!(kind, 5..=8)
}

/// `count` entries of the old kind.
pub fn parse_old(bytes: &[u8], count: u64, order: Order) -> Result<Vec<Entry>> {
    let mut reader = Reader::new("old ACL", bytes, order);
    check_count(count)?;
    (0..count).map(|_| Entry::read_old(&mut reader)).collect()
}

/// `count` entries of the new kind (also what ZPL_DACL_ACES holds).
pub fn parse(bytes: &[u8], count: u64, order: Order) -> Result<Vec<Entry>> {
    let mut reader = Reader::new("ACL", bytes, order);
    check_count(count)?;
    (0..count).map(|_| Entry::read(&mut reader)).collect()
}

fn check_count(count: u64) -> Result<()> {
    if count <= MAX_ENTRIES {
        return Ok(());
    }
    Err(Error::Rule { structure: "ACL", at: 0, rule: "it has at most 65536 entries", found: count })
}

/// The letters of the mask, in the order in which the field prints them.
const MASK_LETTERS: [(char, u32); 14] = [
    ('r', 0x1),
    ('w', 0x2),
    ('x', 0x20),
    ('p', 0x4),
    ('D', 0x40),
    ('d', 0x10000),
    ('a', 0x80),
    ('A', 0x100),
    ('R', 0x8),
    ('W', 0x10),
    ('c', 0x20000),
    ('C', 0x40000),
    ('o', 0x80000),
    ('s', 0x100000),
];
const FLAG_LETTERS: [(char, u16); 7] =
    [('f', 0x1), ('d', 0x2), ('i', 0x8), ('n', 0x4), ('S', 0x10), ('F', 0x20), ('I', 0x80)];

/// As `getfacl` of the BSDs and `ls -V` of illumos print it: `owner@:rwxp--aARWcCos:-------:allow`.
impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.principal {
            Principal::Owner => f.write_str("owner@")?,
            Principal::Group => f.write_str("group@")?,
            Principal::Everyone => f.write_str("everyone@")?,
            Principal::User(fuid) => write!(f, "user:{fuid}")?,
            Principal::NamedGroup(fuid) => write!(f, "group:{fuid}")?,
        }
        let or_dash = |(letter, has): (char, bool)| if has { letter } else { '-' };
        let mask = MASK_LETTERS.map(|(letter, bit)| or_dash((letter, self.mask & bit != 0)));
        let flags = FLAG_LETTERS.map(|(letter, bit)| or_dash((letter, self.flags & bit != 0)));
        let kind = match self.kind {
            0 | 5 | 9 | 11 => "allow",
            1 | 6 | 10 | 12 => "deny",
            2 | 7 | 13 | 15 => "audit",
            _ => "alarm",
        };
        write!(f, ":{}:{}:{kind}", String::from_iter(mask), String::from_iter(flags))
    }
}

/// An entry of a POSIX ACL, as Linux's attributes system.posix_acl_access and _default hold it:
/// 4 bytes of version (2), then entries of tag 2, permissions 2 and id 4, always little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PosixEntry {
    /// 0x1 owner, 0x2 user, 0x4 owning group, 0x8 group, 0x10 mask, 0x20 others.
    pub tag: u16,
    /// 4 read, 2 write, 1 execute.
    pub permissions: u16,
    /// Of the user or group; all ones where the tag needs none.
    pub id: u32,
}

/// Reads a POSIX ACL from the bytes of its extended attribute.
pub fn parse_posix(bytes: &[u8]) -> Result<Vec<PosixEntry>> {
    let mut reader = Reader::new("POSIX ACL", bytes, Order::Little);
    let version = reader.u32()?;
    if version != 2 {
        let found = version.into();
        return Err(Error::Unknown { structure: "POSIX ACL", field: "version", found });
    }
    let mut out = Vec::new();
    while reader.remaining() > 0 {
        let (tag, permissions, id) = (reader.u16()?, reader.u16()?, reader.u32()?);
        out.push(PosixEntry { tag, permissions, id });
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
