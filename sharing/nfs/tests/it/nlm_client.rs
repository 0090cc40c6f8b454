//! A client of the lock manager, and the programs that the server calls at it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::spawn;
use std::time::Duration;

use nfs::wire::nlm::{self, Lock, LockStatus};
use nfs::wire::rpc::{Call, write_accepted};
use nfs::wire::xdr::{Reader, Writer};
use nfs::wire::{nsm, portmap};

use crate::client::RpcClient;

/// A range that is locked: the process, the first byte, the number of bytes.
pub(crate) type Bytes = (u32, u64, u64);

/// A machine that locks files.
pub(crate) struct LockClient {
    pub(crate) rpc: RpcClient,
    pub(crate) name: String,
}

impl LockClient {
    pub(crate) fn connect(address: SocketAddr, name: &str) -> Self {
        Self { rpc: RpcClient::connect(address), name: name.to_owned() }
    }

    fn write_lock(&self, writer: &mut Writer, file: &[u8], (process, offset, length): Bytes) {
        let (caller, owner) = (self.name.as_bytes(), format!("{process}@{}", self.name));
        let owner = owner.as_bytes();
        Lock { caller, handle: file, owner, process, offset, length }.write(writer);
    }

    fn call(&mut self, procedure: u32, write: impl FnOnce(&Self, &mut Writer)) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.opaque(b"cookie");
        write(self, &mut writer);
        self.rpc.call((nlm::PROGRAM, nlm::VERSION, procedure), writer.as_bytes())
    }

    fn status(&mut self, procedure: u32, write: impl FnOnce(&Self, &mut Writer)) -> LockStatus {
        to_status(&mut Reader::new(&self.call(procedure, write)))
    }

    /// TEST of an exclusive lock: the lock in the way.
    pub(crate) fn test(&mut self, file: &[u8], bytes: Bytes) -> Option<(bool, Bytes)> {
        let result = self.call(1, |client, w| {
            w.bool(true);
            client.write_lock(w, file, bytes);
        });
        let mut reader = Reader::new(&result);
        if to_status(&mut reader) != LockStatus::Denied {
            return None;
        }
        let (is_exclusive, process) = (reader.bool().unwrap(), reader.u32().unwrap());
        reader.opaque(1024).unwrap();
        Some((is_exclusive, (process, reader.u64().unwrap(), reader.u64().unwrap())))
    }

    fn lock_with(
        &mut self,
        procedure: u32,
        file: &[u8],
        bytes: Bytes,
        [may_wait, is_exclusive, is_reclaim]: [bool; 3],
    ) -> LockStatus {
        self.status(procedure, |client, w| {
            w.bool(may_wait);
            w.bool(is_exclusive);
            client.write_lock(w, file, bytes);
            w.bool(is_reclaim);
            w.u32(1);
        })
    }

    /// LOCK, without waiting.
    pub(crate) fn lock(&mut self, file: &[u8], bytes: Bytes, is_exclusive: bool) -> LockStatus {
        self.lock_with(2, file, bytes, [false, is_exclusive, false])
    }

    /// LOCK of an exclusive lock, with waiting.
    pub(crate) fn wait(&mut self, file: &[u8], bytes: Bytes) -> LockStatus {
        self.lock_with(2, file, bytes, [true, true, false])
    }

    /// LOCK of an exclusive lock that the client had before a restart.
    pub(crate) fn reclaim(&mut self, file: &[u8], bytes: Bytes) -> LockStatus {
        self.lock_with(2, file, bytes, [false, true, true])
    }

    /// CANCEL of the wait for an exclusive lock.
    pub(crate) fn cancel(&mut self, file: &[u8], bytes: Bytes) -> LockStatus {
        self.status(3, |client, w| {
            w.bool(true);
            w.bool(true);
            client.write_lock(w, file, bytes);
        })
    }

    pub(crate) fn unlock(&mut self, file: &[u8], bytes: Bytes) -> LockStatus {
        self.status(4, |client, w| client.write_lock(w, file, bytes))
    }

    /// LOCK_MSG of an exclusive lock: the result comes by a call.
    pub(crate) fn lock_message(&mut self, file: &[u8], bytes: Bytes) {
        let result = self.call(7, |client, w| {
            w.bool(false);
            w.bool(true);
            client.write_lock(w, file, bytes);
            w.bool(false);
            w.u32(1);
        });
        assert!(result.is_empty());
    }

    /// SHARE (20) or UNSHARE (21) with the bits of access and deny.
    pub(crate) fn share(&mut self, procedure: u32, file: &[u8], bits: (u32, u32)) -> LockStatus {
        self.status(procedure, |client, w| {
            w.opaque(client.name.as_bytes());
            w.opaque(file);
            w.opaque(b"owner");
            w.u32(bits.1);
            w.u32(bits.0);
            w.bool(false);
        })
    }

    pub(crate) fn free_all(&mut self) {
        let mut writer = Writer::default();
        writer.opaque(self.name.as_bytes());
        writer.u32(3);
        self.rpc.call((nlm::PROGRAM, nlm::VERSION, 23), writer.as_bytes());
    }

    /// NOTIFY: a machine tells that it has restarted.
    pub(crate) fn notify_restart(&mut self, name: &str) {
        let mut writer = Writer::default();
        nsm::write_notify(&mut writer, name.as_bytes(), 3);
        self.rpc.call((nsm::PROGRAM, nsm::VERSION, nsm::NOTIFY), writer.as_bytes());
    }
}

fn to_status(reader: &mut Reader<'_>) -> LockStatus {
    assert_eq!(reader.opaque(1024).unwrap(), b"cookie");
    let found = usize::try_from(reader.u32().unwrap()).unwrap();
    [
        LockStatus::Granted,
        LockStatus::Denied,
        LockStatus::DeniedNoLocks,
        LockStatus::Blocked,
        LockStatus::DeniedGracePeriod,
        LockStatus::Deadlock,
        LockStatus::ReadOnly,
        LockStatus::StaleHandle,
        LockStatus::TooBig,
        LockStatus::Failed,
    ][found]
}

/// A call that the server has made: program and procedure, and the arguments.
pub(crate) type Received = ((u32, u32), Vec<u8>);

/// The portmapper, lock manager and status monitor of a machine, on one port.
pub(crate) struct ClientPrograms {
    pub(crate) port: u16,
    received: Receiver<Received>,
}

impl ClientPrograms {
    /// Starts them. GRANTED is answered with this status.
    pub(crate) fn start(granted: LockStatus) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, received) = channel();
        let sender = Arc::new(sender);
        // the thread ends with the test process
        spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let sender = Arc::clone(&sender);
                spawn(move || answer(stream, port, granted, &sender));
            }
        });
        Self { port, received }
    }

    /// The next call of the server.
    pub(crate) fn next(&self) -> Received {
        self.received.recv_timeout(Duration::from_secs(30)).expect("the server calls its client")
    }
}

fn answer(mut stream: TcpStream, port: u16, granted: LockStatus, received: &Sender<Received>) {
    let mut mark = [0; 4];
    while stream.read_exact(&mut mark).is_ok() {
        let length = u32::from_be_bytes(mark) & 0x7fff_ffff;
        let mut record = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut record).unwrap();
        let (call, error) = Call::parse(&record).unwrap();
        assert_eq!(error, None);
        let mut reply = Writer::default();
        write_accepted(&mut reply, call.xid);
        match call.program {
            portmap::PROGRAM => reply.u32(port.into()),
            program => {
                if (program, call.procedure) == (nlm::PROGRAM, nlm::GRANTED) {
                    nlm::write_result(&mut reply, b"", granted);
                }
                received.send(((program, call.procedure), call.arguments.to_vec())).unwrap();
            }
        }
        let mark = 1 << 31 | u32::try_from(reply.len()).unwrap();
        stream.write_all(&[&mark.to_be_bytes(), reply.as_bytes()].concat()).unwrap();
    }
}
