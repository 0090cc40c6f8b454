//! A log has only the committed changes, and not all earlier ones: the state after a power
//! cut must be consistent all the same.

use ondisk::acl;
use posix::acl::{Ace, AceWho, nfs4};
use posix::{
    FileFlags, FlagChange, NewInode, RenameMode, RenameRequest, SetAttributes, WriteOffset,
    XattrMode,
};
use sim::DiskArray;
use units::ObjectId;

use super::replay_tests::{
    create_file, create_pool, credentials, cut_power, exists, import, root_object,
};
use super::{OpenFileSystem, Pool};
use crate::files::FileType;

fn filesystem(pool: &Pool) -> OpenFileSystem {
    pool.datasets().filesystem("tank").expect("file system")
}

/// Creates an unrelated file, and commits only it.
fn fsync_another_file(pool: &Pool) {
    let other = create_file(pool, "another", &NewInode::default());
    filesystem(pool).fsync(Some(other.get())).expect("fsync");
}

fn set_attributes(pool: &Pool, file: ObjectId, set: &SetAttributes) {
    filesystem(pool).writer().set_attributes(&credentials(), file, set).expect("set");
}

fn change_flags(pool: &Pool, file: ObjectId, change: FlagChange) {
    set_attributes(pool, file, &SetAttributes { flags: Some(change), ..SetAttributes::default() });
}

fn read_content(pool: &Pool, name: &str) -> Vec<u8> {
    let file = filesystem(pool).reader().find(name.as_bytes()).expect("a look").expect("a file");
    let mut bytes = vec![0; usize::try_from(file.stat().size).expect("a small file")];
    file.content().read(0, &mut bytes).expect("read");
    bytes
}

fn rename(pool: &Pool, from: &str, (to_dir, to): (ObjectId, &str), kind: RenameMode) {
    let (fs, from_dir) = (filesystem(pool), root_object(&filesystem(pool)));
    let request = RenameRequest {
        from_dir,
        from_name: from.as_bytes(),
        to_dir,
        to_name: to.as_bytes(),
        mode: kind,
    };
    fs.rename(&credentials(), &request).expect("rename");
}

/// The failed replays after a power cut.
fn replay_after_cut(storm: &DiskArray, pool: Pool) -> (Pool, Vec<String>) {
    let storm = cut_power(storm);
    drop(pool);
    let pool = import(&storm.devices());
    let broken = pool.datasets().take_replay_failures();
    (pool, broken.into_iter().map(|log| log.to_string()).collect())
}

#[test]
fn replay_ignores_file_flags_set_later() {
    let storm = DiskArray::new(&[96 << 20]);
    let pool = create_pool(&storm);
    let [gone, moved, linked, dir] = ["gone", "moved", "linked", "dir"].map(|name| {
        let kind = if name == "dir" { FileType::Directory } else { FileType::File };
        let file = create_file(&pool, name, &NewInode { kind, ..NewInode::default() });
        change_flags(&pool, file, FlagChange::set(FileFlags::IMMUTABLE));
        file
    });
    pool.sync().expect("group");
    for file in [gone, moved, linked, dir] {
        change_flags(&pool, file, FlagChange::clear(FileFlags::IMMUTABLE));
    }
    let (by, top) = (credentials(), root_object(&filesystem(&pool)));
    filesystem(&pool).unlink(&by, top, b"gone").expect("unlink");
    filesystem(&pool).link(&by, linked, top, b"second").expect("link");
    rename(&pool, "moved", (dir, "inside"), RenameMode::Replace);
    fsync_another_file(&pool);
    let (pool, broken) = replay_after_cut(&storm, pool);
    assert_eq!(broken, Vec::<String>::new());
    assert!(exists(&pool, "another") && exists(&pool, "second") && !exists(&pool, "gone"));
    assert!(!exists(&pool, "moved"));
}

#[test]
fn what_projects_forbade_before_is_done_again() {
    let storm = DiskArray::new(&[96 << 20]);
    let pool = create_pool(&storm);
    let dir =
        create_file(&pool, "dir", &NewInode { kind: FileType::Directory, ..NewInode::default() });
    let inherits = Some(FlagChange::set(FileFlags::PROJECT_INHERIT));
    set_attributes(
        &pool,
        dir,
        &SetAttributes { project_id: Some(7), flags: inherits, ..SetAttributes::default() },
    );
    let file = create_file(&pool, "file", &NewInode::default());
    pool.sync().expect("group");
    set_attributes(&pool, file, &SetAttributes { project_id: Some(7), ..SetAttributes::default() });
    rename(&pool, "file", (dir, "file"), RenameMode::Replace);
    fsync_another_file(&pool);
    let (pool, broken) = replay_after_cut(&storm, pool);
    assert_eq!(broken, Vec::<String>::new());
    assert!(exists(&pool, "another"));
}

/// A POSIX ACL: tags, permissions, numbers.
fn posix_acl(rows: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry = |&(tag, permissions, id): &_| posix::acl::PosixAclEntry { tag, permissions, id };
    acl::encode_posix(&rows.iter().map(entry).collect::<Vec<_>>())
}

const NO_ID: u32 = u32::MAX;

/// A pool whose files have POSIX ACLs, and whose log exists.
fn pool_with_acls(storm: &DiskArray, xattr: &str) -> Pool {
    pool_with_properties(storm, &[("acltype", "posix"), ("xattr", xattr)])
}

/// A pool with these properties, whose log exists.
fn pool_with_properties(storm: &DiskArray, properties: &[(&str, &str)]) -> Pool {
    let pool = create_pool(storm);
    for (property, value) in properties {
        pool.properties().set("tank", property, value).expect("set");
    }
    pool.export().expect("export");
    drop(pool);
    let pool = import(&storm.devices());
    // the old log is freed with a txg, and the first commit waits for the next
    for name in ["one", "two"] {
        create_file(&pool, name, &NewInode::default());
        filesystem(&pool).fsync(None).expect("fsync");
        pool.sync().expect("group");
    }
    pool
}

#[test]
fn new_file_replays_with_its_permissions() {
    let storm = DiskArray::new(&[96 << 20]);
    let pool = pool_with_acls(&storm, "sa");
    let top = root_object(&filesystem(&pool));
    let rows = [(1, 7, NO_ID), (2, 7, 1001), (4, 0, NO_ID), (0x10, 7, NO_ID), (0x20, 0, NO_ID)];
    let default = posix_acl(&rows);
    let name = b"system.posix_acl_default";
    filesystem(&pool)
        .set_xattr(&credentials(), top, name, Some(&default), XattrMode::Any)
        .expect("ACL");
    pool.sync().expect("group");
    create_file(&pool, "new", &NewInode { mode: 0o660, ..NewInode::default() });
    fsync_another_file(&pool);
    let (pool, broken) = replay_after_cut(&storm, pool);
    assert_eq!(broken, Vec::<String>::new());
    let new = filesystem(&pool).reader().find(b"new").expect("a look").expect("a file");
    assert_eq!(new.stat().mode & 0o777, 0o660);
    let access = new.xattr(b"system.posix_acl_access").expect("ACL");
    assert!(access.is_some(), "its group may write now");
}

#[test]
fn mode_of_an_acl_is_logged_with_it() {
    let minimal = [(1, 6, NO_ID), (4, 0, NO_ID), (0x20, 0, NO_ID)];
    let full = [(1, 6, NO_ID), (2, 6, 1001), (4, 0, NO_ID), (0x10, 6, NO_ID), (0x20, 0, NO_ID)];
    for (kept, rows, mode) in [
        ("sa", &minimal[..], 0o600),
        ("sa", &full, 0o660),
        ("dir", &minimal, 0o600),
        ("dir", &full, 0o660),
    ] {
        let storm = DiskArray::new(&[96 << 20]);
        let pool = pool_with_acls(&storm, kept);
        let file = create_file(&pool, "file", &NewInode::default());
        pool.sync().expect("group");
        let name = b"system.posix_acl_access";
        filesystem(&pool)
            .set_xattr(&credentials(), file, name, Some(&posix_acl(rows)), XattrMode::Any)
            .expect("ACL");
        filesystem(&pool).fsync(Some(file.get())).expect("fsync");
        let (pool, broken) = replay_after_cut(&storm, pool);
        assert_eq!(broken, Vec::<String>::new());
        let found = filesystem(&pool).reader().find(b"file").expect("a look").expect("a file");
        assert_eq!(found.stat().mode & 0o777, mode, "xattr={kept}, {rows:?}");
        let access = found.xattr(name).expect("ACL");
        assert_eq!(access.is_some(), rows.len() > 3);
    }
}

#[test]
fn rename_over_a_file_commits_its_content() {
    let storm = DiskArray::new(&[96 << 20]);
    for kind in [RenameMode::Replace, RenameMode::Exchange, RenameMode::Whiteout] {
        let pool = create_pool(&storm);
        let old = create_file(&pool, "settings", &NewInode::default());
        filesystem(&pool).write(&credentials(), old, WriteOffset::At(0), b"old").expect("write");
        pool.sync().expect("group");
        let new = create_file(&pool, "settings.new", &NewInode::default());
        filesystem(&pool).write(&credentials(), new, WriteOffset::At(0), b"new").expect("write");
        let top = root_object(&filesystem(&pool));
        rename(&pool, "settings.new", (top, "settings"), kind);
        fsync_another_file(&pool);
        let (pool, broken) = replay_after_cut(&storm, pool);
        assert_eq!(broken, Vec::<String>::new());
        assert_eq!(read_content(&pool, "settings"), b"new", "{kind:?}");
    }
}

#[test]
fn inherited_nfs4_acl_survives_replay() {
    let storm = DiskArray::new(&[96 << 20]);
    let pool = pool_with_properties(&storm, &[("acltype", "nfsv4"), ("aclmode", "passthrough")]);
    let top = root_object(&filesystem(&pool));
    let (kind, flags, mask) = (nfs4::ALLOW, nfs4::flag::FILE_INHERIT, nfs4::mask::READ_DATA);
    let entry = Ace { who: AceWho::User(1001), kind, flags, mask, object: None };
    let mut acl = nfs4::acl_from_mode(0o755, true);
    acl.insert(0, entry);
    filesystem(&pool).set_nfs4_acl(&credentials(), top, &acl).expect("ACL");
    pool.sync().expect("txg");
    let file = create_file(&pool, "new", &NewInode { mode: 0o640, ..NewInode::default() });
    let chmod = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    set_attributes(&pool, file, &chmod);
    filesystem(&pool).fsync(Some(file.get())).expect("fsync");
    let file_acl = |pool: &Pool| {
        let file = filesystem(pool).reader().find(b"new").expect("a look").expect("a file");
        (file.stat().mode & 0o777, file.nfs4_acl().expect("ACL"))
    };
    let before = file_acl(&pool);
    let inherits = |ace: &Ace| ace.who == AceWho::User(1001) && ace.mask == mask;
    assert!(before.0 == 0o600 && before.1.iter().any(inherits), "{before:?}");
    let (pool, broken) = replay_after_cut(&storm, pool);
    assert_eq!(broken, Vec::<String>::new());
    assert_eq!(file_acl(&pool), before);
}
