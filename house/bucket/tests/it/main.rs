//! The guarantees of a store, tested on a folder and on a service with the S3 protocol.

mod cache;
mod repositories;
mod server;
mod versity;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bucket::S3Access;
use engine::backup::{ObjectStore, StoreError};
use server::Server;

/// A folder that is removed at the end.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("poolhouse-bucket-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn store(&self) -> Arc<dyn ObjectStore> {
        bucket::open(&format!("file://{}/store", self.0.display()), true, None).unwrap()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Server {
    fn store(&self) -> Arc<dyn ObjectStore> {
        let access = S3Access {
            endpoint: Some(self.address.clone()),
            region: "us-east-1".to_owned(),
            key_id: "key".to_owned(),
            secret: "secret".to_owned(),
            token: None,
            ca_file: None,
        };
        bucket::open("s3://bucket/folder", true, Some(&access)).unwrap()
    }
}

fn check_store(store: &dyn ObjectStore) {
    assert_eq!(store.list("packs/").unwrap(), []);
    assert_eq!(store.read("packs/a", 0..9), Err(StoreError::NotFound));
    store.create("packs/a-1", b"0123456789").unwrap();
    store.create("packs/b-1", b"").unwrap();
    store.create("repository", b"top").unwrap();
    assert_eq!(store.create("packs/a-1", b"other"), Err(StoreError::AlreadyExists));
    assert_eq!(store.read("packs/a-1", 2..5).unwrap(), b"234");
    assert_eq!(store.read("packs/a-1", 8..50).unwrap(), b"89");
    assert_eq!(store.read("packs/a-1", 50..60).unwrap(), b"");
    assert_eq!(store.size("packs/a-1"), Ok(10));
    let listed = store.list("packs/a").unwrap();
    assert_eq!((listed.len(), listed[0].name.as_str(), listed[0].size), (1, "packs/a-1", 10));
    assert!(listed[0].modified.is_some());
    store.delete("packs/a-1").unwrap();
    store.delete("packs/a-1").unwrap();
    assert_eq!(store.size("packs/a-1"), Err(StoreError::NotFound));
    for number in 0..7 {
        store.create(&format!("packs/c-{number}"), b"x").unwrap();
    }
    assert_eq!(store.list("packs/").unwrap().len(), 8);
}

#[test]
fn folder_stores_reads_lists_and_deletes_objects() {
    let dir = TempDir::new("objects");
    check_store(&*dir.store());
}

#[test]
fn bucket_stores_reads_lists_and_deletes_objects() {
    let server = Server::start();
    check_store(&*server.store());
}

/// Another program's service: `AWS_ENDPOINT_URL=http://127.0.0.1:5000 AWS_ACCESS_KEY_ID=… `, with an empty
/// bucket named `bucket`.
#[test]
#[ignore = "needs a running service, as moto or versitygw"]
fn other_services_meet_the_guarantees_of_a_store() {
    let access = S3Access::from_variables(&|name| std::env::var(name).ok()).unwrap();
    let location = format!("s3://bucket/{}", std::process::id());
    check_store(&*bucket::open(&location, true, Some(&access)).unwrap());
}

#[test]
fn requests_to_buckets_are_repeated() {
    let server = Server::start();
    server.state.failing_period.store(3, Ordering::Relaxed);
    check_store(&*server.store());
    // the request was done, and its reply was lost
    let server = Server::start();
    server.state.failing_period.store(2, Ordering::Relaxed);
    server.state.fails_late.store(1, Ordering::Relaxed);
    let store = server.store();
    assert_eq!(store.size("other"), Err(StoreError::NotFound));
    assert_eq!(store.create("heads/1", b"mine"), Err(StoreError::AlreadyExists));
    assert_eq!(store.read("heads/1", 0..9).unwrap(), b"mine");
}

#[test]
fn cut_answers_of_buckets_are_errors() {
    let server = Server::start();
    let store = server.store();
    store.create("packs/a", &[7; 1000]).unwrap();
    server.state.cuts_bodies.store(1, Ordering::Relaxed);
    let cut = store.read("packs/a", 0..1000);
    assert!(matches!(cut, Err(StoreError::Unavailable { .. })), "{cut:?}");
}

#[test]
fn one_of_many_creators_succeeds() {
    let dir = TempDir::new("creators");
    let store = dir.store();
    store.create("heads/0", b"").unwrap();
    for round in 0..20 {
        let name = format!("heads/{round}-x");
        let created: Vec<bool> = std::thread::scope(|scope| {
            let create = |number: u8| {
                let (store, name) = (&store, &name);
                scope.spawn(move || match store.create(name, &[number; 1000]) {
                    Ok(()) => true,
                    Err(StoreError::AlreadyExists) => false,
                    Err(why) => panic!("{why}"),
                })
            };
            let threads: Vec<_> = (0..4).map(create).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(created.iter().filter(|it| **it).count(), 1);
        let winner = u8::try_from(created.iter().position(|it| *it).unwrap()).unwrap();
        assert_eq!(store.read(&name, 0..2000).unwrap(), [winner; 1000]);
    }
    let names = std::fs::read_dir(dir.0.join("store/heads")).unwrap();
    assert_eq!(names.count(), 21, "nothing else is left");
}

#[test]
fn repositories_are_private() {
    let dir = TempDir::new("private");
    dir.store().create("packs/a", b"secret").unwrap();
    for (path, mode) in [("store", 0o700), ("store/packs", 0o700), ("store/packs/a", 0o600)] {
        let found = std::fs::metadata(dir.0.join(path)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{path}");
    }
}

#[test]
fn wrong_addresses_are_refused() {
    for wrong in [
        "/mnt/usb",
        "s3://bucket",
        "file://relative",
        "ftp://host/x",
        "file:///no/such/folder/at/all",
    ] {
        assert!(bucket::open(wrong, true, None).is_err(), "{wrong}");
    }
    assert!(bucket::open("file:///no-such-folder", false, None).is_err());
}
