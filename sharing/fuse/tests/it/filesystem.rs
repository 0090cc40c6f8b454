//! A pool on sparse files is mounted and changed through the kernel together with a folder of the
//! system's own file system. Both are compared: while mounted, and after another import. The tests
//! need /dev/fuse.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;

use posix::access::OpenMode;
use posix::{Credentials, Ino, NewInode, Time};
use rustix::fs::{FallocateFlags, Mode, OFlags, XattrFlags};
use vfs::{AllocateMode, Context, DoorId, FileSystem as _, PoolFileSystem};

use crate::mounted_fixture::can_mount;
use crate::mounted_pool::{MountedPool, Random, apply_step, read_tree};

fn assert_same(place: &MountedPool) {
    let (ours, model) = (read_tree(&place.mountpoint()), read_tree(&place.model_dir()));
    let names: Vec<_> = ours.keys().collect();
    assert_eq!(names, model.keys().collect::<Vec<_>>());
    for (path, ours) in &ours {
        let model = &model[path];
        assert_eq!(
            (ours.0, ours.1, ours.2.len()),
            (model.0, model.1, model.2.len()),
            "{}",
            path.display()
        );
        let first = ours.2.iter().zip(&model.2).position(|(a, b)| a != b);
        assert_eq!(first, None, "{}: the first byte that differs", path.display());
    }
}

#[test]
fn mounted_pool_behaves_like_the_system_file_system() {
    if !can_mount() {
        return;
    }
    let mut place = MountedPool::create("model");
    for root in [place.mountpoint(), place.model_dir()] {
        fs::create_dir(root.join("a")).unwrap();
        fs::create_dir(root.join("b")).unwrap();
        fs::create_dir(root.join("a/c")).unwrap();
    }
    for round in 0..3_u64 {
        for number in 0..250 {
            let seed = round * 1000 + number;
            let ours = apply_step(&place.mountpoint(), &mut Random(seed));
            let model = apply_step(&place.model_dir(), &mut Random(seed));
            assert_eq!(ours, model, "step {seed}");
        }
        assert_same(&place);
        place = place.remount();
        assert_same(&place);
    }
    place.export_and_verify();
}

/// More than there are threads for.
const LAST_THREAD: u8 = 47;

#[test]
fn concurrent_programs_with_and_without_io_uring() {
    if !can_mount() {
        return;
    }
    let mut place = MountedPool::create("many");
    for way in 0..2_u8 {
        let dir = place.mountpoint().join(format!("way{way}"));
        fs::create_dir(&dir).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..=LAST_THREAD {
                let dir = &dir;
                scope.spawn(move || {
                    let path = dir.join(format!("file{thread}"));
                    for round in 1..6_usize {
                        let bytes = vec![thread ^ way; round * 70_001];
                        fs::write(&path, &bytes).unwrap();
                        File::open(&path).unwrap().sync_all().unwrap();
                        assert!(fs::read(&path).unwrap() == bytes, "{thread}");
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(&dir).unwrap().count(), usize::from(LAST_THREAD) + 1);
        place = place.remount();
        let read = fs::read(dir.join(format!("file{LAST_THREAD}"))).unwrap();
        assert!(read == vec![LAST_THREAD ^ way; 5 * 70_001]);
    }
    place.export_and_verify();
}

#[test]
fn nameless_files_are_freed_or_linked() {
    if !can_mount() {
        return;
    }
    let mut place = MountedPool::create("unnamed");
    for way in 0..2 {
        let dir = place.mountpoint();
        let unnamed = |bytes: &[u8]| {
            let flags = OFlags::TMPFILE | OFlags::RDWR;
            let file = rustix::fs::open(&dir, flags, Mode::from_raw_mode(0o640));
            // kernels before 6.0 have none
            let mut file = File::from(file.ok()?);
            file.write_all(bytes).unwrap();
            Some(file)
        };
        let (Some(goes), Some(stays)) = (unnamed(b"goes"), unnamed(b"stays")) else { break };
        assert_eq!(stays.metadata().unwrap().nlink(), 0);
        let name = format!("named{way}");
        let from = format!("/proc/self/fd/{}", stays.as_raw_fd());
        let root = rustix::fs::open(&dir, OFlags::DIRECTORY, Mode::empty()).unwrap();
        let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, from, &root, &*name, follow).unwrap();
        drop((goes, stays, root));
        assert_eq!(fs::read(dir.join(&name)).unwrap(), b"stays");
        assert_eq!(fs::metadata(dir.join(&name)).unwrap().mode() & 0o7777, 0o640);
        place = place.remount();
        assert_eq!(fs::read_dir(place.mountpoint()).unwrap().count(), way + 1);
    }
    place.export_and_verify();
}

#[test]
fn birth_time_is_reported() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("birth");
    let path = place.mountpoint().join("file");
    fs::write(&path, b"first").unwrap();
    let made = fs::metadata(&path).unwrap().created();
    // kernels before 6.6 do not request it
    if let Ok(made) = made {
        fs::write(&path, b"second").unwrap();
        let facts = fs::metadata(&path).unwrap();
        assert_eq!(facts.created().unwrap(), made);
        assert!(facts.modified().unwrap() > made);
    }
    place.export_and_verify();
}

#[test]
fn direct_writes_are_seen_by_all_readers() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("direct");
    let path = place.mountpoint().join("file");
    let mut model: Vec<u8> = (0..700_001_u32).map(|at| at.to_be_bytes()[3]).collect();
    fs::write(&path, &model).unwrap();
    // the kernel caches the pages of a reader
    let both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut back = vec![0; model.len()];
    both.read_exact_at(&mut back, 0).unwrap();
    assert!(back == model);
    let only = OpenOptions::new().write(true).open(&path).unwrap();
    for (at, length, fill) in [(0_usize, 1, 1_u8), (4095, 4098, 2), (131_000, 300_000, 3)] {
        only.write_all_at(&vec![fill; length], at as u64).unwrap();
        model[at..at + length].fill(fill);
        both.read_exact_at(&mut back, 0).unwrap();
        assert!(back == model, "at {at}");
    }
    // and the other way round
    both.write_all_at(&[9; 5000], 6000).unwrap();
    model[6000..11_000].fill(9);
    let mut end = OpenOptions::new().append(true).open(&path).unwrap();
    end.write_all(b"the end").unwrap();
    model.extend_from_slice(b"the end");
    assert_eq!(both.metadata().unwrap().len(), model.len() as u64);
    assert!(fs::read(&path).unwrap() == model);
    drop((only, both, end));
    place.export_and_verify();
}

#[test]
fn open_files_outlive_their_names() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("open");
    let path = place.mountpoint().join("going");
    let mut file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
    file.write_all(&vec![7; 400_000]).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(!path.exists());
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.sync_all().unwrap();
    let mut back = vec![0; 400_000];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back.iter().all(|byte| *byte == 7));
    drop(file);

    let path = place.mountpoint().join("holes");
    // opened for writing only: a handle that could be mapped hides the holes, also for a moment
    // after its close, which the kernel reports in the background
    File::create(&path).unwrap().write_all_at(b"here", 3 << 20).unwrap();
    let file = File::open(&path).unwrap();
    let found = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
    assert!(found <= 3 << 20 && found > 2 << 20, "{found}");
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap(), 0);
    let copy = File::create(place.mountpoint().join("copy")).unwrap();
    let count = rustix::fs::copy_file_range(&file, None, &copy, None, 10 << 20);
    assert!(count.is_ok());
    drop((file, copy));
    place.export_and_verify();
}

#[test]
fn attributes_and_snapshots_are_there() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("snapshots");
    let path = place.mountpoint().join("file");
    fs::write(&path, b"before").unwrap();
    rustix::fs::setxattr(&path, "user.colour", b"green", XattrFlags::CREATE).unwrap();
    let again = rustix::fs::setxattr(&path, "user.colour", b"red", XattrFlags::CREATE);
    assert_eq!(again.unwrap_err(), rustix::io::Errno::EXIST);
    let mut value = [0; 16];
    let count = rustix::fs::getxattr(&path, "user.colour", &mut value[..]).unwrap();
    assert_eq!(&value[..count], b"green");
    let old = place.mountpoint().join(".zfs/snapshot/one/file");
    assert!(!old.exists(), "there is none yet");
    place.pool.snapshots().create(&["tank@one".to_owned()]).unwrap();
    fs::write(&path, b"afterwards").unwrap();
    rustix::fs::removexattr(&path, "user.colour").unwrap();
    assert_eq!(fs::read(&old).unwrap(), b"before");
    assert_eq!(fs::read(&path).unwrap(), b"afterwards");
    let refused = fs::write(&old, b"x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    assert_eq!(fs::read_dir(place.mountpoint().join(".zfs/snapshot")).unwrap().count(), 1);
    assert!(
        fs::read_dir(place.mountpoint()).unwrap().all(|entry| entry.unwrap().file_name() != ".zfs")
    );
    place.export_and_verify();
}

#[test]
fn trusted_attributes_are_listed_to_root_only() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = MountedPool::create("trusted");
    let path = place.mountpoint().join("file");
    fs::write(&path, b"").unwrap();
    for name in ["user.colour", "trusted.colour"] {
        rustix::fs::setxattr(&path, name, b"green", XattrFlags::CREATE).unwrap();
    }
    let file = File::open(&path).unwrap();
    let listed = |uid| {
        let list = || {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
            let mut names = [0; 128];
            let count = rustix::fs::flistxattr(&file, &mut names[..]).unwrap();
            String::from_utf8(names[..count].to_vec()).unwrap()
        };
        // a thread of its own becomes that user
        std::thread::scope(|scope| scope.spawn(list).join().unwrap())
    };
    assert!(listed(0).contains("trusted.colour"));
    assert!(listed(65534).contains("user.colour"));
    assert!(!listed(65534).contains("trusted.colour"));
    drop(file);
    place.export_and_verify();
}

#[test]
fn kernel_caches_missing_names() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("absent");
    let [file, link, dir] = ["file", "link", "dir"].map(|name| place.mountpoint().join(name));
    assert!(!file.exists() && !link.exists() && !dir.exists());
    // created by the other door without notice: another lookup would have found it
    let live = PoolFileSystem::open(&place.pool, "tank", Time::default).unwrap();
    let context = Context::new(&Credentials::ROOT, DoorId::new(9));
    let new = NewInode { mode: 0o644, ..NewInode::default() };
    live.create(&context, live.root_ino(), b"file", &new).unwrap();
    assert!(!file.exists(), "the kernel looked it up again");
    live.unlink(&context, live.root_ino(), b"file").unwrap();

    fs::write(&file, b"made").unwrap();
    fs::hard_link(&file, &link).unwrap();
    fs::create_dir(&dir).unwrap();
    assert!(file.exists() && link.exists() && dir.exists());
    fs::remove_file(&link).unwrap();
    fs::remove_dir(&dir).unwrap();
    fs::rename(&file, &dir).unwrap();
    assert!(!file.exists() && !link.exists() && dir.is_file());
    drop(live);
    place.export_and_verify();
}

#[test]
fn removed_working_directory_is_still_visible() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("removed");
    let [one, other] = ["one", "other"].map(|name| place.mountpoint().join(name));
    for over in [false, true] {
        fs::create_dir(&one).unwrap();
        let open = File::open(&one).unwrap();
        let number = open.metadata().unwrap().ino();
        if over {
            fs::create_dir(&other).unwrap();
            fs::rename(&other, &one).unwrap();
        } else {
            fs::remove_dir(&one).unwrap();
        }
        let seen = open.metadata().unwrap();
        assert_eq!((seen.ino(), seen.nlink(), seen.is_dir()), (number, 0, true));
        let path = format!("/proc/self/fd/{}", open.as_raw_fd());
        assert_eq!(fs::read_dir(path).unwrap().count(), 0);
    }
    place.export_and_verify();
}

#[test]
fn write_clears_set_id_bits_before_exec() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = MountedPool::create("set-id");
    let path = place.mountpoint().join("program");
    fs::write(&path, b"one").unwrap();
    // as the kernel keeps it
    let mode = || {
        let (flags, what) = (rustix::fs::AtFlags::empty(), rustix::fs::StatxFlags::MODE);
        rustix::fs::statx(rustix::fs::CWD, &path, flags, what).unwrap().stx_mode & 0o7777
    };
    for reads in [false, true] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
        assert_eq!(mode(), 0o6755);
        let open = OpenOptions::new().read(reads).append(true).open(&path).unwrap();
        let mut nobody = std::process::Command::new("echo");
        let written = nobody.arg("two").uid(65534).gid(65534).stdout(open).status();
        assert!(written.unwrap().success());
        assert_eq!(mode(), 0o755, "opened to be read: {reads}");
    }
    // the kernel leaves it to us where blocks are arranged (fallocate)
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6711)).unwrap();
    let live = PoolFileSystem::open(&place.pool, "tank", Time::default).unwrap();
    let nobody = Credentials::new(65534, 65534);
    let context = Context::new(&nobody, DoorId::new(9)).checked_by_door();
    let ino = Ino::new(fs::metadata(&path).unwrap().ino());
    let file = live.open(&context, ino, OpenMode::READ_WRITE).unwrap();
    live.punch_hole(&context, &file, 0..1, AllocateMode::KeepSize).unwrap();
    drop(file);
    assert_eq!(mode(), 0o711);
    drop(live);
    place.export_and_verify();
}

#[test]
fn write_drops_file_capabilities() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = MountedPool::create("capabilities");
    let (path, name) = (place.mountpoint().join("program"), "security.capability");
    // cap_net_raw, effective
    let mut given = 0x0200_0001_u32.to_le_bytes().to_vec();
    given.extend([0x2000_u32, 0, 0, 0].map(u32::to_le_bytes).concat());
    let mut value = [0; 32];
    for reads in [false, true] {
        fs::write(&path, b"one").unwrap();
        let open = OpenOptions::new().read(reads).write(true).open(&path).unwrap();
        // an earlier writer is no exception
        for round in 0..2 {
            open.write_all_at(b"two", 0).unwrap();
            rustix::fs::setxattr(&path, name, &given, XattrFlags::empty()).unwrap();
            assert_eq!(rustix::fs::getxattr(&path, name, &mut value[..]), Ok(given.len()));
            open.write_all_at(b"six", 0).unwrap();
            let kept = rustix::fs::getxattr(&path, name, &mut value[..]);
            assert_eq!(kept, Err(rustix::io::Errno::NODATA), "opened to be read: {reads}, {round}");
        }
    }
    place.export_and_verify();
}

#[test]
fn acl_by_non_member_clears_set_group_id() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mut place = MountedPool::create("set-group");
    let entries = [(1, 7, u32::MAX), (2, 7, 1000), (4, 5, u32::MAX), (16, 7, 0), (32, 5, 0)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend([tag, permissions].map(u16::to_le_bytes).concat());
        list.extend(u32::to_le_bytes(id));
    }
    for way in 0..2 {
        let path = place.mountpoint().join(format!("program{way}"));
        fs::write(&path, b"one").unwrap();
        let file = File::open(&path).unwrap();
        // user, group: whether it may stay
        for (group, stays) in [(65534, true), (5, false)] {
            std::os::unix::fs::chown(&path, Some(65534), Some(group)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o2755)).unwrap();
            let set = || {
                let nobody =
                    (rustix::process::Gid::from_raw(65534), rustix::process::Uid::from_raw(65534));
                rustix::thread::set_thread_groups(&[]).unwrap();
                rustix::thread::set_thread_gid(nobody.0).unwrap();
                rustix::thread::set_thread_uid(nobody.1).unwrap();
                let (name, any) = ("system.posix_acl_access", XattrFlags::empty());
                rustix::fs::fsetxattr(&file, name, &list, any).unwrap();
            };
            // a thread of its own becomes that user
            std::thread::scope(|scope| scope.spawn(set).join().unwrap());
            let wanted = if stays { 0o2775 } else { 0o775 };
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, wanted, "group {group}");
        }
        drop(file);
        place = place.remount();
    }
    place.export_and_verify();
}

#[test]
fn fallocate_fails_without_space() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("room");
    let file = File::create(place.mountpoint().join("file")).unwrap();
    let free = rustix::fs::statvfs(place.mountpoint()).unwrap();
    let free = free.f_bavail * free.f_frsize;
    for flags in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE] {
        let why = rustix::fs::fallocate(&file, flags, 0, free).unwrap_err();
        assert_eq!(why, rustix::io::Errno::NOSPC);
        assert_eq!(file.metadata().unwrap().len(), 0);
        rustix::fs::fallocate(&file, flags, 0, free / 2).unwrap();
        file.set_len(0).unwrap();
    }
    drop(file);
    place.export_and_verify();
}

#[test]
fn statfs_reports_the_name_length() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("longest");
    let told = || rustix::fs::statvfs(place.mountpoint()).unwrap().f_namemax;
    let name = |bytes| place.mountpoint().join("n".repeat(bytes));
    assert_eq!(told(), 255);
    assert!(fs::write(name(256), b"").is_err());
    place.pool.properties().set("tank", "longname", "on").unwrap();
    assert_eq!(told(), 1023);
    fs::write(name(1023), b"").unwrap();
    place.export_and_verify();
}
