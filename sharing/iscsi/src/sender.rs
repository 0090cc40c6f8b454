//! The sending side of a connection: responses get their numbers, are cut into PDUs, and are sent as a whole.
//!
//! Answers to reads from memory wait in a buffer while more commands are there, so that one system call sends many.
//! Everything that is sent goes after them: responses leave in the order of their numbers.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use parking_lot::Mutex;

use crate::scsi::{Command, Failure, Sense};
use crate::session::Session;
use crate::tasks::Task;
use crate::wire::response::{Numbers, Residual, Response};
use crate::wire::{self, padding};

/// SCSI status codes.
const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;
const RESERVATION_CONFLICT: u8 = 0x18;

/// The sending side of a connection.
pub(crate) struct Sender<'a> {
    stream: &'a TcpStream,
    session: &'a Session,
    stall_timeout: Duration,
    /// Locked by the thread that sends.
    outgoing: Mutex<Outgoing>,
}

struct Outgoing {
    /// StatSN of the next response.
    stat_sn: u32,
    /// Encoded PDUs that are not sent yet.
    delayed: Vec<u8>,
}

/// Bytes of delayed PDUs above which they are sent.
const MAX_DELAYED: usize = 128 << 10;

/// PDUs that are sent together: encoded headers and ends, and data between them.
#[derive(Default)]
struct Batch<'a> {
    encoded: Vec<u8>,
    data: Vec<&'a [u8]>,
    parts: Vec<Part>,
}

/// One PDU.
struct Part {
    header: Range<usize>,
    /// Slices of the batch's data.
    data: Range<usize>,
    end: Range<usize>,
}

/// The data of a read: the slices of a longer row.
struct DataLeft<'row, 'data> {
    slices: std::iter::Copied<std::slice::Iter<'row, &'data [u8]>>,
    first: &'data [u8],
}

impl<'row, 'data> DataLeft<'row, 'data> {
    fn new(row: &'row [&'data [u8]]) -> Self {
        Self { slices: row.iter().copied(), first: &[] }
    }

    /// Moves the next bytes to the end of another row.
    fn take(&mut self, mut count: usize, to: &mut Vec<&'data [u8]>) {
        while count > 0 {
            if self.first.is_empty() {
                let Some(next) = self.slices.next() else { return };
                self.first = next;
            }
            let (now, later) = self.first.split_at(self.first.len().min(count));
            to.push(now);
            count -= now.len();
            self.first = later;
        }
    }
}

impl<'a> Sender<'a> {
    pub(crate) fn new(
        stream: &'a TcpStream,
        session: &'a Session,
        stat_sn: u32,
        stall_timeout: Duration,
    ) -> Self {
        let outgoing = Mutex::new(Outgoing { stat_sn, delayed: Vec::new() });
        Self { stream, session, stall_timeout, outgoing }
    }

    /// Sends one PDU.
    pub(crate) fn send(&self, response: &Response, data: &[u8]) -> io::Result<()> {
        let mut outgoing = self.outgoing.lock();
        let mut batch = Batch::default();
        self.push(&mut batch, &mut outgoing.stat_sn, response, &[data]);
        self.flush(&mut outgoing, &batch)
    }

    /// Sends what was delayed.
    pub(crate) fn send_delayed(&self) -> io::Result<()> {
        let mut outgoing = self.outgoing.lock();
        if outgoing.delayed.is_empty() {
            return Ok(());
        }
        self.flush(&mut outgoing, &Batch::default())
    }

    /// Answers a task, unless it was aborted: data and status.
    pub(crate) fn respond(
        &self,
        task: &Task,
        outcome: &Result<(), Failure>,
        data_in: &[&[u8]],
        is_delayed: bool,
    ) -> io::Result<()> {
        let read = data_in.iter().map(|slice| slice.len()).sum();
        // an abort that comes now is answered after this response
        let mut outgoing = self.outgoing.lock();
        if !self.session.tasks.finish(task.request.tag) {
            return Ok(());
        }
        let mut batch = Batch::default();
        let mut sense = Vec::new();
        let residual = residual(task, outcome, read);
        let (status, failure) = match outcome {
            Ok(()) => (GOOD, None),
            Err(Failure::Check(sense)) => (CHECK_CONDITION, Some(*sense)),
            Err(Failure::Suspended) => (CHECK_CONDITION, Some(Sense::MANUAL_INTERVENTION)),
            Err(Failure::Conflict) => (RESERVATION_CONFLICT, None),
        };
        let wanted = if outcome.is_ok() { read.min(task.expected_data_in()) } else { 0 };
        let data = (data_in, wanted);
        let data_pdus = self.push_data(&mut batch, &mut outgoing.stat_sn, task, data, residual);
        if wanted == 0 {
            if let Some(failure) = failure {
                let bytes = failure.encode();
                let length = u16::try_from(bytes.len()).expect("sense data is short");
                sense = [&length.to_be_bytes()[..], &bytes].concat();
            }
            let exp_data_sn = data_pdus + task.r2t_count;
            let response =
                Response::Command { tag: task.request.tag, status, exp_data_sn, residual };
            self.push(&mut batch, &mut outgoing.stat_sn, &response, &[&sense]);
        }
        if is_delayed {
            batch.append_to(&mut outgoing.delayed);
            if outgoing.delayed.len() < MAX_DELAYED {
                return Ok(());
            }
            batch = Batch::default();
        }
        self.flush(&mut outgoing, &batch)
    }

    /// Adds the data of a read, with the status in the last PDU. Returns the number of PDUs.
    fn push_data<'data>(
        &self,
        batch: &mut Batch<'data>,
        stat_sn: &mut u32,
        task: &Task,
        (data, length): (&[&'data [u8]], usize),
        residual: Residual,
    ) -> u32 {
        let parameters = &self.session.parameters;
        let (mut at, mut data_sn, mut left) = (0, 0, DataLeft::new(data));
        while at < length {
            // a sequence ends at each burst
            let burst_left = parameters.max_burst - at % parameters.max_burst;
            let count = (length - at).min(parameters.max_send_segment).min(burst_left);
            let is_last = at + count == length;
            let response = Response::DataIn {
                tag: task.request.tag,
                is_final: is_last || count == burst_left,
                data_sn,
                offset: u32::try_from(at).expect("a task has 32 bits of data"),
                done: is_last.then_some(residual),
            };
            let mut part = Vec::new();
            left.take(count, &mut part);
            self.push(batch, stat_sn, &response, &part);
            at += count;
            data_sn += 1;
        }
        data_sn
    }

    fn push<'data>(
        &self,
        batch: &mut Batch<'data>,
        stat_sn: &mut u32,
        response: &Response,
        data: &[&'data [u8]],
    ) {
        let length = data.iter().map(|slice| slice.len()).sum();
        let window = self.session.tasks.window();
        let numbers = Numbers {
            status: *stat_sn,
            expected_command: window.exp_cmd_sn,
            last_command: window.max_cmd_sn,
        };
        if response.counts() {
            *stat_sn = stat_sn.wrapping_add(1);
        }
        let header = response.encode(&numbers, length);
        let start = batch.encoded.len();
        batch.encoded.extend_from_slice(&header);
        if self.session.parameters.digests.header {
            batch.encoded.extend_from_slice(&wire::digest(&[&header]));
        }
        let end = batch.encoded.len();
        let padding = &[0; 3][..padding(length)];
        batch.encoded.extend_from_slice(padding);
        if self.session.parameters.digests.data && length > 0 {
            batch.encoded.extend_from_slice(&wire::digest(&[data, &[padding]].concat()));
        }
        let first = batch.data.len();
        batch.data.extend_from_slice(data);
        let data = first..batch.data.len();
        batch.parts.push(Part { header: start..end, data, end: end..batch.encoded.len() });
    }

    /// Sends what was delayed, and a batch.
    fn flush(&self, outgoing: &mut Outgoing, batch: &Batch<'_>) -> io::Result<()> {
        let mut slices = Vec::with_capacity(1 + 3 * batch.parts.len());
        slices.push(IoSlice::new(&outgoing.delayed));
        slices.extend(batch.slices().filter(|slice| !slice.is_empty()).map(IoSlice::new));
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        let time = tcp::allowance(self.stall_timeout, bytes);
        let sent = tcp::send(self.stream, &mut slices, time);
        outgoing.delayed.clear();
        sent
    }
}

impl Batch<'_> {
    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().flat_map(|part| {
            let encoded = |range: &Range<usize>| &self.encoded[range.clone()];
            let data = self.data[part.data.clone()].iter().copied();
            [encoded(&part.header)].into_iter().chain(data).chain([encoded(&part.end)])
        })
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        self.slices().for_each(|slice| bytes.extend_from_slice(slice));
    }
}

impl Task {
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.command, Ok(Command::Read { .. }))
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(
            self.command,
            Ok(Command::Write { .. }
                | Command::WriteVerify { .. }
                | Command::CompareAndWrite { .. })
        )
    }

    /// Bytes of data that the initiator expects.
    fn expected_data_in(&self) -> usize {
        let is_read = self.request.is_read && !self.request.is_write;
        let length = if is_read { self.request.expected_length } else { 0 };
        usize::try_from(length).expect("the engine runs on 64 bits")
    }
}

/// The difference between the data of the command and what the initiator expects.
fn residual(task: &Task, outcome: &Result<(), Failure>, data_in: usize) -> Residual {
    let expected = u64::from(task.request.expected_length);
    let data_out = task.command.as_ref().map_or(0, Command::data_out_bytes);
    let data_in = if outcome.is_ok() { u64::try_from(data_in).expect("64 bits") } else { 0 };
    let has_expected_direction =
        if data_in > 0 { task.request.is_read } else { task.request.is_write || data_out == 0 };
    let actual = data_in.max(data_out);
    let count = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    let expected = if has_expected_direction { expected } else { 0 };
    match actual.cmp(&expected) {
        std::cmp::Ordering::Less => Residual::Underflow(count(expected - actual)),
        std::cmp::Ordering::Equal => Residual::None,
        std::cmp::Ordering::Greater => Residual::Overflow(count(actual - expected)),
    }
}
