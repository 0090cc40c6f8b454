//! Delegations: granted, recalled whatever way another client comes, returned, revoked.

use std::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant};

use nfs::ServerOptions;
use nfs::wire::status::Status;
use nfs::wire::v4::{StateId, op};
use nfs::wire::xdr::{Reader, Writer};
use posix::access::OpenMode;
use posix::{Credentials, SetAttributes};
use vfs::{Context, DoorId};

use crate::served_pool::{ServedPool, options, wait_until};
use crate::v3_client::V3Client;
use crate::v4_client::{
    BOTH, Operations, READ, V4Client, change_and_size, read_delegated_open, return_delegation,
    write_open_owner,
};

const WANT_READ: u32 = 0x100;
const WANT_WRITE: u32 = 0x200;
const WANT_NONE: u32 = 0x400;
const CB_GETATTR: u32 = 3;
const CB_RECALL: u32 = 4;

impl V4Client {
    /// Opens a file that exists. Returns its state, the kind of the delegation (0 none, 1 read, 2 write, 3 refused) and
    /// its state.
    fn open_delegated(
        &mut self,
        dir: &[u8],
        name: &str,
        access: u32,
    ) -> Result<(StateId, u32, Option<StateId>), Status> {
        let operations = Operations::at(dir).add(op::OPEN, |w| {
            write_open_owner(w, (access, 0), b"owner");
            w.bool(false);
            w.u32(0);
            w.opaque(name.as_bytes());
        });
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        results.next(op::OPEN, read_delegated_open)
    }

    fn return_delegation(&mut self, file: &[u8], state: &StateId) -> Result<(), Status> {
        return_delegation(|all| self.run(all), file, state)
    }

    /// The change attribute and the size of a file.
    fn change_and_size(&mut self, file: &[u8]) -> Result<(u64, u64), Status> {
        change_and_size(|all| self.run(all), file)
    }

    /// Waits for a call of the server.
    fn take_call(&mut self) -> Call {
        let record = self.rpc.receive();
        let mut reader = Reader::new(&record);
        let header: Vec<u32> = (0..6).map(|_| reader.u32().unwrap()).collect();
        assert_eq!(header[1..], [0, 2, 0x4000_0000, 1, 1], "a call of the client's program");
        // credentials and verifier
        for _ in 0..2 {
            reader.u32().unwrap();
            reader.opaque(400).unwrap();
        }
        reader.opaque(100).unwrap();
        let numbers: Vec<u32> = (0..4).map(|_| reader.u32().unwrap()).collect();
        assert_eq!(numbers, [2, 0, 2, 11], "CB_SEQUENCE comes first");
        assert_eq!(reader.fixed::<16>().unwrap(), self.session);
        let sequence = reader.u32().unwrap();
        for _ in 0..4 {
            reader.u32().unwrap();
        }
        let operation = reader.u32().unwrap();
        Call { xid: header[0], sequence, operation, arguments: reader.rest().to_vec() }
    }

    /// Answers a call of the server with a result.
    fn answer(&mut self, call: &Call, result: impl FnOnce(&mut Writer)) {
        let mut reply = Writer::default();
        for number in [call.xid, 1, 0, 0, 0, 0, 0, 0, 2, 11, 0] {
            reply.u32(number);
        }
        reply.fixed(&self.session);
        for number in [call.sequence, 0, 0, 0, call.operation, 0] {
            reply.u32(number);
        }
        result(&mut reply);
        self.rpc.send(reply.as_bytes());
    }

    /// Waits for a recall, and answers it. Returns the state and the handle that it names.
    fn take_recall(&mut self) -> (StateId, Vec<u8>) {
        let call = self.take_call();
        assert_eq!(call.operation, CB_RECALL);
        let mut reader = Reader::new(&call.arguments);
        let state = StateId::parse(&mut reader).unwrap();
        assert!(!reader.bool().unwrap());
        let handle = reader.opaque(128).unwrap().to_vec();
        self.answer(&call, |_| {});
        (state, handle)
    }

    /// Waits until the server asks for the attributes of a file, and answers with those in the cache.
    fn tell_attributes(&mut self, file: &[u8], change: u64, size: u64) {
        let call = self.take_call();
        assert_eq!(call.operation, CB_GETATTR);
        let mut reader = Reader::new(&call.arguments);
        assert_eq!(reader.opaque(128).unwrap(), file);
        assert_eq!(reader.list(3, Reader::u32).unwrap()[0], 1 << 3 | 1 << 4, "change and size");
        self.answer(&call, |w| {
            for number in [1, 1 << 3 | 1 << 4, 16] {
                w.u32(number);
            }
            w.u64(change);
            w.u64(size);
        });
    }
}

/// A call of the server.
struct Call {
    xid: u32,
    sequence: u32,
    operation: u32,
    arguments: Vec<u8>,
}

/// Two clients, the first of which can be called, and the handles of a directory and of a file in it.
fn start() -> (ServedPool, V4Client, V4Client, Vec<u8>, Vec<u8>) {
    let served = ServedPool::start();
    let mut one = V4Client::connect_with_callbacks(served.address(), "one");
    let two = V4Client::connect(served.address(), "two");
    let root = one.handle(&["tank"]).unwrap();
    let (open, file) = one.open(&root, "file", (BOTH, 0), true).unwrap();
    one.close(&file, &open).unwrap();
    (served, one, two, root, file)
}

#[test]
fn write_by_another_client_recalls_delegation() {
    let (_served, mut one, mut two, root, file) = start();
    let (open, kind, delegation) = one.open_delegated(&root, "file", READ).unwrap();
    let delegation = delegation.unwrap();
    assert_eq!(kind, 1);
    assert_eq!(one.read(&file, &delegation, 0, 10), Ok((true, Vec::new())));
    assert_eq!(one.write(&file, &delegation, 0, b"x"), Err(Status::OPENMODE));
    one.close(&file, &open).unwrap();
    assert_eq!(one.read(&file, &delegation, 0, 10), Ok((true, Vec::new())));

    assert_eq!(two.open(&root, "file", (BOTH, 0), false).map(drop), Err(Status::DELAY));
    assert_eq!(one.take_recall(), (delegation, file.clone()));
    one.return_delegation(&file, &delegation).unwrap();
    two.open(&root, "file", (BOTH, 0), false).unwrap();
    assert_eq!(one.return_delegation(&file, &delegation), Err(Status::BAD_STATEID));
    // the file is open to be written
    assert_eq!(one.open_delegated(&root, "file", READ | WANT_READ).map(|it| it.1), Ok(3));
    assert_eq!(one.open_delegated(&root, "file", READ).map(|it| it.1), Ok(0));
}

#[test]
fn readers_of_other_doors_recall_write_delegation() {
    let (served, mut one, _two, root, file) = start();
    assert_eq!(one.open_delegated(&root, "file", READ | WANT_NONE).map(|it| it.1), Ok(3));
    let (_, kind, delegation) = one.open_delegated(&root, "file", BOTH | WANT_WRITE).unwrap();
    assert_eq!(kind, 2);
    let delegation = delegation.unwrap();
    let mut old = V3Client::mount(served.address(), "/tank").unwrap();
    let read = thread::spawn({
        let file = file.clone();
        move || {
            let first = old.read(&file, 0, 10).map(drop);
            (old, first)
        }
    });
    // first come the attributes, then the open
    one.tell_attributes(&file, 0, 0);
    assert_eq!(one.take_recall(), (delegation, file.clone()));
    assert_eq!(one.write(&file, &delegation, 0, b"late"), Ok(4));
    one.return_delegation(&file, &delegation).unwrap();
    let (mut old, first) = read.join().unwrap();
    assert!(matches!(first, Ok(()) | Err(Status::DELAY)), "{first:?}");
    assert_eq!(old.read(&file, 0, 10).unwrap().0, b"late");

    // a local program, as through a mount
    let fs = &served.exports[0].filesystem;
    let context = Context {
        recall_deadline: Some(Instant::now() + Duration::from_millis(10)),
        ..Context::new(&Credentials::ROOT, DoorId::new_unique())
    };
    let ino = fs.lookup(&context, fs.root().unwrap(), b"file").unwrap().ino;
    let (_, kind, delegation) = one.open_delegated(&root, "file", READ | WANT_READ).unwrap();
    assert_eq!(kind, 1);
    fs.open(&context, ino, OpenMode::READ).unwrap();
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    assert!(matches!(fs.set_attributes(&context, ino, &set), Err(vfs::Error::RecallPending(_))));
    one.take_recall();
    one.return_delegation(&file, &delegation.unwrap()).unwrap();
    fs.set_attributes(&context, ino, &set).unwrap();
}

#[test]
fn attributes_come_from_the_holders_cache() {
    let (served, mut one, mut two, root, file) = start();
    let (_, _, delegation) = one.open_delegated(&root, "file", BOTH | WANT_WRITE).unwrap();
    let delegation = delegation.unwrap();
    let before = one.change_and_size(&file).unwrap();
    let ask = |two: &mut V4Client, one: &mut V4Client, (change, size): (u64, u64)| {
        thread::scope(|scope| {
            let asked = scope.spawn(|| two.change_and_size(&file).unwrap());
            one.tell_attributes(&file, change, size);
            asked.join().unwrap()
        })
    };
    assert_eq!(ask(&mut two, &mut one, before), before, "nothing is changed in the cache");
    let (change, size) = ask(&mut two, &mut one, (before.0 + 1, 5000));
    assert!(change > before.0 && size == 5000);
    // NFSv3, too
    let mut old = V3Client::mount(served.address(), "/tank").unwrap();
    let asked = thread::spawn({
        let file = file.clone();
        move || old.attributes(&file).unwrap().size
    });
    one.tell_attributes(&file, change + 1, 6000);
    assert_eq!(asked.join().unwrap(), 6000);
    // the holder keeps its delegation, and its own requests ask nobody
    assert_eq!(one.write(&file, &delegation, 0, b"four"), Ok(4));
    let (after, size) = one.change_and_size(&file).unwrap();
    assert!(after != before.0 && size == 4);
}

#[test]
fn vanished_clients_lose_their_delegations() {
    let lease = Duration::from_secs(1);
    let served = ServedPool::start_with(ServerOptions { lease, ..options() });
    let mut one = V4Client::connect_with_callbacks(served.address(), "one");
    let root = one.handle(&["tank"]).unwrap();
    let (open, file) = one.open(&root, "file", (BOTH, 0), true).unwrap();
    one.close(&file, &open).unwrap();
    assert_eq!(one.open_delegated(&root, "file", READ).map(|it| it.1), Ok(1));
    drop(one);
    let two = RefCell::new(V4Client::connect(served.address(), "two"));
    let open = || two.borrow_mut().open(&root, "file", (BOTH, 0), false);
    wait_until("the end of a lease", || open().is_ok());
}

#[test]
fn clients_that_cannot_be_called_get_none() {
    let (_served, _one, mut two, root, _) = start();
    assert_eq!(two.open_delegated(&root, "file", READ).map(|it| it.1), Ok(0));
    assert_eq!(two.open_delegated(&root, "file", READ | WANT_READ).map(|it| it.1), Ok(3));
}
