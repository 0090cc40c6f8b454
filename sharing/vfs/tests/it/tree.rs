//! What a tree shows, without any protocol.

use std::collections::BTreeMap;

use engine::Pool;
use fixtures::Fixture;
use vfs::{Error, Item, Kind, Tree};

fn pool(fixture: &Fixture) -> Pool {
    let search = engine::search(std::slice::from_ref(&fixture.dir));
    search.open(fixture.pool(), &engine::OpenOptions::default()).expect("a pool")
}

fn tree(name: &str) -> Tree {
    let fixture = fixtures::load(name);
    let report = Box::new(|what: &str| panic!("{what}"));
    let pool = pool(&fixture);
    for key in fixture.keys() {
        pool.unlock(&key.dataset, &key.file_content()).expect("a key that fits");
    }
    Tree::open(pool, fixture.pool(), report).expect("a tree")
}

fn names(tree: &Tree, number: u64) -> Vec<Item> {
    let mut all = Vec::new();
    let mut take = |item: &Item| {
        all.push(item.clone());
        true
    };
    tree.list(number).expect("a folder").from(0, &mut take).expect("all of it");
    all
}

/// Every file and folder below the root, by path; `.zfs` is not among them.
fn walk(tree: &Tree) -> BTreeMap<String, (u64, Kind)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![(String::new(), tree.root().expect("a root"))];
    while let Some((path, number)) = todo.pop() {
        for item in names(tree, number).into_iter().skip(2) {
            let path = format!("{path}/{}", String::from_utf8_lossy(&item.name));
            let looked = tree.lookup(number, &item.name).expect("what is listed is there");
            assert_eq!((looked.number, looked.kind), (item.number, item.kind), "{path}");
            if item.kind == Kind::Directory {
                todo.push((path.clone(), item.number));
            }
            found.insert(path, (item.number, item.kind));
        }
    }
    found
}

#[test]
fn numbers_are_unique_and_name_their_files() {
    let tree = tree("snapshots");
    let mut by_number: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let found = walk(&tree);
    assert!(found.len() > 20, "{}", found.len());
    for (path, (number, _)) in found {
        by_number.entry(number).or_default().push(path);
    }
    for (number, paths) in by_number {
        let links = tree.attributes(number).expect("attributes").links;
        // hard links alone share a number
        assert!(paths.len() == 1 || paths.len() as u64 <= links, "{number}: {paths:?}");
        let (dataset, path) = tree.name(number).split_once(":/").map_or_else(
            || panic!("{}", tree.name(number)),
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
fn a_listing_goes_on_behind_every_name() {
    for name in ["snapshots", "intent-log-slog", "limits-and-freeing"] {
        let tree = tree(name);
        let mut folders = vec![tree.root().expect("a root")];
        let below = walk(&tree).into_values().filter(|(_, kind)| *kind == Kind::Directory);
        folders.extend(below.map(|(number, _)| number));
        for folder in folders {
            let all = names(&tree, folder);
            let cookies: Vec<u64> = all.iter().map(|item| item.next).collect();
            assert!(cookies.is_sorted_by(|a, b| a < b), "cookies grow");
            let step = (all.len() / 50).max(1);
            for (at, item) in all.iter().enumerate().step_by(step) {
                let mut next = None;
                let fresh = tree.list(folder).expect("a folder");
                fresh
                    .from(item.next, &mut |item| {
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
fn a_file_reads_the_same_in_sequence_and_in_jumps() {
    let tree = tree("encryption");
    let mut count = 0;
    for (path, (number, kind)) in walk(&tree) {
        let size = tree.attributes(number).expect("attributes").size;
        if kind != Kind::File || size < 200_000 || count == 12 {
            continue;
        }
        count += 1;
        let whole = {
            let reader = tree.read(number).expect("content");
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
        let reader = tree.read(number).expect("content");
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
    let tree = tree("snapshots");
    let root = tree.root().expect("a root");
    assert!(names(&tree, root).iter().all(|item| item.name != b".zfs"));
    let control = tree.lookup(root, b".zfs").expect("it is there").number;
    let snapshots = tree.lookup(control, b"snapshot").expect("it is there").number;
    for item in names(&tree, snapshots).into_iter().skip(2) {
        let top = tree.lookup(snapshots, &item.name).expect("a snapshot");
        assert_eq!(top.kind, Kind::Directory);
        assert!(names(&tree, top.number).len() >= 2);
        assert!(matches!(tree.lookup(top.number, b".zfs"), Err(Error::Absent)));
    }
    assert!(matches!(tree.lookup(snapshots, b"none"), Err(Error::Absent)));
}

#[test]
fn a_locked_dataset_is_an_empty_folder_that_says_so() {
    let fixture = fixtures::load("encryption");
    let pool = pool(&fixture);
    let locked = fixture.keys().into_iter().map(|key| key.dataset);
    let locked = locked.filter(|name| pool.children(name).is_empty() && name != fixture.pool());
    let locked: Vec<String> = locked.filter(|name| name.matches('/').count() == 1).collect();
    assert!(!locked.is_empty());
    let tree = Tree::open(pool.clone(), fixture.pool(), Box::new(|_| {})).expect("a tree");
    let root = tree.root().expect("a root");
    for name in &locked {
        let last = name.rsplit('/').next().expect("a part");
        let found = tree.lookup(root, last.as_bytes()).expect("it is there");
        assert!(matches!(tree.list(found.number), Err(Error::Locked { .. })), "{name}");
        assert!(matches!(tree.lookup(found.number, b"x"), Err(Error::Locked { .. })));
        let open = Tree::open(pool.clone(), name, Box::new(|_| {}));
        assert!(matches!(open.err(), Some(engine::Error::Locked { .. })), "{name}");
    }
}
