//! The logs of dedup: changes that are not yet in the tables (fast_dedup).
//!
//! Header (bonus of the log's object):
//!
//! ```text
//! offset  size  field       meaning
//!      0     8  info        bits 0-7 version (1), 8-15 flags: 1 being flushed, 2 has a checkpoint
//!      8     8  length      bytes of the log
//!     16     8  first_txg   when it came into use
//!     24    40  checkpoint  the last key that was flushed, see mod.rs
//!     64
//! ```
//!
//! Each block of the log is a row of records, none across its end; the first one of type 0 ends
//! it. A record is a word (bits 0-7 type: 1 is an entry; 8-23 bytes of the record with this word;
//! 48-55 type of the table, 56-63 its class), a key and a value. A later record of the same key
//! takes the place of an earlier one; keys up to the checkpoint are in the tables already.
//!
//! Learnt from: `zdb -DDDDD` of the fixture `dedup-fast`. Proved by: `golden_dedup_log`.

use units::Txg;

use super::{Class, DedupKey, DedupValue, Shape};
use crate::writer::FixedWriter;
use crate::{Error, Order, Reader, Result};

const STRUCTURE: &str = "dedup log";

/// The head of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogHeader {
    /// Whether it is being emptied into the tables; the other log takes the new changes.
    pub flushing: bool,
    /// Bytes of the log.
    pub length: u64,
    /// When it came into use.
    pub first_txg: Txg,
    /// Up to this key, in the order of keys, it was emptied. The words of the key.
    pub checkpoint: Option<[u64; 5]>,
}

impl LogHeader {
    /// Bytes on disk.
    pub const SIZE: usize = 64;

    /// Reads the bonus.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let info = reader.u64()?;
        let [version, flags, ..] = info.to_le_bytes();
        if version != 1 {
            let found = u64::from(version);
            return Err(Error::Unknown { structure: STRUCTURE, field: "version", found });
        }
        let length = reader.u64()?;
        let first_txg = Txg::new(reader.u64()?);
        let key = reader.words()?;
        let checkpoint = (flags & 2 != 0).then_some(key);
        Ok(Self { flushing: flags & 1 != 0, length, first_txg, checkpoint })
    }

    /// The bonus, little-endian.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let flags = u64::from(self.flushing) | (u64::from(self.checkpoint.is_some()) << 1);
        let mut bytes = [0; Self::SIZE];
        let mut room = FixedWriter::new(&mut bytes);
        room.u64(1 | (flags << 8)).u64(self.length).u64(self.first_txg.get());
        for word in self.checkpoint.unwrap_or_default() {
            room.u64(word);
        }
        bytes
    }
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// The block.
    pub key: DedupKey,
    /// The new state of the entry; an entry without references is removed.
    pub value: DedupValue,
    /// The class it was found in when last read from a table; `None`: it was in no table.
    pub class: Option<Class>,
}

/// Reads the records of one block of a log; ends at its end, or after an error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    reader: Reader<'a>,
    shape: Shape,
}

impl<'a> Records<'a> {
    /// Over a block of the log.
    pub const fn new(block: &'a [u8], order: Order, shape: Shape) -> Self {
        Self { reader: Reader::new(STRUCTURE, block, order), shape }
    }

    fn record(&mut self) -> Result<Option<LogEntry>> {
        if self.reader.remaining() < 8 {
            return Ok(None);
        }
        let [kind, low, high, _, _, _, _, class] = self.reader.u64()?.to_le_bytes();
        match kind {
            0 => return Ok(None),
            1 => {}
            _ => {
                let found = u64::from(kind);
                return Err(Error::Unknown { structure: STRUCTURE, field: "record type", found });
            }
        }
        let length = u16::from_le_bytes([low, high]);
        let Some(content) = usize::from(length).checked_sub(8) else {
            return Err(self.reader.corrupt_field(
                8,
                "a record holds its own head",
                u64::from(length),
            ));
        };
        let mut inner = Reader::new(STRUCTURE, self.reader.bytes(content)?, self.reader.order());
        let key = DedupKey::read(&mut inner)?;
        let value = DedupValue::read(&mut inner, self.shape)?;
        Ok(Some(LogEntry { key, value, class: Class::from_number(class) }))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<LogEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.record();
        if !matches!(record, Ok(Some(_))) {
            self.reader.rest();
        }
        record.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::{LogHeader, Records};
    use crate::dedup::{Class, Shape};
    use crate::{Order, Reader};

    fn record(kind: u64, length: u64) -> Vec<u8> {
        let mut words = [0_u64; 15];
        words[0] = kind | (length << 8) | (2 << 56);
        words[1] = 42;
        words[12] = 3;
        words[13] = 9;
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn records_end_at_first_empty_record() {
        let mut block = [record(1, 120), record(1, 120)].concat();
        block.resize(4096, 0);
        let all: Vec<_> = Records::new(&block, Order::Little, Shape::Flat).collect();
        assert_eq!(all.len(), 2);
        let entry = all[0].clone().unwrap();
        assert_eq!((entry.key.sum[0], entry.class), (42, Some(Class::Unique)));
        assert_eq!(entry.value.references(), 3);
    }

    #[test]
    fn invalid_record_ends_the_log() {
        for (kind, length) in [(2, 120), (1, 4), (1, 0xffff), (1, 40)] {
            let block = record(kind, length);
            let mut all = Records::new(&block, Order::Little, Shape::Flat);
            assert!(all.next().unwrap().is_err());
            assert!(all.next().is_none());
        }
    }

    #[test]
    fn header_checkpoint_follows_its_flag() {
        let words = [0x0301_u64, 4096, 7, 1, 2, 3, 4, 5];
        let raw: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let header = LogHeader::read(&mut Reader::new("h", &raw, Order::Little)).unwrap();
        assert!(header.flushing);
        assert_eq!(header.encode()[..], raw);
        assert_eq!((header.length, header.checkpoint), (4096, Some([1, 2, 3, 4, 5])));
        assert!(LogHeader::read(&mut Reader::new("h", &raw, Order::Big)).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            Records::new(&bytes, Order::Little, Shape::Flat).for_each(drop);
            Records::new(&bytes, Order::Big, Shape::Traditional).for_each(drop);
            let _ = LogHeader::read(&mut Reader::new("h", &bytes, Order::Big));
        }
    }
}
