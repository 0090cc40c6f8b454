//! Access control lists: POSIX.1e and NFSv4 (the ACLs of ZFS).

pub mod nfs4;
mod policy;
pub mod posix1e;
mod trivial;
pub mod xattr;

pub use policy::{AclInherit, AclMode, AclPolicy};

/// An entry of an NFSv4 ACL (`nfsace4`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ace {
    /// The user or group that the entry applies to.
    pub who: AceWho,
    /// 0 allow, 1 deny, 2 audit, 3 alarm; more: object entries of CIFS.
    pub kind: u16,
    /// Inheritance and audit flags ([`nfs4::flag`]), without the bits that select the subject.
    pub flags: u16,
    /// The permissions that the entry allows or denies ([`nfs4::mask`]).
    pub mask: u32,
    /// The two identities of a CIFS object entry.
    pub object: Option<[[u8; 16]; 2]>,
}

/// The user or group that an [`Ace`] applies to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AceWho {
    /// `owner@`
    Owner,
    /// `group@`
    Group,
    /// `everyone@`
    Everyone,
    /// A user, as FUID: the index of its domain in the upper half, the number in the lower.
    User(u64),
    /// A group, as FUID.
    NamedGroup(u64),
}

/// An entry of a POSIX ACL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PosixAclEntry {
    /// The class of users: [`posix1e::tag`].
    pub tag: u16,
    /// 4 read, 2 write, 1 execute.
    pub permissions: u16,
    /// The user or group of an entry with a name; all ones in other entries.
    pub id: u32,
}

/// Which of the two POSIX ACLs of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PosixAclKind {
    /// The ACL that access checks use.
    Access,
    /// The ACL of a directory that new files in it take.
    Default,
}

impl PosixAclKind {
    /// The extended attribute that holds the ACL on Linux.
    pub const fn xattr_name(self) -> &'static [u8] {
        match self {
            Self::Access => b"system.posix_acl_access",
            Self::Default => b"system.posix_acl_default",
        }
    }
}

/// Prints the entry as `getfacl` of FreeBSD and `ls -V` of illumos do: `owner@:rwxp--aARWcCos:-------:allow`.
impl std::fmt::Display for Ace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.who {
            AceWho::Owner => f.write_str("owner@")?,
            AceWho::Group => f.write_str("group@")?,
            AceWho::Everyone => f.write_str("everyone@")?,
            AceWho::User(fuid) => write!(f, "user:{fuid}")?,
            AceWho::NamedGroup(fuid) => write!(f, "group:{fuid}")?,
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

/// The letters of the mask, in the order in which these tools print them.
const MASK_LETTERS: [(char, u32); 14] = [
    ('r', nfs4::mask::READ_DATA),
    ('w', nfs4::mask::WRITE_DATA),
    ('x', nfs4::mask::EXECUTE),
    ('p', nfs4::mask::APPEND_DATA),
    ('D', nfs4::mask::DELETE_CHILD),
    ('d', nfs4::mask::DELETE),
    ('a', nfs4::mask::READ_ATTRIBUTES),
    ('A', nfs4::mask::WRITE_ATTRIBUTES),
    ('R', nfs4::mask::READ_NAMED_ATTRIBUTES),
    ('W', nfs4::mask::WRITE_NAMED_ATTRIBUTES),
    ('c', nfs4::mask::READ_ACL),
    ('C', nfs4::mask::WRITE_ACL),
    ('o', nfs4::mask::WRITE_OWNER),
    ('s', nfs4::mask::SYNCHRONIZE),
];
const FLAG_LETTERS: [(char, u16); 7] = [
    ('f', nfs4::flag::FILE_INHERIT),
    ('d', nfs4::flag::DIRECTORY_INHERIT),
    ('i', nfs4::flag::INHERIT_ONLY),
    ('n', nfs4::flag::NO_PROPAGATE),
    ('S', nfs4::flag::SUCCESSFUL_ACCESS),
    ('F', nfs4::flag::FAILED_ACCESS),
    ('I', nfs4::flag::INHERITED),
];
