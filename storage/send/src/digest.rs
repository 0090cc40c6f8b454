//! The sum of a stream's content: equal for two streams of the same snapshot, however their blocks are cut.
//!
//! Two systems may send the same snapshot in different records. So the sum is over the sectors that are not zeros, each with
//! its object and its offset, and over the attributes of each object. Ranges that are free add nothing.

use std::borrow::Cow;
use std::io::Read;

use ondisk::Order;
use ondisk::blkptr::Checksum;
use ondisk::stream::{BlockCrypt, Record, StreamFeatures, StreamKind, Write};

use crate::receiver::decompress_write;
use crate::{Error, Result, StreamReader, VerifiedRecord};

/// Bytes of a piece of content.
const SECTOR: usize = 512;
/// Bytes that are summed at once.
const BUFFER: usize = 1 << 20;
/// The tag of attributes, in place of an offset.
const ATTRIBUTES: u64 = u64::MAX;
/// The tag of a spill block.
const SPILL: u64 = u64::MAX - 1;

/// The sum of a stream's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentDigest {
    /// SHA-256 of the content.
    pub sum: [u64; 4],
    /// Bytes of file content and attributes.
    pub bytes: u64,
    /// The guid of the snapshot.
    pub to_guid: u64,
}

/// Reads the full stream of one snapshot to its end, and verifies its checksums.
pub fn content_digest(input: impl Read) -> Result<ContentDigest> {
    let mut reader = StreamReader::new(input);
    let (begin, _) = reader.begin()?;
    if begin.kind != StreamKind::Snapshot || begin.from_guid != 0 {
        let what = "the sum of a stream that is not the full stream of one snapshot".to_owned();
        return Err(Error::Unsupported { what });
    }
    let is_raw = begin.features.has(StreamFeatures::RAW);
    let mut sum = Sum::default();
    loop {
        let bytes = reader.bytes();
        let found = reader.next_record()?.ok_or(Error::Truncated { bytes })?;
        if matches!(found.record, Record::End(_)) {
            break;
        }
        sum.add_record(&found, is_raw)?;
    }
    sum.flush()?;
    Ok(ContentDigest { sum: sum.state, bytes: sum.bytes, to_guid: begin.to_guid })
}

#[derive(Default)]
struct Sum {
    state: [u64; 4],
    buffer: Vec<u8>,
    bytes: u64,
}

impl Sum {
    fn add_record(&mut self, found: &VerifiedRecord, is_raw: bool) -> Result<()> {
        match &found.record {
            Record::Object(record) => {
                let kinds = [record.kind.0, record.bonus_kind.0, record.dnode_slots];
                self.add(record.object, ATTRIBUTES, &kinds)?;
                self.add_sectors(record.object, ATTRIBUTES, &found.payload)
            }
            Record::Write(write) if is_raw => {
                self.add_crypt((write.object, write.offset), &write.crypt)?;
                self.add_sectors(write.object, write.offset, &found.payload)
            }
            Record::Write(write) => {
                self.add_sectors(write.object, write.offset, &plain(write, &found.payload)?)
            }
            Record::Spill(spill) => {
                if is_raw {
                    self.add_crypt((spill.object, SPILL), &spill.crypt)?;
                }
                self.add_sectors(spill.object, SPILL, &found.payload)
            }
            Record::ObjectRange(range) => self.add_crypt((range.first, ATTRIBUTES), &range.crypt),
            Record::Free(_) | Record::FreeObjects(_) => Ok(()),
            record => {
                let what = format!("the sum of a stream with a {} record", record.name());
                Err(Error::Unsupported { what })
            }
        }
    }

    fn add_crypt(&mut self, (object, at): (u64, u64), crypt: &BlockCrypt) -> Result<()> {
        let bytes = [&crypt.salt[..], &crypt.iv, &crypt.mac].concat();
        self.add(object, at, &bytes)
    }

    fn add_sectors(&mut self, object: u64, offset: u64, content: &[u8]) -> Result<()> {
        self.bytes += units::to_u64(content.len());
        if offset >= SPILL {
            return self.add(object, offset, content);
        }
        for (index, sector) in (0_u64..).zip(content.chunks(SECTOR)) {
            if sector.iter().any(|byte| *byte != 0) {
                let at = offset.checked_add(index * SECTOR as u64);
                let why = "its range is invalid";
                self.add(
                    object,
                    at.ok_or(Error::Invalid { record: "WRITE", object, why })?,
                    sector,
                )?;
            }
        }
        Ok(())
    }

    fn add(&mut self, object: u64, at: u64, bytes: &[u8]) -> Result<()> {
        for word in [object, at, units::to_u64(bytes.len())] {
            self.buffer.extend_from_slice(&word.to_le_bytes());
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    /// Folds the buffer into the sum.
    fn flush(&mut self) -> Result<()> {
        for word in self.state {
            self.buffer.extend_from_slice(&word.to_le_bytes());
        }
        let sum = transform::checksum::compute(Checksum::Sha256, &self.buffer, Order::Little, None);
        let what = "SHA-256".to_owned();
        self.state = sum.map_err(|_| Error::Unsupported { what })?;
        self.buffer.clear();
        Ok(())
    }
}

/// The content of a block.
fn plain<'a>(write: &Write, payload: &'a [u8]) -> Result<Cow<'a, [u8]>> {
    if write.compression == 0 {
        return Ok(payload.into());
    }
    Ok(decompress_write(write, payload)?.into())
}
