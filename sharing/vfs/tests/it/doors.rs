//! Interaction of the doors into one file system: changes, leases and open files.

use std::collections::HashSet;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use posix::access::OpenMode;
use posix::{
    Credentials, FileType, Ino, NewInode, RenameMode, RenameRequest, SetAttributes, WriteOffset,
    XattrMode,
};
use vfs::{
    Access, ByteLock, ChangeKind, Context, CreateMode, DoorId, DynFileSystem, Error,
    FileSystem as _, LeaseEvent, LeaseRights, LockKind, LockOwner, PoolFileSystem, Reason,
    SharedFileSystem as _, Stability, Subscription, Written, change_version,
};

use crate::pool::TestPool;

const ONE: Context<'static> = Context::new(&Credentials::ROOT, DoorId::new(1));
const OTHER: Context<'static> = Context::new(&Credentials::ROOT, DoorId::new(2));

/// A request that a client makes.
type Request<'a> = dyn Fn(&Context<'_>) -> vfs::Result<()> + 'a;

fn create(fs: &PoolFileSystem, context: &Context<'_>, name: &[u8]) -> Ino {
    let new = NewInode { kind: FileType::File, mode: 0o644, ..NewInode::default() };
    fs.create(context, fs.root_ino(), name, &new).expect("a new file").ino
}

fn write(fs: &PoolFileSystem, context: &Context<'_>, ino: Ino) -> vfs::Result<()> {
    let file = fs.open(context, ino, OpenMode::READ_WRITE)?;
    fs.write(context, &file, WriteOffset::End, b"more")
}

fn rename(fs: &PoolFileSystem, context: &Context<'_>, from: &[u8], to: &[u8], mode: RenameMode) {
    let (from_dir, to_dir) = (fs.root_ino(), fs.root_ino());
    let request = RenameRequest { from_dir, from_name: from, to_dir, to_name: to, mode };
    fs.rename(context, &request).unwrap();
}

/// The waiting changes, without their versions; checks those of existing files.
fn taken(fs: &PoolFileSystem, subscription: &Subscription) -> Vec<(Ino, ChangeKind)> {
    let batch = subscription.take_waiting();
    assert!(!batch.is_overflow && batch.changes.iter().all(|change| change.door == ONE.door));
    if let Some(last) = batch.changes.last()
        && let Ok(found) = fs.attributes(&ONE, last.ino)
    {
        assert_eq!(last.version, change_version(found.ctime));
    }
    batch.changes.into_iter().map(|change| (change.ino, change.kind)).collect()
}

#[test]
fn every_change_reaches_other_doors() {
    let place = TestPool::create();
    let fs = place.open("tank");
    let (own, heard) = (
        fs.changes().subscribe(ONE.door, 100, || {}),
        fs.changes().subscribe(OTHER.door, 100, || {}),
    );
    let (root, entry) = (fs.root_ino(), |name: &[u8]| name.to_vec());
    let file = create(&fs, &ONE, b"a");
    assert_eq!(taken(&fs, &heard), [(root, ChangeKind::EntryAdded { name: entry(b"a") })]);
    write(&fs, &ONE, file).unwrap();
    assert_eq!(taken(&fs, &heard), [(file, ChangeKind::Data)]);
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    fs.set_attributes(&ONE, file, &set).unwrap();
    fs.set_xattr(&ONE, file, b"user.x", Some(b"v"), XattrMode::Any).unwrap();
    assert_eq!(taken(&fs, &heard), [(file, ChangeKind::Attributes)]);
    let set = SetAttributes { size: Some(2), ..SetAttributes::default() };
    fs.set_attributes(&ONE, file, &set).unwrap();
    assert_eq!(taken(&fs, &heard), [(file, ChangeKind::Data)]);
    fs.link(&ONE, file, root, b"b").unwrap();
    let links = (file, ChangeKind::Attributes);
    let added = (root, ChangeKind::EntryAdded { name: entry(b"b") });
    assert_eq!(taken(&fs, &heard), [added, links.clone()]);
    rename(&fs, &ONE, b"a", b"c", RenameMode::Replace);
    let (name, to_name, to_dir) = (entry(b"a"), entry(b"c"), root);
    let moved = (root, ChangeKind::EntryRenamed { name, to_dir, to_name });
    assert_eq!(taken(&fs, &heard), [moved, links.clone()]);
    fs.unlink(&ONE, root, b"b").unwrap();
    let removed = (root, ChangeKind::EntryRemoved { name: entry(b"b") });
    assert_eq!(taken(&fs, &heard), [removed, links]);
    assert!(own.take_waiting().changes.is_empty());
    place.pool.export().unwrap();
}

#[test]
fn versions_are_unique_over_a_reimport() {
    let place = TestPool::create();
    let fs = place.open("tank");
    let file = create(&fs, &ONE, b"a");
    let mut seen = HashSet::new();
    let mut check = |fs: &PoolFileSystem| {
        let version = change_version(fs.attributes(&ONE, file).unwrap().ctime);
        assert!(seen.insert(version), "{version} was given before");
        // it does not change by itself
        assert_eq!(version, change_version(fs.attributes(&ONE, file).unwrap().ctime));
        version
    };
    let mut last = check(&fs);
    // the clock does not advance
    for _ in 0..100 {
        write(&fs, &ONE, file).unwrap();
        let now = check(&fs);
        assert!(now > last);
        last = now;
    }
    drop(fs);
    let place = place.reimport();
    let fs = place.open("tank");
    let stored = change_version(fs.attributes(&ONE, file).unwrap().ctime);
    assert_eq!(stored, last);
    place.set_clock(1_700_000_001);
    write(&fs, &ONE, file).unwrap();
    assert!(check(&fs) > last);
    place.pool.export().unwrap();
}

#[test]
fn conflicting_requests_recall_leases() {
    let place = TestPool::create();
    let fs = place.open("tank");
    let (sender, events) = mpsc::channel();
    let callback: vfs::LeaseCallback = Arc::new(move |event| sender.send(event).unwrap());
    let all = LeaseRights::READ.union(LeaseRights::WRITE).union(LeaseRights::HANDLE);
    let past = Context { deadline: Some(Instant::now()), ..OTHER };
    let file = create(&fs, &ONE, b"a");
    let (dir, name) = (fs.root_ino(), b"a");
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    let requests: [(LeaseRights, &Request<'_>); 5] = [
        (LeaseRights::READ.union(LeaseRights::HANDLE), &|context| {
            fs.open(context, file, OpenMode::READ).map(drop)
        }),
        (LeaseRights::HANDLE, &|context| write(&fs, context, file)),
        (LeaseRights::HANDLE, &|context| fs.set_attributes(context, file, &set).map(drop)),
        (LeaseRights::NONE, &|context| fs.link(context, file, dir, b"b").map(drop)),
        (LeaseRights::NONE, &|context| fs.unlink(context, dir, name)),
    ];
    for (keep, request) in requests {
        let lease = fs.grant_lease(&ONE, file, all, Arc::clone(&callback)).expect("a lease");
        // the holder itself recalls nothing
        write(&fs, &ONE, file).unwrap();
        assert!(events.try_recv().is_err());
        let pending = request(&past);
        assert!(matches!(pending, Err(Error::RecallPending(_))), "{pending:?}");
        let event = LeaseEvent::Recall { ino: file, lease, keep };
        assert_eq!(events.try_recv(), Ok(event));
        fs.leases().downgrade(file, lease, keep);
        request(&OTHER).unwrap();
        assert_eq!(fs.leases().rights(file, lease), keep);
        fs.leases().release(file, lease);
    }
    place.pool.export().unwrap();
}

#[test]
fn leases_depend_on_open_files() {
    let place = TestPool::create();
    let fs = place.open("tank");
    let file = create(&fs, &ONE, b"a");
    let grant = |rights| {
        let lease = fs.grant_lease(&ONE, file, rights, Arc::new(|_| {}));
        lease.inspect(|lease| fs.leases().release(file, *lease)).is_some()
    };
    let reader = fs.open(&OTHER, file, OpenMode::READ).unwrap();
    assert!(grant(LeaseRights::READ) && !grant(LeaseRights::WRITE));
    let writer = fs.open(&OTHER, file, OpenMode::READ_WRITE).unwrap();
    assert!(!grant(LeaseRights::READ));
    drop((reader, writer));
    assert!(grant(LeaseRights::READ) && grant(LeaseRights::WRITE));
    place.pool.export().unwrap();
}

#[test]
fn denied_opens_fail_at_every_door() {
    let place = TestPool::create();
    let fs = place.open("tank");
    let file = create(&fs, &ONE, b"a");
    let denying = Context { deny: Access::WRITE, ..ONE };
    let open = fs.open(&denying, file, OpenMode::READ).unwrap();
    let refused = fs.open(&OTHER, file, OpenMode::READ_WRITE).map(drop);
    assert!(matches!(refused, Err(Error::ShareConflict(_))), "{refused:?}");
    let reader = fs.open(&OTHER, file, OpenMode::READ).unwrap();
    drop(open);
    let writer = fs.open(&OTHER, file, OpenMode::READ_WRITE).unwrap();
    assert!(fs.open(&denying, file, OpenMode::READ).is_err());
    drop((reader, writer));
    assert!(fs.open(&denying, file, OpenMode::READ).is_ok());
    place.pool.export().unwrap();
}

#[test]
fn gone_clients_hold_nothing() {
    let place = TestPool::create();
    let fs = place.open("tank");
    let file = create(&fs, &ONE, b"a");
    let client = Context { client: 7, deny: Access::WRITE, ..ONE };
    let open = fs.open(&client, file, OpenMode::READ).unwrap();
    assert!(fs.grant_lease(&client, file, LeaseRights::READ, Arc::new(|_| {})).is_some());
    let owner = LockOwner { client: client.client_id(), owner: 1 };
    let lock = ByteLock { owner, range: 0..10, kind: LockKind::Exclusive };
    fs.locks().try_lock(file, &lock).unwrap();
    let other = ByteLock { owner: LockOwner { owner: 2, ..owner }, ..lock.clone() };
    assert_eq!(fs.locks().find_conflict(file, &other), Some(lock));
    fs.release_client(client.client_id());
    assert_eq!(fs.locks().find_conflict(file, &other), None);
    assert!(fs.leases().is_empty());
    assert!(write(&fs, &OTHER, file).is_ok());
    drop(open);
    place.pool.export().unwrap();
}

#[test]
fn stable_writes_survive_and_verifiers_change() {
    let place = TestPool::create();
    let fs = place.open("tank");
    let ino = create(&fs, &ONE, b"a");
    let file = fs.open(&ONE, ino, OpenMode::READ_WRITE).unwrap();
    let write = |wanted| fs.write_with(&ONE, &file, WriteOffset::End, b"12345", wanted).unwrap();
    let (count, unstable) = (5, Stability::Unstable);
    let verifier = fs.boot_verifier();
    assert_eq!(write(unstable), Written { count, stability: unstable, verifier });
    assert_eq!(fs.commit_range(&ONE, ino, 0..5).unwrap(), verifier);
    let stability = Stability::Stable;
    assert_eq!(write(stability), Written { count, stability, verifier });
    place.pool.properties().set("tank", "sync", "always").unwrap();
    assert_eq!(write(unstable), Written { count, stability, verifier });
    drop(file);
    drop(fs);
    let place = place.reimport();
    let fs = place.open("tank");
    assert_ne!(fs.boot_verifier(), verifier);
    assert_eq!(fs.attributes(&ONE, ino).unwrap().size, 15);
    let verifier = fs.boot_verifier();
    place.pool.snapshots().create(&["tank@now".to_owned()]).unwrap();
    let rollback = || place.pool.snapshots().rollback("tank").unwrap();
    let replaced = fs.replace_content(ONE.door, Duration::from_secs(20), rollback);
    assert!(matches!(replaced, Ok(((), Ok(true)))));
    assert_ne!(fs.boot_verifier(), verifier);
    place.pool.export().unwrap();
}

#[test]
fn servers_hold_file_systems_as_trait_objects() {
    let place = TestPool::create();
    let fs: Arc<DynFileSystem> = Arc::new(place.open("tank"));
    let new = NewInode { mode: 0o644, ..NewInode::default() };
    let ino = fs.create(&ONE, fs.root().unwrap(), b"a", &new).unwrap().ino;
    let handle = fs.handle(ino).unwrap();
    assert_eq!((handle.pool_guid, handle.filesystem_guid), (fs.pool_guid(), fs.guid()));
    assert_eq!(fs.resolve_handle(&handle).unwrap(), ino);
    let open = fs.open(&ONE, ino, OpenMode::READ_WRITE).unwrap();
    fs.write_with(&ONE, &open, WriteOffset::At(0), b"x", Stability::Stable).unwrap();
    let heard = fs.changes().subscribe(OTHER.door, 10, || {});
    fs.unlink(&ONE, fs.root().unwrap(), b"a").unwrap();
    assert!(!heard.take_waiting().changes.is_empty());
    place.pool.export().unwrap();
}

#[test]
fn guarded_changes_need_the_current_ctime() {
    let place = TestPool::create();
    let fs = place.open("tank");
    let ino = create(&fs, &ONE, b"a");
    let seen = fs.attributes(&ONE, ino).unwrap().ctime;
    write(&fs, &OTHER, ino).unwrap();
    for set in [
        SetAttributes { size: Some(1), ..SetAttributes::default() },
        SetAttributes { mode: Some(0o600), ..SetAttributes::default() },
        SetAttributes { size: Some(1), mode: Some(0o600), ..SetAttributes::default() },
        SetAttributes::default(),
    ] {
        let stale = SetAttributes { if_ctime: Some(seen), ..set };
        let refused = fs.set_attributes(&ONE, ino, &stale);
        let changed = Error::Refused { reason: Reason::ChangedMeanwhile };
        assert_eq!(refused.unwrap_err().to_string(), changed.to_string());
        let before = fs.attributes(&ONE, ino).unwrap();
        assert_eq!((before.size, before.mode), (4, 0o644));
    }
    let current = fs.attributes(&ONE, ino).unwrap().ctime;
    let (size, mode) = (Some(1), Some(0o600));
    let set = SetAttributes { size, mode, if_ctime: Some(current), ..SetAttributes::default() };
    let after = fs.set_attributes(&ONE, ino, &set).unwrap();
    assert_eq!((after.size, after.mode), (1, 0o600));
    assert!(fs.set_attributes(&ONE, ino, &set).is_err());
    place.pool.export().unwrap();
}

#[test]
fn verified_creates_can_be_repeated() {
    let place = TestPool::create();
    let fs = place.open("tank");
    let (root, new) = (fs.root_ino(), NewInode { mode: 0, ..NewInode::default() });
    let create = |fs: &PoolFileSystem, verifier| {
        let (create, open) = (CreateMode::Verified(verifier), OpenMode::READ_WRITE);
        fs.create_and_open(&ONE, (root, b"a"), &new, create, open).map(|made| made.attributes.ino)
    };
    let first = create(&fs, [255, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(create(&fs, [255, 2, 3, 4, 5, 6, 7, 8]).unwrap(), first);
    let exists = |result| matches!(result, Err(Error::Refused { reason: Reason::Exists }));
    assert!(exists(create(&fs, [255, 2, 3, 4, 5, 6, 7, 9])));
    // the verifier outlasts a restart
    drop(fs);
    let place = place.reimport();
    let fs = place.open("tank");
    assert_eq!(create(&fs, [255, 2, 3, 4, 5, 6, 7, 8]).unwrap(), first);
    // the client sets the times afterwards, and the request is a new one then
    let now = Some(posix::SetTime::Now);
    let set = SetAttributes { atime: now, mtime: now, ..SetAttributes::default() };
    fs.set_attributes(&ONE, first, &set).unwrap();
    assert!(exists(create(&fs, [255, 2, 3, 4, 5, 6, 7, 8])));
    place.pool.export().unwrap();
}

#[test]
fn open_files_change_their_share_mode() {
    let place = TestPool::create();
    let fs = place.open("tank");
    let ino = create(&fs, &ONE, b"a");
    let mut open = fs.open(&ONE, ino, OpenMode::READ).unwrap();
    let other = fs.open(&OTHER, ino, OpenMode::READ_WRITE).unwrap();
    let denying = Context { deny: Access::WRITE, ..ONE };
    let refused = fs.change_open(&denying, &mut open, OpenMode::READ);
    assert!(matches!(refused, Err(Error::ShareConflict(_))), "{refused:?}");
    drop(other);
    fs.change_open(&denying, &mut open, OpenMode::READ_WRITE).unwrap();
    fs.write(&ONE, &open, WriteOffset::End, b"more").unwrap();
    assert!(fs.open(&OTHER, ino, OpenMode::READ_WRITE).is_err());
    fs.change_open(&ONE, &mut open, OpenMode::READ).unwrap();
    assert!(fs.write(&ONE, &open, WriteOffset::End, b"more").is_err());
    let other = fs.open(&OTHER, ino, OpenMode::READ_WRITE).unwrap();
    fs.release_door(ONE.door);
    let exclusive = Context { deny: Access::READ, ..OTHER };
    drop(other);
    assert!(fs.open(&exclusive, ino, OpenMode::READ).is_ok());
    place.pool.export().unwrap();
}

#[test]
fn open_files_follow_a_rollback() {
    let place = TestPool::create();
    let fs = place.open("tank");
    let stays = create(&fs, &ONE, b"stays");
    let open = fs.open(&ONE, stays, OpenMode::READ_WRITE).unwrap();
    fs.write(&ONE, &open, WriteOffset::At(0), b"before").unwrap();
    place.pool.snapshots().create(&["tank@now".to_owned()]).unwrap();
    fs.write(&ONE, &open, WriteOffset::At(0), b"behind").unwrap();
    let new = create(&fs, &ONE, b"new");
    let (gone, dir) = (fs.open(&ONE, new, OpenMode::READ_WRITE).unwrap(), fs.root_ino());
    let heard = fs.changes().subscribe(OTHER.door, 100, || {});
    let (sender, events) = mpsc::channel();
    let callback: vfs::LeaseCallback = Arc::new(move |event| sender.send(event).unwrap());
    let lease = fs.grant_lease(&ONE, stays, LeaseRights::READ, callback).unwrap();
    let names = |open| {
        let mut names = Vec::new();
        let mut visit = |entry: &vfs::DirEntry| {
            names.push(entry.name.clone());
            true
        };
        fs.read_dir(&ONE, open, 2, &mut visit).unwrap();
        names
    };
    let listing = fs.open_dir(&ONE, dir).unwrap();
    assert_eq!(names(&listing).len(), 2);
    let rollback = || place.pool.snapshots().rollback("tank").unwrap();
    let replaced = fs.replace_content(ONE.door, Duration::from_secs(20), rollback);
    assert!(matches!(replaced, Ok(((), Ok(true)))));
    assert!(heard.take_waiting().is_overflow);
    let keep = LeaseRights::NONE;
    assert_eq!(events.try_recv(), Ok(LeaseEvent::Revoked { ino: stays, lease, keep }));
    let mut bytes = [0; 10];
    let from = vfs::FileOffset { file: &open, offset: 0 };
    assert_eq!(fs.read(&ONE, from, &mut bytes).unwrap(), 6);
    assert_eq!(&bytes[..6], b"before");
    fs.write(&ONE, &open, WriteOffset::At(0), b"after!").unwrap();
    let from = vfs::FileOffset { file: &gone, offset: 0 };
    assert!(matches!(fs.read(&ONE, from, &mut bytes), Err(Error::Stale)));
    let refused = fs.write(&ONE, &gone, WriteOffset::At(0), b"lost");
    assert!(matches!(refused, Err(Error::Stale)), "{refused:?}");
    assert_eq!(names(&listing), [b"stays".to_vec()]);
    place.pool.export().unwrap();
}
