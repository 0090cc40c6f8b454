//! `poolhouse backup`: a pool's snapshots in a folder, listed, verified, restored, mounted and pruned.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::{path_arg, run, run_json, run_ok};
use crate::test_nas::{TestNas, cannot_mount, mount_source, random_bytes};

/// No mount of these tests takes longer to come or go.
const LIMIT: Duration = Duration::from_mins(1);

/// The address of a repository in the folder of a daemon.
fn location(nas: &TestNas) -> String {
    format!("file://{}/repository", path_arg(&nas.0))
}

/// A daemon with the pool of the fixture `sent`, which OpenZFS made, and an empty repository.
fn import_sent(name: &str) -> (TestNas, String) {
    let nas = TestNas::new(name, 0);
    let fixture = fixtures::load("sent");
    std::fs::copy(&fixture.images()[0], nas.0.join("drives/d0.img")).unwrap();
    let (root, drives) = (nas.altroot(), nas.0.join("drives"));
    nas.run_ok(&format!("zpool import -R {} -d {} tank", path_arg(&root), path_arg(&drives)));
    let location = location(&nas);
    run_ok(&["backup", "init", &location]);
    (nas, location)
}

#[test]
fn snapshots_of_openzfs_are_restored_as_they_were() {
    let (nas, location) = import_sent("backup");
    let said = nas.run_ok(&format!("backup run -r {location} tank"));
    assert!(said.contains("added to"), "{said}");
    let listed = run_json(&["backup", "list", "--json", &location]);
    let snapshots = listed["snapshots"].as_array().unwrap();
    assert!(snapshots.len() >= 2, "{listed}");
    let checked = run_json(&["backup", "check", "--json", &location]);
    assert_eq!(checked["damage_count"], 0, "{checked}");
    assert_eq!(checked["snapshots"], snapshots.len());
    // the pool and its backup have the same entries, byte by byte
    let drives = nas.0.join("drives");
    nas.run_ok("zpool export tank");
    for snapshot in snapshots.iter().filter(|it| it["type"] == "filesystem") {
        let name = snapshot["name"].as_str().unwrap();
        let (from_pool, from_backup) = (nas.0.join("from-pool"), nas.0.join("from-backup"));
        let pool = ["rescue", "get", "-q", "-d", path_arg(&drives), name, path_arg(&from_pool)];
        let backup = ["backup", "restore", "-q", &location, name, path_arg(&from_backup)];
        let (pool, backup) = (run(&pool), run(&backup));
        assert_eq!((pool.status, &pool.stderr), (backup.status, &backup.stderr), "{name}");
        let manifest = |dir: &Path| entries(dir, dir);
        assert_eq!(manifest(&from_pool), manifest(&from_backup), "{name}");
        assert!(!manifest(&from_pool).is_empty());
        std::fs::remove_dir_all(&from_pool).unwrap();
        std::fs::remove_dir_all(&from_backup).unwrap();
    }
    let volumes: Vec<_> = snapshots.iter().filter(|it| it["type"] == "volume").collect();
    assert!(!volumes.is_empty(), "{listed}");
    for snapshot in volumes {
        compare_images(&nas, &location, snapshot["name"].as_str().unwrap());
    }
}

#[test]
fn backup_says_what_it_could_not_protect() {
    let (nas, location) = import_sent("backup-protect");
    let said =
        nas.run_failing(&format!("backup run --protect-days 30 {location} tank/from@one"), 14);
    assert!(said.contains("1 snapshot(s) (tank/from@one) added"), "{said}");
    assert!(said.contains("are not protected: 'repository': "), "{said}");
    assert!(said.contains("this store has no object lock"), "{said}");
    let listed = run_json(&["backup", "list", "--json", &location]);
    assert_eq!(listed["snapshots"][0]["name"], "tank/from@one");
}

/// The image of a volume's snapshot is the same from the pool and from the repository.
fn compare_images(nas: &TestNas, location: &str, name: &str) {
    let (drives, folder) = (nas.0.join("drives"), &nas.0);
    let (from_pool, from_backup) = (folder.join("pool.img"), folder.join("backup.img"));
    let pool = ["rescue", "volume", "-q", "-d", path_arg(&drives), name, path_arg(&from_pool)];
    let backup = ["backup", "restore", "-q", location, name, path_arg(&from_backup)];
    let (pool, copied) = (run(&pool), run(&backup));
    assert_eq!((pool.status, &pool.stderr), (copied.status, &copied.stderr), "{name}");
    if copied.status == 0 {
        assert!(std::fs::read(&from_pool).unwrap() == std::fs::read(&from_backup).unwrap());
        // an image that is there stays as it is
        assert_ne!(run(&backup).status, 0);
        std::fs::remove_file(&from_pool).unwrap();
        std::fs::remove_file(&from_backup).unwrap();
    }
}

/// Paths below a folder, with sizes, times, and what files hold.
fn entries(dir: &Path, top: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let facts = std::fs::symlink_metadata(&path).unwrap();
        let content = if facts.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        let name = path.strip_prefix(top).unwrap().to_owned();
        found.push((
            name,
            if facts.is_dir() { 0 } else { facts.len() },
            facts.modified().unwrap(),
            content,
        ));
        if facts.is_dir() {
            found.extend(entries(&path, top));
        }
    }
    found.sort();
    found
}

#[test]
fn one_file_comes_back_and_prune_gives_space() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("backup-prune", 1);
    nas.create_pool("tank", 1);
    let (location, home) = (location(&nas), nas.altroot().join("tank"));
    run_ok(&["backup", "init", &location]);
    let (letter, large) = (random_bytes(30_000), random_bytes(3_000_000));
    std::fs::write(home.join("letter"), &letter).unwrap();
    std::fs::write(home.join("large"), &large).unwrap();
    nas.run_ok("zfs snapshot tank@one");
    nas.run_ok(&format!("backup run {location} tank"));
    std::fs::remove_file(home.join("large")).unwrap();
    nas.run_ok("zfs snapshot tank@two");
    let job = nas.run_ok(&format!("backup run --json {location} tank"));
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    assert_eq!((&job["state"], &job["kind"]), (&"finished".into(), &"backup".into()));
    assert_eq!(
        nas.run_ok(&format!("backup run {location} tank")),
        format!("All snapshots are in {location} already.\n")
    );
    nas.run_ok("zfs destroy tank@one");
    let out = nas.0.join("out");
    std::fs::create_dir(&out).unwrap();
    run_ok(&["backup", "restore", "-q", &location, "tank@one:/large", path_arg(&out)]);
    assert!(std::fs::read(out.join("large")).unwrap() == large);
    let cat = Command::new(env!("CARGO_BIN_EXE_poolhouse"))
        .args(["backup", "cat", &location, "tank@one:/letter"])
        .output()
        .unwrap();
    assert!(cat.stdout == letter);
    assert_eq!(run_ok(&["backup", "ls", &location, "tank"]), "letter\n");
    let before = run_json(&["backup", "list", "--json", &location])["stored"].as_u64().unwrap();
    let planned = run_json(&["backup", "prune", "-n", "--json", &location, "--keep-last", "1"]);
    assert_eq!(planned["removed_snapshots"][0], "tank@one");
    let pruned = run_json(&["backup", "prune", "--json", &location, "--keep-last", "1"]);
    assert_eq!(pruned["removed_snapshots"][0], "tank@one");
    assert!(pruned["deleted_bytes"].as_u64().unwrap() > 3_000_000, "{pruned}");
    let after = run_json(&["backup", "list", "--json", &location])["stored"].as_u64().unwrap();
    assert!(before > 3_000_000 && after < 200_000, "{before} {after}");
    run_ok(&["backup", "check", &location]);
    let gone = run(&["backup", "ls", &location, "tank@one:/"]);
    assert_eq!(gone.status, 12, "{}", gone.stderr);
}

/// A mount of a repository; it ends with this.
struct Mount {
    child: Child,
    dir: PathBuf,
}

impl Mount {
    fn start(args: &[&str], dir: &Path) -> Self {
        std::fs::create_dir(dir).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
        command.args(["backup", "mount"]).args(args).arg(dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut mount = Self { child: command.spawn().unwrap(), dir: dir.to_owned() };
        let last = Instant::now() + LIMIT;
        while mount_source(dir).is_none() {
            let has_ended = mount.child.try_wait().unwrap().is_some();
            assert!(!has_ended && Instant::now() < last, "{}", mount.said());
            std::thread::sleep(Duration::from_millis(10));
        }
        mount
    }

    fn said(&mut self) -> String {
        let _ = self.child.kill();
        let mut said = String::new();
        let _ = self.child.stderr.take().unwrap().read_to_string(&mut said);
        said
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.dir, rustix::mount::UnmountFlags::DETACH);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn mounts_show_all_snapshots_of_a_dataset() {
    if cannot_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let nas = TestNas::new("backup-mount", 1);
    nas.create_pool("tank", 1);
    let (location, home) = (location(&nas), nas.altroot().join("tank/home"));
    run_ok(&["backup", "init", &location]);
    nas.run_ok("zfs create tank/home");
    let old = random_bytes(700_000);
    std::fs::write(home.join("file"), &old).unwrap();
    nas.run_ok("zfs snapshot -r tank@one");
    std::fs::write(home.join("file"), b"new").unwrap();
    nas.run_ok("zfs snapshot -r tank@two");
    nas.run_ok(&format!("backup run -r {location} tank"));
    let mount = Mount::start(&[&location, "tank"], &nas.0.join("mnt"));
    assert_eq!(std::fs::read(mount.dir.join("home/file")).unwrap(), b"new");
    let snapshots = mount.dir.join("home/.zfs/snapshot");
    assert!(std::fs::read(snapshots.join("one/file")).unwrap() == old);
    assert_eq!(std::fs::read(snapshots.join("two/file")).unwrap(), b"new");
    assert!(std::fs::write(mount.dir.join("home/file"), b"x").is_err());
}

#[test]
fn wrong_requests_name_the_next_step() {
    let nas = TestNas::new("backup-wrong", 0);
    let location = location(&nas);
    let none = run(&["backup", "list", &location]);
    assert_eq!(none.status, 10, "{}", none.stderr);
    std::fs::create_dir(nas.0.join("repository")).unwrap();
    let none = run(&["backup", "list", &location]);
    assert!(none.stderr.contains("poolhouse backup init"), "{}", none.stderr);
    run_ok(&["backup", "init", &location]);
    let again = run(&["backup", "init", &location]);
    assert!(again.status == 14 && again.stderr.contains("already"), "{}", again.stderr);
    let wrong = run(&["backup", "list", "/mnt/usb"]);
    assert!(wrong.status == 2 && wrong.stderr.contains("file:///"), "{}", wrong.stderr);
    let said = nas.run_failing(&format!("backup run {location} tank"), 3);
    assert!(said.contains("no such pool"), "{said}");
    let none = run(&["backup", "cat", &location, "tank@one:/x"]);
    assert_eq!(none.status, 12, "{}", none.stderr);
}

/// A snapshot out of the repository into a pool of a daemon.
fn receive(nas: &TestNas, send: &[&str], target: &str) {
    let mut sender = Command::new(env!("CARGO_BIN_EXE_poolhouse"))
        .args(["backup", "send"])
        .args(send)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stream = sender.stdout.take().unwrap();
    let received = Command::new(env!("CARGO_BIN_EXE_poolhouse"))
        .args(["zfs", "receive", target, "--state", path_arg(&nas.state_dir())])
        .stdin(stream)
        .output()
        .unwrap();
    assert!(sender.wait().unwrap().success());
    assert!(received.status.success(), "{}", String::from_utf8_lossy(&received.stderr));
}

#[test]
fn snapshots_are_received_into_another_pool() {
    let (nas, location) = import_sent("backup-send");
    nas.run_ok(&format!("backup run -r {location} tank"));
    let drive = nas.0.join("drives/new.img");
    std::fs::File::create(&drive).unwrap().set_len(512 << 20).unwrap();
    nas.run_ok(&format!("zpool create -m none new {}", path_arg(&drive)));
    let listed = run_json(&["backup", "list", "--json", &location]);
    let mut newest = std::collections::BTreeMap::new();
    for snapshot in listed["snapshots"].as_array().unwrap() {
        let name = snapshot["name"].as_str().unwrap();
        let (dataset, part) = name.split_once('@').unwrap();
        let target = format!("new/{}", dataset.replace('/', "-"));
        let base = newest.insert(dataset.to_owned(), part.to_owned());
        match base {
            Some(base) => receive(&nas, &["-w", "-i", &base, &location, name], &target),
            None => receive(&nas, &["-w", &location, name], &target),
        }
    }
    assert!(newest.len() > 3, "{listed}");
    // the guid is part of the snapshot's identity, and the streams were verified record by record
    let guids = |pool: &str| {
        let listed = nas.run_ok(&format!("zfs list -Hro guid -t snapshot {pool}"));
        let mut guids: Vec<String> = listed.lines().map(str::to_owned).collect();
        guids.sort();
        guids
    };
    assert_eq!(guids("new"), guids("tank"));
    nas.run_ok("zpool scrub -w new");
    let status = nas.run_ok("zpool status new");
    assert!(status.contains("with 0 errors"), "{status}");
}
