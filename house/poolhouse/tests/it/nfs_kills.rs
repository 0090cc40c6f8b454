//! A daemon that is killed again and again while NFS clients write: what it has acknowledged as stable is there, and the
//! writers go on.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use nfs::wire::status::Status;
use nfs::wire::v4::StateId;

use crate::client::RpcClient;
use crate::shares::free_port;
use crate::test_nas::{TestNas, kill_daemon};
use crate::v3_client::{FILE_SYNC, UNSTABLE, V3Client};
use crate::v4_client::{BOTH, V4Client};

/// Places of a file that a writer writes in turn, and the bytes of each.
const SLOTS: u64 = 32;
const SLOT_BYTES: usize = 3000;

/// The content of a place after a write.
fn content(writer: usize, number: u64) -> Vec<u8> {
    format!("writer {writer} write {number} ").into_bytes().repeat(SLOT_BYTES)[..SLOT_BYTES]
        .to_vec()
}

fn offset(number: u64) -> u64 {
    number % SLOTS * u64::try_from(SLOT_BYTES).unwrap()
}

/// Repeats a request while the server asks for that.
fn persist<T>(mut request: impl FnMut() -> Result<T, Status>) -> Result<T, Status> {
    loop {
        match request() {
            Err(Status::DELAY | Status::GRACE) => std::thread::sleep(Duration::from_millis(50)),
            done => return done,
        }
    }
}

/// Checks what is in the places of a file: all acknowledged writes up to `acknowledged`, and perhaps later ones.
fn check_slots(writer: usize, acknowledged: u64, read: impl FnMut(u64) -> Vec<u8>) {
    let mut read = read;
    for number in (acknowledged + 1).max(SLOTS) - SLOTS..=acknowledged {
        let (found, later) = (read(offset(number)), number + SLOTS);
        let is_right = found == content(writer, number) || found == content(writer, later);
        assert!(
            number == 0 || is_right,
            "writer {writer}: write {number} of {acknowledged} is lost"
        );
    }
}

/// The writers' progress, and the daemons that were started.
struct Load {
    address: SocketAddr,
    steps: Vec<AtomicU64>,
    daemons: AtomicU64,
    is_over: AtomicBool,
}

impl Load {
    fn step(&self, writer: usize) {
        self.steps[writer].fetch_add(1, SeqCst);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }
}

/// Writes over NFSv3, stable and with COMMIT, and makes and removes names.
fn write_v3(load: &Load, writer: usize) {
    let mut client = V3Client::mount(load.address, "/tank").unwrap();
    client.rpc.is_hard = true;
    let root = client.root.clone();
    let file = client.create(&root, &format!("file-{writer}"), 0o644).unwrap();
    let name = |number: u64| format!("name-{writer}-{number}");
    let mut number = 0;
    while !load.is_over() {
        let first = number + 1;
        let stable = content(writer, first);
        let write = persist(|| client.write(&file, offset(first), FILE_SYNC, &stable));
        assert_eq!(write.unwrap().stable, FILE_SYNC);
        // as kernels do: what was written unstable is written again if the verifier changes
        loop {
            let mut verifiers = Vec::new();
            for number in first + 1..first + 4 {
                let bytes = content(writer, number);
                let write = persist(|| client.write(&file, offset(number), UNSTABLE, &bytes));
                verifiers.push(write.unwrap().verifier);
            }
            let committed = persist(|| client.commit(&file)).unwrap();
            if verifiers.iter().all(|verifier| *verifier == committed) {
                break;
            }
        }
        number += 4;
        // the first answer may be lost with the daemon
        match persist(|| client.create(&root, &name(number), 0o644)) {
            Ok(_) | Err(Status::EXIST) => {}
            Err(status) => panic!("{status:?}"),
        }
        if number > 8 {
            match persist(|| client.remove(12, &root, &name(number - 8))) {
                Ok(()) | Err(Status::NOENT) => {}
                Err(status) => panic!("{status:?}"),
            }
            assert_eq!(persist(|| client.lookup(&root, &name(number - 8))), Err(Status::NOENT));
        }
        persist(|| client.lookup(&root, &name(number))).unwrap();
        if number > 4 {
            persist(|| client.lookup(&root, &name(number - 4))).unwrap();
        }
        let length = u32::try_from(SLOT_BYTES).unwrap();
        check_slots(writer, number, |at| persist(|| client.read(&file, at, length)).unwrap().0);
        load.step(writer);
    }
}

/// A client of NFSv4 with a lock in its file, and what it needs to get both back.
struct Locker {
    client: V4Client,
    name: String,
    file: Vec<u8>,
    open: StateId,
    /// The number of the daemon that it is connected to.
    daemon: u64,
}

impl Locker {
    fn start(load: &Load, writer: usize) -> Self {
        let name = format!("locker {writer}");
        let mut client = V4Client::connect(load.address, &name);
        let root = client.handle(&["tank"]).unwrap();
        let path = format!("locked-{writer}");
        let opened = persist(|| client.open(&root, &path, (BOTH, 0), true));
        let (open, file) = opened.unwrap();
        client.lock((&file, &open), "owner", (0, 100), false).unwrap();
        Self { client, name, file, open, daemon: load.daemons.load(SeqCst) }
    }

    /// Connects to the next daemon, and reclaims the open file and the lock. False: there is none, as the test is over.
    fn reclaim(&mut self, load: &Load) -> bool {
        // the one that is killed may listen a moment longer than it answers
        while load.daemons.load(SeqCst) == self.daemon {
            if load.is_over() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.daemon = load.daemons.load(SeqCst);
        drop(RpcClient::connect_patiently(load.address));
        let mut client = V4Client::connect_reclaiming(load.address, &self.name, [1; 8]);
        let file = &self.file;
        self.open = persist(|| client.reclaim_open(file, BOTH)).unwrap();
        let open = self.open;
        persist(|| client.lock((file, &open), "owner", (0, 100), true)).unwrap();
        persist(|| client.reclaim_complete()).unwrap();
        self.client = client;
        true
    }
}

/// Writes over NFSv4.2 to a file that is open and locked.
fn write_v4(load: &Load, writer: usize) {
    let mut locker = Locker::start(load, writer);
    let mut number = 1;
    while !load.is_over() {
        let bytes = content(writer, number);
        let Locker { client, file, open, .. } = &mut locker;
        match client.try_write(file, open, offset(number), &bytes) {
            Ok(Ok(count)) => assert_eq!(usize::try_from(count).unwrap(), SLOT_BYTES),
            Ok(Err(Status::DELAY | Status::GRACE)) => continue,
            Ok(Err(status)) => panic!("{status:?}"),
            Err(_) => {
                if !locker.reclaim(load) {
                    return;
                }
                let Locker { client, file, open, .. } = &mut locker;
                let length = u32::try_from(SLOT_BYTES).unwrap();
                check_slots(writer, number - 1, |at| {
                    client.read(file, open, at, length).unwrap().1
                });
                continue;
            }
        }
        number += 1;
        load.step(writer);
    }
}

/// Kills the daemon this many times, at moments that a seed chooses.
fn kill_under_load(test: &str, kills: u64, seed: u64) {
    let nas = TestNas::new(test, 1);
    nas.create_pool("-m none tank", 1);
    let port = free_port();
    nas.run_ok("share add nfs tank -o path=/tank -o squash=none");
    nas.run_ok(&format!("config set nfs.listen {port}"));
    nas.run_ok("share status");
    let load = Load {
        address: SocketAddr::from(([127, 0, 0, 1], port)),
        steps: (0..4).map(|_| AtomicU64::new(0)).collect(),
        daemons: AtomicU64::new(1),
        is_over: AtomicBool::new(false),
    };
    let steps = || load.steps.iter().map(|steps| steps.load(SeqCst)).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        /// The writers end, also if an assertion fails here.
        struct EndOnDrop<'a>(&'a AtomicBool);
        impl Drop for EndOnDrop<'_> {
            fn drop(&mut self) {
                self.0.store(true, SeqCst);
            }
        }
        let _end = EndOnDrop(&load.is_over);
        let load = &load;
        let work: [fn(&Load, usize); 4] = [write_v3, write_v3, write_v4, write_v4];
        let start =
            |(writer, work): (usize, fn(&Load, usize))| scope.spawn(move || work(load, writer));
        let writers: Vec<_> = work.into_iter().enumerate().map(start).collect();
        let go_on = |kills: u64| {
            let before = steps();
            nas.wait_until(|| {
                let ended = writers.iter().position(std::thread::ScopedJoinHandle::is_finished);
                assert_eq!(ended, None, "a writer has failed after {kills} kills of seed {seed}");
                steps().iter().zip(&before).all(|(now, before)| now > before)
            });
        };
        let mut random = seed;
        for kill in 0..kills {
            go_on(kill);
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405);
            std::thread::sleep(Duration::from_millis((random >> 33) % 200));
            kill_daemon(&nas.state_dir());
            nas.run_ok("share status");
            load.daemons.fetch_add(1, SeqCst);
        }
        go_on(kills);
    });
    let checked = nas.run_ok("zpool status tank");
    assert!(checked.contains("No known data errors"), "{checked}");
    // the clients of NFSv4 have gone without closing their files
    nas.run_ok("zpool export -f tank");
}

#[test]
fn nfs_writers_survive_killed_daemons() {
    kill_under_load("nfs-kills", 20, 1);
}

#[test]
#[ignore = "some minutes"]
fn nfs_writers_survive_many_killed_daemons() {
    kill_under_load("nfs-many-kills", 200, 2);
}
