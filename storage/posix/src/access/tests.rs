//! Access checks by table: NFSv4 ACLs, flags, capabilities.
//!
//! `tests/it/kernel.rs` compares the rules of modes and POSIX ACLs with the kernel.

use super::{
    Denied, OpenMode, Target, TargetAcl, check, check_delete, check_open,
    check_open_with_owner_override, check_set_attributes, check_set_attributes_with_owner_override,
    check_set_xattr, granted,
};
use crate::acl::nfs4::{ALLOW, DENY, flag, mask};
use crate::acl::{Ace, AceWho};
use crate::{Capability, Credentials, FileFlags, FileType, FlagChange, SetAttributes};

const OWNER: u32 = 1000;
const GROUP: u32 = 100;

fn target(kind: FileType, mode: u32, acl: TargetAcl) -> Target {
    Target { kind, mode, uid: OWNER, gid: GROUP, flags: FileFlags::NONE, acl }
}

fn ace(who: AceWho, kind: u16, mask: u32) -> Ace {
    Ace { who, kind, flags: 0, mask, object: None }
}

fn nfs4(kind: FileType, entries: &[Ace]) -> Target {
    target(kind, 0o777, TargetAcl::Nfs4(entries.to_vec()))
}

fn owner() -> Credentials {
    Credentials::new(OWNER, GROUP)
}

fn stranger() -> Credentials {
    Credentials::new(7, 7)
}

#[test]
fn unmentioned_nfs4_permission_is_refused() {
    let file = nfs4(FileType::File, &[ace(AceWho::Everyone, ALLOW, mask::READ_DATA)]);
    assert_eq!(granted(&stranger(), &file, mask::ALL & !mask::SYNCHRONIZE), mask::READ_DATA);
}

#[test]
fn deny_before_allow_wins_and_after_allow_loses() {
    let deny = ace(AceWho::User(7), DENY, mask::WRITE_DATA);
    let allow = ace(AceWho::Everyone, ALLOW, mask::WRITE_DATA);
    let first = nfs4(FileType::File, &[deny.clone(), allow.clone()]);
    let last = nfs4(FileType::File, &[allow, deny]);
    assert_eq!(check(&stranger(), &first, mask::WRITE_DATA), Err(Denied::Access));
    assert_eq!(check(&stranger(), &last, mask::WRITE_DATA), Ok(()));
}

#[test]
fn owner_may_repair_an_acl_that_denies_everything() {
    let file = nfs4(FileType::File, &[ace(AceWho::Everyone, DENY, mask::ALL)]);
    let repair = mask::READ_ATTRIBUTES | mask::READ_ACL | mask::WRITE_ACL;
    assert_eq!(granted(&owner(), &file, mask::ALL), repair);
    assert_eq!(granted(&stranger(), &file, mask::ALL), 0);
}

#[test]
fn nfs4_acl_alone_allows_attributes_and_owner() {
    let all = mask::WRITE_ACL | mask::WRITE_OWNER | mask::WRITE_ATTRIBUTES;
    let file = nfs4(FileType::File, &[ace(AceWho::User(7), ALLOW, all)]);
    let chmod = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    let take = SetAttributes { uid: Some(7), ..SetAttributes::default() };
    let give = SetAttributes { uid: Some(8), ..SetAttributes::default() };
    let check = |set| check_set_attributes(&stranger(), &file, set).map(drop);
    assert_eq!([check(&chmod), check(&take)], [Ok(()), Ok(())]);
    assert_eq!(check(&give), Err(Denied::NotPermitted));
    let other = Credentials::new(9, 9);
    assert!(check_set_attributes(&other, &file, &chmod).is_err());
}

/// The rows of the table of deletion: the directory's decisions on `DELETE_CHILD` and on writing,
/// the file's decision on `DELETE`, and the result.
#[test]
fn nfs4_deletion_follows_the_table() {
    let search = ace(AceWho::Everyone, ALLOW, mask::EXECUTE);
    let allow = |mask| ace(AceWho::Everyone, ALLOW, mask);
    let deny = |mask| ace(AceWho::Everyone, DENY, mask);
    let dirs = [
        (vec![allow(mask::DELETE_CHILD)], [true, true, true]),
        (vec![deny(mask::DELETE_CHILD), allow(mask::ADD_FILE)], [true, false, false]),
        (vec![allow(mask::ADD_FILE)], [true, true, true]),
        (vec![deny(mask::ADD_FILE)], [true, false, false]),
    ];
    let files = [allow(mask::DELETE), deny(mask::DELETE), allow(mask::READ_DATA)];
    for (mut entries, decisions) in dirs {
        entries.push(search.clone());
        let dir = nfs4(FileType::Directory, &entries);
        for (file, is_allowed) in files.iter().zip(decisions) {
            let file = nfs4(FileType::File, std::slice::from_ref(file));
            let decision = check_delete(&stranger(), &dir, &file);
            assert_eq!(decision.is_ok(), is_allowed, "{entries:?} {file:?}");
        }
    }
}

#[test]
fn inherit_only_entry_does_not_grant() {
    let mut entry = ace(AceWho::Everyone, ALLOW, mask::READ_DATA);
    entry.flags = flag::INHERIT_ONLY | flag::FILE_INHERIT;
    let dir = nfs4(FileType::Directory, &[entry]);
    assert_eq!(check(&stranger(), &dir, mask::LIST_DIRECTORY), Err(Denied::Access));
}

#[test]
fn override_of_nfs4_acl_executes_only_executables() {
    let entries = [ace(AceWho::Everyone, DENY, mask::ALL)];
    let root = Credentials::ROOT;
    let plain = target(FileType::File, 0o666, TargetAcl::Nfs4(entries.to_vec()));
    assert_eq!(check(&root, &plain, mask::EXECUTE), Err(Denied::Access));
    assert_eq!(check(&root, &plain, mask::READ_DATA | mask::WRITE_DATA), Ok(()));
    assert_eq!(check(&root, &nfs4(FileType::File, &entries), mask::EXECUTE), Ok(()));
    let reader = stranger().with_capability(Capability::DacReadSearch);
    assert_eq!(check(&reader, &plain, mask::READ_DATA), Ok(()));
    assert_eq!(check(&reader, &plain, mask::WRITE_DATA), Err(Denied::Access));
}

#[test]
fn immutable_and_append_only_bind_root() {
    let mut file = target(FileType::File, 0o666, TargetAcl::Mode);
    let append = OpenMode { read: false, write: true, append: true, ..OpenMode::default() };
    let truncate = OpenMode { truncate: true, ..append };
    file.flags = FileFlags::APPEND_ONLY;
    let open = |file: &Target, mode| check_open(&Credentials::ROOT, file, mode);
    assert_eq!(open(&file, append), Ok(()));
    assert_eq!(open(&file, truncate), Err(Denied::NotPermitted));
    assert_eq!(open(&file, OpenMode::READ_WRITE), Err(Denied::NotPermitted));
    file.flags = FileFlags::IMMUTABLE;
    assert_eq!(open(&file, append), Err(Denied::NotPermitted));
    assert_eq!(open(&file, OpenMode::READ), Ok(()));
    let xattr = check_set_xattr(&Credentials::ROOT, &file, b"user.a");
    assert_eq!(xattr, Err(Denied::NotPermitted));
    let dir = target(FileType::Directory, 0o777, TargetAcl::Mode);
    assert_eq!(check_delete(&Credentials::ROOT, &dir, &file), Err(Denied::NotPermitted));
}

#[test]
fn guarded_flags_need_their_capability() {
    let file = target(FileType::File, 0o666, TargetAcl::Mode);
    let set =
        |flags| SetAttributes { flags: Some(FlagChange::set(flags)), ..SetAttributes::default() };
    let check = |by: &Credentials, flags| check_set_attributes(by, &file, &set(flags)).map(drop);
    assert_eq!(check(&owner(), FileFlags::NO_DUMP), Ok(()));
    assert_eq!(check(&stranger(), FileFlags::NO_DUMP), Err(Denied::NotPermitted));
    assert_eq!(check(&owner(), FileFlags::IMMUTABLE), Err(Denied::NotPermitted));
    let capable = owner().with_capability(Capability::Immutable);
    assert_eq!(check(&capable, FileFlags::IMMUTABLE), Ok(()));
}

#[test]
fn owner_override_spares_the_owner_only() {
    let mut file = target(FileType::File, 0, TargetAcl::Mode);
    let open = |who: &Credentials, file: &Target| {
        check_open_with_owner_override(who, file, OpenMode::READ_WRITE)
    };
    let size = SetAttributes { size: Some(1), ..SetAttributes::default() };
    let resize = |who: &Credentials, file: &Target| {
        check_set_attributes_with_owner_override(who, file, &size)
    };
    assert_eq!((open(&owner(), &file), resize(&owner(), &file)), (Ok(()), Ok(size)));
    assert_eq!(open(&stranger(), &file), Err(Denied::Access));
    assert_eq!(resize(&stranger(), &file), Err(Denied::Access));
    file.flags = FileFlags::IMMUTABLE;
    assert_eq!(open(&owner(), &file), Err(Denied::NotPermitted));
    assert_eq!(resize(&owner(), &file), Err(Denied::NotPermitted));
}

#[test]
fn owner_override_reads_programs_but_not_directories() {
    let open = |kind, mode| {
        let target = target(kind, mode, TargetAcl::Mode);
        check_open_with_owner_override(&stranger(), &target, OpenMode::READ)
    };
    assert_eq!(open(FileType::File, 0o711), Ok(()));
    assert_eq!(open(FileType::File, 0o700), Err(Denied::Access));
    assert_eq!(open(FileType::Directory, 0o711), Err(Denied::Access));
}
