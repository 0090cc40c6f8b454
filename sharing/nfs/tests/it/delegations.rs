//! Delegations: granted, recalled whatever way another client comes, returned, revoked.

use std::cell::RefCell;
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
use crate::v4_client::{BOTH, Operations, READ, V4Client, read_delegated_open, write_open_owner};

const WANT_READ: u32 = 0x100;
const WANT_WRITE: u32 = 0x200;
const WANT_NONE: u32 = 0x400;
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
        let operations = Operations::at(file).add(op::DELEGRETURN, |w| state.write(w));
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        results.skip(op::DELEGRETURN)
    }

    /// Waits for a recall, and answers it. Returns the state and the handle that it names.
    fn take_recall(&mut self) -> (StateId, Vec<u8>) {
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
        assert_eq!(reader.u32().unwrap(), CB_RECALL);
        let state = StateId::parse(&mut reader).unwrap();
        assert!(!reader.bool().unwrap());
        let handle = reader.opaque(128).unwrap().to_vec();
        let mut reply = Writer::default();
        for number in [header[0], 1, 0, 0, 0, 0, 0, 0, 2, 11, 0] {
            reply.u32(number);
        }
        reply.fixed(&self.session);
        for number in [sequence, 0, 0, 0, CB_RECALL, 0] {
            reply.u32(number);
        }
        self.rpc.send(reply.as_bytes());
        (state, handle)
    }
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
    // NFSv3 asks for attributes, which the client may have changed in its cache
    let mut old = V3Client::mount(served.address(), "/tank").unwrap();
    let dir = old.root.clone();
    assert_eq!(old.lookup(&dir, "file").map(drop), Err(Status::DELAY));
    assert_eq!(one.take_recall(), (delegation, file.clone()));
    assert_eq!(one.write(&file, &delegation, 0, b"late"), Ok(4));
    one.return_delegation(&file, &delegation).unwrap();
    old.lookup(&dir, "file").unwrap();

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
