//! Flags and projects of files, given and taken through the kernel with e2fsprogs' programs. It takes
//! /dev/fuse, and root for what only root may.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{Mode, OFlags};

use crate::mounted_fixture::can_mount;
use crate::mounted_pool::MountedPool;

const EPERM: i32 = 1;

/// Whether chattr(1) does it.
fn chattr(words: &[&str], path: &Path) -> bool {
    let done = Command::new("chattr").args(words).arg(path).output().expect("e2fsprogs");
    done.status.success()
}

/// The output of lsattr(1): the project, and the letters of the flags.
fn lsattr(path: &Path) -> (u32, String) {
    let done = Command::new("lsattr").arg("-pd").arg(path).output().expect("e2fsprogs");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let mut words = text.split_whitespace();
    let project = words.next().and_then(|word| word.parse().ok()).expect("a project");
    let letters = words.next().expect("flags").chars().filter(|letter| *letter != '-');
    (project, letters.collect())
}

fn is_eperm<T>(done: std::io::Result<T>) -> bool {
    done.is_err_and(|why| why.raw_os_error() == Some(EPERM))
}

#[test]
fn flags_and_projects_are_set_kept_and_heeded() {
    if !can_mount() {
        return;
    }
    if !rustix::process::geteuid().is_root() || Command::new("lsattr").arg("-V").output().is_err() {
        println!("flags are not tried: it takes root, and chattr");
        return;
    }
    let mut place = MountedPool::create("flags");
    let dir = place.mountpoint();
    let path = |name: &str| dir.join(name);
    for name in ["still", "log", "plain"] {
        fs::write(path(name), b"as it was").unwrap();
    }
    fs::create_dir(path("projects")).unwrap();
    assert_eq!(lsattr(&path("plain")), (0, String::new()));
    let before = fs::metadata(path("still")).unwrap().ctime();
    assert!(chattr(&["+i"], &path("still")));
    assert!(fs::metadata(path("still")).unwrap().ctime() > before, "the kernel sees the new time");
    assert!(chattr(&["+a"], &path("log")));
    assert!(chattr(&["+d", "-p", "77"], &path("plain")));
    assert!(chattr(&["+P", "-p", "4294967294"], &path("projects")));
    // what OpenZFS does not have either
    assert!(!chattr(&["+c"], &path("plain")));
    for round in 0..2 {
        assert_eq!(lsattr(&path("still")), (0, "i".to_owned()));
        assert_eq!(lsattr(&path("log")), (0, "a".to_owned()));
        assert_eq!(lsattr(&path("plain")), (77, "d".to_owned()));
        assert_eq!(lsattr(&path("projects")), (4_294_967_294, "P".to_owned()));
        let child = path("projects").join(format!("child{round}"));
        fs::write(&child, b"of the same project").unwrap();
        assert_eq!(lsattr(&child).0, 4_294_967_294);

        assert!(is_eperm(OpenOptions::new().write(true).open(path("still"))));
        assert!(is_eperm(fs::set_permissions(path("still"), fs::Permissions::from_mode(0o600))));
        assert!(is_eperm(fs::rename(path("still"), path("moved"))));
        assert!(is_eperm(fs::hard_link(path("still"), path("linked"))));
        assert!(is_eperm(fs::remove_file(path("still"))));
        assert_eq!(fs::read(path("still")).unwrap(), b"as it was");

        assert!(is_eperm(OpenOptions::new().write(true).open(path("log"))));
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC;
        let cut = rustix::fs::open(path("log"), flags, Mode::empty());
        assert!(is_eperm(cut.map_err(std::io::Error::from)));
        let mut log = OpenOptions::new().append(true).open(path("log")).unwrap();
        log.write_all(b", and more").unwrap();
        assert!(is_eperm(log.set_len(3)));
        assert!(is_eperm(fs::remove_file(path("log"))));
        drop(log);
        place = place.remount();
    }
    assert_eq!(fs::read(path("log")).unwrap(), b"as it was, and more, and more");

    assert!(chattr(&["-i"], &path("still")));
    assert!(chattr(&["-a"], &path("log")));
    assert!(chattr(&["=", "-p", "0"], &path("plain")));
    assert_eq!(lsattr(&path("plain")), (0, String::new()));
    OpenOptions::new().write(true).open(path("still")).unwrap().write_all(b"AS").unwrap();
    for name in ["still", "log", "plain"] {
        fs::remove_file(path(name)).unwrap();
    }
    place.export_and_verify();
}

/// A user sets harmless flags of own files.
#[test]
fn only_the_owner_sets_flags() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = MountedPool::create("flags-of-others");
    let (mine, theirs) = (place.mountpoint().join("mine"), place.mountpoint().join("theirs"));
    for path in [&mine, &theirs] {
        fs::write(path, b"").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    std::os::unix::fs::chown(&mine, Some(4242), Some(4242)).unwrap();
    fs::set_permissions(place.mountpoint(), fs::Permissions::from_mode(0o755)).unwrap();
    let try_as = |words: &[&str], path: &Path| {
        let done = Command::new("chattr").args(words).arg(path).uid(4242).gid(4242).output();
        done.is_ok_and(|done| done.status.success())
    };
    if Command::new("chattr").arg("-V").output().is_err() {
        println!("flags are not tried: chattr is not installed");
        return place.export_and_verify();
    }
    assert!(try_as(&["+d", "-p", "5"], &mine));
    assert!(!try_as(&["+i"], &mine));
    assert!(!try_as(&["+a"], &mine));
    assert!(!try_as(&["+d"], &theirs));
    assert!(!try_as(&["-p", "5"], &theirs));
    assert_eq!((lsattr(&mine), lsattr(&theirs)), ((5, "d".to_owned()), (0, String::new())));
    place.export_and_verify();
}
