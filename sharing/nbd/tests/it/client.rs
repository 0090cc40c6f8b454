//! A client of the protocol that shares no code with the server.

use std::collections::{HashMap, HashSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const CACHE: u16 = 5;
pub(crate) const WRITE_ZEROES: u16 = 6;
pub(crate) const BLOCK_STATUS: u16 = 7;

pub(crate) const FUA: u16 = 1;
pub(crate) const NO_HOLE: u16 = 2;
pub(crate) const DF: u16 = 4;
pub(crate) const REQ_ONE: u16 = 8;
pub(crate) const FAST_ZERO: u16 = 16;

/// A test does not wait longer than this for a server that hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// A connection to a server.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    is_structured: bool,
    /// Bytes of the export.
    pub(crate) size: u64,
    pub(crate) flags: u16,
    /// Minimum, preferred and maximum block size.
    pub(crate) block_sizes: Vec<u32>,
    next_cookie: u64,
    /// Offsets and lengths of reads that are not answered yet.
    reads: HashMap<u64, (u64, u32)>,
    replies: HashMap<u64, Reply>,
    /// The cookies of replies that are complete.
    complete: HashSet<u64>,
}

/// All of the reply to one request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reply {
    /// The error; 0: none.
    pub(crate) error: u32,
    pub(crate) message: String,
    /// Offsets, with data or with the length of a hole.
    pub(crate) content: Vec<(u64, Result<Vec<u8>, u32>)>,
    /// Lengths and states.
    pub(crate) extents: Vec<(u32, u32)>,
}

impl Reply {
    /// The data of a READ at an offset: all chunks, which must cover it.
    pub(crate) fn data(&self, offset: u64) -> Vec<u8> {
        assert_eq!(self.error, 0, "{}", self.message);
        let (mut all, mut at) = (Vec::new(), offset);
        for (start, chunk) in &self.content {
            assert_eq!(*start, at, "chunks in order");
            match chunk {
                Ok(bytes) => all.extend_from_slice(bytes),
                Err(length) => all.extend(vec![0; *length as usize]),
            }
            at = offset + all.len() as u64;
        }
        all
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

pub(crate) fn text(name: &str) -> Vec<u8> {
    let length = u32::try_from(name.len()).unwrap();
    [&length.to_be_bytes(), name.as_bytes()].concat()
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::connect_with_flags(address, 3)
    }

    pub(crate) fn connect_with_flags(address: SocketAddr, flags: u32) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Self {
            stream,
            is_structured: false,
            size: 0,
            flags: 0,
            block_sizes: Vec::new(),
            next_cookie: 1,
            reads: HashMap::new(),
            replies: HashMap::new(),
            complete: HashSet::new(),
        };
        assert_eq!(client.read(18), b"NBDMAGICIHAVEOPT\0\x03");
        client.stream.write_all(&flags.to_be_bytes()).unwrap();
        client
    }

    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("an answer");
        bytes
    }

    /// Whether the server has closed the connection, after whatever it still sent.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => {
                    return matches!(
                        error.kind(),
                        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                    );
                }
            }
        }
    }

    pub(crate) fn send_option(&mut self, option: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap();
        let header = [b"IHAVEOPT".as_slice(), &option.to_be_bytes(), &length.to_be_bytes()];
        self.stream.write_all(&[&header.concat(), payload].concat()).unwrap();
    }

    /// Sends an option; the replies to it, of which the last is ACK (1) or an error.
    pub(crate) fn option(&mut self, option: u32, payload: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send_option(option, payload);
        let mut replies = Vec::new();
        loop {
            let header = self.read(20);
            assert_eq!(number(&header[..8]), 0x3e889045565a9);
            assert_eq!(number(&header[8..12]), u64::from(option));
            let kind = u32::try_from(number(&header[12..16])).unwrap();
            let payload = self.read(usize::try_from(number(&header[16..])).unwrap());
            replies.push((kind, payload));
            if kind == 1 || kind >> 31 == 1 {
                return replies;
            }
        }
    }

    pub(crate) fn use_structured_replies(&mut self) {
        assert_eq!(self.option(8, &[]), [(1, Vec::new())]);
        self.is_structured = true;
    }

    pub(crate) fn select_block_status(&mut self, export: &str) {
        let payload =
            [text(export), 1_u32.to_be_bytes().to_vec(), text("base:allocation")].concat();
        let context = [&[0, 0, 0, 1], b"base:allocation".as_slice()].concat();
        assert_eq!(self.option(10, &payload), [(4, context), (1, Vec::new())]);
    }

    /// Starts the transmission of an export; the kind of the reply if it is refused.
    pub(crate) fn go(&mut self, export: &str) -> Result<(), u32> {
        let payload = [text(export), vec![0, 1, 0, 3]].concat();
        for (kind, payload) in self.option(7, &payload) {
            match (kind, payload.get(1)) {
                (3, Some(0)) => {
                    self.size = number(&payload[2..10]);
                    self.flags = u16::try_from(number(&payload[10..12])).unwrap();
                }
                (3, Some(3)) => {
                    let sizes = payload[2..].chunks(4).map(number);
                    self.block_sizes = sizes.map(|size| u32::try_from(size).unwrap()).collect();
                }
                (1, _) => return Ok(()),
                _ => return Err(kind),
            }
        }
        unreachable!("the last reply is ACK or an error")
    }

    /// Sends a request; its cookie.
    pub(crate) fn send(&mut self, (command, flags): (u16, u16), offset: u64, length: u32) -> u64 {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let request = [
            0x25609513_u32.to_be_bytes().to_vec(),
            flags.to_be_bytes().to_vec(),
            command.to_be_bytes().to_vec(),
            cookie.to_be_bytes().to_vec(),
            offset.to_be_bytes().to_vec(),
            length.to_be_bytes().to_vec(),
        ];
        self.stream.write_all(&request.concat()).unwrap();
        if command == READ {
            self.reads.insert(cookie, (offset, length));
        }
        cookie
    }

    pub(crate) fn send_write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u64 {
        let cookie = self.send((WRITE, flags), offset, u32::try_from(data.len()).unwrap());
        self.stream.write_all(data).unwrap();
        cookie
    }

    /// The reply to a request, whatever other replies come before it.
    pub(crate) fn reply(&mut self, cookie: u64) -> Reply {
        while !self.complete.remove(&cookie) {
            self.receive();
        }
        self.replies.remove(&cookie).expect("a reply that is complete")
    }

    /// Receives a chunk or a simple reply.
    fn receive(&mut self) {
        let magic = number(&self.read(4));
        if magic == 0x67446698 {
            let error = u32::try_from(number(&self.read(4))).unwrap();
            let found = number(&self.read(8));
            let length = self.reads.remove(&found);
            assert!(
                error != 0 || length.is_none() || !self.is_structured,
                "reads have structured replies"
            );
            let mut reply = Reply { error, ..Reply::default() };
            if let (Some((offset, length)), 0) = (length, error) {
                let data = self.read(length as usize);
                reply.content.push((offset, Ok(data)));
            }
            self.replies.insert(found, reply);
            self.complete.insert(found);
            return;
        }
        assert_eq!(magic, 0x668e33ef);
        let header = self.read(16);
        let kind = number(&header[2..4]);
        let found = number(&header[4..12]);
        let payload = self.read(usize::try_from(number(&header[12..])).unwrap());
        let reply = self.replies.entry(found).or_default();
        let short = |bytes: &[u8]| u32::try_from(number(bytes)).unwrap();
        match kind {
            0 => assert!(payload.is_empty()),
            1 => reply.content.push((number(&payload[..8]), Ok(payload[8..].to_vec()))),
            2 => reply.content.push((number(&payload[..8]), Err(short(&payload[8..])))),
            5 => {
                assert_eq!(number(&payload[..4]), 1);
                let extents = payload[4..].chunks(8);
                reply.extents =
                    extents.map(|bytes| (short(&bytes[..4]), short(&bytes[4..]))).collect();
            }
            0x8001 => {
                reply.error = short(&payload[..4]);
                reply.message = String::from_utf8(payload[6..].to_vec()).unwrap();
            }
            _ => panic!("chunk of kind {kind}"),
        }
        if header[1] & 1 == 1 {
            self.reads.remove(&found);
            self.complete.insert(found);
        }
    }

    pub(crate) fn request(&mut self, command: (u16, u16), offset: u64, length: u32) -> Reply {
        let cookie = self.send(command, offset, length);
        self.reply(cookie)
    }

    pub(crate) fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> Reply {
        let cookie = self.send_write(flags, offset, data);
        self.reply(cookie)
    }
}
