//! The inheritance of an NFSv4 ACL by new files, and its change by chmod.
//!
//! The properties `aclinherit` and `aclmode` of a dataset steer it, as zfsprops(7) documents.

use super::nfs4::{self, ALLOW, DENY, flag, mask};
use super::trivial::{denials_of_mode, entries_of_mode};
use super::{Ace, AceWho};

/// Which entries a new file inherits (`aclinherit`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AclInherit {
    /// None.
    Discard,
    /// Only entries that deny.
    NoAllow,
    /// All, without the permissions to change the ACL and the owner.
    #[default]
    Restricted,
    /// All. Inherited entries for owner, group and everyone determine the mode.
    Passthrough,
    /// As `Passthrough`, and without execute permission unless the requested mode has it.
    PassthroughExecute,
}

/// The effect of chmod on an ACL that has more than a mode (`aclmode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AclMode {
    /// The ACL becomes that of the mode.
    #[default]
    Discard,
    /// Entries for users and groups are limited to the group permissions of the mode.
    GroupMask,
    /// Only the entries for owner, group and everyone change.
    Passthrough,
    /// The chmod fails.
    Restricted,
}

/// How a dataset treats NFSv4 ACLs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AclPolicy {
    /// Whether the dataset has `acltype=nfsv4`.
    pub has_nfs4_acls: bool,
    /// Which entries a new file inherits.
    pub inherit: AclInherit,
    /// The effect of chmod on an ACL.
    pub chmod: AclMode,
}

impl AclPolicy {
    /// The ACL and the mode of a new file in a directory with the ACL `parent`; none if it inherits no
    /// entry and has the ACL of its mode.
    pub fn inherit(
        self,
        parent: &[Ace],
        is_directory: bool,
        requested: u32,
    ) -> Option<(Vec<Ace>, u32)> {
        let executes = requested & crate::mode::ANY_EXECUTE != 0;
        let inherited =
            parent.iter().filter_map(|ace| self.inherit_entry(ace, is_directory, executes));
        let inherited: Vec<Ace> = inherited.collect();
        if inherited.is_empty() {
            return None;
        }
        let passes =
            matches!(self.inherit, AclInherit::Passthrough | AclInherit::PassthroughExecute);
        if passes && inherited.iter().any(affects_mode) {
            // a FUID above 32 bits matches no user here: named entries do not affect the mode
            let (mode, _) = nfs4::mode_from_acl(&inherited, requested, (u64::MAX, u64::MAX));
            return Some((inherited, mode));
        }
        Some((chmod_entries(&inherited, is_directory, requested, false), requested))
    }

    fn inherit_entry(self, ace: &Ace, is_directory: bool, executes: bool) -> Option<Ace> {
        let wanted = match self.inherit {
            AclInherit::Discard => false,
            AclInherit::NoAllow => ace.kind == DENY,
            _ => true,
        };
        let stays = ace.flags & flag::NO_PROPAGATE == 0;
        let for_files = ace.flags & flag::FILE_INHERIT != 0;
        let for_dirs = ace.flags & flag::DIRECTORY_INHERIT != 0;
        let applies = if is_directory { for_dirs || for_files && stays } else { for_files };
        if !wanted || !applies {
            return None;
        }
        let kept = ace.flags & (flag::FILE_INHERIT | flag::DIRECTORY_INHERIT);
        let only = if for_dirs { 0 } else { flag::INHERIT_ONLY };
        let flags = if is_directory && stays { kept | only } else { 0 };
        let dropped = match self.inherit {
            AclInherit::Restricted if ace.kind == ALLOW => mask::WRITE_ACL | mask::WRITE_OWNER,
            AclInherit::PassthroughExecute if ace.kind == ALLOW && !executes => mask::EXECUTE,
            _ => 0,
        };
        let audit = ace.flags & (flag::SUCCESSFUL_ACCESS | flag::FAILED_ACCESS);
        let flags = flags | audit | flag::INHERITED;
        Some(Ace { flags, mask: ace.mask & !dropped, ..ace.clone() })
    }

    /// The ACL after a chmod; none if the policy forbids the chmod.
    pub fn chmod(self, entries: &[Ace], is_directory: bool, mode: u32) -> Option<Vec<Ace>> {
        if nfs4::is_trivial(entries) || entries.is_empty() {
            return Some(nfs4::acl_from_mode(mode, is_directory));
        }
        match self.chmod {
            AclMode::Discard => Some(nfs4::acl_from_mode(mode, is_directory)),
            AclMode::GroupMask => Some(chmod_entries(entries, is_directory, mode, true)),
            AclMode::Passthrough => Some(chmod_entries(entries, is_directory, mode, false)),
            AclMode::Restricted => None,
        }
    }
}

/// Whether an entry applies to a class of the mode.
fn affects_mode(ace: &Ace) -> bool {
    is_class(ace) && ace.flags & flag::INHERIT_ONLY == 0
}

fn is_class(ace: &Ace) -> bool {
    matches!(ace.who, AceWho::Owner | AceWho::Group | AceWho::Everyone)
}

/// The entries of an ACL with others for owner, group and everyone. `masks`: entries for users and groups
/// allow no more than the group bits of the mode.
fn chmod_entries(entries: &[Ace], is_directory: bool, mode: u32, masks: bool) -> Vec<Ace> {
    let group = group_mask(mode, is_directory);
    let mut out = denials_of_mode(mode, is_directory);
    for ace in entries {
        let inherits =
            is_directory && ace.flags & (flag::FILE_INHERIT | flag::DIRECTORY_INHERIT) != 0;
        if affects_mode(ace) {
            if inherits {
                out.push(Ace { flags: ace.flags | flag::INHERIT_ONLY, ..ace.clone() });
            }
            continue;
        }
        let is_masked = masks && ace.kind == ALLOW && ace.flags & flag::INHERIT_ONLY == 0;
        let mask = if is_masked { ace.mask & group } else { ace.mask };
        out.push(Ace { mask, ..ace.clone() });
    }
    out.extend(entries_of_mode(mode, is_directory));
    out
}

/// The permissions that group bits of a mode leave to entries for users and groups.
fn group_mask(mode: u32, is_directory: bool) -> u32 {
    let write = mask::WRITE_DATA | mask::APPEND_DATA;
    let write = if is_directory { write | mask::DELETE_CHILD } else { write };
    let rows = [(0o040, mask::READ_DATA), (0o020, write), (0o010, mask::EXECUTE)];
    let dropped: u32 = rows.iter().filter(|row| mode & row.0 == 0).map(|row| row.1).sum();
    mask::ALL & !dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ace(who: AceWho, flags: u16, mask: u32) -> Ace {
        Ace { who, kind: ALLOW, flags, mask, object: None }
    }

    const READ_WRITE: u32 = mask::READ_DATA | mask::WRITE_DATA | mask::WRITE_ACL;
    const BOTH: u16 = flag::FILE_INHERIT | flag::DIRECTORY_INHERIT;

    fn named(entries: &[Ace]) -> Vec<(u16, u32)> {
        let named = entries.iter().filter(|ace| ace.who == AceWho::User(7));
        named.map(|ace| (ace.flags & !flag::INHERITED, ace.mask)).collect()
    }

    fn inherit(policy: AclInherit, flags: u16, is_directory: bool) -> Vec<(u16, u32)> {
        let parent = [ace(AceWho::User(7), flags, READ_WRITE)];
        let policy = AclPolicy { inherit: policy, ..AclPolicy::default() };
        let new = policy.inherit(&parent, is_directory, 0o640);
        new.map_or_else(Vec::new, |(entries, mode)| {
            assert_eq!(mode, 0o640);
            assert_eq!(nfs4::mode_from_acl(&entries, 0, (1, 2)).0, 0o640);
            named(&entries)
        })
    }

    #[test]
    fn inheritance_flags_select_files_and_directories() {
        let all = AclInherit::Passthrough;
        assert_eq!(inherit(all, BOTH, false), [(0, READ_WRITE)]);
        assert_eq!(inherit(all, BOTH, true), [(BOTH, READ_WRITE)]);
        assert_eq!(inherit(all, flag::DIRECTORY_INHERIT, false), []);
        let only = flag::FILE_INHERIT | flag::INHERIT_ONLY;
        assert_eq!(inherit(all, flag::FILE_INHERIT, true), [(only, READ_WRITE)]);
        assert_eq!(inherit(all, only, false), [(0, READ_WRITE)]);
        assert_eq!(inherit(all, BOTH | flag::NO_PROPAGATE, true), [(0, READ_WRITE)]);
        assert_eq!(inherit(all, flag::FILE_INHERIT | flag::NO_PROPAGATE, true), []);
    }

    #[test]
    fn aclinherit_limits_inherited_entries() {
        let restricted = READ_WRITE & !mask::WRITE_ACL;
        assert_eq!(inherit(AclInherit::Restricted, BOTH, false), [(0, restricted)]);
        assert_eq!(inherit(AclInherit::NoAllow, BOTH, false), []);
        assert_eq!(inherit(AclInherit::Discard, BOTH, false), []);
    }

    #[test]
    fn passthrough_takes_the_mode_from_the_acl() {
        let all = mask::READ_DATA | mask::EXECUTE;
        let classes = [AceWho::Owner, AceWho::Group, AceWho::Everyone];
        let parent = classes.map(|who| ace(who, flag::FILE_INHERIT, all));
        let mode = |inherit, requested| {
            let policy = AclPolicy { inherit, ..AclPolicy::default() };
            policy.inherit(&parent, false, requested).map(|new| new.1)
        };
        assert_eq!(mode(AclInherit::Passthrough, 0o600), Some(0o555));
        assert_eq!(mode(AclInherit::PassthroughExecute, 0o600), Some(0o444));
        assert_eq!(mode(AclInherit::PassthroughExecute, 0o700), Some(0o555));
        assert_eq!(mode(AclInherit::Restricted, 0o600), Some(0o600));
    }

    #[test]
    fn aclmode_decides_what_chmod_keeps() {
        let entries = [ace(AceWho::User(7), 0, READ_WRITE), ace(AceWho::Everyone, 0, mask::ALL)];
        let chmod =
            |chmod, mode| AclPolicy { chmod, ..AclPolicy::default() }.chmod(&entries, false, mode);
        assert_eq!(chmod(AclMode::Restricted, 0o640), None);
        assert_eq!(chmod(AclMode::Discard, 0o640), Some(nfs4::acl_from_mode(0o640, false)));
        for (policy, kept) in [
            (AclMode::Passthrough, READ_WRITE),
            (AclMode::GroupMask, READ_WRITE & !mask::WRITE_DATA),
        ] {
            let after = chmod(policy, 0o640).expect("an ACL");
            assert_eq!(named(&after), [(0, kept)]);
            assert_eq!(nfs4::mode_from_acl(&after, 0, (1, 2)).0, 0o640);
        }
    }
}
