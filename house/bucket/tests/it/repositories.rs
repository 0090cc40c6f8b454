//! Whole repositories in folders and buckets: backups, prunes and streams, also from services that fail.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bucket::S3Access;
use device::{Device, MemoryDevice};
use engine::backup::{BackupRepository, CheckOptions, ObjectStore, PruneOptions, RepositorySend};
use engine::pool::{
    BackupRequest, Environment, MemoryBudget, NewDataset, NewPool, NewVdev, Pool, SendRequest,
    VdevLayout, VdevRole,
};
use job::Job;

use crate::TempDir;
use crate::server::Server;

const NOW: u64 = 1_700_000_000;
/// No service takes longer to start.
const START_LIMIT: Duration = Duration::from_mins(1);

pub(crate) fn environment() -> Environment {
    let state = AtomicU64::new(0x9e37_79b9);
    Environment {
        random: Arc::new(move |bytes| {
            for byte in bytes {
                let next =
                    state.load(Ordering::Relaxed).wrapping_mul(0x5851_f42d_4c95_7f2d) + 0x1405;
                state.store(next, Ordering::Relaxed);
                *byte = next.to_be_bytes()[0];
            }
        }),
        now: Arc::new(|| (NOW, 0)),
        workers: 2,
        max_dirty: 64 << 20,
        cache: MemoryBudget::default(),
        host: (0x1234, "here".to_owned()),
    }
}

/// A pool in memory with the volume `tank/vol`.
pub(crate) fn create_pool(environment: &Environment) -> Pool {
    let drives = vec!["drive".into()];
    let new = NewPool {
        name: "tank".to_owned(),
        vdevs: vec![NewVdev { layout: VdevLayout::Single, drives, role: VdevRole::Data }],
        ashift: None,
        properties: Vec::new(),
        force: false,
    };
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::zeroed("drive", 192 << 20));
    let pool = engine::pool::create_on_devices(&new, &[device], environment).unwrap();
    let volume = NewDataset { name: "tank/vol".to_owned(), properties: Vec::new() };
    pool.volumes().create(&volume, 16 << 20, 16 << 10, true).unwrap();
    pool
}

/// Writes other bytes into a part of the volume, and takes a snapshot.
fn write_and_snapshot(environment: &Environment, pool: &Pool, part: &str, offset: u64) {
    let mut bytes = vec![0; 1_000_000];
    (environment.random)(&mut bytes);
    pool.volumes().get("tank/vol").unwrap().write(offset, &bytes).unwrap();
    pool.snapshots().create(&[format!("tank/vol@{part}")]).unwrap();
}

fn back_up(pool: &Pool, repository: &BackupRepository) {
    let targets = vec!["tank/vol".to_owned()];
    let request = BackupRequest { targets, ..BackupRequest::default() };
    pool.streams().back_up(repository, &request, &Job::default()).unwrap();
}

fn assert_equals_pool(pool: &Pool, repository: &BackupRepository, part: &str) {
    let report = repository.check(CheckOptions::default(), &Job::default()).unwrap();
    assert_eq!(report.damages, []);
    let snapshot = format!("tank/vol@{part}");
    let request = SendRequest { snapshot: snapshot.clone(), raw: true, ..SendRequest::default() };
    let (mut from_pool, mut from_repository) = (Vec::new(), Vec::new());
    pool.streams().send(&request, &mut from_pool).unwrap();
    let request = RepositorySend { snapshot, raw: true, ..RepositorySend::default() };
    repository.send(&request, &mut from_repository).unwrap();
    assert!(from_pool == from_repository, "{part}");
}

/// Creates a repository, backs up, prunes, and compares what is there with the pool.
pub(crate) fn exercise(store: &Arc<dyn ObjectStore>) {
    let environment = environment();
    let pool = create_pool(&environment);
    BackupRepository::create(Arc::clone(store), &environment.random, NOW).unwrap();
    let open = || BackupRepository::open(Arc::clone(store)).unwrap();
    for (round, part) in ["one", "two", "three"].into_iter().enumerate() {
        write_and_snapshot(&environment, &pool, part, round as u64 * 700_000);
        back_up(&pool, &open());
    }
    assert_equals_pool(&pool, &open(), "one");
    let removed = |part: &str| part == "one" || part == "two";
    let report = open().prune(
        &|it| removed(&it.snapshot),
        PruneOptions::default(),
        &environment.random,
        NOW,
        &Job::default(),
    );
    assert_eq!(report.unwrap().undeleted, []);
    assert_eq!(open().snapshots().len(), 1);
    assert_equals_pool(&pool, &open(), "three");
}

#[test]
fn repository_in_a_folder_equals_the_pool() {
    exercise(&TempDir::new("repository").store());
}

#[test]
fn repository_in_a_failing_bucket_equals_the_pool() {
    for fails_late in [0, 1] {
        let server = Server::start();
        server.state.failing_period.store(7, Ordering::Relaxed);
        server.state.fails_late.store(fails_late, Ordering::Relaxed);
        exercise(&server.store());
    }
}

#[test]
fn needed_objects_are_protected_again() {
    let server = Server::start();
    let (store, environment) = (server.store(), environment());
    let pool = create_pool(&environment);
    BackupRepository::create(Arc::clone(&store), &environment.random, NOW).unwrap();
    let undeleted = protect_and_prune(&store, &environment, &pool);
    assert!(undeleted.iter().any(|(name, _)| name.contains("snapshots/")), "{undeleted:?}");
    for pack in store.list("packs/").unwrap() {
        let why = store.delete(&pack.name).unwrap_err();
        assert!(matches!(why, engine::backup::StoreError::Denied { .. }), "{why}");
    }
    let open = || BackupRepository::open(Arc::clone(&store)).unwrap();
    // the prune stored a head and an index object
    assert_eq!(open().protect(FAR_FUTURE, &Job::default()).unwrap().extended, 2);
    // a longer protection, and its mode, stay
    let mode = "<Mode>COMPLIANCE</Mode>";
    for xml in server.state.retention.lock().unwrap().values_mut() {
        *xml = xml.replace("<Mode>GOVERNANCE</Mode>", mode);
    }
    assert_eq!(open().protect(FAR_FUTURE - 5, &Job::default()).unwrap().extended, 0);
    assert!(open().protect(FAR_FUTURE + 60, &Job::default()).unwrap().extended > 3);
    let retention = server.state.retention.lock().unwrap();
    assert!(retention.values().all(|xml| xml.contains(mode)));
}

#[test]
fn backup_renews_the_protection_of_old_packs() {
    let server = Server::start();
    let (store, environment) = (server.store(), environment());
    let pool = create_pool(&environment);
    BackupRepository::create(Arc::clone(&store), &environment.random, NOW).unwrap();
    let open = || BackupRepository::open(Arc::clone(&store)).unwrap();
    let run = |until| {
        let request = BackupRequest {
            targets: vec!["tank/vol".to_owned()],
            recursive: false,
            protect_until: Some(until),
        };
        let done = pool.streams().back_up(&open(), &request, &Job::default()).unwrap();
        done.protected.expect("a report")
    };
    write_and_snapshot(&environment, &pool, "one", 0);
    let first = run(FAR_FUTURE);
    assert_eq!((first.extended, first.failed.len()), (first.objects, 0));
    write_and_snapshot(&environment, &pool, "two", 5_000_000);
    let second = run(FAR_FUTURE + 60);
    // also the packs of the first run
    assert!(second.extended > first.extended, "{first:?} {second:?}");
    assert_eq!(second.extended, second.objects);
    // a run without new snapshots renews as well
    let third = run(FAR_FUTURE + 120);
    assert_eq!(third.extended, third.objects);
}

/// In 2040, seconds since 1970.
pub(crate) const FAR_FUTURE: u64 = 2_208_988_800;

/// Protects what a snapshot needs, before and after the next backup, and prunes. Returns the objects that were not deleted.
pub(crate) fn protect_and_prune(
    store: &Arc<dyn ObjectStore>,
    environment: &Environment,
    pool: &Pool,
) -> Vec<(String, String)> {
    let open = || BackupRepository::open(Arc::clone(store)).unwrap();
    write_and_snapshot(environment, pool, "one", 0);
    back_up(pool, &open());
    let first = open().protect(FAR_FUTURE, &Job::default()).unwrap();
    assert!(first.objects > 3 && first.extended == first.objects, "{first:?}");
    assert_eq!(first.failed, []);
    // the next backup adds to it, and needs what the first one stored
    write_and_snapshot(environment, pool, "two", 5_000_000);
    back_up(pool, &open());
    let second = open().protect(FAR_FUTURE, &Job::default()).unwrap();
    assert!(second.extended > 0 && second.extended < second.objects, "{second:?}");
    assert_eq!(open().protect(FAR_FUTURE, &Job::default()).unwrap().extended, 0);
    let removed = |it: &engine::backup::SnapshotSummary| it.snapshot == "one";
    let random = &environment.random;
    let report = open().prune(&removed, PruneOptions::default(), random, NOW, &Job::default());
    assert_equals_pool(pool, &open(), "two");
    report.unwrap().undeleted
}

/// A server of moto, which ends with this.
struct Moto {
    child: Child,
    address: String,
}

impl Moto {
    /// Starts a server with an empty bucket; none: moto is not installed.
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("moto_server");
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().ok()?;
        let mut moto = Self { child, address: format!("127.0.0.1:{port}") };
        let last = Instant::now() + START_LIMIT;
        loop {
            if let Ok(stream) = TcpStream::connect(&moto.address) {
                moto.create_bucket(stream);
                return Some(moto);
            }
            // a wrapper of pyenv exists where moto does not
            if moto.child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(Instant::now() < last, "moto does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn create_bucket(&self, mut stream: TcpStream) {
        let host = &self.address;
        let request = format!(
            "PUT /bucket HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.set_read_timeout(Some(START_LIMIT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    fn store(&self) -> Arc<dyn ObjectStore> {
        let access = S3Access {
            endpoint: Some(format!("http://{}", self.address)),
            region: "us-east-1".to_owned(),
            key_id: "key".to_owned(),
            secret: "secret".to_owned(),
            token: None,
            ca_file: None,
        };
        bucket::open("s3://bucket/folder", true, Some(&access)).unwrap()
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn repository_in_moto_equals_the_pool() {
    let Some(moto) = Moto::start() else {
        eprintln!("skipped: there is no moto_server (pip install 'moto[server]')");
        return;
    };
    exercise(&moto.store());
}
