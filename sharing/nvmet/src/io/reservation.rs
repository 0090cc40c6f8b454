//! Reservation Register, Acquire, Release and Report. Hosts are known by their identifiers (HOSTID).
//!
//! ```text
//! command    dword 10                                              data
//! Register   0-2: 0 register, 1 unregister, 2 replace;             0 8 current key, 8 8 new key
//!            3: the current key does not matter;
//!            30-31: 2 not kept over a restart, 3 kept
//! Acquire    0-2: 0 acquire, 1 preempt, 2 preempt and abort;       0 8 current key, 8 8 key to preempt
//!            8-15: type
//! Release    0-2: 0 release, 1 clear; 8-15: type                   0 8 current key
//! Report     dwords of data, less 1; dword 11 bit 0: extended      see `report`
//! ```
//! Learnt from: NVM Express Base Specification 2.0, sections 7.3 to 7.6, 8.19.

use lun::{Holder, Nexus, ReservationError, ReservationKey, ReservationReport, ReservationType};
use sha2::{Digest, Sha256};

use super::{IoFailure, Outcome, Unit};
use crate::wire::command::Command;
use crate::wire::completion::Status;
use crate::wire::{Page, le64};

/// Bytes of the header of the extended report, and of each of its entries.
const ENTRY_SIZE: usize = 64;
/// The number of a controller in a report: hosts have controllers for as long as they are connected alone.
const ANY_CONTROLLER: u16 = 0xffff;
/// The bit of dword 10 by which the current key does not matter.
const IGNORES_KEY: u32 = 1 << 3;

fn failure(error: ReservationError) -> IoFailure {
    IoFailure::Status(match error {
        ReservationError::Conflict(_) => Status::RESERVATION_CONFLICT,
        ReservationError::InvalidRelease
        | ReservationError::InvalidKey
        | ReservationError::Damaged => Status::INVALID_FIELD,
        ReservationError::NotSaved => Status::INTERNAL,
    })
}

/// The reservation type of a code of NVMe.
fn kind_of(code: u8) -> Result<ReservationType, Status> {
    let at = usize::from(code).checked_sub(1).and_then(|at| ReservationType::ALL.get(at));
    at.copied().ok_or(Status::INVALID_FIELD)
}

/// The code of a reservation type.
fn code_of(kind: ReservationType) -> u8 {
    match kind {
        ReservationType::WriteExclusive => 1,
        ReservationType::ExclusiveAccess => 2,
        ReservationType::WriteExclusiveRegistrantsOnly => 3,
        ReservationType::ExclusiveAccessRegistrantsOnly => 4,
        ReservationType::WriteExclusiveAllRegistrants => 5,
        ReservationType::ExclusiveAccessAllRegistrants => 6,
    }
}

fn keys(data: &[u8], count: usize) -> Result<(ReservationKey, ReservationKey), Status> {
    if data.len() < count * 8 {
        return Err(Status::SGL_LENGTH);
    }
    Ok((ReservationKey(le64(data, 0)), ReservationKey(le64(data, 8))))
}

impl Unit<'_> {
    pub(super) fn nexus(&self) -> Nexus {
        self.context.controller.nexus()
    }

    pub(super) fn register(&self, command: &Command, data: &[u8]) -> Outcome {
        let (current, new) = keys(data, 2)?;
        let fields = command.dword(10);
        let (ignores, persistence) = (fields & IGNORES_KEY != 0, fields >> 30);
        let (nexus, reservations) = (self.nexus(), self.namespace.unit.reservations());
        if persistence == 1 || persistence == 3 && !reservations.can_persist() {
            return Err(Status::INVALID_FIELD.into());
        }
        let persistence = (persistence > 1).then_some(persistence == 3);
        let known = reservations.report().registrations.get(&nexus).copied();
        let expected = (!ignores).then_some(current);
        let (expected, new) = match fields & 7 {
            0 | 2 if new == ReservationKey::NONE => return Err(Status::INVALID_FIELD.into()),
            // a host may register its key again
            0 if known == Some(new) => (Some(new), new),
            0 => (Some(ReservationKey::NONE), new),
            1 if known.is_none() => return Err(Status::RESERVATION_CONFLICT.into()),
            1 => (expected, ReservationKey::NONE),
            2 => (expected, new),
            _ => return Err(Status::INVALID_FIELD.into()),
        };
        reservations.register(&nexus, expected, new, persistence).map_err(failure)?;
        Ok(0)
    }

    pub(super) fn acquire(&self, command: &Command, data: &[u8]) -> Outcome {
        let (current, victim) = keys(data, 2)?;
        let fields = command.dword(10);
        if fields & IGNORES_KEY != 0 {
            return Err(Status::INVALID_FIELD.into());
        }
        let kind = kind_of(fields.to_le_bytes()[1])?;
        let (nexus, reservations) = (self.nexus(), self.namespace.unit.reservations());
        match fields & 7 {
            0 => reservations.reserve(&nexus, current, kind).map_err(failure)?,
            // commands of the other host are over: there is nothing to abort
            1 | 2 => {
                drop(reservations.preempt(&nexus, current, victim, kind).map_err(failure)?);
            }
            _ => return Err(Status::INVALID_FIELD.into()),
        }
        Ok(0)
    }

    pub(super) fn release(&self, command: &Command, data: &[u8]) -> Outcome {
        let (current, _) = keys(data, 1)?;
        let fields = command.dword(10);
        if fields & IGNORES_KEY != 0 {
            return Err(Status::INVALID_FIELD.into());
        }
        let (nexus, reservations) = (self.nexus(), self.namespace.unit.reservations());
        let released = match fields & 7 {
            0 => reservations.release(&nexus, current, kind_of(fields.to_le_bytes()[1])?),
            1 => reservations.clear(&nexus, current),
            _ => return Err(Status::INVALID_FIELD.into()),
        };
        released.map_err(failure)?;
        Ok(0)
    }

    /// The extended report, as hosts have identifiers of 128 bits.
    pub(super) fn report(&self, command: &Command, data_in: &mut [u8]) -> Outcome {
        if command.dword(11) & 1 == 0 {
            return Err(Status::HOST_ID_FORMAT.into());
        }
        let length = usize::try_from((u64::from(command.dword(10)) + 1) * 4);
        let length = length.map_err(|_| Status::INVALID_FIELD)?;
        if length != data_in.len() {
            return Err(Status::SGL_LENGTH.into());
        }
        let reservations = self.namespace.unit.reservations();
        let bytes = encode_report(&reservations.report(), reservations.is_persistent());
        let count = bytes.len().min(length);
        data_in[..count].copy_from_slice(&bytes[..count]);
        data_in[count..].fill(0);
        Ok(0)
    }
}

/// The identifier of a host. An initiator of another protocol is shown as a hash of its name.
fn host_of(nexus: &Nexus) -> [u8; 16] {
    nexus.nvme_host().unwrap_or_else(|| {
        let hash: [u8; 32] = Sha256::digest(&nexus.0).into();
        *hash.first_chunk().expect("a hash has 32 bytes")
    })
}

/// The extended report:
/// ```text
/// offset  size  field                     an entry
///      0     4  generation                     0     2  controller
///      4     1  type; 0: none                  2     1  1: holds the reservation
///      5     2  registered hosts               8     8  key
///      9     1  1: kept over a restart        16    16  host identifier
///     64        entries of 64 bytes
/// ```
fn encode_report(report: &ReservationReport, is_kept: bool) -> Vec<u8> {
    let mut page = Page::new(ENTRY_SIZE * (1 + report.registrations.len()));
    let kind = report.reservation.as_ref().map_or(0, |(_, kind)| code_of(*kind));
    let count = u16::try_from(report.registrations.len()).unwrap_or(u16::MAX);
    page.put32(0, report.generation).put8(4, kind).put16(5, count).put8(9, u8::from(is_kept));
    for (number, (nexus, key)) in report.registrations.iter().enumerate() {
        let at = ENTRY_SIZE * (number + 1);
        let holds = match &report.reservation {
            Some((Holder::One(holder), _)) => holder == nexus,
            Some((Holder::AllRegistrants, _)) => true,
            None => false,
        };
        page.put16(at, ANY_CONTROLLER)
            .put8(at + 2, u8::from(holds))
            .put64(at + 8, key.0)
            .put(at + 16, &host_of(nexus));
    }
    page.into_bytes()
}
