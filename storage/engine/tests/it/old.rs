//! Pools of versions 1 to 15, of machines of both byte orders, imported to be written.
//!
//! The images are those of the tests of OpenZFS (zfs-test): `zpool_upgrade` and `history`. They were
//! made by Solaris on x86 and sparc from 2006 to 2009. `POOLHOUSE_OLD_POOLS` names a folder with more of
//! them, a folder for each pool.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::dataset::DatasetQuery;
use engine::pool::{self, CreateOptions, NewDataset, NewPool, Pool, VdevLayout};
use posix::WriteOffset;
use units::ObjectId;

use crate::shared_blocks::zdb_of;
use crate::test_pool::{
    TempDir, check_pool, credentials, environment, new_pool, read_file, write_file,
};

/// The folders with pools.
fn pools() -> Vec<PathBuf> {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pools/old-pools.tar.zst");
    let mut folders = vec![fixtures::unpack_archive(&archive).unwrap()];
    folders.extend(std::env::var_os("POOLHOUSE_OLD_POOLS").map(PathBuf::from));
    let pools = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut pools: Vec<PathBuf> = pools.map(|entry| entry.unwrap().path()).collect();
    pools.sort();
    pools
}

/// A copy of a pool's images, and the pool's name and version.
fn copy_of(pool: &Path) -> (TempDir, String, u64) {
    let folder = TempDir::new(&format!("old-{}", pool.file_name().unwrap().display()), 0, 0);
    let mut devices: Vec<Arc<dyn device::Device>> = Vec::new();
    for image in std::fs::read_dir(pool).unwrap() {
        let image = image.unwrap().path();
        std::fs::copy(&image, folder.path().join(image.file_name().unwrap())).unwrap();
        devices.push(Arc::new(device::File::open(&image).unwrap()));
    }
    let candidates = spa::scan_devices(&devices).0;
    let config = candidates[0].config().unwrap();
    (folder, candidates[0].name().to_owned(), config.pool.version)
}

/// The file systems of a pool.
fn filesystems(held: &Pool) -> Vec<String> {
    let mut found = Vec::new();
    let wanted = DatasetQuery { kinds: vec!["filesystem".to_owned()], ..DatasetQuery::default() };
    held.datasets()
        .list(held.name(), &wanted, &mut |dataset| found.push(dataset.name), &mut |_| {})
        .unwrap();
    found
}

type Contents = BTreeMap<Vec<u8>, (u64, u32, Vec<u8>)>;

/// The content of a file system: each file's owner, mode and bytes, by path.
fn contents(pool: &Pool, name: &str) -> Contents {
    let fs = pool.datasets().filesystem(name).unwrap();
    let (files, mut found) = (fs.reader(), Contents::new());
    let mut waiting = vec![(Vec::new(), files.root().unwrap())];
    while let Some((path, file)) = waiting.pop() {
        let facts = file.stat();
        let mut bytes = Vec::new();
        if facts.is_directory() {
            for entry in files.read_dir_sorted(&file).unwrap() {
                let path = [path.clone(), entry.name].join(&b'/');
                waiting.push((path, files.file(entry.ino).unwrap()));
            }
        } else if let Ok(size) = usize::try_from(facts.size) {
            bytes = vec![0; size];
            let _ = file.content().read(0, &mut bytes);
        }
        found.insert(path, (facts.uid.into(), facts.mode, bytes));
    }
    found
}

fn noise(seed: u32, length: usize) -> Vec<u8> {
    let words = (0..).map(|n: u32| (n ^ seed).wrapping_mul(2_654_435_761).rotate_left(7));
    words.flat_map(u32::to_le_bytes).take(length).collect()
}

fn import(folder: &TempDir, name: &str) -> Pool {
    pool::import(&[folder.path().into()], name, true, &environment())
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Writes over the midst of a file.
fn overwrite(pool: &Pool, fs: &str, name: &str, bytes: &[u8]) {
    let live = pool.datasets().filesystem(fs).unwrap();
    let file = live.reader().find(name.as_bytes()).unwrap().unwrap().ino();
    live.write(&credentials(), ObjectId::new(file), WriteOffset::At(100_000), bytes).unwrap();
}

fn snapshot(pool: &Pool, name: &str) {
    pool.snapshots().create(&[name.to_owned()]).unwrap();
}

/// Files, snapshots, a clone, and all of them destroyed in another order; one file is left.
fn work_on(held: &Pool, pool: &str) {
    write_file(held, pool, "new", &noise(1, 300_000));
    snapshot(held, &format!("{pool}@a"));
    overwrite(held, pool, "new", &noise(2, 100_000));
    snapshot(held, &format!("{pool}@b"));
    overwrite(held, pool, "new", &noise(3, 50_000));
    let child = |name: &str| NewDataset { name: format!("{pool}/{name}"), properties: Vec::new() };
    held.datasets().create_filesystem(&child("child")).unwrap();
    write_file(held, &format!("{pool}/child"), "inner", &noise(4, 200_000));
    held.snapshots().clone_snapshot(&format!("{pool}@a"), &child("clone")).unwrap();
    assert_eq!(read_file(held, &format!("{pool}/clone"), "new"), noise(1, 300_000));
    overwrite(held, &format!("{pool}/clone"), "new", &noise(5, 70_000));
    held.sync().unwrap();
    held.datasets().destroy(&format!("{pool}/clone")).unwrap();
    held.datasets().destroy(&format!("{pool}@a")).unwrap();
    held.sync().unwrap();
}

/// The content of the first file after [`work_on`].
fn new_file() -> Vec<u8> {
    let mut bytes = noise(1, 300_000);
    bytes[100_000..200_000].copy_from_slice(&noise(2, 100_000));
    bytes[100_000..150_000].copy_from_slice(&noise(3, 50_000));
    bytes
}

fn check_with_zdb(folder: &TempDir, pool: &str, step: &str) {
    assert_eq!(check_pool(folder, pool), Vec::<String>::new(), "{pool} {step}");
    let said = zdb_of(folder.path(), pool, &["-d"]);
    assert!(!said.contains("mismatch") && !said.contains("ERROR"), "{pool} {step}: {said}");
}

#[test]
fn old_pools_keep_the_format_of_their_version() {
    let wanted = std::env::var("POOLHOUSE_OLD_POOL").unwrap_or_default();
    for images in pools() {
        if !images.ends_with(&wanted) && !wanted.is_empty() {
            continue;
        }
        let (folder, pool, version) = copy_of(&images);
        let held = import(&folder, &pool);
        let before: Vec<_> =
            filesystems(&held).into_iter().map(|name| (contents(&held, &name), name)).collect();
        work_on(&held, &pool);
        held.export().unwrap();
        drop(held);
        check_with_zdb(&folder, &pool, "with a snapshot");

        let held = import(&folder, &pool);
        assert_eq!(read_file(&held, &pool, "new"), new_file(), "{pool}");
        for (was, name) in &before {
            let now = contents(&held, name);
            let changed =
                was.iter().find(|(path, _)| !path.is_empty() && now.get(*path) != was.get(*path));
            assert!(changed.is_none(), "{name}: {changed:?} was changed");
        }
        held.snapshots().rollback(&pool).unwrap();
        held.datasets().destroy(&format!("{pool}@b")).unwrap();
        held.datasets().destroy(&format!("{pool}/child")).unwrap();
        held.export().unwrap();
        drop(held);
        check_with_zdb(&folder, &pool, "without snapshots");
        assert_eq!(copy_of(folder.path()).2, version, "{pool} keeps its version");
    }
}

#[test]
fn operations_beyond_the_version_are_refused() {
    let images = pools().into_iter().find(|images| images.ends_with("v3-pool")).unwrap();
    let (folder, pool, _) = copy_of(&images);
    let held = import(&folder, &pool);
    snapshot(&held, &format!("{pool}@a"));
    let at = format!("{pool}@a");
    let refused: [(&str, engine::Result<()>); 8] = [
        ("compression", held.properties().set(&pool, "compression", "gzip")),
        ("refquota", held.properties().set(&pool, "refquota", "1G")),
        ("dedup", held.properties().set(&pool, "dedup", "on")),
        ("userquota", held.properties().set(&pool, "userquota@1", "1G")),
        ("property of a snapshot", held.properties().set(&at, "a:b", "c")),
        ("bootfs", held.properties().set_pool("bootfs", &pool)),
        ("feature", held.properties().set_pool("feature@bookmarks", "enabled")),
        ("bookmark", held.snapshots().create_bookmark(&at, &format!("{pool}#a"))),
    ];
    for (what, refused) in refused {
        let why = refused.expect_err(what).to_string();
        assert!(why.contains("requires") || why.contains("feature"), "{what}: {why}");
    }
    held.export().unwrap();
    drop(held);
    check_with_zdb(&folder, &pool, "after the refused operations");
}

/// Versions to which pools are upgraded one after the other: those around which structures differ, and the newest.
const UPGRADES: [Option<u64>; 4] = [Some(10), Some(14), Some(26), None];

#[test]
fn old_pools_are_upgraded_step_by_step() {
    let wanted = std::env::var("POOLHOUSE_OLD_POOL").unwrap_or_default();
    for images in pools() {
        if !images.ends_with(&wanted) && !wanted.is_empty() {
            continue;
        }
        let (folder, pool, _) = copy_of(&images);
        let held = import(&folder, &pool);
        work_on(&held, &pool);
        held.export().unwrap();
        drop(held);
        for (step, version) in UPGRADES.into_iter().enumerate() {
            let held = import(&folder, &pool);
            let done = held.properties().upgrade(version).unwrap();
            let expected = version.unwrap_or(5000).max(done.old_version);
            assert_eq!(done.new_version, expected, "{pool}");
            // files, snapshots and a clone of the time before change in the same import
            let clone = NewDataset { name: format!("{pool}/clone{step}"), properties: vec![] };
            held.snapshots().clone_snapshot(&format!("{pool}@b"), &clone).unwrap();
            overwrite(&held, &clone.name, "new", &noise(6, 40_000));
            snapshot(&held, &format!("{pool}@step{step}"));
            snapshot(&held, &format!("{pool}/child@step{step}"));
            held.export().unwrap();
            drop(held);
            check_with_zdb(&folder, &pool, &format!("upgraded to {expected}"));
        }
        let held = import(&folder, &pool);
        assert_eq!(read_file(&held, &pool, "new"), new_file(), "{pool}");
        held.datasets().promote(&format!("{pool}/clone1")).unwrap();
        held.datasets().promote(&pool).unwrap();
        held.snapshots()
            .create_bookmark(&format!("{pool}@step3"), &format!("{pool}#mark"))
            .unwrap();
        for step in 0..UPGRADES.len() {
            held.datasets().destroy(&format!("{pool}/clone{step}")).unwrap();
            held.datasets().destroy(&format!("{pool}@step{step}")).unwrap();
            held.datasets().destroy(&format!("{pool}/child@step{step}")).unwrap();
        }
        held.datasets().destroy(&format!("{pool}@b")).unwrap();
        held.datasets().destroy(&format!("{pool}/child")).unwrap();
        held.export().unwrap();
        drop(held);
        check_with_zdb(&folder, &pool, "without snapshots after the upgrade");
        assert_eq!(copy_of(folder.path()).2, 5000, "{pool}");
    }
}

/// Versions of new pools: those around which structures differ.
const NEW_VERSIONS: [u64; 14] = [1, 2, 3, 8, 9, 10, 11, 12, 13, 15, 23, 24, 26, 28];

fn version_option(version: u64) -> CreateOptions {
    CreateOptions::parse(&[("version".to_owned(), version.to_string())], false).unwrap()
}

#[test]
fn new_pools_have_the_format_of_their_version() {
    for (layout, drives) in [(VdevLayout::Mirror, 2), (VdevLayout::Raidz(1), 3)] {
        for version in NEW_VERSIONS {
            let folder = TempDir::new(&format!("version-{version}-{drives}"), drives, 128 << 20);
            let new = NewPool { properties: Vec::new(), ..new_pool(&folder, layout, drives) };
            let held = pool::create_with_options(&new, version_option(version), &environment());
            let held = held.unwrap_or_else(|why| panic!("version {version}: {why}"));
            work_on(&held, "tank");
            held.export().unwrap();
            drop(held);
            let step = format!("with {drives} drives of version {version}");
            check_with_zdb(&folder, "tank", &step);
            assert_eq!(copy_of(folder.path()).2, version);
            let held = import(&folder, "tank");
            assert_eq!(read_file(&held, "tank", "new"), new_file(), "{step}");
            held.properties().upgrade(None).unwrap();
            snapshot(&held, "tank@upgraded");
            overwrite(&held, "tank", "new", &noise(6, 40_000));
            held.export().unwrap();
            drop(held);
            check_with_zdb(&folder, "tank", &format!("{step}, upgraded"));
        }
    }
}

#[test]
fn vdevs_beyond_the_version_are_refused() {
    let folder = TempDir::new("version-vdevs", 4, 128 << 20);
    for (parity, version) in [(2, 2), (3, 16)] {
        let new = new_pool(&folder, VdevLayout::Raidz(parity), 4);
        let made = pool::create_with_options(&new, version_option(version), &environment());
        let why = made.err().unwrap().to_string();
        assert!(why.contains("its vdevs need pool version"), "{why}");
    }
}
