//! POSIX ACLs: what they make of a mode, and what a mode makes of them.

use ondisk::acl::PosixEntry;

const USER_OBJ: u16 = 0x1;
const USER: u16 = 0x2;
const GROUP_OBJ: u16 = 0x4;
const GROUP: u16 = 0x8;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Whether the entries are those of an ACL, in the order in which they must come.
pub(crate) fn is_valid(entries: &[PosixEntry]) -> bool {
    let rank =
        |tag| [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER].iter().position(|one| *one == tag);
    let ranks: Option<Vec<usize>> = entries.iter().map(|entry| rank(entry.tag)).collect();
    let Some(ranks) = ranks else { return false };
    let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
    let named = count(USER).saturating_add(count(GROUP));
    ranks.is_sorted()
        && entries.iter().all(|entry| entry.permissions <= 7)
        && [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|tag| count(*tag) == 1)
        && count(MASK) <= 1
        && (named == 0 || count(MASK) == 1)
}

fn tag_permissions(entries: &[PosixEntry], tag: u16) -> Option<u32> {
    entries.iter().find(|entry| entry.tag == tag).map(|entry| u32::from(entry.permissions & 7))
}

/// Whether they say no more than permission bits can.
pub(crate) fn is_minimal(entries: &[PosixEntry]) -> bool {
    entries.iter().all(|entry| matches!(entry.tag, USER_OBJ | GROUP_OBJ | OTHER))
}

/// The permission bits that an ACL shows.
pub(crate) fn mode_from_acl(entries: &[PosixEntry], mode: u32) -> u32 {
    let group = tag_permissions(entries, MASK).or(tag_permissions(entries, GROUP_OBJ)).unwrap_or(0);
    let owner = tag_permissions(entries, USER_OBJ).unwrap_or(0);
    let others = tag_permissions(entries, OTHER).unwrap_or(0);
    mode & !0o777 | owner << 6 | group << 3 | others
}

/// The tag whose permissions are the group bits of the mode.
fn group_tag(entries: &[PosixEntry]) -> u16 {
    if entries.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP_OBJ }
}

fn class_bits(mode: u32, tag: u16, group: u16) -> Option<u16> {
    let bits = match tag {
        USER_OBJ => mode >> 6,
        OTHER => mode,
        tag if tag == group => mode >> 3,
        _ => return None,
    };
    u16::try_from(bits & 7).ok()
}

/// The ACL after a chmod.
pub(crate) fn apply_chmod(entries: &[PosixEntry], mode: u32) -> Vec<PosixEntry> {
    let group = group_tag(entries);
    let change = |entry: &PosixEntry| match class_bits(mode, entry.tag, group) {
        Some(permissions) => PosixEntry { permissions, ..*entry },
        None => *entry,
    };
    entries.iter().map(change).collect()
}

/// The ACL of a new file in a directory with this default ACL, and its mode: neither allows what
/// the wanted mode does not.
pub(crate) fn inherit_default(default: &[PosixEntry], mode: u32) -> (Vec<PosixEntry>, u32) {
    let group = group_tag(default);
    let change = |entry: &PosixEntry| match class_bits(mode, entry.tag, group) {
        Some(wanted) => PosixEntry { permissions: entry.permissions & wanted, ..*entry },
        None => *entry,
    };
    let out: Vec<PosixEntry> = default.iter().map(change).collect();
    let mode = mode_from_acl(&out, mode);
    (out, mode)
}

#[cfg(test)]
mod tests {
    use super::{apply_chmod, inherit_default, is_minimal, is_valid, mode_from_acl};
    use ondisk::acl::PosixEntry;

    fn acl_of_rows(rows: &[(u16, u16)]) -> Vec<PosixEntry> {
        rows.iter()
            .map(|(tag, permissions)| PosixEntry { tag: *tag, permissions: *permissions, id: 9 })
            .collect()
    }

    #[test]
    fn the_mask_is_what_the_mode_shows_as_group() {
        let full = acl_of_rows(&[(1, 7), (2, 6), (4, 1), (0x10, 5), (0x20, 4)]);
        assert!(is_valid(&full) && !is_minimal(&full));
        assert_eq!(mode_from_acl(&full, 0o100000), 0o100754);
        assert_eq!(mode_from_acl(&apply_chmod(&full, 0o612), 0), 0o612);
        assert_eq!(apply_chmod(&full, 0o612)[2].permissions, 1);
        let (new, mode) = inherit_default(&full, 0o100644);
        assert_eq!((mode, new[3].permissions, new[2].permissions), (0o100644, 4, 1));
    }

    #[test]
    fn lists_out_of_order_or_without_a_mask_are_refused() {
        assert!(!is_valid(&acl_of_rows(&[(1, 7), (2, 6), (4, 1), (0x20, 4)])));
        assert!(!is_valid(&acl_of_rows(&[(4, 1), (1, 7), (0x20, 4)])));
        assert!(
            !is_valid(&acl_of_rows(&[(1, 7), (4, 1)]))
                && !is_valid(&acl_of_rows(&[(1, 9), (4, 1), (0x20, 0)]))
        );
        let small = acl_of_rows(&[(1, 7), (4, 1), (0x20, 4)]);
        assert!(is_valid(&small) && is_minimal(&small));
        assert_eq!(inherit_default(&small, 0o755).1, 0o714);
    }
}
