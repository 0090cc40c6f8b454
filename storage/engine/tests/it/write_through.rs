//! Content that is written before its txg syncs: it is complete afterwards, and unused space is
//! freed.

use engine::pool::{Environment, NewDataset, OpenFileSystem, Pool, VdevLayout};
use posix::{SetAttributes, WriteOffset};
use units::ObjectId;

use crate::shared_blocks::noise_bytes;
use crate::test_pool::{
    TempDir, check_pool, credentials, environment, new_pool, read_file, write_file,
};

const MIB: u64 = 1 << 20;

fn create_pool(name: &str) -> (TempDir, Pool) {
    let folder = TempDir::new(name, 3, 256 << 20);
    let pool = new_pool(&folder, VdevLayout::Raidz(1), 3);
    let held = engine::pool::create(&pool, &one_worker()).unwrap();
    (folder, held)
}

/// One writer counts as many as there are processors.
fn one_worker() -> Environment {
    Environment { workers: 1, ..environment() }
}

fn new_dataset(name: &str, properties: &[(&str, &str)]) -> NewDataset {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    NewDataset { name: name.to_owned(), properties: properties.iter().map(pair).collect() }
}

fn object_of(pool: &Pool, set: &str, name: &str) -> ObjectId {
    let found = pool.datasets().filesystem(set).unwrap().reader().find(name.as_bytes()).unwrap();
    ObjectId::new(found.unwrap().ino())
}

fn truncate(fs: &OpenFileSystem, file: ObjectId, size: u64) {
    fs.set_attributes(
        &credentials(),
        file,
        &SetAttributes { size: Some(size), ..SetAttributes::default() },
    )
    .unwrap();
}

/// Leaves the pool; nothing of it leaks, and nothing is used twice.
fn export_and_check(folder: &TempDir, held: Pool) {
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(folder, "tank"), Vec::<String>::new());
}

fn import(folder: &TempDir) -> Pool {
    engine::pool::import(&[folder.path().into()], "tank", false, &one_worker()).unwrap()
}

#[test]
fn eager_writes_allocate_at_once() {
    let (folder, pool) = create_pool("early");
    pool.sync().unwrap();
    let before = pool.status().allocated;
    let mut bytes = noise_bytes(1, 5 << 20);
    write_file(&pool, "tank", "file", &bytes);
    assert!(pool.status().allocated >= before + 7 * MIB, "it waits for its group");
    assert!(read_file(&pool, "tank", "file") == bytes);
    // within the txg: overwritten in part and as a whole, punched, truncated, extended
    let (fs, file) =
        (pool.datasets().filesystem("tank").unwrap(), object_of(&pool, "tank", "file"));
    let mut put = |at: u64, with: &[u8]| {
        fs.write(&credentials(), file, WriteOffset::At(at), with).unwrap();
        let start = usize::try_from(at).unwrap();
        bytes[start..start + with.len()].copy_from_slice(with);
    };
    put(3 * MIB + 77, b"in the midst of a block");
    put(MIB, &noise_bytes(2, 1 << 20));
    put(2 * MIB + 5, &noise_bytes(3, 1 << 20));
    fs.punch_hole(&credentials(), file, MIB / 2..MIB).unwrap();
    bytes[1 << 19..1 << 20].fill(0);
    truncate(&fs, file, 4 * MIB + 99);
    bytes.truncate((4 << 20) + 99);
    assert!(read_file(&pool, "tank", "file") == bytes);
    write_file(&pool, "tank", "gone", &noise_bytes(4, 2 << 20));
    let root = ObjectId::new(fs.reader().root_object());
    fs.unlink(&credentials(), root, b"gone").unwrap();
    drop(fs);
    export_and_check(&folder, pool);
    let pool = import(&folder);
    assert!(read_file(&pool, "tank", "file") == bytes);
    // in a later txg, over synced data
    let (fs, file) =
        (pool.datasets().filesystem("tank").unwrap(), object_of(&pool, "tank", "file"));
    let fresh = noise_bytes(5, 2 << 20);
    fs.write(&credentials(), file, WriteOffset::At(MIB), &fresh).unwrap();
    bytes[1 << 20..3 << 20].copy_from_slice(&fresh);
    pool.snapshots().create(&["tank@one".to_owned()]).unwrap();
    truncate(&fs, file, 0);
    fs.write(&credentials(), file, WriteOffset::At(0), &fresh).unwrap();
    drop(fs);
    assert!(read_file(&pool, "tank", "file") == fresh);
    pool.snapshots().rollback("tank").unwrap();
    assert!(read_file(&pool, "tank", "file") == bytes);
    export_and_check(&folder, pool);
}

/// As in OpenZFS: parity counts neither for a file nor for its owner.
#[test]
fn file_space_excludes_parity() {
    let (folder, pool) = create_pool("early-space");
    write_file(&pool, "tank", "file", &noise_bytes(1, 128 << 10));
    write_file(&pool, "tank", "small", &noise_bytes(2, 3000));
    pool.sync().unwrap();
    let space = |name: &str| {
        let fs = pool.datasets().filesystem("tank").unwrap();
        fs.reader().find(name.as_bytes()).unwrap().unwrap().allocated()
    };
    // 384 sectors of 512 bytes with parity, each of which stands for 341 bytes, and the dnode
    assert_eq!(space("file"), 384 * 341 + 512);
    // a sector of 4 KiB and its parity
    assert_eq!(space("small"), 16 * 341 + 512);
    export_and_check(&folder, pool);
}

#[test]
fn eager_writes_of_a_destroyed_dataset_are_freed() {
    let (folder, pool) = create_pool("early-destroyed");
    pool.datasets().create_filesystem(&new_dataset("tank/gone", &[])).unwrap();
    pool.volumes().create(&new_dataset("tank/vol", &[]), 8 << 20, 16 << 10, true).unwrap();
    pool.sync().unwrap();
    let open = pool.datasets().filesystem("tank/gone").unwrap();
    write_file(&pool, "tank/gone", "file", &noise_bytes(1, 3 << 20));
    pool.volumes().get("tank/vol").unwrap().write(MIB, &noise_bytes(2, 2 << 20)).unwrap();
    pool.datasets().destroy("tank/gone").unwrap();
    pool.datasets().destroy("tank/vol").unwrap();
    // writes to a dataset that is being destroyed are lost, but their space is freed
    pool.datasets().create_filesystem(&new_dataset("tank/back", &[])).unwrap();
    pool.snapshots().create(&["tank/back@one".to_owned()]).unwrap();
    write_file(&pool, "tank/back", "file", &noise_bytes(3, 3 << 20));
    pool.snapshots().rollback("tank/back").unwrap();
    drop(open);
    export_and_check(&folder, pool);
}

#[test]
fn it_is_stored_as_the_dataset_wants_it() {
    let (folder, pool) = create_pool("early-kinds");
    let kinds = [
        ("twice", &[("copies", "2")][..]),
        ("strong", &[("checksum", "blake3"), ("compression", "zstd")]),
        ("alike", &[("dedup", "on")]),
        ("large", &[("recordsize", "1M"), ("compression", "off")]),
        ("small", &[("recordsize", "4K")]),
        ("always", &[("sync", "always")]),
    ];
    let bytes = |seed: u32| {
        let mut bytes = noise_bytes(seed, 3 << 20);
        // some of it gets smaller, and some is nothing but zeros
        bytes[1 << 20..(1 << 20) + 300_000].fill(7);
        bytes[2 << 20..(2 << 20) + 500_000].fill(0);
        bytes
    };
    for (seed, (name, properties)) in (0..).zip(kinds) {
        let name = format!("tank/{name}");
        pool.datasets().create_filesystem(&new_dataset(&name, properties)).unwrap();
        write_file(&pool, &name, "file", &bytes(seed));
        write_file(&pool, &name, "again", &bytes(seed));
    }
    pool.volumes().create(&new_dataset("tank/vol", &[]), 8 << 20, 16 << 10, true).unwrap();
    pool.volumes().get("tank/vol").unwrap().write(5000, &bytes(9)).unwrap();
    pool.volumes().get("tank/vol").unwrap().write(MIB, &bytes(8)[..400_000]).unwrap();
    export_and_check(&folder, pool);
    let pool = import(&folder);
    for (seed, (name, _)) in (0..).zip(kinds) {
        for file in ["file", "again"] {
            assert!(read_file(&pool, &format!("tank/{name}"), file) == bytes(seed), "{name}");
        }
    }
    let mut wanted = vec![0; 4 << 20];
    wanted[5000..5000 + (3 << 20)].copy_from_slice(&bytes(9));
    wanted[1 << 20..(1 << 20) + 400_000].copy_from_slice(&bytes(8)[..400_000]);
    let mut found = vec![1; 4 << 20];
    pool.volumes().get("tank/vol").unwrap().read(0, &mut found).unwrap();
    assert!(found == wanted);
}
