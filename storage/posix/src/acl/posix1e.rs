//! POSIX ACLs: access checks, and how they and modes determine each other.

use super::PosixAclEntry;
use crate::Credentials;

/// The tags of entries.
pub mod tag {
    /// The owner of the file.
    pub const USER_OBJ: u16 = 0x1;
    /// A user with a name.
    pub const USER: u16 = 0x2;
    /// The group of the file.
    pub const GROUP_OBJ: u16 = 0x4;
    /// A group with a name.
    pub const GROUP: u16 = 0x8;
    /// The most that entries of the group class allow.
    pub const MASK: u16 = 0x10;
    /// Others.
    pub const OTHER: u16 = 0x20;
}

use tag::{GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ};

/// Whether the entries form an ACL and stand in the required order.
pub fn is_valid(entries: &[PosixAclEntry]) -> bool {
    let rank =
        |tag| [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER].iter().position(|one| *one == tag);
    let ranks: Option<Vec<usize>> = entries.iter().map(|entry| rank(entry.tag)).collect();
    let Some(ranks) = ranks else { return false };
    let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
    let has_names = entries.iter().any(|entry| matches!(entry.tag, USER | GROUP));
    ranks.is_sorted()
        && entries.iter().all(|entry| entry.permissions <= 7)
        && [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|tag| count(*tag) == 1)
        && count(MASK) <= 1
        && (!has_names || count(MASK) == 1)
}

/// Whether the entries allow no more than a mode can express.
pub fn is_minimal(entries: &[PosixAclEntry]) -> bool {
    entries.iter().all(|entry| matches!(entry.tag, USER_OBJ | GROUP_OBJ | OTHER))
}

/// Whether an ACL of a file of that owner and group allows all of `wanted`: 4 read, 2 write, 1 execute.
///
/// The first matching class decides: owner, named user, groups, others. Of the groups that match, one
/// entry must allow all of `wanted`.
pub fn is_allowed(
    entries: &[PosixAclEntry],
    (uid, gid): (u32, u32),
    credentials: &Credentials,
    wanted: u16,
) -> bool {
    let mask = tag_permissions(entries, MASK).unwrap_or(7);
    if credentials.uid == uid {
        return allows(tag_permissions(entries, USER_OBJ).unwrap_or(0), wanted);
    }
    let mut users = entries.iter().filter(|entry| entry.tag == USER);
    if let Some(entry) = users.find(|entry| entry.id == credentials.uid) {
        return allows(u32::from(entry.permissions) & mask, wanted);
    }
    let is_member = |entry: &&PosixAclEntry| match entry.tag {
        GROUP_OBJ => credentials.is_in_group(gid),
        GROUP => credentials.is_in_group(entry.id),
        _ => false,
    };
    let mut groups = entries.iter().filter(is_member).peekable();
    if groups.peek().is_some() {
        return groups.any(|entry| allows(u32::from(entry.permissions) & mask, wanted));
    }
    allows(tag_permissions(entries, OTHER).unwrap_or(0), wanted)
}

fn allows(permissions: u32, wanted: u16) -> bool {
    u32::from(wanted) & !permissions == 0
}

fn tag_permissions(entries: &[PosixAclEntry], tag: u16) -> Option<u32> {
    entries.iter().find(|entry| entry.tag == tag).map(|entry| u32::from(entry.permissions & 7))
}

/// The permission bits that the mode of a file with this ACL shows.
pub fn mode_from_acl(entries: &[PosixAclEntry], mode: u32) -> u32 {
    let group = tag_permissions(entries, MASK).or(tag_permissions(entries, GROUP_OBJ)).unwrap_or(0);
    let owner = tag_permissions(entries, USER_OBJ).unwrap_or(0);
    let others = tag_permissions(entries, OTHER).unwrap_or(0);
    mode & !0o777 | owner << 6 | group << 3 | others
}

/// The tag whose permissions are the group bits of the mode.
fn group_tag(entries: &[PosixAclEntry]) -> u16 {
    if entries.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP_OBJ }
}

fn class_bits(mode: u32, tag: u16, group: u16) -> Option<u16> {
    let bits = match tag {
        USER_OBJ => mode >> 6,
        OTHER => mode,
        tag if tag == group => mode >> 3,
        _ => return None,
    };
    Some((bits & 7) as u16)
}

/// The ACL after a chmod.
pub fn apply_chmod(entries: &[PosixAclEntry], mode: u32) -> Vec<PosixAclEntry> {
    let group = group_tag(entries);
    let change = |entry: &PosixAclEntry| match class_bits(mode, entry.tag, group) {
        Some(permissions) => PosixAclEntry { permissions, ..*entry },
        None => *entry,
    };
    entries.iter().map(change).collect()
}

/// The ACL and the mode of a new file in a directory with this default ACL. Neither allows more than
/// the requested mode.
pub fn inherit_default(default: &[PosixAclEntry], mode: u32) -> (Vec<PosixAclEntry>, u32) {
    let group = group_tag(default);
    let change = |entry: &PosixAclEntry| match class_bits(mode, entry.tag, group) {
        Some(wanted) => PosixAclEntry { permissions: entry.permissions & wanted, ..*entry },
        None => *entry,
    };
    let out: Vec<PosixAclEntry> = default.iter().map(change).collect();
    let mode = mode_from_acl(&out, mode);
    (out, mode)
}

#[cfg(test)]
mod tests {
    use super::{apply_chmod, inherit_default, is_allowed, is_minimal, is_valid, mode_from_acl};
    use crate::Credentials;
    use crate::acl::PosixAclEntry;

    fn acl_of_rows(rows: &[(u16, u16, u32)]) -> Vec<PosixAclEntry> {
        rows.iter()
            .map(|(tag, permissions, id)| PosixAclEntry {
                tag: *tag,
                permissions: *permissions,
                id: *id,
            })
            .collect()
    }

    #[test]
    fn mode_shows_mask_as_group() {
        let full = acl_of_rows(&[(1, 7, 9), (2, 6, 9), (4, 1, 9), (0x10, 5, 9), (0x20, 4, 9)]);
        assert!(is_valid(&full) && !is_minimal(&full));
        assert_eq!(mode_from_acl(&full, 0o100_000), 0o100_754);
        assert_eq!(mode_from_acl(&apply_chmod(&full, 0o612), 0), 0o612);
        assert_eq!(apply_chmod(&full, 0o612)[2].permissions, 1);
        let (new, mode) = inherit_default(&full, 0o100_644);
        assert_eq!((mode, new[3].permissions, new[2].permissions), (0o100_644, 4, 1));
    }

    #[test]
    fn misordered_or_maskless_acl_is_invalid() {
        let rows = [(1, 7, 9), (2, 6, 9), (4, 1, 9), (0x20, 4, 9)];
        assert!(!is_valid(&acl_of_rows(&rows)));
        assert!(!is_valid(&acl_of_rows(&[(4, 1, 9), (1, 7, 9), (0x20, 4, 9)])));
        assert!(!is_valid(&acl_of_rows(&[(1, 7, 9), (4, 1, 9)])));
        assert!(!is_valid(&acl_of_rows(&[(1, 9, 9), (4, 1, 9), (0x20, 0, 9)])));
        let small = acl_of_rows(&[(1, 7, 9), (4, 1, 9), (0x20, 4, 9)]);
        assert!(is_valid(&small) && is_minimal(&small));
        assert_eq!(inherit_default(&small, 0o755).1, 0o714);
    }

    #[test]
    fn one_group_entry_must_allow_everything() {
        let rows = [(1, 7, 9), (4, 4, 9), (8, 2, 50), (8, 6, 60), (0x10, 6, 9), (0x20, 7, 9)];
        let acl = acl_of_rows(&rows);
        let is_allowed = |groups: &[u32], wanted| {
            let member = Credentials::new(7, 100).with_groups(groups);
            is_allowed(&acl, (1, 100), &member, wanted)
        };
        assert!(is_allowed(&[50], 4) && is_allowed(&[50], 2) && !is_allowed(&[50], 6));
        assert!(is_allowed(&[50, 60], 6) && !is_allowed(&[50, 60], 1));
    }
}
