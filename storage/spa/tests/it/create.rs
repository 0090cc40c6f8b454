//! Pools that are made here, found again and read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Device, File};
use dsl::write::Moment;
use ondisk::ObjectType;
use ondisk::feature::FEATURES;
use spa::vdev_layout::{DeviceSpec, VdevLayout, VdevRole, top_vdev_config};
use spa::{ActivePool, CreatedPool, Environment, NewPool, create_pool};
use units::Ashift;

/// Numbers from a seed.
struct SeededRandom(AtomicU64);

impl zio::Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            let next = self.0.load(Ordering::Relaxed).wrapping_mul(0x5851_f42d_4c95_7f2d) + 0x1405;
            self.0.store(next, Ordering::Relaxed);
            *byte = next.to_be_bytes()[0];
        }
    }
}

pub(crate) fn environment() -> Environment {
    Environment {
        random: Arc::new(SeededRandom(AtomicU64::new(7))),
        now: Arc::new(|| Moment { seconds: 1_700_000_000, nanoseconds: 0 }),
        workers: 2,
        limits: txg::TxgLimits::default(),
        cache: arc::MemoryBudget::default(),
    }
}

/// A folder with sparse files that is removed at the end, or stays where `POOLHOUSE_KEEP` says.
pub(crate) struct TestDir(PathBuf);

impl TestDir {
    pub(crate) fn new(name: &str) -> Self {
        let base =
            std::env::var_os("POOLHOUSE_KEEP").map_or_else(std::env::temp_dir, PathBuf::from);
        let path = base.join(format!("poolhouse-made-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn create_devices(&self, count: usize, size: u64) -> Vec<DeviceSpec> {
        let drive = |index: usize| {
            let path = self.0.join(format!("d{index}.img"));
            std::fs::File::create(&path).unwrap().set_len(size).unwrap();
            DeviceSpec { path: path.display().to_string(), size, is_disk: false }
        };
        (0..count).map(drive).collect()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        if std::env::var_os("POOLHOUSE_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// They as devices, which only one can open.
pub(crate) fn open_devices(drives: &[DeviceSpec]) -> Vec<Arc<dyn Device>> {
    let open = |drive: &DeviceSpec| File::open_exclusive(Path::new(&drive.path)).unwrap();
    drives.iter().map(|drive| Arc::new(open(drive)) as Arc<dyn Device>).collect()
}

/// A pool of one vdev on some drives.
pub(crate) fn new_pool(
    (shape, ashift): (VdevLayout, u64),
    drives: &[DeviceSpec],
    devices: Vec<Arc<dyn Device>>,
) -> NewPool {
    NewPool {
        name: "made".to_owned(),
        tops: vec![
            top_vdev_config(shape, drives, Ashift::new(ashift).unwrap(), VdevRole::Data).unwrap(),
        ],
        devices,
        version: spa::FEATURES_VERSION,
        features: FEATURES.iter().collect(),
        host: (0x1234, "here".to_owned()),
        root_key: None,
        auxiliary: Vec::new(),
    }
}

/// A mirror of two drives without anything in it.
pub(crate) fn create_mirror(name: &str, ashift: u64) -> (TestDir, Vec<DeviceSpec>, ActivePool) {
    let folder = TestDir::new(name);
    let drives = folder.create_devices(2, 128 << 20);
    let new = new_pool((VdevLayout::Mirror, ashift), &drives, open_devices(&drives));
    let made = create_pool(new, environment(), &mut |_, _, _| Ok(())).unwrap();
    (folder, drives, made.pool)
}

pub(crate) fn create_test_pool(
    name: &str,
    shape: VdevLayout,
    count: usize,
    ashift: u64,
) -> (TestDir, CreatedPool) {
    let folder = TestDir::new(name);
    let drives = folder.create_devices(count, 256 << 20);
    let new = new_pool((shape, ashift), &drives, open_devices(&drives));
    let mut fill = |_: &ActivePool, set: &spa::OpenDataset, tx: &txg::Tx| {
        let file = dmu::NewObject::new(ObjectType::PLAIN_OTHER, 128 << 10);
        let file = set.objset().create(tx, &file)?;
        file.write(tx, 0, &vec![5; 1 << 20])?;
        Ok(())
    };
    let made = create_pool(new, environment(), &mut fill).unwrap();
    (folder, made)
}

/// The pool in a folder, to be read.
pub(crate) fn open_pool(folder: &TestDir) -> spa::Pool {
    let entries = std::fs::read_dir(&folder.0).unwrap();
    let device = |path: &Path| Arc::new(File::open(path).unwrap()) as Arc<dyn Device>;
    let devices: Vec<_> = entries.map(|entry| device(&entry.unwrap().path())).collect();
    let (found, _) = spa::scan_devices(&devices);
    assert_eq!(found.len(), 1);
    found[0].open(&spa::PoolOpenOptions::default()).unwrap()
}

#[test]
fn pools_are_made_and_found_again() {
    for (name, shape, count, ashift) in [
        ("single", VdevLayout::Single, 1, 9),
        ("mirror", VdevLayout::Mirror, 2, 12),
        ("raidz2", VdevLayout::Raidz(2), 6, 12),
        ("raidz1", VdevLayout::Raidz(1), 3, 9),
    ] {
        let (folder, made) = create_test_pool(name, shape, count, ashift);
        let set = made.pool.dataset(made.root_objset).unwrap();
        for round in 0..5_u64 {
            let tx = made.pool.begin_tx().unwrap();
            let new = dmu::NewObject::new(ObjectType::PLAIN_OTHER, 128 << 10);
            let file = set.objset().create(&tx, &new).unwrap();
            file.write(&tx, 0, &round.to_le_bytes().repeat(30_000)).unwrap();
            drop(tx);
            made.pool.sync().unwrap();
        }
        drop(set);
        drop(made);
        let pool = open_pool(&folder);
        assert_eq!(pool.name(), "made");
    }
}

#[test]
fn unknown_features_allow_readonly_only() {
    let (folder, made) = create_test_pool("strange", VdevLayout::Mirror, 2, 12);
    let strange = |uses: u64| {
        move |_: &ActivePool, change: &dsl::write::SyncTaskContext<'_>| {
            let directory = spa::PoolDirectory::open(change.mos.clone()).unwrap();
            let table = directory.object("features_for_write").unwrap().unwrap();
            let table = zap::Zap::open(table).unwrap();
            table.update_u64(change.tx, b"org.example:strange", uses).unwrap();
        }
    };
    // one that is enabled, and not in use, does no harm
    made.pool.run_sync_task(strange(0)).unwrap();
    drop(made);
    let active = ActivePool::new(open_pool(&folder), environment()).unwrap();
    drop(active);

    let (folder, made) = create_test_pool("stranger", VdevLayout::Mirror, 2, 12);
    made.pool.run_sync_task(strange(1)).unwrap();
    drop(made);
    let refused = ActivePool::new(open_pool(&folder), environment()).unwrap_err();
    assert!(refused.to_string().contains("org.example:strange"), "{refused}");
    let still = ActivePool::new_read_only(open_pool(&folder), environment()).unwrap();
    still.sync().unwrap();
    assert!(matches!(still.begin_tx(), Err(spa::Error::ImportedReadOnly)));
    assert!(matches!(still.run_sync_task(strange(2)), Err(spa::Error::ImportedReadOnly)));
}
