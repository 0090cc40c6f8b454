//! The intent log of a volume laid over it in memory.

use std::sync::Arc;

use ondisk::zil::{Body, Write};
use zil::extents::{Content, Extents};
use zil::{Records, Stop, WrittenBlock};

/// What came of a log.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// How many records were applied.
    pub records: u64,
    /// Where the log came to its end; `None` if no log was given, or it was not read to its end.
    pub stop: Option<Stop>,
    /// The number of the record that no volume can have: there the replay ended.
    pub strange: Option<u64>,
}

/// The ranges that the records of `log` make.
pub(crate) fn apply(log: &mut Records) -> (Extents, Replayed) {
    let mut data = Extents::default();
    let mut out = Replayed::default();
    for entry in &mut *log {
        let Ok(entry) = entry else { break }; // the stop tells it
        match &entry.record.body {
            Body::Write(write) => put(&mut data, write, entry.block.as_ref()),
            Body::WritePlaced { .. } => {}
            Body::Truncate { offset, length, .. } => {
                data.put(*offset, offset.saturating_add(*length), Content::Zeros);
            }
            Body::Clone { offset, length, block_size, pointers, .. } => {
                let (mut at, end) = (*offset, offset.saturating_add(*length));
                for pointer in pointers {
                    let next = at.saturating_add(*block_size).min(end);
                    let pointer = Arc::new(pointer.clone());
                    data.put(at, next, Content::Block { pointer, skip: 0 });
                    at = next;
                }
            }
            _ => {
                out.strange = Some(entry.record.seq);
                return (data, out);
            }
        }
        out.records = out.records.saturating_add(1);
    }
    out.stop = log.stop().cloned();
    (data, out)
}

fn put(data: &mut Extents, write: &Write, block: Option<&WrittenBlock>) {
    let end = write.offset.saturating_add(write.length);
    if let Some(bytes) = &write.data {
        let content = Content::Bytes { all: bytes.as_slice().into(), skip: 0 };
        data.put(write.offset, end, content);
    } else if let Some(block) = block {
        let length = u64::try_from(block.content.len()).unwrap_or(0);
        let pointer = Arc::new(write.pointer.clone());
        let content = Content::Block { pointer, skip: 0 };
        data.put(block.offset, block.offset.saturating_add(length), content);
    } else {
        data.put(write.offset, end, Content::Zeros);
    }
}
