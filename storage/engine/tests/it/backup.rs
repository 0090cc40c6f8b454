//! Snapshots go into a repository, and come out of it as they were: after prunes, cuts at every request, with
//! several writers, without keys, and from a store that fails or lies.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use engine::backup::{
    BackupCounts, BackupRepository, CheckOptions, Faults, MemoryStore, ObjectStore, PruneOptions,
    SnapshotSummary,
};
use engine::files::{DatasetCatalog, FileSystemReader};
use engine::pool::{BackupRequest, Environment, NewDataset, Pool};
use job::Job;
use posix::WriteOffset;
use units::ObjectId;

use crate::test_pool::{create_memory_pool, credentials, environment, write_file};

const NOW: u64 = 1_700_000_000;
const SECRET: &[u8] = b"correct horse battery staple";

/// The files of the root directory with their content.
type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

fn read_tree(files: &FileSystemReader) -> Tree {
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

fn small_pool() -> (Pool, Environment) {
    let environment = environment();
    let (pool, _) = create_memory_pool(192 << 20, &environment);
    (pool, environment)
}

fn new_dataset(name: &str) -> NewDataset {
    NewDataset { name: name.to_owned(), properties: Vec::new() }
}

fn snapshot(pool: &Pool, name: &str) {
    pool.create_snapshots(&[name.to_owned()]).unwrap();
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

fn create(store: &Arc<MemoryStore>, environment: &Environment) -> BackupRepository {
    let store = Arc::clone(store) as Arc<dyn ObjectStore>;
    BackupRepository::create(store, &environment.random, NOW).unwrap()
}

fn open(store: &Arc<MemoryStore>) -> BackupRepository {
    BackupRepository::open(Arc::clone(store) as Arc<dyn ObjectStore>).unwrap()
}

fn back_up(
    pool: &Pool,
    repository: &BackupRepository,
    targets: &[&str],
) -> engine::Result<(Vec<String>, BackupCounts)> {
    let targets = targets.iter().map(|target| (*target).to_owned()).collect();
    let request = BackupRequest { targets, recursive: true };
    pool.back_up(repository, &request, &Job::default())
}

fn prune(
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

fn assert_sound(repository: &BackupRepository) {
    let report = repository.check(CheckOptions::default(), &Job::default()).unwrap();
    assert_eq!(report.damages, [], "of {} blocks", report.blocks);
    assert_eq!(report.snapshots, repository.snapshots().len() as u64);
}

fn tree_in(repository: &BackupRepository, name: &str) -> Tree {
    read_tree(&repository.open_filesystem(name).unwrap().0)
}

#[test]
fn incremental_backups_store_only_new_blocks() {
    let (pool, environment) = small_pool();
    let store = Arc::new(MemoryStore::default());
    let repository = create(&store, &environment);
    pool.create_filesystem(&new_dataset("tank/a")).unwrap();
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
    let live = pool.filesystem("tank").unwrap();
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
    pool.create_filesystem_with(&safe, Some(SECRET)).unwrap();
    pool.create_filesystem(&new_dataset("tank/safe/inner")).unwrap();
    write_file(&pool, "tank/safe", "letter", b"to be or not to be");
    write_file(&pool, "tank/safe/inner", "large", &noise(1, 1_000_000));
    pool.create_snapshots(&["tank/safe@one".to_owned(), "tank/safe/inner@one".to_owned()]).unwrap();
    pool.sync().unwrap();
    pool.unload_key("tank/safe").unwrap();
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
fn half_backed_up() -> (Pool, Environment, Arc<MemoryStore>) {
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
fn runs_cut_at_any_request_lose_nothing() {
    for last_request_is_done in [false, true] {
        for requests in 0.. {
            let (pool, _, store) = half_backed_up();
            let repository = open(&store);
            let requests_left = Some(requests);
            store.set_faults(Faults { requests_left, last_request_is_done, ..Faults::default() });
            let cut = back_up(&pool, &repository, &["tank"]);
            store.set_faults(Faults::default());
            let reader = open(&store);
            assert_sound(&reader);
            assert_eq!(tree_in(&reader, "tank@one").len(), 1, "after {requests}");
            let is_done = cut.is_ok();
            back_up(&pool, &open(&store), &["tank"]).unwrap();
            let reader = open(&store);
            assert_sound(&reader);
            assert_eq!(tree_in(&reader, "tank@two")[&b"b"[..]], noise(2, 300_000));
            assert_eq!(reader.snapshots().len(), 2);
            if is_done {
                assert!(requests > 5, "only {requests} requests");
                break;
            }
        }
    }
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

#[test]
fn prunes_cut_at_any_request_lose_nothing() {
    for last_request_is_done in [false, true] {
        for requests in 0.. {
            let (pool, environment, store) = half_backed_up();
            back_up(&pool, &open(&store), &["tank"]).unwrap();
            let repository = open(&store);
            let requests_left = Some(requests);
            store.set_faults(Faults { requests_left, last_request_is_done, ..Faults::default() });
            let cut = prune(&repository, &["tank@one"], &environment);
            let is_done = cut.as_ref().is_ok_and(|report| report.undeleted.is_empty());
            store.set_faults(Faults::default());
            assert_sound(&open(&store));
            assert_eq!(tree_in(&open(&store), "tank@two").len(), 2, "after {requests}");
            prune(&open(&store), &["tank@one"], &environment).unwrap();
            assert_sound(&open(&store));
            assert_eq!(tree_in(&open(&store), "tank@two").len(), 2, "after {requests}");
            let garbage = store.names().iter().filter(|it| it.starts_with("snapshots/")).count();
            assert_eq!(garbage, 1, "after {requests}");
            if is_done {
                assert!(requests > 10, "only {requests} requests");
                break;
            }
        }
    }
}

#[test]
fn second_writer_is_refused() {
    let (pool, environment, store) = half_backed_up();
    let (first, second) = (open(&store), open(&store));
    // both begin at the same head: the second reads a list without the first one's objects
    back_up(&pool, &first, &["tank"]).unwrap();
    write_file(&pool, "tank", "c", &noise(3, 1000));
    snapshot(&pool, "tank@three");
    let job = Job::default();
    let raced = Arc::new(RacingStore { store: Arc::clone(&store), pool: pool.clone() });
    let racing = BackupRepository::open(raced as Arc<dyn ObjectStore>).unwrap();
    let request = BackupRequest { targets: vec!["tank".to_owned()], recursive: false };
    let refused = pool.back_up(&racing, &request, &job).unwrap_err().to_string();
    assert!(refused.contains("another backup or prune changed the repository"), "{refused}");
    assert_sound(&open(&store));
    prune(&second, &["tank@one"], &environment).unwrap();
    assert_sound(&open(&store));
    assert_eq!(tree_in(&open(&store), "tank@three").len(), 3);
}

/// A store in which another writer is faster: its run is done whenever this one is about to store an index.
struct RacingStore {
    store: Arc<MemoryStore>,
    pool: Pool,
}

impl ObjectStore for RacingStore {
    fn location(&self) -> String {
        self.store.location()
    }

    fn create(&self, name: &str, content: &[u8]) -> Result<(), engine::backup::StoreError> {
        if name.starts_with("index/") {
            back_up(&self.pool, &open(&self.store), &["tank"]).unwrap();
        }
        self.store.create(name, content)
    }

    fn read(
        &self,
        name: &str,
        range: std::ops::Range<u64>,
    ) -> Result<Vec<u8>, engine::backup::StoreError> {
        self.store.read(name, range)
    }

    fn size(&self, name: &str) -> Result<u64, engine::backup::StoreError> {
        self.store.size(name)
    }

    fn list(
        &self,
        prefix: &str,
    ) -> Result<Vec<engine::backup::ObjectInfo>, engine::backup::StoreError> {
        self.store.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<(), engine::backup::StoreError> {
        self.store.delete(name)
    }
}

#[test]
fn damaged_objects_are_found_and_never_believed() {
    let (pool, _, store) = half_backed_up();
    back_up(&pool, &open(&store), &["tank"]).unwrap();
    let expected = tree_in(&open(&store), "tank@two");
    let read = |store: &Arc<MemoryStore>| -> engine::Result<Tree> {
        let repository = BackupRepository::open(Arc::clone(store) as Arc<dyn ObjectStore>)?;
        let report = repository.check(CheckOptions::default(), &Job::default())?;
        let files = repository.open_filesystem("tank@two")?.0;
        let root = files.root().map_err(|why| unreadable(&why))?;
        let mut tree = Tree::new();
        for entry in files.read_dir_sorted(&root).map_err(|why| unreadable(&why))? {
            let file = files.file(entry.ino).map_err(|why| unreadable(&why))?;
            let mut bytes = vec![0; usize::try_from(file.stat().size).unwrap()];
            file.content().read(0, &mut bytes).map_err(|why| unreadable(&why))?;
            tree.insert(entry.name, bytes);
        }
        if report.damage_count > 0 { Err(unreadable(&"the check found damage")) } else { Ok(tree) }
    };
    let (mut found, mut tried) = (0, 0);
    for name in store.names() {
        for part in [0_usize, 1, 2, 3, 5, 7, 8] {
            let mut before = Vec::new();
            store.tamper(&name, &mut |object| {
                before.clone_from(object);
                let at = (object.len() - 1) * part / 8;
                object[at] ^= 4;
            });
            tried += 1;
            match read(&store) {
                Ok(tree) => assert!(tree == expected, "{name} {part}"),
                Err(_) => found += 1,
            }
            store.tamper(&name, &mut |object| object.clone_from(&before));
        }
        let mut whole = Vec::new();
        store.tamper(&name, &mut |object| whole = std::mem::take(object));
        assert!(read(&store).map_or(true, |tree| tree == expected), "{name} is empty");
        store.tamper(&name, &mut |object| object.clone_from(&whole));
    }
    assert!(found * 2 > tried, "only {found} of {tried} were found");
    assert_eq!(read(&store).unwrap(), expected);
}

fn unreadable(why: &dyn std::fmt::Display) -> engine::Error {
    engine::Error::Unreadable { subject: "it".to_owned(), why: why.to_string() }
}

#[test]
fn failing_and_stale_stores_are_never_believed() {
    let (pool, environment, store) = half_backed_up();
    back_up(&pool, &open(&store), &["tank"]).unwrap();
    let expected = tree_in(&open(&store), "tank@two");
    // a list that lacks heads is not believed
    store.set_faults(Faults { stale_heads: 2, ..Faults::default() });
    assert_eq!(open(&store).snapshots().len(), 2);
    assert_eq!(tree_in(&open(&store), "tank@two"), expected);
    store.set_faults(Faults { cuts_reads: true, ..Faults::default() });
    let cut = BackupRepository::open(Arc::clone(&store) as Arc<dyn ObjectStore>);
    assert!(cut.is_err());
    store.set_faults(Faults::default());
    for period in 2..9 {
        let repository = open(&store);
        store.set_faults(Faults { failing_period: period, ..Faults::default() });
        if let Ok((files, _)) = repository.open_filesystem("tank@two") {
            let file = files.find(b"a").ok().flatten();
            let mut bytes = vec![0; 600_000];
            if file.is_some_and(|file| file.content().read(0, &mut bytes).is_ok()) {
                assert_eq!(bytes, noise(1, 600_000));
            }
        }
        let _ = prune(&repository, &[], &environment);
        store.set_faults(Faults::default());
        assert_eq!(tree_in(&open(&store), "tank@two"), expected);
    }
    // object lock: what cannot be deleted stays, and the next prune tries again
    store.set_faults(Faults { refuses_deletes: true, ..Faults::default() });
    let report = prune(&open(&store), &["tank@one"], &environment).unwrap();
    assert!(report.deleted_objects == 0 && !report.undeleted.is_empty());
    store.set_faults(Faults::default());
    assert!(prune(&open(&store), &[], &environment).unwrap().deleted_objects > 0);
    assert_eq!(tree_in(&open(&store), "tank@two"), expected);
}

/// Random numbers of one seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % end
    }
}

/// A history of a pool and its repository.
struct History {
    pool: Pool,
    environment: Environment,
    store: Arc<MemoryStore>,
    random: Random,
    datasets: Vec<String>,
    /// The content of each snapshot that was ever made, by name and guid-less number.
    trees: HashMap<String, Tree>,
    next: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let (pool, environment) = small_pool();
        let store = Arc::new(MemoryStore::default());
        create(&store, &environment);
        pool.create_filesystem(&new_dataset("tank/a")).unwrap();
        let (random, trees) = (Random(seed), HashMap::new());
        let datasets = vec!["tank/a".to_owned()];
        Self { pool, environment, store, random, datasets, trees, next: 0 }
    }

    fn any_dataset(&mut self) -> String {
        let at = self.random.below(self.datasets.len() as u64);
        self.datasets[usize::try_from(at).unwrap()].clone()
    }

    fn newest_snapshot(&self, dataset: &str) -> Option<String> {
        let snapshots = self.pool.snapshots(dataset).unwrap();
        snapshots.last().map(|newest| format!("{dataset}@{}", newest.name))
    }

    fn write(&mut self) {
        let (dataset, seed) = (self.any_dataset(), self.next);
        let live = self.pool.filesystem(&dataset).unwrap();
        let root = ObjectId::new(live.reader().root().unwrap().ino());
        let name = format!("f{}", self.random.below(6));
        let length = usize::try_from(self.random.below(150_000)).unwrap();
        match live.reader().find(name.as_bytes()).unwrap() {
            Some(_) if self.random.below(3) == 0 => {
                live.unlink(&credentials(), root, name.as_bytes()).unwrap();
            }
            Some(file) => {
                let at = WriteOffset::At(self.random.below(300_000));
                let file = ObjectId::new(file.ino());
                live.write(&credentials(), file, at, &noise(seed, length)).unwrap();
            }
            None => write_file(&self.pool, &dataset, &name, &noise(seed, length)),
        }
    }

    fn snapshot(&mut self) {
        let name = format!("{}@s{}", self.any_dataset(), self.next);
        snapshot(&self.pool, &name);
        let tree = read_tree(&self.pool.synced_reader(&name).unwrap());
        self.trees.insert(name, tree);
    }

    fn step(&mut self) {
        self.next += 1;
        match self.random.below(20) {
            0..9 => self.write(),
            9..12 => self.snapshot(),
            12 => {
                let dataset = self.any_dataset();
                let snapshots = self.pool.snapshots(&dataset).unwrap();
                if let Some(one) = snapshots.first() {
                    // a snapshot with clones stays
                    let _ = self.pool.destroy(&format!("{dataset}@{}", one.name));
                }
            }
            13 => {
                let dataset = self.any_dataset();
                let _ = self.pool.rollback_dataset(&dataset);
            }
            14 => {
                let origin = self.any_dataset();
                let clone = format!("tank/c{}", self.next);
                if let Some(origin) = self.newest_snapshot(&origin)
                    && self.datasets.len() < 4
                {
                    self.pool.clone_snapshot(&origin, &new_dataset(&clone)).unwrap();
                    self.datasets.push(clone);
                }
            }
            15..18 => drop(back_up(&self.pool, &open(&self.store), &["tank"]).unwrap()),
            18 => {
                let names: Vec<String> =
                    open(&self.store).snapshots().iter().map(SnapshotSummary::name).collect();
                let removed: Vec<&str> = names
                    .iter()
                    .filter(|_| self.random.below(3) == 0)
                    .map(String::as_str)
                    .collect();
                prune(&open(&self.store), &removed, &self.environment).unwrap();
            }
            _ => {
                let requests_left = Some(self.random.below(30));
                self.store.set_faults(Faults { requests_left, ..Faults::default() });
                if let Ok(repository) =
                    BackupRepository::open(Arc::clone(&self.store) as Arc<dyn ObjectStore>)
                {
                    let _ = back_up(&self.pool, &repository, &["tank"]);
                    let _ = prune(&repository, &[], &self.environment);
                }
                self.store.set_faults(Faults::default());
            }
        }
    }

    fn check(&self) {
        let repository = open(&self.store);
        assert_sound(&repository);
        for snapshot in repository.snapshots() {
            let name = snapshot.name();
            assert!(tree_in(&repository, &name) == self.trees[&name], "{name}");
        }
    }
}

fn run_history(seed: u64, steps: u64) {
    let mut history = History::new(seed);
    for step in 0..steps {
        history.step();
        if step % 40 == 39 {
            history.check();
        }
    }
    history.check();
}

#[test]
fn repository_snapshots_equal_those_of_the_pool() {
    (1..=6).for_each(|seed| run_history(seed, 120));
}

#[test]
#[ignore = "takes minutes: `make test-long`"]
fn long_histories_equal_those_of_the_pool() {
    (1000..1200).for_each(|seed| run_history(seed, 300));
}
