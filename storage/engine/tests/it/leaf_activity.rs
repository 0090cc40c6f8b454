//! `zpool initialize` and `zpool trim`: their writes, and that the pool keeps all its data.

use std::os::unix::fs::MetadataExt;

use engine::pool::{
    self, ActivityCommand, ActivityKind, LongWork, Pool, ScanProgress, ScrubRange, VdevLayout,
    VdevStatus,
};
use units::ObjectId;

use crate::shared_blocks::noise_bytes;
use crate::test_pool::{
    TempDir, check_pool, credentials, environment, new_pool, read_file, write_file,
};

const DRIVE_SIZE: u64 = 128 << 20;

fn leaves(pool: &Pool) -> Vec<VdevStatus> {
    fn add(vdev: &VdevStatus, all: &mut Vec<VdevStatus>) {
        if vdev.children.is_empty() {
            all.push(vdev.clone());
        }
        vdev.children.iter().for_each(|child| add(child, all));
    }
    let mut all = Vec::new();
    pool.status().vdevs.iter().for_each(|vdev| add(vdev, &mut all));
    all
}

fn states(pool: &Pool, kind: ActivityKind) -> Vec<String> {
    let of = |leaf: VdevStatus| match kind {
        ActivityKind::Initialize => leaf.initialize,
        ActivityKind::Trim => leaf.trim,
    };
    let state = |leaf| of(leaf).map_or_else(|| "none".to_owned(), |found| found.state);
    leaves(pool).into_iter().map(state).collect()
}

/// Bytes that the drives of a folder take.
fn stored(folder: &TempDir, count: usize) -> u64 {
    let blocks = |path| std::fs::metadata(path).unwrap().blocks();
    folder.drives(count).into_iter().map(blocks).sum::<u64>() * 512
}

fn remove_file(pool: &Pool, name: &str) {
    let files = pool.datasets().filesystem("tank").unwrap();
    let root = ObjectId::new(files.reader().root().unwrap().ino());
    files.unlink(&credentials(), root, name.as_bytes()).unwrap();
}

fn run(pool: &Pool) {
    while pool.activities().step().unwrap() {}
}

#[test]
fn autotrim_discards_freed_space() {
    for (layout, count) in [(VdevLayout::Mirror, 2), (VdevLayout::Raidz(1), 3)] {
        let folder = TempDir::new(&format!("autotrim-{count}"), count, DRIVE_SIZE);
        let pool = pool::create(&new_pool(&folder, layout, count), &environment()).unwrap();
        write_file(&pool, "tank", "kept", &noise_bytes(1, 6 << 20));
        for is_on in [false, true] {
            pool.properties().set_pool("autotrim", if is_on { "on" } else { "off" }).unwrap();
            write_file(&pool, "tank", "freed", &noise_bytes(2, 20 << 20));
            pool.sync().unwrap();
            let full = stored(&folder, count);
            remove_file(&pool, "freed");
            pool.sync().unwrap();
            assert!(
                pool.activities().trim_freed_space().unwrap() < 1 << 20,
                "an import may go back to it"
            );
            for round in 0..4 {
                let name = format!("other-{is_on}-{round}");
                write_file(&pool, "tank", &name, &noise_bytes(3, 1 << 10));
                pool.sync().unwrap();
            }
            let trimmed = pool.activities().trim_freed_space().unwrap();
            assert_eq!(trimmed >= 20 << 20, is_on, "{trimmed}");
            assert_eq!(stored(&folder, count) + (16 << 20) < full, is_on);
            assert_eq!(pool.activities().trim_freed_space().unwrap(), 0, "all of it is trimmed");
        }
        assert!(read_file(&pool, "tank", "kept") == noise_bytes(1, 6 << 20));
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    }
}

#[test]
fn free_space_is_initialized_and_trimmed() {
    for (layout, count) in [(VdevLayout::Mirror, 2), (VdevLayout::Raidz(1), 3)] {
        let folder = TempDir::new(&format!("activity-{count}"), count, DRIVE_SIZE);
        let pool = pool::create(&new_pool(&folder, layout, count), &environment()).unwrap();
        write_file(&pool, "tank", "file", &noise_bytes(1, 10 << 20));
        pool.sync().unwrap();
        let before = stored(&folder, count);
        let command = |kind, command| pool.activities().command(&[], kind, command, 0);
        command(ActivityKind::Initialize, ActivityCommand::Start).unwrap();
        let again = command(ActivityKind::Initialize, ActivityCommand::Start).unwrap_err();
        assert!(again.to_string().contains("currently initializing"), "{again}");
        run(&pool);
        assert_eq!(states(&pool, ActivityKind::Initialize), vec!["complete"; count]);
        let full = stored(&folder, count);
        assert!(full > 100 << 20 && full > before, "{full}");
        command(ActivityKind::Trim, ActivityCommand::Start).unwrap();
        run(&pool);
        assert_eq!(states(&pool, ActivityKind::Trim), vec!["complete"; count]);
        assert!(stored(&folder, count) < full / 2, "free space is given back");
        assert!(read_file(&pool, "tank", "file") == noise_bytes(1, 10 << 20));
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    }
}

#[test]
fn long_work_waits_in_queues_of_its_class() {
    let folder = TempDir::new("activity-queue", 2, DRIVE_SIZE);
    let pool = pool::create(&new_pool(&folder, VdevLayout::Mirror, 2), &environment()).unwrap();
    write_file(&pool, "tank", "file", &noise_bytes(1, 10 << 20));
    pool.sync().unwrap();
    let scrubbed = pool.scans().scrub(&ScanProgress::new()).unwrap();
    for kind in [ActivityKind::Initialize, ActivityKind::Trim] {
        pool.activities().command(&[], kind, ActivityCommand::Start, 0).unwrap();
        run(&pool);
    }
    let stats = pool.drives().io_stats();
    assert_eq!(stats.drives.len(), 2);
    for drive in &stats.drives {
        let queue = &drive.queue;
        // all requests of the device went through the queue
        assert_eq!(queue.trim.requests, drive.trim.requests, "{queue:?}");
        assert!(queue.trim.requests > 0 && queue.initialize.requests >= 100, "{queue:?}");
        assert!(queue.scrub.requests > 0 && scrubbed.read > 0, "{queue:?}");
        assert!(queue.async_write.requests > 0 && queue.sync_write.requests > 0, "{queue:?}");
        let writes = [&queue.async_write, &queue.sync_write, &queue.initialize];
        let writes: u64 = writes.iter().map(|class| class.requests).sum();
        assert_eq!(writes, queue.total_write.latencies.iter().sum::<u64>());
        for class in [&queue.trim, &queue.scrub, &queue.async_write] {
            assert_eq!(class.sizes.iter().sum::<u64>(), class.requests);
            assert_eq!(class.waits.iter().sum::<u64>(), class.requests);
            assert_eq!((class.waiting, class.active), (0, 0));
        }
    }
}

#[test]
fn work_continues_after_export() {
    let folder = TempDir::new("activity-export", 1, DRIVE_SIZE);
    let pool = pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    let command =
        |pool: &Pool, command| pool.activities().command(&[], ActivityKind::Initialize, command, 0);
    assert!(command(&pool, ActivityCommand::Cancel).is_err(), "there is none");
    command(&pool, ActivityCommand::Start).unwrap();
    assert!(pool.activities().step().unwrap());
    command(&pool, ActivityCommand::Suspend).unwrap();
    assert!(!pool.activities().step().unwrap());
    pool.export().unwrap();
    drop(pool);
    let pool = pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap();
    assert_eq!(states(&pool, ActivityKind::Initialize), ["suspended"]);
    command(&pool, ActivityCommand::Start).unwrap();
    pool.export().unwrap();
    drop(pool);
    let pool = pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap();
    run(&pool);
    assert_eq!(states(&pool, ActivityKind::Initialize), ["complete"]);
    command(&pool, ActivityCommand::Reset).unwrap();
    assert_eq!(states(&pool, ActivityKind::Initialize), ["none"]);
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

/// The long work that goes on or is paused: what, on how many drives or vdevs, and whether it is paused.
fn listed(pool: &Pool) -> Vec<(LongWork, bool)> {
    let all = pool.activities().list().into_iter();
    all.map(|status| {
        assert!(status.total > 0 && status.done <= status.total, "{status:?}");
        (status.activity, status.is_paused)
    })
    .collect()
}

#[test]
fn long_work_is_listed_paused_and_cancelled() {
    let folder = TempDir::new("listed", 2, DRIVE_SIZE);
    let new = new_pool(&folder, VdevLayout::Mirror, 2);
    let pool = pool::create(&new, &environment()).unwrap();
    write_file(&pool, "tank", "file", &noise_bytes(1, 1 << 20));
    pool.sync().unwrap();
    assert_eq!(listed(&pool), []);
    let activities = pool.activities();
    activities.command(&[], ActivityKind::Trim, ActivityCommand::Start, 0).unwrap();
    pool.scans().start_scrub(ScrubRange::All).unwrap();
    let trims = |paused| [(LongWork::Trim, paused); 2];
    assert_eq!(listed(&pool), [&[(LongWork::Scrub, false)][..], &trims(false)].concat());
    activities.pause(LongWork::Trim).unwrap();
    activities.pause(LongWork::Scrub).unwrap();
    assert_eq!(listed(&pool), [&[(LongWork::Scrub, true)][..], &trims(true)].concat());
    activities.cancel(LongWork::Scrub).unwrap();
    assert_eq!(listed(&pool), trims(true));
    assert_eq!(states(&pool, ActivityKind::Trim), ["suspended", "suspended"]);
    activities.cancel(LongWork::Trim).unwrap();
    assert_eq!(listed(&pool), []);
    // nothing of it goes on
    for work in [LongWork::Expansion, LongWork::Rebuild, LongWork::CheckpointDiscard] {
        let refused = activities.pause(work).unwrap_err().to_string();
        assert!(refused.contains("until it is done"), "{refused}");
    }
}
