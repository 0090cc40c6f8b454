//! The conformance checks on a pool in memory, and what only a pool can show.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use engine::pool::{Environment, MemoryBudget, NewPool, NewVdev, Pool, VdevLayout, VdevRole};
use posix::access::OpenMode;
use posix::acl::nfs4::{ALLOW, flag, mask};
use posix::acl::{Ace, AceWho};
use posix::{Credentials, FileType, NewInode, SetAttributes, Time};
use vfs::{Context, DoorId, Error, FileSystem, PoolFileSystem, Reason};

use crate::conformance;

fn environment() -> Environment {
    let state = AtomicU64::new(0x9e37_79b9);
    Environment {
        random: Arc::new(move |bytes| {
            for byte in bytes {
                let next = state.load(Ordering::Relaxed).wrapping_mul(0x5851_f42d_4c95_7f2d);
                state.store(next.wrapping_add(0x1405), Ordering::Relaxed);
                *byte = next.to_be_bytes()[0];
            }
        }),
        now: Arc::new(|| (1_700_000_000, 0)),
        workers: 2,
        max_dirty: 64 << 20,
        cache: MemoryBudget::default(),
        host: (0x1234, "here".to_owned()),
    }
}

/// A file system on a pool in memory, whose clock advances at each reading.
fn open_filesystem(properties: &[(&str, &str)]) -> (Pool, PoolFileSystem) {
    let drive: Arc<dyn device::Device> = Arc::new(device::MemoryDevice::zeroed("drive", 256 << 20));
    let properties =
        properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let new = NewPool {
        name: "tank".to_owned(),
        vdevs: vec![NewVdev {
            layout: VdevLayout::Single,
            drives: vec!["drive".into()],
            role: VdevRole::Data,
        }],
        ashift: None,
        properties: properties.collect(),
        force: false,
    };
    let pool = engine::pool::create_on_devices(&new, &[drive], &environment()).expect("a pool");
    let seconds = AtomicI64::new(1_700_000_000);
    let now = move || Time { seconds: seconds.fetch_add(1, Ordering::Relaxed), nanoseconds: 7 };
    let fs = PoolFileSystem::open(&pool, "tank", now).expect("a file system");
    (pool, fs)
}

#[test]
fn pool_conforms() {
    let (pool, fs) = open_filesystem(&[("acltype", "posix")]);
    conformance::run_all(&fs);
    pool.sync().expect("a txg");
}

#[test]
fn nfs4_acl_is_enforced_and_inherited() {
    let (pool, fs) = open_filesystem(&[("acltype", "nfsv4"), ("aclinherit", "passthrough")]);
    let (root, bob) = (Credentials::ROOT, Credentials::new(1002, 202));
    let (root, bob) = (&Context::new(&root, DoorId::new(7)), &Context::new(&bob, DoorId::new(7)));
    let new = NewInode { kind: FileType::Directory, mode: 0o700, ..NewInode::default() };
    let dir = fs.create(root, fs.root_ino(), b"dir", &new).expect("a directory").ino;
    let denied = fs.open_dir(bob, dir).map(drop);
    assert!(matches!(denied, Err(Error::AccessDenied)));
    let flags = flag::FILE_INHERIT | flag::DIRECTORY_INHERIT;
    let allowed = mask::LIST_DIRECTORY | mask::EXECUTE | mask::ADD_FILE;
    let entry = Ace { who: AceWho::User(1002), kind: ALLOW, flags, mask: allowed, object: None };
    let mut acl = fs.nfs4_acl(root, dir).expect("the ACL of the mode");
    acl.insert(0, entry);
    assert!(matches!(
        fs.set_nfs4_acl(bob, dir, &acl),
        Err(Error::Refused { reason: Reason::NotPermitted })
    ));
    fs.set_nfs4_acl(root, dir, &acl).expect("set");
    fs.open_dir(bob, dir).expect("Bob lists");
    let made = fs.create(root, dir, b"file", &NewInode { mode: 0o600, ..NewInode::default() });
    let file = made.expect("a file").ino;
    fs.open(bob, file, OpenMode::READ_WRITE).expect("Bob inherits");
    assert_eq!(fs.attributes(root, file).expect("attributes").mode, 0o600);
    // a chmod removes the entry (aclmode=discard); a chown does not
    let chown = SetAttributes { uid: Some(5), ..SetAttributes::default() };
    fs.set_attributes(root, file, &chown).expect("chown");
    fs.open(bob, file, OpenMode::READ_WRITE).expect("Bob keeps it");
    let chmod = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    fs.set_attributes(root, file, &chmod).expect("chmod");
    let denied = fs.open(bob, file, OpenMode::READ).map(drop);
    assert!(matches!(denied, Err(Error::AccessDenied)));
    pool.sync().expect("a txg");
}

#[test]
fn door_that_checked_is_not_checked_again() {
    let (_pool, fs) = open_filesystem(&[]);
    let (root, bob) = (Credentials::ROOT, Credentials::new(1002, 202));
    let root = Context::new(&root, DoorId::new(7));
    let new = NewInode { mode: 0o600, umask: 0, ..NewInode::default() };
    let file = fs.create(&root, fs.root_ino(), b"file", &new).expect("a file").ino;
    let bob = Context::new(&bob, DoorId::new(7));
    assert!(matches!(fs.open(&bob, file, OpenMode::READ).map(drop), Err(Error::AccessDenied)));
    fs.open(&bob.checked_by_door(), file, OpenMode::READ).expect("an open file");
}

#[test]
fn owners_use_their_files_over_nfs3() {
    let (_pool, fs) = open_filesystem(&[]);
    let (bob, eve) = (Credentials::new(1002, 202), Credentials::new(1003, 203));
    let root = Context::new(&Credentials::ROOT, DoorId::new(7));
    let dir = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    fs.set_attributes(&root, fs.root_ino(), &dir).expect("chmod");
    let door = |credentials| Context::new(credentials, DoorId::new(7));
    let new = NewInode { mode: 0o001, umask: 0, ..NewInode::default() };
    let file = fs.create(&door(&bob), fs.root_ino(), b"file", &new).expect("a file").ino;
    let denied = fs.open(&door(&bob), file, OpenMode::READ_WRITE).map(drop);
    assert!(matches!(denied, Err(Error::AccessDenied)));
    let (bob, eve) = (door(&bob).with_owner_override(), door(&eve).with_owner_override());
    fs.open(&bob, file, OpenMode::READ_WRITE).expect("the owner's file");
    let size = SetAttributes { size: Some(5), ..SetAttributes::default() };
    fs.set_attributes(&bob, file, &size).expect("the owner's file");
    // a client reads a program to execute it
    fs.open(&eve, file, OpenMode::READ).expect("a program");
    let denied = fs.open(&eve, file, OpenMode::READ_WRITE).map(drop);
    assert!(matches!(denied, Err(Error::AccessDenied)));
    assert!(matches!(fs.set_attributes(&eve, file, &size), Err(Error::AccessDenied)));
}
