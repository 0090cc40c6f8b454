//! Snapshots go into a repository, and come out of it as they were: after prunes, and without keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::backup::{
    BackupCounts, BackupRepository, CheckOptions, Faults, MemoryStore, ObjectStore, PruneOptions,
};
use engine::files::{DatasetCatalog, FileSystemReader};
use engine::pool::{BackupRequest, Environment, NewDataset, Pool};
use job::Job;
use units::ObjectId;

use crate::test_pool::{create_memory_pool, credentials, environment, write_file};

pub(crate) const NOW: u64 = 1_700_000_000;
pub(crate) const SECRET: &[u8] = b"correct horse battery staple";

/// The files of the root directory with their content.
pub(crate) type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn read_tree(files: &FileSystemReader) -> Tree {
    let root = files.root().unwrap();
    let mut tree = Tree::new();
    for entry in files.read_dir_sorted(&root).unwrap() {
        let file = files.file(entry.ino).unwrap();
        let mut bytes = vec![0; usize::try_from(file.stat().size).unwrap()];
        file.content().read(0, &mut bytes).unwrap();
        tree.insert(entry.name, bytes);
    }
    tree
}

pub(crate) fn small_pool() -> (Pool, Environment) {
    let environment = environment();
    let (pool, _) = create_memory_pool(192 << 20, &environment);
    (pool, environment)
}

pub(crate) fn new_dataset(name: &str) -> NewDataset {
    NewDataset { name: name.to_owned(), properties: Vec::new() }
}

pub(crate) fn snapshot(pool: &Pool, name: &str) {
    pool.snapshots().create(&[name.to_owned()]).unwrap();
}

pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

pub(crate) fn create(store: &Arc<MemoryStore>, environment: &Environment) -> BackupRepository {
    let store = Arc::clone(store) as Arc<dyn ObjectStore>;
    BackupRepository::create(store, &environment.random, NOW).unwrap()
}

pub(crate) fn open(store: &Arc<MemoryStore>) -> BackupRepository {
    BackupRepository::open(Arc::clone(store) as Arc<dyn ObjectStore>).unwrap()
}

pub(crate) fn back_up(
    pool: &Pool,
    repository: &BackupRepository,
    targets: &[&str],
) -> engine::Result<(Vec<String>, BackupCounts)> {
    let targets = targets.iter().map(|target| (*target).to_owned()).collect();
    let request = BackupRequest { targets, recursive: true, ..BackupRequest::default() };
    let done = pool.streams().back_up(repository, &request, &Job::default())?;
    Ok((done.added, done.counts))
}

pub(crate) fn prune(
    repository: &BackupRepository,
    removed: &[&str],
    environment: &Environment,
) -> engine::Result<engine::backup::PruneReport> {
    repository.prune(
        &|it| removed.contains(&it.name().as_str()),
        PruneOptions::default(),
        &environment.random,
        NOW,
        &Job::default(),
    )
}

pub(crate) fn assert_sound(repository: &BackupRepository) {
    let report = repository.check(CheckOptions::default(), &Job::default()).unwrap();
    assert_eq!(report.damages, [], "of {} blocks", report.blocks);
    assert_eq!(report.snapshots, repository.snapshots().len() as u64);
}

pub(crate) fn tree_in(repository: &BackupRepository, name: &str) -> Tree {
    read_tree(&repository.open_filesystem(name).unwrap().0)
}

#[test]
fn incremental_backups_store_only_new_blocks() {
    let (pool, environment) = small_pool();
    let store = Arc::new(MemoryStore::default());
    let repository = create(&store, &environment);
    pool.datasets().create_filesystem(&new_dataset("tank/a")).unwrap();
    write_file(&pool, "tank/a", "large", &noise(1, 3_000_000));
    snapshot(&pool, "tank/a@one");
    let (added, first) = back_up(&pool, &repository, &["tank/a"]).unwrap();
    assert_eq!(added, ["tank/a@one"]);
    assert!(first.bytes > 3_000_000, "{first:?}");
    write_file(&pool, "tank/a", "small", &noise(2, 10_000));
    snapshot(&pool, "tank/a@two");
    let (added, second) = back_up(&pool, &repository, &["tank/a"]).unwrap();
    assert_eq!(added, ["tank/a@two"]);
    assert!(second.bytes < 100_000, "{second:?}");
    assert_eq!(back_up(&pool, &repository, &["tank/a"]).unwrap().0, Vec::<String>::new());
    // a reader without the pool
    let reader = open(&store);
    assert_sound(&reader);
    assert_eq!(tree_in(&reader, "tank/a@one").len(), 1);
    let newest = tree_in(&reader, "tank/a");
    assert_eq!(newest[&b"small"[..]], noise(2, 10_000));
    assert_eq!(newest[&b"large"[..]], noise(1, 3_000_000));
}

#[test]
fn prune_gives_back_space_of_removed_snapshots() {
    let (pool, environment) = small_pool();
    let store = Arc::new(MemoryStore::default());
    let repository = create(&store, &environment);
    write_file(&pool, "tank", "gone", &noise(1, 4_000_000));
    write_file(&pool, "tank", "stays", &noise(2, 1_000_000));
    snapshot(&pool, "tank@one");
    back_up(&pool, &repository, &["tank"]).unwrap();
    let live = pool.datasets().filesystem("tank").unwrap();
    let root = ObjectId::new(live.reader().root().unwrap().ino());
    live.unlink(&credentials(), root, b"gone").unwrap();
    snapshot(&pool, "tank@two");
    back_up(&pool, &repository, &["tank"]).unwrap();
    let before = store.bytes("packs/");
    // a reader that opened the snapshot before the prune continues
    let files = open(&store).open_filesystem("tank@two").unwrap().0;
    let report = prune(&repository, &["tank@one"], &environment).unwrap();
    assert_eq!(report.removed_snapshots, ["tank@one"]);
    assert!(report.repacked_packs > 0 && report.undeleted.is_empty(), "{report:?}");
    assert!(store.bytes("packs/") < 1_500_000 && before > 5_000_000);
    assert_eq!(read_tree(&files)[&b"stays"[..]], noise(2, 1_000_000));
    let reader = open(&store);
    assert_sound(&reader);
    assert!(reader.open_filesystem("tank@one").is_err());
    assert_eq!(tree_in(&reader, "tank@two").keys().collect::<Vec<_>>(), [b"stays"]);
    // the next increment builds on the remaining one
    write_file(&pool, "tank", "new", &noise(3, 50_000));
    snapshot(&pool, "tank@three");
    let (_, counts) = back_up(&pool, &repository, &["tank"]).unwrap();
    assert!(counts.bytes < 200_000, "{counts:?}");
    assert_sound(&open(&store));
    assert_eq!(tree_in(&open(&store), "tank@three")[&b"stays"[..]], noise(2, 1_000_000));
}

#[test]
fn backup_of_locked_snapshots_needs_no_keys() {
    let (pool, environment) = small_pool();
    let store = Arc::new(MemoryStore::default());
    let repository = create(&store, &environment);
    let properties = [("encryption", "on"), ("keyformat", "passphrase"), ("pbkdf2iters", "100000")];
    let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let safe = NewDataset { name: "tank/safe".to_owned(), properties };
    pool.datasets().create_filesystem_with(&safe, Some(SECRET)).unwrap();
    pool.datasets().create_filesystem(&new_dataset("tank/safe/inner")).unwrap();
    write_file(&pool, "tank/safe", "letter", b"to be or not to be");
    write_file(&pool, "tank/safe/inner", "large", &noise(1, 1_000_000));
    pool.snapshots()
        .create(&["tank/safe@one".to_owned(), "tank/safe/inner@one".to_owned()])
        .unwrap();
    pool.sync().unwrap();
    pool.keys().unload("tank/safe").unwrap();
    back_up(&pool, &repository, &["tank/safe@one"]).unwrap();
    let reader = open(&store);
    assert_sound(&reader);
    let locked = reader.open_filesystem("tank/safe/inner@one").err().unwrap();
    assert!(matches!(&locked, engine::Error::Locked { root, .. } if root == "tank/safe"));
    let wrong = reader.load_key("tank/safe", b"another phrase").unwrap_err();
    assert!(matches!(wrong, engine::Error::WrongKey { .. }), "{wrong}");
    reader.load_key("tank/safe", SECRET).unwrap();
    assert_eq!(tree_in(&reader, "tank/safe@one")[&b"letter"[..]], b"to be or not to be");
    assert_eq!(tree_in(&reader, "tank/safe/inner")[&b"large"[..]], noise(1, 1_000_000));
    prune(&open(&store), &["tank/safe@one"], &environment).unwrap();
    let reader = open(&store);
    reader.load_key("tank/safe", SECRET).unwrap();
    assert_eq!(tree_in(&reader, "tank/safe/inner")[&b"large"[..]], noise(1, 1_000_000));
}

/// A pool with a repository that has one snapshot, and a second one to add.
pub(crate) fn half_backed_up() -> (Pool, Environment, Arc<MemoryStore>) {
    let (pool, environment) = small_pool();
    let store = Arc::new(MemoryStore::default());
    let repository = create(&store, &environment);
    write_file(&pool, "tank", "a", &noise(1, 600_000));
    snapshot(&pool, "tank@one");
    back_up(&pool, &repository, &["tank"]).unwrap();
    write_file(&pool, "tank", "b", &noise(2, 300_000));
    snapshot(&pool, "tank@two");
    (pool, environment, store)
}

#[test]
fn interrupted_runs_continue_with_stored_packs() {
    let (pool, environment) = small_pool();
    let store = Arc::new(MemoryStore::default());
    create(&store, &environment);
    write_file(&pool, "tank", "large", &noise(1, 70 << 20));
    snapshot(&pool, "tank@one");
    let repository = open(&store);
    // the head is read with two requests, packs are listed with one, the first pack is stored with one
    store.set_faults(Faults { requests_left: Some(4), ..Faults::default() });
    assert!(back_up(&pool, &repository, &["tank"]).is_err());
    store.set_faults(Faults::default());
    let stored = store.bytes("packs/");
    assert!(stored > 30 << 20, "{stored}");
    let (_, counts) = back_up(&pool, &open(&store), &["tank"]).unwrap();
    assert!(counts.resumed_blocks > 200, "{counts:?}");
    assert!(counts.bytes < 45 << 20, "{counts:?}");
    assert_sound(&open(&store));
}
