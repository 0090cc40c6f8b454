//! Everything at once: threads write and commit files while datasets are created,
//! cloned, rolled back, promoted, renamed and destroyed. The result is checked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use device::{Device, MemoryDevice};
use engine::dataset::DatasetQuery;
use engine::pool::{
    self, Environment, NewDataset, NewPool, NewVdev, OpenFileSystem, Pool, VdevLayout, VdevRole,
};
use posix::{NewInode, WriteOffset};
use units::ObjectId;

use crate::test_pool::{credentials, environment, verify_pool};

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Changes files of any existing file systems, which may disappear at any time.
fn change_files(pool: &Pool, seed: u64, stop: &AtomicBool) {
    let mut dice = Random(seed);
    while !stop.load(Ordering::Acquire) {
        let all = dataset_names(pool, "filesystem");
        let name = &all[usize::try_from(dice.below(all.len() as u64)).unwrap()];
        let Ok(fs) = pool.datasets().filesystem(name) else { continue };
        for _ in 0..dice.below(20) {
            // a destroyed or rolled back file system gives errors
            let _ = change_file(&fs, &mut dice);
        }
    }
}

fn change_file(fs: &OpenFileSystem, dice: &mut Random) -> engine::files::Result<()> {
    let root = ObjectId::new(fs.reader().root()?.ino());
    let name = format!("f{}", dice.below(12));
    let found = fs.reader().find(name.as_bytes())?;
    let Some(file) = found.map(|file| ObjectId::new(file.ino())) else {
        return fs.create(&credentials(), root, name.as_bytes(), &NewInode::default()).map(drop);
    };
    match dice.below(10) {
        0 => fs.unlink(&credentials(), root, name.as_bytes()),
        1 => fs.punch_hole(&credentials(), file, 0..dice.below(200_000)),
        2..=4 => fs.fsync(Some(file.get())),
        _ => {
            let byte = u8::try_from(dice.below(256)).unwrap();
            let length = usize::try_from(1 + dice.below(60_000)).unwrap();
            let at = WriteOffset::At(dice.below(300_000));
            fs.write(&credentials(), file, at, &vec![byte; length]).map(drop)
        }
    }
}

fn dataset_names(pool: &Pool, kind: &str) -> Vec<String> {
    let wanted = DatasetQuery { kinds: vec![kind.to_owned()], ..DatasetQuery::default() };
    let mut names = Vec::new();
    let mut trouble = |event| panic!("listed datasets are complete: {event:?}");
    pool.datasets()
        .list("tank", &wanted, &mut |dataset| names.push(dataset.name), &mut trouble)
        .unwrap();
    names
}

/// Changes datasets. Impossible changes (it has clones, it is not the newest) are refused.
fn change_dataset(pool: &Pool, dice: &mut Random, round: u64) -> engine::Result<()> {
    let (heads, snapshots) = (dataset_names(pool, "filesystem"), dataset_names(pool, "snapshot"));
    let mut any = |all: &[String]| {
        let index = usize::try_from(dice.below(all.len().max(1) as u64)).unwrap();
        all.get(index).cloned().unwrap_or_else(|| "tank/none".to_owned())
    };
    let (head, snapshot) = (any(&heads), any(&snapshots));
    let new = NewDataset { name: format!("tank/n{round}"), properties: Vec::new() };
    match dice.below(12) {
        0 => pool.datasets().create_filesystem(&new),
        1..=3 => pool.snapshots().create(&[format!("{head}@s{round}")]),
        4..=5 => pool.snapshots().clone_snapshot(&snapshot, &new),
        6 => pool.snapshots().rollback(&head),
        7 => pool.datasets().promote(&head),
        8 if head != "tank" => pool.datasets().rename(&head, &new.name, false),
        9 if head != "tank" => pool.datasets().destroy(&head),
        10 => pool.datasets().destroy(&snapshot),
        _ => pool.properties().set(
            &head,
            "compression",
            ["off", "lz4", "zstd"][usize::try_from(round % 3).unwrap()],
        ),
    }
}

fn run_concurrently(seed: u64, rounds: u64) {
    let drives: Vec<Arc<dyn Device>> = (0..3)
        .map(|index| {
            Arc::new(MemoryDevice::zeroed(format!("drive{index}"), 128 << 20)) as Arc<dyn Device>
        })
        .collect();
    let new = NewPool {
        name: "tank".to_owned(),
        vdevs: vec![NewVdev {
            layout: VdevLayout::Raidz(1),
            drives: (0..3).map(|index| format!("drive{index}").into()).collect(),
            role: VdevRole::Data,
        }],
        ashift: None,
        properties: Vec::new(),
        force: false,
    };
    let held = pool::create_on_devices(&new, &drives, &environment()).unwrap();
    let stop = AtomicBool::new(false);
    let mut dice = Random(seed);
    std::thread::scope(|scope| {
        for thread in 1..=3 {
            let (held, stop) = (&held, &stop);
            scope.spawn(move || change_files(held, seed ^ thread, stop));
        }
        for round in 0..rounds {
            // the pool works on after refused changes
            let _ = change_dataset(&held, &mut dice, round);
        }
        stop.store(true, Ordering::Release);
    });
    assert_eq!(held.status().error, None, "seed {seed}");
    held.export().unwrap();
    drop(held);
    let faults = verify_pool(&engine::search_devices(&drives), "tank");
    assert_eq!(faults, Vec::<String>::new(), "seed {seed}");
}

#[test]
fn files_and_datasets_change_together() {
    for seed in 1..=3 {
        run_concurrently(seed, 60);
    }
}

#[test]
#[ignore = "long: seeds from POOLHOUSE_SEED on"]
fn files_and_datasets_change_together_for_long() {
    let first = std::env::var("POOLHOUSE_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = first.unwrap_or(100);
    for seed in first..first + 100 {
        run_concurrently(seed, 150);
    }
}

/// A drive that calls a reader of the pool before one of its writes, and waits until that is done.
struct HookedDevice {
    drive: MemoryDevice,
    /// The reader to call, and the number of writes until then.
    hook: Mutex<Option<(mpsc::Sender<mpsc::Sender<()>>, u64)>>,
}

impl std::fmt::Debug for HookedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.drive.fmt(f)
    }
}

impl Device for HookedDevice {
    fn size(&self) -> u64 {
        self.drive.size()
    }

    fn name(&self) -> &str {
        self.drive.name()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), device::Error> {
        self.drive.read_at(offset, into)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), device::Error> {
        let mut asking = self.hook.lock().unwrap();
        match asking.take() {
            Some((ask, 0)) => {
                let (done, wait) = mpsc::channel();
                ask.send(done).unwrap();
                wait.recv().unwrap();
            }
            Some((ask, left)) => *asking = Some((ask, left - 1)),
            None => {}
        }
        drop(asking);
        self.drive.write_at(offset, from)
    }
}

#[test]
fn reader_during_a_sync_sees_the_last_txg() {
    let drive = MemoryDevice::zeroed("drive0", 128 << 20);
    let watched = Arc::new(HookedDevice { drive, hook: Mutex::default() });
    let new = NewPool {
        name: "tank".to_owned(),
        vdevs: vec![NewVdev {
            layout: VdevLayout::Single,
            drives: vec!["drive0".into()],
            role: VdevRole::Data,
        }],
        ashift: None,
        properties: Vec::new(),
        force: false,
    };
    // no cache: everything is read from the drive
    let world = Environment { cache: pool::MemoryBudget::with_bytes(0), ..environment() };
    let drives = [Arc::clone(&watched) as Arc<dyn Device>];
    let held = pool::create_on_devices(&new, &drives, &world).unwrap();
    // enough datasets that the dnodes of the pool's own objects have indirect blocks
    for number in 1..20 {
        let new = NewDataset { name: format!("tank/n{number}"), properties: Vec::new() };
        held.datasets().create_filesystem(&new).unwrap();
    }
    for file in ["first", "second"] {
        crate::test_pool::write_file(&held, "tank/n2", file, &vec![7; 300_000]);
    }
    held.sync().unwrap();
    let (ask, asked) = mpsc::channel::<mpsc::Sender<()>>();
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut looks = 0;
            for done in asked {
                assert_eq!(dataset_names(&held, "filesystem").len(), 20);
                assert!(held.properties().of_pool().is_ok());
                assert_eq!(held.status().error, None);
                let fs = held.datasets().filesystem("tank/n2").unwrap();
                for file in ["first", "second"] {
                    let found = fs.reader().find(file.as_bytes()).unwrap().unwrap();
                    assert_eq!(found.stat().size, 300_000);
                }
                looks += 1;
                done.send(()).unwrap();
            }
            looks
        });
        for write in 0..200 {
            *watched.hook.lock().unwrap() = Some((ask.clone(), write));
            crate::test_pool::write_file(
                &held,
                "tank/n2",
                &format!("file-{write}"),
                &vec![7; 300_000],
            );
            held.properties()
                .set("tank/n2", "userquota@1000", &format!("{}M", 500 + write))
                .unwrap();
            held.snapshots()
                .create(&[format!("tank/n1@s{write}"), format!("tank/n2@s{write}")])
                .unwrap();
        }
        *watched.hook.lock().unwrap() = None;
        drop(ask);
        assert!(looking.join().unwrap() > 50);
    });
    held.export().unwrap();
}
