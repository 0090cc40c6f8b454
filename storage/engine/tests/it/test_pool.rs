//! Imported pools: synced data is there after another import, and no space leaks.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::Device;
use engine::check;
use engine::pool::{
    DraidLayout, Environment, MemoryBudget, NewDataset, NewPool, NewVdev, OpenFileSystem, Pool,
    VdevLayout, VdevRole,
};
use posix::{ChangeContext, Credentials, WriteOffset};

pub(crate) fn environment() -> Environment {
    let state = AtomicU64::new(0x9e37_79b9);
    Environment {
        random: Arc::new(move |bytes| {
            for byte in bytes {
                let next =
                    state.load(Ordering::Relaxed).wrapping_mul(0x5851_f42d_4c95_7f2d) + 0x1405;
                state.store(next, Ordering::Relaxed);
                *byte = next.to_be_bytes()[0];
            }
        }),
        now: Arc::new(|| (1_700_000_000, 0)),
        workers: 2,
        max_dirty: 64 << 20,
        cache: MemoryBudget::default(),
        host: (0x1234, "here".to_owned()),
    }
}

/// A folder with sparse files that is removed at the end, or stays where `POOLHOUSE_KEEP` says.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str, drives: usize, size: u64) -> Self {
        // tests that run at once may use one name
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let base =
            std::env::var_os("POOLHOUSE_KEEP").map_or_else(std::env::temp_dir, PathBuf::from);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("poolhouse-held-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let folder = Self(path);
        for path in folder.drives(drives) {
            std::fs::File::create(path).unwrap().set_len(size).unwrap();
        }
        folder
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }

    pub(crate) fn drives(&self, count: usize) -> Vec<PathBuf> {
        (0..count).map(|index| self.0.join(format!("d{index}.img"))).collect()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::env::var_os("POOLHOUSE_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

pub(crate) fn new_pool(folder: &TempDir, shape: VdevLayout, count: usize) -> NewPool {
    NewPool {
        name: "tank".to_owned(),
        vdevs: vec![NewVdev { layout: shape, drives: folder.drives(count), role: VdevRole::Data }],
        ashift: None,
        properties: vec![("compression".to_owned(), "zstd".to_owned())],
        force: false,
    }
}

/// A pool on one drive in memory of that size (bytes), and the drive.
pub(crate) fn create_memory_pool(size: u64, environment: &Environment) -> (Pool, Arc<dyn Device>) {
    let drive: Arc<dyn Device> = Arc::new(device::MemoryDevice::zeroed("drive", size));
    let drives = vec!["drive".into()];
    let new = NewPool {
        name: "tank".to_owned(),
        vdevs: vec![NewVdev { layout: VdevLayout::Single, drives, role: VdevRole::Data }],
        ashift: None,
        properties: Vec::new(),
        force: false,
    };
    let devices = [Arc::clone(&drive)];
    (engine::pool::create_on_devices(&new, &devices, environment).unwrap(), drive)
}

pub(crate) fn credentials() -> ChangeContext {
    let now = engine::files::Time { seconds: 1_700_000_001, nanoseconds: 5 };
    ChangeContext { credentials: Credentials::new(1000, 100), now }
}

pub(crate) fn write_file(held: &Pool, fs: &str, name: &str, bytes: &[u8]) {
    write_to(&held.datasets().filesystem(fs).unwrap(), name, bytes).unwrap();
}

/// Creates a file in the root directory of an open file system.
pub(crate) fn write_to(
    files: &OpenFileSystem,
    name: &str,
    bytes: &[u8],
) -> engine::files::Result<()> {
    let root = units::ObjectId::new(files.reader().root()?.ino());
    let new = posix::NewInode::default();
    let file = files.create(&credentials(), root, name.as_bytes(), &new)?;
    let file = units::ObjectId::new(file.ino());
    for (index, chunk) in bytes.chunks(1 << 20).enumerate() {
        let at = WriteOffset::At(index as u64 * (1 << 20));
        files.write(&credentials(), file, at, chunk)?;
    }
    Ok(())
}

pub(crate) fn read_file(pool: &Pool, fs: &str, name: &str) -> Vec<u8> {
    let live = pool.datasets().filesystem(fs).unwrap();
    let file = live.reader().find(name.as_bytes()).unwrap().unwrap();
    let mut bytes = vec![0; usize::try_from(file.stat().size).unwrap()];
    file.content().read(0, &mut bytes).unwrap();
    bytes
}

/// The errors that zdb finds, if it is installed.
pub(crate) fn zdb_errors(folder: &TempDir, pool: &str) -> Option<String> {
    let mut command = fixtures::zdb_command();
    let output = command.args(["-e", "-p"]).arg(&folder.0).args(["-bcc", pool]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let clean = output.status.success() && text.contains("No leaks (block sum matches");
    (!clean).then_some(text)
}

/// The errors that the examiner, which shares no code with the writer, and zdb find.
pub(crate) fn check_pool(folder: &TempDir, pool: &str) -> Vec<String> {
    let mut wrong = verify_pool(&engine::search(std::slice::from_ref(&folder.0)), pool);
    wrong.extend(zdb_errors(folder, pool).map(|text| format!("Space: zdb reports: {text}")));
    wrong
}

/// The errors that the examiner finds.
pub(crate) fn verify_pool(search: &engine::Search, pool: &str) -> Vec<String> {
    let pool = search.open(pool, &engine::OpenOptions::default()).unwrap();
    let verify = check::PoolVerifier::new(&pool, Arc::default()).unwrap();
    verify.work();
    while verify.next_round() {
        verify.work();
    }
    let findings = verify.findings();
    let mut wrong: Vec<String> = findings.notes.iter().map(|note| note.what.clone()).collect();
    wrong.extend(findings.damaged.iter().map(|damaged| format!("{damaged:?}")));
    for space in &findings.space {
        if space.leaked_bytes + space.unallocated_bytes + space.contradicting_bytes > 0 {
            wrong.push(format!("{space:?}"));
        }
    }
    if !findings.clean && wrong.is_empty() {
        wrong.push(format!("{findings:?}"));
    }
    wrong
}

#[test]
fn synced_data_is_there_after_an_import() {
    for (name, shape, count) in [
        ("single", VdevLayout::Single, 1),
        ("mirror", VdevLayout::Mirror, 3),
        ("raidz2", VdevLayout::Raidz(2), 6),
    ] {
        let folder = TempDir::new(name, count, 256 << 20);
        let held = engine::pool::create(&new_pool(&folder, shape, count), &environment()).unwrap();
        let noise: Vec<u8> = (0..5_000_000_u32)
            .flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 7).to_le_bytes())
            .take(5_000_000)
            .collect();
        write_file(&held, "tank", "letter", b"to be or not to be");
        write_file(&held, "tank", "noise", &noise);
        assert_eq!(read_file(&held, "tank", "noise"), noise, "before it was written");
        held.sync().unwrap();
        assert_eq!(read_file(&held, "tank", "noise"), noise, "after it was written");
        let child = NewDataset { name: "tank/child".to_owned(), properties: Vec::new() };
        held.datasets().create_filesystem(&child).unwrap();
        write_file(&held, "tank/child", "inner", &noise[..300_000]);
        held.snapshots().create(&["tank/child@one".to_owned(), "tank@one".to_owned()]).unwrap();
        write_file(&held, "tank/child", "later", &noise[..30_000]);
        held.export().unwrap();
        drop(held);

        let held =
            engine::pool::import(std::slice::from_ref(&folder.0), "tank", false, &environment())
                .unwrap();
        assert_eq!(read_file(&held, "tank", "letter"), b"to be or not to be");
        assert_eq!(read_file(&held, "tank/child", "later"), noise[..30_000]);
        held.snapshots().rollback("tank/child").unwrap();
        assert!(
            held.datasets()
                .filesystem("tank/child")
                .unwrap()
                .reader()
                .find(b"later")
                .unwrap()
                .is_none()
        );
        held.datasets().destroy("tank@one").unwrap();
        write_file(&held, "tank", "more", &noise);
        held.export().unwrap();
        drop(held);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn vdevs_keep_their_allocation_class() {
    let folder = TempDir::new("classes", 6, 128 << 20);
    let drives = folder.drives(6);
    let vdev = |shape, drives: &[PathBuf], purpose| NewVdev {
        layout: shape,
        drives: drives.to_vec(),
        role: purpose,
    };
    let mut new = new_pool(&folder, VdevLayout::Single, 1);
    new.force = true;
    new.vdevs.extend([
        vdev(VdevLayout::Mirror, &drives[1..3], VdevRole::Special),
        vdev(VdevLayout::Mirror, &drives[3..5], VdevRole::Dedup),
        vdev(VdevLayout::Single, &drives[5..], VdevRole::Log),
    ]);
    drop(engine::pool::create(&new, &environment()).unwrap().export());
    let held = engine::pool::import(std::slice::from_ref(&folder.0), "tank", false, &environment())
        .unwrap();
    let purposes: Vec<_> = held.status().vdevs.into_iter().map(|vdev| vdev.class).collect();
    let purpose = |name: &str| Some(name.to_owned());
    assert_eq!(purposes, [None, purpose("special"), purpose("dedup"), purpose("log")]);
    write_file(&held, "tank", "letter", &vec![7; 3_000_000]);
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

/// As `zfs get` of OpenZFS shows it.
#[test]
fn limit_none_has_a_local_source() {
    let folder = TempDir::new("no-limit", 1, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    let source = || {
        let (mut found, wanted) = (None, engine::dataset::DatasetQuery::default());
        let mut show = |dataset: engine::dataset::Dataset| {
            let quota = dataset.properties.into_iter().find(|property| property.name == "quota");
            found = quota.map(|property| (property.value, property.source));
        };
        held.datasets().list("tank", &wanted, &mut show, &mut |_| {}).unwrap();
        found.unwrap()
    };
    assert_eq!(source(), ("0".to_owned(), "default".to_owned()));
    held.properties().set("tank", "quota", "none").unwrap();
    assert_eq!(source(), ("0".to_owned(), "local".to_owned()));
    held.properties().revert("tank", "quota").unwrap();
    assert_eq!(source(), ("0".to_owned(), "default".to_owned()));
}

#[test]
fn draids_spares_and_caches_are_made() {
    let folder = TempDir::new("draid", 9, 128 << 20);
    let drives = folder.drives(9);
    let groups = DraidLayout { parity: 2, data: 3, spares: 1 };
    let mut new = new_pool(&folder, VdevLayout::Draid(groups), 7);
    for (drive, purpose) in [(7, VdevRole::Spare), (8, VdevRole::Cache)] {
        let drives = vec![drives[drive].clone()];
        new.vdevs.push(NewVdev { layout: VdevLayout::Single, drives, role: purpose });
    }
    let held = engine::pool::create(&new, &environment()).unwrap();
    write_file(&held, "tank", "letter", &vec![7; 3_000_000]);
    held.export().unwrap();
    drop(held);
    let held = engine::pool::import(std::slice::from_ref(&folder.0), "tank", false, &environment())
        .unwrap();
    assert_eq!(read_file(&held, "tank", "letter"), vec![7; 3_000_000]);
    write_file(&held, "tank", "more", &vec![8; 300_000]);
    // a spare is in use by a pool, though it is in none of its vdevs
    let mut other = new_pool(&folder, VdevLayout::Single, 1);
    "other".clone_into(&mut other.name);
    other.vdevs[0].drives = vec![drives[7].clone()];
    let refused = engine::pool::create(&other, &environment()).err();
    assert!(refused.is_some_and(|why| why.to_string().contains("in use")));
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    // as in OpenZFS, only while that pool is imported
    engine::pool::create(&other, &environment()).unwrap().export().unwrap();
}

/// Fills pools that OpenZFS made, with all their structures: space map logs, accounting tables,
/// lists of blocks to free.
#[test]
fn openzfs_pools_are_imported_and_written() {
    let mut written = 0;
    for fixture in fixtures::all() {
        let (name, pool) = (fixture.name.as_str(), fixture.pool_name().to_owned());
        let folder = TempDir::new(name, 0, 0);
        for path in fixture.images() {
            std::fs::copy(&path, folder.0.join(path.file_name().unwrap())).unwrap();
        }
        // existing damage stays in the changed pool too
        let sound = fixture.damaged_images().is_empty() && fixture.missing_images().is_empty();
        let held = match engine::pool::import(
            std::slice::from_ref(&folder.0),
            &pool,
            true,
            &environment(),
        ) {
            Ok(held) => held,
            Err(error) => {
                // impossible changes are refused, and change nothing
                eprintln!("{name}: {error}");
                continue;
            }
        };
        let Ok(_) = held.datasets().filesystem(&pool) else { continue };
        written += 1;
        write_file(&held, &pool, "written-here", &vec![7; 3_000_000]);
        held.sync().unwrap();
        write_file(&held, &pool, "and-again", &vec![8; 300_000]);
        held.snapshots().create(&[format!("{pool}@by-us")]).unwrap();
        held.export().unwrap();
        drop(held);
        let after = check_pool(&folder, &pool);
        let wrong = |fault: &&String| sound || fault.starts_with("Space");
        let fresh: Vec<_> = after.iter().filter(wrong).collect();
        eprintln!("{name}: written; {fresh:?}");
        assert!(fresh.is_empty(), "{name}: {fresh:?}");
    }
    assert!(written >= 8, "only {written} pools could be changed");
}

/// The images of a pool as they are at this moment, as if the power were cut.
pub(crate) fn copy_after_cut(folder: &TempDir, name: &str, drives: usize) -> TempDir {
    let after = TempDir::new(name, 0, 0);
    for path in folder.drives(drives) {
        std::fs::copy(&path, after.0.join(path.file_name().unwrap())).unwrap();
    }
    after
}

#[test]
fn fsynced_data_survives_a_power_cut() {
    let folder = TempDir::new("fsync", 3, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Raidz(1), 3), &environment()).unwrap();
    write_file(&held, "tank", "first", b"of all");
    held.datasets().filesystem("tank").unwrap().fsync(None).unwrap();
    for round in 0..20_u32 {
        let name = format!("file-{round}");
        write_file(&held, "tank", &name, &vec![7; 1000 * round as usize]);
        let fs = held.datasets().filesystem("tank").unwrap();
        let id = fs.reader().find(name.as_bytes()).unwrap().unwrap().ino();
        let before = held.txg();
        fs.fsync(Some(id)).unwrap();
        assert!(round == 0 || held.txg() == before, "a commit took a txg");
    }
    write_file(&held, "tank", "not-promised", &[1; 10]);
    let after = copy_after_cut(&folder, "fsync-cut", 3);
    drop(held);
    let held = engine::pool::import(std::slice::from_ref(&after.0), "tank", false, &environment())
        .unwrap();
    for round in 0..20 {
        assert_eq!(read_file(&held, "tank", &format!("file-{round}")), vec![7; 1000 * round]);
    }
    assert_eq!(read_file(&held, "tank", "first"), b"of all");
    write_file(&held, "tank", "later", &vec![9; 100_000]);
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&after, "tank"), Vec::<String>::new());
}

#[test]
fn volumes_are_made_and_written() {
    let folder = TempDir::new("volume", 1, 256 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    let new = NewDataset { name: "tank/vol".to_owned(), properties: Vec::new() };
    held.volumes().create(&new, 32 << 20, 16 << 10, false).unwrap();
    let volume = held.volumes().get("tank/vol").unwrap();
    volume.write(5_000_000, &vec![3; 100_000]).unwrap();
    volume.flush().unwrap();
    let after = copy_after_cut(&folder, "volume-cut", 1);
    held.export().unwrap();
    drop((held, volume));
    let held = engine::pool::import(std::slice::from_ref(&after.0), "tank", false, &environment())
        .unwrap();
    let mut bytes = vec![0; 100_002];
    assert_eq!(
        held.volumes().get("tank/vol").unwrap().read(4_999_999, &mut bytes).unwrap(),
        100_002
    );
    assert!(bytes[1..100_001].iter().all(|byte| *byte == 3) && bytes[0] == 0);
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    assert_eq!(check_pool(&after, "tank"), Vec::<String>::new());
}

#[test]
fn returned_drives_have_a_dtl() {
    let folder = TempDir::new("away", 4, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Raidz(2), 4), &environment()).unwrap();
    write_file(&held, "tank", "before", &vec![1; 2_000_000]);
    held.export().unwrap();
    drop(held);
    let elsewhere = TempDir::new("away-drives", 0, 0);
    let gone: Vec<_> =
        folder.drives(2).iter().map(|path| elsewhere.0.join(path.file_name().unwrap())).collect();
    for (from, to) in folder.drives(2).iter().zip(&gone) {
        std::fs::rename(from, to).unwrap();
    }
    let held = engine::pool::import(std::slice::from_ref(&folder.0), "tank", false, &environment())
        .unwrap();
    assert_eq!(held.status().state, "DEGRADED");
    write_file(&held, "tank", "degraded", &vec![2; 2_000_000]);
    held.sync().unwrap();
    assert_eq!(read_file(&held, "tank", "before"), vec![1; 2_000_000]);
    held.export().unwrap();
    drop(held);
    for (to, from) in folder.drives(2).iter().zip(&gone) {
        std::fs::rename(from, to).unwrap();
    }
    // both are there again, and neither is read for the missed data
    let held = engine::pool::import(std::slice::from_ref(&folder.0), "tank", false, &environment())
        .unwrap();
    assert_eq!(read_file(&held, "tank", "degraded"), vec![2; 2_000_000]);
    write_file(&held, "tank", "together", &vec![3; 2_000_000]);
    held.export().unwrap();
    drop(held);
    let search = engine::search(std::slice::from_ref(&folder.0));
    let pool = search.open("tank", &engine::OpenOptions::default()).unwrap();
    let verify = check::PoolVerifier::new(&pool, Arc::default()).unwrap();
    verify.work();
    while verify.next_round() {
        verify.work();
    }
    let findings = verify.findings();
    assert_eq!((findings.lost, findings.repairable), (0, 0), "no drive is at fault");
    assert!(findings.clean, "{:?} {:?}", findings.space, findings.notes);
    assert!(findings.degraded > 0, "the missed data is known");
}
