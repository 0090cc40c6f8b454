//! Reading the records of a stream. A record counts once its bytes and its payload are verified.

use std::io::Read;

use ondisk::Order;
use ondisk::stream::{
    Begin, CHECKSUM_OFFSET, RECORD_SIZE, RawRecord, Record, StreamKind, detect_order,
};
use simd::fletcher::Fletcher4;

use crate::{Error, Result};

/// The first allocation for a payload, before any of it was read.
const FIRST_BUFFER: u64 = 1 << 20;
/// The most bytes that may follow a BEGIN record: a list of many snapshots and their properties.
const MAX_BEGIN_PAYLOAD: u64 = 256 << 20;

/// A record whose checksum, and that of the record after it, is verified.
#[derive(Clone, Debug)]
pub struct VerifiedRecord {
    /// The record.
    pub record: Record,
    /// The bytes that follow it.
    pub payload: Vec<u8>,
    /// Where it begins in the stream, in bytes.
    pub at: u64,
}

/// Reads a stream, and the streams that follow it.
pub struct StreamReader<R> {
    input: R,
    order: Order,
    sum: Fletcher4,
    /// Bytes read so far.
    at: u64,
    /// A record whose payload is not verified yet.
    held: Option<VerifiedRecord>,
    /// BEGIN was read, and END was not.
    is_open: bool,
    /// The streams are parts of a compound, which ends with an END of its own.
    in_compound: bool,
}

impl<R> std::fmt::Debug for StreamReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamReader(at byte {})", self.at)
    }
}

impl<R: Read> StreamReader<R> {
    /// Begins to read.
    pub fn new(input: R) -> Self {
        Self {
            input,
            order: Order::Little,
            sum: Fletcher4::new(false),
            at: 0,
            held: None,
            is_open: false,
            in_compound: false,
        }
    }

    /// The byte order of the stream that is being read.
    pub const fn order(&self) -> Order {
        self.order
    }

    /// Bytes read so far.
    pub const fn bytes(&self) -> u64 {
        self.at
    }

    /// Whether a compound stream was begun and its end was not read yet.
    pub const fn is_in_package(&self) -> bool {
        self.in_compound
    }

    /// The next record; `None` where the input ends behind a whole stream.
    pub fn next_record(&mut self) -> Result<Option<VerifiedRecord>> {
        let current = match self.held.take() {
            Some(held) => held,
            None => match self.read_record()? {
                Some(first) => first,
                None => return Ok(None),
            },
        };
        // END has no payload, and its own checksum is verified
        if !matches!(current.record, Record::End(_)) {
            let next = self.read_record()?.ok_or(Error::Truncated { bytes: self.at })?;
            self.held = Some(next);
        }
        Ok(Some(current))
    }

    fn read_record(&mut self) -> Result<Option<VerifiedRecord>> {
        let at = self.at;
        let bytes = self.read_bytes(RECORD_SIZE as u64)?;
        if bytes.is_empty() && !self.is_open {
            return Ok(None);
        }
        if bytes.len() < RECORD_SIZE {
            return Err(if at == 0 {
                Error::NotAStream
            } else {
                Error::Truncated { bytes: self.at }
            });
        }
        if !self.is_open {
            match detect_order(&bytes) {
                Some(order) => self.order = order,
                None if at == 0 => return Err(Error::NotAStream),
                None => {}
            }
            self.sum = Fletcher4::new(self.order == Order::Big);
        }
        let raw = RawRecord::parse(&bytes, self.order).map_err(|why| Error::Record { at, why })?;
        self.verify(&raw, &bytes, at)?;
        let payload = self.read_payload(&raw, at)?;
        self.sum.update(&payload);
        Ok(Some(VerifiedRecord { record: raw.record, payload, at }))
    }

    /// Checks the checksum of a record, and whether one of its type may stand here.
    fn verify(&mut self, raw: &RawRecord, bytes: &[u8], at: u64) -> Result<()> {
        let (body, checksum) = bytes.split_at_checked(CHECKSUM_OFFSET).unwrap_or((bytes, &[]));
        match (&raw.record, self.is_open) {
            (Record::Begin(begin), false) => {
                self.is_open = true;
                self.in_compound |= begin.kind == StreamKind::Compound;
            }
            // the end of a compound follows the end of its last part, and has no checksum
            (Record::End(_), false) if self.in_compound => {
                self.in_compound = false;
                return Ok(());
            }
            (Record::Begin(_), true) | (_, false) => return Err(misplaced(raw, at)),
            (_, true) => {}
        }
        let before = self.sum.finish();
        self.sum.update(body);
        // a compound's header ends with an END that has no checksum but the one in its body
        let is_exempt = matches!(raw.record, Record::Begin(_))
            || (matches!(raw.record, Record::End(_)) && raw.checksum == [0; 4]);
        if !is_exempt && raw.checksum != self.sum.finish() {
            return Err(Error::Checksum { at });
        }
        if let Record::End(end) = &raw.record {
            if end.checksum != before {
                return Err(Error::Checksum { at });
            }
            self.is_open = false;
        }
        self.sum.update(checksum);
        Ok(())
    }

    fn read_payload(&mut self, raw: &RawRecord, at: u64) -> Result<Vec<u8>> {
        if matches!(raw.record, Record::Begin(_)) && raw.payload_length > MAX_BEGIN_PAYLOAD {
            let found = raw.payload_length;
            let rule = "the list behind BEGIN is at most 256 MiB";
            let why = ondisk::Error::Rule { structure: "send stream record", at: 4, rule, found };
            return Err(Error::Record { at, why });
        }
        let payload = self.read_bytes(raw.payload_length)?;
        if u64::try_from(payload.len()) != Ok(raw.payload_length) {
            return Err(Error::Truncated { bytes: self.at });
        }
        Ok(payload)
    }

    /// Reads this many bytes, or all that is left.
    fn read_bytes(&mut self, length: u64) -> Result<Vec<u8>> {
        let room = units::to_usize(length.min(FIRST_BUFFER));
        let mut bytes = Vec::with_capacity(room);
        self.input.by_ref().take(length).read_to_end(&mut bytes)?;
        self.at += units::to_u64(bytes.len());
        Ok(bytes)
    }

    /// The first record, which must be BEGIN, and its payload.
    pub fn begin(&mut self) -> Result<(Begin, Vec<u8>)> {
        match self.next_record()? {
            Some(VerifiedRecord { record: Record::Begin(begin), payload, .. }) => {
                Ok((*begin, payload))
            }
            Some(_) | None => Err(Error::NotAStream),
        }
    }
}

fn misplaced(raw: &RawRecord, at: u64) -> Error {
    let rule = "a stream begins with BEGIN and ends with END";
    let found = raw.record.kind().into();
    Error::Record {
        at,
        why: ondisk::Error::Rule { structure: "send stream record", at: 0, rule, found },
    }
}
