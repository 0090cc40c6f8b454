//! One command on a unit: whether it may run now, and its execution.

use std::collections::BTreeMap;
use std::sync::Arc;

use lun::{AccessKind, Admitted, Durability, MemoryParts, Nexus};

use super::cdb::{Blocks, Command};
use super::{
    LogicalUnit, Sense, SessionId, blocks, copy, inquiry, mode, opcodes, provisioning, reservation,
    thin_threshold,
};

/// Why a command does not end with the status GOOD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// CHECK CONDITION.
    Check(Sense),
    /// RESERVATION CONFLICT.
    Conflict,
    /// The pool is suspended. The command can be repeated.
    Suspended,
}

impl From<Sense> for Failure {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

pub(crate) type Outcome = Result<(), Failure>;

/// The path of a command: the session and the unit that it is for.
pub(crate) struct Path<'a> {
    pub(crate) session: SessionId,
    pub(crate) nexus: &'a Nexus,
    /// The name of the target port, for INQUIRY.
    pub(crate) target: &'a str,
    /// All units of the target, for REPORT LUNS.
    pub(crate) units: &'a BTreeMap<u16, Arc<LogicalUnit>>,
    /// The unit; none: the target has no such unit.
    pub(crate) logical: Option<&'a LogicalUnit>,
    /// Ends the tasks that some sessions have on a unit. Returns when they have ended.
    pub(crate) abort_tasks: &'a AbortTasks<'a>,
    /// The threshold of thin provisioning, in percent of the unit's size; 0: none.
    pub(crate) space_warning: u8,
}

pub(crate) type AbortTasks<'a> = dyn Fn(&LogicalUnit, &[SessionId]) + 'a;

impl Path<'_> {
    /// Parses a command, and checks everything that can be checked before its data is there.
    pub(crate) fn prepare(&self, cdb: &[u8; 16]) -> Result<Command, Failure> {
        // INQUIRY, REPORT LUNS and REQUEST SENSE neither report nor are stopped by unit attentions
        let is_exempt = matches!(cdb[0], 0x12 | 0xa0 | 0x03);
        let Some(logical) = self.logical else {
            let nothing = lun::Geometry {
                block_size: 512,
                blocks: 0,
                physical_block_size: 512,
                optimal_transfer: (0, 0),
                unmap_granularity: 512,
                is_read_only: true,
            };
            return if is_exempt {
                Ok(Command::parse(cdb, &nothing)?)
            } else {
                Err(Sense::NO_SUCH_UNIT.into())
            };
        };
        if !is_exempt && let Some(attention) = logical.take_attention(self.session) {
            return Err(attention.into());
        }
        self.check_reserved(cdb, logical)?;
        let command = Command::parse(cdb, &logical.unit.geometry())?;
        // it is checked again when its data is there
        drop(self.admit(&command, logical)?);
        Ok(command)
    }

    /// A unit that is reserved by RESERVE(6) is for its holder.
    fn check_reserved(&self, cdb: &[u8; 16], logical: &LogicalUnit) -> Outcome {
        let is_free = matches!(cdb[0], 0x12 | 0xa0 | 0x03 | 0x17);
        if !is_free && logical.is_reserved_from(self.session) {
            return Err(Failure::Conflict);
        }
        Ok(())
    }

    /// Admits a command that persistent reservations and write protection allow. None: they do not concern it.
    fn admit<'unit>(
        &self,
        command: &Command,
        logical: &'unit LogicalUnit,
    ) -> Result<Option<Admitted<'unit>>, Failure> {
        let access = match command {
            Command::Write { .. }
            | Command::WriteVerify { .. }
            | Command::Unmap { .. }
            | Command::WriteSame { .. }
            | Command::CompareAndWrite { .. } => {
                let admitted = self.admit_access(logical, AccessKind::Write)?;
                if logical.is_write_protected() {
                    return Err(Sense::WRITE_PROTECTED.into());
                }
                return Ok(Some(admitted));
            }
            Command::Synchronize
            | Command::ModeSelect { .. }
            | Command::StartStop { starts: false }
            | Command::PreventRemoval { prevents: true } => AccessKind::Write,
            Command::Read { .. }
            | Command::Verify { .. }
            | Command::Prefetch { .. }
            | Command::GetLbaStatus { .. }
            | Command::ModeSense { .. } => AccessKind::Read,
            _ => return Ok(None),
        };
        self.admit_access(logical, access).map(Some)
    }

    /// Admits a copy from or to a unit, unless it is reserved for others.
    pub(crate) fn admit_copy<'unit>(
        &self,
        logical: &'unit LogicalUnit,
        access: AccessKind,
    ) -> Result<Admitted<'unit>, Failure> {
        if logical.is_reserved_from(self.session) {
            return Err(Failure::Conflict);
        }
        self.admit_access(logical, access)
    }

    fn admit_access<'unit>(
        &self,
        logical: &'unit LogicalUnit,
        access: AccessKind,
    ) -> Result<Admitted<'unit>, Failure> {
        let admitted = logical.unit.reservations().admit(self.nexus, access);
        admitted.map_err(|_| Failure::Conflict)
    }

    /// The data of a read, if it is in memory and the unit is not reserved for others.
    pub(crate) fn parts_in_memory(
        &self,
        logical: &LogicalUnit,
        blocks: Blocks,
    ) -> Option<MemoryParts> {
        let _admitted = self.admit_access(logical, AccessKind::Read).ok()?;
        logical.unit.parts_in_memory(blocks.offset(), blocks::length(blocks.bytes()))
    }

    /// Carries out a command. `data_out` is what the initiator sent; `data_in` is filled with what it gets.
    pub(crate) fn execute(
        &self,
        command: &Command,
        data_out: &[u8],
        data_in: &mut Vec<u8>,
    ) -> Outcome {
        if !matches!(command, Command::Read { .. }) {
            data_in.clear();
        }
        let Some(logical) = self.logical else {
            return self.execute_without_unit(command, data_in);
        };
        if let Some((found, allocation)) = self.describe(command, logical)? {
            answer(data_in, &found, allocation);
            return Ok(());
        }
        let _admitted = self.admit(command, logical)?;
        let unit = &*logical.unit;
        match *command {
            Command::TestUnitReady => match unit.space() {
                Err(lun::Error::Gone) => Err(Sense::NO_SUCH_UNIT.into()),
                _ => Ok(()),
            },
            Command::ModeSense { .. } => mode::sense(command, self, logical, data_in),
            Command::ModeSelect { is_long, .. } => {
                mode::select(is_long, data_out, logical, self.session)
            }
            // a unit cannot be removed or turned off: earlier writes are made durable
            Command::StartStop { starts: false } | Command::Synchronize => {
                unit.flush().map_err(|error| write_failure(&error))
            }
            Command::StartStop { starts: true } | Command::PreventRemoval { .. } => Ok(()),
            Command::Read { blocks, fua } => blocks::read(unit, blocks, fua, data_in),
            Command::Write { blocks, fua } => {
                blocks::write(unit, blocks, data_out, durability(logical, fua))
            }
            Command::WriteVerify { blocks, compares } => {
                blocks::write_and_verify(unit, blocks, data_out, compares)
            }
            Command::Verify { blocks, comparison } => {
                blocks::verify(unit, blocks, comparison, data_out)
            }
            Command::Prefetch { blocks } => blocks::prefetch(unit, blocks),
            Command::CompareAndWrite { blocks, fua } => {
                blocks::compare_and_write(unit, blocks, data_out, durability(logical, fua))
            }
            Command::Unmap { .. } => {
                provisioning::unmap(unit, data_out, durability(logical, false))
            }
            Command::WriteSame { blocks, no_data } => {
                let data = if no_data { None } else { Some(data_out) };
                provisioning::write_same(unit, blocks, data, durability(logical, false))
            }
            Command::GetLbaStatus { lba, allocation } => {
                provisioning::lba_status(unit, lba, allocation, data_in)
            }
            Command::ReserveOut { action, scope_type, .. } => {
                reservation::reserve_out(self, logical, (action, scope_type), data_out)
            }
            Command::ExtendedCopy { .. } => copy::extended_copy(self, logical, data_out),
            Command::Reserve => reservation::reserve(self, logical),
            Command::Release => reservation::release(self, logical),
            _ => unreachable!("the other commands describe the unit"),
        }
    }

    /// The answer of a command that only describes the unit, and the bytes that the initiator has room for.
    fn describe(
        &self,
        command: &Command,
        logical: &LogicalUnit,
    ) -> Result<Option<(Vec<u8>, usize)>, Failure> {
        let unit = &*logical.unit;
        Ok(Some(match *command {
            Command::RequestSense { allocation } => {
                let sense = logical.take_attention(self.session).unwrap_or(Sense::NONE);
                (sense.encode().to_vec(), allocation)
            }
            Command::Inquiry { page, allocation } => {
                (inquiry::inquiry(page, logical, self.target)?, allocation)
            }
            Command::LogSense { page, allocation } => {
                (thin_threshold::log_page(unit, page)?, allocation)
            }
            Command::ReadCapacity10 => (inquiry::read_capacity10(unit), usize::MAX),
            Command::ReadCapacity16 { allocation } => (inquiry::read_capacity16(unit), allocation),
            Command::ReportUnits { allocation } => (inquiry::report_units(self.units), allocation),
            Command::ReportOpcodes { with_timeouts, option, opcode, action, allocation } => {
                (opcodes::report(with_timeouts, option, opcode, action)?, allocation)
            }
            Command::ReserveIn { action, allocation } => {
                (reservation::reserve_in(logical, action)?, allocation)
            }
            Command::CopyResults { action, list, allocation } => {
                (copy::copy_results(self, logical, (action, list))?, allocation)
            }
            _ => return Ok(None),
        }))
    }

    fn execute_without_unit(&self, command: &Command, data_in: &mut Vec<u8>) -> Outcome {
        match *command {
            Command::Inquiry { page: None, allocation } => {
                answer(data_in, &inquiry::no_unit(), allocation);
                Ok(())
            }
            Command::ReportUnits { allocation } => {
                answer(data_in, &inquiry::report_units(self.units), allocation);
                Ok(())
            }
            Command::RequestSense { allocation } => {
                answer(data_in, &Sense::NO_SUCH_UNIT.encode(), allocation);
                Ok(())
            }
            _ => Err(Sense::NO_SUCH_UNIT.into()),
        }
    }
}

/// The start of an answer that the initiator has room for.
pub(crate) fn answer(data_in: &mut Vec<u8>, bytes: &[u8], allocation: usize) {
    data_in.extend_from_slice(&bytes[..bytes.len().min(allocation)]);
}

fn durability(logical: &LogicalUnit, fua: bool) -> Durability {
    if fua || !logical.has_write_cache() { Durability::Durable } else { Durability::Cached }
}

pub(crate) fn read_failure(error: &lun::Error) -> Failure {
    failure(error, Sense::READ_ERROR)
}

pub(crate) fn write_failure(error: &lun::Error) -> Failure {
    failure(error, Sense::WRITE_ERROR)
}

fn failure(error: &lun::Error, medium: Sense) -> Failure {
    Failure::Check(match error {
        lun::Error::OutOfRange { .. } => Sense::OUT_OF_RANGE,
        lun::Error::Unaligned { .. }
        | lun::Error::LengthMismatch
        | lun::Error::BlockSize { .. } => Sense::INVALID_PARAMETER,
        lun::Error::ReadOnly => Sense::WRITE_PROTECTED,
        lun::Error::NoSpace => Sense::SPACE_ALLOCATION_FAILED,
        lun::Error::Suspended => return Failure::Suspended,
        lun::Error::Gone => Sense::NO_SUCH_UNIT,
        lun::Error::Medium { .. } | lun::Error::Open { .. } => medium,
    })
}
