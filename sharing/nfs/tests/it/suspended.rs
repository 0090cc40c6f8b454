//! A suspended pool: clients are asked to try again, and their other requests are answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nfs::wire::status::Status;
use nfs::wire::v3::SetAttributes;
use nfs::wire::xdr::{Reader, Writer};
use sim::Fault;

use crate::served_pool::{ServedPool, wait_until};
use crate::v3_client::{FILE_SYNC, UNSTABLE, V3Client};

const WRITE: (u32, u32, u32) = (100_003, 3, 7);
const GETATTR: (u32, u32, u32) = (100_003, 3, 1);

/// Runs work while a thread syncs the pool's txgs, as in a daemon.
fn with_sync_thread(served: &ServedPool, work: impl FnOnce()) {
    struct StopOnDrop<'a>(&'a AtomicBool, &'a ServedPool);
    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
            // the sync of a suspended pool would never end
            let _ = self.1.pool.close();
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| served.pool.background().run_txg_sync(Duration::from_millis(50), &stop));
        let _ends = StopOnDrop(&stop, served);
        wait_until("the start of the sync thread", || served.pool.background().has_sync_thread());
        work();
    });
}

/// The arguments of a WRITE of one byte, or of a GETATTR.
fn arguments(file: &[u8], is_write: bool) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.opaque(file);
    if is_write {
        writer.u64(0);
        for number in [1, FILE_SYNC] {
            writer.u32(number);
        }
        writer.opaque(b"x");
    }
    writer.into_bytes()
}

/// A client with a file that it wrote to, and whose unstable write suspended the pool: all drives are gone.
fn suspend_below_client(served: &ServedPool) -> (V3Client, Vec<u8>) {
    let mut client = V3Client::mount(served.address(), "/tank").unwrap();
    let root = client.root.clone();
    let file = client.create(&root, "file", 0o644).unwrap();
    client.write(&file, 0, FILE_SYNC, b"before").unwrap();
    served.disks.disks().iter().for_each(|disk| disk.add_fault(Fault::Removed));
    client.write(&file, 0, UNSTABLE, b"cached").unwrap();
    wait_until("the suspension", || served.pool.status().state == "SUSPENDED");
    (client, file)
}

#[test]
fn changes_of_suspended_pool_are_delayed() {
    let served = ServedPool::start();
    with_sync_thread(&served, || {
        let (mut client, file) = suspend_below_client(&served);
        let root = client.root.clone();
        let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        let change = |client: &mut V3Client| {
            let made = client.make_dir(&root, "dir", 0o755).map(drop);
            let created = client.create(&root, "new", 0o644).map(drop);
            let linked = client.link(&file, &root, "linked");
            let changed = client.set_attributes(&file, &set);
            let renamed = client.rename((&root, "file"), (&root, "renamed"));
            [made, created, linked, changed, renamed, client.remove(12, &root, "renamed")]
        };
        let mut refused = change(&mut client);
        // it was not renamed
        assert_eq!(refused[5], Err(Status::NOENT));
        refused[5] = Err(Status::DELAY);
        assert_eq!(refused, [Err(Status::DELAY); 6]);
        assert_eq!(client.remove(12, &root, "file"), Err(Status::DELAY));
        served.disks.disks().iter().for_each(|disk| disk.clear_faults());
        served.pool.clear_errors(None).unwrap();
        assert_eq!(change(&mut client), [Ok(()); 6]);
        let mut names = client.list(&root, (true, 8192));
        names.sort_unstable();
        assert_eq!(names, ["child", "dir", "linked", "new"]);
    });
}

#[test]
fn writes_to_suspended_pool_hold_up_no_others() {
    /// More than a connection has threads.
    const WRITES: u32 = 24;
    let served = ServedPool::start();
    with_sync_thread(&served, || {
        let (mut client, file) = suspend_below_client(&served);
        let delayed = client.write(&file, 0, FILE_SYNC, b"x").map(drop);
        assert_eq!(delayed, Err(Status::DELAY));
        assert_eq!(client.commit(&file).map(drop), Err(Status::DELAY));
        let mut answered = Vec::new();
        for number in 0..=WRITES {
            client.rpc.xid += 1;
            let (call, is_write) = if number < WRITES { (WRITE, true) } else { (GETATTR, false) };
            let message = client.rpc.message(call, &arguments(&file, is_write));
            client.rpc.send(&message);
        }
        let first = client.rpc.xid - WRITES;
        for _ in 0..=WRITES {
            let record = client.rpc.receive();
            let mut reader = Reader::new(&record);
            let header: Vec<u32> = (0..7).map(|_| reader.u32().unwrap()).collect();
            answered.push((header[0] - first, Status::from_number(header[6])));
        }
        answered.sort_unstable_by_key(|(number, _)| *number);
        let wanted = |number| if number < WRITES { Status::DELAY } else { Status::OK };
        let wanted: Vec<_> = (0..=WRITES).map(|number| (number, wanted(number))).collect();
        assert_eq!(answered, wanted);
        served.disks.disks().iter().for_each(|disk| disk.clear_faults());
        served.pool.clear_errors(None).unwrap();
        client.write(&file, 0, FILE_SYNC, b"after").unwrap();
    });
}
