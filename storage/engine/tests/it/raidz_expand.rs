//! A raidz gets one more drive while the pool is in use. OpenZFS could take the pool over at any moment,
//! and no power cut loses anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::pool::{
    ActivityCommand, ActivityKind, Drive, ExpansionStatus, Pool, ScanProgress, VdevLayout,
};
use job::Job;
use sim::{DiskArray, Fault};

use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::test_pool::{
    TempDir, check_pool, environment, new_pool, read_file, verify_pool, write_file,
};

const DRIVE_SIZE: u64 = 96 << 20;

/// Runs the expansion until it ends or pauses.
fn expand(pool: &Pool) -> ExpansionStatus {
    pool.activities().continue_raidz_expansion(&Job::default()).unwrap().unwrap()
}

fn fill_pool(pool: &Pool) {
    write_file(pool, "tank", "one", &noise_bytes(1, 9 << 20));
    pool.snapshots().create(&["tank@one".to_owned()]).unwrap();
    for number in 0..60 {
        write_file(pool, "tank", &format!("small{number}"), &noise_bytes(number, 2900));
    }
    write_file(pool, "tank", "two", &noise_bytes(2, 20 << 20));
    pool.sync().unwrap();
}

fn compare_files(pool: &Pool, when: &str) {
    assert!(read_file(pool, "tank", "one") == noise_bytes(1, 9 << 20), "{when}");
    assert!(read_file(pool, "tank", "two") == noise_bytes(2, 20 << 20), "{when}");
    for number in [0, 33, 59] {
        let name = format!("small{number}");
        assert!(read_file(pool, "tank", &name) == noise_bytes(number, 2900), "{when}: {name}");
    }
}

fn create_image(folder: &TempDir, name: &str, size: u64) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    path
}

/// Has the pool written and read by others as long as it lives.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u32>>,
}

impl Load {
    pub(crate) fn start(pool: &Pool, most: u32) -> Self {
        let (pool, stop) = (pool.clone(), Arc::new(AtomicBool::new(false)));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut files = 0;
            while !stopping.load(Ordering::Acquire) && files < most {
                let bytes = noise_bytes(1000 + files, 300_000 + files * 4);
                write_file(&pool, "tank", &format!("load{files}"), &bytes);
                assert!(read_file(&pool, "tank", &format!("small{}", files % 60)).len() == 2900);
                files += 1;
                if files % 4 == 0 {
                    pool.sync().unwrap();
                }
            }
            files
        });
        Self { stop, thread: Some(thread) }
    }

    /// How many files it wrote.
    pub(crate) fn stop(mut self) -> u32 {
        self.stop.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn expand_array(name: &str, parity: u32, width: usize) {
    let folder = TempDir::new(name, width, DRIVE_SIZE);
    let new = new_pool(&folder, VdevLayout::Raidz(parity), width);
    let pool = engine::pool::create(&new, &environment()).unwrap();
    fill_pool(&pool);
    let raidz = format!("raidz{parity}-0");
    let before = pool.status().size;
    let drive = create_image(&folder, "new.img", DRIVE_SIZE);
    pool.vdevs().attach(&raidz, &drive, false).unwrap();
    let load = Load::start(&pool, 100);
    let status = expand(&pool);
    let files = load.stop();
    assert_eq!((status.state.as_str(), status.vdev), ("finished", raidz));
    pool.sync().unwrap();
    compare_files(&pool, name);
    let grown = pool.status().size - before;
    assert!(grown > DRIVE_SIZE * 7 / 10, "{name}: {grown}");
    write_file(&pool, "tank", "after", &noise_bytes(9, 5 << 20));
    let scrubbed = pool.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(scrubbed.complete && scrubbed.errors == 0 && scrubbed.written == 0, "{scrubbed:?}");
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "{name}");
    let pool =
        engine::pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap();
    compare_files(&pool, name);
    for file in 0..files {
        let bytes = noise_bytes(1000 + file, 300_000 + file * 4);
        assert!(read_file(&pool, "tank", &format!("load{file}")) == bytes, "{name}: load{file}");
    }
    assert!(read_file(&pool, "tank", "after") == noise_bytes(9, 5 << 20));
    pool.export().unwrap();
}

#[test]
fn raidz_expands_while_in_use() {
    expand_array("expand-raidz1", 1, 3);
}

#[test]
fn raidz2_and_raidz3_expand() {
    expand_array("expand-raidz2", 2, 4);
    expand_array("expand-raidz3", 3, 5);
}

/// A raidz1 of three on simulated drives, and a fourth drive that is not in it yet.
fn storm_pool() -> (DiskArray, Pool) {
    let storm = DiskArray::new(&[64 << 20; 4]);
    let folder = TempDir::new("expand-storm", 0, 0);
    let devices = storm.devices();
    let new = new_pool(&folder, VdevLayout::Raidz(1), 3);
    let pool = engine::pool::create_on_devices(&new, &devices[..3], &environment()).unwrap();
    fill_pool(&pool);
    (storm, pool)
}

fn attach_fourth(storm: &DiskArray, pool: &Pool) {
    pool.vdevs().attach_to_raidz("raidz1-0", Path::new("/fourth"), &storm.devices()[3]).unwrap();
}

fn import_devices(devices: &[Drive], when: &str) -> Pool {
    engine::pool::import_devices(devices, "tank", &environment())
        .unwrap_or_else(|why| panic!("{when}: {why}"))
}

/// Finishes the expansion, and has every block compared with its checksum on every drive.
fn finish_and_scrub(pool: &Pool, when: &str) {
    // a drive whose last uberblock was lost lacks that txg: the expansion waits for its resilver
    if pool.scans().needs_resilver() {
        let resilvered = pool.scans().resilver(&ScanProgress::new()).unwrap();
        assert!(resilvered.complete && resilvered.errors == 0, "{when}: {resilvered:?}");
    }
    let status = pool.activities().continue_raidz_expansion(&Job::default()).unwrap();
    let is_finished = status.as_ref().is_none_or(|status| status.state == "finished");
    assert!(is_finished, "{when}: {status:?}");
    compare_files(pool, when);
    let scrubbed = pool.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(
        scrubbed.complete && scrubbed.errors == 0 && scrubbed.written == 0,
        "{when}: {scrubbed:?}"
    );
}

/// The pool after a cut: intact, and able to continue the expansion.
fn check_after_cut(storm: &DiskArray, at: usize) {
    let when = format!("cut at {at}");
    let found = storm.journal().cut_power(at, at as u64);
    let devices: Vec<_> = found.into_iter().map(|disk| Arc::new(disk) as Drive).collect();
    let wrong = verify_pool(&engine::search_devices(&devices), "tank");
    assert_eq!(wrong, Vec::<String>::new(), "{when}");
    let pool = import_devices(&devices, &when);
    compare_files(&pool, &when);
    write_file(&pool, "tank", "after the cut", &noise_bytes(8, 1 << 20));
    finish_and_scrub(&pool, &when);
    assert!(read_file(&pool, "tank", "after the cut") == noise_bytes(8, 1 << 20), "{when}");
    pool.export().unwrap();
    drop(pool);
    let wrong = verify_pool(&engine::search_devices(&devices), "tank");
    assert_eq!(wrong, Vec::<String>::new(), "{when}, expanded");
}

/// The requests at which an expansion begins, has its first rows in place, and is complete.
fn run_storm(storm: &DiskArray, pool: &Pool) -> [usize; 3] {
    let start = storm.journal().len();
    attach_fourth(storm, pool);
    let attached = storm.journal().len();
    let load = Load::start(pool, 40);
    let status = expand(pool);
    assert_eq!(status.state, "finished");
    load.stop();
    pool.sync().unwrap();
    [start, attached, storm.journal().len()]
}

#[test]
fn power_cuts_during_expansion_lose_nothing() {
    let (storm, pool) = storm_pool();
    let [start, attached, end] = run_storm(&storm, &pool);
    drop(pool);
    let first = (start..attached + 90).step_by(11);
    let later = (attached + 90..end).step_by((end - attached) / 9);
    first.chain(later).for_each(|at| check_after_cut(&storm, at));
}

#[test]
#[ignore = "takes minutes: a cut at every request"]
fn power_cut_at_every_request_of_an_expansion() {
    let (storm, pool) = storm_pool();
    let [start, _, end] = run_storm(&storm, &pool);
    drop(pool);
    let from: usize =
        std::env::var("POOLHOUSE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    (start + from..=end).for_each(|at| check_after_cut(&storm, at));
}

/// Writes drives to files, for tools that want such.
pub(crate) fn save_images(folder: &TempDir, devices: &[Drive]) {
    for (device, path) in devices.iter().zip(folder.drives(devices.len())) {
        let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
        device.read_at(0, &mut bytes).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

#[test]
fn zdb_reads_a_half_expanded_raidz() {
    let (storm, pool) = storm_pool();
    let [_, attached, end] = run_storm(&storm, &pool);
    drop(pool);
    for at in (attached + 10..attached + 70).step_by(20).chain([attached + (end - attached) / 2]) {
        let found = storm.journal().cut_power(at, 1);
        let devices: Vec<_> = found.into_iter().map(|disk| Arc::new(disk) as Drive).collect();
        let folder = TempDir::new(&format!("expand-zdb{at}"), 0, 0);
        save_images(&folder, &devices);
        let said = run_zdb(folder.path(), &["-bcc", "-C", "-u"]);
        assert!(said.is_empty() || said.contains("No leaks (block sum matches"), "{at}: {said}");
    }
}

#[test]
fn expansion_pauses_for_a_failed_drive() {
    let (storm, pool) = storm_pool();
    attach_fourth(&storm, &pool);
    let job = Arc::new(Job::default());
    let watching = Arc::clone(&job);
    let watcher = std::thread::spawn(move || {
        while watching.progress.bytes_done() < 6 << 20 && !watching.cancel.is_cancelled() {
            std::thread::yield_now();
        }
        watching.cancel.cancel();
    });
    let status = pool.activities().continue_raidz_expansion(&job).unwrap().unwrap();
    job.cancel.cancel();
    watcher.join().unwrap();
    assert_eq!(status.state, "expanding");
    storm.disks()[1].add_fault(Fault::Removed);
    let status = expand(&pool);
    assert!(status.state == "paused" && status.pause.is_some(), "{status:?}");
    compare_files(&pool, "one drive failed");
    write_file(&pool, "tank", "degraded", &noise_bytes(5, 6 << 20));
    pool.sync().unwrap();
    assert!(read_file(&pool, "tank", "degraded") == noise_bytes(5, 6 << 20));
    assert_eq!(expand(&pool).state, "paused");
    storm.disks()[1].clear_faults();
    pool.clear_errors(None).unwrap();
    assert_eq!(expand(&pool).state, "paused", "it lacks the data written meanwhile");
    let resilvered = pool.scans().resilver(&ScanProgress::new()).unwrap();
    assert!(resilvered.complete && resilvered.errors == 0, "{resilvered:?}");
    finish_and_scrub(&pool, "the drive is back");
    assert!(read_file(&pool, "tank", "degraded") == noise_bytes(5, 6 << 20));
    pool.export().unwrap();
    drop(pool);
    let wrong = verify_pool(&engine::search_devices(&storm.devices()), "tank");
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn failed_write_at_the_scratch_copy_is_resumed() {
    let (storm, pool) = storm_pool();
    attach_fourth(&storm, &pool);
    // the scratch copy is valid, and its rows cannot be written to their place
    storm.disks()[2].add_fault(Fault::Write(4 << 20..6 << 20));
    assert_eq!(expand(&pool).state, "paused");
    compare_files(&pool, "rows are in the scratch copy");
    write_file(&pool, "tank", "small0b", &noise_bytes(7, 4 << 20));
    pool.sync().unwrap();
    pool.close().unwrap();
    drop(pool);
    storm.disks()[2].clear_faults();
    let pool = import_devices(&storm.devices(), "in the scratch copy");
    compare_files(&pool, "in the scratch copy");
    write_file(&pool, "tank", "small0c", &noise_bytes(6, 4 << 20));
    finish_and_scrub(&pool, "the drive takes writes");
    assert!(read_file(&pool, "tank", "small0b") == noise_bytes(7, 4 << 20));
    assert!(read_file(&pool, "tank", "small0c") == noise_bytes(6, 4 << 20));
    pool.export().unwrap();
    drop(pool);
    let wrong = verify_pool(&engine::search_devices(&storm.devices()), "tank");
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn raidz_expands_twice_and_refuses_what_cannot_be() {
    let storm = DiskArray::new(&[64 << 20, 64 << 20, 64 << 20, 64 << 20, 63 << 20, 64 << 20]);
    let folder = TempDir::new("expand-twice", 0, 0);
    let devices = storm.devices();
    let new = new_pool(&folder, VdevLayout::Raidz(1), 3);
    let pool = engine::pool::create_on_devices(&new, &devices[..3], &environment()).unwrap();
    fill_pool(&pool);
    let attach = |index: usize| {
        let path = format!("/disk{index}");
        pool.vdevs()
            .attach_to_raidz("raidz1-0", Path::new(&path), &devices[index])
            .map_err(|why| why.to_string())
    };
    let refused = attach(4).unwrap_err();
    assert!(refused.contains(&(63 << 20).to_string()), "{refused}");
    assert!(pool.vdevs().attach_to_raidz("raidz1-7", Path::new("/x"), &devices[3]).is_err());
    attach(3).unwrap();
    let refused = attach(5).unwrap_err();
    assert!(refused.contains("raidz expansion in progress"), "{refused}");
    finish_and_scrub(&pool, "once");
    storm.disks()[0].add_fault(Fault::Removed);
    write_file(&pool, "tank", "meanwhile", &noise_bytes(5, 1 << 20));
    pool.sync().unwrap();
    let refused = attach(5).unwrap_err();
    assert!(refused.contains("must be online"), "{refused}");
    storm.disks()[0].clear_faults();
    pool.clear_errors(None).unwrap();
    pool.scans().resilver(&ScanProgress::new()).unwrap();
    attach(5).unwrap();
    write_file(&pool, "tank", "wide", &noise_bytes(4, 5 << 20));
    finish_and_scrub(&pool, "twice");
    write_file(&pool, "tank", "wider", &noise_bytes(3, 5 << 20));
    pool.export().unwrap();
    drop(pool);
    let wrong = verify_pool(&engine::search_devices(&devices), "tank");
    assert_eq!(wrong, Vec::<String>::new());
    let images = TempDir::new("expand-twice-zdb", 0, 0);
    save_images(&images, &[&devices[..4], &devices[5..]].concat());
    let said = run_zdb(images.path(), &["-bcc"]);
    assert!(said.is_empty() || said.contains("No leaks (block sum matches"), "{said}");
}

#[test]
fn expansion_that_openzfs_began_is_finished() {
    if !fixtures::exists("expanding") {
        return;
    }
    let below = TempDir::new("expand-foreign", 0, 0);
    let fixture = fixtures::unpack("expanding", below.path()).unwrap();
    let pool = engine::pool::import(
        std::slice::from_ref(&fixture.dir),
        fixture.pool_name(),
        true,
        &environment(),
    )
    .unwrap();
    let before = pool.activities().expansion_status().unwrap().unwrap();
    assert_eq!(before.state, "expanding");
    write_file(&pool, "tank", "here", &noise_bytes(3, 3 << 20));
    let status = expand(&pool);
    assert_eq!((status.state.as_str(), status.vdev.as_str()), ("finished", "raidz2-0"));
    assert_eq!(status.started, before.started);
    let scrubbed = pool.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(scrubbed.complete && scrubbed.errors == 0 && scrubbed.written == 0, "{scrubbed:?}");
    assert!(read_file(&pool, "tank", "here") == noise_bytes(3, 3 << 20));
    pool.export().unwrap();
    drop(pool);
    let said = run_zdb(&fixture.dir, &["-bcc"]);
    assert!(said.is_empty() || said.contains("No leaks (block sum matches"), "{said}");
}

#[test]
fn initialize_waits_for_an_expansion() {
    let (storm, pool) = storm_pool();
    write_file(&pool, "tank", "gap", &noise_bytes(7, 8 << 20));
    write_file(&pool, "tank", "behind", &noise_bytes(8, 4 << 20));
    pool.sync().unwrap();
    let (initialize, start) = (ActivityKind::Initialize, ActivityCommand::Start);
    pool.activities().command(&[], initialize, start, 0).unwrap();
    assert!(pool.activities().step().unwrap());
    attach_fourth(&storm, &pool);
    // sectors change their places now: free ones cannot be distinguished from used ones
    for _ in 0..200 {
        if !pool.activities().step().unwrap() {
            break;
        }
    }
    compare_files(&pool, "expanding");
    finish_and_scrub(&pool, "expanded");
    while pool.activities().step().unwrap() {}
    compare_files(&pool, "initialized");
    let scrubbed = pool.scans().scrub(&ScanProgress::new()).unwrap();
    assert!(scrubbed.complete && scrubbed.errors == 0 && scrubbed.written == 0, "{scrubbed:?}");
}

#[test]
fn checkpoint_is_refused_during_an_expansion() {
    let (storm, pool) = storm_pool();
    attach_fourth(&storm, &pool);
    let refused = pool.activities().create_checkpoint().unwrap_err().to_string();
    assert!(refused.contains("raidz expansion in progress"), "{refused}");
    finish_and_scrub(&pool, "expanded");
    pool.activities().create_checkpoint().unwrap();
}

#[test]
fn expansion_is_shown_until_its_end() {
    let folder = TempDir::new("expand-shown", 3, DRIVE_SIZE);
    let new = new_pool(&folder, VdevLayout::Raidz(1), 3);
    let pool = engine::pool::create(&new, &environment()).unwrap();
    let drive = create_image(&folder, "new.img", DRIVE_SIZE);
    pool.vdevs().attach("raidz1-0", &drive, false).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut states = vec!["expanding".to_owned()];
            while !is_done.load(Ordering::SeqCst) {
                let found = pool.activities().expansion_status().unwrap();
                let state = found.map_or("none".to_owned(), |found| found.state);
                if states.last() != Some(&state) {
                    states.push(state);
                }
            }
            states
        });
        expand(&pool);
        is_done.store(true, Ordering::SeqCst);
        let states = looks.join().unwrap();
        assert!(!states.contains(&"none".to_owned()), "{states:?}");
    });
    pool.export().unwrap();
}

#[test]
fn larger_drives_are_used_after_the_expansion() {
    let folder = TempDir::new("expand-grow", 3, 64 << 20);
    let new = new_pool(&folder, VdevLayout::Raidz(1), 3);
    let pool = engine::pool::create(&new, &environment()).unwrap();
    fill_pool(&pool);
    pool.export().unwrap();
    drop(pool);
    for drive in folder.drives(3) {
        std::fs::File::options().write(true).open(drive).unwrap().set_len(DRIVE_SIZE).unwrap();
    }
    let here = [folder.path().to_owned()];
    let pool = engine::pool::import(&here, "tank", false, &environment()).unwrap();
    let before = pool.status().size;
    let drive = create_image(&folder, "new.img", DRIVE_SIZE);
    pool.vdevs().attach("raidz1-0", &drive, false).unwrap();
    // blocks behind the end that the reflow goes to would stay at the old width
    let first = folder.drives(1).remove(0);
    let refused = pool.drives().expand(&first.to_string_lossy()).unwrap_err().to_string();
    assert!(refused.contains("raidz expansion in progress"), "{refused}");
    assert_eq!(pool.status().size, before);
    finish_and_scrub(&pool, "expanded");
    assert!(pool.status().size > before);
    write_file(&pool, "tank", "after", &noise_bytes(9, 40 << 20));
    finish_and_scrub(&pool, "used");
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}
