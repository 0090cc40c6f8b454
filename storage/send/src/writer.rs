//! Writing the records of a stream: the running checksum, and free ranges that are joined.

use std::io::Write;

use ondisk::Order;
use ondisk::stream::{Begin, CHECKSUM_OFFSET, End, FreeObjects, FreeRange, Record, RedactRange};
use simd::fletcher::Fletcher4;

use crate::{Error, Result};

/// Writes a stream. Free ranges that touch one another become one record.
pub struct StreamWriter<'a> {
    out: &'a mut dyn Write,
    sum: Fletcher4,
    bytes: u64,
    pending: Option<PendingFree>,
}

/// A free range that may still grow.
enum PendingFree {
    Objects(FreeObjects),
    Range(FreeRange),
    Redacted(RedactRange),
}

impl std::fmt::Debug for StreamWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamWriter({} bytes)", self.bytes)
    }
}

impl<'a> StreamWriter<'a> {
    /// Begins a stream.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self { out, sum: Fletcher4::new(false), bytes: 0, pending: None }
    }

    /// Bytes written so far.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes a record and its payload, after a free range that is still pending.
    pub fn record(&mut self, record: &Record, payload: &[u8]) -> Result<()> {
        self.flush_pending()?;
        self.put(record, payload)
    }

    /// Notes that no object of a range exists.
    pub fn free_objects(&mut self, range: FreeObjects) -> Result<()> {
        if let Some(PendingFree::Objects(pending)) = &mut self.pending
            && pending.first.checked_add(pending.count) == Some(range.first)
        {
            pending.count = pending.count.wrapping_add(range.count);
            return Ok(());
        }
        self.flush_pending()?;
        self.pending = Some(PendingFree::Objects(range));
        Ok(())
    }

    /// Notes that a range of an object is a hole.
    pub fn free_range(&mut self, range: FreeRange) -> Result<()> {
        let reaches_end = range.offset.checked_add(range.length).is_none();
        if let Some(PendingFree::Range(pending)) = &mut self.pending
            && pending.object == range.object
            && pending.offset.wrapping_add(pending.length) == range.offset
        {
            let is_open = reaches_end || range.length == u64::MAX;
            let sum = pending.length.wrapping_add(range.length);
            pending.length = if is_open { u64::MAX } else { sum };
            return Ok(());
        }
        self.flush_pending()?;
        let length = if reaches_end { u64::MAX } else { range.length };
        let record = FreeRange { length, ..range };
        // a range that the caller leaves open never grows
        if range.length == u64::MAX {
            return self.put(&Record::Free(record), &[]);
        }
        self.pending = Some(PendingFree::Range(record));
        Ok(())
    }

    /// Notes that the stream leaves out a range of an object.
    pub fn redact_range(&mut self, range: RedactRange) -> Result<()> {
        if let Some(PendingFree::Redacted(pending)) = &mut self.pending
            && pending.object == range.object
            && pending.offset.checked_add(pending.length) == Some(range.offset)
        {
            pending.length = pending.length.wrapping_add(range.length);
            return Ok(());
        }
        self.flush_pending()?;
        self.pending = Some(PendingFree::Redacted(range));
        Ok(())
    }

    /// Begins a compound stream: the header, which is a stream of its own without records.
    pub fn begin_package(&mut self, begin: Begin, list: &[u8]) -> Result<()> {
        self.record(&Record::Begin(Box::new(begin)), list)?;
        let end = End { checksum: self.sum.finish(), to_guid: 0 };
        self.write(&Record::End(end).encode(Order::Little, 0))
    }

    /// Ends a compound stream.
    pub fn end_package(&mut self) -> Result<()> {
        self.write(&Record::End(End { checksum: [0; 4], to_guid: 0 }).encode(Order::Little, 0))?;
        self.out.flush().map_err(Error::from)
    }

    /// Ends the stream of a snapshot.
    pub fn end(&mut self, to_guid: u64) -> Result<()> {
        self.flush_pending()?;
        let checksum = self.sum.finish();
        self.put(&Record::End(End { checksum, to_guid }), &[])?;
        self.out.flush().map_err(Error::from)
    }

    /// Ends the stream of a partial snapshot. Without END its receiver saves what it has.
    pub fn end_partial(&mut self) -> Result<()> {
        self.flush_pending()?;
        self.out.flush().map_err(Error::from)
    }

    fn flush_pending(&mut self) -> Result<()> {
        match self.pending.take() {
            Some(PendingFree::Objects(range)) => self.put(&Record::FreeObjects(range), &[]),
            Some(PendingFree::Range(range)) => self.put(&Record::Free(range), &[]),
            Some(PendingFree::Redacted(range)) => self.put(&Record::Redact(range), &[]),
            None => Ok(()),
        }
    }

    fn put(&mut self, record: &Record, payload: &[u8]) -> Result<()> {
        let begin_payload = if matches!(record, Record::Begin(_)) {
            self.sum = Fletcher4::new(false);
            u32::try_from(payload.len()).map_err(|_| Error::Unsupported {
                what: "a stream header above 4 GiB".to_owned(),
            })?
        } else {
            check_payload(record, payload)?;
            0
        };
        let mut bytes = record.encode(Order::Little, begin_payload);
        let (body, checksum) = bytes.split_at_mut(CHECKSUM_OFFSET);
        assert_eq!(checksum.len(), 32, "a record ends with four words of a checksum");
        self.sum.update(body);
        if !matches!(record, Record::Begin(_)) {
            let words = self.sum.finish();
            for (field, word) in checksum.chunks_exact_mut(8).zip(words) {
                field.copy_from_slice(&word.to_le_bytes());
            }
        }
        self.sum.update(checksum);
        self.sum.update(payload);
        self.write(&bytes)?;
        self.write(payload)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        self.bytes = self.bytes.wrapping_add(bytes.len() as u64);
        Ok(())
    }
}

/// Refuses a payload of another length than its record says: the reader would take the rest for the next record. The lengths
/// come from block pointers and dnodes, which a damaged pool may have wrong.
fn check_payload(record: &Record, payload: &[u8]) -> Result<()> {
    if record.payload_length().unwrap_or(0) == units::to_u64(payload.len()) {
        return Ok(());
    }
    let object = match record {
        Record::Object(object) => object.object,
        Record::Write(write) => write.object,
        Record::WriteEmbedded(write) => write.object,
        Record::Spill(spill) => spill.object,
        _ => 0,
    };
    let why = "its content has another length than its pointer or dnode says";
    Err(Error::Invalid { record: record.name(), object, why })
}

#[cfg(test)]
mod tests {
    use ondisk::stream::{Record, Spill, Write};

    use super::StreamWriter;

    #[test]
    fn payload_has_the_length_of_its_record() {
        let mut out = Vec::new();
        let mut writer = StreamWriter::new(&mut out);
        let write = Write { object: 7, logical_size: 1024, ..Write::default() };
        let record = Record::Write(Box::new(write));
        let why = writer.record(&record, &[0; 512]).unwrap_err().to_string();
        assert!(why.contains("WRITE record of object 7"), "{why}");
        let spill = Record::Spill(Box::new(Spill { length: 512, ..Spill::default() }));
        assert!(writer.record(&spill, &[0; 1024]).is_err());
        assert_eq!(writer.bytes(), 0);
        writer.record(&record, &[1; 1024]).unwrap();
        assert_eq!(writer.bytes(), 312 + 1024);
    }
}
