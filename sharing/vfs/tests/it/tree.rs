//! A tree of datasets, without any protocol.

use std::collections::BTreeMap;

use engine::RescuePool;
use fixtures::Fixture;
use posix::access::OpenMode;
use posix::{Credentials, FileType, Ino, SetAttributes};
use vfs::{Context, DatasetTree, DirEntry, DoorId, Error, FileOffset, FileSystem, Reason};

fn open_pool(fixture: &Fixture) -> RescuePool {
    let search = engine::search(std::slice::from_ref(&fixture.dir));
    search.open(fixture.pool_name(), &engine::OpenOptions::default()).expect("a pool")
}

fn open_tree(name: &str) -> DatasetTree {
    let fixture = fixtures::load(name);
    let report = Box::new(|what: &str| panic!("{what}"));
    let pool = open_pool(&fixture);
    for key in fixture.keys() {
        pool.load_key(&key.dataset, &key.file_content()).expect("a key that fits");
    }
    DatasetTree::open(pool, fixture.pool_name(), report).expect("a tree")
}

fn list_dir(tree: &DatasetTree, number: Ino) -> Vec<DirEntry> {
    let mut all = Vec::new();
    let mut take = |item: &DirEntry| {
        all.push(item.clone());
        true
    };
    tree.open_dir(number).expect("a folder").visit_from(0, &mut take).expect("all of it");
    all
}

/// Every file and folder below the root, by path; `.zfs` is not among them.
fn walk(tree: &DatasetTree) -> BTreeMap<String, (Ino, FileType)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![(String::new(), tree.root_ino().expect("a root"))];
    while let Some((path, number)) = todo.pop() {
        for item in list_dir(tree, number).into_iter().skip(2) {
            let path = format!("{path}/{}", String::from_utf8_lossy(&item.name));
            let looked = tree.lookup(number, &item.name).expect("a listed name exists");
            assert_eq!((looked.ino, looked.kind), (item.ino, item.kind), "{path}");
            if item.kind == FileType::Directory {
                todo.push((path.clone(), item.ino));
            }
            found.insert(path, (item.ino, item.kind));
        }
    }
    found
}

#[test]
fn numbers_are_unique_and_name_their_files() {
    let tree = open_tree("snapshots");
    let mut by_number: BTreeMap<Ino, Vec<String>> = BTreeMap::new();
    let found = walk(&tree);
    assert!(found.len() > 20, "{}", found.len());
    for (path, (number, _)) in found {
        by_number.entry(number).or_default().push(path);
    }
    for (number, paths) in by_number {
        let links = tree.attributes(number).expect("attributes").nlink;
        // hard links alone share a number
        assert!(paths.len() == 1 || paths.len() as u64 <= links, "{number}: {paths:?}");
        let (dataset, path) = tree.display_name(number).split_once(":/").map_or_else(
            || panic!("{}", tree.display_name(number)),
            |(dataset, path)| (dataset.to_owned(), path.to_owned()),
        );
        let below = dataset.split_once('/').map_or("", |(_, rest)| rest);
        let joined = [below, &path]
            .iter()
            .filter(|part| !part.is_empty())
            .fold(String::new(), |all, part| format!("{all}/{part}"));
        assert!(paths.contains(&joined), "{joined} is none of {paths:?}");
    }
}

#[test]
fn listing_continues_after_every_name() {
    for name in ["snapshots", "intent-log-slog", "limits-and-freeing"] {
        let tree = open_tree(name);
        let mut folders = vec![tree.root_ino().expect("a root")];
        let below = walk(&tree).into_values().filter(|(_, kind)| *kind == FileType::Directory);
        folders.extend(below.map(|(number, _)| number));
        for folder in folders {
            let all = list_dir(&tree, folder);
            let cookies: Vec<u64> = all.iter().map(|item| item.next_cookie).collect();
            assert!(cookies.is_sorted_by(|a, b| a < b), "cookies grow");
            let step = (all.len() / 50).max(1);
            for (at, item) in all.iter().enumerate().step_by(step) {
                let mut next = None;
                let fresh = tree.open_dir(folder).expect("a folder");
                fresh
                    .visit_from(item.next_cookie, &mut |item| {
                        next = Some(item.clone());
                        false
                    })
                    .expect("an answer");
                assert_eq!(next.as_ref(), all.get(at + 1));
            }
        }
    }
}

#[test]
fn sequential_and_random_reads_agree() {
    let tree = open_tree("encryption");
    let mut count = 0;
    for (path, (number, kind)) in walk(&tree) {
        let size = tree.attributes(number).expect("attributes").size;
        if kind != FileType::File || size < 200_000 || count == 12 {
            continue;
        }
        count += 1;
        let whole = {
            let reader = tree.open_file(number).expect("content");
            let (mut all, mut at) = (Vec::new(), 0);
            while at < size {
                let read = reader.read(at, 100_001, |bytes| {
                    all.extend_from_slice(bytes);
                    bytes.len()
                });
                at += read.expect("bytes") as u64;
            }
            all
        };
        assert_eq!(whole.len() as u64, size, "{path}");
        let reader = tree.open_file(number).expect("content");
        for at in (0..size).rev().step_by(77_777) {
            let start = usize::try_from(at).expect("small");
            let end = (start + 200_000).min(whole.len());
            let same = reader.read(at, 200_000, |bytes| bytes == &whole[start..end]);
            assert!(same.expect("bytes"), "{path} at {at}");
        }
        assert!(reader.read(size, 10, <[u8]>::is_empty).expect("the end"));
    }
    assert!(count > 2, "the fixture has large files");
}

#[test]
fn snapshots_and_volumes_are_in_zfs() {
    let tree = open_tree("snapshots");
    let root = tree.root_ino().expect("a root");
    assert!(list_dir(&tree, root).iter().all(|item| item.name != b".zfs"));
    let control = tree.lookup(root, b".zfs").expect("it is there").ino;
    let snapshots = tree.lookup(control, b"snapshot").expect("it is there").ino;
    for item in list_dir(&tree, snapshots).into_iter().skip(2) {
        let top = tree.lookup(snapshots, &item.name).expect("a snapshot");
        assert_eq!(top.kind, FileType::Directory);
        assert!(list_dir(&tree, top.ino).len() >= 2);
        assert!(matches!(tree.lookup(top.ino, b".zfs"), Err(Error::NotFound)));
    }
    assert!(matches!(tree.lookup(snapshots, b"none"), Err(Error::NotFound)));
}

#[test]
fn locked_dataset_is_an_empty_folder() {
    let fixture = fixtures::load("encryption");
    let pool = open_pool(&fixture);
    let locked = fixture.keys().into_iter().map(|key| key.dataset);
    let locked = locked
        .filter(|name| pool.child_filesystems(name).is_empty() && name != fixture.pool_name());
    let locked: Vec<String> = locked.filter(|name| name.matches('/').count() == 1).collect();
    assert!(!locked.is_empty());
    let tree =
        DatasetTree::open(pool.clone(), fixture.pool_name(), Box::new(|_| {})).expect("a tree");
    let root = tree.root_ino().expect("a root");
    for name in &locked {
        let last = name.rsplit('/').next().expect("a part");
        let found = tree.lookup(root, last.as_bytes()).expect("it is there");
        assert!(matches!(tree.open_dir(found.ino), Err(Error::Locked { .. })), "{name}");
        assert!(matches!(tree.lookup(found.ino, b"x"), Err(Error::Locked { .. })));
        let open = DatasetTree::open(pool.clone(), name, Box::new(|_| {}));
        assert!(matches!(open.err(), Some(engine::Error::Locked { .. })), "{name}");
    }
}

#[test]
fn tree_keeps_the_contract_read_only() {
    let tree = open_tree("snapshots");
    let nobody = Credentials::new(65534, 65534);
    let (root, nobody) =
        (&Context::new(&Credentials::ROOT, DoorId::new(7)), &Context::new(&nobody, DoorId::new(7)));
    let top = FileSystem::root(&tree).expect("a root");
    let refused = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::Refused { reason: Reason::ReadOnly })), "{result:?}");
    };
    let mut opened = 0;
    for (path, (ino, kind)) in walk(&tree) {
        let found = FileSystem::attributes(&tree, root, ino).expect("attributes");
        assert_eq!((found.ino, found.kind), (ino, kind), "{path}");
        refused(FileSystem::set_attributes(&tree, root, ino, &SetAttributes::default()).map(drop));
        if kind != FileType::File {
            continue;
        }
        refused(FileSystem::open(&tree, root, ino, OpenMode::READ_WRITE).map(drop));
        let file = FileSystem::open(&tree, root, ino, OpenMode::READ).expect("an open file");
        let mut bytes = vec![0; usize::try_from(found.size).expect("a small file")];
        let from = FileOffset { file: &file, offset: 0 };
        assert_eq!(tree.read(root, from, &mut bytes).expect("content"), bytes.len(), "{path}");
        let others_read = found.mode & 0o004 != 0;
        let open = FileSystem::open(&tree, nobody, ino, OpenMode::READ).map(drop);
        assert_eq!(open.is_ok(), others_read, "{path}: {open:?}");
        opened += 1;
    }
    assert!(opened > 5, "{opened}");
    let parent = FileSystem::lookup(&tree, root, top, b"..").expect("a root");
    assert_eq!(parent.ino, top);
    refused(tree.unlink(root, top, b"anything"));
}
