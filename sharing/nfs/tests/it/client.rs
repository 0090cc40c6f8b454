//! A client of ONC RPC over TCP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nfs::wire::xdr::{Reader, Writer};

const AUTH_SYS: u32 = 1;

/// A connection.
pub(crate) struct RpcClient {
    pub(crate) stream: TcpStream,
    pub(crate) uid: u32,
    pub(crate) xid: u32,
    /// Connects again and repeats a call when the connection breaks, as a hard mount does.
    pub(crate) is_hard: bool,
}

/// A server that does not come back within this time fails a test.
const LIMIT: Duration = Duration::from_mins(2);

impl RpcClient {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        // a test must not hang
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, uid: 0, xid: 100, is_hard: false }
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

    /// Connects as soon as the server listens.
    pub(crate) fn connect_patiently(address: SocketAddr) -> Self {
        let last = Instant::now() + LIMIT;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < last, "nothing listens on {address}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self::connect(address)
    }

    pub(crate) fn send(&mut self, message: &[u8]) {
        self.try_send(message).unwrap();
    }

    fn try_send(&mut self, message: &[u8]) -> io::Result<()> {
        let mark = 1 << 31 | u32::try_from(message.len()).unwrap();
        self.stream.write_all(&[&mark.to_be_bytes(), message].concat())
    }

    /// The next record.
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        self.try_receive().unwrap()
    }

    fn try_receive(&mut self) -> io::Result<Vec<u8>> {
        let mut record = Vec::new();
        self.receive_into(&mut record)?;
        Ok(record)
    }

    /// Receives a reply into a buffer that is used again.
    pub(crate) fn receive_into(&mut self, record: &mut Vec<u8>) -> io::Result<()> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let length = u32::from_be_bytes(mark) & 0x7fff_ffff;
        record.resize(usize::try_from(length).unwrap(), 0);
        self.stream.read_exact(record)
    }

    /// Calls a procedure with the next number. Returns its result.
    pub(crate) fn call(&mut self, program: (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
        self.xid += 1;
        self.call_again(program, arguments)
    }

    /// Calls a procedure with the last number once more.
    pub(crate) fn call_again(&mut self, program: (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
        let address = self.stream.peer_addr();
        loop {
            match self.try_call_again(program, arguments) {
                Ok(result) => return result,
                Err(_) if self.is_hard => {
                    let Self { uid, xid, is_hard, .. } = *self;
                    let connected = Self::connect_patiently(*address.as_ref().unwrap());
                    *self = Self { uid, xid, is_hard, ..connected };
                }
                Err(why) => panic!("the connection breaks: {why}"),
            }
        }
    }

    /// Calls a procedure with the next number. An error means that the connection broke.
    pub(crate) fn try_call(
        &mut self,
        program: (u32, u32, u32),
        arguments: &[u8],
    ) -> io::Result<Vec<u8>> {
        self.xid += 1;
        self.try_call_again(program, arguments)
    }

    fn try_call_again(
        &mut self,
        program: (u32, u32, u32),
        arguments: &[u8],
    ) -> io::Result<Vec<u8>> {
        let message = self.message(program, arguments);
        self.try_send(&message)?;
        let record = self.try_receive()?;
        let mut reader = Reader::new(&record);
        let header: Vec<u32> = (0..6).map(|_| reader.u32().unwrap()).collect();
        assert_eq!(header, [self.xid, 1, 0, 0, 0, 0], "the call is not accepted");
        Ok(reader.rest().to_vec())
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}
