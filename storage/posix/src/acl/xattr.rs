//! NFSv4 ACLs as the bytes of extended attributes, in XDR: big-endian, in units of four bytes.
//!
//! `system.nfs4_acl`, as the NFS client of Linux shows it and nfs4_getfacl(1) reads it (RFC 7530, section 6.2.1):
//!
//! ```text
//! size  field
//!    4  number of entries; then for each:
//!    4  type: 0 allow, 1 deny, 2 audit, 3 alarm
//!    4  flags; 0x40: the entry is of a group
//!    4  permissions
//!    4  length of the principal, then its bytes, then zeros to a multiple of four
//! ```
//!
//! The principal is `OWNER@`, `GROUP@`, `EVERYONE@`, or the number of a user or group. In an ACL that is set it may
//! also be a name, with or without a domain: `alice@example.org`.
//!
//! `system.nfs4_acl_xdr`, the form of OpenZFS in TrueNAS and of Samba's nfs4acl_xattr:
//!
//! ```text
//! size  field
//!    4  flags of the ACL: 0x10000 it says no more than the mode, 0x20000 it is of a directory
//!    4  number of entries; then for each:
//!    4  type, 4 flags
//!    4  1: the principal is a class
//!    4  permissions
//!    4  1 owner, 2 group, 3 everyone; else the number of a user or group
//! ```

use super::nfs4::{self, mask};
use super::{Ace, AceWho};

/// The extended attribute with the ACL as NFS clients show it.
pub const NFS4_ACL: &[u8] = b"system.nfs4_acl";
/// The extended attribute with the ACL in numbers only.
pub const NFS4_ACL_XDR: &[u8] = b"system.nfs4_acl_xdr";

/// Looks a name up: the number of a user, or of a group (true).
pub type NameLookup<'a> = &'a dyn Fn(&str, bool) -> Option<u32>;

/// An error of decoding or encoding an ACL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AclXattrError {
    /// The bytes break the format.
    Malformed,
    /// No user or group of this system has the name.
    UnknownPrincipal {
        /// The name.
        name: String,
    },
    /// The ACL has entries that the format does not have.
    NotRepresentable,
}

const GROUP_FLAG: u32 = 0x40;
const LAST_TYPE: u32 = 3;
const SETTABLE_FLAGS: u32 = 0xbf;
const SPECIAL_WHO: u32 = 1;
const IS_TRIVIAL: u32 = 0x1_0000;
const IS_DIRECTORY: u32 = 0x2_0000;
/// Bytes of the smallest entry: a principal without a name.
const MIN_ENTRY: usize = 16;
const XDR_ENTRY: usize = 20;

/// The bytes of `system.nfs4_acl`.
///
/// # Errors
///
/// [`AclXattrError::NotRepresentable`]: object entries of CIFS.
pub fn encode_nfs4_acl(entries: &[Ace]) -> Result<Vec<u8>, AclXattrError> {
    let mut bytes = count_of(entries)?.to_be_bytes().to_vec();
    for ace in entries {
        let (kind, flags) = (type_of(ace)?, flags_of(ace));
        let who = match ace.who {
            AceWho::Owner => "OWNER@".to_owned(),
            AceWho::Group => "GROUP@".to_owned(),
            AceWho::Everyone => "EVERYONE@".to_owned(),
            AceWho::User(id) | AceWho::NamedGroup(id) => id.to_string(),
        };
        let length = u32::try_from(who.len()).map_err(|_| AclXattrError::NotRepresentable)?;
        for word in [kind, flags, ace.mask, length] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(who.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    Ok(bytes)
}

/// The ACL of the bytes of `system.nfs4_acl`.
///
/// # Errors
///
/// [`AclXattrError::Malformed`] and [`AclXattrError::UnknownPrincipal`].
pub fn decode_nfs4_acl(bytes: &[u8], lookup: NameLookup<'_>) -> Result<Vec<Ace>, AclXattrError> {
    let mut reader = Reader(bytes);
    let count = reader.count(MIN_ENTRY)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let (kind, flags, mask) = (reader.word()?, reader.word()?, reader.word()?);
        let who = reader.string()?;
        let is_group = flags & GROUP_FLAG != 0;
        entries.push(to_ace(kind, flags, mask, parse_principal(who, is_group, lookup)?)?);
    }
    if reader.0.is_empty() { Ok(entries) } else { Err(AclXattrError::Malformed) }
}

/// The bytes of `system.nfs4_acl_xdr`.
///
/// # Errors
///
/// [`AclXattrError::NotRepresentable`]: object entries of CIFS, and identities of a domain.
pub fn encode_nfs4_acl_xdr(entries: &[Ace], is_directory: bool) -> Result<Vec<u8>, AclXattrError> {
    let trivial = if nfs4::is_trivial(entries) { IS_TRIVIAL } else { 0 };
    let directory = if is_directory { IS_DIRECTORY } else { 0 };
    let mut bytes = (trivial | directory).to_be_bytes().to_vec();
    bytes.extend(count_of(entries)?.to_be_bytes());
    for ace in entries {
        let (special, who) = match ace.who {
            AceWho::Owner => (SPECIAL_WHO, 1),
            AceWho::Group => (SPECIAL_WHO, 2),
            AceWho::Everyone => (SPECIAL_WHO, 3),
            AceWho::User(id) | AceWho::NamedGroup(id) => {
                (0, u32::try_from(id).map_err(|_| AclXattrError::NotRepresentable)?)
            }
        };
        for word in [type_of(ace)?, flags_of(ace), special, ace.mask, who] {
            bytes.extend(word.to_be_bytes());
        }
    }
    Ok(bytes)
}

/// The ACL of the bytes of `system.nfs4_acl_xdr`. The flags of the ACL follow from its entries.
///
/// # Errors
///
/// [`AclXattrError::Malformed`].
pub fn decode_nfs4_acl_xdr(bytes: &[u8]) -> Result<Vec<Ace>, AclXattrError> {
    let mut reader = Reader(bytes);
    reader.word()?;
    let count = reader.count(XDR_ENTRY)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let (kind, flags, special) = (reader.word()?, reader.word()?, reader.word()?);
        let (mask, who) = (reader.word()?, reader.word()?);
        let who = match (special, who) {
            (SPECIAL_WHO, 1) => AceWho::Owner,
            (SPECIAL_WHO, 2) => AceWho::Group,
            (SPECIAL_WHO, 3) => AceWho::Everyone,
            (0, id) if flags & GROUP_FLAG != 0 => AceWho::NamedGroup(id.into()),
            (0, id) => AceWho::User(id.into()),
            _ => return Err(AclXattrError::Malformed),
        };
        entries.push(to_ace(kind, flags, mask, who)?);
    }
    if reader.0.is_empty() { Ok(entries) } else { Err(AclXattrError::Malformed) }
}

fn count_of(entries: &[Ace]) -> Result<u32, AclXattrError> {
    u32::try_from(entries.len()).map_err(|_| AclXattrError::NotRepresentable)
}

fn type_of(ace: &Ace) -> Result<u32, AclXattrError> {
    let kind = u32::from(ace.kind);
    if kind <= LAST_TYPE { Ok(kind) } else { Err(AclXattrError::NotRepresentable) }
}

fn flags_of(ace: &Ace) -> u32 {
    let is_group = matches!(ace.who, AceWho::Group | AceWho::NamedGroup(_));
    u32::from(ace.flags) & SETTABLE_FLAGS | if is_group { GROUP_FLAG } else { 0 }
}

fn to_ace(kind: u32, flags: u32, mask: u32, who: AceWho) -> Result<Ace, AclXattrError> {
    let is_known =
        kind <= LAST_TYPE && flags & !(SETTABLE_FLAGS | GROUP_FLAG) == 0 && mask & !mask::ALL == 0;
    let (Ok(kind), Ok(flags), true) =
        (u16::try_from(kind), u16::try_from(flags & SETTABLE_FLAGS), is_known)
    else {
        return Err(AclXattrError::Malformed);
    };
    Ok(Ace { who, kind, flags, mask, object: None })
}

fn parse_principal(
    who: &[u8],
    is_group: bool,
    lookup: NameLookup<'_>,
) -> Result<AceWho, AclXattrError> {
    let text = std::str::from_utf8(who).map_err(|_| AclXattrError::Malformed)?;
    match text {
        "OWNER@" => return Ok(AceWho::Owner),
        "GROUP@" => return Ok(AceWho::Group),
        "EVERYONE@" => return Ok(AceWho::Everyone),
        _ => {}
    }
    let name = text.split_once('@').map_or(text, |(name, _)| name);
    let unknown = || AclXattrError::UnknownPrincipal { name: text.to_owned() };
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let id = if is_number {
        name.parse().map_err(|_| unknown())?
    } else {
        lookup(name, is_group).ok_or_else(unknown)?
    };
    let id = u64::from(id);
    Ok(if is_group { AceWho::NamedGroup(id) } else { AceWho::User(id) })
}

/// The bytes that are not yet read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn word(&mut self) -> Result<u32, AclXattrError> {
        let (word, rest) = self.0.split_first_chunk().ok_or(AclXattrError::Malformed)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*word))
    }

    /// A number of entries for which there are bytes enough.
    fn count(&mut self, entry_size: usize) -> Result<usize, AclXattrError> {
        let count = usize::try_from(self.word()?).map_err(|_| AclXattrError::Malformed)?;
        let fits = count <= self.0.len() / entry_size;
        if fits { Ok(count) } else { Err(AclXattrError::Malformed) }
    }

    fn string(&mut self) -> Result<&'a [u8], AclXattrError> {
        let length = usize::try_from(self.word()?).map_err(|_| AclXattrError::Malformed)?;
        let padded = length.checked_next_multiple_of(4).ok_or(AclXattrError::Malformed)?;
        let (string, rest) = self.0.split_at_checked(padded).ok_or(AclXattrError::Malformed)?;
        self.0 = rest;
        string.get(..length).ok_or(AclXattrError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::nfs4::{ALLOW, DENY, flag};

    fn ace(who: AceWho, kind: u16, flags: u16, mask: u32) -> Ace {
        Ace { who, kind, flags, mask, object: None }
    }

    fn nobody(_: &str, _: bool) -> Option<u32> {
        None
    }

    fn sample() -> Vec<Ace> {
        let inherit = flag::FILE_INHERIT | flag::DIRECTORY_INHERIT;
        vec![
            ace(AceWho::User(1002), DENY, 0, mask::WRITE_DATA),
            ace(AceWho::NamedGroup(50), ALLOW, inherit, mask::READ_DATA),
            ace(AceWho::Owner, ALLOW, 0, mask::ALL),
            ace(AceWho::Group, ALLOW, flag::INHERITED, mask::READ_DATA),
            ace(AceWho::Everyone, ALLOW, 0, mask::READ_ATTRIBUTES),
        ]
    }

    #[test]
    fn both_forms_decode_to_their_input() {
        let acl = sample();
        let bytes = encode_nfs4_acl(&acl).unwrap();
        assert_eq!(decode_nfs4_acl(&bytes, &nobody).unwrap(), acl);
        let bytes = encode_nfs4_acl_xdr(&acl, true).unwrap();
        assert_eq!(bytes[..8], [0, 2, 0, 0, 0, 0, 0, 5]);
        assert_eq!(decode_nfs4_acl_xdr(&bytes).unwrap(), acl);
        let trivial = nfs4::acl_from_mode(0o644, false);
        assert_eq!(encode_nfs4_acl_xdr(&trivial, false).unwrap()[..4], [0, 1, 0, 0]);
    }

    #[test]
    fn encoding_is_that_of_nfs_clients() {
        let acl = [ace(AceWho::Group, ALLOW, 0, mask::READ_DATA), ace(AceWho::User(7), DENY, 1, 2)];
        let wanted = [
            &[0, 0, 0, 2][..],
            &[0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 1, 0, 0, 0, 6],
            b"GROUP@\0\0",
            &[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1],
            b"7\0\0\0",
        ];
        assert_eq!(encode_nfs4_acl(&acl).unwrap(), wanted.concat());
    }

    #[test]
    fn names_are_looked_up_without_their_domain() {
        let entry = |flags: u8, who: &str| {
            let mut bytes = vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, flags, 0, 0, 0, 1];
            bytes.extend(u32::try_from(who.len()).unwrap().to_be_bytes());
            bytes.extend(who.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let lookup = |name: &str, is_group: bool| match (name, is_group) {
            ("alice", false) => Some(1000),
            ("staff", true) => Some(50),
            _ => None,
        };
        let who = |flags, who| decode_nfs4_acl(&entry(flags, who), &lookup).map(|acl| acl[0].who);
        assert_eq!(who(0, "alice@example.org"), Ok(AceWho::User(1000)));
        assert_eq!(who(0x40, "staff"), Ok(AceWho::NamedGroup(50)));
        assert_eq!(who(0x40, "77@localdomain"), Ok(AceWho::NamedGroup(77)));
        for unknown in ["bob", "", "99999999999"] {
            let name = unknown.to_owned();
            assert_eq!(who(0, unknown), Err(AclXattrError::UnknownPrincipal { name }));
        }
    }

    #[test]
    fn cut_and_changed_bytes_are_refused_or_decoded() {
        let (nfs, xdr) =
            (encode_nfs4_acl(&sample()).unwrap(), encode_nfs4_acl_xdr(&sample(), false));
        let xdr = xdr.unwrap();
        for length in 0..nfs.len() {
            assert!(decode_nfs4_acl(&nfs[..length], &nobody).is_err());
        }
        for length in 0..xdr.len() {
            assert!(decode_nfs4_acl_xdr(&xdr[..length]).is_err());
        }
        for at in 0..nfs.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = nfs.clone();
                changed[at] = byte;
                let _ = decode_nfs4_acl(&changed, &nobody);
            }
        }
        let unknown = [[0_u8; 3].as_slice(), &[1], &[0, 0, 0, 9]].concat();
        assert!(decode_nfs4_acl(&unknown, &nobody).is_err());
    }
}
