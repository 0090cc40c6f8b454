//! Streams out of a repository are those of the pool, and a pool that receives them has the same data.

use std::sync::Arc;

use engine::backup::{BackupRepository, MemoryStore, RepositorySend};
use engine::pool::{Environment, NewDataset, Pool, ReceiveRequest, SendRequest, VdevLayout};

use crate::backup::{SECRET, back_up, create, new_dataset, noise, open, small_pool, snapshot};
use crate::streams::close_and_check;
use crate::test_pool::{TempDir, environment, new_pool, read_file, write_file};

/// A pool with a file system, a clone, a volume and an encrypted file system, two snapshots each, all in a
/// repository.
struct Example {
    pool: Pool,
    _environment: Environment,
    store: Arc<MemoryStore>,
}

impl Example {
    fn new() -> Self {
        let (pool, environment) = small_pool();
        let store = Arc::new(MemoryStore::default());
        create(&store, &environment);
        let large = NewDataset {
            name: "tank/a".to_owned(),
            properties: vec![("recordsize".to_owned(), "1M".to_owned())],
        };
        pool.datasets().create_filesystem(&large).unwrap();
        let properties =
            [("encryption", "on"), ("keyformat", "passphrase"), ("pbkdf2iters", "100000")];
        let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let safe = NewDataset { name: "tank/safe".to_owned(), properties: properties.to_vec() };
        pool.datasets().create_filesystem_with(&safe, Some(SECRET)).unwrap();
        pool.volumes().create(&new_dataset("tank/vol"), 8 << 20, 16 << 10, true).unwrap();
        for (round, part) in ["one", "two"].into_iter().enumerate() {
            let seed = round as u64 * 10;
            write_file(&pool, "tank/a", &format!("large{round}"), &noise(seed + 1, 2_500_000));
            write_file(&pool, "tank/a", &format!("zeros{round}"), &vec![7; 300_000]);
            write_file(&pool, "tank/a", &format!("tiny{round}"), b"tiny");
            write_file(&pool, "tank/safe", &format!("letter{round}"), &noise(seed + 2, 90_000));
            let opened = pool.volumes().get("tank/vol").unwrap();
            opened.write(round as u64 * (1 << 20), &noise(seed + 3, 200_000)).unwrap();
            let names = ["tank/a", "tank/safe", "tank/vol"].map(|name| format!("{name}@{part}"));
            pool.snapshots().create(&names).unwrap();
        }
        pool.snapshots().clone_snapshot("tank/a@two", &new_dataset("tank/c")).unwrap();
        write_file(&pool, "tank/c", "changed", &noise(30, 70_000));
        snapshot(&pool, "tank/c@three");
        back_up(&pool, &open(&store), &["tank"]).unwrap();
        Self { pool, _environment: environment, store }
    }

    fn repository(&self) -> BackupRepository {
        open(&self.store)
    }
}

fn send(repository: &BackupRepository, request: &RepositorySend) -> Vec<u8> {
    let mut stream = Vec::new();
    repository.send(request, &mut stream).unwrap();
    stream
}

fn raw(snapshot: &str, base: Option<&str>) -> RepositorySend {
    let base = base.map(str::to_owned);
    RepositorySend { snapshot: snapshot.to_owned(), base, raw: true, ..RepositorySend::default() }
}

#[test]
fn repository_sends_the_streams_of_the_pool() {
    let example = Example::new();
    let repository = example.repository();
    repository.load_key("tank/safe", SECRET).unwrap();
    let increments = [
        ("tank/a@one", None),
        ("tank/a@two", Some("tank/a@one")),
        ("tank/c@three", Some("tank/a@two")),
        ("tank/c@three", None),
        ("tank/vol@two", Some("tank/vol@one")),
        ("tank/safe@one", None),
        ("tank/safe@two", Some("tank/safe@one")),
    ];
    for (snapshot, base) in increments {
        for options in 0..8 {
            let (raw, compressed, large) = (options & 4 != 0, options & 1 != 0, options & 2 != 0);
            let (snapshot, base) = (snapshot.to_owned(), base.map(str::to_owned));
            let request = SendRequest {
                snapshot: snapshot.clone(),
                base: base.clone(),
                large_blocks: large,
                embedded: compressed,
                compressed,
                raw,
                ..SendRequest::default()
            };
            let mut expected = Vec::new();
            example.pool.streams().send(&request, &mut expected).unwrap();
            let (large_blocks, embedded) = (large, compressed);
            let resume = None;
            let request =
                RepositorySend { snapshot, base, large_blocks, embedded, compressed, raw, resume };
            assert!(send(&repository, &request) == expected, "{request:?}");
        }
    }
}

#[test]
fn received_snapshots_equal_the_lost_pool() {
    let Example { pool, store, .. } = Example::new();
    drop(pool);
    let repository = open(&store);
    let folder = TempDir::new("from-repository", 1, 192 << 20);
    let environment = environment();
    let new = new_pool(&folder, VdevLayout::Single, 1);
    let pool = engine::pool::create(&new, &environment).unwrap();
    for (snapshot, base, target) in [
        ("tank/a@one", None, "tank/a"),
        ("tank/a@two", Some("tank/a@one"), "tank/a"),
        ("tank/c@three", Some("tank/a@two"), "tank/c"),
        ("tank/vol@one", None, "tank/vol"),
        ("tank/vol@two", Some("tank/vol@one"), "tank/vol"),
        ("tank/safe@one", None, "tank/safe"),
        ("tank/safe@two", Some("tank/safe@one"), "tank/safe"),
    ] {
        let request = ReceiveRequest { target: target.to_owned(), ..ReceiveRequest::default() };
        let stream = send(&repository, &raw(snapshot, base));
        pool.streams().receive(&request, &mut &stream[..]).unwrap();
    }
    for round in 0..2 {
        let seed = round * 10;
        assert!(read_file(&pool, "tank/a", &format!("large{round}")) == noise(seed + 1, 2_500_000));
        let mut block = vec![0; 200_000];
        pool.volumes().get("tank/vol").unwrap().read(round << 20, &mut block).unwrap();
        assert!(block == noise(seed + 3, 200_000));
    }
    assert!(read_file(&pool, "tank/c", "changed") == noise(30, 70_000));
    assert!(pool.datasets().filesystem("tank/safe").is_err(), "it is locked");
    pool.keys().load("tank/safe", SECRET).unwrap();
    assert!(read_file(&pool, "tank/safe", "letter1") == noise(12, 90_000));
    close_and_check(pool, &folder);
}

#[test]
fn cut_receive_resumes_from_the_repository() {
    let example = Example::new();
    let repository = example.repository();
    let whole = send(&repository, &raw("tank/a@two", None));
    let (pool, _environment) = small_pool();
    let target = "tank/a".to_owned();
    let request = ReceiveRequest { target, resumable: true, ..ReceiveRequest::default() };
    pool.streams().receive(&request, &mut &whole[..whole.len() / 4 * 3]).unwrap_err();
    let resume = pool.streams().resume_token("tank/a").unwrap();
    let rest = send(&repository, &RepositorySend { resume, ..RepositorySend::default() });
    assert!(rest.len() < whole.len());
    pool.streams().receive(&request, &mut &rest[..]).unwrap();
    assert!(read_file(&pool, "tank/a", "large1") == noise(11, 2_500_000));
}

#[test]
fn streams_that_cannot_be_are_refused() {
    let example = Example::new();
    let repository = example.repository();
    let refusal = |request: &RepositorySend| {
        repository.send(request, &mut std::io::sink()).unwrap_err().to_string()
    };
    let locked = RepositorySend { raw: false, ..raw("tank/safe@one", None) };
    assert!(refusal(&locked).contains("-w"), "{}", refusal(&locked));
    let later = raw("tank/a@one", Some("tank/a@two"));
    assert!(refusal(&later).contains("descends"), "{}", refusal(&later));
    let other = raw("tank/a@two", Some("tank/vol@one"));
    assert!(refusal(&other).contains("descends"), "{}", refusal(&other));
    assert!(refusal(&raw("tank/a@gone", None)).contains("tank/a@gone"));
}
