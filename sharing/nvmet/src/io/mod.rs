//! Commands of I/O queues: one command on a namespace, without a socket.
//!
//! ```text
//! opcode  command               data               dwords
//!   0x00  Flush                                    namespace 0xffffffff: all
//!   0x01  Write                 blocks             10-11 first block; 12 blocks less 1, bit 30 FUA
//!   0x02  Read                  blocks             the same
//!   0x05  Compare               blocks             the same
//!   0x08  Write Zeroes                             the same, bit 25 deallocate
//!   0x09  Dataset Management    ranges of 16       10 ranges less 1; 11 bit 2 deallocate
//!   0x0c  Verify                                   10-11, 12 as Read
//!   0x0d  Reservation Register, 0x0e Report, 0x11 Acquire, 0x15 Release: see `reservation`
//!   0x19  Copy                  ranges of 32       10-11 destination; 12 ranges less 1, bit 30 FUA: see `copy`
//! ```
//! Learnt from: NVM Express NVM Command Set Specification 1.0, section 3.2; NVM Express Base Specification 2.0,
//! section 7.

mod blocks;
mod copy;
mod reservation;

use std::ops::Range;
use std::sync::Arc;

use lun::{AccessKind, Admitted, Durability, MemoryParts};

pub(crate) use copy::{MAX_COPY_BLOCKS, MAX_COPY_RANGES};

use crate::controller::Controller;
use crate::namespace::Namespace;
use crate::transfer::Task;
use crate::wire::command::{Command, DataPlace, Fuse};
use crate::wire::completion::Status;

/// Bytes of data of the largest command, which the controller announces (MDTS).
pub(crate) const MAX_TRANSFER_BYTES: usize = 1 << 20;
/// The number that means all namespaces.
const ALL_NAMESPACES: u32 = u32::MAX;

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const COMPARE: u8 = 0x05;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;
const VERIFY: u8 = 0x0c;
const RESERVATION_REGISTER: u8 = 0x0d;
const RESERVATION_REPORT: u8 = 0x0e;
const RESERVATION_ACQUIRE: u8 = 0x11;
const RESERVATION_RELEASE: u8 = 0x15;
const COPY: u8 = 0x19;

/// The surroundings of a command.
pub(crate) struct IoContext<'a> {
    pub(crate) controller: &'a Arc<Controller>,
}

/// Why a command is not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IoFailure {
    /// It fails.
    Status(Status),
    /// The pool is suspended: it is to be repeated.
    Suspended,
}

impl From<Status> for IoFailure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

type Outcome = Result<u64, IoFailure>;

/// Bytes of data that a command sends to the host.
pub(crate) fn data_in_length(task: &Task) -> usize {
    let is_read = matches!(task.command.opcode(), READ | RESERVATION_REPORT);
    let length = usize::try_from(task.command.data_length()).unwrap_or(usize::MAX);
    if is_read && task.refused.is_none() && length <= MAX_TRANSFER_BYTES { length } else { 0 }
}

/// Bytes of memory that a command takes besides its data.
pub(crate) fn scratch_bytes(task: &Task) -> usize {
    match task.command.opcode() {
        COMPARE => task.data.len(),
        VERIFY | COPY => MAX_TRANSFER_BYTES,
        _ => 0,
    }
}

/// The data of a read that is in memory. None: the command is to be carried out in the usual way.
pub(crate) fn parts_in_memory(context: &IoContext<'_>, task: &Task) -> Option<MemoryParts> {
    let (command, length) = (&task.command, data_in_length(task));
    let is_forced = command.dword(12) & 1 << 30 != 0;
    let is_plain = command.opcode() == READ && command.data_place() == DataPlace::Transport;
    if !is_plain || is_forced || length == 0 {
        return None;
    }
    let namespaces = context.controller.namespaces();
    let namespace = namespaces.get(&command.namespace())?;
    let unit = Unit { context, namespace };
    let _admitted = unit.admit(AccessKind::Read).ok()?;
    let range = unit.range(command).ok()?;
    let is_whole = usize::try_from(range.end - range.start) == Ok(length);
    is_whole.then(|| namespace.unit.parts_in_memory(range.start, length)).flatten()
}

/// Carries out a command. `data_in` has at least the bytes of [`data_in_length`].
pub(crate) fn execute(context: &IoContext<'_>, task: &Task, data_in: &mut [u8]) -> Outcome {
    let command = &task.command;
    if command.opcode() == FLUSH {
        return flush(context, command);
    }
    let namespaces = context.controller.namespaces();
    let namespace = namespaces.get(&command.namespace()).ok_or(Status::INVALID_NAMESPACE)?;
    let unit = Unit { context, namespace };
    let length = data_in_length(task);
    if length > 0 && command.data_place() != DataPlace::Transport {
        return Err(Status::SGL_TYPE.into());
    }
    let data_in = data_in.get_mut(..length).ok_or(Status::INTERNAL)?;
    match command.opcode() {
        READ => unit.read(command, data_in),
        WRITE => unit.write(command, &task.data),
        COMPARE => unit.compare(command, &task.data),
        WRITE_ZEROES => unit.write_zeroes(command),
        DATASET_MANAGEMENT => unit.manage(command, &task.data),
        VERIFY => unit.verify(command),
        COPY => unit.copy(command, &task.data),
        RESERVATION_REGISTER => unit.register(command, &task.data),
        RESERVATION_REPORT => unit.report(command, data_in),
        RESERVATION_ACQUIRE => unit.acquire(command, &task.data),
        RESERVATION_RELEASE => unit.release(command, &task.data),
        _ => Err(Status::INVALID_OPCODE.into()),
    }
}

/// Carries out a fused Compare and Write. The failure is that of the Compare.
pub(crate) fn compare_and_write(context: &IoContext<'_>, first: &Task, second: &Task) -> Outcome {
    if let Some(status) = first.refused {
        return Err(status.into());
    }
    if second.refused.is_some() {
        return Err(Status::FAILED_FUSED.into());
    }
    let (compare, write) = (&first.command, &second.command);
    let is_pair = (compare.opcode(), write.opcode()) == (COMPARE, WRITE)
        && (first.fuse, second.fuse) == (Fuse::First, Fuse::Second);
    let is_same_range = compare.namespace() == write.namespace()
        && compare.dwords(10) == write.dwords(10)
        && compare.dword(12) & 0xffff == write.dword(12) & 0xffff;
    if !is_pair || !is_same_range {
        return Err(Status::INVALID_FIELD.into());
    }
    let namespaces = context.controller.namespaces();
    let namespace = namespaces.get(&compare.namespace()).ok_or(Status::INVALID_NAMESPACE)?;
    Unit { context, namespace }.compare_and_write((write, &first.data), &second.data)
}

/// A namespace, as a command of a host uses it.
struct Unit<'a> {
    context: &'a IoContext<'a>,
    namespace: &'a Arc<Namespace>,
}

impl Unit<'_> {
    /// Refuses a command of a host that a reservation keeps out.
    fn admit(&self, access: AccessKind) -> Result<Admitted<'_>, Status> {
        let admitted = self.namespace.unit.reservations().admit(&self.nexus(), access);
        admitted.map_err(|_| Status::RESERVATION_CONFLICT)
    }

    /// The bytes of the blocks of a command.
    fn range(&self, command: &Command) -> Result<Range<u64>, Status> {
        let count = u64::from(command.dword(12) & 0xffff) + 1;
        self.block_range(command.dwords(10), count)
    }

    /// The bytes of some blocks, which must be there.
    fn block_range(&self, first: u64, count: u64) -> Result<Range<u64>, Status> {
        let shape = self.namespace.unit.geometry();
        let end = first.checked_add(count).filter(|end| *end <= shape.blocks);
        let end = end.ok_or(Status::LBA_OUT_OF_RANGE)?;
        // both fit, as the size of the unit does
        let block_size = u64::from(shape.block_size);
        Ok(first * block_size..end * block_size)
    }

    /// The durability of a write: FUA, or a write cache that is off, makes it durable.
    fn durability(&self, command: &Command) -> Durability {
        let is_forced = command.dword(12) & 1 << 30 != 0;
        if is_forced || !self.context.controller.has_write_cache() {
            Durability::Durable
        } else {
            Durability::Cached
        }
    }

    fn read_failure(&self, error: &lun::Error) -> IoFailure {
        self.failure(error, Status::READ_ERROR)
    }

    fn write_failure(&self, error: &lun::Error) -> IoFailure {
        self.failure(error, Status::WRITE_FAULT)
    }

    fn failure(&self, error: &lun::Error, medium: Status) -> IoFailure {
        IoFailure::Status(match error {
            lun::Error::OutOfRange { .. } => Status::LBA_OUT_OF_RANGE,
            lun::Error::Unaligned { .. }
            | lun::Error::LengthMismatch
            | lun::Error::BlockSize { .. } => Status::INVALID_FIELD,
            lun::Error::ReadOnly => Status::WRITE_PROTECTED,
            lun::Error::NoSpace => Status::CAPACITY_EXCEEDED,
            lun::Error::Suspended if self.namespace.unit.waits_while_suspended() => {
                return IoFailure::Suspended;
            }
            lun::Error::Suspended => Status::NOT_READY,
            lun::Error::Gone => Status::INVALID_NAMESPACE,
            lun::Error::Medium { .. } | lun::Error::Open { .. } => medium,
        })
    }
}

fn flush(context: &IoContext<'_>, command: &Command) -> Outcome {
    let namespaces = context.controller.namespaces();
    let number = command.namespace();
    if number != ALL_NAMESPACES && !namespaces.contains_key(&number) {
        return Err(Status::INVALID_NAMESPACE.into());
    }
    for (found, namespace) in &*namespaces {
        if number == *found || number == ALL_NAMESPACES {
            let unit = Unit { context, namespace };
            let _admitted = unit.admit(AccessKind::Write)?;
            namespace.unit.flush().map_err(|error| unit.write_failure(&error))?;
        }
    }
    Ok(0)
}
