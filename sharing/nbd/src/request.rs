//! One request on a unit, to a reply, without a socket.

use std::ops::Range;

use lun::{AccessKind, Durability, Lun, MemoryParts};

use crate::negotiation::{BASE_ALLOCATION_ID, Session};
use crate::status::Counters;
use crate::wire::reply::{Chunk, ErrorCode, ExtentStatus, encode_simple};
use crate::wire::request::{Command, CommandFlags, Request};

/// Bytes that a request without data of its own reads or writes at once.
const PIECE: usize = 1 << 20;
/// The smallest run of zeros that a reply to READ leaves out, in bytes.
const LEAST_HOLE: u64 = 4096;
/// Blocks that one BLOCK_STATUS looks at. The client asks again for the rest.
const MAX_STATUS_BLOCKS: u64 = 16384;

/// A reply: encoded headers, each followed by a range of the request's buffer.
#[derive(Default)]
pub(crate) struct Reply {
    pub(crate) headers: Vec<u8>,
    pub(crate) parts: Vec<ReplyPart>,
    /// The request's share of the counters.
    pub(crate) counters: Counters,
    /// Whether the request failed as the pool is suspended, and should be repeated.
    pub(crate) should_repeat: bool,
}

/// A range of the encoded headers, and the range of the buffer that is sent after it.
pub(crate) struct ReplyPart {
    pub(crate) header: Range<usize>,
    pub(crate) data: Range<usize>,
}

/// The result of a request that succeeded.
enum Success {
    Done,
    /// The buffer is the data.
    Data,
    Extents(Vec<ExtentStatus>),
}

/// The result of a request that failed.
struct Failure {
    code: ErrorCode,
    message: String,
    is_suspended: bool,
}

type Outcome = Result<Success, Failure>;

fn fail(code: ErrorCode, message: &str) -> Outcome {
    Err(Failure { code, message: message.to_owned(), is_suspended: false })
}

impl Session {
    /// Bytes of the buffer that a request needs. A request with data above the maximum is refused, and needs none.
    pub(crate) fn buffer_bytes(&self, request: &Request) -> usize {
        let length = byte_length(request.length);
        match request.command {
            Command::Read | Command::Write if request.length > self.sizes.maximum => 0,
            Command::Read | Command::Write => length,
            Command::Cache | Command::WriteZeroes => length.min(PIECE),
            _ => 0,
        }
    }

    /// Carries out a request. `buffer` has [`Session::buffer_bytes`], for WRITE the data.
    pub(crate) fn execute(&self, request: &Request, buffer: &mut [u8]) -> Reply {
        let outcome = self.run(request, buffer);
        let mut reply = Reply::default();
        reply.counters.requests = 1;
        match (&outcome, request.command) {
            (Ok(_), Command::Read) => reply.counters.read_bytes = request.length.into(),
            (Ok(_), Command::Write) => reply.counters.written_bytes = request.length.into(),
            (Ok(_), _) => {}
            (Err(failure), _) => {
                reply.counters.errors = 1;
                reply.should_repeat =
                    failure.is_suspended && self.export.unit.waits_while_suspended();
            }
        }
        if self.is_structured {
            self.reply_structured(request, &outcome, buffer, &mut reply);
        } else {
            let error = outcome.as_ref().err().map(|failure| failure.code);
            encode_simple(request.cookie, error, &mut reply.headers);
            let is_data = matches!(outcome, Ok(Success::Data));
            reply.push_part(0, 0..if is_data { buffer.len() } else { 0 });
        }
        reply
    }

    /// A read whose data is in memory: its reply, and the data. None: it is to be carried out in the usual way.
    pub(crate) fn read_in_memory(&self, request: &Request) -> Option<(Reply, MemoryParts)> {
        let is_read = request.command == Command::Read && request.has_valid_flags();
        let unit = &*self.export.unit;
        let has_blocks = u64::from(unit.geometry().physical_block_size) >= LEAST_HOLE;
        if !is_read || !has_blocks || request.length == 0 || request.length > self.sizes.maximum {
            return None;
        }
        let _admitted = unit.reservations().admit(&self.nexus, AccessKind::Read).ok()?;
        let parts = unit.parts_in_memory(request.offset, byte_length(request.length))?;
        let mut reply = Reply::default();
        reply.counters.requests = 1;
        reply.counters.read_bytes = request.length.into();
        if !self.is_structured {
            encode_simple(request.cookie, None, &mut reply.headers);
            reply.push_part(0, 0..byte_length(request.length));
        } else if request.flags.contains(CommandFlags::DF) {
            let range = 0..byte_length(request.length);
            reply.push_runs(request, &[Run { range, is_zero: false }]);
        } else {
            reply.push_runs(request, &part_runs(parts.slices()));
        }
        Some((reply, parts))
    }

    fn reply_structured(
        &self,
        request: &Request,
        outcome: &Outcome,
        buffer: &[u8],
        reply: &mut Reply,
    ) {
        let chunk = match outcome {
            Ok(Success::Data) if !buffer.is_empty() => {
                return self.reply_data(request, buffer, reply);
            }
            Ok(Success::Data | Success::Done) => Chunk::None,
            Ok(Success::Extents(extents)) => {
                Chunk::BlockStatus { context: BASE_ALLOCATION_ID, extents }
            }
            Err(Failure { code, message, .. }) => Chunk::Error { code: *code, message },
        };
        chunk.encode(request.cookie, true, &mut reply.headers);
        reply.push_part(0, 0..0);
    }

    /// Replies with data, and with holes where the data is zeros, unless the client wants one chunk.
    fn reply_data(&self, request: &Request, buffer: &[u8], reply: &mut Reply) {
        let physical = self.export.unit.geometry().physical_block_size;
        let granularity = u64::from(physical).max(LEAST_HOLE);
        let runs = if request.flags.contains(CommandFlags::DF) {
            vec![Run { range: 0..buffer.len(), is_zero: false }]
        } else {
            find_runs(request.offset, buffer, granularity)
        };
        reply.push_runs(request, &runs);
    }

    fn run(&self, request: &Request, buffer: &mut [u8]) -> Outcome {
        if !request.has_valid_flags() {
            return fail(ErrorCode::Einval, "the command does not have such flags");
        }
        let unit = &*self.export.unit;
        let access = match request.command {
            Command::Read | Command::Cache | Command::BlockStatus => Some(AccessKind::Read),
            Command::Write | Command::Trim | Command::WriteZeroes => Some(AccessKind::Write),
            Command::Flush | Command::Disconnect | Command::Unknown(_) => None,
        };
        let admitted = access.map(|access| unit.reservations().admit(&self.nexus, access));
        let _admitted = match admitted.transpose() {
            Ok(admitted) => admitted,
            Err(conflict) => return fail(ErrorCode::Eperm, &conflict.to_string()),
        };
        let done = match request.command {
            Command::Read | Command::Write if request.length > self.sizes.maximum => {
                let is_read = request.command == Command::Read;
                let code = if is_read { ErrorCode::Eoverflow } else { ErrorCode::Einval };
                return fail(code, "the request is larger than the maximum block size");
            }
            Command::Read => {
                return unit
                    .read(request.offset, buffer)
                    .map(|()| Success::Data)
                    .map_err(|error| failure(&error, request.command));
            }
            Command::Write => unit.write(request.offset, buffer, durability(request)),
            Command::Flush => unit.flush(),
            Command::Trim => trim(unit, request),
            Command::Cache => checked_range(unit, request)
                .and_then(|_| for_each_piece(request, buffer, |at, piece| unit.read(at, piece))),
            Command::WriteZeroes => return write_zeroes(unit, request, buffer),
            Command::BlockStatus => return self.block_status(unit, request),
            Command::Disconnect | Command::Unknown(_) => {
                return fail(ErrorCode::Einval, "unknown command");
            }
        };
        done.map(|()| Success::Done).map_err(|error| failure(&error, request.command))
    }

    fn block_status(&self, unit: &dyn Lun, request: &Request) -> Outcome {
        if !self.has_block_status {
            return fail(ErrorCode::Einval, "no metadata context was selected");
        }
        let range = match checked_range(unit, request) {
            Ok(range) if !range.is_empty() => range,
            Ok(_) => return fail(ErrorCode::Einval, "the range is empty"),
            Err(error) => return Err(failure(&error, request.command)),
        };
        let reach = MAX_STATUS_BLOCKS * u64::from(unit.geometry().physical_block_size);
        let end = range.end.min(range.start + reach);
        let is_one = request.flags.contains(CommandFlags::REQ_ONE);
        let (mut extents, mut at) = (Vec::new(), range.start);
        while at < end && !(is_one && extents.len() == 1) {
            let extent = unit.extent(at..end).map_err(|error| failure(&error, request.command))?;
            let length = extent.range.end.min(end) - at;
            let length = u32::try_from(length).expect("a request has 32 bits of length");
            extents.push(ExtentStatus { length, is_mapped: extent.is_mapped });
            at += u64::from(length);
        }
        Ok(Success::Extents(extents))
    }
}

impl Reply {
    /// Adds chunks of data and holes.
    fn push_runs(&mut self, request: &Request, runs: &[Run]) {
        let last = runs.len().checked_sub(1);
        for (index, run) in runs.iter().enumerate() {
            let start = self.headers.len();
            let offset = request.offset + byte_count(run.range.start);
            let length = u32::try_from(run.range.len()).expect("a request has 32 bits of length");
            let (chunk, data) = if run.is_zero {
                (Chunk::Hole { offset, length }, 0..0)
            } else {
                (Chunk::Data { offset, length }, run.range.clone())
            };
            chunk.encode(request.cookie, Some(index) == last, &mut self.headers);
            self.push_part(start, data);
        }
    }

    /// Calls `work` for each slice of the encoded reply. The data are in slices one after the other.
    pub(crate) fn for_each_slice<'a>(&'a self, data: &[&'a [u8]], mut work: impl FnMut(&'a [u8])) {
        let mut slices = data.iter().copied();
        let (mut slice, mut start) = (&[][..], 0);
        for part in &self.parts {
            work(&self.headers[part.header.clone()]);
            let mut at = part.data.start;
            while at < part.data.end {
                while start + slice.len() <= at {
                    start += slice.len();
                    slice = slices.next().expect("the data are those of the reply");
                }
                let end = part.data.end.min(start + slice.len());
                work(&slice[at - start..end - start]);
                at = end;
            }
        }
    }

    /// Adds the headers that were encoded from `start` on, and the data after them.
    fn push_part(&mut self, start: usize, data: Range<usize>) {
        self.parts.push(ReplyPart { header: start..self.headers.len(), data });
    }
}

/// A part of a read buffer that is all zeros, or is not.
#[derive(PartialEq, Eq, Debug)]
struct Run {
    range: Range<usize>,
    is_zero: bool,
}

/// Cuts a buffer that was read at `offset` into runs; zeros are found by whole blocks of `granularity` bytes.
fn find_runs(offset: u64, buffer: &[u8], granularity: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let (mut at, mut rest) = (0, buffer);
    while !rest.is_empty() {
        let to_boundary = granularity - (offset + byte_count(at)) % granularity;
        let length = usize::try_from(to_boundary).map_or(rest.len(), |near| near.min(rest.len()));
        let (block, later) = rest.split_at(length);
        let is_zero = is_zero(block);
        match runs.last_mut() {
            Some(run) if run.is_zero == is_zero => run.range.end += length,
            _ => runs.push(Run { range: at..at + length, is_zero }),
        }
        (at, rest) = (at + length, later);
    }
    runs
}

/// The runs of parts of blocks. A part that is all zeros is a hole.
fn part_runs<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Vec<Run> {
    let (mut runs, mut at): (Vec<Run>, usize) = (Vec::new(), 0);
    for part in parts {
        let (is_zero, end) = (is_zero(part), at + part.len());
        match runs.last_mut() {
            Some(run) if run.is_zero == is_zero => run.range.end = end,
            _ => runs.push(Run { range: at..end, is_zero }),
        }
        at = end;
    }
    runs
}

fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<64>();
    chunks.iter().all(|chunk| *chunk == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

fn byte_count(count: usize) -> u64 {
    // usize has 64 bits at most
    count as u64
}

pub(crate) fn byte_length(length: u32) -> usize {
    usize::try_from(length).expect("the engine runs on 64 bits")
}

fn durability(request: &Request) -> Durability {
    if request.flags.contains(CommandFlags::FUA) { Durability::Durable } else { Durability::Cached }
}

/// The range of a request, which must be within the unit.
fn checked_range(unit: &dyn Lun, request: &Request) -> lun::Result<Range<u64>> {
    let size = unit.geometry().size();
    match request.end() {
        Some(end) if end <= size => Ok(request.offset..end),
        end => Err(lun::Error::OutOfRange { end: end.unwrap_or(u64::MAX), size }),
    }
}

fn trim(unit: &dyn Lun, request: &Request) -> lun::Result<()> {
    unit.unmap(checked_range(unit, request)?)?;
    match durability(request) {
        Durability::Cached => Ok(()),
        Durability::Durable => unit.flush(),
    }
}

/// Zeros are written as a hole, which is faster than to write them if the range has a whole block of the volume.
/// NO_HOLE has them written as data; the pool's compression may still store them as a hole.
fn write_zeroes(unit: &dyn Lun, request: &Request, buffer: &mut [u8]) -> Outcome {
    let failed = |error: lun::Error| failure(&error, request.command);
    let range = checked_range(unit, request).map_err(failed)?;
    let is_filled = request.flags.contains(CommandFlags::NO_HOLE);
    let block = u64::from(unit.geometry().unmap_granularity);
    let has_whole_block = range.start.div_ceil(block) < range.end / block;
    if request.flags.contains(CommandFlags::FAST_ZERO) && (is_filled || !has_whole_block) {
        return fail(ErrorCode::Enotsup, "zeros are not faster than data in this range");
    }
    let durability = durability(request);
    let done = if is_filled {
        buffer.fill(0);
        let written =
            for_each_piece(request, buffer, |at, zeros| unit.write(at, zeros, Durability::Cached));
        written.and_then(|()| match durability {
            Durability::Cached => Ok(()),
            Durability::Durable => unit.flush(),
        })
    } else {
        unit.write_zeroes(range, durability)
    };
    done.map(|()| Success::Done).map_err(failed)
}

/// Has a range worked on in pieces of the buffer's size.
fn for_each_piece(
    request: &Request,
    buffer: &mut [u8],
    mut work: impl FnMut(u64, &mut [u8]) -> lun::Result<()>,
) -> lun::Result<()> {
    let (mut at, mut left) = (request.offset, byte_length(request.length));
    while left > 0 {
        let count = left.min(buffer.len());
        work(at, &mut buffer[..count])?;
        at += byte_count(count);
        left -= count;
    }
    Ok(())
}

fn failure(error: &lun::Error, command: Command) -> Failure {
    let is_write = matches!(command, Command::Write | Command::WriteZeroes);
    let code = match error {
        lun::Error::OutOfRange { .. } if is_write => ErrorCode::Enospc,
        lun::Error::OutOfRange { .. }
        | lun::Error::Unaligned { .. }
        | lun::Error::LengthMismatch
        | lun::Error::BlockSize { .. } => ErrorCode::Einval,
        lun::Error::ReadOnly => ErrorCode::Eperm,
        lun::Error::NoSpace => ErrorCode::Enospc,
        lun::Error::Gone => ErrorCode::Eshutdown,
        lun::Error::Suspended | lun::Error::Medium { .. } | lun::Error::Open { .. } => {
            ErrorCode::Eio
        }
    };
    let is_suspended = *error == lun::Error::Suspended;
    Failure { code, message: error.to_string(), is_suspended }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_blocks_become_holes() {
        let mut buffer = vec![0; 4096 * 4];
        let run = |range, is_zero| Run { range, is_zero };
        assert_eq!(find_runs(0, &buffer, 4096), [run(0..16384, true)]);
        buffer[4096] = 1;
        let found = find_runs(0, &buffer, 4096);
        assert_eq!(found, [run(0..4096, true), run(4096..8192, false), run(8192..16384, true)]);
        // blocks count from the start of the unit, not of the request
        let found = find_runs(512, &buffer[..8192], 4096);
        assert_eq!(found, [run(0..3584, true), run(3584..7680, false), run(7680..8192, true)]);
        assert!(is_zero(&[0; 100]) && !is_zero(&[[0; 99].as_slice(), &[1]].concat()));
    }
}
