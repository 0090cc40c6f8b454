//! A client of ONC RPC over TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nfs::wire::xdr::{Reader, Writer};

const AUTH_SYS: u32 = 1;

/// A connection.
pub(crate) struct RpcClient {
    pub(crate) stream: TcpStream,
    pub(crate) uid: u32,
    pub(crate) xid: u32,
}

impl RpcClient {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        // a test must not hang
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, uid: 0, xid: 100 }
    }

    /// The bytes of a call, without the record mark.
    pub(crate) fn message(&self, program: (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
        let mut writer = Writer::default();
        for number in [self.xid, 0, 2, program.0, program.1, program.2, AUTH_SYS] {
            writer.u32(number);
        }
        let mut auth = Writer::default();
        auth.u32(0);
        auth.opaque(b"test");
        for number in [self.uid, self.uid, 1, self.uid] {
            auth.u32(number);
        }
        writer.opaque(auth.as_bytes());
        writer.u32(0);
        writer.u32(0);
        writer.append(arguments);
        writer.into_bytes()
    }

    pub(crate) fn send(&mut self, message: &[u8]) {
        let mark = 1 << 31 | u32::try_from(message.len()).unwrap();
        self.stream.write_all(&[&mark.to_be_bytes(), message].concat()).unwrap();
    }

    /// The next record.
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).unwrap();
        let length = u32::from_be_bytes(mark) & 0x7fff_ffff;
        let mut record = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut record).unwrap();
        record
    }

    /// Calls a procedure with the next number. Returns its result.
    pub(crate) fn call(&mut self, program: (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
        self.xid += 1;
        self.call_again(program, arguments)
    }

    /// Calls a procedure with the last number once more.
    pub(crate) fn call_again(&mut self, program: (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
        let message = self.message(program, arguments);
        self.send(&message);
        let record = self.receive();
        let mut reader = Reader::new(&record);
        let header: Vec<u32> = (0..6).map(|_| reader.u32().unwrap()).collect();
        assert_eq!(header, [self.xid, 1, 0, 0, 0, 0], "the call is not accepted");
        reader.rest().to_vec()
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}
