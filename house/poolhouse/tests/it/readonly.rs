//! Pools that are imported to be looked at only.

use std::cell::RefCell;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use crate::nas::{Nas, cannot_mount, kill, options, source};
use crate::poolhouse::arg;

/// What is on the drives.
fn content(nas: &Nas, count: usize) -> Vec<Vec<u8>> {
    nas.drives(count).iter().map(|drive| std::fs::read(drive).unwrap()).collect()
}

fn import(nas: &Nas, words: &str) {
    let (root, drives) = (nas.root(), nas.0.join("drives"));
    nas.good(&format!("zpool import -R {} -d {} {words} tank", arg(&root), arg(&drives)));
}

/// A pool whose host died: the last of it is in its intent log.
fn killed(name: &str) -> Nas {
    let nas = Nas::new(name, 3);
    nas.create("tank raidz", 3);
    nas.good("zfs create -p tank/a/b");
    let dir = nas.root().join("tank/a");
    std::fs::write(dir.join("letter"), "dear grandma").unwrap();
    nas.good("zfs snapshot tank/a@sent");
    nas.good("zpool sync tank");
    // the first may have its log begun, with a group; what comes then is only in the log
    for name in ["first", "last"] {
        let mut file = File::create(dir.join(name)).unwrap();
        file.write_all(b"promised").unwrap();
        file.sync_all().unwrap();
    }
    kill(&nas.state());
    std::fs::remove_file(nas.state().join("pools.json")).unwrap();
    nas
}

fn assert_looked_at(nas: &Nas, dir: &Path) {
    assert_eq!(std::fs::read_to_string(dir.join("letter")).unwrap(), "dear grandma");
    let before = dir.join(".zfs/snapshot/sent/letter");
    assert_eq!(std::fs::read_to_string(before).unwrap(), "dear grandma");
    let refused = std::fs::write(dir.join("letter"), "dear grandpa").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert!(options(dir).contains(&"ro".to_owned()));
    assert_eq!(nas.good("zpool get -Ho value readonly tank"), "on\n");
    assert_eq!(nas.good("zfs get -Ho value,source readonly tank/a"), "on\ttemporary\n");
    assert!(nas.good("zpool status tank").contains("ONLINE"));
}

#[test]
fn what_is_imported_to_be_looked_at_is_not_changed() {
    if cannot_mount() {
        return;
    }
    let nas = killed("looked-at");
    let before = content(&nas, 3);
    import(&nas, "-o readonly=on");
    let dir = nas.root().join("tank/a");
    assert_looked_at(&nas, &dir);
    assert_eq!(source(&dir.join("b")).as_deref(), Some("tank/a/b"));
    for words in [
        "zfs set compression=zstd tank/a",
        "zfs create tank/c",
        "zfs snapshot tank/a@now",
        "zfs rollback tank/a@sent",
        "zfs destroy tank/a/b",
        "zpool set comment=mine tank",
        "zpool scrub tank",
        "zpool destroy tank",
    ] {
        let why = nas.refused(words, 1);
        assert!(why.contains("read-only") && !why.contains("  "), "{words}: {why}");
    }
    nas.good("zpool sync tank");
    nas.good("zpool clear tank");
    nas.good("zpool history tank");
    // as which it comes back when somebody asks for it
    nas.good("serve --stop");
    nas.good("zpool status tank");
    assert_looked_at(&nas, &dir);
    nas.good("zpool export tank");
    assert!(content(&nas, 3) == before, "not a byte is another");

    import(&nas, "-o readonly=off");
    assert_eq!(std::fs::read_to_string(dir.join("last")).unwrap(), "promised");
    std::fs::write(dir.join("letter"), "dear grandpa").unwrap();
}

/// How many files there are; all that is in them can be read.
fn read_all(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let read = |path: &Path| {
        let found = std::fs::symlink_metadata(path).unwrap();
        if found.is_dir() {
            return read_all(path);
        }
        // what is larger is mostly a hole
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
fn pools_of_openzfs_can_be_looked_at_whatever_they_are_in_the_midst_of() {
    if cannot_mount() {
        return;
    }
    let nas = Nas::new("looked-at-all", 0);
    for name in fixtures::names() {
        let fixture = fixtures::load(&name);
        let content = || {
            let images = fixture.images();
            images.iter().map(|image| std::fs::read(image).unwrap()).collect::<Vec<_>>()
        };
        let (before, root, pool) = (content(), nas.root(), fixture.pool());
        let (root_arg, dir) = (arg(&root), arg(&fixture.dir));
        let import = format!("zpool import -fm -o readonly=on -R {root_arg} -d {dir} {pool}");
        nas.good(&import);
        assert!(read_all(&root) > 0, "{name}");
        assert_eq!(nas.good("zpool get -Ho value readonly"), "on\n", "{name}");
        nas.good(&format!("zpool export {pool}"));
        assert!(content() == before, "{name}: not a byte is another");
    }
}

#[test]
fn what_cannot_be_changed_says_how_it_can_be_looked_at() {
    let nas = Nas::new("looked-at-only", 0);
    let fixture = fixtures::load("checkpoint-raidz");
    let (dir, pool) = (arg(&fixture.dir), fixture.pool());
    let listed = nas.good(&format!("zpool import -d {dir}"));
    assert!(listed.contains("checkpoint") && listed.contains("-o readonly=on"), "{listed}");
    let import = format!("zpool import -fN -d {dir} {pool}");
    // another test may look at the same pool just now
    let refused = RefCell::new(nas.run(&import));
    nas.until(|| {
        let is_busy = refused.borrow().err.contains("in use by another program");
        if is_busy {
            refused.replace(nas.run(&import));
        }
        !is_busy
    });
    let refused = refused.into_inner();
    assert_ne!(refused.status, 0);
    assert!(refused.err.contains("-o readonly=on"), "{}", refused.err);
    nas.good(&format!("zpool import -fN -o readonly=on -d {dir} {pool}"));
}

#[test]
fn what_lacks_a_drive_can_be_looked_at() {
    if cannot_mount() {
        return;
    }
    let nas = killed("looked-at-less");
    std::fs::remove_file(nas.drives(1).remove(0)).unwrap();
    import(&nas, "-o readonly=on");
    let dir = nas.root().join("tank/a");
    assert_eq!(std::fs::read_to_string(dir.join("letter")).unwrap(), "dear grandma");
    assert!(nas.good("zpool status tank").contains("DEGRADED"));
    // what has not changed is not looked at, even where a drive comes back
    let gone = nas.drives(1).remove(0);
    File::create(&gone).unwrap().set_len(256 << 20).unwrap();
    nas.good("zpool clear tank");
    nas.good("zpool export tank");
    assert!(std::fs::read(gone).unwrap().iter().all(|byte| *byte == 0));
}
