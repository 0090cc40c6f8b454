//! Cache drives and spares: reads that miss the memory come from the cache drive, wrong blocks on
//! it are never returned, and the pool works without it.

use std::path::PathBuf;
use std::sync::Arc;

use device::{Device, MemoryDevice as Bytes};
use engine::pool::{
    AddOptions, CacheCounts, Environment, MemoryBudget, NewDataset, NewPool, NewVdev, Pool,
    VdevLayout, VdevRole,
};
use sim::{DiskArray, Fault};

use crate::shared_blocks::noise_bytes;
use crate::test_pool::{TempDir, check_pool, environment, read_file, write_file};

const DRIVE_SIZE: u64 = 192 << 20;
const FILE_SIZE: u32 = 24 << 20;
/// Drives of a gigabyte and more keep a log of their blocks.
const PERSISTENT_SIZE: u64 = 1200 << 20;

/// A world that has far less memory than the file.
fn small_environment() -> Environment {
    Environment { cache: MemoryBudget::with_bytes(8 << 20), ..environment() }
}

fn new_vdev(shape: VdevLayout, drives: Vec<PathBuf>, purpose: VdevRole) -> NewVdev {
    NewVdev { layout: shape, drives, role: purpose }
}

/// A pool of two drives and a cache drive of that size, with a file.
fn create_pool(name: &str, cache: u64) -> (TempDir, PathBuf) {
    let folder = TempDir::new(name, 2, DRIVE_SIZE);
    let path = folder.path().join("cache.img");
    std::fs::File::create(&path).unwrap().set_len(cache).unwrap();
    let vdevs = vec![
        new_vdev(VdevLayout::Mirror, folder.drives(2), VdevRole::Data),
        new_vdev(VdevLayout::Single, vec![path.clone()], VdevRole::Cache),
    ];
    let (name, properties) = ("tank".to_owned(), Vec::new());
    let new = NewPool { name, vdevs, ashift: None, properties, force: false };
    let held = engine::pool::create(&new, &small_environment()).unwrap();
    write_file(&held, "tank", "file", &noise_bytes(1, FILE_SIZE));
    held.export().unwrap();
    (folder, path)
}

fn import(folder: &TempDir) -> Pool {
    engine::pool::import(&[folder.path().into()], "tank", false, &small_environment()).unwrap()
}

/// Reads the file in pieces and checks them, while the read blocks go to the cache drive.
fn read_and_feed(pool: &Pool, dataset: &str) {
    let fs = pool.datasets().filesystem(dataset).unwrap();
    let file = fs.reader().find(b"file").unwrap().unwrap();
    let right = noise_bytes(1, FILE_SIZE);
    for (index, piece) in right.chunks(128 << 10).enumerate() {
        let mut bytes = vec![0; piece.len()];
        file.content().read(index as u64 * (128 << 10), &mut bytes).unwrap();
        assert!(bytes == piece, "piece {index}");
        pool.background().feed_l2arc(u64::MAX);
    }
}

/// The reads from the cache drive during an operation.
fn counts_during(pool: &Pool, work: impl FnOnce()) -> CacheCounts {
    let before = pool.drives().cache_counts();
    work();
    let after = pool.drives().cache_counts();
    CacheCounts {
        memory_hits: after.memory_hits - before.memory_hits,
        memory_misses: after.memory_misses - before.memory_misses,
        drive_hits: after.drive_hits - before.drive_hits,
        drive_misses: after.drive_misses - before.drive_misses,
        drive_written: after.drive_written - before.drive_written,
        ..after
    }
}

fn assert_clean(folder: &TempDir) {
    assert_eq!(check_pool(folder, "tank"), Vec::<String>::new());
}

#[test]
fn reads_beyond_memory_come_from_the_cache_drive() {
    let (folder, path) = create_pool("cached", 96 << 20);
    let pool = import(&folder);
    let first = counts_during(&pool, || read_and_feed(&pool, "tank"));
    assert!(first.drive_hits == 0 && first.drive_written > u64::from(FILE_SIZE), "{first:?}");
    let again = counts_during(&pool, || read_and_feed(&pool, "tank"));
    assert!(again.memory_misses >= 150 && again.drive_hits >= 150, "{again:?}");
    assert!(again.drive_misses < again.drive_hits / 20, "{again:?}");
    let status = pool.status();
    let [cache] = &status.caches[..] else { panic!("{:?}", status.caches) };
    assert_eq!((cache.name.as_str(), cache.state.as_str()), (path.to_str().unwrap(), "ONLINE"));
    assert!(cache.allocated > u64::from(FILE_SIZE) && cache.size < 96 << 20, "{cache:?}");
    assert!(pool.drives().list().contains(&path));
    pool.export().unwrap();
    drop(pool);
    assert_clean(&folder);
}

/// The output of zdb for the drive; none if it is not installed.
fn zdb_label(path: &std::path::Path) -> Option<String> {
    let output = fixtures::zdb_command().arg("-lll").arg(path).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn zdb_number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap_or("");
    line.trim_start_matches([':', ' ']).parse().unwrap_or(0)
}

#[test]
fn zdb_reads_the_cache_and_import_restores_it() {
    let (folder, path) = create_pool("found-again", PERSISTENT_SIZE);
    let pool = import(&folder);
    read_and_feed(&pool, "tank");
    pool.export().unwrap();
    drop(pool);
    if let Some(text) = zdb_label(&path) {
        assert!(text.contains("L2ARC device header"), "{text}");
        assert_eq!(zdb_number(&text, "magic"), 6_504_978_260_106_102_853, "{text}");
        assert_eq!(zdb_number(&text, "lb_count_refcount"), 2, "{text}");
        let sound = ["log_blk_count:\t 2 with valid cksum", "\t 0 with invalid cksum"];
        assert!(sound.iter().all(|words| text.contains(words)), "{text}");
    }
    let pool = import(&folder);
    assert_eq!(pool.background().feed_l2arc(0), 0);
    let known = pool.drives().cache_counts().drive_blocks;
    assert!(known >= 148, "{known}");
    let again = counts_during(&pool, || read_and_feed(&pool, "tank"));
    assert!(again.drive_hits >= 140, "{again:?}");
    assert_eq!(pool.status().caches[0].checksum_errors, 0);
    pool.export().unwrap();
    drop(pool);
    assert_clean(&folder);
}

#[test]
fn pool_works_without_its_cache_drive() {
    let (folder, path) = create_pool("without", 96 << 20);
    let pool = import(&folder);
    read_and_feed(&pool, "tank");
    pool.close().unwrap();
    drop(pool);
    let elsewhere = folder.path().join("../elsewhere.img");
    std::fs::rename(&path, &elsewhere).unwrap();
    let pool = import(&folder);
    let status = pool.status();
    assert_eq!((status.state.as_str(), status.caches[0].state.as_str()), ("ONLINE", "UNAVAIL"));
    read_and_feed(&pool, "tank");
    // where it was, it is found when the pool is cleared
    std::fs::rename(&elsewhere, &path).unwrap();
    pool.clear_errors(None).unwrap();
    assert_eq!(pool.status().caches[0].state, "ONLINE");
    pool.export().unwrap();
    drop(pool);
    // found by its identity, wherever it is
    std::fs::rename(&path, folder.path().join("moved.img")).unwrap();
    let pool = import(&folder);
    assert_eq!(pool.status().caches[0].state, "ONLINE");
    pool.export().unwrap();
    drop(pool);
    assert_clean(&folder);
}

fn storm_pool() -> (DiskArray, Pool) {
    let storm = DiskArray::new(&[DRIVE_SIZE, DRIVE_SIZE, 64 << 20]);
    let path = |index: usize| PathBuf::from(format!("/disk{index}"));
    let vdevs = vec![
        new_vdev(VdevLayout::Mirror, vec![path(0), path(1)], VdevRole::Data),
        new_vdev(VdevLayout::Single, vec![path(2)], VdevRole::Cache),
    ];
    let (name, properties) = ("tank".to_owned(), Vec::new());
    let new = NewPool { name, vdevs, ashift: None, properties, force: false };
    let held =
        engine::pool::create_on_devices(&new, &storm.devices(), &small_environment()).unwrap();
    (storm, held)
}

#[test]
fn wrong_cache_blocks_are_never_returned() {
    let (storm, pool) = storm_pool();
    write_file(&pool, "tank", "file", &noise_bytes(1, FILE_SIZE));
    pool.sync().unwrap();
    read_and_feed(&pool, "tank");
    let before = pool.drives().cache_counts().drive_blocks;
    assert!(before >= 150);
    storm.disks()[2].flip_bits(4 << 20..64 << 20, 2000, &mut sim::Random::new(5));
    let rotten = counts_during(&pool, || read_and_feed(&pool, "tank"));
    assert!(rotten.drive_misses > 10, "{rotten:?}");
    assert!(pool.status().caches[0].checksum_errors > 10);
    assert_eq!(pool.status().state, "ONLINE");
    storm.disks()[2].add_fault(Fault::Removed);
    for _ in 0..3 {
        read_and_feed(&pool, "tank");
    }
    assert_eq!(pool.status().caches[0].state, "FAULTED");
    write_file(&pool, "tank", "more", &noise_bytes(2, 1 << 20));
    pool.sync().unwrap();
    storm.disks()[2].clear_faults();
    pool.clear_errors(None).unwrap();
    read_and_feed(&pool, "tank");
    assert_eq!(pool.status().caches[0].state, "ONLINE");
    let again = counts_during(&pool, || read_and_feed(&pool, "tank"));
    assert!(again.drive_hits > 100, "{again:?}");
}

#[test]
fn errors_of_one_drive_are_cleared() {
    let (storm, pool) = storm_pool();
    write_file(&pool, "tank", "file", &noise_bytes(1, FILE_SIZE));
    pool.sync().unwrap();
    read_and_feed(&pool, "tank");
    storm.disks()[2].flip_bits(4 << 20..64 << 20, 2000, &mut sim::Random::new(5));
    read_and_feed(&pool, "tank");
    storm.disks()[0].add_fault(Fault::Removed);
    write_file(&pool, "tank", "more", &noise_bytes(2, 1 << 20));
    pool.sync().unwrap();
    storm.disks()[0].clear_faults();
    let errors = || {
        let status = pool.status();
        let data = status.vdevs[0].children[0].write_errors;
        (data > 0, status.caches[0].checksum_errors > 0)
    };
    assert_eq!(errors(), (true, true));
    assert!(matches!(pool.clear_errors(Some("/disk7")), Err(engine::Error::Usage { .. })));
    assert_eq!(errors(), (true, true));
    pool.clear_errors(Some("/disk2")).unwrap();
    assert_eq!(errors(), (true, false));
    pool.clear_errors(Some("disk0")).unwrap();
    assert_eq!(errors(), (false, false));
}

#[test]
fn committed_data_survives_with_a_cache_drive() {
    let (storm, held) = storm_pool();
    write_file(&held, "tank", "file", &noise_bytes(1, FILE_SIZE));
    held.sync().unwrap();
    let synced = storm.journal().len();
    for round in 0..4 {
        read_and_feed(&held, "tank");
        write_file(&held, "tank", &format!("more{round}"), &noise_bytes(round + 10, 2 << 20));
        held.sync().unwrap();
    }
    let end = storm.journal().len();
    let points = (synced..end).step_by((end - synced) / 24);
    for (seed, at) in (0..).zip(points) {
        let devices: Vec<Arc<dyn Device>> = storm
            .journal()
            .cut_power(at, seed)
            .into_iter()
            .map(|disk| Arc::new(disk) as Arc<dyn Device>)
            .collect();
        let held = engine::pool::import_devices(&devices, "tank", &small_environment()).unwrap();
        assert_eq!(held.status().caches[0].state, "ONLINE");
        read_and_feed(&held, "tank");
        read_and_feed(&held, "tank");
        assert_eq!(held.status().caches[0].checksum_errors, 0, "no log, nothing is believed");
    }
}

#[test]
fn secondarycache_limits_the_cached_blocks() {
    let (storm, held) = storm_pool();
    for (name, value) in [("tank/none", "none"), ("tank/meta", "metadata"), ("tank/all", "all")] {
        let properties = vec![("secondarycache".to_owned(), value.to_owned())];
        held.datasets()
            .create_filesystem(&NewDataset { name: name.to_owned(), properties })
            .unwrap();
        write_file(&held, name, "file", &noise_bytes(1, FILE_SIZE));
    }
    held.close().unwrap();
    drop(held);
    let blocks = |dataset: &str, value: Option<&str>| {
        let held =
            engine::pool::import_devices(&storm.devices(), "tank", &small_environment()).unwrap();
        if let Some(value) = value {
            held.properties().set(dataset, "secondarycache", value).unwrap();
        }
        let written = counts_during(&held, || read_and_feed(&held, dataset)).drive_written;
        held.close().unwrap();
        written
    };
    let size = u64::from(FILE_SIZE);
    let (none, meta, all) =
        (blocks("tank/none", None), blocks("tank/meta", None), blocks("tank/all", None));
    assert!(none < meta && meta < size / 4 && all > size, "{none} {meta} {all}");
    assert!(blocks("tank/none", Some("all")) > size, "set while it is in use");
}

#[test]
fn cache_drive_holds_ciphertext() {
    let (storm, pool) = storm_pool();
    let properties = [("encryption", "on"), ("keyformat", "passphrase"), ("checksum", "sha512")];
    let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let new = NewDataset { name: "tank/secret".to_owned(), properties };
    pool.datasets().create_filesystem_with(&new, Some(b"correct horse battery staple")).unwrap();
    write_file(&pool, "tank/secret", "file", &noise_bytes(1, FILE_SIZE));
    pool.sync().unwrap();
    read_and_feed(&pool, "tank/secret");
    let again = counts_during(&pool, || read_and_feed(&pool, "tank/secret"));
    assert!(again.drive_hits > 100, "{again:?}");
    let cache = storm.disks()[2].memory().bytes();
    let plain = noise_bytes(1, FILE_SIZE);
    let stored = plain.chunks(128 << 10).filter(|piece| {
        let start = &piece[..64];
        cache.chunks(4096).any(|sector| sector.starts_with(start))
    });
    assert_eq!(stored.count(), 0, "nothing of it lies there in the clear");
}

#[test]
fn cache_drives_and_spares_come_and_go() {
    let folder = TempDir::new("come-and-go", 4, DRIVE_SIZE);
    let drives = folder.drives(4);
    let vdevs = vec![new_vdev(VdevLayout::Single, drives[..1].to_vec(), VdevRole::Data)];
    let (name, properties) = ("tank".to_owned(), Vec::new());
    let new = NewPool { name, vdevs, ashift: None, properties, force: false };
    let held = engine::pool::create(&new, &small_environment()).unwrap();
    write_file(&held, "tank", "file", &noise_bytes(1, FILE_SIZE));
    held.sync().unwrap();
    let add = |purpose, index: usize, force| {
        held.vdevs().add(
            &[new_vdev(VdevLayout::Single, vec![drives[index].clone()], purpose)],
            AddOptions { force, ..AddOptions::default() },
        )
    };
    add(VdevRole::Cache, 1, false).unwrap();
    add(VdevRole::Cache, 2, false).unwrap();
    add(VdevRole::Spare, 3, false).unwrap();
    assert!(matches!(add(VdevRole::Cache, 3, true), Err(engine::Error::DeviceInPool { .. })));
    read_and_feed(&held, "tank");
    let states = |held: &Pool| {
        let status = held.status();
        let all = status.caches.into_iter().chain(status.spares);
        all.map(|vdev| vdev.state).collect::<Vec<_>>()
    };
    assert_eq!(states(&held), ["ONLINE", "ONLINE", "AVAIL"]);
    let both = held.status().caches;
    assert!(both.iter().all(|cache| cache.allocated > u64::from(FILE_SIZE) / 4), "{both:?}");
    held.export().unwrap();
    drop(held);
    assert_clean(&folder);
    let held = import(&folder);
    assert_eq!(states(&held), ["ONLINE", "ONLINE", "AVAIL"]);
    let gone: Vec<String> = [1, 3].map(|index: usize| drives[index].display().to_string()).into();
    held.vdevs().remove(&gone).unwrap();
    assert_eq!(states(&held), ["ONLINE"]);
    assert!(matches!(held.vdevs().remove(&gone), Err(engine::Error::Usage { .. })));
    read_and_feed(&held, "tank");
    held.export().unwrap();
    drop(held);
    assert_clean(&folder);
    // a removed drive is unused
    let free = folder.path().join("../free.img");
    std::fs::rename(&drives[1], &free).unwrap();
    let other = vec![new_vdev(VdevLayout::Single, vec![free.clone()], VdevRole::Data)];
    // what only an exported pool knows as its cache drive is free, too
    let vdevs = other.into_iter().chain([new_vdev(
        VdevLayout::Single,
        vec![drives[2].clone()],
        VdevRole::Cache,
    )]);
    let new = NewPool {
        name: "other".to_owned(),
        vdevs: vdevs.collect(),
        ashift: None,
        properties: Vec::new(),
        force: false,
    };
    drop(engine::pool::create(&new, &small_environment()).unwrap());
    std::fs::remove_file(free).unwrap();
    let held = import(&folder);
    assert_eq!(states(&held), ["UNAVAIL"]);
    assert!(read_file(&held, "tank", "file") == noise_bytes(1, FILE_SIZE));
    let small = Arc::new(Bytes::zeroed("small", 1 << 20)) as Arc<dyn Device>;
    let cache = new_vdev(VdevLayout::Single, vec![PathBuf::from("/small")], VdevRole::Cache);
    let refused = held.vdevs().add_opened(&[cache], &[small], AddOptions::default());
    assert!(matches!(refused, Err(engine::Error::Usage { .. })), "{refused:?}");
}
