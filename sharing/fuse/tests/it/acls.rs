//! NFSv4 ACLs on a mount: the server enforces them, and programs read and set them as extended attributes.
//!
//! It takes /dev/fuse, root and setpriv(1).

use std::process::Command;
use std::time::Duration;

use posix::acl::nfs4::{ALLOW, DENY, mask};
use posix::acl::xattr::{
    NFS4_ACL, NFS4_ACL_XDR, decode_nfs4_acl, decode_nfs4_acl_xdr, encode_nfs4_acl,
    encode_nfs4_acl_xdr,
};
use posix::acl::{Ace, AceWho};
use posix::{Credentials, FileType, Ino, NewInode};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use vfs::{Context, DoorId, FileSystem as _};

use crate::client::{Client, arguments, run_test};
use crate::mounted_fixture::can_mount;
use crate::mounted_pool::MountedPool;

const ROOT: Context<'static> = Context::new(&Credentials::ROOT, DoorId::new(7));
const LIMIT: Duration = Duration::from_secs(20);
const ALICE: u32 = 4001;
const BOB: u32 = 4002;
const STAFF: u32 = 4050;

fn ace(who: AceWho, kind: u16, mask: u32) -> Ace {
    Ace { who, kind, flags: 0, mask, object: None }
}

fn add(place: &MountedPool, dir: Ino, name: &str, kind: FileType, acl: &[Ace]) -> Ino {
    let new = NewInode { kind, mode: 0o700, umask: 0, ..NewInode::default() };
    let ino = place.fs.create(&ROOT, dir, name.as_bytes(), &new).unwrap().ino;
    let mut entries = acl.to_vec();
    entries.extend(place.fs.nfs4_acl(&ROOT, ino).unwrap());
    place.fs.set_nfs4_acl(&ROOT, ino, &entries).unwrap();
    ino
}

/// Whether a command succeeds for a user with one more group, or none.
fn succeeds_as(place: &MountedPool, uid: u32, group: Option<u32>, script: &str) -> bool {
    let mut command = Command::new("setpriv");
    let groups = group.map_or("--clear-groups".to_owned(), |group| format!("--groups={group}"));
    let (user, gid) = (format!("--reuid={uid}"), format!("--regid={uid}"));
    command.args([&user, &gid, &groups, "sh", "-c", script]).current_dir(place.mountpoint());
    let status = Client::start(&mut command, &place.output()).wait(LIMIT);
    status.unwrap_or_else(|| panic!("{script} hangs")).success()
}

fn can_test() -> bool {
    can_mount()
        && rustix::process::geteuid().is_root()
        && Command::new("setpriv").arg("--version").output().is_ok()
}

fn create_pool(name: &str) -> MountedPool {
    MountedPool::create_with(name, &[("acltype", "nfsv4"), ("aclinherit", "passthrough")])
}

#[test]
fn mount_enforces_nfs4_acls() {
    if !can_test() {
        return;
    }
    let place = create_pool("acls");
    let search = ace(AceWho::User(ALICE.into()), ALLOW, mask::EXECUTE | mask::LIST_DIRECTORY);
    let staff = ace(AceWho::NamedGroup(STAFF.into()), ALLOW, mask::EXECUTE);
    let dir = add(&place, place.fs.root_ino(), "dir", FileType::Directory, &[search, staff]);
    let read = ace(AceWho::User(ALICE.into()), ALLOW, mask::READ_DATA);
    let append = ace(AceWho::NamedGroup(STAFF.into()), ALLOW, mask::WRITE_DATA | mask::APPEND_DATA);
    add(&place, dir, "file", FileType::File, &[read, append]);
    let denied = ace(AceWho::User(ALICE.into()), DENY, mask::READ_DATA);
    let everyone = ace(AceWho::Everyone, ALLOW, mask::READ_DATA);
    add(&place, place.fs.root_ino(), "open", FileType::File, &[denied, everyone]);
    let try_as = |uid, group, script: &str| succeeds_as(&place, uid, group, script);
    // root's requests put the names into the kernel's cache
    assert!(try_as(0, None, "cat dir/file open && ls dir"));
    assert!(try_as(ALICE, None, "ls dir && cat dir/file"));
    assert!(!try_as(ALICE, None, "echo x >> dir/file"));
    assert!(!try_as(ALICE, None, "touch dir/new"));
    assert!(!try_as(ALICE, None, "cat open"));
    assert!(try_as(BOB, None, "cat open"));
    assert!(!try_as(BOB, None, "cat dir/file"));
    assert!(!try_as(BOB, None, "stat dir/file"));
    assert!(try_as(BOB, Some(STAFF), "echo x >> dir/file && ! ls dir && ! cat dir/file"));
    assert!(try_as(ALICE, None, "test -r dir/file && ! test -w dir/file"));
    assert!(!try_as(ALICE, None, "chmod 777 dir/file"));
    // what root may do, root does
    assert!(try_as(0, None, "cat open && chmod 644 dir/file && rm -r dir"));
    place.export_and_verify();
}

#[test]
#[ignore = "a program that another test starts"]
fn client_uses_acl_attributes() {
    let Some(words) = arguments() else { return };
    let path = words[0].as_str();
    if words.len() > 1 {
        let found = rustix::fs::getxattr(path, NFS4_ACL, &mut [0; 64]);
        assert!(matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP)), "{found:?}");
        return;
    }
    let none = |_: &str, _: bool| None;
    let read = |name: &[u8]| {
        let mut bytes = vec![0; 4096];
        let length = rustix::fs::getxattr(path, name, &mut bytes[..]).unwrap();
        bytes.truncate(length);
        bytes
    };
    let mut acl = decode_nfs4_acl(&read(NFS4_ACL), &none).unwrap();
    assert_eq!(decode_nfs4_acl_xdr(&read(NFS4_ACL_XDR)).unwrap(), acl);
    acl.insert(0, ace(AceWho::User(ALICE.into()), ALLOW, mask::READ_DATA));
    let set =
        |name: &[u8], value: &[u8]| rustix::fs::setxattr(path, name, value, XattrFlags::empty());
    set(NFS4_ACL, &encode_nfs4_acl(&acl).unwrap()).unwrap();
    assert_eq!(decode_nfs4_acl_xdr(&read(NFS4_ACL_XDR)).unwrap(), acl);
    acl.insert(0, ace(AceWho::NamedGroup(STAFF.into()), DENY, mask::WRITE_DATA));
    set(NFS4_ACL_XDR, &encode_nfs4_acl_xdr(&acl, false).unwrap()).unwrap();
    assert_eq!(decode_nfs4_acl(&read(NFS4_ACL), &none).unwrap(), acl);
    set(NFS4_ACL, b"\0\0\0\x01").unwrap_err();
    assert_eq!(decode_nfs4_acl(&read(NFS4_ACL), &none).unwrap(), acl);
    let mut names = vec![0; 4096];
    let length = rustix::fs::listxattr(path, &mut names[..]).unwrap();
    let listed = String::from_utf8_lossy(&names[..length]).into_owned();
    assert!(listed.split('\0').any(|name| name == "system.nfs4_acl"), "{listed:?}");
}

#[test]
fn acls_are_extended_attributes_of_the_mount() {
    if !can_test() {
        return;
    }
    let place = create_pool("acl-attributes");
    let ino = add(&place, place.fs.root_ino(), "file", FileType::File, &[]);
    let path = place.mountpoint().join("file");
    let words = [path.to_str().unwrap()];
    run_test("acls::client_uses_acl_attributes", &words, LIMIT, &place.output());
    let kept = place.fs.nfs4_acl(&ROOT, ino).unwrap();
    let first: Vec<AceWho> = kept.iter().take(2).map(|ace| ace.who).collect();
    assert_eq!(first, [AceWho::NamedGroup(STAFF.into()), AceWho::User(ALICE.into())]);
    // a file system with POSIX ACLs has no such attributes
    place.export_and_verify();
    let place = MountedPool::create("no-acl-attributes");
    let new = NewInode::default();
    place.fs.create(&ROOT, place.fs.root_ino(), b"file", &new).unwrap();
    let path = place.mountpoint().join("file");
    let words = [path.to_str().unwrap(), "none"];
    run_test("acls::client_uses_acl_attributes", &words, LIMIT, &place.output());
    place.export_and_verify();
}
