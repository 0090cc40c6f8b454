//! The sending side of a connection: responses get their numbers, are cut into PDUs, and are sent as a whole.

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
    /// StatSN of the next response. Locked by the thread that sends.
    stat_sn: Mutex<u32>,
}

/// PDUs that are sent together: encoded headers and ends, and data between them.
#[derive(Default)]
struct Batch<'a> {
    encoded: Vec<u8>,
    parts: Vec<Part<'a>>,
}

struct Part<'a> {
    header: Range<usize>,
    data: &'a [u8],
    end: Range<usize>,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(
        stream: &'a TcpStream,
        session: &'a Session,
        stat_sn: u32,
        stall_timeout: Duration,
    ) -> Self {
        Self { stream, session, stall_timeout, stat_sn: Mutex::new(stat_sn) }
    }

    /// Sends one PDU.
    pub(crate) fn send(&self, response: &Response, data: &[u8]) -> io::Result<()> {
        let mut stat_sn = self.stat_sn.lock();
        let mut batch = Batch::default();
        self.push(&mut batch, &mut stat_sn, response, data);
        self.flush(&batch)
    }

    /// Answers a task, unless it was aborted: data and status.
    pub(crate) fn respond(
        &self,
        task: &Task,
        outcome: &Result<(), Failure>,
        data_in: &[u8],
    ) -> io::Result<()> {
        // an abort that comes now is answered after this response
        let mut stat_sn = self.stat_sn.lock();
        if !self.session.tasks.finish(task.request.tag) {
            return Ok(());
        }
        let mut batch = Batch::default();
        let mut sense = Vec::new();
        let residual = residual(task, outcome, data_in.len());
        let (status, failure) = match outcome {
            Ok(()) => (GOOD, None),
            Err(Failure::Check(sense)) => (CHECK_CONDITION, Some(*sense)),
            Err(Failure::Suspended) => (CHECK_CONDITION, Some(Sense::MANUAL_INTERVENTION)),
            Err(Failure::Conflict) => (RESERVATION_CONFLICT, None),
        };
        let data = if outcome.is_ok() {
            &data_in[..data_in.len().min(task.expected_data_in())]
        } else {
            &[]
        };
        let data_pdus = self.push_data(&mut batch, &mut stat_sn, task, data, residual);
        if data.is_empty() {
            if let Some(failure) = failure {
                let bytes = failure.encode();
                let length = u16::try_from(bytes.len()).expect("sense data is short");
                sense = [&length.to_be_bytes()[..], &bytes].concat();
            }
            let exp_data_sn = data_pdus + task.r2t_count;
            let response =
                Response::Command { tag: task.request.tag, status, exp_data_sn, residual };
            self.push(&mut batch, &mut stat_sn, &response, &sense);
        }
        self.flush(&batch)
    }

    /// Adds the data of a read, with the status in the last PDU. Returns the number of PDUs.
    fn push_data<'data>(
        &self,
        batch: &mut Batch<'data>,
        stat_sn: &mut u32,
        task: &Task,
        data: &'data [u8],
        residual: Residual,
    ) -> u32 {
        let parameters = &self.session.parameters;
        let (mut at, mut data_sn) = (0, 0);
        while at < data.len() {
            // a sequence ends at each burst
            let burst_left = parameters.max_burst - at % parameters.max_burst;
            let count = (data.len() - at).min(parameters.max_send_segment).min(burst_left);
            let is_last = at + count == data.len();
            let response = Response::DataIn {
                tag: task.request.tag,
                is_final: is_last || count == burst_left,
                data_sn,
                offset: u32::try_from(at).expect("a task has 32 bits of data"),
                done: is_last.then_some(residual),
            };
            self.push(batch, stat_sn, &response, &data[at..at + count]);
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
        data: &'data [u8],
    ) {
        let window = self.session.tasks.window();
        let numbers = Numbers {
            status: *stat_sn,
            expected_command: window.exp_cmd_sn,
            last_command: window.max_cmd_sn,
        };
        if response.counts() {
            *stat_sn = stat_sn.wrapping_add(1);
        }
        let header = response.encode(&numbers, data.len());
        let start = batch.encoded.len();
        batch.encoded.extend_from_slice(&header);
        if self.session.parameters.digests.header {
            batch.encoded.extend_from_slice(&wire::digest(&[&header]));
        }
        let end = batch.encoded.len();
        let padding = &[0; 3][..padding(data.len())];
        batch.encoded.extend_from_slice(padding);
        if self.session.parameters.digests.data && !data.is_empty() {
            batch.encoded.extend_from_slice(&wire::digest(&[data, padding]));
        }
        batch.parts.push(Part { header: start..end, data, end: end..batch.encoded.len() });
    }

    fn flush(&self, batch: &Batch<'_>) -> io::Result<()> {
        let mut slices = Vec::with_capacity(3 * batch.parts.len());
        let mut bytes = 0;
        for part in &batch.parts {
            let encoded = |range: &Range<usize>| &batch.encoded[range.clone()];
            for slice in [encoded(&part.header), part.data, encoded(&part.end)] {
                bytes += slice.len();
                if !slice.is_empty() {
                    slices.push(IoSlice::new(slice));
                }
            }
        }
        let time = tcp::allowance(self.stall_timeout, bytes);
        tcp::send(self.stream, &mut slices, time)
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
