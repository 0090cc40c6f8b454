//! Names that change while somebody looks: what is told of them is true when it is told. It takes
//! /dev/fuse.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::mounted::can_mount;
use crate::place::Place;

#[test]
fn a_listing_that_goes_on_tells_of_no_name_that_is_gone() {
    if !can_mount() {
        return;
    }
    let place = Place::make("listing");
    let dir = place.dir().join("many");
    fs::create_dir(&dir).unwrap();
    for number in 0..1000 {
        fs::write(dir.join(format!("file-of-many-{number}")), b"precious").unwrap();
    }
    let names = || fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
    let order: Vec<_> = names().collect();
    let mut goes_on = names();
    goes_on.next().unwrap();
    // beyond what was told at once, and within what was read
    let (old, new) = (dir.join(&order[450]), dir.join("new"));
    fs::rename(&old, &new).unwrap();
    // who looks at one is told of the others along with their names
    fs::metadata(dir.join(&order[0])).unwrap();
    assert!(goes_on.by_ref().count() >= 998);
    fs::write(&old, b"").unwrap();
    assert_eq!(fs::read(&new).unwrap(), b"precious");
    drop(goes_on);
    place.end();
}

/// What has a name is looked at, but not opened.
fn looked_at(path: &std::path::Path) -> File {
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap().into()
}

#[test]
fn the_kernel_is_told_what_is_stale_and_looks_again() {
    if !can_mount() {
        return;
    }
    let place = Place::make("stale");
    let [path, absent] = ["file", "absent"].map(|name| place.dir().join(name));
    fs::write(&path, b"going").unwrap();
    let file = looked_at(&path);
    fs::remove_file(&path).unwrap();
    let why = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_err();
    assert_eq!(Errno::from_io_error(&why), Some(Errno::STALE));
    for path in [path, absent] {
        assert_eq!(File::open(&path).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert_eq!(fs::remove_file(&path).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
    drop(file);
    place.end();
}
