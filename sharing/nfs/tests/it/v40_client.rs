//! A client of NFSv4.0, with owners that number their requests.

use std::net::SocketAddr;

use nfs::wire::portmap::universal_address;
use nfs::wire::status::Status;
use nfs::wire::v4::{Bitmap, StateId, op};
use nfs::wire::xdr::{Reader, Writer};

use crate::client::RpcClient;
use crate::v4_client::{COMPOUND, Operations, Results, read_delegation};

/// OPEN: the owner must be confirmed.
const CONFIRM: u32 = 2;
/// The program of callbacks, and the client's own number of it.
pub(crate) const CALLBACK_PROGRAM: u32 = 0x4000_0000;
pub(crate) const CALLBACK_IDENT: u32 = 77;

pub(crate) struct V40Client {
    pub(crate) rpc: RpcClient,
    pub(crate) client_id: u64,
    /// The numbers of the next requests of the open owner and of the lock owner.
    pub(crate) open_seqid: u32,
    pub(crate) lock_seqid: u32,
}

impl V40Client {
    /// Connects as a client that cannot be called.
    pub(crate) fn connect(address: SocketAddr, name: &str) -> Self {
        Self::connect_with(address, name, SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// Connects as a client that is called at an address.
    pub(crate) fn connect_with(address: SocketAddr, name: &str, callback: SocketAddr) -> Self {
        let rpc = RpcClient::connect(address);
        let mut client = Self { rpc, client_id: 0, open_seqid: 7, lock_seqid: 1 };
        client.set_client_id(name, callback);
        client
    }

    /// Makes the client known, or changes the address at which it is called.
    pub(crate) fn set_client_id(&mut self, name: &str, callback: SocketAddr) {
        let set = Operations::default().add(op::SETCLIENTID, |w| {
            w.fixed(&[1; 8]);
            w.opaque(name.as_bytes());
            w.u32(CALLBACK_PROGRAM);
            w.opaque(b"tcp");
            w.opaque(universal_address(callback).as_bytes());
            w.u32(CALLBACK_IDENT);
        });
        let read = |r: &mut Reader<'_>| (r.u64().unwrap(), r.fixed::<8>().unwrap());
        let (id, confirm) = self.run(&set).next(op::SETCLIENTID, read).unwrap();
        self.client_id = id;
        let confirm = Operations::default().add(op::SETCLIENTID_CONFIRM, |w| {
            w.u64(id);
            w.fixed(&confirm);
        });
        self.run(&confirm).skip(op::SETCLIENTID_CONFIRM).unwrap();
    }

    pub(crate) fn run(&mut self, operations: &Operations) -> Results {
        Results::new(self.rpc.call(COMPOUND, &operations.compound(0)))
    }

    pub(crate) fn handle(&mut self, path: &[&str]) -> Vec<u8> {
        let operations = path.iter().fold(Operations::root(), |all, name| all.lookup(name));
        let mut results = self.run(&operations.get_handle());
        results.skip(op::PUTROOTFH).unwrap();
        for _ in path {
            results.skip(op::LOOKUP).unwrap();
        }
        results.next(op::GETFH, |r| r.opaque(128).unwrap().to_vec()).unwrap()
    }

    /// The operations of an OPEN that makes the file, if it does not exist.
    pub(crate) fn open_operations(&self, dir: &[u8], name: &str, seqid: u32) -> Operations {
        let open = |w: &mut Writer| {
            for number in [seqid, 3, 0] {
                w.u32(number);
            }
            w.u64(self.client_id);
            w.opaque(b"owner");
            w.bool(true);
            w.u32(0);
            Bitmap::of(&[33]).write(w);
            w.opaque(&0o644_u32.to_be_bytes());
            w.u32(0);
            w.opaque(name.as_bytes());
        };
        Operations::at(dir).add(op::OPEN, open).get_handle()
    }

    /// The state, the flags, and the handle that an OPEN returns.
    pub(crate) fn read_open(results: &mut Results) -> Result<(StateId, u32, Vec<u8>), Status> {
        results.skip(op::PUTFH)?;
        let (state, flags) = results.next(op::OPEN, |r| {
            let state = StateId::parse(r).unwrap();
            r.fixed::<20>().unwrap();
            let flags = r.u32().unwrap();
            Bitmap::parse(r).unwrap();
            read_delegation(r);
            (state, flags)
        })?;
        let handle = results.next(op::GETFH, |r| r.opaque(128).unwrap().to_vec())?;
        Ok((state, flags, handle))
    }

    /// Opens a file, and confirms the owner if the server does not know it.
    pub(crate) fn open(&mut self, dir: &[u8], name: &str) -> Result<(StateId, Vec<u8>), Status> {
        let operations = self.open_operations(dir, name, self.open_seqid);
        self.open_seqid += 1;
        let (state, flags, file) = Self::read_open(&mut self.run(&operations))?;
        if flags & CONFIRM == 0 {
            return Ok((state, file));
        }
        let confirm = Operations::at(&file).add(op::OPEN_CONFIRM, |w| {
            state.write(w);
            w.u32(self.open_seqid);
        });
        self.open_seqid += 1;
        let mut results = self.run(&confirm);
        results.skip(op::PUTFH)?;
        Ok((results.next(op::OPEN_CONFIRM, |r| StateId::parse(r).unwrap())?, file))
    }

    /// Opens a file again that was open before the server restarted.
    pub(crate) fn reclaim_open(&mut self, file: &[u8]) -> Result<StateId, Status> {
        let operations = Operations::at(file).add(op::OPEN, |w| {
            for number in [self.open_seqid, 3, 0] {
                w.u32(number);
            }
            w.u64(self.client_id);
            w.opaque(b"owner");
            w.bool(false);
            w.u32(1);
            w.u32(0);
        });
        self.open_seqid += 1;
        let (state, flags, _) = Self::read_open(&mut self.run(&operations.get_handle()))?;
        assert_eq!(flags & CONFIRM, 0);
        Ok(state)
    }

    pub(crate) fn write(
        &mut self,
        file: &[u8],
        state: &StateId,
        bytes: &[u8],
    ) -> Result<u32, Status> {
        let operations = Operations::at(file).add(op::WRITE, |w| {
            state.write(w);
            w.u64(0);
            w.u32(2);
            w.opaque(bytes);
        });
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        results.next(op::WRITE, |r| r.u32().unwrap())
    }

    /// Locks the first bytes of a file as an owner that has not locked it yet.
    pub(crate) fn lock(
        &mut self,
        file: &[u8],
        open: &StateId,
        (length, is_reclaim): (u64, bool),
    ) -> Result<StateId, Status> {
        let operations = Operations::at(file).add(op::LOCK, |w| {
            w.u32(2);
            w.bool(is_reclaim);
            w.u64(0);
            w.u64(length);
            w.bool(true);
            w.u32(self.open_seqid);
            open.write(w);
            w.u32(self.lock_seqid);
            w.u64(self.client_id);
            w.opaque(b"locker");
        });
        self.open_seqid += 1;
        self.lock_seqid += 1;
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        results.next(op::LOCK, |r| StateId::parse(r).unwrap())
    }

    pub(crate) fn unlock(&mut self, file: &[u8], lock: &StateId) -> Result<StateId, Status> {
        let operations = Operations::at(file).add(op::LOCKU, |w| {
            w.u32(2);
            w.u32(self.lock_seqid);
            lock.write(w);
            w.u64(0);
            w.u64(u64::MAX);
        });
        self.lock_seqid += 1;
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        results.next(op::LOCKU, |r| StateId::parse(r).unwrap())
    }

    pub(crate) fn close(&mut self, file: &[u8], open: &StateId) -> Result<(), Status> {
        let operations = Operations::at(file).add(op::CLOSE, |w| {
            w.u32(self.open_seqid);
            open.write(w);
        });
        self.open_seqid += 1;
        let mut results = self.run(&operations);
        results.skip(op::PUTFH)?;
        results.next(op::CLOSE, |r| StateId::parse(r).unwrap()).map(drop)
    }
}
