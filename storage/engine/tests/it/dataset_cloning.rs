//! Blocks shared between file systems of one pool, and out of snapshots: space is shared, the source may be
//! destroyed at any moment, and zdb finds neither leaks nor wrong counts.

use std::sync::atomic::{AtomicBool, Ordering};

use engine::files::{Content, FileSystemReader};
use engine::pool::{NewDataset, Pool, VdevLayout};
use posix::NewInode;
use units::ObjectId;

use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::test_pool::{
    TempDir, check_pool, copy_after_cut, credentials, environment, new_pool, read_file, write_file,
};

const RECORD_SIZE: u64 = 128 << 10;

fn new_dataset(name: &str, properties: &[(&str, &str)]) -> NewDataset {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    NewDataset { name: name.to_owned(), properties: properties.iter().map(pair).collect() }
}

fn create_pool(name: &str) -> (TempDir, Pool) {
    let folder = TempDir::new(name, 3, 256 << 20);
    let layout = VdevLayout::Raidz(1);
    let pool = engine::pool::create(&new_pool(&folder, layout, 3), &environment()).unwrap();
    (folder, pool)
}

fn find_content(reader: &FileSystemReader, name: &str) -> Content {
    reader.find(name.as_bytes()).unwrap().unwrap().content()
}

/// The content of a file of a file system or of a snapshot.
fn content(pool: &Pool, dataset: &str, name: &str) -> Content {
    if dataset.contains('@') {
        return find_content(&pool.datasets().synced_reader(dataset).unwrap(), name);
    }
    find_content(pool.datasets().filesystem(dataset).unwrap().reader(), name)
}

/// Makes a new file of a file system share a whole content. Returns the number of bytes shared.
fn clone_to(
    pool: &Pool,
    source: &Content,
    dataset: &str,
    name: &str,
) -> engine::files::Result<u64> {
    let fs = pool.datasets().filesystem(dataset).unwrap();
    let root = ObjectId::new(fs.reader().root_object());
    let new = NewInode::default();
    let file = fs.create(&credentials(), root, name.as_bytes(), &new)?;
    fs.clone_content(&credentials(), (source, 0), (ObjectId::new(file.ino()), 0), 1 << 40)
}

/// Exports a pool, and checks it by the examiner and by zdb.
fn export_and_check(folder: &TempDir, pool: Pool) {
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(folder, "tank"), Vec::<String>::new());
}

fn import(folder: &TempDir) -> Pool {
    engine::pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap()
}

#[test]
fn file_systems_share_blocks_after_source_is_destroyed() {
    let (folder, pool) = create_pool("across");
    for name in ["tank/a", "tank/b"] {
        pool.datasets().create_filesystem(&new_dataset(name, &[])).unwrap();
    }
    let bytes = noise_bytes(1, u32::try_from(20 * RECORD_SIZE + 5000).unwrap());
    write_file(&pool, "tank/a", "letter", &bytes);
    pool.snapshots().create(&["tank/a@one".to_owned()]).unwrap();
    write_file(&pool, "tank/a", "young", b"dirty blocks are copied");
    let dirty = content(&pool, "tank/a", "young");
    assert_eq!(clone_to(&pool, &dirty, "tank/b", "young").unwrap(), 0);
    let before = pool.status().allocated;
    let source = content(&pool, "tank/a", "letter");
    let kept = content(&pool, "tank/a@one", "letter");
    let size = bytes.len() as u64;
    assert_eq!(clone_to(&pool, &source, "tank/b", "of-head").unwrap(), size);
    assert_eq!(clone_to(&pool, &kept, "tank/b", "of-snapshot").unwrap(), size);
    assert_eq!(clone_to(&pool, &kept, "tank/a", "restored").unwrap(), size);
    pool.sync().unwrap();
    assert!(pool.status().allocated < before + (1 << 20), "clones take hardly any space");
    let after = copy_after_cut(&folder, "across-cut", 3);
    assert_eq!(check_pool(&after, "tank"), Vec::<String>::new());
    let brt = run_zdb(after.path(), &["-TT"]);
    assert!(brt.is_empty() || brt.contains("BRT: vdev 0: refcnt 21;"), "{brt}");
    // once more in the txg that destroys the sources
    assert_eq!(clone_to(&pool, &source, "tank/b", "of-head-late").unwrap(), size);
    assert_eq!(clone_to(&pool, &kept, "tank/b", "of-snapshot-late").unwrap(), size);
    pool.datasets().destroy_all(&["tank/a@one".to_owned(), "tank/a".to_owned()], false).unwrap();
    // a source that was destroyed shares nothing any more
    assert_eq!(clone_to(&pool, &source, "tank/b", "none").unwrap_or(0), 0);
    assert_eq!(clone_to(&pool, &kept, "tank/b", "nothing").unwrap_or(0), 0);
    drop((source, kept, dirty));
    export_and_check(&folder, pool);
    let pool = import(&folder);
    for name in ["of-head", "of-snapshot", "of-head-late", "of-snapshot-late"] {
        assert!(read_file(&pool, "tank/b", name) == bytes, "{name}");
    }
    pool.datasets().destroy("tank/b").unwrap();
    export_and_check(&folder, pool);
}

#[test]
fn clones_activate_features_of_their_blocks() {
    let (folder, pool) = create_pool("across-features");
    let source = [("recordsize", "1M"), ("compression", "zstd"), ("checksum", "blake3")];
    pool.datasets().create_filesystem(&new_dataset("tank/a", &source)).unwrap();
    let plain = [("compression", "off"), ("checksum", "on"), ("recordsize", "128K")];
    pool.datasets().create_filesystem(&new_dataset("tank/b", &plain)).unwrap();
    write_file(&pool, "tank/a", "text", &b"compressible ".repeat(300_000));
    pool.sync().unwrap();
    let text = content(&pool, "tank/a", "text");
    assert_eq!(clone_to(&pool, &text, "tank/b", "text").unwrap(), 13 * 300_000);
    drop(text);
    pool.datasets().destroy("tank/a").unwrap();
    let after = copy_after_cut(&folder, "across-features-cut", 3);
    let features = run_zdb(after.path(), &["-dd"]);
    for feature in ["large_blocks", "zstd_compress", "blake3"] {
        assert!(features.is_empty() || features.contains(feature), "{feature}: {features}");
    }
    export_and_check(&folder, pool);
}

#[test]
fn encrypted_blocks_are_shared_below_one_key_only() {
    const SECRET: &[u8] = b"correct horse battery staple";
    const ENCRYPTED: [(&str, &str); 3] =
        [("encryption", "on"), ("keyformat", "passphrase"), ("pbkdf2iters", "100000")];
    let (folder, pool) = create_pool("across-keys");
    pool.datasets().create_filesystem(&new_dataset("tank/plain", &[])).unwrap();
    for name in ["tank/a", "tank/b"] {
        pool.datasets()
            .create_filesystem_with(&new_dataset(name, &ENCRYPTED), Some(SECRET))
            .unwrap();
    }
    // it has its parent's user key, and a master key of its own
    pool.datasets().create_filesystem(&new_dataset("tank/a/child", &[])).unwrap();
    let bytes = noise_bytes(3, 1 << 20);
    for name in ["tank/plain", "tank/a"] {
        write_file(&pool, name, "letter", &bytes);
    }
    pool.snapshots().create(&["tank/a@one".to_owned()]).unwrap();
    pool.snapshots().clone_snapshot("tank/a@one", &new_dataset("tank/clone", &[])).unwrap();
    let (plain, secret) =
        (content(&pool, "tank/plain", "letter"), content(&pool, "tank/a", "letter"));
    let kept = content(&pool, "tank/a@one", "letter");
    for (index, (source, target, shared)) in [
        (&plain, "tank/a", 0),
        (&secret, "tank/plain", 0),
        (&secret, "tank/b", 0),
        (&secret, "tank/a/child", 0),
        (&secret, "tank/clone", 1 << 20),
        (&kept, "tank/a", 1 << 20),
    ]
    .into_iter()
    .enumerate()
    {
        let copy = format!("copy-{index}");
        assert_eq!(clone_to(&pool, source, target, &copy).unwrap(), shared, "{target} {index}");
    }
    drop((plain, secret, kept));
    pool.sync().unwrap();
    for (target, copy) in [("tank/clone", "copy-4"), ("tank/a", "copy-5")] {
        assert!(read_file(&pool, target, copy) == bytes, "{target}");
    }
    export_and_check(&folder, pool);
    let pool = import(&folder);
    pool.keys().load("tank/a", SECRET).unwrap();
    assert!(read_file(&pool, "tank/clone", "copy-4") == bytes);
    export_and_check(&folder, pool);
}

#[test]
fn rollback_of_source_leaves_clones_whole() {
    let (folder, pool) = create_pool("across-rollback");
    pool.datasets().create_filesystem(&new_dataset("tank/a", &[])).unwrap();
    pool.datasets().create_filesystem(&new_dataset("tank/b", &[])).unwrap();
    pool.snapshots().create(&["tank/a@empty".to_owned()]).unwrap();
    let bytes = noise_bytes(5, 3 << 20);
    write_file(&pool, "tank/a", "letter", &bytes);
    pool.sync().unwrap();
    let source = content(&pool, "tank/a", "letter");
    assert_eq!(clone_to(&pool, &source, "tank/b", "copy").unwrap(), 3 << 20);
    pool.snapshots().rollback("tank/a").unwrap();
    // the head of this handle is gone, and another head has its number
    drop(pool.datasets().filesystem("tank/a").unwrap());
    assert_eq!(clone_to(&pool, &source, "tank/b", "late").unwrap_or(0), 0);
    drop(source);
    export_and_check(&folder, pool);
    let pool = import(&folder);
    assert!(read_file(&pool, "tank/b", "copy") == bytes);
    export_and_check(&folder, pool);
}

/// Threads clone from snapshots and heads while these are destroyed, and txgs are written all the time.
#[test]
fn clones_race_with_destruction_of_their_source() {
    const ROUNDS: u32 = 12;
    let (folder, pool) = create_pool("across-race");
    pool.datasets().create_filesystem(&new_dataset("tank/b", &[])).unwrap();
    let is_done = AtomicBool::new(false);
    let mut expected = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                pool.sync().unwrap();
            }
        });
        for round in 0..ROUNDS {
            let name = format!("tank/s{round}");
            let snapshot = format!("{name}@one");
            pool.datasets().create_filesystem(&new_dataset(&name, &[])).unwrap();
            let bytes = noise_bytes(round + 10, 700_000);
            write_file(&pool, &name, "letter", &bytes);
            pool.snapshots().create(std::slice::from_ref(&snapshot)).unwrap();
            let sources = [content(&pool, &name, "letter"), content(&pool, &snapshot, "letter")];
            // one that no destruction can be faster than
            let first = format!("copy-{round}-first");
            assert_eq!(clone_to(&pool, &sources[1], "tank/b", &first).unwrap(), 700_000);
            let handle = &pool;
            let cloner = scope.spawn(move || {
                let mut shared = vec![first];
                for (index, source) in sources.iter().cycle().take(60).enumerate() {
                    let copy = format!("copy-{round}-{index}");
                    if clone_to(handle, source, "tank/b", &copy).is_ok_and(|size| size == 700_000) {
                        shared.push(copy);
                    }
                }
                shared
            });
            pool.datasets().destroy_all(&[snapshot, name], false).unwrap();
            expected.push((bytes, cloner.join().unwrap()));
        }
        is_done.store(true, Ordering::Release);
    });
    export_and_check(&folder, pool);
    let pool = import(&folder);
    for (bytes, copies) in &expected {
        for copy in copies {
            assert!(read_file(&pool, "tank/b", copy) == *bytes, "{copy}");
        }
    }
    pool.datasets().destroy("tank/b").unwrap();
    export_and_check(&folder, pool);
}
