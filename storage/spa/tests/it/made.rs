//! Pools that are made here, found again and read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Device, File};
use dsl::write::Moment;
use ondisk::ObjectType;
use ondisk::feature::FEATURES;
use spa::design::{Drive, Purpose, Shape, top};
use spa::{Made, NewPool, Owned, World, create};
use units::Ashift;

/// Numbers from a seed.
struct Seeded(AtomicU64);

impl zio::Random for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            let next = self.0.load(Ordering::Relaxed).wrapping_mul(0x5851_f42d_4c95_7f2d) + 0x1405;
            self.0.store(next, Ordering::Relaxed);
            *byte = next.to_be_bytes()[0];
        }
    }
}

pub(crate) fn world() -> World {
    World {
        random: Arc::new(Seeded(AtomicU64::new(7))),
        now: Arc::new(|| Moment { seconds: 1_700_000_000, nanoseconds: 0 }),
        workers: 2,
        limits: txg::TxgLimits::default(),
        cache: arc::MemoryBudget::default(),
    }
}

/// A folder with sparse files that goes away in the end, or stays where `POOLHOUSE_KEEP` says.
pub(crate) struct Folder(PathBuf);

impl Folder {
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

    pub(crate) fn drives(&self, count: usize, size: u64) -> Vec<Drive> {
        let drive = |index: usize| {
            let path = self.0.join(format!("d{index}.img"));
            std::fs::File::create(&path).unwrap().set_len(size).unwrap();
            Drive { path: path.display().to_string(), size, is_disk: false }
        };
        (0..count).map(drive).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::env::var_os("POOLHOUSE_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// They as devices, which only one can open.
pub(crate) fn devices(drives: &[Drive]) -> Vec<Arc<dyn Device>> {
    let open = |drive: &Drive| File::open_exclusive(Path::new(&drive.path)).unwrap();
    drives.iter().map(|drive| Arc::new(open(drive)) as Arc<dyn Device>).collect()
}

/// A pool of one vdev on some drives.
pub(crate) fn new_pool(
    (shape, ashift): (Shape, u64),
    drives: &[Drive],
    devices: Vec<Arc<dyn Device>>,
) -> NewPool {
    NewPool {
        name: "made".to_owned(),
        tops: vec![top(shape, drives, Ashift::new(ashift).unwrap(), Purpose::Data).unwrap()],
        devices,
        features: FEATURES.iter().collect(),
        host: (0x1234, "here".to_owned()),
        key: None,
        auxiliary: Vec::new(),
    }
}

/// A mirror of two drives without anything in it.
pub(crate) fn mirror(name: &str, ashift: u64) -> (Folder, Vec<Drive>, Owned) {
    let folder = Folder::new(name);
    let drives = folder.drives(2, 128 << 20);
    let new = new_pool((Shape::Mirror, ashift), &drives, devices(&drives));
    let made = create(new, world(), &mut |_, _, _| Ok(())).unwrap();
    (folder, drives, made.owned)
}

pub(crate) fn make(name: &str, shape: Shape, count: usize, ashift: u64) -> (Folder, Made) {
    let folder = Folder::new(name);
    let drives = folder.drives(count, 256 << 20);
    let new = new_pool((shape, ashift), &drives, devices(&drives));
    let mut fill = |_: &Owned, set: &spa::Set, tx: &txg::Tx| {
        let file = dmu::NewObject::new(ObjectType::PLAIN_OTHER, 128 << 10);
        let file = set.objset.create(tx, &file)?;
        file.write(tx, 0, &vec![5; 1 << 20])?;
        Ok(())
    };
    let made = create(new, world(), &mut fill).unwrap();
    (folder, made)
}

/// The pool in a folder, to be read.
pub(crate) fn open(folder: &Folder) -> spa::Pool {
    let entries = std::fs::read_dir(&folder.0).unwrap();
    let device = |path: &Path| Arc::new(File::open(path).unwrap()) as Arc<dyn Device>;
    let devices: Vec<_> = entries.map(|entry| device(&entry.unwrap().path())).collect();
    let (found, _) = spa::scan(&devices);
    assert_eq!(found.len(), 1);
    found[0].open(&spa::Options::default()).unwrap()
}

#[test]
fn pools_are_made_and_found_again() {
    for (name, shape, count, ashift) in [
        ("single", Shape::Single, 1, 9),
        ("mirror", Shape::Mirror, 2, 12),
        ("raidz2", Shape::Raidz(2), 6, 12),
        ("raidz1", Shape::Raidz(1), 3, 9),
    ] {
        let (folder, made) = make(name, shape, count, ashift);
        let set = made.owned.set(made.root).unwrap();
        for round in 0..5_u64 {
            let tx = made.owned.begin().unwrap();
            let new = dmu::NewObject::new(ObjectType::PLAIN_OTHER, 128 << 10);
            let file = set.objset.create(&tx, &new).unwrap();
            file.write(&tx, 0, &round.to_le_bytes().repeat(30_000)).unwrap();
            drop(tx);
            made.owned.sync().unwrap();
        }
        drop(set);
        drop(made);
        let pool = open(&folder);
        assert_eq!(pool.name(), "made");
    }
}

#[test]
fn what_uses_features_that_nobody_knows_is_looked_at_only() {
    let (folder, made) = make("strange", Shape::Mirror, 2, 12);
    let strange = |uses: u64| {
        move |_: &Owned, change: &dsl::write::Change<'_>| {
            let directory = spa::Directory::open(change.mos.clone()).unwrap();
            let table = directory.object("features_for_write").unwrap().unwrap();
            let table = zap::Zap::open(table).unwrap();
            table.update_u64(change.tx, b"org.example:strange", uses).unwrap();
        }
    };
    // one that is enabled, and not in use, does no harm
    made.owned.perform(strange(0)).unwrap();
    drop(made);
    let owned = Owned::new(open(&folder), world()).unwrap();
    drop(owned);

    let (folder, made) = make("stranger", Shape::Mirror, 2, 12);
    made.owned.perform(strange(1)).unwrap();
    drop(made);
    let refused = Owned::new(open(&folder), world()).unwrap_err();
    assert!(refused.to_string().contains("org.example:strange"), "{refused}");
    let still = Owned::still(open(&folder), world()).unwrap();
    still.sync().unwrap();
    assert!(matches!(still.begin(), Err(spa::Error::Still)));
    assert!(matches!(still.perform(strange(2)), Err(spa::Error::Still)));
}
