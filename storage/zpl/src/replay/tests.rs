//! Records of every kind, laid over a file system of a real pool.

use ondisk::Order;
use ondisk::zil::{
    Acl, Attributes as Extra, Body, Create, CreateKind, Record, Rename, RenameKind, SetAttr,
    Whiteout, Write,
};
use ondisk::znode::flag;
use posix::{FileType, acl::AceWho};
use units::{ObjectId, Txg};

use crate::{DirCursor, Error, Fs, FsOptions, Inode};

#[path = "../../tests/it/open.rs"]
mod open;

/// The root of the file system has half, noise (2), tiny (6: 90 bytes), tiny-noise, words, zeros.
fn open_fs() -> Fs {
    let fixture = fixtures::load("mirror-2");
    let (_, tree) = open::pool(&fixture);
    let dataset = tree.find("tank/compression-gzip-1").expect("a dataset");
    let objset = dataset.open_objset().expect("an object set");
    Fs::open(objset, FsOptions::default(), None).expect("a file system").0
}

fn apply(fs: Fs, bodies: Vec<Body>) -> Result<Fs, Error> {
    let mut inner = std::sync::Arc::into_inner(fs.inner).expect("nobody else has it");
    for (seq, body) in (1..).zip(bodies) {
        let order = Order::Little;
        inner
            .apply_record(&Record { txg: Txg::new(9), seq, fold_case: false, order, body }, None)?;
    }
    Ok(Fs { inner: std::sync::Arc::new(inner) })
}

fn apply_to_fs(bodies: Vec<Body>) -> Fs {
    apply(open_fs(), bodies).expect("the records apply")
}

const ROOT: ObjectId = ObjectId::new(34);
const TINY: ObjectId = ObjectId::new(6);

fn create_record(kind: CreateKind, dir: ObjectId, object: u64, mode: u64, name: &[u8]) -> Body {
    Body::Create(Box::new(Create {
        kind,
        dir,
        object: ObjectId::new(object),
        slots: 1,
        mode,
        uid: 1000,
        gid: 100,
        generation: 7,
        crtime: [1_700_000_000, 5],
        rdev: 0,
        name: name.to_vec(),
        target: Vec::new(),
        attributes: None,
        acl: None,
        domains: Vec::new(),
    }))
}

fn write_record(object: ObjectId, offset: u64, data: &[u8]) -> Body {
    let (length, data) = (data.len() as u64, Some(data.to_vec()));
    let pointer = ondisk::Blkptr::EMPTY;
    Body::Write(Box::new(Write { object, offset, length, pointer, data }))
}

fn rename_record(kind: RenameKind, from: (ObjectId, &[u8]), to: (ObjectId, &[u8])) -> Body {
    Body::Rename(Box::new(Rename {
        kind,
        source_dir: from.0,
        target_dir: to.0,
        source: from.1.to_vec(),
        target: to.1.to_vec(),
    }))
}

fn setattr_record(object: ObjectId, mask: u64) -> SetAttr {
    SetAttr {
        object,
        mask,
        mode: 0o104_711,
        uid: 5,
        gid: 6,
        size: 10,
        atime: [1, 2],
        mtime: [3, 4],
        attributes: None,
        domains: Vec::new(),
    }
}

fn names(fs: &Fs, dir: &Inode) -> Vec<String> {
    let entries = fs.list_dir(dir).expect("a list");
    let mut names: Vec<_> =
        entries.into_iter().map(|entry| String::from_utf8(entry.name).expect("text")).collect();
    names.sort();
    names
}

fn content(node: &Inode) -> Vec<u8> {
    let mut out = vec![0xaa; 1000];
    let count = node.read(0, &mut out).expect("content");
    out.truncate(count);
    out
}

#[test]
fn new_files_and_directories_appear_with_contents() {
    let dir = ObjectId::new(1000);
    let fs = apply_to_fs(vec![
        create_record(CreateKind::Directory, ROOT, 1000, 0o040_750, b"d"),
        create_record(CreateKind::File, dir, 1001, 0o100_640, b"f"),
        write_record(ObjectId::new(1001), 3, b"abc"),
        Body::Link { dir: ROOT, object: ObjectId::new(1001), name: b"g".to_vec() },
    ]);
    let root = fs.root().expect("the root");
    assert_eq!((root.attributes().size, root.attributes().nlink), (10, 3));
    let found = fs.find_path(b"/d/f").expect("no fault").expect("a file");
    assert_eq!(content(&found), b"\0\0\0abc");
    let attributes = found.attributes();
    assert_eq!((attributes.kind, attributes.mode, attributes.nlink), (FileType::File, 0o640, 2));
    assert_eq!((attributes.uid, attributes.gid, attributes.parent), (1000, 100, dir));
    assert_eq!(attributes.mtime.total_nanoseconds(), 1_700_000_000_000_000_005);
    let d = fs.find_path(b"d").expect("no fault").expect("a directory");
    assert_eq!((d.attributes().size, d.attributes().nlink), (3, 2));
    assert_eq!(fs.lookup(&d, b"..").expect("no fault").expect("the root").id(), ROOT);
    let all = ["d", "g", "half", "noise", "tiny", "tiny-noise", "words", "zeros"];
    assert_eq!(names(&fs, &root), all);
}

#[test]
fn listings_go_on_where_they_stopped() {
    let fs = apply_to_fs(vec![
        create_record(CreateKind::File, ROOT, 1000, 0o100_640, b"new-a"),
        create_record(CreateKind::File, ROOT, 1001, 0o100_640, b"new-b"),
        Body::Remove { dir: ROOT, name: b"words".to_vec() },
    ]);
    let root = fs.root().expect("the root");
    let whole: Vec<_> = fs.list_dir(&root).expect("a list");
    let mut piecewise = Vec::new();
    let mut cursor: Option<DirCursor> = None;
    loop {
        let before = piecewise.len();
        fs.read_dir(&root, cursor.as_ref(), &mut |entry| {
            piecewise.push(entry);
            false
        })
        .expect("a list");
        if piecewise.len() == before {
            break;
        }
        cursor = piecewise.last().map(|entry| entry.cursor.clone());
    }
    assert_eq!(piecewise, whole);
    assert_eq!(whole.len(), 7);
}

#[test]
fn removed_files_vanish_and_numbers_are_reused() {
    let fs = apply_to_fs(vec![
        Body::Remove { dir: ROOT, name: b"tiny".to_vec() },
        write_record(TINY, 0, b"too late"),
    ]);
    assert!(fs.find_path(b"tiny").expect("no fault").is_none());
    assert!(matches!(fs.inode(TINY), Err(Error::NotFound { .. })));
    let fs = apply_to_fs(vec![
        Body::Remove { dir: ROOT, name: b"tiny".to_vec() },
        create_record(CreateKind::File, ROOT, TINY.get(), 0o100_600, b"tiny"),
        write_record(TINY, 0, b"new"),
    ]);
    let tiny = fs.find_path(b"tiny").expect("no fault").expect("a file");
    assert_eq!(content(&tiny), b"new");
    assert_eq!(names(&fs, &fs.root().expect("the root")).len(), 6);
}

#[test]
fn names_move_are_exchanged_and_leave_whiteouts() {
    let dir = ObjectId::new(1000);
    let white = Whiteout {
        object: ObjectId::new(1002),
        mode: 0o020_600,
        uid: 0,
        gid: 0,
        generation: 7,
        crtime: [0, 0],
        rdev: 0,
    };
    let fs = apply_to_fs(vec![
        create_record(CreateKind::Directory, ROOT, 1000, 0o040_750, b"a"),
        create_record(CreateKind::Directory, ROOT, 1001, 0o040_750, b"b"),
        rename_record(RenameKind::Plain, (ROOT, b"b"), (dir, b"c")),
        rename_record(RenameKind::Plain, (ROOT, b"half"), (ROOT, b"zeros")),
        rename_record(RenameKind::Exchange, (ROOT, b"words"), (ROOT, b"noise")),
        rename_record(RenameKind::Whiteout(white), (ROOT, b"tiny"), (dir, b"tiny")),
    ]);
    let find = |path: &[u8]| fs.find_path(path).expect("no fault").map(|node| node.id().get());
    assert_eq!((find(b"a/c"), find(b"b"), find(b"half")), (Some(1001), None, None));
    assert_eq!((find(b"zeros"), find(b"words"), find(b"noise")), (Some(5), Some(2), Some(3)));
    assert_eq!((find(b"tiny"), find(b"a/tiny")), (Some(1002), Some(6)));
    let kind = fs.attributes(ObjectId::new(1002)).expect("a device").kind;
    assert_eq!(kind, FileType::CharDevice);
    let root = *fs.root().expect("the root").attributes();
    assert_eq!((root.size, root.nlink), (2 + 6, 2 + 1));
    let a = fs.attributes(dir).expect("a directory");
    assert_eq!((a.size, a.nlink), (4, 3));
    assert_eq!(fs.attributes(ObjectId::new(1001)).expect("a directory").parent, dir);
}

#[test]
fn sizes_follow_writes_and_truncations() {
    let size = |bodies| apply_to_fs(bodies).attributes(TINY).expect("a file").size;
    let cut = |offset, length| Body::Truncate { object: TINY, offset, length };
    assert_eq!(size(vec![]), 90);
    assert_eq!(size(vec![write_record(TINY, 80, &[1; 20])]), 100);
    assert_eq!(size(vec![cut(40, 0)]), 40);
    assert_eq!(size(vec![cut(40, 10)]), 90);
    assert_eq!(size(vec![cut(200, 0)]), 200);
    assert_eq!(size(vec![Body::WriteSynced { object: TINY, offset: 100, length: 5 }]), 105);
    let before = content(&open_fs().inode(TINY).expect("a file"));
    let fs = apply_to_fs(vec![cut(40, 0), write_record(TINY, 60, b"x"), cut(50, 5)]);
    let now = content(&fs.inode(TINY).expect("a file"));
    assert_eq!((&now[..40], &now[40..60], &now[60..]), (&before[..40], &[0; 20][..], &b"x"[..]));
    let node = fs.inode(TINY).expect("a file");
    // all of it is one block
    assert_eq!((node.next_data(40), node.next_hole(0)), (Ok(Some(40)), Ok(61)));
}

#[test]
fn attributes_are_set_by_the_mask() {
    let extra = Extra {
        requested: Extra::words(0x1 | 0x40 | 0x100 | 0x40000),
        values: 0x40,
        crtime: [9, 9],
        scanstamp: [0; 32],
        project: 77,
    };
    let with = SetAttr { attributes: Some(extra), ..setattr_record(TINY, SetAttr::ATTRIBUTES) };
    let fs = apply_to_fs(vec![
        Body::SetAttr(Box::new(setattr_record(TINY, SetAttr::MODE | SetAttr::UID))),
        Body::SetAttr(Box::new(with)),
    ]);
    let tiny = fs.attributes(TINY).expect("a file");
    assert_eq!((tiny.kind, tiny.mode, tiny.uid, tiny.gid), (FileType::File, 0o4711, 5, 0));
    assert_eq!((tiny.size, tiny.project_id, tiny.crtime.seconds), (90, 77, 9));
    assert_eq!(tiny.file_flags().to_linux(), 0x10);
    let all = SetAttr::GID | SetAttr::SIZE | SetAttr::ATIME;
    let fs = apply_to_fs(vec![Body::SetAttr(Box::new(setattr_record(TINY, all)))]);
    let tiny = fs.attributes(TINY).expect("a file");
    assert_eq!((tiny.gid, tiny.size, tiny.atime.seconds, tiny.mtime.seconds), (6, 10, 1, 3));
}

#[test]
fn extended_attributes_of_both_kinds_show() {
    let xattrs = ObjectId::new(1000);
    let value = |value: &[u8]| Body::SetXattr {
        object: TINY,
        name: b"user.small".to_vec(),
        value: value.to_vec(),
    };
    let fs = apply_to_fs(vec![
        value(b"one"),
        create_record(CreateKind::XattrDirectory, TINY, 1000, 0o041_777, b""),
        create_record(CreateKind::File, xattrs, 1001, 0o100_644, b"user.large"),
        write_record(ObjectId::new(1001), 0, &[7; 500]),
        value(b"two"),
    ]);
    let tiny = fs.inode(TINY).expect("a file");
    assert_eq!(tiny.xattr(b"user.small"), Ok(Some(b"two".to_vec())));
    assert_eq!(tiny.xattr(b"user.large"), Ok(Some(vec![7; 500])));
    assert_eq!(tiny.xattrs().expect("a list").len(), 2);
    let fs = apply_to_fs(vec![value(b"one"), value(b"")]);
    assert_eq!(fs.inode(TINY).expect("a file").xattrs(), Ok(Vec::new()));
}

/// Where data lie in a file: from where to where.
fn data(node: &Inode) -> Vec<(u64, u64)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(from) = node.next_data(at).expect("data or none") {
        at = node.next_hole(from).expect("a hole");
        assert!(at > from);
        found.push((from, at));
    }
    found
}

#[test]
fn writes_replay_as_whole_blocks() {
    let new = ObjectId::new(1001);
    let make = || create_record(CreateKind::File, ROOT, 1001, 0o100_640, b"f");
    let cut = |offset, length| Body::Truncate { object: new, offset, length };
    let after = |record_size, bodies: Vec<Body>| {
        let mut inner = std::sync::Arc::into_inner(open_fs().inner).expect("nobody else has it");
        inner.options.record_size = record_size;
        let fs = Fs { inner: std::sync::Arc::new(inner) };
        let bodies = std::iter::once(make()).chain(bodies).collect();
        data(&apply(fs, bodies).expect("the records apply").inode(new).expect("a file"))
    };
    let long = cut(9 << 20, 0);
    let write = |offset, length| write_record(new, offset, &vec![7; length]);
    // the only block is as large as the file, until that is longer than a record
    assert_eq!(after(1024, vec![write(0, 5000), long.clone()]), [(0, 5120)]);
    assert_eq!(after(512, vec![write(0, 5000), long.clone()]), [(0, 5120)]);
    assert_eq!(after(131_072, vec![write(0, 5000), long.clone()]), [(0, 131_072)]);
    assert_eq!(after(131_072, vec![write(0, 5000)]), [(0, 5000)]);
    // once there are two they stay as they are
    let two = vec![write(0, 3000), write(3000, 4000), long.clone()];
    assert_eq!(after(4096, two), [(0, 8192)]);
    assert_eq!(after(4096, vec![write(70_000, 10), write(0, 1)]), [(0, 4096), (69_632, 70_010)]);
    // a hole is as large as a block at least
    let holed = |offset, length| after(4096, vec![write(0, 20_000), cut(offset, length)]);
    assert_eq!(holed(4096, 4096), [(0, 4096), (8192, 20_000)]);
    assert_eq!(holed(4097, 8000), [(0, 20_000)]);
    assert_eq!(holed(5000, 8000), [(0, 8192), (12_288, 20_000)]);
    let node = {
        let bodies = vec![make(), write(0, 5000), long];
        let fs = apply(open_fs(), bodies).expect("the records apply");
        fs.inode(new).expect("a file")
    };
    // and a lookup from within returns its new place
    assert_eq!((node.next_data(6000), node.next_hole(6000)), (Ok(Some(6000)), Ok(131_072)));
    assert_eq!((node.next_data(131_073), node.next_hole(131_073)), (Ok(None), Ok(131_073)));
    assert_eq!((node.next_data(10 << 20), node.next_hole(10 << 20)), (Ok(None), Ok(10 << 20)));
}

#[test]
fn access_lists_are_replaced() {
    assert!(open_fs().inode(TINY).expect("a file").acl().expect("an ACL").is_trivial);
    let entries = [&[0, 0, 0, 0x40, 1, 0, 0, 0][..], &[1, 0, 0, 0, 2, 0, 0, 0], &[9; 8]].concat();
    let acl = Acl { count: 2, flags: 0, entries, fuids: Vec::new(), domains: Vec::new() };
    let fs = apply_to_fs(vec![Body::Acl { object: TINY, acl: Box::new(acl) }]);
    let acl = fs.inode(TINY).expect("a file").acl().expect("an ACL");
    assert!(!acl.is_trivial);
    let whos: Vec<_> = acl.entries.iter().map(|entry| entry.who).collect();
    assert_eq!(whos, [AceWho::Everyone, AceWho::User(0x0909_0909_0909_0909)]);
    assert_eq!(fs.attributes(TINY).expect("a file").flags & flag::ACL_TRIVIAL, 0);
}

#[test]
fn mismatched_records_fail_and_late_ones_are_skipped() {
    let remove = Body::Remove { dir: ROOT, name: b"never-there".to_vec() };
    assert!(matches!(apply(open_fs(), vec![remove]), Err(Error::Malformed { object: ROOT, .. })));
    let late = Body::Truncate { object: ObjectId::new(4000), offset: 0, length: 0 };
    assert!(apply(open_fs(), vec![late]).is_ok());
    // so may names be of attributes of a file that was open when it was removed
    let gone = ObjectId::new(4000);
    let made = create_record(CreateKind::File, gone, 1000, 0o100_600, b"f");
    let removed = Body::Remove { dir: gone, name: b"f".to_vec() };
    assert!(apply(open_fs(), vec![made, removed]).is_ok());
    let lost = Body::Link { dir: ROOT, object: gone, name: b"f".to_vec() };
    assert!(apply(open_fs(), vec![lost]).is_err());
}
