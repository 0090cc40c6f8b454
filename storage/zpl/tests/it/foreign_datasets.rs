//! File systems that OpenZFS made, changed in memory; and a new one of OpenZFS compared with ours.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use dmu::Objset;
use parking_lot::Mutex;
use posix::{
    FileFlags, FileType, FlagChange, NewInode, RenameMode, RenameRequest, SetAttributes,
    WriteOffset, XattrMode,
};
use txg::{TxgLimits, Txgs};
use units::ObjectId;
use zap::Zap;
use zpl::{Error, Fs, FsCreateOptions, FsOptions, FsWriter, Transactions, WriteSettings};

use crate::open;
use crate::test_fs::{TestFs, TestTransactions, credentials, fs_options, time_at};

fn fixture_objset(fixture: &str, dataset: &str) -> Objset {
    let (_, tree) = open::pool(&::fixtures::load(fixture));
    tree.find(dataset).expect("a dataset").open_objset().expect("an object set")
}

/// A writer over a fixture's content; nothing is written to the fixture.
pub(crate) fn open_writer(objset: &Objset, options: FsOptions) -> FsWriter {
    let live = objset.to_writable();
    let groups = Txgs::new(units::Txg::new(1 << 40), TxgLimits::default());
    let (promises, failing) = (Mutex::default(), Mutex::default());
    let host = TestTransactions {
        txgs: groups,
        random: AtomicU64::new(9),
        records: promises,
        read_fault: failing,
    };
    let fs = Fs::open(live, options, None).expect("file system").0;
    FsWriter::new(fs, Arc::new(host) as Arc<dyn Transactions>, WriteSettings::default())
        .expect("writer")
}

fn table_entries(objset: &Objset, table: &[u8]) -> Vec<(Vec<u8>, Vec<u64>)> {
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
fn new_file_system_has_the_tables_of_openzfs() {
    if !::fixtures::exists("single") {
        return;
    }
    let theirs = fixture_objset("single", "tank");
    let pool = TestFs::new(WriteSettings::default());
    let ours = pool.reopen_read_only();
    assert_eq!(table_entries(ours.objset(), b"REGISTRY"), table_entries(&theirs, b"REGISTRY"));
    // the first layout is that of the root directory
    assert_eq!(table_entries(ours.objset(), b"LAYOUTS")[0], table_entries(&theirs, b"LAYOUTS")[0]);
    let root = Fs::open(theirs, FsOptions::default(), None).expect("file system").0;
    let root = root.root().expect("root");
    let mine = ours.root().expect("root");
    assert_eq!(mine.id(), root.id());
    let (mine, theirs) = (mine.object().expect("object"), root.object().expect("object"));
    assert_eq!(mine.bonus().len(), theirs.bonus().len());
    // header, mode, and the attributes after the times: links, project, ACL
    let fixed = |bonus: &[u8]| [&bonus[..16], &bonus[144..]].concat();
    assert_eq!(fixed(mine.bonus())[8..], fixed(theirs.bonus())[8..]);
}

/// Datasets whose files were created by different versions, with attributes of both kinds, and
/// names that are compared in different ways.
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

fn fixture_datasets() -> impl Iterator<Item = Objset> {
    let there = DATASETS.into_iter().filter(|row| ::fixtures::exists(row.0));
    there.map(|(fixture, dataset)| fixture_objset(fixture, dataset))
}

fn try_everything(writer: &FsWriter) {
    let (fs, top) = (writer.fs(), writer.fs().master().root);
    let before = *fs.root().expect("root").attributes();
    let new = NewInode { kind: FileType::Directory, mode: 0o777, ..NewInode::default() };
    let dir = writer.create(&credentials(2), top, b"of ours", &new).expect("directory").id;
    let file = writer.create(&credentials(3), dir, b"file", &NewInode::default()).expect("file").id;
    writer.write(&credentials(4), file, WriteOffset::At(70_000), b"far").expect("write");
    writer
        .set_attributes(
            &credentials(5),
            file,
            &SetAttributes { mode: Some(0o4711), ..SetAttributes::default() },
        )
        .expect("chmod");
    let mode = XattrMode::Create;
    writer.set_xattr(&credentials(6), file, b"user.x", Some(b"value"), mode).expect("xattr");
    for length in [5, 56, 57, 3000] {
        let target = vec![b't'; length];
        let new = NewInode { kind: FileType::Symlink, target: &target, ..NewInode::default() };
        let name = format!("link {length}");
        let link = writer.create(&credentials(7), dir, name.as_bytes(), &new).expect("link").id;
        assert_eq!(fs.inode(link).expect("link").read_link(), Ok(target));
        writer
            .set_attributes(
                &credentials(8),
                link,
                &SetAttributes { uid: Some(3), ..SetAttributes::default() },
            )
            .expect("chown");
        assert_eq!(
            fs.inode(link).expect("link").read_link().map(|target| target.len()),
            Ok(length)
        );
    }
    let kind = RenameMode::Exchange;
    let how = RenameRequest {
        from_dir: dir,
        from_name: b"file",
        to_dir: dir,
        to_name: b"link 5",
        mode: kind,
    };
    writer.rename(&credentials(9), &how).expect("exchange");
    let node = fs.find_path(b"of ours/link 5").expect("find").expect("file");
    let found = *node.attributes();
    assert_eq!((found.mode, found.size, found.kind), (0o4711, 70_003, FileType::File));
    assert_eq!((found.mtime, found.crtime, found.parent), (time_at(4), time_at(3), dir));
    assert_eq!(node.xattr(b"user.x"), Ok(Some(b"value".to_vec())));
    assert!(node.acl().expect("ACL").is_trivial);
    assert_eq!(node.acl().expect("ACL").entries.len(), 3);
    let mut bytes = [1; 5];
    assert_eq!(node.read(69_998, &mut bytes), Ok(5));
    assert_eq!(&bytes, b"\0\0far");
    let refused = writer.rmdir(&credentials(9), top, b"of ours");
    assert!(matches!(refused, Err(Error::NotEmpty { .. })));
    let directory = fs.inode(dir).expect("directory");
    for entry in fs.list_dir(&directory).expect("names") {
        writer.unlink(&credentials(10), dir, &entry.name).expect("unlink");
    }
    writer.rmdir(&credentials(11), top, b"of ours").expect("rmdir");
    let after = *fs.root().expect("root").attributes();
    assert_eq!((after.size, after.nlink), (before.size, before.nlink));
    assert_eq!(after.mtime, time_at(11));
}

#[test]
fn file_systems_of_all_versions_can_be_changed() {
    for objset in fixture_datasets() {
        try_everything(&open_writer(&objset, FsOptions::default()));
    }
    for version in 1..=5 {
        let pool = TestFs::with_options(
            &FsCreateOptions { version, ..fs_options() },
            WriteSettings::default(),
        );
        try_everything(&pool.writer);
        let objects = pool.reopen_read_only().objset().objects().count();
        assert_eq!(objects, if version < 5 { 3 } else { 6 }, "version {version}");
    }
}

#[test]
fn all_files_can_be_removed() {
    for objset in fixture_datasets() {
        let writer = open_writer(&objset, FsOptions::default());
        let top = writer.fs().master().root;
        remove_all(&writer, top);
        let root = *writer.fs().root().expect("root").attributes();
        assert_eq!((root.size, root.nlink), (2, 2), "{objset:?}");
    }
}

fn remove_all(writer: &FsWriter, dir: ObjectId) {
    let fs = writer.fs();
    for entry in fs.list_dir(&fs.inode(dir).expect("directory")).expect("names") {
        // files may be immutable; and every one is to be changed once
        let free = SetAttributes {
            flags: Some(FlagChange::clear(FileFlags::ALL)),
            ..SetAttributes::default()
        };
        writer.set_attributes(&credentials(2), entry.object, &free).expect("flags");
        let set = SetAttributes {
            mode: Some(0o700),
            uid: Some(4),
            gid: Some(5),
            ..SetAttributes::default()
        };
        writer.set_attributes(&credentials(3), entry.object, &set).expect("attributes");
        if entry.kind == FileType::Directory {
            remove_all(writer, entry.object);
            writer.rmdir(&credentials(4), dir, &entry.name).expect("rmdir");
        } else {
            writer.unlink(&credentials(4), dir, &entry.name).expect("unlink");
        }
    }
}
