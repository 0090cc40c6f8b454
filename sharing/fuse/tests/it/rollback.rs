//! A rollback of a file system that programs use: the kernel shows no stale content, and open files
//! keep working.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fuse::RollbackOutcome;
use rustix::io::Errno;

use crate::mounted_fixture::can_mount;
use crate::mounted_pool::{MountedPool, Random, apply_step, read_tree};

/// All that is seen of a tree, with numbers and times.
type TreeState = BTreeMap<PathBuf, (u64, i64, i64, i64, i64, (u32, u64, Vec<u8>))>;

fn read_tree_state(root: &Path) -> TreeState {
    let with_facts = |(path, seen)| {
        let found = fs::symlink_metadata(root.join(&path)).unwrap();
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        let [a, b, c, d] = times;
        (path, (found.ino(), a, b, c, d, seen))
    };
    read_tree(root).into_iter().map(with_facts).collect()
}

fn assert_same(now: &TreeState, was: &TreeState) {
    assert!(now.keys().eq(was.keys()), "{:?}\n{:?}", now.keys(), was.keys());
    for (path, now) in now {
        assert!(*now == was[path], "{}: {:?}", path.display(), (now.0, now.5.0, now.5.1));
    }
}

/// Whether the kernel gets attributes before other requests differs.
fn assert_stale(why: &std::io::Error) {
    let why = Errno::from_io_error(why);
    assert!(matches!(why, Some(Errno::STALE | Errno::NOENT)), "{why:?}");
}

fn create_snapshot(place: &MountedPool, name: &str) {
    place.pool.snapshots().create_with(&[format!("tank@{name}")], &[]).unwrap();
}

fn rollback(place: &MountedPool, name: &str) {
    let (_, beside) = place.mount.as_ref().unwrap();
    let work = || place.pool.snapshots().rollback("tank");
    match beside.rollback(&format!("tank@{name}"), work) {
        RollbackOutcome::Done(Ok(()), None) => {}
        other => panic!("{other:?}"),
    }
}

/// The content of the snapshot.
fn create_files(dir: &Path) {
    let at = |name: &str| dir.join(name);
    for name in ["stays", "renamed", "emptied", "emptied/below"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    for name in ["kept", "changed", "longer", "gone", "stays/inner", "emptied/below/deep"] {
        fs::write(at(name), format!("{name} as it was")).unwrap();
    }
    fs::write(at("replaced"), "the first").unwrap();
    let _ = fs::remove_file(at("link"));
    symlink("kept", at("link")).unwrap();
}

/// One of each kind of change.
fn change_files(dir: &Path) {
    let at = |name: &str| dir.join(name);
    fs::write(at("changed"), "changed as it WAS").unwrap();
    OpenOptions::new().append(true).open(at("longer")).unwrap().write_all(b", and more").unwrap();
    fs::remove_file(at("gone")).unwrap();
    fs::remove_file(at("replaced")).unwrap();
    fs::write(at("replaced"), "the other").unwrap();
    fs::rename(at("renamed"), at("otherwise")).unwrap();
    fs::remove_dir_all(at("emptied")).unwrap();
    fs::remove_file(at("link")).unwrap();
    symlink("changed", at("link")).unwrap();
    fs::set_permissions(at("stays"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(at("stays/new"), "not there before").unwrap();
}

#[test]
fn file_system_in_use_is_rolled_back() {
    if !can_mount() {
        return;
    }
    let mut place = MountedPool::create("back");
    for way in 0..2 {
        let dir = place.mountpoint();
        let at = |name: &str| dir.join(name);
        create_files(&dir);
        let _ = fs::remove_file(at("stays/more"));
        let name = format!("before{way}");
        create_snapshot(&place, &name);
        let before = read_tree_state(&dir);

        change_files(&dir);
        // the kernel caches the results of these requests
        assert_ne!(read_tree_state(&dir), before);
        assert!(!at("gone").exists() && !at("emptied").exists());

        let open = |name: &str| OpenOptions::new().read(true).write(true).open(at(name)).unwrap();
        let (changed, new, kept) = (open("changed"), open("stays/new"), open("kept"));
        let number = new.metadata().unwrap().ino();
        let mut within = Command::new("sh");
        within.args(["-c", "read line; cat inner; ls; echo more >more"]).current_dir(at("stays"));
        let mut within = within.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let listed = File::open(at("stays")).unwrap();

        rollback(&place, &name);
        // names first: a listing makes the kernel look them up again
        assert_eq!(fs::read(at("gone")).unwrap(), b"gone as it was");
        assert_eq!(fs::read(at("emptied/below/deep")).unwrap(), b"emptied/below/deep as it was");
        assert_eq!(fs::read(at("replaced")).unwrap(), b"the first");
        assert!(!at("otherwise").exists() && at("renamed").exists() && !at("stays/new").exists());
        assert_same(&read_tree_state(&dir), &before);
        let mut bytes = [0; 64];
        let count = changed.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..count], b"changed as it was");
        assert_stale(&new.read_at(&mut bytes, 0).unwrap_err());
        assert_stale(&new.write_at(b"x", 0).unwrap_err());
        new.set_len(0).unwrap_err();
        kept.write_all_at(b"KEPT", 0).unwrap();
        kept.sync_all().unwrap();
        assert_eq!(fs::read(at("kept")).unwrap(), b"KEPT as it was");
        assert_eq!(
            listed.metadata().unwrap().mode() & 0o777,
            before[Path::new("stays")].5.0 & 0o777
        );
        within.stdin.take().unwrap().write_all(b"\n").unwrap();
        let said = within.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "stays/inner as it wasinner\n");
        assert_eq!(fs::read(at("stays/more")).unwrap(), b"more\n");
        // the inode number of an open file is not reused
        let made = fs::metadata(at("stays/more")).unwrap().ino();
        assert_ne!(number, made);
        drop((changed, new, kept, listed));
        place = place.remount();
        assert_eq!(fs::read(place.mountpoint().join("kept")).unwrap(), b"KEPT as it was");
    }
    place.export_and_verify();
}

#[test]
fn rollback_shows_the_snapshot_after_random_changes() {
    if !can_mount() {
        return;
    }
    let mut place = MountedPool::create("back-any");
    for name in ["a", "b", "a/c"] {
        fs::create_dir(place.mountpoint().join(name)).unwrap();
    }
    for round in 0..8_u64 {
        let dir = place.mountpoint();
        let steps = |first: u64, count: u64| {
            for number in first..first + count {
                apply_step(&dir, &mut Random(round * 10_000 + number));
            }
        };
        steps(0, 60);
        let name = format!("s{round}");
        create_snapshot(&place, &name);
        let before = read_tree_state(&dir);
        steps(1000, 40);
        read_tree_state(&dir);
        steps(2000, 20);
        let files = read_tree_state(&dir)
            .into_iter()
            .filter(|(_, facts)| facts.5.0 & 0o170_000 == 0o100_000);
        let open: Vec<(PathBuf, File)> =
            files.map(|(path, _)| (path.clone(), File::open(dir.join(path)).unwrap())).collect();
        rollback(&place, &name);
        assert_same(&read_tree_state(&dir), &before);
        for (path, file) in &open {
            let mut bytes = vec![0; 1 << 20];
            let same = before
                .values()
                .find(|facts| file.metadata().is_ok_and(|found| found.ino() == facts.0));
            match (file.read_at(&mut bytes, 0), same) {
                (Ok(count), Some(facts)) => {
                    let was = &facts.5.2[..facts.5.2.len().min(bytes.len())];
                    assert!(bytes[..count] == *was, "{path:?}: {count} of {}", was.len());
                }
                (Err(why), None) => assert_stale(&why),
                other => panic!("{path:?}: {other:?}"),
            }
        }
        steps(3000, 30);
        if round % 3 == 2 {
            drop(open);
            place = place.remount();
        }
    }
    place.export_and_verify();
}

#[test]
fn working_directory_never_becomes_another_file() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("back-reborn");
    fs::write(place.mountpoint().join("first"), "of the snapshot").unwrap();
    let number = fs::metadata(place.mountpoint().join("first")).unwrap().ino();
    create_snapshot(&place, "s");
    fs::remove_file(place.mountpoint().join("first")).unwrap();
    // inode numbers are only reused after an import
    let place = place.remount();
    let path = |other: u32| place.mountpoint().join(format!("other{other}"));
    let same = (0..100).find(|other| {
        fs::write(path(*other), "made later").unwrap();
        fs::metadata(path(*other)).unwrap().ino() == number
    });
    let mut reborn = File::open(path(same.expect("a file of that number"))).unwrap();
    let (_, beside) = place.mount.as_ref().unwrap();
    let taken = beside.rollback("tank@s", || place.pool.snapshots().rollback("tank"));
    assert!(matches!(taken, RollbackOutcome::NeedsUnmount(_)), "{taken:?}");
    let mut text = String::new();
    reborn.read_to_string(&mut text).unwrap();
    assert_eq!(text, "made later", "nothing was done");
    drop(reborn);
    place.export_and_verify();
}

#[test]
fn removed_working_directory_returns() {
    if !can_mount() {
        return;
    }
    let mut place = MountedPool::create("back-removed");
    for way in 0..2 {
        let dir = place.mountpoint();
        let (folder, file) = (dir.join("folder"), dir.join("file"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(&file, "of the snapshot").unwrap();
        let name = format!("s{way}");
        create_snapshot(&place, &name);
        let before = read_tree_state(&dir);
        let (in_folder, mut in_file) = (File::open(&folder).unwrap(), File::open(&file).unwrap());
        for made in fs::read_dir(&folder).unwrap() {
            fs::remove_file(made.unwrap().path()).unwrap();
        }
        fs::remove_dir(&folder).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(in_file.metadata().unwrap().nlink(), 0);
        rollback(&place, &name);
        fs::write(folder.join(format!("made{way}")), "there").unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), way + 1);
        assert_eq!(in_file.metadata().unwrap().nlink(), 1);
        let mut text = String::new();
        in_file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "of the snapshot");
        drop((in_folder, in_file));
        assert_eq!(fs::read(&file).unwrap(), b"of the snapshot");
        assert!(
            read_tree_state(&dir)
                .keys()
                .filter(|path| !path.ends_with(format!("made{way}")))
                .eq(before.keys())
        );
        place = place.remount();
    }
    place.export_and_verify();
}

#[test]
fn kept_unlinked_inode_returns() {
    if !can_mount() {
        return;
    }
    let mut place = MountedPool::create("back-kept");
    for way in 0..2 {
        let dir = place.mountpoint();
        let [file, pipe, other] = ["file", "pipe", "other"].map(|name| dir.join(name));
        fs::write(&file, "of the snapshot").unwrap();
        if !pipe.exists() {
            let mode = rustix::fs::Mode::from_raw_mode(0o644);
            rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0)
                .unwrap();
        }
        create_snapshot(&place, &format!("s{way}"));
        let look = |path| {
            let mode = rustix::fs::Mode::empty();
            File::from(rustix::fs::open(path, rustix::fs::OFlags::PATH, mode).unwrap())
        };
        let looked_at = [look(&file), look(&pipe)];
        fs::write(&other, "replaces it").unwrap();
        fs::rename(&other, &file).unwrap();
        fs::remove_file(&pipe).unwrap();
        let links = || looked_at.each_ref().map(|file| file.metadata().unwrap().nlink());
        assert_eq!(links(), [0, 0]);
        rollback(&place, &format!("s{way}"));
        assert_eq!(links(), [1, 1]);
        assert_eq!(fs::read(&file).unwrap(), b"of the snapshot");
        // forgetting an inode removes no file of the present content
        drop(looked_at);
        place = place.remount();
        assert_eq!(fs::read(place.mountpoint().join("file")).unwrap(), b"of the snapshot");
        assert!(place.mountpoint().join("pipe").exists());
    }
    place.export_and_verify();
}
