//! Delegations of NFSv4.0: the server calls a program of the client by a connection of its own.

use std::cell::RefCell;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use nfs::ServerOptions;
use nfs::wire::status::Status;
use nfs::wire::v4::{StateId, attr, op};
use nfs::wire::xdr::{Reader, Writer};
use posix::Credentials;
use posix::access::OpenMode;
use vfs::{Context, DoorId};

use crate::client::RpcClient;
use crate::served_pool::{ServedPool, options, wait_until};
use crate::v3_client::V3Client;
use crate::v4_client::{
    Operations, READ, WRITE, change_and_size, read_delegated_open, return_delegation,
};
use crate::v40_client::{CALLBACK_IDENT, CALLBACK_PROGRAM, V40Client};

const CB_GETATTR: u32 = 3;
const CB_RECALL: u32 = 4;

/// The program of a client that the server calls.
struct CallbackServer {
    listener: TcpListener,
}

/// A call of the server, by its connection.
struct Call {
    rpc: RpcClient,
    xid: u32,
    operation: u32,
    arguments: Vec<u8>,
}

impl CallbackServer {
    fn start() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Waits for a call, and answers those of CB_NULL meanwhile.
    fn take_call(&self) -> Call {
        loop {
            let (stream, _) = self.listener.accept().unwrap();
            if let Some(call) = Self::read_call(stream) {
                return call;
            }
        }
    }

    /// Answers the probe of the server.
    fn take_probe(&self) {
        let (stream, _) = self.listener.accept().unwrap();
        assert!(Self::read_call(stream).is_none(), "a probe");
    }

    /// Reads a call. None: it was CB_NULL, and was answered.
    fn read_call(stream: TcpStream) -> Option<Call> {
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let mut rpc = RpcClient { stream, uid: 0, xid: 0, is_hard: false };
        let record = rpc.receive();
        let mut reader = Reader::new(&record);
        let header: Vec<u32> = (0..6).map(|_| reader.u32().unwrap()).collect();
        let [xid, 0, 2, CALLBACK_PROGRAM, 1, procedure] = header[..] else {
            panic!("a call of the client's program: {header:?}");
        };
        // credentials and verifier
        for _ in 0..2 {
            reader.u32().unwrap();
            reader.opaque(400).unwrap();
        }
        if procedure == 0 {
            rpc.send(&Self::accepted(xid).into_bytes());
            return None;
        }
        reader.opaque(100).unwrap();
        let numbers: Vec<u32> = (0..3).map(|_| reader.u32().unwrap()).collect();
        assert_eq!(numbers, [0, CALLBACK_IDENT, 1], "version, number of the program, operations");
        let operation = reader.u32().unwrap();
        Some(Call { rpc, xid, operation, arguments: reader.rest().to_vec() })
    }

    fn accepted(xid: u32) -> Writer {
        let mut reply = Writer::default();
        for number in [xid, 1, 0, 0, 0, 0] {
            reply.u32(number);
        }
        reply
    }

    /// Waits for a recall, and answers it. Returns the state and the handle that it names.
    fn take_recall(&self) -> (StateId, Vec<u8>) {
        let call = self.take_call();
        assert_eq!(call.operation, CB_RECALL);
        let arguments = call.arguments.clone();
        let mut reader = Reader::new(&arguments);
        let state = StateId::parse(&mut reader).unwrap();
        assert!(!reader.bool().unwrap());
        let handle = reader.opaque(128).unwrap().to_vec();
        call.answer(|_| {});
        (state, handle)
    }

    /// Waits until the server asks for the attributes of a file, and answers with those in the cache.
    fn tell_attributes(&self, file: &[u8], change: u64, size: u64) {
        let call = self.take_call();
        assert_eq!(call.operation, CB_GETATTR);
        assert_eq!(Reader::new(&call.arguments).opaque(128).unwrap(), file);
        call.answer(|w| {
            for number in [1, 1 << attr::CHANGE | 1 << attr::SIZE, 16] {
                w.u32(number);
            }
            w.u64(change);
            w.u64(size);
        });
    }
}

impl Call {
    /// Answers with the result of the operation.
    fn answer(mut self, result: impl FnOnce(&mut Writer)) {
        let mut reply = CallbackServer::accepted(self.xid);
        for number in [0, 0, 1, self.operation, 0] {
            reply.u32(number);
        }
        result(&mut reply);
        self.rpc.send(&reply.into_bytes());
    }
}

impl V40Client {
    /// Opens a file that exists, as an owner that is confirmed. Returns the kind of the delegation (0 none, 1 read, 2
    /// write) and its state.
    fn open_delegated(
        &mut self,
        dir: &[u8],
        name: &str,
        access: u32,
    ) -> Result<(StateId, u32, Option<StateId>), Status> {
        let operations = Operations::at(dir).add(op::OPEN, |w| {
            for number in [self.open_seqid, access, 0] {
                w.u32(number);
            }
            w.u64(self.client_id);
            w.opaque(b"owner");
            w.bool(false);
            w.u32(0);
            w.opaque(name.as_bytes());
        });
        self.open_seqid += 1;
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        results.next(op::OPEN, read_delegated_open)
    }

    /// Opens a file again that it had a delegation of before the server restarted.
    fn reclaim_delegated(
        &mut self,
        file: &[u8],
        kind: u32,
    ) -> Result<(StateId, u32, Option<StateId>), Status> {
        let operations = Operations::at(file).add(op::OPEN, |w| {
            for number in [self.open_seqid, kind, 0] {
                w.u32(number);
            }
            w.u64(self.client_id);
            w.opaque(b"owner");
            w.bool(false);
            w.u32(1);
            w.u32(kind);
        });
        self.open_seqid += 1;
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        results.next(op::OPEN, read_delegated_open)
    }

    fn return_delegation(&mut self, file: &[u8], state: &StateId) -> Result<(), Status> {
        return_delegation(|all| self.run(all), file, state)
    }

    fn renew(&mut self) -> Status {
        self.run(&Operations::default().add(op::RENEW, |w| w.u64(self.client_id))).status
    }

    /// The change attribute and the size of a file.
    fn change_and_size(&mut self, file: &[u8]) -> Result<(u64, u64), Status> {
        change_and_size(|all| self.run(all), file)
    }
}

/// A client that the server can call, its program, and the handles of a directory and of a file in it, which is closed.
struct Called {
    client: V40Client,
    program: CallbackServer,
    root: Vec<u8>,
    file: Vec<u8>,
}

fn start_client(served: &ServedPool) -> Called {
    let program = CallbackServer::start();
    let mut client = V40Client::connect_with(served.address(), "one", program.address());
    program.take_probe();
    let root = client.handle(&["tank"]);
    let (open, file) = client.open(&root, "file").unwrap();
    client.close(&file, &open).unwrap();
    Called { client, program, root, file }
}

/// Opens a file until there is a delegation: the server may still read the answer to its probe.
fn delegation(client: &mut V40Client, root: &[u8], access: u32) -> (StateId, u32, StateId) {
    let (client, mut found) = (RefCell::new(client), None);
    let found_cell = RefCell::new(&mut found);
    wait_until("a delegation", || {
        let (open, kind, state) = client.borrow_mut().open_delegated(root, "file", access).unwrap();
        **found_cell.borrow_mut() = state.map(|state| (open, kind, state));
        state.is_some()
    });
    found.unwrap()
}

#[test]
fn writers_recall_read_delegation_by_callback() {
    let served = ServedPool::start();
    let Called { mut client, program, root, file } = start_client(&served);
    let (open, kind, state) = delegation(&mut client, &root, READ);
    assert_eq!(kind, 1);
    assert_eq!(client.write(&file, &state, b"x"), Err(Status::OPENMODE));
    client.close(&file, &open).unwrap();

    let mut two = V40Client::connect(served.address(), "two");
    assert_eq!(two.open(&root, "file").map(drop), Err(Status::DELAY));
    assert_eq!(program.take_recall(), (state, file.clone()));
    client.return_delegation(&file, &state).unwrap();
    let (theirs, _) = two.open(&root, "file").unwrap();
    two.write(&file, &theirs, b"two").unwrap();
    assert_eq!(client.return_delegation(&file, &state), Err(Status::BAD_STATEID));
    // the file is open to be written
    assert_eq!(client.open_delegated(&root, "file", READ).map(|it| it.1), Ok(0));
}

#[test]
fn write_delegation_serves_writes_and_attributes() {
    let served = ServedPool::start();
    let Called { mut client, program, root, file } = start_client(&served);
    let (_, kind, state) = delegation(&mut client, &root, WRITE);
    assert_eq!(kind, 2);
    assert_eq!(client.write(&file, &state, b"four"), Ok(4));
    // its own request asks nobody
    let (change, size) = client.change_and_size(&file).unwrap();
    assert_eq!(size, 4);
    let mut old = V3Client::mount(served.address(), "/tank").unwrap();
    thread::scope(|scope| {
        let asked = scope.spawn(|| old.attributes(&file).unwrap().size);
        program.tell_attributes(&file, change + 1, 6000);
        assert_eq!(asked.join().unwrap(), 6000);
    });
    // a local program, as through a mount
    let fs = &served.exports[0].filesystem;
    thread::scope(|scope| {
        let opened = scope.spawn(|| {
            let context = Context::new(&Credentials::ROOT, DoorId::new_unique());
            let ino = fs.lookup(&context, fs.root().unwrap(), b"file").unwrap().ino;
            fs.open(&context, ino, OpenMode::READ).unwrap().size().unwrap()
        });
        assert_eq!(program.take_recall(), (state, file.clone()));
        // the holder may ask for attributes while it writes back
        assert_eq!(client.change_and_size(&file).unwrap().1, 4);
        client.write(&file, &state, b"and more").unwrap();
        client.return_delegation(&file, &state).unwrap();
        assert_eq!(opened.join().unwrap(), 8);
    });
}

#[test]
fn unreachable_v40_clients_get_no_delegation() {
    let served = ServedPool::start();
    let closed = CallbackServer::start().address();
    // nobody listens, or the address is another machine's
    for (name, callback) in [("closed", closed), ("else", "127.0.0.2:2049".parse().unwrap())] {
        let mut client = V40Client::connect_with(served.address(), name, callback);
        let root = client.handle(&["tank"]);
        let (open, file) = client.open(&root, "file").unwrap();
        client.close(&file, &open).unwrap();
        assert_eq!(client.open_delegated(&root, "file", READ).map(|it| it.1), Ok(0), "{name}");
        assert_eq!(client.renew(), Status::OK);
    }
}

#[test]
fn renew_tells_that_callbacks_fail() {
    let served = ServedPool::start();
    let Called { mut client, program, root, file } = start_client(&served);
    let (open, _, state) = delegation(&mut client, &root, READ);
    client.close(&file, &open).unwrap();
    assert_eq!(client.renew(), Status::OK);
    drop(program);
    let two = RefCell::new(V40Client::connect(served.address(), "two"));
    assert_eq!(two.borrow_mut().open(&root, "file").map(drop), Err(Status::DELAY));
    let client = RefCell::new(client);
    wait_until("a call that fails", || client.borrow_mut().renew() == Status::CB_PATH_DOWN);
    // another program is called at once
    let program = CallbackServer::start();
    client.borrow_mut().set_client_id("one", program.address());
    assert_eq!(program.take_recall(), (state, file.clone()));
    client.borrow_mut().return_delegation(&file, &state).unwrap();
    assert_eq!(client.borrow_mut().renew(), Status::OK);
    wait_until("the open", || two.borrow_mut().open(&root, "file").is_ok());
}

#[test]
fn v40_delegations_are_reclaimed_after_restart() {
    let path = std::env::temp_dir().join(format!("nfs-v40-deleg-{}", std::process::id()));
    let client_list = Some(path.clone());
    let served = ServedPool::start_with(ServerOptions { client_list, ..options() });
    let Called { client: mut one, program, root, file } = start_client(&served);
    let (open, _, _) = delegation(&mut one, &root, READ);
    one.close(&file, &open).unwrap();
    // a new file, with a write delegation
    let (open, file_two) = one.open(&root, "other").unwrap();
    one.close(&file_two, &open).unwrap();
    let served = served.restart();

    let mut one = V40Client::connect_with(served.address(), "one", program.address());
    let (_, kind, first) = one.reclaim_delegated(&file, 1).unwrap();
    assert_eq!(kind, 1);
    assert!(served.server.status().grace.is_some(), "one delegation is left to reclaim");
    let (_, kind, second) = one.reclaim_delegated(&file_two, 2).unwrap();
    assert_eq!(kind, 2);
    assert!(served.server.status().grace.is_none());
    for (file, state) in [(&file, first), (&file_two, second)] {
        one.return_delegation(file, &state.unwrap()).unwrap();
    }
    let mut two = V40Client::connect(served.address(), "two");
    two.open(&root, "other").unwrap();
    drop(served);
    std::fs::remove_file(path).unwrap();
}
