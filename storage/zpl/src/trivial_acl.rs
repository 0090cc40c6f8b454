//! Permission bits as an NFSv4 ACL, and back.
//!
//! Every file has an ACL that says at least what its mode says. On Linux nobody sets another one,
//! but files from other systems may have it: chmod then leaves just what the mode says.

use ondisk::acl::{Entry, Principal};

const READ: u32 = 0x1;
const WRITE_DATA: u32 = 0x2;
const WRITE: u32 = WRITE_DATA | 0x4;
const EXECUTE: u32 = 0x20;
const DELETE_CHILD: u32 = 0x40;
const DELETE: u32 = 0x10000;
const READ_ATTRIBUTES: u32 = 0x80;
const READ_ACL: u32 = 0x20000;
/// Read the attributes, the named ones, the ACL; synchronize.
const EVERYONE_RIGHTS: u32 = READ_ATTRIBUTES | 0x8 | READ_ACL | 0x100000;
/// Write attributes, named ones, the ACL and the owner.
const OWNER_RIGHTS: u32 = 0x100 | 0x10 | 0x40000 | 0x80000;
const ALLOW: u16 = 0;
const DENY: u16 = 1;
const INHERIT_ONLY: u16 = 0x8;
const INHERIT_FLAGS: u16 = 0xf;

/// The three bits of a class: read, write, execute; from those of the mode.
fn class_bits(mode: u32, shift: u32) -> [bool; 3] {
    [4, 2, 1].map(|bit| mode >> shift & bit != 0)
}

/// The ACL that says what a mode says.
pub(crate) fn acl_from_mode(mode: u32, is_directory: bool) -> Vec<Entry> {
    let write = WRITE | if is_directory { DELETE_CHILD } else { 0 };
    let mask = |bits: [bool; 3]| {
        [READ, write, EXECUTE].iter().zip(bits).filter(|pair| pair.1).map(|pair| pair.0).sum()
    };
    let [owner, group, others] = [6, 3, 0].map(|shift| class_bits(mode, shift));
    let each = |rule: &dyn Fn(bool, bool, bool) -> bool| {
        let pairs = owner.iter().zip(group).zip(others);
        let mut bits = pairs.map(|((owner, group), others)| rule(*owner, group, others));
        mask([(); 3].map(|()| bits.next().unwrap_or(false)))
    };
    // what a class is denied must be said before a wider class is allowed it
    let before = [
        (Principal::Owner, ALLOW, each(&|owner, group, others| owner && !group && others)),
        (Principal::Owner, DENY, each(&|owner, group, others| !owner && (group || others))),
        (Principal::Group, DENY, each(&|_, group, others| !group && others)),
    ];
    let before = before.into_iter().filter(|row| row.2 != 0);
    let after = [
        (Principal::Owner, ALLOW, mask(owner) | EVERYONE_RIGHTS | OWNER_RIGHTS),
        (Principal::Group, ALLOW, mask(group) | EVERYONE_RIGHTS),
        (Principal::Everyone, ALLOW, mask(others) | EVERYONE_RIGHTS),
    ];
    let entry = |(who, kind, mask)| Entry { principal: who, kind, flags: 0, mask, object: None };
    before.chain(after).map(entry).collect()
}

/// What an ACL makes of a mode: its permission bits, and whether execution is denied to nobody.
pub(crate) fn mode_from_acl(entries: &[Entry], mode: u32, owner: u64, group: u64) -> (u32, bool) {
    let (mut out, mut seen, mut is_denied) = (mode & !0o777, 0_u32, false);
    for entry in entries.iter().filter(|entry| entry.flags & INHERIT_ONLY == 0) {
        let classes: u32 = match entry.principal {
            Principal::Owner => 0o700,
            Principal::User(who) if who == owner => 0o700,
            Principal::Group => 0o070,
            Principal::NamedGroup(who) if who == group => 0o070,
            Principal::Everyone => 0o777,
            Principal::User(_) | Principal::NamedGroup(_) => {
                is_denied |= entry.kind == DENY && entry.mask & EXECUTE != 0;
                continue;
            }
        };
        let rights = [(READ, 0o444), (WRITE_DATA, 0o222), (EXECUTE, 0o111)];
        let spoken: u32 =
            rights.iter().filter(|row| entry.mask & row.0 != 0).map(|row| row.1).sum();
        let new = spoken & classes & !seen;
        seen |= new;
        if entry.kind == ALLOW {
            out |= new;
        }
    }
    (out, !is_denied && out & 0o111 == 0o111)
}

/// Whether an ACL says no more than a mode can.
pub(crate) fn is_trivial(entries: &[Entry]) -> bool {
    entries.iter().all(|entry| {
        let who =
            matches!(entry.principal, Principal::Owner | Principal::Group | Principal::Everyone);
        let deletes = entry.mask & DELETE != 0
            || entry.mask & DELETE_CHILD != 0 && entry.mask & WRITE_DATA == 0;
        // nobody may be denied to see the ACL, and nobody but the owner may change it
        let rights = match entry.kind {
            ALLOW => entry.principal == Principal::Owner || entry.mask & OWNER_RIGHTS == 0,
            DENY => entry.mask & (READ_ACL | READ_ATTRIBUTES) == 0,
            _ => true,
        };
        who && rights && !deletes && entry.flags & INHERIT_FLAGS == 0
    })
}

#[cfg(test)]
mod tests {
    use super::{acl_from_mode, is_trivial, mode_from_acl};

    #[test]
    fn a_usual_mode_has_three_entries() {
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
    fn an_unusual_mode_denies_first() {
        let shown: Vec<String> =
            acl_from_mode(0o705, true).iter().map(ToString::to_string).collect();
        assert_eq!(shown.first().map(String::as_str), Some("owner@:r-x-----------:-------:allow"));
        assert_eq!(shown.get(1).map(String::as_str), Some("group@:r-x-----------:-------:deny"));
    }

    #[test]
    fn every_mode_comes_back() {
        for mode in 0..0o10000_u32 {
            for is_directory in [false, true] {
                let entries = acl_from_mode(mode, is_directory);
                assert_eq!(mode_from_acl(&entries, mode, 1, 2), (mode, mode & 0o111 == 0o111));
                assert!(is_trivial(&entries), "{mode:o}");
            }
        }
    }
}
