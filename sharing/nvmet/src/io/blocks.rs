//! Read, Write, Compare, Write Zeroes, Verify, Dataset Management.

use std::ops::Range;

use lun::{AccessKind, Compared};

use super::{Outcome, Unit};
use crate::wire::command::Command;
use crate::wire::completion::Status;
use crate::wire::{le32, le64};

/// Bytes that a command without data of its own reads at once.
const PIECE: u64 = 1 << 20;
/// Bytes of a range of Dataset Management: attributes (4), blocks (4), first block (8).
const RANGE_SIZE: usize = 16;

/// The bytes of a buffer, or of part of one.
pub(super) fn byte_count(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("64 bits")
}

/// The bytes of a piece.
pub(super) fn piece_size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("pieces are short")
}

/// Refuses data that are not those of a range.
fn check_length(range: &Range<u64>, data: &[u8]) -> Result<(), Status> {
    let is_right = range.end - range.start == byte_count(data);
    if is_right { Ok(()) } else { Err(Status::SGL_LENGTH) }
}

impl Unit<'_> {
    pub(super) fn read(&self, command: &Command, data_in: &mut [u8]) -> Outcome {
        let _admitted = self.admit(AccessKind::Read)?;
        let range = self.range(command)?;
        check_length(&range, data_in)?;
        let unit = &self.namespace.unit;
        if command.dword(12) & 1 << 30 != 0 {
            // FUA: the medium is to have what is read
            unit.flush().map_err(|error| self.read_failure(&error))?;
        }
        unit.read(range.start, data_in).map_err(|error| self.read_failure(&error))?;
        Ok(0)
    }

    pub(super) fn write(&self, command: &Command, data: &[u8]) -> Outcome {
        let _admitted = self.admit(AccessKind::Write)?;
        let range = self.range(command)?;
        check_length(&range, data)?;
        let done = self.namespace.unit.write(range.start, data, self.durability(command));
        done.map_err(|error| self.write_failure(&error))?;
        Ok(0)
    }

    pub(super) fn compare(&self, command: &Command, data: &[u8]) -> Outcome {
        let _admitted = self.admit(AccessKind::Read)?;
        let range = self.range(command)?;
        check_length(&range, data)?;
        let mut found = vec![0; data.len()];
        let done = self.namespace.unit.read(range.start, &mut found);
        done.map_err(|error| self.read_failure(&error))?;
        if found == data { Ok(0) } else { Err(Status::COMPARE_FAILURE.into()) }
    }

    /// A fused pair: the range of the write, the expected data, the new data.
    pub(super) fn compare_and_write(
        &self,
        (write, expected): (&Command, &[u8]),
        new: &[u8],
    ) -> Outcome {
        let _admitted = self.admit(AccessKind::Write)?;
        let range = self.range(write)?;
        check_length(&range, expected)?;
        check_length(&range, new)?;
        let durability = self.durability(write);
        let unit = &self.namespace.unit;
        let compared = unit.compare_and_write(range.start, expected, new, durability);
        match compared.map_err(|error| self.write_failure(&error))? {
            Compared::Written => Ok(0),
            Compared::Differs { .. } => Err(Status::COMPARE_FAILURE.into()),
        }
    }

    pub(super) fn write_zeroes(&self, command: &Command) -> Outcome {
        let _admitted = self.admit(AccessKind::Write)?;
        let range = self.range(command)?;
        let done = self.namespace.unit.write_zeroes(range, self.durability(command));
        done.map_err(|error| self.write_failure(&error))?;
        Ok(0)
    }

    pub(super) fn verify(&self, command: &Command) -> Outcome {
        let _admitted = self.admit(AccessKind::Read)?;
        let range = self.range(command)?;
        let (mut at, mut piece) = (range.start, Vec::new());
        while at < range.end {
            let count = PIECE.min(range.end - at);
            piece.resize(piece_size(count), 0);
            let done = self.namespace.unit.read(at, &mut piece);
            done.map_err(|error| self.read_failure(&error))?;
            at += count;
        }
        Ok(0)
    }

    /// Dataset Management. Only the attribute Deallocate has an effect.
    pub(super) fn manage(&self, command: &Command, data: &[u8]) -> Outcome {
        let _admitted = self.admit(AccessKind::Write)?;
        let count = usize::from(command.dword(10).to_le_bytes()[0]) + 1;
        let ranges = data.get(..count * RANGE_SIZE).ok_or(Status::SGL_LENGTH)?;
        let (ranges, _) = ranges.as_chunks::<RANGE_SIZE>();
        // all ranges are checked before one is freed
        let mut checked = Vec::with_capacity(count);
        for range in ranges {
            checked.push(self.block_range(le64(range, 8), le32(range, 4).into())?);
        }
        if command.dword(11) & 1 << 2 == 0 {
            return Ok(0);
        }
        if self.namespace.unit.geometry().is_read_only {
            return Err(Status::WRITE_PROTECTED.into());
        }
        for range in checked.into_iter().filter(|range| !range.is_empty()) {
            let done = self.namespace.unit.unmap(range);
            done.map_err(|error| self.write_failure(&error))?;
        }
        Ok(0)
    }
}
