//! What a store promises, tried on a folder.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use engine::backup::{ObjectStore, StoreError};

/// A folder that goes away in the end.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("poolhouse-bucket-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn store(&self) -> Arc<dyn ObjectStore> {
        bucket::open(&format!("file://{}/store", self.0.display()), true).unwrap()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn objects_are_stored_read_listed_and_deleted() {
    let dir = TempDir::new("objects");
    let store = dir.store();
    assert_eq!(store.list("packs/").unwrap(), []);
    assert_eq!(store.read("packs/a", 0..9), Err(StoreError::NotFound));
    store.create("packs/a-1", b"0123456789").unwrap();
    store.create("packs/b-1", b"").unwrap();
    store.create("repository", b"top").unwrap();
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
    assert_eq!(store.list("packs/").unwrap().len(), 1);
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
    for wrong in ["/mnt/usb", "file://relative", "ftp://host/x", "file:///no/such/folder/at/all"] {
        assert!(bucket::open(wrong, true).is_err(), "{wrong}");
    }
    assert!(bucket::open("file:///no-such-folder", false).is_err());
}
