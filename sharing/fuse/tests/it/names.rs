//! Names that change while a program lists them: no stale name is reported. The tests need
//! /dev/fuse.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuse::MountOptions;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::mounted_fixture::can_mount;
use crate::mounted_pool::MountedPool;

#[test]
fn continued_listing_omits_removed_names() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("listing");
    let dir = place.mountpoint().join("many");
    fs::create_dir(&dir).unwrap();
    for number in 0..1000 {
        fs::write(dir.join(format!("file-of-many-{number}")), b"precious").unwrap();
    }
    let names = || fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
    let order: Vec<_> = names().collect();
    let mut goes_on = names();
    goes_on.next().unwrap();
    // behind the first reply, and within the names that were read
    let (old, new) = (dir.join(&order[450]), dir.join("new"));
    fs::rename(&old, &new).unwrap();
    // a lookup of one name brings the attributes of the others
    fs::metadata(dir.join(&order[0])).unwrap();
    assert!(goes_on.by_ref().count() >= 998);
    fs::write(&old, b"").unwrap();
    assert_eq!(fs::read(&new).unwrap(), b"precious");
    drop(goes_on);
    place.export_and_verify();
}

/// Looks at a file by its name without opening it.
fn open_path(path: &Path) -> File {
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap().into()
}

#[test]
fn stale_inode_makes_the_kernel_look_up_again() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("stale");
    let [path, absent] = ["file", "absent"].map(|name| place.mountpoint().join(name));
    fs::write(&path, b"going").unwrap();
    // the kernel reports the close some time later
    let place = place.remount();
    let file = open_path(&path);
    fs::remove_file(&path).unwrap();
    let why = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_err();
    assert_eq!(Errno::from_io_error(&why), Some(Errno::STALE));
    for path in [path, absent] {
        assert_eq!(File::open(&path).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert_eq!(fs::remove_file(&path).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
    drop(file);
    place.export_and_verify();
}

/// File types other than plain files and directories. Devices need root.
#[test]
fn mount_over_a_name_survives_invalidation() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mut place = MountedPool::create("covered");
    let (dir, flags) = (place.mountpoint(), rustix::mount::MountFlags::empty());
    if rustix::mount::mount("none", &dir, "tmpfs", flags, None).is_err() {
        println!("skipped: nothing can be mounted here");
        return place.export_and_verify();
    }
    fs::write(dir.join("theirs"), b"what they have").unwrap();
    let mounted = &mut place.mount.as_mut().unwrap().0;
    assert!(!mounted.try_unmount());
    assert!(!mounted.set_options(&MountOptions { read_only: true, ..MountOptions::default() }));
    assert_eq!(fs::read(dir.join("theirs")).unwrap(), b"what they have");
    rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::empty()).unwrap();
    fs::write(dir.join("ours"), b"it is there").unwrap();
    place.export_and_verify();
}

fn create_special_files(dir: &Path) -> Vec<std::path::PathBuf> {
    let names = ["pipe", "socket", "link", "device", "file"].map(|name| dir.join(name));
    let [pipe, socket, link, device, file] = &names;
    let node = |path: &Path, kind, number| {
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, Mode::from_raw_mode(0o644), number)
    };
    node(pipe, FileType::Fifo, 0).unwrap();
    node(socket, FileType::Socket, 0).unwrap();
    symlink("where it points", link).unwrap();
    // the path to a device may be unreadable for users here
    let has_device = node(device, FileType::CharacterDevice, rustix::fs::makedev(1, 3)).is_ok();
    fs::write(file, b"precious").unwrap();
    names.into_iter().filter(|name| has_device || !name.ends_with("device")).collect()
}

#[test]
fn nameless_file_has_attributes_until_closed() {
    if !can_mount() {
        return;
    }
    let mut place = MountedPool::create("nameless");
    for _ in 0..2 {
        for is_replaced in [false, true] {
            let all = create_special_files(&place.mountpoint());
            let pipe = File::options().read(true).write(true).open(&all[0]).unwrap();
            let open: Vec<_> = all.iter().map(|path| open_path(path)).collect();
            let before: Vec<_> = open.iter().map(|file| file.metadata().unwrap()).collect();
            for path in &all {
                if is_replaced {
                    fs::write(place.mountpoint().join("other"), b"other").unwrap();
                    fs::rename(place.mountpoint().join("other"), path).unwrap();
                }
                fs::remove_file(path).unwrap();
            }
            for (file, before) in open.iter().zip(&before) {
                let now = file.metadata().unwrap();
                assert_eq!((now.ino(), now.nlink()), (before.ino(), 0), "{before:?}");
                assert_eq!((now.mode(), now.len()), (before.mode(), before.len()));
                if now.is_symlink() {
                    let target = rustix::fs::readlinkat(file, "", Vec::new()).unwrap();
                    assert_eq!(target.as_bytes(), b"where it points");
                }
                if is_replaced && now.is_file() {
                    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                    assert_eq!(fs::read(path).unwrap(), b"precious");
                }
            }
            rustix::fs::fchmod(&pipe, Mode::from_raw_mode(0o600)).unwrap();
            let now = pipe.metadata().unwrap();
            assert!(now.file_type().is_fifo() && now.mode() & 0o7777 == 0o600 && now.nlink() == 0);
        }
        place = place.remount();
    }
    place.export_and_verify();
}

#[test]
fn replaced_file_is_freed_after_the_last_close() {
    if !can_mount() {
        return;
    }
    let mut place = MountedPool::create("freed");
    for _ in 0..2 {
        let [large, other] = ["large", "other"].map(|name| place.mountpoint().join(name));
        let free = || rustix::fs::statvfs(place.mountpoint()).unwrap().f_bavail;
        let mut noise = 1_u64;
        let bytes = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            noise.to_be_bytes()[0]
        });
        fs::write(&large, bytes.take(16 << 20).collect::<Vec<_>>()).unwrap();
        fs::write(&other, b"").unwrap();
        place.pool.sync().unwrap();
        let before = free();
        let open = open_path(&large);
        fs::rename(&other, &large).unwrap();
        place.pool.sync().unwrap();
        assert!(free() < before + (8 << 10), "it is kept");
        drop(open);
        let is_freed = (0..400).any(|_| {
            std::thread::sleep(Duration::from_millis(25));
            place.pool.sync().unwrap();
            free() > before + (16 << 10)
        });
        assert!(is_freed, "{before} {}", free());
        place = place.remount();
    }
    place.export_and_verify();
}

#[test]
fn name_exists_during_replacement() {
    if !can_mount() {
        return;
    }
    let mut place = MountedPool::create("atomic");
    for _ in 0..2 {
        let [file, new] = ["file", "new"].map(|name| place.mountpoint().join(name));
        fs::write(&file, b"0").unwrap();
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let look = || {
                while !ends.load(Ordering::Relaxed) {
                    let content = fs::read_to_string(&file).map_err(|why| why.to_string());
                    let content = content.and_then(|content| {
                        content.parse::<u32>().map_err(|why| format!("{why}: {content:?}"))
                    });
                    let facts = fs::metadata(&file).map_err(|why| why.to_string());
                    if content.is_err() || facts.is_err() {
                        return Err((content, facts.map(drop)));
                    }
                }
                Ok(())
            };
            let who_look = [scope.spawn(look), scope.spawn(look)];
            for number in 0..3000 {
                fs::write(&new, number.to_string()).unwrap();
                fs::rename(&new, &file).unwrap();
            }
            ends.store(true, Ordering::Relaxed);
            for each in who_look {
                assert_eq!(each.join().unwrap(), Ok(()));
            }
        });
        place = place.remount();
    }
    place.export_and_verify();
}
