//! Pools that are imported to be looked at only.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use crate::command::path_arg;
use crate::test_nas::{TestNas, cannot_mount, kill_daemon, mount_options, mount_source};

/// The content of the drives.
fn drive_contents(nas: &TestNas, count: usize) -> Vec<Vec<u8>> {
    nas.drive_paths(count).iter().map(|drive| std::fs::read(drive).unwrap()).collect()
}

fn import_pool(nas: &TestNas, words: &str) {
    let (root, drives) = (nas.altroot(), nas.0.join("drives"));
    nas.run_ok(&format!(
        "zpool import -R {} -d {} {words} tank",
        path_arg(&root),
        path_arg(&drives)
    ));
}

/// A pool whose host died: its last changes are in its intent log.
fn create_crashed_pool(name: &str) -> TestNas {
    let nas = TestNas::new(name, 3);
    nas.create_pool("tank raidz", 3);
    nas.run_ok("zfs create -p tank/a/b");
    let dir = nas.altroot().join("tank/a");
    std::fs::write(dir.join("letter"), "dear grandma").unwrap();
    nas.run_ok("zfs snapshot tank/a@sent");
    nas.run_ok("zpool sync tank");
    // the first commit may start the log with a txg; later changes are only in the log
    for name in ["first", "last"] {
        let mut file = File::create(dir.join(name)).unwrap();
        file.write_all(b"promised").unwrap();
        file.sync_all().unwrap();
    }
    kill_daemon(&nas.state_dir());
    std::fs::remove_file(nas.state_dir().join("pools.json")).unwrap();
    nas
}

fn assert_readable(nas: &TestNas, dir: &Path) {
    assert_eq!(std::fs::read_to_string(dir.join("letter")).unwrap(), "dear grandma");
    let before = dir.join(".zfs/snapshot/sent/letter");
    assert_eq!(std::fs::read_to_string(before).unwrap(), "dear grandma");
    let refused = std::fs::write(dir.join("letter"), "dear grandpa").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert!(mount_options(dir).contains(&"ro".to_owned()));
    assert_eq!(nas.run_ok("zpool get -Ho value readonly tank"), "on\n");
    assert_eq!(nas.run_ok("zfs get -Ho value,source readonly tank/a"), "on\ttemporary\n");
    assert!(nas.run_ok("zpool status tank").contains("ONLINE"));
}

#[test]
fn readonly_import_changes_nothing() {
    if cannot_mount() {
        return;
    }
    let nas = create_crashed_pool("looked-at");
    let before = drive_contents(&nas, 3);
    import_pool(&nas, "-o readonly=on");
    let dir = nas.altroot().join("tank/a");
    assert_readable(&nas, &dir);
    assert_eq!(mount_source(&dir.join("b")).as_deref(), Some("tank/a/b"));
    for words in [
        "zfs set compression=zstd tank/a",
        "zfs create tank/c",
        "zfs snapshot tank/a@now",
        "zfs rollback tank/a@sent",
        "zfs destroy tank/a/b",
        "zpool set comment=mine tank",
        "zpool scrub tank",
    ] {
        let why = nas.run_failing(words, 1);
        assert!(why.contains("read-only") && !why.contains("  "), "{words}: {why}");
    }
    nas.run_ok("zpool sync tank");
    nas.run_failing("zpool clear tank", 1);
    nas.run_ok("zpool history tank");
    // a later import finds it under this name
    nas.run_ok("serve --stop");
    nas.run_ok("zpool status tank");
    assert_readable(&nas, &dir);
    nas.run_ok("zpool export tank");
    assert!(drive_contents(&nas, 3) == before, "not a byte is another");

    import_pool(&nas, "-o readonly=off");
    assert_eq!(std::fs::read_to_string(dir.join("last")).unwrap(), "promised");
    std::fs::write(dir.join("letter"), "dear grandpa").unwrap();
}

#[test]
fn exported_pool_mounts_all_read_only() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("exported-read-only", 3);
    nas.create_pool("tank raidz", 3);
    nas.run_ok("zfs create -p tank/a/b");
    let dir = nas.altroot().join("tank/a");
    std::fs::write(dir.join("b/letter"), "dear grandma").unwrap();
    nas.run_ok("zpool export tank");
    assert!(!nas.altroot().join("tank").exists(), "the outermost directory goes");
    import_pool(&nas, "-o readonly=on");
    assert_eq!(mount_source(&dir.join("b")).as_deref(), Some("tank/a/b"));
    assert_eq!(std::fs::read_to_string(dir.join("b/letter")).unwrap(), "dear grandma");
    nas.run_ok("zpool export tank");
}

/// How many files there are; all that is in them can be read.
fn count_readable(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let read = |path: &Path| {
        let found = std::fs::symlink_metadata(path).unwrap();
        if found.is_dir() {
            return count_readable(path);
        }
        // a larger file is mostly a hole
        if found.is_file() && found.len() < 64 << 20 {
            let shown = path.display();
            let bytes = std::fs::read(path).unwrap_or_else(|why| panic!("{shown}: {why}"));
            assert_eq!(bytes.len() as u64, found.len(), "{shown}");
        }
        1
    };
    entries.map(|entry| read(&entry.unwrap().path())).sum()
}

#[test]
fn busy_openzfs_pools_import_readonly() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("looked-at-all", 0);
    for name in fixtures::names() {
        let fixture = fixtures::load(&name);
        let content = || {
            let images = fixture.images();
            images.iter().map(|image| std::fs::read(image).unwrap()).collect::<Vec<_>>()
        };
        let (before, root, pool) = (content(), nas.altroot(), fixture.pool_name());
        let (root_arg, dir) = (path_arg(&root), path_arg(&fixture.dir));
        let import = format!("zpool import -fm -o readonly=on -R {root_arg} -d {dir} {pool}");
        nas.run_ok(&import);
        assert!(count_readable(&root) > 0, "{name}");
        assert_eq!(nas.run_ok("zpool get -Ho value readonly"), "on\n", "{name}");
        nas.run_ok(&format!("zpool export {pool}"));
        assert!(content() == before, "{name}: not a byte is another");
    }
}

#[test]
fn what_lacks_a_drive_can_be_looked_at() {
    if cannot_mount() {
        return;
    }
    let nas = create_crashed_pool("looked-at-less");
    std::fs::remove_file(nas.drive_paths(1).remove(0)).unwrap();
    import_pool(&nas, "-o readonly=on");
    let dir = nas.altroot().join("tank/a");
    assert_eq!(std::fs::read_to_string(dir.join("letter")).unwrap(), "dear grandma");
    assert!(nas.run_ok("zpool status tank").contains("DEGRADED"));
    // an unchanged pool is not examined, even if a drive comes back
    let gone = nas.drive_paths(1).remove(0);
    File::create(&gone).unwrap().set_len(256 << 20).unwrap();
    nas.run_failing("zpool clear tank", 1);
    nas.run_ok("zpool export tank");
    assert!(std::fs::read(gone).unwrap().iter().all(|byte| *byte == 0));
}
