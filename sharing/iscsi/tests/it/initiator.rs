//! An initiator for the tests: it sends right or wrong PDUs as instructed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A read that takes longer fails the test.
const LIMIT: Duration = Duration::from_mins(1);
/// The name of the initiator.
pub(crate) const INITIATOR: &str = "iqn.2026-01.org.example:initiator";
/// No task.
pub(crate) const NO_TAG: u32 = u32::MAX;

/// A PDU as it is sent and received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pdu {
    pub(crate) header: [u8; 48],
    pub(crate) data: Vec<u8>,
}

impl Pdu {
    pub(crate) fn new(opcode: u8, flags: u8, data: &[u8]) -> Self {
        let mut header = [0; 48];
        header[..2].copy_from_slice(&[opcode, flags]);
        let length = u32::try_from(data.len()).unwrap().to_be_bytes();
        header[5..8].copy_from_slice(&length[1..]);
        Self { header, data: data.to_vec() }
    }

    pub(crate) fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.header[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn u32(self, at: usize, value: u32) -> Self {
        self.put(at, &value.to_be_bytes())
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.header[0] & 0x3f
    }

    pub(crate) fn at(&self, at: usize) -> u32 {
        u32::from_be_bytes(*self.header[at..].first_chunk().unwrap())
    }

    /// Keys of a login or text response.
    pub(crate) fn keys(&self) -> Vec<(String, String)> {
        let text = String::from_utf8(self.data.clone()).unwrap();
        let parts = text.split_terminator('\0');
        parts
            .map(|part| part.split_once('=').unwrap())
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    }

    pub(crate) fn key(&self, key: &str) -> Option<String> {
        self.keys().into_iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Class and detail of a login response.
    pub(crate) fn login_status(&self) -> u16 {
        u16::from_be_bytes([self.header[36], self.header[37]])
    }
}

/// The answer to a command.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u8,
    /// Sense key, additional code, qualifier.
    pub(crate) sense: (u8, u8, u8),
    pub(crate) data: Vec<u8>,
    /// 0x04 overflow, 0x02 underflow, and the bytes.
    pub(crate) residual: (u8, u32),
}

impl Response {
    /// The data of a command that succeeded.
    pub(crate) fn good(self) -> Vec<u8> {
        assert_eq!((self.status, self.sense), (0, (0, 0, 0)), "{self:?}");
        self.data
    }

    /// The sense of a command that failed.
    pub(crate) fn check(self) -> (u8, u8, u8) {
        assert_eq!(self.status, 2, "{self:?}");
        self.sense
    }
}

/// A connected initiator.
pub(crate) struct Initiator {
    pub(crate) stream: TcpStream,
    pub(crate) cmd_sn: u32,
    next_tag: u32,
    pub(crate) digests: bool,
    /// Bytes of immediate data that it sends, and of a data-out PDU.
    pub(crate) immediate: usize,
    pub(crate) segment: usize,
    pub(crate) lun: u8,
    isid: u8,
    /// The asynchronous messages that came.
    pub(crate) notices: Vec<Pdu>,
}

impl Initiator {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::connect_as(address, 1)
    }

    /// An initiator port of its own for each number.
    pub(crate) fn connect_as(address: SocketAddr, isid: u8) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        Self {
            stream,
            cmd_sn: 7,
            next_tag: 1,
            digests: false,
            immediate: 8192,
            segment: 8192,
            lun: 0,
            isid,
            notices: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, pdu: &Pdu) {
        let mut bytes = pdu.header.to_vec();
        if self.digests {
            bytes.extend(iscsi::wire::digest(&[&pdu.header]));
        }
        let padding = vec![0; pdu.data.len().wrapping_neg() % 4];
        bytes.extend(&pdu.data);
        bytes.extend(&padding);
        if self.digests && !pdu.data.is_empty() {
            bytes.extend(iscsi::wire::digest(&[&pdu.data, &padding]));
        }
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next PDU but asynchronous messages; none: the target closed the connection.
    pub(crate) fn receive(&mut self) -> Option<Pdu> {
        loop {
            let pdu = self.receive_any()?;
            if pdu.opcode() != 0x32 {
                return Some(pdu);
            }
            self.notices.push(pdu);
        }
    }

    fn receive_any(&mut self) -> Option<Pdu> {
        let mut header = [0; 48];
        if let Err(error) = self.stream.read_exact(&mut header) {
            let is_closed = !matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            );
            assert!(is_closed, "the target does not answer");
            return None;
        }
        let mut digest = [0; 4];
        if self.digests {
            self.stream.read_exact(&mut digest).ok()?;
            assert_eq!(digest, iscsi::wire::digest(&[&header]));
        }
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]);
        let length = usize::try_from(length).unwrap();
        let mut data = vec![0; length.next_multiple_of(4)];
        self.stream.read_exact(&mut data).ok()?;
        if self.digests && length > 0 {
            self.stream.read_exact(&mut digest).ok()?;
            assert_eq!(digest, iscsi::wire::digest(&[&data]));
        }
        data.truncate(length);
        Some(Pdu { header, data })
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        self.receive().is_none()
    }

    /// A login request with keys from a stage to another (4: it stays).
    pub(crate) fn login_step(&mut self, stage: u8, next: u8, keys: &[(&str, &str)]) -> Pdu {
        let text: String = keys.iter().map(|(key, value)| format!("{key}={value}\0")).collect();
        let flags = stage << 2 | if next == 4 { 0 } else { 0x80 | next };
        let pdu = Pdu::new(0x43, flags, text.as_bytes())
            .put(8, &[0x80, 0, 0, 0, 0, self.isid])
            .u32(16, 0)
            .u32(24, self.cmd_sn);
        self.send(&pdu);
        self.receive().expect("a login response")
    }

    /// Logs in to a target without authentication.
    pub(crate) fn log_in(mut self, target: &str, keys: &[(&str, &str)]) -> Self {
        let names = [("InitiatorName", INITIATOR), ("TargetName", target)];
        let response = self.login_step(1, 3, &[&names[..], keys].concat());
        assert_eq!(response.login_status(), 0);
        assert_eq!(response.header[1], 0x87);
        self.digests = response.key("HeaderDigest").as_deref() == Some("CRC32C");
        self
    }

    fn encoded_lun(&self) -> [u8; 8] {
        [0, self.lun, 0, 0, 0, 0, 0, 0]
    }

    pub(crate) fn take_tag(&mut self) -> u32 {
        self.next_tag += 1;
        self.next_tag
    }

    /// The PDU of a command with its number and without data. Flags: 0x40 read, 0x20 write, 0x80 final.
    pub(crate) fn command_pdu(
        &mut self,
        flags: u8,
        cdb: &[u8],
        expected: usize,
        data: &[u8],
    ) -> Pdu {
        let tag = self.take_tag();
        let pdu = Pdu::new(0x01, flags, data)
            .put(8, &self.encoded_lun())
            .u32(16, tag)
            .u32(20, u32::try_from(expected).unwrap())
            .u32(24, self.cmd_sn)
            .put(32, cdb);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        pdu
    }

    /// Sends a command that reads at most so many bytes. Returns its tag.
    pub(crate) fn send_read(&mut self, cdb: &[u8], expected: usize) -> u32 {
        let pdu = self.command_pdu(0xc1, cdb, expected, &[]);
        self.send(&pdu);
        pdu.at(16)
    }

    /// Sends a command with data, all of which comes immediately or is asked for. Returns its tag.
    pub(crate) fn send_write(&mut self, cdb: &[u8], data: &[u8]) -> u32 {
        let now = self.immediate.min(data.len());
        let pdu = self.command_pdu(0xa1, cdb, data.len(), &data[..now]);
        self.send(&pdu);
        pdu.at(16)
    }

    pub(crate) fn read(&mut self, cdb: &[u8], expected: usize) -> Response {
        let tag = self.send_read(cdb, expected);
        self.answer(tag, &[])
    }

    pub(crate) fn write(&mut self, cdb: &[u8], data: &[u8]) -> Response {
        let tag = self.send_write(cdb, data);
        self.answer(tag, data)
    }

    /// Receives the answer to a command, and sends the data that the target asks for.
    pub(crate) fn answer(&mut self, tag: u32, data: &[u8]) -> Response {
        let mut received = Vec::new();
        let mut data_sn = 0;
        loop {
            let pdu = self.receive().expect("an answer");
            assert_eq!(pdu.at(16), tag, "{pdu:?}");
            match pdu.opcode() {
                0x25 => {
                    assert_eq!(pdu.at(36), data_sn);
                    assert_eq!(usize::try_from(pdu.at(40)).unwrap(), received.len());
                    data_sn += 1;
                    received.extend(&pdu.data);
                    if pdu.header[1] & 1 != 0 {
                        let residual = (pdu.header[1] & 6, pdu.at(44));
                        return Response {
                            status: pdu.header[3],
                            sense: (0, 0, 0),
                            data: received,
                            residual,
                        };
                    }
                }
                0x31 => self.send_solicited(&pdu, data),
                0x21 => {
                    let sense = match pdu.data.get(2..) {
                        Some(sense) => (sense[2], sense[12], sense[13]),
                        None => (0, 0, 0),
                    };
                    let residual = (pdu.header[1] & 6, pdu.at(44));
                    return Response { status: pdu.header[3], sense, data: received, residual };
                }
                _ => panic!("{pdu:?}"),
            }
        }
    }

    /// Sends the data that an R2T requests.
    pub(crate) fn send_solicited(&mut self, r2t: &Pdu, data: &[u8]) {
        let index = |number: u32| usize::try_from(number).unwrap();
        let (start, end) = (index(r2t.at(40)), index(r2t.at(40) + r2t.at(44)));
        let (mut at, mut data_sn) = (start, 0);
        while at < end {
            let to = end.min(at + self.segment);
            let pdu = self.data_out(r2t, data_sn, at, &data[at..to]);
            let pdu = pdu.put(1, &[if to == end { 0x80 } else { 0 }]);
            self.send(&pdu);
            (at, data_sn) = (to, data_sn + 1);
        }
    }

    /// A data-out PDU for an R2T.
    pub(crate) fn data_out(&self, r2t: &Pdu, data_sn: u32, at: usize, data: &[u8]) -> Pdu {
        Pdu::new(0x05, 0x80, data)
            .put(8, &self.encoded_lun())
            .u32(16, r2t.at(16))
            .u32(20, r2t.at(20))
            .u32(36, data_sn)
            .u32(40, u32::try_from(at).unwrap())
    }

    /// Sends a task management request, for immediate delivery. Returns its tag.
    pub(crate) fn send_management(&mut self, function: u8, referenced: u32) -> u32 {
        let tag = self.take_tag();
        let pdu = Pdu::new(0x42, 0x80 | function, &[])
            .put(8, &self.encoded_lun())
            .u32(16, tag)
            .u32(20, referenced)
            .u32(24, self.cmd_sn);
        self.send(&pdu);
        tag
    }

    /// Carries out a task management request; its result.
    pub(crate) fn manage(&mut self, function: u8, referenced: u32) -> u8 {
        let tag = self.send_management(function, referenced);
        let pdu = self.receive().expect("a task management response");
        assert_eq!((pdu.opcode(), pdu.at(16)), (0x22, tag));
        pdu.header[2]
    }

    /// Takes the unit attentions that there are.
    pub(crate) fn attentions(&mut self) -> Vec<(u8, u8)> {
        let mut found = Vec::new();
        loop {
            let answer = self.read(&[0; 6], 0);
            if answer.status == 0 {
                return found;
            }
            let (key, code, qualifier) = answer.check();
            assert_eq!(key, 6);
            found.push((code, qualifier));
        }
    }
}

/// READ(10), by blocks.
pub(crate) fn read10(lba: u32, blocks: u16) -> Vec<u8> {
    [&[0x28, 0][..], &lba.to_be_bytes(), &[0], &blocks.to_be_bytes(), &[0]].concat()
}

/// WRITE(10); flags: 0x08 FUA.
pub(crate) fn write10(flags: u8, lba: u32, blocks: u16) -> Vec<u8> {
    [&[0x2a, flags][..], &lba.to_be_bytes(), &[0], &blocks.to_be_bytes(), &[0]].concat()
}
