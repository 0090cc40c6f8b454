//! The sending side of a connection: completions, data of reads, and requests for data of writes.

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
}

impl<'a> Sender<'a> {
    pub(crate) fn new(
        stream: &'a TcpStream,
        stall_timeout: Duration,
        digests: Digests,
        alignment: usize,
    ) -> Self {
        let state = State { queue_head: 0, queue_entries: 1, is_without_flow_control: false };
        Self { stream, stall_timeout, digests, alignment, state: Mutex::new(state) }
    }

    /// Sets the queue of the connection.
    pub(crate) fn set_queue(&self, entries: u16, is_without_flow_control: bool) {
        *self.state.lock() =
            State { queue_head: 0, queue_entries: entries, is_without_flow_control };
    }

    /// Completes a command: data, if it succeeded, and its completion.
    pub(crate) fn complete(
        &self,
        command: u16,
        outcome: Result<u64, Status>,
        data: &[u8],
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        state.queue_head = (state.queue_head + 1) % state.queue_entries;
        let data = if outcome.is_ok() { data } else { &[] };
        let is_response = !data.is_empty() && state.is_without_flow_control && outcome == Ok(0);
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        if !data.is_empty() {
            let length = u32::try_from(data.len()).expect("transfers are bounded");
            let header = ControllerData { command, length, is_response, alignment: self.alignment };
            header.encode(self.digests, &mut head);
            if self.digests.data {
                tail.extend_from_slice(&wire::digest(&[data]));
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
        self.send(&[&head, data, &tail])
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
        self.send(&[&bytes])
    }

    /// Asks for all data of a write.
    pub(crate) fn request_data(&self, command: u16, transfer: u16, length: u32) -> io::Result<()> {
        let mut bytes = Vec::new();
        pdu::encode_ready(command, transfer, length, self.digests, &mut bytes);
        let _turn = self.state.lock();
        self.send(&[&bytes])
    }

    /// Tells the host which error ends the connection.
    pub(crate) fn terminate(&self, error: pdu::FatalError, header: &[u8]) -> io::Result<()> {
        let _turn = self.state.lock();
        self.send(&[&pdu::encode_terminate(error, header)])
    }

    fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        tcp::send(self.stream, &mut slices, tcp::allowance(self.stall_timeout, bytes))
    }
}
