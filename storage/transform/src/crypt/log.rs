//! Log blocks: the fields that claiming needs are readable without a key, the changes are not.
//!
//! ```text
//! offset  size  field      since  meaning
//!      0     8  padding    v1
//!      8   128  next       v1     pointer to the next block of the log
//!    136     8  used       v1     bytes of this block in use, this header included
//!    144    40  seal       v1     magic and checksum; its second half is the block's code
//!    184     -  records    v1
//! ```
//!
//! Every record begins with its type, its length, its txg and its sequence number, 8 bytes each.
//! Authenticated are the header up to the seal, those 32 bytes of every record, the block pointer
//! of a write (at 64 in the record) and the count and block pointers of a clone (from 64 on). The
//! rest of each record is encrypted. Bytes behind the used part decrypt to zeros.
//!
//! Learnt from: the logs of an encrypted pool that lost power. Proved by: `tests/it`.

use std::ops::Range;

use ondisk::Order;

use super::fields::{POINTER, word};
use crate::Error;

const USED_AT: usize = 136;
const HEADER: usize = 144;
const RECORDS_AT: usize = 184;
const RECORD: usize = 32;
const POINTERS_AT: usize = 64;
const WRITE: u64 = 9;
const CLONE: u64 = 24;

/// The parts of a log block as its cipher sees them.
pub(super) struct LogParts {
    pub(super) encrypted: Vec<Range<usize>>,
    pub(super) used: usize,
}

/// The parts of a log block that are encrypted; the authenticated parts are appended to `aad`.
pub(super) fn encrypted_parts(
    block: &[u8],
    order: Order,
    aad: &mut Vec<u8>,
) -> Result<LogParts, Error> {
    let header = block.get(..HEADER).ok_or(corrupt("it is cut off"))?;
    let used = number(header, USED_AT, order)?;
    let used = usize::try_from(used).map_err(|_| corrupt("more is used than there is"))?;
    let records = block.get(..used).ok_or(corrupt("more is used than there is"))?;
    if used < RECORDS_AT {
        return Err(corrupt("less is used than its header"));
    }
    aad.extend_from_slice(header);
    let mut private = Vec::new();
    let mut at = RECORDS_AT;
    while at < used {
        let record = &records[at..];
        let kind = number(record, 0, order)?;
        let len = usize::try_from(number(record, 8, order)?).unwrap_or(usize::MAX);
        let record = record.get(..len).ok_or(corrupt("a record goes past the used part"))?;
        aad.extend_from_slice(record.get(..RECORD).ok_or(corrupt("a record is too short"))?);
        for part in encrypted_record_parts(kind, record, aad)? {
            if !part.is_empty() {
                private.push(at + part.start..at + part.end);
            }
        }
        at += len;
    }
    Ok(LogParts { encrypted: private, used })
}

/// The encrypted parts within one record, at most two.
fn encrypted_record_parts(
    kind: u64,
    record: &[u8],
    aad: &mut Vec<u8>,
) -> Result<[Range<usize>; 2], Error> {
    let end = record.len();
    let open_until = match kind {
        WRITE => POINTERS_AT + POINTER,
        CLONE => end.max(POINTERS_AT),
        _ => return Ok([RECORD..end, end..end]),
    };
    let open = record.get(POINTERS_AT..open_until).ok_or(corrupt("a record is too short"))?;
    aad.extend_from_slice(open);
    Ok([RECORD..POINTERS_AT, open_until..end])
}

fn number(bytes: &[u8], at: usize, order: Order) -> Result<u64, Error> {
    let chunk = bytes.get(at..).and_then(|b| b.first_chunk());
    Ok(word(*chunk.ok_or(corrupt("a record is too short"))?, order))
}

fn corrupt(rule: &'static str) -> Error {
    Error::CorruptLayout { structure: "a log block", rule }
}
