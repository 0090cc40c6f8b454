//! POSIX ACLs: access and inheritance, where the file system has them.

use posix::access::OpenMode;
use posix::acl::posix1e::tag;
use posix::acl::{PosixAclEntry, PosixAclKind};
use posix::{FileType, NewInode};
use vfs::FileSystem;

use super::{Bed, Failure, context, failure};

/// An ACL that gives Bob these permissions, below a mask.
fn acl_for_bob(permissions: u16, mask: u16) -> Vec<PosixAclEntry> {
    let none = u32::MAX;
    let rows = [
        (tag::USER_OBJ, 6, none),
        (tag::USER, permissions, 1002),
        (tag::GROUP_OBJ, 0, none),
        (tag::MASK, mask, none),
        (tag::OTHER, 0, none),
    ];
    rows.into_iter().map(|(tag, permissions, id)| PosixAclEntry { tag, permissions, id }).collect()
}

pub(super) fn check<F: FileSystem>(bed: &Bed<'_, F>) {
    if !bed.fs.limits().has_posix_acls {
        return;
    }
    let (fs, alice, bob) = (bed.fs, &context(&bed.alice), &context(&bed.bob));
    let file = bed.file_of_alice("file", 0o600);
    let set = |by, entries: Option<&[PosixAclEntry]>| {
        fs.set_posix_acl(by, file, PosixAclKind::Access, entries)
    };
    assert_eq!(failure(set(bob, Some(&acl_for_bob(6, 6)))), Failure::NOT_PERMITTED);
    set(alice, Some(&acl_for_bob(6, 6))).expect("set");
    assert_eq!(bed.stat(file).mode, 0o660, "the mask is the group's bits");
    bed.open(&bed.bob, file, OpenMode::READ_WRITE).expect("Bob opens");
    set(alice, Some(&acl_for_bob(6, 4))).expect("set");
    let denied = bed.open(&bed.bob, file, OpenMode::READ_WRITE).map(drop);
    assert_eq!(failure(denied), Failure::Access, "the mask limits Bob");
    bed.open(&bed.bob, file, OpenMode::READ).expect("Bob reads");
    let stored = fs.posix_acl(alice, file, PosixAclKind::Access).expect("an ACL");
    assert_eq!(stored, Some(acl_for_bob(6, 4)));
    set(alice, None).expect("removed");
    assert_eq!(failure(bed.open(&bed.bob, file, OpenMode::READ).map(drop)), Failure::Access);

    let dir = bed.subdir("dir");
    let default = acl_for_bob(7, 7);
    let root = &context(&bed.root);
    fs.set_posix_acl(root, dir, PosixAclKind::Default, Some(&default)).expect("set");
    let new = NewInode { mode: 0o640, umask: 0o077, ..NewInode::default() };
    let made = fs.create(alice, dir, b"file", &new).expect("a file");
    assert_eq!(made.mode, 0o640, "a default ACL takes the place of the umask");
    bed.open(&bed.bob, made.ino, OpenMode::READ).expect("Bob reads");
    let new = NewInode { kind: FileType::Directory, mode: 0o777, ..new };
    let made = fs.create(alice, dir, b"dir", &new).expect("a directory");
    let inherited = fs.posix_acl(alice, made.ino, PosixAclKind::Default).expect("an ACL");
    assert_eq!(inherited, Some(default));
}
