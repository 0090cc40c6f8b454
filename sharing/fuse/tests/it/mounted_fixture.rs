//! Mounts fixtures, where this machine can: it takes /dev/fuse and, unless one is root,
//! fusermount3.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use engine::RescuePool;
use fixtures::Fixture;
use fuse::{MountHandle, MountTable, TreeMountOptions};
use parking_lot::Mutex;
use serde_json::Value;
use vfs::DatasetTree;

use crate::manifest;

/// A fixture that is mounted.
pub(crate) struct FixtureMount {
    pub(crate) dir: PathBuf,
    pub(crate) reports: Arc<Mutex<Vec<String>>>,
    handle: Option<MountHandle>,
}

impl Drop for FixtureMount {
    fn drop(&mut self) {
        let Some(mut mounted) = self.handle.take() else { return };
        let is_free = mounted.unmount();
        let end = mounted.wait_for_unmount(Duration::from_secs(10));
        if !std::thread::panicking() {
            assert!(is_free, "{} is in use", self.dir.display());
            assert!(matches!(end, Some(Ok(()))), "the session ended with {end:?}");
        }
    }
}

/// Whether this machine can mount; if not, prints so.
pub(crate) fn can_mount() -> bool {
    let opens = OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let has = std::env::split_paths(&paths).any(|dir| dir.join("fusermount3").exists());
    if !(opens && has) {
        // printed even by a test that passes
        let said = b"skipped: mounting takes /dev/fuse and fusermount3 (package fuse3)\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), said);
    }
    opens && has
}

fn open_pool(fixture: &Fixture) -> RescuePool {
    let search = engine::search(std::slice::from_ref(&fixture.dir));
    let pool = search.open(fixture.pool_name(), &engine::OpenOptions::default()).expect("a pool");
    for key in fixture.keys() {
        pool.load_key(&key.dataset, &key.file_content()).expect("a key that fits");
    }
    pool
}

fn mount_fixture(name: &str, pool: RescuePool, target: &str) -> FixtureMount {
    let dir = fixtures::scratch_dir(&format!("mount-{name}"));
    let complaints = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&complaints);
    let report = Box::new(move |what: &str| heard.lock().push(what.to_owned()));
    let options =
        TreeMountOptions { source: pool.name().to_owned(), ..TreeMountOptions::default() };
    let tree = DatasetTree::open(pool, target, report).expect("a tree");
    let mounted = fuse::mount_tree(&tree, &dir, &options).expect("a mount");
    FixtureMount { dir, reports: complaints, handle: Some(mounted) }
}

/// Where a dataset is below the mount point.
fn dataset_path(dir: &Path, pool: &str, name: &str) -> PathBuf {
    let (head, snapshot) = name.split_once('@').map_or((name, None), |(a, b)| (a, Some(b)));
    let below = head.strip_prefix(pool).expect("a name in the pool").trim_start_matches('/');
    let head = dir.join(below);
    match snapshot {
        Some(snapshot) => head.join(".zfs/snapshot").join(snapshot),
        None => head,
    }
}

/// The names of the child file systems of a dataset: their mounts cover its own files of these
/// names.
fn covered_names<'a>(datasets: &'a [Value], name: &str) -> Vec<&'a str> {
    let heads = datasets.iter().filter(|each| each["type"] == "filesystem");
    let names = heads.filter_map(|each| each["name"].as_str());
    let inside = format!("{name}/");
    names.filter_map(|each| each.strip_prefix(&inside)).filter(|rest| !rest.contains('/')).collect()
}

/// The differences between a mounted fixture and its manifest, a line each.
fn differences(fixture: &Fixture, dir: &Path) -> Vec<String> {
    let datasets = fixture.manifest["datasets"].as_array().expect("datasets");
    let mut out = Vec::new();
    for dataset in datasets {
        let name = dataset["name"].as_str().expect("a name");
        if let Some(entries) = dataset["entries"].as_array() {
            let top = dataset_path(dir, fixture.pool_name(), name);
            let found = manifest::differences(&top, entries, &covered_names(datasets, name), name);
            out.extend(found.into_iter().map(|line| format!("{name}: {line}")));
        }
    }
    out
}

fn check_fixture(name: &str) {
    if !can_mount() {
        return;
    }
    let fixture = fixtures::load(name);
    let mount = mount_fixture(name, open_pool(&fixture), fixture.pool_name());
    let out = differences(&fixture, &mount.dir);
    let shown: Vec<&String> = out.iter().take(40).collect();
    assert!(out.is_empty(), "{} differences: {shown:#?}", out.len());
    assert_eq!(*mount.reports.lock(), Vec::<String>::new());
}

#[test]
fn compressed_datasets() {
    check_fixture("mirror-2");
}

#[test]
fn snapshots_and_clones() {
    check_fixture("snapshots");
}

#[test]
fn unlocked_datasets() {
    check_fixture("encryption");
}

#[test]
fn an_intent_log() {
    check_fixture("intent-log-slog");
}

#[test]
fn a_pool_in_trouble() {
    check_fixture("raidz3-8-mixed-trouble");
}

#[test]
fn locked_datasets_are_listed_as_locked() {
    if !can_mount() {
        return;
    }
    let fixture = fixtures::load("encryption");
    let search = engine::search(std::slice::from_ref(&fixture.dir));
    let pool = search.open(fixture.pool_name(), &engine::OpenOptions::default()).expect("a pool");
    let mount = mount_fixture("locked", pool, fixture.pool_name());
    let keys = fixture.keys();
    let heads = keys.iter().filter(|key| key.dataset != fixture.pool_name());
    let mut count = 0;
    for key in heads {
        let dir = dataset_path(&mount.dir, fixture.pool_name(), &key.dataset);
        let below =
            covered_names(fixture.manifest["datasets"].as_array().expect("it"), &key.dataset);
        assert!(fs::metadata(&dir).expect("the folder exists").is_dir());
        if below.is_empty() {
            let why = fs::read_dir(&dir).expect_err("it is locked");
            assert_eq!(why.raw_os_error(), Some(126), "{why}");
            count += 1;
        }
    }
    assert!(count > 0);
}

#[test]
fn control_folders_are_hidden_but_there() {
    if !can_mount() {
        return;
    }
    let fixture = fixtures::load("snapshots");
    let mount = mount_fixture("hidden", open_pool(&fixture), fixture.pool_name());
    let names = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).expect("a folder");
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        entries.map(|entry| name(entry.expect("an entry"))).collect()
    };
    assert!(!names(&mount.dir).contains(&".zfs".to_owned()));
    assert_eq!(names(&mount.dir.join(".zfs")), ["snapshot"]);
    let datasets = fixture.manifest["datasets"].as_array().expect("datasets");
    let inside = format!("{}@", fixture.pool_name());
    let all = datasets.iter().filter_map(|each| each["name"].as_str()?.strip_prefix(&inside));
    let mut all: Vec<&str> = all.collect();
    let mut listed = names(&mount.dir.join(".zfs/snapshot"));
    all.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, all);
    let why = fs::write(mount.dir.join("new"), b"x").expect_err("it is read-only");
    assert_eq!(why.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn foreign_unmount_is_noticed() {
    if !can_mount() {
        return;
    }
    let fixture = fixtures::load("snapshots");
    for round in 0..40 {
        let mut mount =
            mount_fixture(&format!("gone-{round}"), open_pool(&fixture), fixture.pool_name());
        let unmount = || Command::new("fusermount3").arg("-u").arg(&mount.dir).output();
        // a program that another test has just started has all files open for a moment
        while !unmount().expect("fusermount3").status.success() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let mounted = mount.handle.as_mut().expect("it was mounted");
        if round % 2 == 0 {
            assert!(!mounted.is_mounted(&MountTable::current()));
        } else {
            assert!(mounted.try_unmount());
        }
    }
}

#[test]
fn only_empty_folders_are_mounted_on() {
    let dir = fixtures::scratch_dir("not-empty");
    let file = dir.join("file");
    fs::write(&file, b"x").expect("a file");
    assert!(matches!(fuse::check_mountpoint(&dir), Err(fuse::Error::NotEmpty { .. })));
    assert!(matches!(fuse::check_mountpoint(&file), Err(fuse::Error::NotDirectory { .. })));
    assert!(matches!(
        fuse::check_mountpoint(&dir.join("none")),
        Err(fuse::Error::DirectoryAccess { .. })
    ));
}
