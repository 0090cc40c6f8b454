//! Locks of programs on a mount, beside locks of another door.
//!
//! It takes /dev/fuse and flock(1).

use std::fs::OpenOptions;
use std::process::Command;
use std::time::{Duration, Instant};

use posix::{Credentials, Ino, NewInode};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use vfs::{
    ByteLock, ClientId, Context, DoorId, FileSystem as _, LockKind, LockOwner,
    SharedFileSystem as _,
};

use crate::client::{Client, arguments, run_test};
use crate::mounted_fixture::can_mount;
use crate::mounted_pool::MountedPool;

const LIMIT: Duration = Duration::from_secs(20);
const DOOR: DoorId = DoorId::new(7);

/// A lock of the in-process door.
fn byte_lock(kind: LockKind) -> ByteLock {
    let client = ClientId { door: DOOR, client: 1 };
    ByteLock { owner: LockOwner { client, owner: 1 }, range: 0..10, kind }
}

/// A mounted file, and the in-process door that locks it.
struct Locked {
    place: MountedPool,
    ino: Ino,
}

impl Locked {
    fn create(name: &str) -> Option<Self> {
        if !can_mount() || Command::new("flock").arg("--version").output().is_err() {
            return None;
        }
        let place = MountedPool::create(name);
        let context = Context::new(&Credentials::ROOT, DOOR);
        let new = NewInode { mode: 0o666, umask: 0, ..NewInode::default() };
        let ino = place.fs.create(&context, place.fs.root_ino(), b"file", &new).unwrap().ino;
        Some(Self { place, ino })
    }

    fn unlock(&self) {
        self.place.fs.locks().unlock(self.ino, byte_lock(LockKind::Shared).owner, &(0..10));
    }

    /// Whether flock(1) with these words and the file succeeds.
    fn flock(&self, words: &[&str]) -> bool {
        self.start(words).wait(LIMIT).expect("flock(1) hangs").success()
    }

    fn start(&self, words: &[&str]) -> Client {
        let mut command = Command::new("flock");
        command.args(words).arg("file").arg("true").current_dir(self.place.mountpoint());
        Client::start(&mut command, &self.place.output())
    }

    /// Waits until the table of locks is so.
    fn wait_until(&self, is_so: impl Fn(&[ByteLock]) -> bool) {
        let last = Instant::now() + LIMIT;
        while !is_so(&self.place.fs.locks().held_locks(self.ino)) {
            assert!(Instant::now() < last, "{:?}", self.place.fs.locks().held_locks(self.ino));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn flocks_of_programs_obey_other_doors() {
    let Some(locked) = Locked::create("flocks") else { return };
    let table = locked.place.fs.locks();
    table.try_lock(locked.ino, &byte_lock(LockKind::Exclusive)).unwrap();
    assert!(!locked.flock(&["-n", "-x"]) && !locked.flock(&["-n", "-s"]));
    table.try_lock(locked.ino, &byte_lock(LockKind::Shared)).unwrap();
    assert!(!locked.flock(&["-n", "-x"]) && locked.flock(&["-n", "-s"]));
    // a waiting request gets it as soon as the other door unlocks
    let waiting = locked.start(&["-x"]);
    assert!(waiting.wait(Duration::from_millis(300)).is_none());
    locked.unlock();
    assert!(waiting.wait(LIMIT).expect("it still waits").success());
    locked.wait_until(<[ByteLock]>::is_empty);
    drop(waiting);
    locked.place.export_and_verify();
}

#[test]
fn signals_end_waits_for_locks() {
    let Some(locked) = Locked::create("lock-signals") else { return };
    let table = locked.place.fs.locks();
    table.try_lock(locked.ino, &byte_lock(LockKind::Exclusive)).unwrap();
    for signal in ["TERM", "KILL"] {
        let mut command = Command::new("timeout");
        command.args(["-s", signal, "0.3", "flock", "-x", "file", "true"]);
        let client =
            Client::start(command.current_dir(locked.place.mountpoint()), &locked.place.output());
        let status = client.wait(LIMIT).expect("the signal does not end the wait");
        assert!(!status.success());
    }
    locked.unlock();
    assert!(locked.flock(&["-n", "-x"]), "a wait that has ended is granted nothing");
    locked.wait_until(<[ByteLock]>::is_empty);
    locked.place.export_and_verify();
}

#[test]
#[ignore = "a program that another test starts"]
fn client_locks_bytes() {
    let Some(words) = arguments() else { return };
    let open = || OpenOptions::new().read(true).write(true).open(&words[0]).unwrap();
    let (file, second) = (open(), open());
    let lock = |how| rustix::fs::fcntl_lock(&file, how);
    match words[1].as_str() {
        "refused" => {
            assert_eq!(lock(FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN));
            lock(FlockOperation::NonBlockingLockShared).unwrap();
        }
        "closed" => {
            lock(FlockOperation::NonBlockingLockExclusive).unwrap();
            // flock(2) and fcntl(2) do not exclude each other
            rustix::fs::flock(&second, FlockOperation::NonBlockingLockExclusive).unwrap();
            // a close of any descriptor of the file releases the locks of the process
            drop(second);
            std::fs::write(&words[2], b"").unwrap();
            let last = Instant::now() + LIMIT;
            while std::fs::exists(&words[2]).unwrap() && Instant::now() < last {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        "shared" => {
            let reader = std::fs::File::open(&words[0]).unwrap();
            rustix::fs::fcntl_lock(&reader, FlockOperation::NonBlockingLockShared).unwrap();
        }
        _ => lock(FlockOperation::NonBlockingLockExclusive).unwrap(),
    }
}

#[test]
fn byte_locks_of_programs_obey_other_doors() {
    let Some(locked) = Locked::create("byte-locks") else { return };
    let table = locked.place.fs.locks();
    let path = locked.place.mountpoint().join("file");
    let path = path.to_str().unwrap();
    let sign = locked.place.model_dir().join("sign");
    let output = locked.place.output();
    let name = "locks::client_locks_bytes";
    table.try_lock(locked.ino, &byte_lock(LockKind::Shared)).unwrap();
    run_test(name, &[path, "refused"], LIMIT, &output);
    locked.unlock();
    // the end of a process releases its locks
    for how in ["locks", "shared"] {
        run_test(name, &[path, how], LIMIT, &output);
        locked.wait_until(<[ByteLock]>::is_empty);
    }
    let client = Client::start_test(name, &[path, "closed", sign.to_str().unwrap()], &output);
    assert!(client.wait_until(LIMIT, || sign.exists()), "{}", client.output_text());
    locked.wait_until(<[ByteLock]>::is_empty);
    std::fs::remove_file(&sign).unwrap();
    let status = client.wait(LIMIT).expect("the client hangs");
    assert!(status.success(), "{}", client.output_text());
    drop(client);
    locked.place.export_and_verify();
}
