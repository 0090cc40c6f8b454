//! Checkpoints: their protected blocks, a rewind to them, their discard, and the operations refused
//! meanwhile. zdb and pools of OpenZFS check the results.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::pool::{self, ImportOptions, LongWork, NewDataset, Pool, Rewind, VdevLayout};
use units::ObjectId;

use crate::offline::leaf_states;
use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::test_pool::{
    TempDir, check_pool, copy_after_cut, credentials, environment, new_pool, read_file, write_file,
};

const DRIVE_SIZE: u64 = 128 << 20;
const FILE_SIZE: u32 = 20 << 20;

fn import(folder: &TempDir, rewind: Rewind) -> Pool {
    let options = ImportOptions { rewind, force: true, ..ImportOptions::default() };
    pool::import_with(&[folder.path().into()], "tank", &options, &environment()).unwrap()
}

fn unlink(pool: &Pool, name: &str) {
    let files = pool.datasets().filesystem("tank").unwrap();
    let root = ObjectId::new(files.reader().root().unwrap().ino());
    files.unlink(&credentials(), root, name.as_bytes()).unwrap();
}

/// A pool with a checkpoint that has a file and a dataset which the pool lost since.
fn pool_with_checkpoint(folder: &TempDir, layout: VdevLayout, count: usize) -> Pool {
    let pool = pool::create(&new_pool(folder, layout, count), &environment()).unwrap();
    write_file(&pool, "tank", "old", &noise_bytes(1, FILE_SIZE));
    let dataset = NewDataset { name: "tank/lost".to_owned(), properties: Vec::new() };
    pool.datasets().create_filesystem(&dataset).unwrap();
    write_file(&pool, "tank/lost", "inside", &noise_bytes(2, 1 << 20));
    pool.activities().create_checkpoint().unwrap();
    unlink(&pool, "old");
    pool.datasets().destroy("tank/lost").unwrap();
    write_file(&pool, "tank", "new", &noise_bytes(3, FILE_SIZE));
    for _ in 0..6 {
        write_file(&pool, "tank", &format!("file{}", pool.txg()), b"another txg");
        pool.sync().unwrap();
    }
    pool
}

#[test]
fn rewind_restores_the_checkpoint() {
    for (layout, count) in [(VdevLayout::Single, 1), (VdevLayout::Raidz(1), 3)] {
        let name = format!("checkpoint-rewind-{count}");
        let folder = TempDir::new(&name, count, DRIVE_SIZE);
        let pool = pool_with_checkpoint(&folder, layout, count);
        let kept = pool.activities().checkpoint_status().unwrap();
        assert!(kept.state == "exists" && kept.bytes > u64::from(FILE_SIZE), "{kept:?}");
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
        let pool = import(&folder, Rewind::No);
        let found = pool.activities().checkpoint_status().unwrap();
        assert!(
            found.time == kept.time && found.bytes >= kept.bytes,
            "an import keeps it: {found:?}"
        );
        write_file(&pool, "tank", "later", b"later");
        pool.export().unwrap();
        drop(pool);
        let pool = import(&folder, Rewind::Checkpoint);
        assert_eq!(pool.activities().checkpoint_status(), None);
        assert!(read_file(&pool, "tank", "old") == noise_bytes(1, FILE_SIZE));
        assert!(read_file(&pool, "tank/lost", "inside") == noise_bytes(2, 1 << 20));
        write_file(&pool, "tank", "after", &noise_bytes(4, FILE_SIZE));
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    }
}

#[test]
fn discard_frees_the_space_of_the_checkpoint() {
    let folder = TempDir::new("checkpoint-discard", 3, DRIVE_SIZE);
    let pool = pool_with_checkpoint(&folder, VdevLayout::Raidz(1), 3);
    let before = pool.status().allocated;
    assert!(
        pool.activities()
            .create_checkpoint()
            .unwrap_err()
            .to_string()
            .contains("checkpoint exists")
    );
    pool.activities().discard_checkpoint().unwrap();
    assert!(pool.activities().discard_checkpoint().is_err());
    write_file(&pool, "tank", "more", b"another txg");
    pool.sync().unwrap();
    discard_in_background(&pool);
    (0..4).for_each(|_| pool.sync().unwrap());
    assert!(pool.status().allocated + u64::from(FILE_SIZE) < before);
    assert!(read_file(&pool, "tank", "new") == noise_bytes(3, FILE_SIZE));
    pool.activities().create_checkpoint().unwrap();
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    let said = run_zdb(folder.path(), &["-bcc"]);
    assert!(said.is_empty() || said.contains("No leaks"), "{said}");
}

/// The scheduler frees the space of the discarded checkpoint; txgs alone do not.
fn discard_in_background(pool: &Pool) {
    let listed = pool.activities().list();
    let [discard] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((discard.activity, discard.done), (LongWork::CheckpointDiscard, 0));
    assert!(discard.total > u64::from(FILE_SIZE) && !discard.is_paused, "{discard:?}");
    for refused in [
        pool.activities().pause(LongWork::CheckpointDiscard),
        pool.activities().cancel(LongWork::CheckpointDiscard),
    ] {
        assert!(refused.unwrap_err().to_string().contains("until it is done"));
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| pool.background().run_activities(&stop));
        while pool.activities().checkpoint_status().is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Release);
    });
    assert_eq!(pool.activities().list(), []);
}

#[test]
fn discard_continues_after_a_power_cut() {
    let folder = TempDir::new("checkpoint-cut", 1, DRIVE_SIZE);
    let pool = pool_with_checkpoint(&folder, VdevLayout::Single, 1);
    let cut = copy_after_cut(&folder, "checkpoint-cut-before", 1);
    assert_eq!(check_pool(&cut, "tank"), Vec::<String>::new());
    pool.activities().discard_checkpoint().unwrap();
    let cut = copy_after_cut(&folder, "checkpoint-cut-after", 1);
    assert_eq!(check_pool(&cut, "tank"), Vec::<String>::new(), "nothing is freed yet");
    let pool = import(&cut, Rewind::No);
    assert_eq!(pool.activities().checkpoint_status().unwrap().state, "discarding");
    while pool.activities().continue_discard().unwrap() {}
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&cut, "tank"), Vec::<String>::new());
}

#[test]
fn drives_stay_while_there_is_a_checkpoint() {
    let folder = TempDir::new("checkpoint-drives", 3, DRIVE_SIZE);
    let pool = pool::create(&new_pool(&folder, VdevLayout::Mirror, 2), &environment()).unwrap();
    pool.activities().create_checkpoint().unwrap();
    let drives = folder.drives(3);
    let name = |at: usize| drives[at].to_str().unwrap();
    let refused = [
        pool.vdevs().attach(name(0), &drives[2], false),
        pool.vdevs().replace(name(0), Some(&drives[2]), false),
        pool.vdevs().detach(name(1)),
    ];
    for why in refused {
        assert!(why.unwrap_err().to_string().contains("checkpoint exists"));
    }
    pool.activities().discard_checkpoint().unwrap();
    assert!(!pool.activities().continue_discard().unwrap());
    pool.vdevs().attach(name(0), &drives[2], false).unwrap();
}

#[test]
fn resilver_completes_while_there_is_a_checkpoint() {
    let folder = TempDir::new("checkpoint-resilver", 2, DRIVE_SIZE);
    let pool = pool::create(&new_pool(&folder, VdevLayout::Mirror, 2), &environment()).unwrap();
    let drives = folder.drives(2);
    let second = drives[1].to_str().unwrap();
    pool.drives().offline(second, pool::OfflineOptions::default()).unwrap();
    write_file(&pool, "tank", "old", &noise_bytes(1, FILE_SIZE));
    pool.activities().create_checkpoint().unwrap();
    unlink(&pool, "old");
    pool.sync().unwrap();
    pool.drives().online(second).unwrap();
    assert!(pool.scans().resilver(&pool::ScanProgress::new()).unwrap().complete);
    assert!(!pool.scans().needs_resilver());
    pool.export().unwrap();
    drop(pool);
    let pool = import(&folder, Rewind::Checkpoint);
    assert_eq!(leaf_states(&pool), ["ONLINE", "OFFLINE"], "the checkpoint has it offline");
    assert!(read_file(&pool, "tank", "old") == noise_bytes(1, FILE_SIZE));
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}
