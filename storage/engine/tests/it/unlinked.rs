//! Files that have no name any more, or none yet: what is left of them, and what logs promise of
//! them.

use engine::files::Reason;
use engine::pool::{NewDataset, OpenFileSystem, Pool, Shape};
use posix::{NewInode, XattrMode};
use units::ObjectId;

use crate::test_pool::{
    TempDir, check_pool, copy_after_cut, credentials, environment, new_pool, write_file,
};

fn create_pool(folder: &TempDir) -> Pool {
    engine::pool::create(&new_pool(folder, Shape::Single, 1), &environment()).unwrap()
}

fn import(folder: &TempDir) -> Pool {
    engine::pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap()
}

fn root_object(live: &OpenFileSystem) -> ObjectId {
    ObjectId::new(live.reader().root_object())
}

/// A file that was removed while it is open.
fn hold_and_unlink(live: &OpenFileSystem, name: &str) -> ObjectId {
    let file = live.reader().find(name.as_bytes()).unwrap().unwrap().ino();
    let file = ObjectId::new(file);
    live.hold_file(file).unwrap();
    live.unlink(&credentials(), root_object(live), name.as_bytes()).unwrap();
    file
}

fn exists(held: &Pool, fs: &str, file: ObjectId) -> bool {
    let live = held.filesystem(fs).unwrap();
    match live.reader().file(file.get()) {
        Ok(_) => true,
        Err(why) => {
            assert_eq!(why.reason(), Reason::NotFound);
            false
        }
    }
}

#[test]
fn what_is_read_only_keeps_files_without_names_until_it_is_not() {
    let folder = TempDir::new("unlinked-readonly", 1, 128 << 20);
    let held = create_pool(&folder);
    write_file(&held, "tank", "open", b"still");
    let live = held.filesystem("tank").unwrap();
    let file = hold_and_unlink(&live, "open");
    held.create_snapshots(&["tank@one".to_owned()]).unwrap();
    let properties = vec![("readonly".to_owned(), "on".to_owned())];
    let new = NewDataset { name: "tank/clone".to_owned(), properties };
    held.clone_snapshot("tank@one", &new).unwrap();
    assert!(exists(&held, "tank/clone", file), "it is opened, and nothing changes in it");
    held.set_property("tank/clone", "readonly", "off").unwrap();
    assert!(!exists(&held, "tank/clone", file));
    live.release_file(file).unwrap();
    assert!(!exists(&held, "tank", file));
    drop(live);
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn a_pool_whose_read_only_file_system_has_a_log_and_files_without_names_is_taken_over() {
    let folder = TempDir::new("unlinked-log", 1, 128 << 20);
    let held = create_pool(&folder);
    write_file(&held, "tank", "open", b"still");
    let live = held.filesystem("tank").unwrap();
    let file = hold_and_unlink(&live, "open");
    held.set_property("tank", "readonly", "on").unwrap();
    held.set_property("tank", "readonly", "off").unwrap();
    // the first promise of a log comes with a group
    for name in ["first", "second"] {
        write_file(&held, "tank", name, b"letter");
        live.fsync(None).unwrap();
    }
    held.set_property("tank", "readonly", "on").unwrap();
    let after = copy_after_cut(&folder, "unlinked-log-cut", 1);
    drop((live, held));
    let held = import(&after);
    assert!(exists(&held, "tank", file));
    assert!(held.filesystem("tank").unwrap().reader().find(b"second").unwrap().is_some());
    held.set_property("tank", "readonly", "off").unwrap();
    assert!(!exists(&held, "tank", file));
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&after, "tank"), Vec::<String>::new());
}

/// What is done to a file without a name is gone after a crash, and so is what would be made in it.
#[test]
fn attributes_of_files_without_names_do_not_keep_a_log_from_being_replayed() {
    let folder = TempDir::new("unlinked-xattrs", 1, 128 << 20);
    let held = create_pool(&folder);
    let live = held.filesystem("tank").unwrap();
    for name in ["open", "first"] {
        write_file(&held, "tank", name, b"letter");
        live.fsync(None).unwrap();
    }
    held.sync().unwrap();
    let big = |file| {
        let value = vec![7; 40_000];
        live.set_xattr(&credentials(), file, b"user.big", Some(&value), XattrMode::Any).unwrap();
    };
    big(hold_and_unlink(&live, "open"));
    let unnamed =
        live.create_tmpfile(&credentials(), root_object(&live), &NewInode::default()).unwrap();
    big(ObjectId::new(unnamed.ino));
    write_file(&held, "tank", "later", b"letter");
    let before = held.txg();
    live.fsync(None).unwrap();
    assert_eq!(held.txg(), before, "a promise took a group");
    let after = copy_after_cut(&folder, "unlinked-xattrs-cut", 1);
    drop((live, held));
    let held = import(&after);
    assert_eq!(held.take_replay_failures(), []);
    let live = held.filesystem("tank").unwrap();
    let find = |name: &str| live.reader().find(name.as_bytes()).unwrap();
    assert!(find("later").is_some() && find("open").is_none());
    drop(live);
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&after, "tank"), Vec::<String>::new());
}
