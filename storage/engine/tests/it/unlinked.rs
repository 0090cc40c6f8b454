//! Files without a name, removed or not yet linked: their remains, and their log
//! records.

use engine::files::Reason;
use engine::pool::{NewDataset, OpenFileSystem, Pool, VdevLayout};
use posix::{NewInode, XattrMode};
use units::ObjectId;

use crate::test_pool::{
    TempDir, check_pool, copy_after_cut, credentials, environment, new_pool, write_file,
};

fn create_pool(folder: &TempDir) -> Pool {
    engine::pool::create(&new_pool(folder, VdevLayout::Single, 1), &environment()).unwrap()
}

fn import(folder: &TempDir) -> Pool {
    engine::pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap()
}

fn root_object(fs: &OpenFileSystem) -> ObjectId {
    ObjectId::new(fs.reader().root_object())
}

/// A file that was removed while it is open.
fn hold_and_unlink(fs: &OpenFileSystem, name: &str) -> ObjectId {
    let file = fs.reader().find(name.as_bytes()).unwrap().unwrap().ino();
    let file = ObjectId::new(file);
    fs.hold_file(file).unwrap();
    fs.unlink(&credentials(), root_object(fs), name.as_bytes()).unwrap();
    file
}

fn exists(pool: &Pool, fs: &str, file: ObjectId) -> bool {
    let live = pool.datasets().filesystem(fs).unwrap();
    match live.reader().file(file.get()) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.reason(), Reason::NotFound);
            false
        }
    }
}

#[test]
fn read_only_dataset_keeps_nameless_files() {
    let folder = TempDir::new("unlinked-readonly", 1, 128 << 20);
    let pool = create_pool(&folder);
    write_file(&pool, "tank", "open", b"still");
    let fs = pool.datasets().filesystem("tank").unwrap();
    let file = hold_and_unlink(&fs, "open");
    pool.snapshots().create(&["tank@one".to_owned()]).unwrap();
    let properties = vec![("readonly".to_owned(), "on".to_owned())];
    let new = NewDataset { name: "tank/clone".to_owned(), properties };
    pool.snapshots().clone_snapshot("tank@one", &new).unwrap();
    assert!(exists(&pool, "tank/clone", file), "it is opened, and nothing changes in it");
    pool.properties().set("tank/clone", "readonly", "off").unwrap();
    assert!(!exists(&pool, "tank/clone", file));
    fs.release_file(file).unwrap();
    assert!(!exists(&pool, "tank", file));
    drop(fs);
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn read_only_dataset_with_log_is_imported() {
    let folder = TempDir::new("unlinked-log", 1, 128 << 20);
    let pool = create_pool(&folder);
    write_file(&pool, "tank", "open", b"still");
    let fs = pool.datasets().filesystem("tank").unwrap();
    let file = hold_and_unlink(&fs, "open");
    pool.properties().set("tank", "readonly", "on").unwrap();
    pool.properties().set("tank", "readonly", "off").unwrap();
    // the first commit of a log waits for a txg
    for name in ["first", "second"] {
        write_file(&pool, "tank", name, b"letter");
        fs.fsync(None).unwrap();
    }
    pool.properties().set("tank", "readonly", "on").unwrap();
    let after = copy_after_cut(&folder, "unlinked-log-cut", 1);
    drop((fs, pool));
    let pool = import(&after);
    assert!(exists(&pool, "tank", file));
    assert!(
        pool.datasets().filesystem("tank").unwrap().reader().find(b"second").unwrap().is_some()
    );
    pool.properties().set("tank", "readonly", "off").unwrap();
    assert!(!exists(&pool, "tank", file));
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&after, "tank"), Vec::<String>::new());
}

/// Changes of a file without a name are gone after a crash, and so are files in its attribute
/// directory.
#[test]
fn attributes_of_nameless_files_do_not_break_replay() {
    let folder = TempDir::new("unlinked-xattrs", 1, 128 << 20);
    let pool = create_pool(&folder);
    let fs = pool.datasets().filesystem("tank").unwrap();
    for name in ["open", "first"] {
        write_file(&pool, "tank", name, b"letter");
        fs.fsync(None).unwrap();
    }
    pool.sync().unwrap();
    let big = |file| {
        let value = vec![7; 40_000];
        fs.set_xattr(&credentials(), file, b"user.big", Some(&value), XattrMode::Any).unwrap();
    };
    big(hold_and_unlink(&fs, "open"));
    let unnamed =
        fs.create_tmpfile(&credentials(), root_object(&fs), &NewInode::default()).unwrap();
    big(ObjectId::new(unnamed.ino));
    write_file(&pool, "tank", "later", b"letter");
    let before = pool.txg();
    fs.fsync(None).unwrap();
    assert_eq!(pool.txg(), before, "a commit took a txg");
    let after = copy_after_cut(&folder, "unlinked-xattrs-cut", 1);
    drop((fs, pool));
    let pool = import(&after);
    assert_eq!(pool.datasets().take_replay_failures(), []);
    let fs = pool.datasets().filesystem("tank").unwrap();
    let find = |name: &str| fs.reader().find(name.as_bytes()).unwrap();
    assert!(find("later").is_some() && find("open").is_none());
    drop(fs);
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&after, "tank"), Vec::<String>::new());
}
