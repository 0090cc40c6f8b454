//! File systems that OpenZFS made, changed in memory; and what it makes of a new one beside what
//! we make.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use dmu::Objset;
use parking_lot::Mutex;
use txg::{Groups, Limits};
use units::ObjectId;
use zap::Zap;
use zpl::{
    Begin, Error, Fs, Kind, Move, MoveKind, New, NewFs, Options, Position, Set, Settings, Writer,
    XattrMode,
};

use crate::open;
use crate::pool::{Host, Pool, at, caller, new_fs};

fn objset(fixture: &str, dataset: &str) -> Objset {
    let (_, tree) = open::pool(&::fixtures::load(fixture));
    tree.find(dataset).expect("a dataset").open().expect("an object set")
}

/// A writer over what is stored in a fixture; nothing of it reaches the fixture.
pub(crate) fn writer(objset: &Objset, options: Options) -> Writer {
    let live = objset.to_writable();
    let groups = Groups::new(units::Txg::new(1 << 40), Limits::default());
    let (promises, failing) = (Mutex::default(), Mutex::default());
    let host = Host { groups, random: AtomicU64::new(9), promises, failing };
    let fs = Fs::open(live, options, None).expect("file system").0;
    Writer::new(fs, Arc::new(host) as Arc<dyn Begin>, Settings::default()).expect("writer")
}

fn words(objset: &Objset, table: &[u8]) -> Vec<(Vec<u8>, Vec<u64>)> {
    let object = |id: u64| Zap::open(objset.object(ObjectId::new(id)).expect("object"));
    let number =
        |table: &Zap, name: &[u8]| table.lookup_u64(name).expect("lookup").expect("a number");
    let master = object(1).expect("master node");
    let tables = object(number(&master, b"SA_ATTRS")).expect("tables");
    let table = object(number(&tables, table)).expect("table");
    let mut rows: Vec<_> = table
        .entries()
        .map(|entry| entry.expect("entry"))
        .map(|entry| (entry.name, entry.value.u64s()))
        .collect();
    rows.sort();
    rows
}

#[test]
fn a_new_file_system_has_the_tables_that_openzfs_makes() {
    if !::fixtures::has("single") {
        return;
    }
    let theirs = objset("single", "tank");
    let pool = Pool::new(Settings::default());
    let ours = pool.cold();
    assert_eq!(words(ours.objset(), b"REGISTRY"), words(&theirs, b"REGISTRY"));
    // the first layout is that of the root directory
    assert_eq!(words(ours.objset(), b"LAYOUTS")[0], words(&theirs, b"LAYOUTS")[0]);
    let root = Fs::open(theirs, Options::default(), None).expect("file system").0;
    let root = root.root().expect("root");
    let mine = ours.root().expect("root");
    assert_eq!(mine.id(), root.id());
    let (mine, theirs) = (mine.object().expect("object"), root.object().expect("object"));
    assert_eq!(mine.bonus().len(), theirs.bonus().len());
    // header, mode, and what follows the times: links, project, ACL
    let fixed = |bonus: &[u8]| [&bonus[..16], &bonus[144..]].concat();
    assert_eq!(fixed(mine.bonus())[8..], fixed(theirs.bonus())[8..]);
}

/// Datasets whose files were made by different versions, with attributes of both kinds, and names
/// that are compared in different ways.
const DATASETS: [(&str, &str); 8] = [
    ("version-28-upgraded", "old"),
    ("version-28", "old/clone"),
    ("attributes", "tank/sa-16k"),
    ("attributes", "tank/dir-1k"),
    ("attributes", "tank/none"),
    ("names", "tank/insensitive"),
    ("names", "tank/formKD"),
    ("limits-and-freeing", "tank"),
];

fn datasets() -> impl Iterator<Item = Objset> {
    let there = DATASETS.into_iter().filter(|row| ::fixtures::has(row.0));
    there.map(|(fixture, dataset)| objset(fixture, dataset))
}

fn try_everything(writer: &Writer) {
    let (fs, top) = (writer.fs(), writer.fs().master().root);
    let before = *fs.root().expect("root").attributes();
    let new = New { kind: Kind::Directory, mode: 0o777, ..New::default() };
    let dir = writer.make(&caller(2), top, b"of ours", &new).expect("directory").id;
    let file = writer.make(&caller(3), dir, b"file", &New::default()).expect("file").id;
    writer.write(&caller(4), file, Position::At(70_000), b"far").expect("write");
    writer.set(&caller(5), file, &Set { mode: Some(0o4711), ..Set::default() }).expect("chmod");
    let mode = XattrMode::New;
    writer.set_xattr(&caller(6), file, b"user.x", Some(b"value"), mode).expect("xattr");
    for length in [5, 56, 57, 3000] {
        let target = vec![b't'; length];
        let new = New { kind: Kind::Symlink, target: &target, ..New::default() };
        let name = format!("link {length}");
        let link = writer.make(&caller(7), dir, name.as_bytes(), &new).expect("link").id;
        assert_eq!(fs.node(link).expect("link").readlink(), Ok(target));
        writer.set(&caller(8), link, &Set { uid: Some(3), ..Set::default() }).expect("chown");
        assert_eq!(fs.node(link).expect("link").readlink().map(|target| target.len()), Ok(length));
    }
    let kind = MoveKind::Exchange;
    let how = Move { from_dir: dir, from: b"file", to_dir: dir, to: b"link 5", kind };
    writer.rename(&caller(9), &how).expect("exchange");
    let node = fs.find(b"of ours/link 5").expect("find").expect("file");
    let found = *node.attributes();
    assert_eq!((found.mode, found.size, found.kind), (0o4711, 70_003, Kind::File));
    assert_eq!((found.mtime, found.crtime, found.parent), (at(4), at(3), dir));
    assert_eq!(node.xattr(b"user.x"), Ok(Some(b"value".to_vec())));
    assert!(node.acl().expect("ACL").is_trivial);
    assert_eq!(node.acl().expect("ACL").entries.len(), 3);
    let mut bytes = [1; 5];
    assert_eq!(node.read(69_998, &mut bytes), Ok(5));
    assert_eq!(&bytes, b"\0\0far");
    let refused = writer.rmdir(&caller(9), top, b"of ours");
    assert!(matches!(refused, Err(Error::NotEmpty { .. })));
    let directory = fs.node(dir).expect("directory");
    for entry in fs.list(&directory).expect("names") {
        writer.unlink(&caller(10), dir, &entry.name).expect("unlink");
    }
    writer.rmdir(&caller(11), top, b"of ours").expect("rmdir");
    let after = *fs.root().expect("root").attributes();
    assert_eq!((after.size, after.links), (before.size, before.links));
    assert_eq!(after.mtime, at(11));
}

#[test]
fn file_systems_of_all_versions_can_be_changed() {
    for objset in datasets() {
        try_everything(&writer(&objset, Options::default()));
    }
    for version in 1..=5 {
        let pool = Pool::of(&NewFs { version, ..new_fs() }, Settings::default());
        try_everything(&pool.writer);
        let objects = pool.cold().objset().objects().count();
        assert_eq!(objects, if version < 5 { 3 } else { 6 }, "version {version}");
    }
}

#[test]
fn all_that_is_there_can_be_removed() {
    for objset in datasets() {
        let writer = writer(&objset, Options::default());
        let top = writer.fs().master().root;
        clear(&writer, top);
        let root = *writer.fs().root().expect("root").attributes();
        assert_eq!((root.size, root.links), (2, 2), "{objset:?}");
    }
}

fn clear(writer: &Writer, dir: ObjectId) {
    let fs = writer.fs();
    for entry in fs.list(&fs.node(dir).expect("directory")).expect("names") {
        // files may be immutable; and every one is to be changed once
        let free = Set { flags: Some((u64::MAX, 0)), ..Set::default() };
        writer.set(&caller(2), entry.object, &free).expect("flags");
        let set = Set { mode: Some(0o700), uid: Some(4), gid: Some(5), ..Set::default() };
        writer.set(&caller(3), entry.object, &set).expect("attributes");
        if entry.kind == Kind::Directory {
            clear(writer, entry.object);
            writer.rmdir(&caller(4), dir, &entry.name).expect("rmdir");
        } else {
            writer.unlink(&caller(4), dir, &entry.name).expect("unlink");
        }
    }
}
