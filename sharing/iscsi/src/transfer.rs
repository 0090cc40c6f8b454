//! The data of a write, which comes with the command, unsolicited after it, or for an R2T.
//!
//! Data comes in order (DataPDUInOrder, DataSequenceInOrder), and one R2T is outstanding at a time.

use crate::login::Parameters;
use crate::scsi::{Failure, Sense};
use crate::tasks::Task;
use crate::wire::NO_TAG;
use crate::wire::request::DataOut;
use crate::wire::response::Response;

/// A task that collects its data.
pub(crate) struct Transfer {
    task: Task,
    /// Bytes that were received, or that the R2T requests next.
    received: usize,
    sequence: Sequence,
    data_sn: u32,
    next_tag: u32,
    /// Whether a part of the data was lost. The rest is awaited, and then the command fails.
    is_broken: bool,
}

/// The data that comes now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sequence {
    /// Unsolicited data, up to a number of bytes from the start.
    Unsolicited { end: usize },
    /// Data for an R2T.
    Solicited { transfer_tag: u32, end: usize },
    /// None: an R2T is to be sent.
    Idle,
}

/// The initiator broke a rule: the connection ends.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct ProtocolError;

impl Transfer {
    /// The transfer of a command that came with some data. `data_length` is that of its data segment.
    pub(crate) fn begin(
        task: Task,
        data_length: usize,
        parameters: &Parameters,
    ) -> Result<Self, ProtocolError> {
        let expected = expected_length(&task);
        let end = expected.min(parameters.first_burst);
        let may_continue = !parameters.initial_r2t && task.request.is_write;
        if data_length > 0 && (!parameters.immediate_data || data_length > end)
            || !task.request.is_final && !may_continue
        {
            return Err(ProtocolError);
        }
        let sequence =
            if task.request.is_final { Sequence::Idle } else { Sequence::Unsolicited { end } };
        Ok(Self { task, received: 0, sequence, data_sn: 0, next_tag: 0, is_broken: false })
    }

    pub(crate) fn task(&self) -> &Task {
        &self.task
    }

    /// The task, which fails if a part of its data was lost.
    pub(crate) fn into_task(mut self) -> Task {
        if self.is_broken {
            self.task.command = Err(Failure::Check(Sense::PROTOCOL_SERVICE_CRC_ERROR));
        }
        self.task
    }

    /// Gives the task a buffer for its data. Returns the one that it had.
    pub(crate) fn grow(&mut self, mut buffer: Vec<u8>, length: usize) -> Vec<u8> {
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let kept = self.task.data.len().min(self.received);
        buffer[..kept].copy_from_slice(&self.task.data[..kept]);
        std::mem::replace(&mut self.task.data, buffer)
    }

    /// The part of the buffer for the next bytes, and how many of them are more than the command takes.
    pub(crate) fn next_part(&mut self, length: usize) -> (&mut [u8], usize) {
        let wanted = self.task.wanted_data();
        let start = self.received.min(wanted);
        let end = (self.received + length).min(wanted);
        self.received += length;
        self.task.data_length = end;
        (&mut self.task.data[start..end], length - (end - start))
    }

    /// Checks that a data-out PDU is the one that comes next.
    pub(crate) fn accept(&mut self, data: &DataOut, length: usize) -> Result<(), ProtocolError> {
        let (end, tag) = match self.sequence {
            Sequence::Unsolicited { end } => (end, NO_TAG),
            Sequence::Solicited { transfer_tag, end } => (end, transfer_tag),
            Sequence::Idle => return Err(ProtocolError),
        };
        let offset = usize::try_from(data.offset).expect("the engine runs on 64 bits");
        let is_solicited = matches!(self.sequence, Sequence::Solicited { .. });
        let is_whole = self.received + length == end;
        if data.transfer_tag != tag || length > end - self.received {
            return Err(ProtocolError);
        }
        let is_next = data.data_sn == self.data_sn && offset == self.received;
        if !is_next || is_solicited && data.is_final != is_whole {
            self.is_broken = true;
        }
        self.data_sn = self.data_sn.wrapping_add(1);
        if data.is_final {
            self.sequence = Sequence::Idle;
        }
        Ok(())
    }

    /// Whether unsolicited data is expected.
    pub(crate) fn is_open(&self) -> bool {
        self.sequence != Sequence::Idle
    }

    /// Notes that a part of the data was lost.
    pub(crate) fn set_broken(&mut self) {
        self.is_broken = true;
    }

    /// Whether all data was received, or no more is wanted because a part was lost.
    pub(crate) fn is_complete(&self) -> bool {
        let has_all = self.received >= self.task.wanted_data();
        self.sequence == Sequence::Idle && (has_all || self.is_broken)
    }

    /// Requests the next data.
    pub(crate) fn next_r2t(&mut self, parameters: &Parameters) -> Response {
        let end = self.task.wanted_data().min(self.received + parameters.max_burst);
        let transfer_tag = self.next_tag;
        self.next_tag += 1;
        self.data_sn = 0;
        self.sequence = Sequence::Solicited { transfer_tag, end };
        let r2t_sn = self.task.r2t_count;
        self.task.r2t_count += 1;
        let bytes = |count: usize| u32::try_from(count).expect("a task has 32 bits of data");
        Response::ReadyToTransfer {
            lun: self.task.request.lun,
            tag: self.task.request.tag,
            transfer_tag,
            r2t_sn,
            offset: bytes(self.received),
            length: bytes(end - self.received),
        }
    }
}

fn expected_length(task: &Task) -> usize {
    let length = if task.request.is_write { task.request.expected_length } else { 0 };
    usize::try_from(length).expect("the engine runs on 64 bits")
}
