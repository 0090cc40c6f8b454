//! A client of NFSv4.2: one session, with requests in its first slot.

use std::io;
use std::net::SocketAddr;

use nfs::wire::status::Status;
use nfs::wire::v4::{Bitmap, StateId, attr, op};
use nfs::wire::xdr::{Reader, Writer};

use crate::client::RpcClient;

pub(crate) const COMPOUND: (u32, u32, u32) = (100_003, 4, 1);
pub(crate) const READ: u32 = 1;
pub(crate) const WRITE: u32 = 2;
pub(crate) const BOTH: u32 = 3;
/// CREATE_SESSION: the connection carries calls of the server.
const CONNECTION_BACK_CHANNEL: u32 = 2;

/// Operations that are to be sent, printed.
#[derive(Clone, Default)]
pub(crate) struct Operations {
    pub(crate) count: u32,
    pub(crate) writer: Writer,
}

impl Operations {
    pub(crate) fn add(mut self, number: u32, arguments: impl FnOnce(&mut Writer)) -> Self {
        self.count += 1;
        self.writer.u32(number);
        arguments(&mut self.writer);
        self
    }

    pub(crate) fn root() -> Self {
        Self::default().add(op::PUTROOTFH, |_| {})
    }

    pub(crate) fn at(handle: &[u8]) -> Self {
        Self::default().add(op::PUTFH, |w| w.opaque(handle))
    }

    pub(crate) fn lookup(self, name: &str) -> Self {
        self.add(op::LOOKUP, |w| w.opaque(name.as_bytes()))
    }

    pub(crate) fn get_handle(self) -> Self {
        self.add(op::GETFH, |_| {})
    }

    pub(crate) fn attributes(self, wanted: &[u32]) -> Self {
        self.add(op::GETATTR, |w| Bitmap::of(wanted).write(w))
    }

    /// The arguments of a COMPOUND.
    pub(crate) fn compound(&self, minor_version: u32) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.opaque(b"tag");
        writer.u32(minor_version);
        writer.u32(self.count);
        writer.append(self.writer.as_bytes());
        writer.into_bytes()
    }
}

/// The result of a COMPOUND: of each operation its number and status, and the bytes behind the last header that was
/// read.
pub(crate) struct Results {
    pub(crate) status: Status,
    bytes: Vec<u8>,
    at: usize,
}

impl Results {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let mut reader = Reader::new(&bytes);
        let status = Status::from_number(reader.u32().unwrap());
        assert_eq!(reader.opaque(100).unwrap(), b"tag");
        reader.u32().unwrap();
        let at = bytes.len() - reader.rest().len();
        Self { status, bytes, at }
    }

    /// Reads the next operation's result. Its body is read by `body` if the operation succeeded.
    pub(crate) fn next<T>(
        &mut self,
        number: u32,
        body: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> Result<T, Status> {
        let mut reader = Reader::new(&self.bytes[self.at..]);
        assert_eq!(reader.u32().unwrap(), number);
        let status = Status::from_number(reader.u32().unwrap());
        let result = if status.is_ok() { Ok(body(&mut reader)) } else { Err(status) };
        self.at = self.bytes.len() - reader.rest().len();
        result
    }

    pub(crate) fn skip(&mut self, number: u32) -> Result<(), Status> {
        self.next(number, |_| ())
    }
}

/// A client with a session.
pub(crate) struct V4Client {
    pub(crate) rpc: RpcClient,
    pub(crate) client_id: u64,
    pub(crate) session: [u8; 16],
    pub(crate) sequence: u32,
    /// Whether the server is asked to keep answers.
    pub(crate) is_cached: bool,
}

fn write_channel(w: &mut Writer) {
    for number in [0, 1 << 20, 1 << 20, 4096, 16, 8, 0] {
        w.u32(number);
    }
}

pub(crate) fn exchange_id(name: &str, verifier: [u8; 8]) -> Operations {
    Operations::default().add(op::EXCHANGE_ID, |w| {
        w.fixed(&verifier);
        w.opaque(name.as_bytes());
        for number in [0, 0, 0] {
            w.u32(number);
        }
    })
}

pub(crate) fn create_session(client_id: u64, sequence: u32) -> Operations {
    create_session_with(client_id, sequence, 0)
}

fn create_session_with(client_id: u64, sequence: u32, flags: u32) -> Operations {
    Operations::default().add(op::CREATE_SESSION, |w| {
        w.u64(client_id);
        w.u32(sequence);
        w.u32(flags);
        write_channel(w);
        write_channel(w);
        w.u32(0x4000_0000);
        w.count(1);
        w.u32(0);
    })
}

impl V4Client {
    /// Connects, and creates a session. It has not said that it reclaimed all.
    pub(crate) fn connect_reclaiming(address: SocketAddr, name: &str, verifier: [u8; 8]) -> Self {
        Self::create(address, name, verifier, 0)
    }

    /// Connects by a connection that carries calls of the server as well.
    pub(crate) fn connect_with_callbacks(address: SocketAddr, name: &str) -> Self {
        let mut client = Self::create(address, name, [1; 8], CONNECTION_BACK_CHANNEL);
        client.reclaim_complete().unwrap();
        client
    }

    fn create(address: SocketAddr, name: &str, verifier: [u8; 8], flags: u32) -> Self {
        let rpc = RpcClient::connect(address);
        let (session, sequence, is_cached) = ([0; 16], 0, false);
        let mut client = Self { rpc, client_id: 0, session, sequence, is_cached };
        let mut results = client.send_bare(&exchange_id(name, verifier));
        let (id, sequence) =
            results.next(op::EXCHANGE_ID, |r| (r.u64().unwrap(), r.u32().unwrap())).unwrap();
        client.client_id = id;
        let mut results = client.send_bare(&create_session_with(id, sequence, flags));
        client.session = results.next(op::CREATE_SESSION, |r| r.fixed().unwrap()).unwrap();
        client
    }

    pub(crate) fn connect(address: SocketAddr, name: &str) -> Self {
        let mut client = Self::connect_reclaiming(address, name, [1; 8]);
        client.reclaim_complete().unwrap();
        client
    }

    /// Connects again as a client that is known, or for the first time.
    pub(crate) fn connect_again(address: SocketAddr, name: &str) -> Self {
        let mut client = Self::connect_reclaiming(address, name, [1; 8]);
        match client.reclaim_complete() {
            Ok(()) | Err(Status::COMPLETE_ALREADY) => client,
            Err(status) => panic!("{status:?}"),
        }
    }

    pub(crate) fn reclaim_complete(&mut self) -> Result<(), Status> {
        let done = Operations::default().add(op::RECLAIM_COMPLETE, |w| w.bool(false));
        self.run(&done).skip(op::RECLAIM_COMPLETE)
    }

    /// Sends operations without a session.
    pub(crate) fn send_bare(&mut self, operations: &Operations) -> Results {
        Results::new(self.rpc.call(COMPOUND, &operations.compound(2)))
    }

    /// The arguments of a COMPOUND in the first slot, with the number of the request.
    pub(crate) fn in_slot(&self, operations: &Operations, sequence: u32) -> Vec<u8> {
        let all = Operations::default().add(op::SEQUENCE, |w| {
            w.fixed(&self.session);
            for number in [sequence, 0, 0, u32::from(self.is_cached)] {
                w.u32(number);
            }
        });
        let mut all = all;
        all.count += operations.count;
        all.writer.append(operations.writer.as_bytes());
        all.compound(2)
    }

    /// Runs operations in the first slot. The result of SEQUENCE is read already.
    pub(crate) fn run(&mut self, operations: &Operations) -> Results {
        self.try_run(operations).unwrap()
    }

    /// The same. An error means that the connection broke.
    pub(crate) fn try_run(&mut self, operations: &Operations) -> io::Result<Results> {
        self.sequence += 1;
        let arguments = self.in_slot(operations, self.sequence);
        let mut results = Results::new(self.rpc.try_call(COMPOUND, &arguments)?);
        let read = results.next(op::SEQUENCE, |r| {
            r.fixed::<16>().unwrap();
            for _ in 0..5 {
                r.u32().unwrap();
            }
        });
        read.unwrap();
        Ok(results)
    }

    /// The handle of a path.
    pub(crate) fn handle(&mut self, path: &[&str]) -> Result<Vec<u8>, Status> {
        let operations = path.iter().fold(Operations::root(), |all, name| all.lookup(name));
        let mut results = self.run(&operations.get_handle());
        results.skip(op::PUTROOTFH)?;
        for _ in path {
            results.skip(op::LOOKUP)?;
        }
        results.next(op::GETFH, |r| r.opaque(128).unwrap().to_vec())
    }

    /// Opens a name. `create`: the file is made, if it does not exist. Returns its state and its handle.
    pub(crate) fn open(
        &mut self,
        dir: &[u8],
        name: &str,
        (access, deny): (u32, u32),
        create: bool,
    ) -> Result<(StateId, Vec<u8>), Status> {
        let operations = Operations::at(dir)
            .add(op::OPEN, |w| {
                write_open_owner(w, (access, deny), b"owner");
                w.bool(create);
                if create {
                    w.u32(0);
                    Bitmap::of(&[33]).write(w);
                    w.opaque(&0o644_u32.to_be_bytes());
                }
                w.u32(0);
                w.opaque(name.as_bytes());
            })
            .get_handle();
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        let state = results.next(op::OPEN, read_open)?;
        Ok((state, results.next(op::GETFH, |r| r.opaque(128).unwrap().to_vec())?))
    }

    /// Opens a file again that was open before the server restarted.
    pub(crate) fn reclaim_open(&mut self, file: &[u8], access: u32) -> Result<StateId, Status> {
        let operations = Operations::at(file).add(op::OPEN, |w| {
            write_open_owner(w, (access, 0), b"owner");
            w.bool(false);
            w.u32(1);
            w.u32(0);
        });
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        results.next(op::OPEN, read_open)
    }

    pub(crate) fn close(&mut self, file: &[u8], state: &StateId) -> Result<(), Status> {
        let operations = Operations::at(file).add(op::CLOSE, |w| {
            w.u32(0);
            state.write(w);
        });
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        results.next(op::CLOSE, |r| StateId::parse(r).unwrap()).map(drop)
    }

    pub(crate) fn write(
        &mut self,
        file: &[u8],
        state: &StateId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u32, Status> {
        self.try_write(file, state, offset, bytes).unwrap()
    }

    /// The same. An error means that the connection broke.
    pub(crate) fn try_write(
        &mut self,
        file: &[u8],
        state: &StateId,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<Result<u32, Status>> {
        let operations = Operations::at(file).add(op::WRITE, |w| {
            state.write(w);
            w.u64(offset);
            w.u32(2);
            w.opaque(bytes);
        });
        let mut results = self.try_run(&operations)?;
        let found = results.skip(op::PUTFH);
        Ok(found.and_then(|()| results.next(op::WRITE, |r| r.u32().unwrap())))
    }

    pub(crate) fn read(
        &mut self,
        file: &[u8],
        state: &StateId,
        offset: u64,
        count: u32,
    ) -> Result<(bool, Vec<u8>), Status> {
        let operations = Operations::at(file).add(op::READ, |w| {
            state.write(w);
            w.u64(offset);
            w.u32(count);
        });
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        results.next(op::READ, |r| (r.bool().unwrap(), r.opaque(1 << 20).unwrap().to_vec()))
    }

    /// Locks bytes as the owner of a name, which has not locked the file yet.
    pub(crate) fn lock(
        &mut self,
        (file, open): (&[u8], &StateId),
        owner: &str,
        (offset, length): (u64, u64),
        is_reclaim: bool,
    ) -> Result<StateId, Status> {
        let operations = Operations::at(file).add(op::LOCK, |w| {
            w.u32(2);
            w.bool(is_reclaim);
            w.u64(offset);
            w.u64(length);
            w.bool(true);
            w.u32(0);
            open.write(w);
            w.u32(0);
            w.u64(0);
            w.opaque(owner.as_bytes());
        });
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        results.next(op::LOCK, |r| StateId::parse(r).unwrap())
    }

    pub(crate) fn unlock(
        &mut self,
        file: &[u8],
        state: &StateId,
        (offset, length): (u64, u64),
    ) -> Result<StateId, Status> {
        let operations = Operations::at(file).add(op::LOCKU, |w| {
            w.u32(2);
            w.u32(0);
            state.write(w);
            w.u64(offset);
            w.u64(length);
        });
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        results.next(op::LOCKU, |r| StateId::parse(r).unwrap())
    }
}

pub(crate) fn write_open_owner(w: &mut Writer, (access, deny): (u32, u32), owner: &[u8]) {
    for number in [0, access, deny] {
        w.u32(number);
    }
    w.u64(0);
    w.opaque(owner);
}

fn read_open(r: &mut Reader<'_>) -> StateId {
    let (state, kind, _) = read_delegated_open(r);
    assert_eq!(kind, 0, "no delegation");
    state
}

/// The state of an open, the kind of the delegation, and its state.
pub(crate) fn read_delegated_open(r: &mut Reader<'_>) -> (StateId, u32, Option<StateId>) {
    let state = StateId::parse(r).unwrap();
    // the change of the directory, and flags
    r.fixed::<24>().unwrap();
    Bitmap::parse(r).unwrap();
    let (kind, delegation) = read_delegation(r);
    (state, kind, delegation)
}

/// The kind of a delegation, and its state.
pub(crate) fn read_delegation(r: &mut Reader<'_>) -> (u32, Option<StateId>) {
    let kind = r.u32().unwrap();
    let delegation = matches!(kind, 1 | 2).then(|| StateId::parse(r).unwrap());
    match kind {
        0 => {}
        // why there is none
        3 => {
            if r.u32().unwrap() == 1 {
                r.bool().unwrap();
            }
        }
        kind => {
            assert!(!r.bool().unwrap(), "it is not recalled yet");
            if kind == 2 {
                r.fixed::<12>().unwrap();
            }
            r.fixed::<12>().unwrap();
            r.opaque(0).unwrap();
        }
    }
    (kind, delegation)
}

/// Returns a delegation. `run` carries the operations out, in a session or without.
pub(crate) fn return_delegation(
    run: impl FnOnce(&Operations) -> Results,
    file: &[u8],
    state: &StateId,
) -> Result<(), Status> {
    let mut results = run(&Operations::at(file).add(op::DELEGRETURN, |w| state.write(w)));
    results.skip(op::PUTFH)?;
    results.skip(op::DELEGRETURN)
}

/// The change attribute and the size of a file.
pub(crate) fn change_and_size(
    run: impl FnOnce(&Operations) -> Results,
    file: &[u8],
) -> Result<(u64, u64), Status> {
    let mut results = run(&Operations::at(file).attributes(&[attr::CHANGE, attr::SIZE]));
    results.skip(op::PUTFH)?;
    results.next(op::GETATTR, |r| {
        Bitmap::parse(r).unwrap();
        let mut values = Reader::new(r.opaque(16).unwrap());
        (values.u64().unwrap(), values.u64().unwrap())
    })
}
