//! Random histories of a pool and its repository: each snapshot in the repository equals the one of the pool,
//! block by block, before and after each prune.

use std::collections::HashMap;
use std::sync::Arc;

use engine::backup::{
    BackupRepository, Faults, MemoryStore, ObjectStore, RepositorySend, SnapshotSummary,
};
use engine::pool::{Environment, Pool, SendRequest};
use posix::WriteOffset;
use units::ObjectId;

use crate::backup::{
    Tree, assert_sound, back_up, create, new_dataset, noise, open, prune, read_tree, small_pool,
    snapshot, tree_in,
};
use crate::test_pool::{credentials, write_file};

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
    /// Bytes of a write at most.
    max_write: u64,
    next: u64,
}

impl History {
    fn new(seed: u64, max_write: u64) -> Self {
        let (pool, environment) = small_pool();
        let store = Arc::new(MemoryStore::default());
        create(&store, &environment);
        pool.datasets().create_filesystem(&new_dataset("tank/a")).unwrap();
        let (random, trees) = (Random(seed), HashMap::new());
        let datasets = vec!["tank/a".to_owned()];
        Self { pool, environment, store, random, datasets, trees, max_write, next: 0 }
    }

    fn any_dataset(&mut self) -> String {
        let at = self.random.below(self.datasets.len() as u64);
        self.datasets[usize::try_from(at).unwrap()].clone()
    }

    fn newest_snapshot(&self, dataset: &str) -> Option<String> {
        let snapshots = self.pool.snapshots().list(dataset).unwrap();
        snapshots.last().map(|newest| format!("{dataset}@{}", newest.name))
    }

    fn write(&mut self) {
        let (dataset, seed) = (self.any_dataset(), self.next);
        let live = self.pool.datasets().filesystem(&dataset).unwrap();
        let root = ObjectId::new(live.reader().root().unwrap().ino());
        let name = format!("f{}", self.random.below(6));
        let length = usize::try_from(self.random.below(self.max_write)).unwrap();
        match live.reader().find(name.as_bytes()).unwrap() {
            Some(_) if self.random.below(3) == 0 => {
                live.unlink(&credentials(), root, name.as_bytes()).unwrap();
            }
            Some(file) => {
                let at = WriteOffset::At(self.random.below(2 * self.max_write));
                let file = ObjectId::new(file.ino());
                live.write(&credentials(), file, at, &noise(seed, length)).unwrap();
            }
            None => write_file(&self.pool, &dataset, &name, &noise(seed, length)),
        }
    }

    fn snapshot(&mut self) {
        let name = format!("{}@s{}", self.any_dataset(), self.next);
        snapshot(&self.pool, &name);
        let tree = read_tree(&self.pool.datasets().synced_reader(&name).unwrap());
        self.trees.insert(name, tree);
    }

    fn step(&mut self) {
        self.next += 1;
        match self.random.below(20) {
            0..9 => self.write(),
            9..12 => self.snapshot(),
            12 => {
                let dataset = self.any_dataset();
                let snapshots = self.pool.snapshots().list(&dataset).unwrap();
                if let Some(one) = snapshots.first() {
                    // a snapshot with clones stays
                    let _ = self.pool.datasets().destroy(&format!("{dataset}@{}", one.name));
                }
            }
            13 => {
                let dataset = self.any_dataset();
                let _ = self.pool.snapshots().rollback(&dataset);
            }
            14 => {
                let origin = self.any_dataset();
                let clone = format!("tank/c{}", self.next);
                if let Some(origin) = self.newest_snapshot(&origin)
                    && self.datasets.len() < 4
                {
                    self.pool.snapshots().clone_snapshot(&origin, &new_dataset(&clone)).unwrap();
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
                self.check();
                prune(&open(&self.store), &removed, &self.environment).unwrap();
                self.check();
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
            if self.is_in_pool(&snapshot) {
                self.compare_blocks(&repository, &name);
            } else {
                assert!(tree_in(&repository, &name) == self.trees[&name], "{name}");
            }
        }
    }

    fn is_in_pool(&self, snapshot: &SnapshotSummary) -> bool {
        let listed = self.pool.snapshots().list(&snapshot.dataset).unwrap_or_default();
        listed.iter().any(|it| it.name == snapshot.snapshot && it.guid == snapshot.guid)
    }

    /// A stream with the stored form of every block: the pool and the repository send the same one.
    fn compare_blocks(&self, repository: &BackupRepository, name: &str) {
        let request = SendRequest { snapshot: name.to_owned(), raw: true, ..Default::default() };
        let (mut from_pool, mut from_repository) = (Vec::new(), Vec::new());
        self.pool.streams().send(&request, &mut from_pool).unwrap();
        let request = RepositorySend { snapshot: name.to_owned(), raw: true, ..Default::default() };
        repository.send(&request, &mut from_repository).unwrap();
        assert!(from_pool == from_repository, "{name}");
    }
}

fn run_history(seed: u64, max_write: u64, steps: u64) {
    let mut history = History::new(seed, max_write);
    for _ in 0..steps {
        history.step();
    }
    history.check();
}

#[test]
fn short_histories_equal_those_of_the_pool() {
    (1..=200).for_each(|seed| run_history(seed, 20_000, 40));
}

#[test]
fn histories_equal_those_of_the_pool() {
    (1001..=1003).for_each(|seed| run_history(seed, 150_000, 100));
}

/// `HISTORIES` of them (5000), and of each fiftieth a longer one.
#[test]
#[ignore = "takes minutes: `make test-long`"]
fn long_histories_equal_those_of_the_pool() {
    let wish = std::env::var("HISTORIES").ok().and_then(|count| count.parse().ok());
    let count: u64 = wish.unwrap_or(5000);
    (2000..2000 + count).for_each(|seed| run_history(seed, 20_000, 60));
    (7000..7000 + count / 50).for_each(|seed| run_history(seed, 150_000, 300));
}
