//! Trivial NFSv4 ACLs: those that allow exactly what a mode allows.
//!
//! Every file of ZFS has an NFSv4 ACL. That of a file whose permissions were only ever set by mode is
//! trivial.

use super::nfs4::flag::{ALL_INHERITANCE, INHERIT_ONLY};
use super::nfs4::mask::{
    APPEND_DATA, DELETE, DELETE_CHILD, EXECUTE, READ_ACL, READ_ATTRIBUTES, READ_DATA,
    READ_NAMED_ATTRIBUTES, SYNCHRONIZE, WRITE_ACL, WRITE_ATTRIBUTES, WRITE_DATA,
    WRITE_NAMED_ATTRIBUTES, WRITE_OWNER,
};
use super::nfs4::{ALLOW, DENY};
use super::{Ace, AceWho};

const WRITE: u32 = WRITE_DATA | APPEND_DATA;
/// Permissions that a trivial ACL allows to everyone.
const EVERYONE_RIGHTS: u32 = READ_ATTRIBUTES | READ_NAMED_ATTRIBUTES | READ_ACL | SYNCHRONIZE;
/// Permissions that a trivial ACL allows to the owner only.
const OWNER_RIGHTS: u32 = WRITE_ATTRIBUTES | WRITE_NAMED_ATTRIBUTES | WRITE_ACL | WRITE_OWNER;

/// Whether a class of a mode may read, write and execute.
fn class_bits(mode: u32, shift: u32) -> [bool; 3] {
    [4, 2, 1].map(|bit| mode >> shift & bit != 0)
}

/// The permissions of a class that may read, write and execute.
fn class_mask(bits: [bool; 3], is_directory: bool) -> u32 {
    let write = WRITE | if is_directory { DELETE_CHILD } else { 0 };
    [READ_DATA, write, EXECUTE].iter().zip(bits).filter(|pair| pair.1).map(|pair| pair.0).sum()
}

/// The trivial ACL of a mode.
pub fn acl_from_mode(mode: u32, is_directory: bool) -> Vec<Ace> {
    let mut entries = denials_of_mode(mode, is_directory);
    entries.extend(entries_of_mode(mode, is_directory));
    entries
}

const fn class_entry(who: AceWho, kind: u16, mask: u32) -> Ace {
    Ace { who, kind, flags: 0, mask, object: None }
}

/// The last entries of the trivial ACL of a mode: what owner, group and everyone are allowed.
pub(super) fn entries_of_mode(mode: u32, is_directory: bool) -> [Ace; 3] {
    let mask = |shift| class_mask(class_bits(mode, shift), is_directory) | EVERYONE_RIGHTS;
    [
        class_entry(AceWho::Owner, ALLOW, mask(6) | OWNER_RIGHTS),
        class_entry(AceWho::Group, ALLOW, mask(3)),
        class_entry(AceWho::Everyone, ALLOW, mask(0)),
    ]
}

/// The first entries of the trivial ACL of a mode: they deny a narrower class the rights of a wider
/// one.
pub(super) fn denials_of_mode(mode: u32, is_directory: bool) -> Vec<Ace> {
    let mask = |bits| class_mask(bits, is_directory);
    let [owner, group, others] = [6, 3, 0].map(|shift| class_bits(mode, shift));
    let each = |rule: &dyn Fn(bool, bool, bool) -> bool| {
        let pairs = owner.iter().zip(group).zip(others);
        let mut bits = pairs.map(|((owner, group), others)| rule(*owner, group, others));
        mask([(); 3].map(|()| bits.next().unwrap_or(false)))
    };
    let entries = [
        (AceWho::Owner, ALLOW, each(&|owner, group, others| owner && !group && others)),
        (AceWho::Owner, DENY, each(&|owner, group, others| !owner && (group || others))),
        (AceWho::Group, DENY, each(&|_, group, others| !group && others)),
    ];
    let entries = entries.into_iter().filter(|row| row.2 != 0);
    entries.map(|(who, kind, mask)| class_entry(who, kind, mask)).collect()
}

/// The mode of the ACL for a file of that owner and group (FUIDs), and whether the ACL never denies
/// execution.
pub fn mode_from_acl(entries: &[Ace], mode: u32, (owner, group): (u64, u64)) -> (u32, bool) {
    let (mut out, mut seen, mut is_denied) = (mode & !0o777, 0_u32, false);
    for entry in entries.iter().filter(|entry| entry.flags & INHERIT_ONLY == 0) {
        let classes: u32 = match entry.who {
            AceWho::Owner => 0o700,
            AceWho::User(who) if who == owner => 0o700,
            AceWho::Group => 0o070,
            AceWho::NamedGroup(who) if who == group => 0o070,
            AceWho::Everyone => 0o777,
            AceWho::User(_) | AceWho::NamedGroup(_) => {
                is_denied |= entry.kind == DENY && entry.mask & EXECUTE != 0;
                continue;
            }
        };
        let rights = [(READ_DATA, 0o444), (WRITE_DATA, 0o222), (EXECUTE, 0o111)];
        let named: u32 = rights.iter().filter(|row| entry.mask & row.0 != 0).map(|row| row.1).sum();
        let new = named & classes & !seen;
        seen |= new;
        if entry.kind == ALLOW {
            out |= new;
        }
    }
    (out, !is_denied && out & 0o111 == 0o111)
}

/// Whether an ACL allows no more than a mode can express.
pub fn is_trivial(entries: &[Ace]) -> bool {
    entries.iter().all(|entry| {
        let who = matches!(entry.who, AceWho::Owner | AceWho::Group | AceWho::Everyone);
        let deletes = entry.mask & DELETE != 0
            || entry.mask & DELETE_CHILD != 0 && entry.mask & WRITE_DATA == 0;
        // a mode never denies reading the ACL, and allows only the owner to change it
        let rights = match entry.kind {
            ALLOW => entry.who == AceWho::Owner || entry.mask & OWNER_RIGHTS == 0,
            DENY => entry.mask & (READ_ACL | READ_ATTRIBUTES) == 0,
            _ => true,
        };
        who && rights && !deletes && entry.flags & ALL_INHERITANCE == 0
    })
}

#[cfg(test)]
mod tests {
    use super::{acl_from_mode, is_trivial, mode_from_acl};

    #[test]
    fn usual_mode_has_three_entries() {
        let shown: Vec<String> =
            acl_from_mode(0o644, false).iter().map(ToString::to_string).collect();
        let wanted = [
            "owner@:rw-p--aARWcCos:-------:allow",
            "group@:r-----a-R-c--s:-------:allow",
            "everyone@:r-----a-R-c--s:-------:allow",
        ];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn unusual_mode_denies_first() {
        let shown: Vec<String> =
            acl_from_mode(0o705, true).iter().map(ToString::to_string).collect();
        assert_eq!(shown.first().map(String::as_str), Some("owner@:r-x-----------:-------:allow"));
        assert_eq!(shown.get(1).map(String::as_str), Some("group@:r-x-----------:-------:deny"));
    }

    #[test]
    fn every_mode_survives_the_round_trip() {
        for mode in 0..0o10000_u32 {
            for is_directory in [false, true] {
                let entries = acl_from_mode(mode, is_directory);
                assert_eq!(mode_from_acl(&entries, mode, (1, 2)), (mode, mode & 0o111 == 0o111));
                assert!(is_trivial(&entries), "{mode:o}");
            }
        }
    }
}
