//! The data of commands that come in PDUs of their own.
//!
//! The controller asks for the data of a command (R2T) when there is memory for them, so that the writes of a queue are
//! bounded. The others wait for their turn, and the connection is read on meanwhile.

use std::collections::{BTreeMap, VecDeque};

use crate::io::MAX_TRANSFER_BYTES;
use crate::wire::command::{Command, DataPlace, Direction, Fuse};
use crate::wire::completion::Status;
use crate::wire::pdu::{FatalError, HostData};

/// Bytes of data of the largest command of fabrics, which hosts send before they are known.
const MAX_FABRICS_DATA: usize = 8 << 10;

/// A command with the data that the host sent.
pub(crate) struct Task {
    /// Its number among the commands of the connection.
    pub(crate) number: u64,
    pub(crate) command: Command,
    pub(crate) fuse: Fuse,
    /// Data of the host.
    pub(crate) data: Vec<u8>,
    /// Whether it is a command of an I/O queue, which a thread carries out while others read.
    pub(crate) is_io: bool,
    /// The failure that was found before it could be carried out.
    pub(crate) refused: Option<Status>,
    /// Bytes that are counted in the memory of transfers.
    reserved: usize,
}

impl Task {
    pub(crate) fn new(number: u64, command: Command) -> Self {
        let fuse = command.fuse().unwrap_or(Fuse::None);
        Self { number, command, fuse, data: Vec::new(), is_io: false, refused: None, reserved: 0 }
    }
}

/// The place of the data of a command.
pub(crate) enum DataPlan {
    /// They are there, or there are none.
    Complete(Vec<u8>),
    /// The controller asks for so many bytes.
    Transfer(usize),
}

/// The transfers of one connection.
pub(crate) struct Transfers {
    limit: usize,
    reserved: usize,
    next_tag: u16,
    active: BTreeMap<u16, Transfer>,
    waiting: VecDeque<(Task, usize)>,
}

/// Data that are on their way.
struct Transfer {
    task: Task,
    length: usize,
}

/// A request for the data of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DataRequest {
    pub(crate) command: u16,
    pub(crate) transfer: u16,
    pub(crate) length: usize,
}

impl Transfers {
    /// Transfers that have at most `limit` bytes in memory, or one command.
    pub(crate) fn new(limit: usize) -> Self {
        let (active, waiting) = (BTreeMap::new(), VecDeque::new());
        Self { limit, reserved: 0, next_tag: 0, active, waiting }
    }

    /// Adds a command that needs data. None: it waits for memory.
    pub(crate) fn add(&mut self, task: Task, length: usize) -> Option<DataRequest> {
        self.waiting.push_back((task, length));
        self.start_next()
    }

    /// Starts the transfer of the command that has waited longest, if there is memory.
    pub(crate) fn start_next(&mut self) -> Option<DataRequest> {
        let (_, length) = self.waiting.front()?;
        if self.reserved > 0 && self.reserved + length > self.limit {
            return None;
        }
        let (mut task, length) = self.waiting.pop_front()?;
        // there are fewer transfers than tags: queues have up to 4096 entries
        while self.active.contains_key(&self.next_tag) {
            self.next_tag = self.next_tag.wrapping_add(1);
        }
        let tag = self.next_tag;
        self.next_tag = self.next_tag.wrapping_add(1);
        self.reserved += length;
        task.reserved = length;
        task.data = Vec::with_capacity(length);
        let command = task.command.id();
        self.active.insert(tag, Transfer { task, length });
        Some(DataRequest { command, transfer: tag, length })
    }

    /// The command that some data belong to, which must follow the data that came before.
    pub(crate) fn take(&mut self, data: &HostData) -> Result<(Task, usize), FatalError> {
        let tag = data.transfer;
        let transfer = self.active.get(&tag).ok_or(FatalError::HeaderField { at: 10 })?;
        if transfer.task.command.id() != data.command {
            return Err(FatalError::HeaderField { at: 8 });
        }
        let size = |number: u32| usize::try_from(number).map_err(|_| FatalError::DataOutOfRange);
        let (offset, length) = (size(data.offset)?, size(data.length)?);
        let received = transfer.task.data.len();
        if offset != received || length > transfer.length - received || length == 0 {
            return Err(FatalError::DataOutOfRange);
        }
        let transfer = self.active.remove(&tag).ok_or(FatalError::HeaderField { at: 10 })?;
        Ok((transfer.task, transfer.length))
    }

    /// Takes back a command whose data are not complete.
    pub(crate) fn put_back(&mut self, tag: u16, task: Task, length: usize) {
        self.active.insert(tag, Transfer { task, length });
    }

    /// Frees the memory of a command that is done.
    pub(crate) fn release(&mut self, task: &Task) {
        self.reserved -= task.reserved;
    }
}

/// Where the data of a command are. Data in the capsule are cut out of it.
pub(crate) fn plan_data(command: &Command, mut capsule: Vec<u8>) -> Result<DataPlan, Status> {
    if !command.has_sgl() || command.fuse().is_none() {
        return Err(Status::INVALID_FIELD);
    }
    let length = usize::try_from(command.data_length()).map_err(|_| Status::SGL_LENGTH)?;
    if command.direction() != Direction::FromHost || length == 0 {
        return Ok(DataPlan::Complete(Vec::new()));
    }
    let limit =
        if command.fabrics_type().is_some() { MAX_FABRICS_DATA } else { MAX_TRANSFER_BYTES };
    match command.data_place() {
        DataPlace::Capsule { offset } => {
            let start = usize::try_from(offset).map_err(|_| Status::SGL_OFFSET)?;
            let end = start.checked_add(length).ok_or(Status::SGL_OFFSET)?;
            if end > capsule.len() {
                return Err(Status::SGL_OFFSET);
            }
            capsule.truncate(end);
            capsule.drain(..start);
            Ok(DataPlan::Complete(capsule))
        }
        DataPlace::Transport if length <= limit => Ok(DataPlan::Transfer(length)),
        DataPlace::Transport => Err(Status::INVALID_FIELD),
        DataPlace::Unknown => Err(Status::SGL_TYPE),
    }
}
