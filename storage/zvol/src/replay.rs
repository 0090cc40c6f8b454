//! The intent log of a volume laid over it in memory.

use std::sync::Arc;

use ondisk::zil::{Body, Write};
use zil::extents::{ExtentContent, LogExtents};
use zil::{LogEnd, LogReader, WrittenBlock};

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplaySummary {
    /// How many records were applied.
    pub records: u64,
    /// Where the log came to its end; `None` if no log was given, or it was not read to its end.
    pub log_end: Option<LogEnd>,
    /// The number of the record that no volume can have: there the replay ended.
    pub unexpected_record: Option<u64>,
}

/// The ranges that the records of `log` make.
pub(crate) fn apply_log(log: &mut LogReader) -> (LogExtents, ReplaySummary) {
    let mut data = LogExtents::default();
    let mut out = ReplaySummary::default();
    for entry in &mut *log {
        let Ok(entry) = entry else { break }; // the stop reports it
        match &entry.record.body {
            Body::Write(write) => apply_write(&mut data, write, entry.block.as_ref()),
            Body::WriteSynced { .. } => {}
            Body::Truncate { offset, length, .. } => {
                data.insert(*offset, offset.saturating_add(*length), ExtentContent::Zeros);
            }
            Body::Clone { offset, length, block_size, pointers, .. } => {
                let (mut at, end) = (*offset, offset.saturating_add(*length));
                for pointer in pointers {
                    let next = at.saturating_add(*block_size).min(end);
                    let pointer = Arc::new(pointer.clone());
                    data.insert(at, next, ExtentContent::Block { pointer, skip: 0 });
                    at = next;
                }
            }
            _ => {
                out.unexpected_record = Some(entry.record.seq);
                return (data, out);
            }
        }
        out.records = out.records.saturating_add(1);
    }
    out.log_end = log.end().cloned();
    (data, out)
}

fn apply_write(data: &mut LogExtents, write: &Write, block: Option<&WrittenBlock>) {
    let end = write.offset.saturating_add(write.length);
    if let Some(bytes) = &write.data {
        let content = ExtentContent::Bytes { data: bytes.as_slice().into(), skip: 0 };
        data.insert(write.offset, end, content);
    } else if let Some(block) = block {
        let length = units::to_u64(block.content.len());
        let pointer = Arc::new(write.pointer.clone());
        let content = ExtentContent::Block { pointer, skip: 0 };
        data.insert(block.offset, block.offset.saturating_add(length), content);
    } else {
        data.insert(write.offset, end, ExtentContent::Zeros);
    }
}
