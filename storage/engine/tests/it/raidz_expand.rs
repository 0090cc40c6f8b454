//! A raidz gets one more drive while the pool is in use. OpenZFS could take the pool over at any moment,
//! and no power cut loses anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::Device;
use engine::pool::{ExpansionStatus, Pool, ScanProgress, VdevLayout};
use job::Job;
use sim::{DiskArray, Fault};

use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::test_pool::{
    TempDir, check_pool, environment, new_pool, read_file, verify_pool, write_file,
};

const DRIVE_SIZE: u64 = 96 << 20;

/// Runs the expansion until it ends or pauses.
fn expand(pool: &Pool) -> ExpansionStatus {
    pool.continue_raidz_expansion(&Job::default()).unwrap().unwrap()
}

fn fill_pool(pool: &Pool) {
    write_file(pool, "tank", "one", &noise_bytes(1, 9 << 20));
    pool.create_snapshots(&["tank@one".to_owned()]).unwrap();
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
struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u32>>,
}

impl Load {
    fn start(pool: &Pool) -> Self {
        let (pool, stop) = (pool.clone(), Arc::new(AtomicBool::new(false)));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut files = 0;
            while !stopping.load(Ordering::Acquire) && files < 150 {
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
    fn stop(mut self) -> u32 {
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
    pool.attach_drive(&raidz, &drive, false).unwrap();
    let load = Load::start(&pool);
    let status = expand(&pool);
    let files = load.stop();
    assert_eq!((status.state.as_str(), status.vdev), ("finished", raidz));
    pool.sync().unwrap();
    compare_files(&pool, name);
    let grown = pool.status().size - before;
    assert!(grown > DRIVE_SIZE * 7 / 10, "{name}: {grown}");
    write_file(&pool, "tank", "after", &noise_bytes(9, 5 << 20));
    let scrubbed = pool.scrub(&ScanProgress::new()).unwrap();
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
