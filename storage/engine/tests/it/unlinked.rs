//! Files that have no name any more, or none yet: what is left of them, and what logs promise of
//! them.

use engine::files::Reason;
use engine::held::{Held, LiveFiles, New, NewDataset, Shape, XattrMode};
use units::ObjectId;

use crate::held::{Folder, caller, cut, faults, new_pool, world, write_file};

fn pool(folder: &Folder) -> Held {
    engine::held::create(&new_pool(folder, Shape::Single, 1), &world()).unwrap()
}

fn hold(folder: &Folder) -> Held {
    engine::held::hold(&[folder.path().into()], "tank", false, &world()).unwrap()
}

fn root(live: &LiveFiles) -> ObjectId {
    ObjectId::new(live.files().root_id())
}

/// A file that was removed while it is open.
fn open_file(live: &LiveFiles, name: &str) -> ObjectId {
    let file = live.files().find(name.as_bytes()).unwrap().unwrap().id();
    let file = ObjectId::new(file);
    live.hold(file).unwrap();
    live.unlink(&caller(), root(live), name.as_bytes()).unwrap();
    file
}

fn is_there(held: &Held, fs: &str, file: ObjectId) -> bool {
    let live = held.files(fs).unwrap();
    match live.files().file(file.get()) {
        Ok(_) => true,
        Err(why) => {
            assert_eq!(why.reason(), Reason::Absent);
            false
        }
    }
}

#[test]
fn what_is_read_only_keeps_files_without_names_until_it_is_not() {
    let folder = Folder::new("unlinked-readonly", 1, 128 << 20);
    let held = pool(&folder);
    write_file(&held, "tank", "open", b"still");
    let live = held.files("tank").unwrap();
    let file = open_file(&live, "open");
    held.snapshot(&["tank@one".to_owned()]).unwrap();
    let properties = vec![("readonly".to_owned(), "on".to_owned())];
    let new = NewDataset { name: "tank/clone".to_owned(), properties };
    held.clone_snapshot("tank@one", &new).unwrap();
    assert!(is_there(&held, "tank/clone", file), "it is opened, and nothing changes in it");
    held.set("tank/clone", "readonly", "off").unwrap();
    assert!(!is_there(&held, "tank/clone", file));
    live.release(file).unwrap();
    assert!(!is_there(&held, "tank", file));
    drop(live);
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn a_pool_whose_read_only_file_system_has_a_log_and_files_without_names_is_taken_over() {
    let folder = Folder::new("unlinked-log", 1, 128 << 20);
    let held = pool(&folder);
    write_file(&held, "tank", "open", b"still");
    let live = held.files("tank").unwrap();
    let file = open_file(&live, "open");
    held.set("tank", "readonly", "on").unwrap();
    held.set("tank", "readonly", "off").unwrap();
    // the first promise of a log comes with a group
    for name in ["first", "second"] {
        write_file(&held, "tank", name, b"letter");
        live.fsync(None).unwrap();
    }
    held.set("tank", "readonly", "on").unwrap();
    let after = cut(&folder, "unlinked-log-cut", 1);
    drop((live, held));
    let held = hold(&after);
    assert!(is_there(&held, "tank", file));
    assert!(held.files("tank").unwrap().files().find(b"second").unwrap().is_some());
    held.set("tank", "readonly", "off").unwrap();
    assert!(!is_there(&held, "tank", file));
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&after, "tank"), Vec::<String>::new());
}

/// What is done to a file without a name is gone after a crash, and so is what would be made in it.
#[test]
fn attributes_of_files_without_names_do_not_keep_a_log_from_being_replayed() {
    let folder = Folder::new("unlinked-xattrs", 1, 128 << 20);
    let held = pool(&folder);
    let live = held.files("tank").unwrap();
    for name in ["open", "first"] {
        write_file(&held, "tank", name, b"letter");
        live.fsync(None).unwrap();
    }
    held.sync().unwrap();
    let big = |file| {
        let value = vec![7; 40_000];
        live.set_xattr(&caller(), file, b"user.big", Some(&value), XattrMode::Any).unwrap();
    };
    big(open_file(&live, "open"));
    let unnamed = live.make_unnamed(&caller(), root(&live), &New::default()).unwrap();
    big(ObjectId::new(unnamed.id));
    write_file(&held, "tank", "later", b"letter");
    let before = held.txg();
    live.fsync(None).unwrap();
    assert_eq!(held.txg(), before, "a promise took a group");
    let after = cut(&folder, "unlinked-xattrs-cut", 1);
    drop((live, held));
    let held = hold(&after);
    assert_eq!(held.take_broken_logs(), []);
    let live = held.files("tank").unwrap();
    let find = |name: &str| live.files().find(name.as_bytes()).unwrap();
    assert!(find("later").is_some() && find("open").is_none());
    drop(live);
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&after, "tank"), Vec::<String>::new());
}
