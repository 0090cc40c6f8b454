//! Wrong data of a drive is repaired when it is read, and only there.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use engine::pool::{DraidLayout, NewDataset, Pool, ScanProgress, VdevLayout};
use units::ObjectId;

use crate::resilver::{churn_files, corrupt_sectors, create_with_outdated, import};
use crate::rewind::read_files;
use crate::shared_blocks::noise_bytes;
use crate::test_pool::{
    TempDir, check_pool, credentials, environment, new_pool, read_file, write_file,
};

const DRIVE_SIZE: u64 = 128 << 20;
const SECTOR_SIZE: usize = 4096;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Labels and boot area.
const DATA_OFFSET: u64 = 4 << 20;

/// Where a sector with those bytes is on a drive.
fn find_sector(drive: &Path, sector: &[u8]) -> Option<u64> {
    let bytes = std::fs::read(drive).unwrap();
    let at = bytes.chunks_exact(SECTOR_SIZE).position(|found| found == sector)?;
    Some((at * SECTOR_SIZE) as u64)
}

fn overwrite(drive: &Path, at: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(drive).unwrap().write_all_at(bytes, at).unwrap();
}

fn has_bytes(drive: &Path, at: u64, bytes: &[u8]) -> bool {
    let mut found = vec![0; bytes.len()];
    std::fs::File::open(drive).unwrap().read_exact_at(&mut found, at).unwrap();
    found == bytes
}

/// Does something while groups are written by a thread, and then waits for one turn of it.
fn with_sync_thread(pool: &Pool, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let server =
            scope.spawn(|| pool.background().run_txg_sync(Duration::from_millis(20), &stop));
        work();
        thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Release);
        pool.sync().unwrap();
        server.join().unwrap().unwrap();
    });
}

/// A pool with a file, of which a drive has a sector wrong. Which drive, and where.
fn create_corrupted(
    folder: &TempDir,
    shape: VdevLayout,
    count: usize,
    content: &[u8],
) -> (usize, u64) {
    let held = engine::pool::create(&new_pool(folder, shape, count), &environment()).unwrap();
    held.properties().set("tank", "compression", "off").unwrap();
    write_file(&held, "tank", "film", content);
    held.export().unwrap();
    drop(held);
    let sector = &content[2 * SECTOR_SIZE..3 * SECTOR_SIZE];
    let drives = folder.drives(count);
    let place = |drive: usize| Some((drive, find_sector(&drives[drive], sector)?));
    let (mut drive, at) = (0..count).find_map(place).expect("it is on a drive");
    if shape == VdevLayout::Mirror {
        // the side that this region is read from
        drive = usize::try_from((at - DATA_OFFSET) >> 21).unwrap() % count;
    }
    overwrite(&drives[drive], at, &noise_bytes(99, 4096));
    (drive, at)
}

fn checksum_errors(pool: &Pool) -> u64 {
    let vdevs = pool.status().vdevs.into_iter();
    vdevs.flat_map(|top| top.children).map(|leaf| leaf.checksum_errors).sum()
}

#[test]
fn read_repairs_wrong_data() {
    for (name, shape, count) in [
        ("mirror", VdevLayout::Mirror, 2),
        ("raidz1", VdevLayout::Raidz(1), 4),
        ("raidz2", VdevLayout::Raidz(2), 5),
        ("draid1", VdevLayout::Draid(DraidLayout { parity: 1, data: 2, spares: 1 }), 5),
    ] {
        let folder = TempDir::new(&format!("healing-{name}"), count, DRIVE_SIZE);
        let content = noise_bytes(7, 1 << 20);
        let (drive, at) = create_corrupted(&folder, shape, count, &content);
        let drives = folder.drives(count);
        let sector = &content[2 * SECTOR_SIZE..3 * SECTOR_SIZE];
        let pool = import(&drives);
        with_sync_thread(&pool, || {
            assert!(read_file(&pool, "tank", "film") == content, "{name}");
            let begun = Instant::now();
            while !has_bytes(&drives[drive], at, sector) && begun.elapsed() < TIMEOUT {
                thread::sleep(Duration::from_millis(10));
            }
        });
        assert_eq!(checksum_errors(&pool), 1, "{name}: it is counted once");
        assert!(has_bytes(&drives[drive], at, sector), "{name}: it is repaired");
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn unchecksummed_differences_are_not_repaired() {
    for wrong in 0..2 {
        let folder = TempDir::new(&format!("healing-unknown-{wrong}"), 2, DRIVE_SIZE);
        let content = noise_bytes(9, 1 << 20);
        let held = engine::pool::create(&new_pool(&folder, VdevLayout::Mirror, 2), &environment())
            .unwrap();
        held.properties().set("tank", "compression", "off").unwrap();
        held.properties().set("tank", "checksum", "off").unwrap();
        write_file(&held, "tank", "film", &content);
        held.export().unwrap();
        drop(held);
        let (sector, drives) = (&content[2 * SECTOR_SIZE..3 * SECTOR_SIZE], folder.drives(2));
        let at = find_sector(&drives[wrong], sector).unwrap();
        overwrite(&drives[wrong], at, &noise_bytes(99, 4096));
        let held = import(&drives);
        let scrubbed = held.scans().scrub(&ScanProgress::new()).unwrap();
        assert_eq!((scrubbed.complete, scrubbed.errors, scrubbed.written), (true, 1, 0));
        held.export().unwrap();
        assert!(has_bytes(&drives[1 - wrong], at, sector), "it is the only one that is right");
    }
}

#[test]
fn freed_blocks_are_not_repaired() {
    let folder = TempDir::new("healing-gone", 4, DRIVE_SIZE);
    let content = noise_bytes(8, 1 << 20);
    let (drive, at) = create_corrupted(&folder, VdevLayout::Raidz(1), 4, &content);
    let drives = folder.drives(4);
    let pool = import(&drives);
    assert!(read_file(&pool, "tank", "film") == content);
    assert!(checksum_errors(&pool) > 0);
    // not repaired yet: there was no thread for it
    let fs = pool.datasets().filesystem("tank").unwrap();
    let root = ObjectId::new(fs.reader().root_object());
    fs.unlink(&credentials(), root, b"film").unwrap();
    drop(fs);
    for _ in 0..3 {
        pool.sync().unwrap();
    }
    with_sync_thread(&pool, || ());
    assert!(
        has_bytes(&drives[drive], at, &noise_bytes(99, 4096)),
        "the space may belong to another block by now"
    );
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn bad_drive_is_repaired_during_writes() {
    for (name, shape, count) in
        [("rotten-mirror", VdevLayout::Mirror, 2), ("rotten-raidz2", VdevLayout::Raidz(2), 5)]
    {
        let folder = TempDir::new(name, count, DRIVE_SIZE);
        create_with_outdated(&folder, shape, count, 0);
        let drives = folder.drives(count);
        let pool = import(&drives);
        let secret = [("encryption", "on"), ("keyformat", "raw")];
        let properties = secret.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let secret = NewDataset { name: "tank/secret".to_owned(), properties };
        pool.datasets().create_filesystem_with(&secret, Some(&[7; 32])).unwrap();
        write_file(&pool, "tank/secret", "letter", &noise_bytes(11, 2 << 20));
        pool.export().unwrap();
        drop(pool);
        corrupt_sectors(&drives[1]);
        // how many errors reading met
        let read = |beside: bool| {
            let pool = import(&drives);
            pool.keys().load("tank/secret", &[7; 32]).unwrap();
            let (before, stop) = (checksum_errors(&pool), AtomicBool::new(!beside));
            with_sync_thread(&pool, || {
                thread::scope(|scope| {
                    scope.spawn(|| churn_files(&pool, &stop));
                    for (fs, file, bytes) in [
                        ("tank", "before", noise_bytes(1, 6 << 20)),
                        ("tank/clone", "while", noise_bytes(5, 900_000)),
                        ("tank/child", "small7", noise_bytes(7, 700)),
                        ("tank/secret", "letter", noise_bytes(11, 2 << 20)),
                    ] {
                        assert!(read_file(&pool, fs, file) == bytes, "{name}: {fs} {file}");
                        thread::sleep(Duration::from_millis(200));
                    }
                    let snapshot = pool.datasets().synced_reader("tank/child@two").unwrap();
                    let file = snapshot.find(b"before").unwrap().unwrap();
                    let mut bytes = vec![0; 1 << 20];
                    file.content().read(0, &mut bytes).unwrap();
                    assert!(bytes == noise_bytes(2, 1 << 20), "{name}");
                    stop.store(true, Ordering::Release);
                });
            });
            let met = checksum_errors(&pool) - before;
            pool.export().unwrap();
            met
        };
        let (first, second) = (read(true), read(false));
        assert!(first > 10 && second == 0, "{name}: {first} errors, then {second}");
        let pool = import(&drives);
        let mended = pool.scans().scrub(&ScanProgress::new()).unwrap();
        assert!(mended.complete && mended.damage.is_empty(), "{name}: {mended:?}");
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn read_repairs_gang_blocks() {
    if !fixtures::exists("gang") {
        return;
    }
    let below = TempDir::new("healing-gang", 0, 0);
    let fixture = fixtures::unpack("gang", below.path()).unwrap();
    let images = fixture.images();
    let import = || {
        let folder = std::slice::from_ref(&fixture.dir);
        engine::pool::import(folder, fixture.pool_name(), true, &environment()).unwrap()
    };
    let read = |pool: &Pool| read_files(pool.datasets().filesystem("tank").unwrap().reader());
    let pool = import();
    let whole = read(&pool);
    pool.export().unwrap();
    drop(pool);
    corrupt_sectors(&images[0]);
    let read_and_count = || {
        let pool = import();
        let before = checksum_errors(&pool);
        with_sync_thread(&pool, || assert!(read(&pool) == whole));
        let found = checksum_errors(&pool) - before;
        pool.export().unwrap();
        found
    };
    let (first, second) = (read_and_count(), read_and_count());
    assert!(first > 10 && second == 0, "{first} errors, then {second}");
}

#[test]
fn unreadable_block_enters_the_error_log() {
    let folder = TempDir::new("healing-lost", 2, DRIVE_SIZE);
    let content = noise_bytes(7, 1 << 20);
    let (_, at) = create_corrupted(&folder, VdevLayout::Mirror, 2, &content);
    let drives = folder.drives(2);
    for drive in &drives {
        overwrite(drive, at, &noise_bytes(99, 4096));
    }
    let pool = import(&drives);
    with_sync_thread(&pool, || {
        let files = pool.datasets().filesystem("tank").unwrap();
        let film = files.reader().find(b"film").unwrap().unwrap();
        film.content().read(0, &mut vec![0; 1 << 20]).unwrap_err();
        drop(files);
        let begun = Instant::now();
        while pool.scans().data_errors().is_empty() && begun.elapsed() < TIMEOUT {
            thread::sleep(Duration::from_millis(10));
        }
    });
    let found = pool.scans().data_errors();
    assert!(found.len() == 1 && found[0].starts_with("tank:/film"), "{found:?}");
    pool.export().unwrap();
    drop(pool);
    // the pool keeps it, and a file that is gone has no errors
    let pool = import(&drives);
    assert_eq!(pool.scans().data_errors().len(), 1);
    let files = pool.datasets().filesystem("tank").unwrap();
    let root = ObjectId::new(files.reader().root_object());
    files.unlink(&credentials(), root, b"film").unwrap();
    drop(files);
    pool.export().unwrap();
    drop(pool);
    let pool = import(&drives);
    assert_eq!(pool.scans().data_errors(), Vec::<String>::new());
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn sync_writes_errors_of_earlier_reads() {
    let folder = TempDir::new("healing-sync", 1, DRIVE_SIZE);
    create_corrupted(&folder, VdevLayout::Single, 1, &noise_bytes(11, 1 << 20));
    let pool = import(&folder.drives(1));
    let files = pool.datasets().filesystem("tank").unwrap();
    let film = files.reader().find(b"film").unwrap().unwrap();
    film.content().read(0, &mut vec![0; 1 << 20]).unwrap_err();
    assert_eq!(pool.scans().data_errors(), Vec::<String>::new());
    pool.scans().sync_with_errors().unwrap();
    let found = pool.scans().data_errors();
    assert!(found.len() == 1 && found[0].starts_with("tank:/film"), "{found:?}");
    drop((film, files));
    pool.export().unwrap();
}

#[test]
fn removed_file_leaves_error_of_its_snapshot() {
    let folder = TempDir::new("healing-removed", 1, DRIVE_SIZE);
    create_corrupted(&folder, VdevLayout::Single, 1, &noise_bytes(11, 1 << 20));
    let pool = import(&folder.drives(1));
    pool.snapshots().create(&["tank@one".to_owned()]).unwrap();
    let files = pool.datasets().filesystem("tank").unwrap();
    let film = files.reader().find(b"film").unwrap().unwrap();
    film.content().read(0, &mut vec![0; 1 << 20]).unwrap_err();
    drop(film);
    let root = ObjectId::new(files.reader().root_object());
    files.unlink(&credentials(), root, b"film").unwrap();
    drop(files);
    with_sync_thread(&pool, || ());
    let found = pool.scans().data_errors();
    assert!(found.len() == 1 && found[0].starts_with("tank@one:/film"), "{found:?}");
    pool.export().unwrap();
}

#[test]
fn lost_block_of_a_read_is_logged() {
    let folder = TempDir::new("healing-lost", 1, DRIVE_SIZE);
    let content = noise_bytes(11, 1 << 20);
    let (drive, at) = create_corrupted(&folder, VdevLayout::Single, 1, &content);
    let pool = import(&folder.drives(1));
    let read = || {
        let live = pool.datasets().filesystem("tank").unwrap();
        let file = live.reader().find(b"film").unwrap().unwrap();
        file.content().read(0, &mut vec![0; 1 << 20]).is_ok()
    };
    assert_eq!(pool.scans().data_errors(), Vec::<String>::new());
    with_sync_thread(&pool, || assert!(!read(), "a wrong sector of the only copy was read"));
    let errors = pool.scans().data_errors();
    assert!(matches!(&errors[..], [one] if one.starts_with("tank:/film: bytes ")), "{errors:?}");
    // the error log is in the pool
    pool.export().unwrap();
    drop(pool);
    let sector = &content[2 * SECTOR_SIZE..3 * SECTOR_SIZE];
    overwrite(&folder.drives(1)[drive], at, sector);
    let pool = import(&folder.drives(1));
    assert_eq!(pool.scans().data_errors(), errors);
    assert_eq!(pool.scans().scrub(&ScanProgress::new()).unwrap().errors, 0);
    assert_eq!(pool.scans().data_errors(), Vec::<String>::new(), "a scrub found it whole");
    pool.export().unwrap();
}
