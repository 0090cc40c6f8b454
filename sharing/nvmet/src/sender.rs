//! The sending side of a connection: completions, data of reads, and requests for data of writes.
//!
//! Completions of reads from memory wait in a buffer while more commands are there, so that one system call sends many.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::time::Duration;

use parking_lot::Mutex;

use crate::wire;
use crate::wire::completion::{Completion, Status};
use crate::wire::pdu::{self, ControllerData, Digests};

/// The sending side of a connection.
pub(crate) struct Sender<'a> {
    stream: &'a TcpStream,
    stall_timeout: Duration,
    digests: Digests,
    /// Bytes to which the host wants data aligned.
    alignment: usize,
    state: Mutex<State>,
}

/// Locked by the thread that sends.
struct State {
    /// The head of the submission queue: commands that were completed, modulo its entries.
    queue_head: u16,
    queue_entries: u16,
    /// A read that succeeds needs no response of its own: the host does without the head of the queue.
    is_without_flow_control: bool,
    /// Encoded PDUs that are not sent yet.
    delayed: Vec<u8>,
}

/// Bytes of delayed PDUs above which they are sent.
const MAX_DELAYED: usize = 128 << 10;

impl State {
    fn new(queue_entries: u16, is_without_flow_control: bool) -> Self {
        Self { queue_head: 0, queue_entries, is_without_flow_control, delayed: Vec::new() }
    }
}

impl<'a> Sender<'a> {
    pub(crate) fn new(
        stream: &'a TcpStream,
        stall_timeout: Duration,
        digests: Digests,
        alignment: usize,
    ) -> Self {
        let state = State::new(1, false);
        Self { stream, stall_timeout, digests, alignment, state: Mutex::new(state) }
    }

    /// Sets the queue of the connection.
    pub(crate) fn set_queue(&self, entries: u16, is_without_flow_control: bool) {
        *self.state.lock() = State::new(entries, is_without_flow_control);
    }

    /// Completes a command: data, if it succeeded, and its completion.
    pub(crate) fn complete(
        &self,
        command: u16,
        outcome: Result<u64, Status>,
        data: &[u8],
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        let data = if outcome.is_ok() { data } else { &[] };
        let (head, tail) = self.encode(&mut state, command, outcome, &[data]);
        self.send(&mut state, &[&head, data, &tail])
    }

    /// Completes a read whose data are parts of blocks, at once or with later completions.
    pub(crate) fn complete_read(
        &self,
        command: u16,
        data: &[&[u8]],
        is_delayed: bool,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        let (head, tail) = self.encode(&mut state, command, Ok(0), data);
        let parts = [&[&head[..]], data, &[&tail[..]]].concat();
        if is_delayed && state.delayed.len() < MAX_DELAYED {
            for part in &parts {
                state.delayed.extend_from_slice(part);
            }
            return Ok(());
        }
        self.send(&mut state, &parts)
    }

    /// Sends what was delayed.
    pub(crate) fn send_delayed(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.delayed.is_empty() { Ok(()) } else { self.send(&mut state, &[]) }
    }

    /// The bytes before and after the data of a completion.
    fn encode(
        &self,
        state: &mut State,
        command: u16,
        outcome: Result<u64, Status>,
        data: &[&[u8]],
    ) -> (Vec<u8>, Vec<u8>) {
        state.queue_head = (state.queue_head + 1) % state.queue_entries;
        let bytes: usize = data.iter().map(|part| part.len()).sum();
        let is_response = bytes > 0 && state.is_without_flow_control && outcome == Ok(0);
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        if bytes > 0 {
            let length = u32::try_from(bytes).expect("transfers are bounded");
            let header = ControllerData { command, length, is_response, alignment: self.alignment };
            header.encode(self.digests, &mut head);
            if self.digests.data {
                tail.extend_from_slice(&wire::digest(data));
            }
        }
        if !is_response {
            let completion = Completion {
                command,
                result: outcome.unwrap_or(0),
                queue_head: state.queue_head,
                failure: outcome.err(),
            };
            pdu::encode_response(&completion.encode(), self.digests, &mut tail);
        }
        (head, tail)
    }

    /// Completes Connect or another command that fails with a result.
    pub(crate) fn complete_with_result(
        &self,
        command: u16,
        result: u64,
        failure: Option<Status>,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        state.queue_head = (state.queue_head + 1) % state.queue_entries;
        let completion = Completion { command, result, queue_head: state.queue_head, failure };
        let mut bytes = Vec::new();
        pdu::encode_response(&completion.encode(), self.digests, &mut bytes);
        self.send(&mut state, &[&bytes])
    }

    /// Asks for all data of a write.
    pub(crate) fn request_data(&self, command: u16, transfer: u16, length: u32) -> io::Result<()> {
        let mut bytes = Vec::new();
        pdu::encode_ready(command, transfer, length, self.digests, &mut bytes);
        self.send(&mut self.state.lock(), &[&bytes])
    }

    /// Tells the host which error ends the connection.
    pub(crate) fn terminate(&self, error: pdu::FatalError, header: &[u8]) -> io::Result<()> {
        self.send(&mut self.state.lock(), &[&pdu::encode_terminate(error, header)])
    }

    /// Sends what was delayed, and more.
    fn send(&self, state: &mut State, parts: &[&[u8]]) -> io::Result<()> {
        let delayed = std::mem::take(&mut state.delayed);
        let all = std::iter::once(&delayed[..]).chain(parts.iter().copied());
        let mut slices: Vec<_> = all.map(IoSlice::new).collect();
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        tcp::send(self.stream, &mut slices, tcp::allowance(self.stall_timeout, bytes))
    }
}
