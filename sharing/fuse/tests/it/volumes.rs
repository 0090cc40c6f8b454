//! Volumes as files of a mounted file system. It takes /dev/fuse.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;

use crate::mounted_fixture::can_mount;
use crate::mounted_pool::MountedPool;

/// Makes the volume tank/disk.
fn create_volume(place: &MountedPool) {
    let new = engine::pool::NewDataset { name: "tank/disk".to_owned(), properties: Vec::new() };
    place.pool.volumes().create(&new, 8 << 20, 16 << 10, true).unwrap();
}

/// Destroys a volume that is not open: the kernel reports the close a little later.
fn destroy_datasets(place: &MountedPool, names: &[&str]) {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let last = Instant::now() + Duration::from_secs(10);
    while place.pool.volumes().is_any_held(&names).unwrap() {
        assert!(Instant::now() < last, "{names:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    place.pool.datasets().destroy_all(&names, false).unwrap();
}

#[test]
fn volumes_are_files_that_can_be_written() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("volumes");
    assert!(!place.mountpoint().join(".zfs/volume").exists(), "there is none");
    create_volume(&place);
    let path = place.mountpoint().join(".zfs/volume/disk");
    let listed = fs::read_dir(place.mountpoint().join(".zfs/volume")).unwrap();
    let names: Vec<_> = listed.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["disk"]);
    assert_eq!(fs::metadata(&path).unwrap().len(), 8 << 20);

    // overwritten like an image: its size stays
    let mut image: Vec<u8> = (0..8_u32 << 18).flat_map(u32::to_le_bytes).collect();
    fs::write(&path, &image[..5 << 20]).unwrap();
    image[5 << 20..].fill(0);
    let volume = File::options().read(true).write(true).open(&path).unwrap();
    volume.write_all_at(b"within", 100_001).unwrap();
    image[100_001..100_007].copy_from_slice(b"within");
    rustix::fs::fallocate(
        &volume,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        70_000,
        20_000,
    )
    .unwrap();
    image[70_000..90_000].fill(0);
    volume.sync_all().unwrap();
    let beyond = volume.write_all_at(b"beyond", 8 << 20).unwrap_err();
    assert_eq!(beyond.kind(), std::io::ErrorKind::StorageFull);
    drop(volume);
    let read = fs::read(&path).unwrap();
    let differs = read.iter().zip(&image).position(|(read, wanted)| read != wanted);
    assert_eq!((read.len(), differs), (image.len(), None));

    let place = place.remount();
    let path = place.mountpoint().join(".zfs/volume/disk");
    let read = fs::read(&path).unwrap();
    let differs = read.iter().zip(&image).position(|(read, wanted)| read != wanted);
    assert_eq!((read.len(), differs), (image.len(), None), "after the import");
    destroy_datasets(&place, &["tank/disk"]);
    assert!(File::open(&path).is_err());
    place.export_and_verify();
}

#[test]
fn recreated_volume_is_read_again() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("volume-anew");
    create_volume(&place);
    let path = place.mountpoint().join(".zfs/volume/disk");
    let write = |bytes: &[u8]| {
        let volume = File::options().read(true).write(true).open(&path).unwrap();
        volume.write_all_at(bytes, 0).unwrap();
        volume.sync_all().unwrap();
    };
    let begin = || fs::read(&path).unwrap()[..5].to_vec();
    write(b"first");
    place.pool.snapshots().create(&["tank/disk@one".to_owned()]).unwrap();
    write(b"other");
    assert_eq!(begin(), b"other");
    place.pool.snapshots().rollback("tank/disk").unwrap();
    assert_eq!(begin(), b"first");
    destroy_datasets(&place, &["tank/disk@one", "tank/disk"]);
    create_volume(&place);
    assert_eq!(begin(), [0; 5]);
    place.export_and_verify();
}

#[test]
fn open_volume_follows_its_rename() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("volume-open");
    create_volume(&place);
    let path = place.mountpoint().join(".zfs/volume/disk");
    let at = |volume: &File, megabyte: u64| {
        let mut bytes = [0; 5];
        volume.read_exact_at(&mut bytes, megabyte << 20).map(|()| bytes)
    };
    let open = File::options().read(true).write(true).open(&path).unwrap();
    // the kernel caches no pages that were only written
    let fill = |bytes: &[u8]| {
        let volume = OpenOptions::new().write(true).open(&path).unwrap();
        (0..8).for_each(|megabyte| volume.write_all_at(bytes, megabyte << 20).unwrap());
    };
    fill(b"first");
    place.pool.snapshots().create(&["tank/disk@one".to_owned()]).unwrap();
    fill(b"other");
    // a volume stays the same after a rollback
    place.pool.snapshots().rollback("tank/disk").unwrap();
    assert_eq!(&at(&open, 1).unwrap(), b"first");
    open.write_all_at(b"again", 2 << 20).unwrap();
    assert_eq!(&at(&File::open(&path).unwrap(), 2).unwrap(), b"again");
    place.pool.datasets().rename("tank/disk", "tank/former", false).unwrap();
    create_volume(&place);
    assert!(at(&open, 3).is_err() && open.write_all_at(b"wrong", 4 << 20).is_err());
    assert_eq!(at(&File::open(&path).unwrap(), 4).unwrap(), [0; 5]);
    drop(open);
    place.export_and_verify();
}

#[test]
fn open_volume_is_not_destroyed() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("volume-busy");
    create_volume(&place);
    let path = place.mountpoint().join(".zfs/volume/disk");
    let open = File::options().read(true).write(true).open(&path).unwrap();
    place.pool.snapshots().create(&["tank/disk@one".to_owned()]).unwrap();
    let both = ["tank/disk@one", "tank/disk"].map(str::to_owned);
    let why = place.pool.datasets().destroy_all(&both, false).unwrap_err().to_string();
    assert!(why.contains("busy"), "{why}");
    // it may be rolled back, and stays open
    place.pool.snapshots().rollback("tank/disk").unwrap();
    open.write_all_at(b"again", 0).unwrap();
    let why = place.pool.datasets().destroy_all(&both, false).unwrap_err().to_string();
    assert!(why.contains("busy"), "{why}");
    drop(open);
    destroy_datasets(&place, &["tank/disk@one", "tank/disk"]);
    assert!(File::open(&path).is_err());
    place.export_and_verify();
}
