//! sync(2) and syncfs(2) of a mounted pool: earlier writes survive a power cut, and no caller waits
//! for a pool that is suspended. The tests need root, Linux 6.18 and a loop device.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::Device;
use engine::pool::{NewPool, NewVdev, Pool, VdevLayout, VdevRole};
use fuse::{MountHandle, MountOptions};
use posix::Time;
use sim::{DiskArray, Fault};
use vfs::PoolFileSystem;

use crate::client::{self, Client};
use crate::mapping::Mapping;
use crate::mounted_fixture::can_mount;
use crate::mounted_pool::environment;

const POOL: &str = "synced";
/// No txg is synced without a request.
const LONG_TXG_TIMEOUT: Duration = Duration::from_hours(1);
const CLIENT_TIMEOUT: Duration = Duration::from_mins(1);

/// A mounted pool on a drive whose power can fail, with its sync thread.
struct SyncMount {
    scratch_dir: PathBuf,
    array: DiskArray,
    pool: Pool,
    mount: MountHandle,
    stop: Arc<AtomicBool>,
    txg_thread: Option<std::thread::JoinHandle<()>>,
}

impl SyncMount {
    fn new(name: &str) -> Self {
        let array = DiskArray::new(&[128 << 20]);
        let drives = vec![PathBuf::from("/disk")];
        let vdevs = vec![NewVdev { layout: VdevLayout::Single, drives, role: VdevRole::Data }];
        let (name, pool, properties) = (name.to_owned(), POOL.to_owned(), Vec::new());
        let new = NewPool { name: pool, vdevs, ashift: None, properties, force: false };
        let pool = engine::pool::create_on_devices(&new, &array.devices(), &environment()).unwrap();
        let now = || Time { seconds: 1_700_000_000, nanoseconds: 7 };
        let live = PoolFileSystem::open(&pool, POOL, now).unwrap();
        let scratch_dir = fixtures::scratch_dir(&format!("syncing-{name}"));
        let dir = scratch_dir.join("mnt");
        let (mount, _) = fuse::mount_filesystem(
            &live,
            vfs::DoorId::new_unique(),
            &dir,
            &MountOptions::default(),
        )
        .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (syncing, stopped) = (pool.clone(), Arc::clone(&stop));
        let writer = std::thread::spawn(move || {
            drop(syncing.background().run_txg_sync(LONG_TXG_TIMEOUT, &stopped));
        });
        while !pool.background().has_sync_thread() {
            std::thread::yield_now();
        }
        pool.sync().unwrap();
        Self { scratch_dir, array, pool, mount, stop, txg_thread: Some(writer) }
    }

    fn mountpoint(&self) -> PathBuf {
        self.scratch_dir.join("mnt")
    }

    /// Whether syncfs(2) succeeds, in a program of its own.
    fn syncfs(&self) -> bool {
        let mut command = Command::new("sync");
        command.arg("-f").arg(self.mountpoint());
        let status =
            Client::start(&mut command, &self.scratch_dir.join("out")).wait(CLIENT_TIMEOUT);
        status.expect("sync(1) did not end").success()
    }
}

impl Drop for SyncMount {
    fn drop(&mut self) {
        self.array.disks()[0].clear_faults();
        let _ = self.pool.clear_errors(None);
        self.mount.unmount();
        self.stop.store(true, Ordering::Release);
        // wakes the writer
        let _ = self.pool.sync();
        let _ = self.pool.close();
        if let Some(writer) = self.txg_thread.take() {
            let _ = writer.join();
        }
    }
}

/// Whether the kernel forwards sync(2) to the mount there. It must if losetup(8) has a loop device.
fn forwards_sync(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = |line: &&str| line.split(' ').nth(4) == dir.to_str();
    let forwards = table.lines().rfind(at).is_some_and(|line| line.contains(" - fuseblk."));
    if !forwards {
        println!("left out: sync(2) takes root, Linux 6.18 and a loop device");
        assert!(!(fuse::forwards_sync() && has_loop_device(dir)), "it is not mounted as fuseblk");
    }
    forwards
}

/// Whether losetup(8) can set up a loop device.
fn has_loop_device(beside: &Path) -> bool {
    let file = beside.with_extension("loop");
    File::create(&file).unwrap().set_len(4096).unwrap();
    let found = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
    let Some(found) = found.ok().filter(|found| found.status.success()) else { return false };
    let device = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    let _ = Command::new("losetup").args(["--detach", &device]).status();
    true
}

#[test]
#[ignore = "a program that another test starts"]
fn client_writes_and_syncs() {
    let Some(words) = client::arguments() else { return };
    let dir = Path::new(&words[0]);
    fs::write(dir.join("written"), vec![7; 300_000]).unwrap();
    let open = OpenOptions::new().create_new(true).read(true).write(true).open(dir.join("mapped"));
    let open = open.unwrap();
    open.set_len(100_000).unwrap();
    let mut mapping = Mapping::new(&open, 100_000).unwrap();
    mapping.write(50_000, b"mapped bytes");
    rustix::fs::syncfs(File::open(dir).unwrap().as_fd()).unwrap();
    // the mapping stays until the power fails
    std::mem::forget(mapping);
    fs::write(&words[1], b"").unwrap();
    std::thread::sleep(CLIENT_TIMEOUT);
}

/// The content of a file after a power cut that leaves only flushed data.
fn read_after_power_cut(storm: &DiskArray, names: &[&str]) -> Vec<Vec<u8>> {
    let journal = storm.journal();
    let found = journal.cut_power(journal.len(), 0).into_iter();
    let devices: Vec<Arc<dyn Device>> = found.map(|one| Arc::new(one) as Arc<dyn Device>).collect();
    let held = engine::pool::import_devices(&devices, POOL, &environment()).unwrap();
    let live = held.datasets().filesystem(POOL).unwrap();
    let read = |name: &&str| {
        let Some(file) = live.reader().find(name.as_bytes()).unwrap() else { return Vec::new() };
        let mut bytes = vec![0; usize::try_from(file.stat().size).unwrap()];
        file.content().read(0, &mut bytes).unwrap();
        bytes
    };
    names.iter().map(read).collect()
}

#[test]
fn syncfs_survives_power_cut() {
    if !can_mount() {
        return;
    }
    let place = SyncMount::new("lasting");
    if !forwards_sync(&place.mountpoint()) {
        return;
    }
    let (dir, done) = (place.mountpoint(), place.scratch_dir.join("done"));
    let words = [dir.to_str().unwrap(), done.to_str().unwrap()];
    let mut wanted = vec![0; 100_000];
    wanted[50_000..50_012].copy_from_slice(b"mapped bytes");
    let output = place.scratch_dir.join("out");
    let client = Client::start_test("syncing::client_writes_and_syncs", &words, &output);
    assert!(
        client.wait_until(CLIENT_TIMEOUT, || done.exists()),
        "the client did not sync: {}",
        client.output_text()
    );
    let found = read_after_power_cut(&place.array, &["written", "mapped"]);
    drop(client);
    assert!(found[0] == vec![7; 300_000], "{} bytes were written", found[0].len());
    assert!(found[1] == wanted, "{} bytes are of the mapped file", found[1].len());
}

#[test]
fn syncfs_fails_while_pool_is_suspended() {
    if !can_mount() {
        return;
    }
    let place = SyncMount::new("suspended");
    if !forwards_sync(&place.mountpoint()) {
        return;
    }
    fs::write(place.mountpoint().join("file"), vec![7; 300_000]).unwrap();
    assert!(place.syncfs());
    fs::write(place.mountpoint().join("file"), vec![8; 300_000]).unwrap();
    place.array.disks()[0].add_fault(Fault::Write(0..128 << 20));
    // the pool is suspended while the caller waits, and then before it calls
    for _ in 0..2 {
        assert!(!place.syncfs());
        assert!(place.pool.is_suspended());
    }
    place.array.disks()[0].clear_faults();
    place.pool.clear_errors(None).unwrap();
    assert!(place.syncfs());
    assert!(read_after_power_cut(&place.array, &["file"])[0] == vec![8; 300_000]);
}

#[test]
#[ignore = "a program that another test starts"]
fn client_maps_and_waits() {
    let Some(words) = client::arguments() else { return };
    let path = Path::new(&words[0]);
    let open = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut mapping = Mapping::new(&open, 100_000).unwrap();
    mapping.write(50_000, b"mapped bytes");
    fs::write(&words[1], b"").unwrap();
    std::thread::sleep(CLIENT_TIMEOUT);
}

#[test]
fn syncfs_ends_with_mapped_pages_of_suspended_pool() {
    if !can_mount() {
        return;
    }
    let place = SyncMount::new("mapped");
    if !forwards_sync(&place.mountpoint()) {
        return;
    }
    let (file, done) = (place.mountpoint().join("file"), place.scratch_dir.join("done"));
    fs::write(&file, vec![7; 100_000]).unwrap();
    place.pool.sync().unwrap();
    place.array.disks()[0].add_fault(Fault::Write(0..128 << 20));
    fs::write(place.mountpoint().join("other"), b"to be written").unwrap();
    assert!(place.pool.sync().is_err() && place.pool.is_suspended());
    let words = [file.to_str().unwrap(), done.to_str().unwrap()];
    let output = place.scratch_dir.join("client");
    let client = Client::start_test("syncing::client_maps_and_waits", &words, &output);
    assert!(
        client.wait_until(CLIENT_TIMEOUT, || done.exists()),
        "nothing is mapped: {}",
        client.output_text()
    );
    assert!(!place.syncfs());
}
