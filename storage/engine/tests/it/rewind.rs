//! Rewinds: of a damaged newest state, or to a checkpoint.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use device::{Device, File};
use engine::pool::{self, ImportOptions, Pool, Rewind, RewindTarget, VdevLayout};
use engine::{Error, ImportPoint};

use crate::test_pool::{TempDir, check_pool, environment, new_pool, read_file, write_file};

/// The offset of the first block on a vdev.
const DATA_OFFSET: u64 = 4 << 20;

fn import_rewound(folder: &TempDir, pool: &str, rewind: Rewind) -> engine::Result<Pool> {
    let options = ImportOptions { rewind, force: true, ..ImportOptions::default() };
    pool::import_with(&[folder.path().into()], pool, &options, &environment())
}

fn import_with_keys(
    folder: &TempDir,
    pool: &str,
    txg: u64,
    keys: Vec<(String, Vec<u8>)>,
) -> engine::Result<Pool> {
    let options =
        ImportOptions { rewind: Rewind::Txg(txg), force: true, keys, ..ImportOptions::default() };
    pool::import_with(&[folder.path().into()], pool, &options, &environment())
}

#[test]
fn the_reading_before_it_can_be_stopped() {
    let folder = TempDir::new("rewind-stopped", 2, 64 << 20);
    create_history(&folder);
    let before = uberblock_txgs(&folder);
    let options = ImportOptions { rewind: Rewind::Recent, force: true, ..ImportOptions::default() };
    options.rewind_probe.stop();
    let stopped =
        pool::import_with(&[folder.path().into()], "tank", &options, &environment()).err();
    assert!(matches!(stopped, Some(Error::RewindInterrupted { .. })), "{stopped:?}");
    assert_eq!(options.rewind_probe.progress(), None);
    assert_eq!(uberblock_txgs(&folder), before, "nothing was written");
    let held = import_rewound(&folder, "tank", Rewind::Recent).unwrap();
    assert_eq!(held.rewind_target(), None);
}

/// The state of the rewind.
fn preview_rewind(
    folder: &TempDir,
    pool: &str,
    rewind: Rewind,
) -> engine::Result<Option<RewindTarget>> {
    let options = ImportOptions { rewind, force: true, ..ImportOptions::default() };
    pool::preview_rewind(&[folder.path().into()], pool, &options, &environment())
}

fn candidates(drives: impl Iterator<Item = PathBuf>) -> Vec<spa::Candidate> {
    let open = |path: PathBuf| Arc::new(File::open(&path).unwrap()) as Arc<dyn Device>;
    spa::scan_devices(&drives.map(open).collect::<Vec<_>>()).0
}

/// Its txgs, newest first.
fn uberblock_txgs(folder: &TempDir) -> Vec<u64> {
    let drives = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let pools = candidates(drives);
    pools[0].uberblocks().iter().map(|uberblock| uberblock.txg.get()).collect()
}

/// Creates a pool, a mirror of two, with a file for each of some txgs, and cuts the power. A record
/// was committed after the last.
fn create_history(folder: &TempDir) -> Vec<u64> {
    let held = pool::create(&new_pool(folder, VdevLayout::Mirror, 2), &environment()).unwrap();
    let mut txgs = Vec::new();
    for name in ["one", "two", "three", "four"] {
        write_file(&held, "tank", name, name.repeat(50_000).as_bytes());
        // the second time there is a chain of log blocks
        held.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
        write_file(&held, "tank", &format!("{name}-promised"), name.as_bytes());
        held.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
        held.sync().unwrap();
        txgs.push(held.txg());
    }
    write_file(&held, "tank", "promised", b"after all that");
    held.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
    txgs
}

/// Destroys the root of the pool as of a txg on all drives.
fn destroy_root(folder: &TempDir, txg: u64) {
    let drives = folder.drives(2);
    let pools = candidates(drives.iter().cloned());
    let found = pools[0].uberblocks().into_iter().find(|found| found.txg.get() == txg).unwrap();
    let ondisk::Blkptr::Regular(root) = &found.root else { panic!("a root is a block") };
    for dva in root.copies() {
        for drive in &drives {
            let file = OpenOptions::new().write(true).open(drive).unwrap();
            file.write_all_at(&[0xa5; 512], dva.offset + DATA_OFFSET).unwrap();
        }
    }
}

fn file_names(pool: &Pool) -> Vec<&'static str> {
    let files = pool.datasets().filesystem("tank").unwrap();
    let there = |name: &&str| files.reader().find(name.as_bytes()).unwrap().is_some();
    ["one", "two", "three", "four", "promised"].into_iter().filter(there).collect()
}

#[test]
fn damaged_newest_state_is_discarded() {
    let folder = TempDir::new("rewind", 2, 128 << 20);
    let txgs = create_history(&folder);
    let newest = uberblock_txgs(&folder)[0];
    for txg in uberblock_txgs(&folder).into_iter().filter(|txg| *txg > txgs[2]) {
        destroy_root(&folder, txg);
    }
    let refused = import_rewound(&folder, "tank", Rewind::No).err().map(|error| error.to_string());
    assert!(refused.is_some_and(|why| why.contains("`zpool import -F tank` rewinds to it")));
    let wanted = preview_rewind(&folder, "tank", Rewind::Extreme).unwrap().unwrap();
    assert_eq!(wanted.txg, txgs[2]);
    assert_eq!(uberblock_txgs(&folder)[0], newest, "so far nothing was done");

    let pool = import_rewound(&folder, "tank", Rewind::Extreme).unwrap();
    assert_eq!(pool.rewind_target(), Some(wanted));
    assert!(pool.txg() > newest, "no discarded state is newer");
    assert_eq!(file_names(&pool), ["one", "two", "three"]);
    assert_eq!(read_file(&pool, "tank", "three"), "three".repeat(50_000).as_bytes());
    assert_eq!(read_file(&pool, "tank", "three-promised"), b"three");
    write_file(&pool, "tank", "promised", b"anew");
    pool.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
    drop(pool);
    let pool = import_rewound(&folder, "tank", Rewind::No).unwrap();
    assert_eq!(file_names(&pool), ["one", "two", "three", "promised"]);
    assert_eq!(read_file(&pool, "tank", "promised"), b"anew");
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn rewind_goes_no_farther_than_needed() {
    let folder = TempDir::new("rewind-far", 2, 128 << 20);
    let txgs = create_history(&folder);
    assert_eq!(preview_rewind(&folder, "tank", Rewind::Recent).unwrap(), None, "nothing is wrong");
    let missing = preview_rewind(&folder, "tank", Rewind::Txg(1)).err();
    assert!(matches!(missing, Some(Error::NoSuchTxg { txg: 1, .. })), "{missing:?}");
    let all = uberblock_txgs(&folder);
    for txg in all.iter().take_while(|txg| **txg + 2 >= all[0]) {
        destroy_root(&folder, *txg);
    }
    let near = import_rewound(&folder, "tank", Rewind::Recent).err();
    assert!(matches!(near, Some(Error::RewindFailed { has_older_states: true, .. })), "{near:?}");
    let pool = import_rewound(&folder, "tank", Rewind::Txg(txgs[0])).unwrap();
    assert_eq!(file_names(&pool), ["one"]);
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

/// The power fails before anything is written to a rewound pool: it stays rewound, and log records
/// of discarded states are not replayed.
#[test]
fn rewound_pool_stays_rewound() {
    let folder = TempDir::new("rewind-cut", 2, 128 << 20);
    let txgs = create_history(&folder);
    drop(import_rewound(&folder, "tank", Rewind::Txg(txgs[2])).unwrap());
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    let held = import_rewound(&folder, "tank", Rewind::No).unwrap();
    assert_eq!(file_names(&held), ["one", "two", "three"]);
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    // to be looked at only, it is left where it is
    let before = std::fs::read(&folder.drives(2)[0]).unwrap();
    let options =
        ImportOptions { rewind: Rewind::Txg(txgs[3]), read_only: true, ..ImportOptions::default() };
    let held =
        pool::import_with(&[folder.path().into()], "tank", &options, &environment()).unwrap();
    assert_eq!(file_names(&held), ["one", "two", "three", "four"]);
    drop(held);
    assert!(before == std::fs::read(&folder.drives(2)[0]).unwrap());
}

/// Each file of a tree, with its bytes.
fn read_content(pool: &engine::RescuePool, dataset: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    read_files(&pool.open_filesystem(dataset).unwrap().0)
}

pub(crate) fn read_files(files: &engine::files::FileSystemReader) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut todo = vec![(Vec::new(), files.root().unwrap())];
    while let Some((path, file)) = todo.pop() {
        if file.stat().is_directory() {
            for name in files.read_dir_sorted(&file).unwrap() {
                let below = [&path[..], b"/", &name.name].concat();
                todo.push((below, files.file(name.ino).unwrap()));
            }
            continue;
        }
        let mut bytes = vec![0; usize::try_from(file.stat().size).unwrap()];
        file.content().read(0, &mut bytes).unwrap();
        all.insert(path, bytes);
    }
    all
}

#[test]
fn openzfs_pool_rewinds_to_its_checkpoint() {
    let fixture = fixtures::load("checkpoint-raidz");
    let folder = copy_fixture(&fixture);
    let here = [folder.path().to_path_buf()];
    let options = engine::OpenOptions { import_point: ImportPoint::Checkpoint, no_zil: true };
    let then = read_content(&engine::search(&here).open("tank", &options).unwrap(), "tank");
    let now = read_content(
        &engine::search(&here).open("tank", &engine::OpenOptions::default()).unwrap(),
        "tank",
    );
    assert_ne!(then, now, "something was changed since");
    let pool = import_rewound(&folder, "tank", Rewind::No).unwrap();
    write_file(&pool, "tank", "given-up", &vec![5; 3_000_000]);
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    let pool = import_rewound(&folder, "tank", Rewind::Checkpoint).unwrap();
    write_file(&pool, "tank", "written-here", &vec![7; 3_000_000]);
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    let mut after = read_content(
        &engine::search(&here).open("tank", &engine::OpenOptions::default()).unwrap(),
        "tank",
    );
    assert_eq!(after.remove(&b"/written-here"[..]), Some(vec![7; 3_000_000]));
    assert!(after == then);
}

fn copy_fixture(fixture: &fixtures::Fixture) -> TempDir {
    let folder = TempDir::new(&format!("rewind-{}", fixture.name), 0, 0);
    for path in fixture.images() {
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

/// Rewinds pools of OpenZFS to a recent state, and works on from there.
#[test]
fn openzfs_pools_are_rewound() {
    let mut written = 0;
    for fixture in fixtures::all() {
        let (name, pool) = (fixture.name.as_str(), fixture.pool_name().to_owned());
        let sound = fixture.damaged_images().is_empty() && fixture.missing_images().is_empty();
        let txgs = uberblock_txgs(&copy_fixture(&fixture));
        for txg in txgs.iter().skip(1).take(1) {
            let folder = copy_fixture(&fixture);
            let keys = || {
                fixture.keys().iter().map(|key| (key.dataset.clone(), key.file_content())).collect()
            };
            let taken = match import_rewound(&folder, &pool, Rewind::Txg(*txg)) {
                // the log is dropped with the key only
                Err(Error::LockedLog { .. }) => {
                    assert_eq!(uberblock_txgs(&folder), txgs, "{name}: nothing was done yet");
                    import_with_keys(&folder, &pool, *txg, keys())
                }
                other => other,
            };
            let held = match taken {
                Ok(held) => held,
                Err(error) => {
                    eprintln!("{name}, {txg}: {error}");
                    continue;
                }
            };
            assert_eq!(held.rewind_target().map(|rewound| rewound.txg), Some(*txg));
            let Ok(_) = held.datasets().filesystem(&pool) else { continue };
            written += 1;
            write_file(&held, &pool, "written-here", &vec![7; 3_000_000]);
            held.export().unwrap();
            drop(held);
            let after = check_pool(&folder, &pool);
            let wrong = |fault: &&String| sound || fault.starts_with("Space");
            let fresh: Vec<_> = after.iter().filter(wrong).collect();
            eprintln!("{name}, {txg}: written; {fresh:?}");
            assert!(fresh.is_empty(), "{name}, {txg}: {fresh:?}");
        }
    }
    assert!(written >= 12, "only {written} states could be gone on from");
}
