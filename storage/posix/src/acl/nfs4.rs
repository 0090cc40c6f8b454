//! NFSv4 ACLs: the permissions, and the order in which entries decide (RFC 7530, section 6.2).

use super::{Ace, AceWho};
use crate::Credentials;

pub use super::trivial::{acl_from_mode, is_trivial, mode_from_acl};

/// The permissions of an entry. Two names of one bit: of a file, of a directory.
#[expect(missing_docs, reason = "RFC 7530, section 6.2.1.3, explains each")]
pub mod mask {
    pub const READ_DATA: u32 = 0x1;
    pub const LIST_DIRECTORY: u32 = 0x1;
    pub const WRITE_DATA: u32 = 0x2;
    pub const ADD_FILE: u32 = 0x2;
    pub const APPEND_DATA: u32 = 0x4;
    pub const ADD_SUBDIRECTORY: u32 = 0x4;
    pub const READ_NAMED_ATTRIBUTES: u32 = 0x8;
    pub const WRITE_NAMED_ATTRIBUTES: u32 = 0x10;
    pub const EXECUTE: u32 = 0x20;
    pub const DELETE_CHILD: u32 = 0x40;
    pub const READ_ATTRIBUTES: u32 = 0x80;
    pub const WRITE_ATTRIBUTES: u32 = 0x100;
    pub const DELETE: u32 = 0x1_0000;
    pub const READ_ACL: u32 = 0x2_0000;
    pub const WRITE_ACL: u32 = 0x4_0000;
    pub const WRITE_OWNER: u32 = 0x8_0000;
    pub const SYNCHRONIZE: u32 = 0x10_0000;
    /// Every permission.
    pub const ALL: u32 = 0x1f_01ff;
}

/// The flags of an entry.
#[expect(missing_docs, reason = "RFC 7530, section 6.2.1.4, explains each")]
pub mod flag {
    pub const FILE_INHERIT: u16 = 0x1;
    pub const DIRECTORY_INHERIT: u16 = 0x2;
    pub const NO_PROPAGATE: u16 = 0x4;
    pub const INHERIT_ONLY: u16 = 0x8;
    pub const SUCCESSFUL_ACCESS: u16 = 0x10;
    pub const FAILED_ACCESS: u16 = 0x20;
    pub const INHERITED: u16 = 0x80;
    /// The flags that steer inheritance.
    pub const ALL_INHERITANCE: u16 = 0xf;
}

/// The kind of an entry that allows.
pub const ALLOW: u16 = 0;
/// The kind of an entry that denies.
pub const DENY: u16 = 1;

/// The decision of an ACL on a set of permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Decision {
    /// Permissions that an entry allows.
    pub allowed: u32,
    /// Permissions that an entry denies. The ACL does not mention the others, and they are refused.
    pub denied: u32,
}

/// Evaluates an ACL for a caller: of each permission the first entry decides that applies to the caller.
pub fn evaluate(
    entries: &[Ace],
    (uid, gid): (u32, u32),
    credentials: &Credentials,
    wanted: u32,
) -> Decision {
    let mut decision = Decision::default();
    for entry in entries {
        if entry.flags & flag::INHERIT_ONLY != 0 || !applies(entry, (uid, gid), credentials) {
            continue;
        }
        let open = entry.mask & wanted & !(decision.allowed | decision.denied);
        match entry.kind {
            ALLOW => decision.allowed |= open,
            DENY => decision.denied |= open,
            // audit and alarm entries decide nothing
            _ => {}
        }
    }
    decision
}

fn applies(entry: &Ace, (uid, gid): (u32, u32), credentials: &Credentials) -> bool {
    match entry.who {
        AceWho::Owner => credentials.uid == uid,
        AceWho::Group => credentials.is_in_group(gid),
        AceWho::Everyone => true,
        // a FUID of a domain is above 32 bits and matches no user here
        AceWho::User(fuid) => fuid == u64::from(credentials.uid),
        AceWho::NamedGroup(fuid) => {
            u32::try_from(fuid).is_ok_and(|gid| credentials.is_in_group(gid))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ace(who: AceWho, kind: u16, mask: u32) -> Ace {
        Ace { who, kind, flags: 0, mask, object: None }
    }

    #[test]
    fn first_entry_decides_each_permission() {
        let acl = [
            ace(AceWho::User(7), DENY, mask::WRITE_DATA),
            ace(AceWho::NamedGroup(50), ALLOW, mask::READ_DATA | mask::WRITE_DATA),
            ace(AceWho::Everyone, DENY, mask::READ_DATA),
            ace(AceWho::Everyone, ALLOW, mask::READ_DATA | mask::EXECUTE),
        ];
        let wanted = mask::READ_DATA | mask::WRITE_DATA | mask::EXECUTE | mask::DELETE;
        let evaluate = |caller: &Credentials| evaluate(&acl, (1, 2), caller, wanted);
        let member = Credentials::new(7, 100).with_groups(&[50]);
        let decision = evaluate(&member);
        assert_eq!(decision.allowed, mask::READ_DATA | mask::EXECUTE);
        assert_eq!(decision.denied, mask::WRITE_DATA);
        let stranger = evaluate(&Credentials::new(8, 100));
        assert_eq!((stranger.allowed, stranger.denied), (mask::EXECUTE, mask::READ_DATA));
    }

    #[test]
    fn inherit_only_and_domain_entries_do_not_apply() {
        let domain_user = 1 << 32 | 7;
        let acl = [
            Ace { flags: flag::INHERIT_ONLY, ..ace(AceWho::Owner, ALLOW, mask::ALL) },
            ace(AceWho::User(domain_user), ALLOW, mask::ALL),
            ace(AceWho::NamedGroup(domain_user), ALLOW, mask::ALL),
            ace(AceWho::Group, ALLOW, mask::READ_DATA),
        ];
        let owner = Credentials::new(7, 7);
        assert_eq!(evaluate(&acl, (7, 7), &owner, mask::ALL).allowed, mask::READ_DATA);
        assert_eq!(evaluate(&acl, (7, 9), &owner, mask::ALL), Decision::default());
    }
}
