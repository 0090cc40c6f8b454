//! A small host: PDUs are built and read here apart from the crate's own code. The tests of the program share this
//! file.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The name of the subsystem.
pub(crate) const SUBSYSTEM: &str = "nqn.2026-01.org.example:disk";
/// The name of the discovery subsystem.
pub(crate) const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Opcodes.
pub(crate) const FLUSH: u8 = 0x00;
pub(crate) const WRITE: u8 = 0x01;
pub(crate) const READ: u8 = 0x02;
pub(crate) const COMPARE: u8 = 0x05;
pub(crate) const IDENTIFY: u8 = 0x06;
pub(crate) const GET_LOG_PAGE: u8 = 0x02;
pub(crate) const SET_FEATURES: u8 = 0x09;
pub(crate) const FABRICS: u8 = 0x7f;

/// Bytes of a logical block.
pub(crate) const BLOCK: usize = 512;
/// Bytes of data that fit into a capsule.
const CAPSULE: usize = 16 << 10;

/// A submission queue entry.
#[derive(Clone, Copy)]
pub(crate) struct Entry(pub(crate) [u8; 64]);

impl Entry {
    pub(crate) fn new(opcode: u8, namespace: u32) -> Self {
        let mut bytes = [0; 64];
        bytes[0] = opcode;
        bytes[1] = 0x40;
        bytes[4..8].copy_from_slice(&namespace.to_le_bytes());
        Self(bytes)
    }

    pub(crate) fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn dword(self, number: usize, value: u32) -> Self {
        self.put(number * 4, &value.to_le_bytes())
    }

    pub(crate) fn blocks(self, first: u64, count: u16) -> Self {
        self.put(40, &first.to_le_bytes()).put(48, &(count - 1).to_le_bytes())
    }

    pub(crate) fn fuse(mut self, place: u8) -> Self {
        self.0[1] |= place;
        self
    }

    /// The descriptor of data: in the capsule, or in PDUs of their own.
    pub(crate) fn data(self, length: usize, is_in_capsule: bool) -> Self {
        let kind = if is_in_capsule { 0x01 } else { 0x5a };
        let length = u32::try_from(length).expect("short");
        self.put(24, &[0; 8]).put(32, &length.to_le_bytes()).put(39, &[kind])
    }
}

/// A PDU of the controller.
#[derive(Debug)]
pub(crate) struct Pdu {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) header: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

/// A completed command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Completed {
    /// Status type and code; 0: success.
    pub(crate) status: u16,
    pub(crate) result: u64,
    pub(crate) data: Vec<u8>,
}

/// A connection.
pub(crate) struct Queue {
    pub(crate) stream: TcpStream,
    header_digest: bool,
    data_digest: bool,
    next_id: u16,
}

pub(crate) fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
        }
    }
    (!sum).to_le_bytes()
}

pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

impl Queue {
    /// A connection that is initialized. `digests`: 1 headers, 2 data.
    pub(crate) fn open(address: SocketAddr, digests: u8) -> Self {
        Self::open_aligned(address, digests, 0)
    }

    /// A connection whose data lie at multiples of 4 bytes times `alignment` and one.
    pub(crate) fn open_aligned(address: SocketAddr, digests: u8, alignment: u8) -> Self {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        let mut request = [0; 128];
        request[2] = 128;
        request[4] = 128;
        request[10] = alignment;
        request[11] = digests;
        stream.write_all(&request).expect("a request");
        let mut response = [0; 128];
        stream.read_exact(&mut response).expect("a response");
        assert_eq!((response[0], response[2], response[4]), (1, 128, 128));
        assert_eq!(response[11], digests);
        assert!(le32(&response, 12) >= 4096);
        Self { stream, header_digest: digests & 1 != 0, data_digest: digests & 2 != 0, next_id: 0 }
    }

    /// A PDU with its digests.
    pub(crate) fn encode(&self, kind: u8, header: &[u8], data: &[u8], flags: u8) -> Vec<u8> {
        let size = 8 + header.len();
        let data_at = size + if self.header_digest { 4 } else { 0 };
        let mut length = data_at;
        let mut flags = flags | u8::from(self.header_digest);
        if !data.is_empty() {
            length += data.len() + if self.data_digest { 4 } else { 0 };
            flags |= u8::from(self.data_digest) << 1;
        }
        let offset = if data.is_empty() { 0 } else { data_at };
        let byte = |number: usize| u8::try_from(number).expect("short");
        let mut pdu = vec![kind, flags, byte(size), byte(offset)];
        pdu.extend(u32::try_from(length).expect("short").to_le_bytes());
        pdu.extend(header);
        if self.header_digest {
            let digest = crc32c(&pdu);
            pdu.extend(digest);
        }
        pdu.extend(data);
        if self.data_digest && !data.is_empty() {
            pdu.extend(crc32c(data));
        }
        pdu
    }

    /// Sends a command, and returns its number.
    pub(crate) fn submit(&mut self, entry: Entry, data: &[u8]) -> u16 {
        self.next_id = self.next_id.wrapping_add(1);
        let entry = entry.put(2, &self.next_id.to_le_bytes());
        let pdu = self.encode(4, &entry.0, data, 0);
        self.stream.write_all(&pdu).expect("a command");
        self.next_id
    }

    /// The next PDU. None: the controller has closed the connection.
    pub(crate) fn receive(&mut self) -> Option<Pdu> {
        let mut common = [0; 8];
        self.stream.read_exact(&mut common).ok()?;
        let length = usize::try_from(le32(&common, 4)).expect("64 bits");
        let mut rest = vec![0; length - 8];
        self.stream.read_exact(&mut rest).expect("the rest of a PDU");
        let (kind, flags, size) = (common[0], common[1], usize::from(common[2]));
        let whole = [&common[..], &rest].concat();
        let header = whole[..size].to_vec();
        if flags & 1 != 0 {
            assert_eq!(whole[size..size + 4], crc32c(&header), "a header digest");
        }
        let data_at = usize::from(common[3]);
        let mut data =
            if kind == 3 || data_at == 0 { Vec::new() } else { whole[data_at..].to_vec() };
        if flags & 2 != 0 {
            let digest = data.split_off(data.len() - 4);
            assert_eq!(digest, crc32c(&data), "a data digest");
        }
        Some(Pdu { kind, flags, header, data })
    }

    /// Waits for the end of a command, and sends the data that it asks for.
    pub(crate) fn complete(&mut self, id: u16, out: &[u8]) -> Completed {
        let mut data = Vec::new();
        loop {
            let pdu = self.receive().expect("a connection");
            match pdu.kind {
                5 => {
                    assert_eq!(le16(&pdu.header, 20), id, "{pdu:?}");
                    let status = le16(&pdu.header, 22) >> 1 & 0x7ff;
                    return Completed { status, result: le64(&pdu.header, 8), data };
                }
                7 => {
                    assert_eq!(le16(&pdu.header, 8), id);
                    data.extend(pdu.data);
                    if pdu.flags & 8 != 0 {
                        return Completed { status: 0, result: 0, data };
                    }
                }
                9 => self.send_data(&pdu.header, out),
                _ => panic!("{pdu:?}"),
            }
        }
    }

    /// Sends the data that the controller is ready for, in two PDUs if there are enough.
    pub(crate) fn send_data(&mut self, ready: &[u8], out: &[u8]) {
        let size = |at| usize::try_from(le32(ready, at)).expect("64 bits");
        let (start, length) = (size(12), size(16));
        let half = if length > 8192 { length / 2 } else { length };
        for (from, to) in [(0, half), (half, length)] {
            if from == to {
                continue;
            }
            let number = |number: usize| u32::try_from(number).expect("short").to_le_bytes();
            let header =
                [&ready[8..12], &number(start + from), &number(to - from), &[0; 4]].concat();
            let part = &out[start + from..start + to];
            let pdu = self.encode(6, &header, part, if to == length { 4 } else { 0 });
            self.stream.write_all(&pdu).expect("data");
        }
    }

    /// Carries out a command that has no data.
    pub(crate) fn run(&mut self, entry: Entry) -> Completed {
        let id = self.submit(entry.data(0, false), &[]);
        self.complete(id, &[])
    }

    /// Carries out a command with data for the controller.
    pub(crate) fn run_with(&mut self, entry: Entry, out: &[u8]) -> Completed {
        let is_in_capsule = out.len() <= CAPSULE;
        let entry = entry.data(out.len(), is_in_capsule);
        let id = self.submit(entry, if is_in_capsule { out } else { &[] });
        self.complete(id, out)
    }

    /// Carries out a command with data for the host.
    pub(crate) fn run_for(&mut self, entry: Entry, length: usize) -> Completed {
        let id = self.submit(entry.data(length, false), &[]);
        self.complete(id, &[])
    }

    pub(crate) fn read(&mut self, first: u64, count: u16) -> Completed {
        self.run_for(Entry::new(READ, 1).blocks(first, count), usize::from(count) * BLOCK)
    }

    pub(crate) fn write(&mut self, first: u64, data: &[u8]) -> Completed {
        let count = u16::try_from(data.len() / BLOCK).expect("short");
        self.run_with(Entry::new(WRITE, 1).blocks(first, count), data)
    }

    pub(crate) fn read_property(&mut self, offset: u32, is_long: bool) -> Completed {
        let entry = Entry::new(FABRICS, 4).put(40, &[u8::from(is_long)]).dword(11, offset);
        self.run(entry)
    }

    pub(crate) fn write_property(&mut self, offset: u32, value: u32) -> Completed {
        self.run(Entry::new(FABRICS, 0).dword(11, offset).dword(12, value))
    }
}

/// A Connect.
#[derive(Clone, Copy)]
pub(crate) struct Connect<'a> {
    pub(crate) queue: u16,
    pub(crate) controller: u16,
    pub(crate) host: u8,
    pub(crate) subsystem: &'a str,
    pub(crate) keep_alive: u32,
    pub(crate) last_entry: u16,
    pub(crate) attributes: u8,
}

impl Default for Connect<'_> {
    fn default() -> Self {
        Self {
            queue: 0,
            controller: 0xffff,
            host: 1,
            subsystem: SUBSYSTEM,
            keep_alive: 0,
            last_entry: 31,
            attributes: 0,
        }
    }
}

/// The name of a host.
pub(crate) fn host_name(host: u8) -> String {
    format!("nqn.2026-01.org.example:host-{host}")
}

impl Connect<'_> {
    pub(crate) fn run(&self, queue: &mut Queue) -> Completed {
        let entry = Entry::new(FABRICS, 1)
            .put(42, &self.queue.to_le_bytes())
            .put(44, &self.last_entry.to_le_bytes())
            .put(46, &[self.attributes])
            .dword(12, self.keep_alive);
        let mut data = [0; 1024];
        data[..16].fill(self.host);
        data[16..18].copy_from_slice(&self.controller.to_le_bytes());
        let host = host_name(self.host);
        data[256..256 + self.subsystem.len()].copy_from_slice(self.subsystem.as_bytes());
        data[512..512 + host.len()].copy_from_slice(host.as_bytes());
        queue.run_with(entry, &data)
    }
}

/// A host with an admin queue and an I/O queue.
pub(crate) struct Host {
    pub(crate) admin: Queue,
    pub(crate) io: Queue,
    pub(crate) controller: u16,
}

/// Enables a controller whose admin queue is connected.
pub(crate) fn enable(admin: &mut Queue) {
    let enabled = 0x0046_0001;
    assert_eq!(admin.write_property(0x14, enabled).status, 0);
    assert_eq!(admin.read_property(0x1c, false).result, 1);
}

impl Host {
    pub(crate) fn connect(address: SocketAddr, host: u8) -> Self {
        Self::connect_with(address, 0, Connect { host, ..Connect::default() })
    }

    pub(crate) fn connect_with(address: SocketAddr, digests: u8, connect: Connect<'_>) -> Self {
        let mut admin = Queue::open(address, digests);
        let connected = connect.run(&mut admin);
        assert_eq!(connected.status, 0, "{connected:?}");
        let controller = u16::try_from(connected.result & 0xffff).expect("16 bits");
        enable(&mut admin);
        let mut io = Queue::open(address, digests);
        let of_io = Connect { queue: 1, controller, keep_alive: 0, ..connect };
        assert_eq!(of_io.run(&mut io).status, 0);
        Self { admin, io, controller }
    }

    pub(crate) fn identify(&mut self, page: u8, namespace: u32) -> Completed {
        let entry = Entry::new(IDENTIFY, namespace).dword(10, page.into());
        self.admin.run_for(entry, 4096)
    }

    pub(crate) fn log_page(&mut self, page: u8, length: usize) -> Completed {
        log_page(&mut self.admin, page, length)
    }
}

pub(crate) fn log_page(admin: &mut Queue, page: u8, length: usize) -> Completed {
    let dwords = u32::try_from(length / 4 - 1).expect("short");
    let entry = Entry::new(GET_LOG_PAGE, u32::MAX).dword(10, u32::from(page) | dwords << 16);
    admin.run_for(entry, length)
}
