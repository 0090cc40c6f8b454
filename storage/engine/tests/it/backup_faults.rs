//! Repositories in stores that fail, lie or are cut at any request, and with several writers: nothing is lost, and
//! nothing wrong is believed.

use std::sync::Arc;

use engine::backup::{
    BackupRepository, CheckOptions, Faults, MemoryStore, ObjectStore, SingleFault, SnapshotSummary,
};
use engine::files::DatasetCatalog;
use engine::pool::{Environment, Pool};
use job::Job;

use crate::backup::{
    Tree, assert_sound, back_up, half_backed_up, noise, open, prune, snapshot, tree_in,
};
use crate::test_pool::write_file;

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

/// The work of a writer.
type Work = fn(&Pool, &BackupRepository, &Environment) -> engine::Result<()>;

const FAULTS: [SingleFault; 4] =
    [SingleFault::Refused, SingleFault::AnswerLost, SingleFault::Cut, SingleFault::Stale];

/// Does the work with each fault at each request. Afterwards the repository is sound, and the work
/// succeeds.
fn inject_everywhere(pool: &Pool, environment: &Environment, before: &MemoryStore, work: Work) {
    let expected = tree_in(&open(&Arc::new(before.copy())), "tank@two");
    let done = Arc::new(before.copy());
    work(pool, &open(&done), environment).unwrap();
    let names = |store: &Arc<MemoryStore>| -> Vec<String> {
        open(store).snapshots().iter().map(SnapshotSummary::name).collect()
    };
    let after = names(&done);
    for fault in FAULTS {
        for number in 1.. {
            let store = Arc::new(before.copy());
            let single = Some((number, fault));
            store.set_faults(Faults { single, ..Faults::default() });
            let done = BackupRepository::open(Arc::clone(&store) as Arc<dyn ObjectStore>)
                .and_then(|repository| work(pool, &repository, environment));
            let was_injected = store.requests() >= number;
            store.set_faults(Faults::default());
            let place = format!("{fault:?} at request {number}: {done:?}");
            assert_sound(&open(&store));
            assert!(tree_in(&open(&store), "tank@two") == expected, "{place}");
            work(pool, &open(&store), environment).expect(&place);
            assert_sound(&open(&store));
            assert!(names(&store) == after, "{place}");
            assert!(tree_in(&open(&store), "tank@two") == expected, "{place}");
            if !was_injected {
                done.expect(&place);
                assert!(number > 8, "only {number} requests");
                break;
            }
        }
    }
}

#[test]
fn faulty_requests_of_runs_lose_nothing() {
    let (pool, environment, store) = half_backed_up();
    back_up(&pool, &open(&store), &["tank"]).unwrap();
    write_file(&pool, "tank", "c", &noise(3, 200_000));
    snapshot(&pool, "tank@three");
    inject_everywhere(&pool, &environment, &store, |pool, repository, _| {
        back_up(pool, repository, &["tank"]).map(drop)
    });
}

#[test]
fn faulty_requests_of_prunes_lose_nothing() {
    let (pool, environment, store) = half_backed_up();
    back_up(&pool, &open(&store), &["tank"]).unwrap();
    inject_everywhere(&pool, &environment, &store, |_, repository, environment| {
        prune(repository, &["tank@one"], environment).map(drop)
    });
}

#[test]
fn runs_need_no_right_to_delete() {
    let (pool, environment, store) = half_backed_up();
    store.set_faults(Faults { refuses_deletes: true, ..Faults::default() });
    back_up(&pool, &open(&store), &["tank"]).unwrap();
    // a key that can delete belongs to the prune alone
    let report = prune(&open(&store), &["tank@one"], &environment).unwrap();
    assert!(report.deleted_objects == 0 && !report.undeleted.is_empty());
    assert_sound(&open(&store));
    store.set_faults(Faults::default());
    assert!(prune(&open(&store), &[], &environment).unwrap().undeleted.is_empty());
    assert_eq!(tree_in(&open(&store), "tank@two").len(), 2);
}

#[test]
fn run_that_meets_a_prune_is_refused() {
    let (pool, environment, store) = half_backed_up();
    let rival = move |store: &Arc<MemoryStore>| {
        drop(prune(&open(store), &["tank@one"], &environment).unwrap());
    };
    let raced = Arc::new(RacingStore { store: Arc::clone(&store), rival: Box::new(rival) });
    let racing = BackupRepository::open(raced as Arc<dyn ObjectStore>).unwrap();
    let refused = back_up(&pool, &racing, &["tank"]).unwrap_err().to_string();
    assert!(refused.contains("another backup or prune changed the repository"), "{refused}");
    assert_sound(&open(&store));
    // the snapshot on which the increment built is gone
    back_up(&pool, &open(&store), &["tank"]).unwrap();
    assert_sound(&open(&store));
    assert_eq!(tree_in(&open(&store), "tank@two")[&b"a"[..]], noise(1, 600_000));
}

#[test]
fn second_writer_is_refused() {
    let (pool, environment, store) = half_backed_up();
    let (first, second) = (open(&store), open(&store));
    // both begin at the same head: the second reads a list without the first one's objects
    back_up(&pool, &first, &["tank"]).unwrap();
    write_file(&pool, "tank", "c", &noise(3, 1000));
    snapshot(&pool, "tank@three");
    let rival_pool = pool.clone();
    let rival = move |store: &Arc<MemoryStore>| {
        drop(back_up(&rival_pool, &open(store), &["tank"]).unwrap());
    };
    let raced = Arc::new(RacingStore { store: Arc::clone(&store), rival: Box::new(rival) });
    let racing = BackupRepository::open(raced as Arc<dyn ObjectStore>).unwrap();
    let refused = back_up(&pool, &racing, &["tank"]).unwrap_err().to_string();
    assert!(refused.contains("another backup or prune changed the repository"), "{refused}");
    assert_sound(&open(&store));
    prune(&second, &["tank@one"], &environment).unwrap();
    assert_sound(&open(&store));
    assert_eq!(tree_in(&open(&store), "tank@three").len(), 3);
}

/// The work of the other writer.
type Rival = Box<dyn Fn(&Arc<MemoryStore>) + Send + Sync>;

/// A store in which another writer is faster: it works whenever this one is about to store an index.
struct RacingStore {
    store: Arc<MemoryStore>,
    rival: Rival,
}

impl ObjectStore for RacingStore {
    fn location(&self) -> String {
        self.store.location()
    }

    fn create(&self, name: &str, content: &[u8]) -> Result<(), engine::backup::StoreError> {
        if name.starts_with("index/") {
            (self.rival)(&self.store);
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
