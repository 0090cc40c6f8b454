//! The cache before a store: it saves requests, is never believed when damaged, and keeps its bound.

use std::path::PathBuf;
use std::sync::Arc;

use bucket::CachedStore;
use engine::backup::{MemoryStore, ObjectStore};

use crate::TempDir;

fn open(dir: &TempDir, store: &Arc<MemoryStore>, max_bytes: u64) -> CachedStore {
    let store = Arc::clone(store) as Arc<dyn ObjectStore>;
    CachedStore::open(store, dir.0.join("cache"), max_bytes).unwrap()
}

fn files(dir: &TempDir) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.0.join("cache")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn cached_reads_ask_the_store_once() {
    let (dir, store) = (TempDir::new("cached"), Arc::new(MemoryStore::default()));
    let cached = open(&dir, &store, 1 << 20);
    cached.create("packs/a", b"0123456789").unwrap();
    cached.create("heads/1", b"head").unwrap();
    assert_eq!(cached.read("packs/a", 2..5).unwrap(), b"234");
    assert_eq!(cached.read("packs/a", 8..50).unwrap(), b"89");
    let before = store.requests();
    let again = open(&dir, &store, 1 << 20);
    for cached in [&cached, &again] {
        assert_eq!(cached.read("packs/a", 2..5).unwrap(), b"234");
        assert_eq!(cached.read("packs/a", 8..50).unwrap(), b"89");
    }
    assert_eq!(store.requests(), before);
    // heads are new each time
    assert_eq!(cached.read("heads/1", 0..9).unwrap(), b"head");
    assert_eq!(cached.read("heads/1", 0..9).unwrap(), b"head");
    assert_eq!(store.requests(), before + 2);
    cached.forget("packs/a");
    assert_eq!(files(&dir), [] as [PathBuf; 0]);
}

#[test]
fn damaged_cache_is_read_from_the_store() {
    let (dir, store) = (TempDir::new("damaged"), Arc::new(MemoryStore::default()));
    let cached = open(&dir, &store, 1 << 20);
    cached.create("index/a", b"0123456789").unwrap();
    for length in 0..50 {
        assert_eq!(cached.read("index/a", 0..50).unwrap(), b"0123456789");
        let file = &files(&dir)[0];
        let mut bytes = std::fs::read(file).unwrap();
        if let Some(byte) = bytes.get_mut(length) {
            *byte ^= 1;
        }
        bytes.truncate(length + 1);
        std::fs::write(file, bytes).unwrap();
    }
    assert_eq!(cached.read("index/a", 0..50).unwrap(), b"0123456789");
}

#[test]
fn cache_keeps_its_bound() {
    let (dir, store) = (TempDir::new("bound"), Arc::new(MemoryStore::default()));
    let cached = open(&dir, &store, 10_000);
    let used = || files(&dir).iter().map(|it| it.metadata().unwrap().len()).sum::<u64>();
    for number in 0..60_u8 {
        let name = format!("packs/{number}");
        cached.create(&name, &[number; 900]).unwrap();
        assert_eq!(cached.read(&name, 0..900).unwrap(), [number; 900]);
        assert!(used() <= 10_000, "{}", used());
    }
    assert!(used() > 5000);
    // the newest is there, and the oldest comes from the store
    let before = store.requests();
    assert_eq!(cached.read("packs/59", 0..900).unwrap(), [59; 900]);
    assert_eq!(store.requests(), before);
    assert_eq!(cached.read("packs/0", 0..900).unwrap(), [0; 900]);
    // one read that is larger than the cache
    cached.create("packs/large", &vec![7; 20_000]).unwrap();
    assert_eq!(cached.read("packs/large", 0..20_000).unwrap(), vec![7; 20_000]);
    open(&dir, &store, 2000);
    assert!(used() <= 2000);
}
