//! A stream that is being received: the snapshots in it, one after the other.
//!
//! ```text
//! one snapshot     BEGIN (snapshot) · records · END
//! compound stream  BEGIN (compound) with a list · END
//!                  BEGIN (snapshot) · records · END   for each snapshot
//!                  END without checksum
//! ```

use std::io::Read;

use ondisk::nvlist::Nvlist;
use ondisk::stream::{
    Begin, BeginFlags, CryptKeydata, Package, Record, StreamFeatures, StreamKind,
};
use send::{Redaction, ResumePoint, StreamReader, VerifiedRecord, check_receivable};

use crate::{Error, Result};

/// A stream that is being received.
pub struct StreamInput<'a> {
    pub(super) reader: StreamReader<&'a mut dyn Read>,
    /// The name of the top snapshot, and the list, of a compound stream.
    compound: Option<(String, Option<Package>)>,
    /// The BEGIN record of the next snapshot, and its payload.
    next: Option<(Begin, Vec<u8>)>,
}

impl std::fmt::Debug for StreamInput<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamInput(at byte {})", self.reader.bytes())
    }
}

/// A snapshot in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamHeader {
    /// Its full name on the sender.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// The guid of the snapshot on which the stream is based; 0: a full stream.
    pub from_guid: u64,
    /// The base is the origin of a clone.
    pub is_clone: bool,
    /// The stream resumes an interrupted one.
    pub is_resuming: bool,
    /// The stream leaves blocks out.
    pub is_redacted: bool,
}

/// The BEGIN record of a snapshot's stream, checked, and its payload.
pub(super) struct BegunStream {
    pub(super) begin: Begin,
    /// The position at which the stream resumes.
    pub(super) resume: Option<ResumePoint>,
    /// The wrapped key, in a raw stream.
    pub(super) keydata: Option<CryptKeydata>,
    /// The redaction snapshots of the stream and of its base, without the blocks.
    pub(super) redaction: Redaction,
}

/// The wrapped key behind the BEGIN record of a raw stream.
fn read_keydata(payload: &[u8]) -> std::result::Result<CryptKeydata, send::Error> {
    let damaged = |why| send::Error::Record { at: 0, why };
    let list = Nvlist::decode(payload).map_err(damaged)?;
    let missing = || send::Error::Unsupported { what: "a raw stream without its key".to_owned() };
    CryptKeydata::decode(list.nvlist(CryptKeydata::NAME).ok_or_else(missing)?).map_err(damaged)
}

fn stream_error(why: &send::Error) -> Error {
    Error::Refused { what: format!("cannot receive: {why}") }
}

impl<'a> StreamInput<'a> {
    /// Reads the head of a stream.
    pub fn open(input: &'a mut dyn Read) -> Result<Self> {
        let mut reader = StreamReader::new(input);
        let (begin, payload) = reader.begin().map_err(|why| stream_error(&why))?;
        if begin.kind == StreamKind::Snapshot {
            return Ok(Self { reader, compound: None, next: Some((begin, payload)) });
        }
        let damaged = |why: ondisk::Error| stream_error(&send::Error::Record { at: 0, why });
        let package = Package::decode(&payload).map_err(damaged)?;
        let name = String::from_utf8_lossy(&begin.to_name).into_owned();
        let mut input = Self { reader, compound: Some((name, package)), next: None };
        // the END of the list
        input.next_record()?;
        Ok(input)
    }

    /// The name of the top snapshot on the sender, if the stream is compound.
    pub fn compound_name(&self) -> Option<&str> {
        self.compound.as_ref().map(|(name, _)| name.as_str())
    }

    /// Whether the stream is of one snapshot, so that its receiver may name it.
    pub fn has_one_snapshot(&self) -> bool {
        let Some((_, package)) = &self.compound else { return true };
        let Some(package) = package.as_ref().filter(|package| !package.is_recursive) else {
            return false;
        };
        let is_base = |name: &String| package.from_snapshot.as_ref() == Some(name);
        let snapshots = package.datasets.iter().flat_map(|dataset| &dataset.snapshots);
        snapshots.filter(|(name, _)| !is_base(name)).count() == 1
    }

    /// The file systems of a compound stream, with their properties.
    pub fn package(&self) -> Option<&Package> {
        self.compound.as_ref()?.1.as_ref()
    }

    /// Bytes read so far.
    pub const fn bytes(&self) -> u64 {
        self.reader.bytes()
    }

    /// The next snapshot; `None` at the end of the stream.
    pub fn next_snapshot(&mut self) -> Result<Option<StreamHeader>> {
        if self.next.is_none() && self.compound.is_some() && self.reader.is_in_package() {
            let record = self.next_record()?;
            match record.record {
                Record::Begin(begin) => self.next = Some((*begin, record.payload)),
                Record::End(_) => return Ok(None),
                _ => return Err(stream_error(&send::Error::NotAStream)),
            }
        }
        let Some((begin, _)) = &self.next else { return Ok(None) };
        Ok(Some(StreamHeader {
            name: String::from_utf8_lossy(&begin.to_name).into_owned(),
            guid: begin.to_guid,
            from_guid: begin.from_guid,
            is_clone: begin.flags.has(BeginFlags::CLONE),
            is_resuming: begin.features.has(StreamFeatures::RESUMING),
            is_redacted: begin.features.has(StreamFeatures::REDACTED),
        }))
    }

    /// Reads past the next snapshot, also if its BEGIN record was read already.
    pub fn skip_snapshot(&mut self) -> Result<()> {
        self.next = None;
        while !matches!(self.next_record()?.record, Record::End(_)) {}
        Ok(())
    }

    /// The BEGIN record of the next snapshot.
    pub(super) fn take_begin(&mut self) -> Result<BegunStream> {
        self.next_snapshot()?;
        let (begin, payload) =
            self.next.take().ok_or_else(|| stream_error(&send::Error::NotAStream))?;
        check_receivable(&begin, self.reader.order()).map_err(|why| stream_error(&why))?;
        let resume = if begin.features.has(StreamFeatures::RESUMING) {
            let missing = || send::Error::Unsupported {
                what: "a resumed stream without its place".to_owned(),
            };
            let point = ResumePoint::from_payload(&payload);
            Some(point.ok_or_else(|| stream_error(&missing()))?)
        } else {
            None
        };
        let keydata = if begin.features.has(StreamFeatures::RAW) {
            Some(read_keydata(&payload).map_err(|why| stream_error(&why))?)
        } else {
            None
        };
        let [snaps, base_snaps] = Redaction::snaps_from_payload(&payload);
        if begin.features.has(StreamFeatures::REDACTED) && snaps.is_none() {
            let what = "a redacted stream without its redaction snapshots".to_owned();
            return Err(stream_error(&send::Error::Unsupported { what }));
        }
        // of a sender that does not announce it, a list alone does not make the stream redacted
        let snaps = snaps.filter(|_| begin.features.has(StreamFeatures::REDACTED));
        let redaction = Redaction { snaps, base_snaps, ..Redaction::default() };
        Ok(BegunStream { begin, resume, keydata, redaction })
    }

    fn next_record(&mut self) -> Result<VerifiedRecord> {
        let record = self.reader.next_record().map_err(|why| stream_error(&why))?;
        let bytes = self.reader.bytes();
        record.ok_or_else(|| stream_error(&send::Error::Truncated { bytes }))
    }
}
