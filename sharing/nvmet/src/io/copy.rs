//! Copy: ranges of a namespace, one after the other, to a place in it.
//!
//! A source range (format 0):
//! ```text
//! offset  size  field
//!      0     8  -
//!      8     8  first block
//!     16     2  blocks, less 1
//!     18    14  -
//!     32
//! ```
//! Learnt from: NVM Express NVM Command Set Specification 1.0, section 3.2.2.

use std::ops::Range;

use lun::{AccessKind, CopyError};

use super::{Outcome, Unit};
use crate::wire::command::Command;
use crate::wire::completion::Status;
use crate::wire::{le16, le64};

/// Blocks of one source range.
pub(crate) const MAX_COPY_BLOCKS: u16 = 32768;
/// Source ranges of one command.
pub(crate) const MAX_COPY_RANGES: u8 = 16;
/// Bytes of a source range in the data.
const RANGE_SIZE: usize = 32;

impl Unit<'_> {
    /// Copies ranges. A failure of the first range that is not copied ends the command.
    pub(super) fn copy(&self, command: &Command, data: &[u8]) -> Outcome {
        let _admitted = self.admit(AccessKind::Write)?;
        let may_read =
            self.namespace.unit.reservations().check(&self.nexus(), AccessKind::Read).is_ok();
        if !may_read {
            return Err(Status::RESERVATION_CONFLICT.into());
        }
        let [count, format, ..] = command.dword(12).to_le_bytes();
        if format & 0x0f != 0 {
            return Err(Status::INVALID_FIELD.into());
        }
        if count >= MAX_COPY_RANGES {
            return Err(Status::COPY_LIMIT.into());
        }
        let count = usize::from(count) + 1;
        let ranges = data.get(..count * RANGE_SIZE).ok_or(Status::SGL_LENGTH)?;
        let (ranges, _) = ranges.as_chunks::<RANGE_SIZE>();
        let (mut sources, mut blocks) = (Vec::new(), 0);
        for range in ranges {
            let count = u64::from(le16(range, 16)) + 1;
            if count > MAX_COPY_BLOCKS.into() {
                return Err(Status::COPY_LIMIT.into());
            }
            blocks += count;
            sources.push(self.block_range(le64(range, 8), count)?);
        }
        let destination = self.block_range(command.dwords(10), blocks)?;
        let overlaps =
            |source: &Range<u64>| source.start < destination.end && destination.start < source.end;
        if sources.iter().any(overlaps) {
            return Err(Status::INVALID_FIELD.into());
        }
        let unit = &*self.namespace.unit;
        let mut at = destination.start;
        for source in sources {
            let length = source.end - source.start;
            let copied = lun::copy(unit, source, (unit, at), self.durability(command));
            copied.map_err(|error| match error {
                CopyError::Read(error) => self.read_failure(&error),
                CopyError::Write(error) => self.write_failure(&error),
            })?;
            at += length;
        }
        Ok(0)
    }
}
