//! Persistent reservations, and the reservations of SCSI-2 that they replaced.
//!
//! PERSISTENT RESERVE IN answers with a header, and descriptors after it:
//! ```text
//! READ KEYS           generation (32 bits), bytes that follow (32), keys (64 each)
//! READ RESERVATION    generation, bytes that follow (0 or 16), then key (64), 0 (32), 0, scope and type (8), 0 (16)
//! REPORT CAPABILITIES 8 (16 bits), 0x01 if kept over power loss, 0x80 and 0x01 if they are now, types (16), 0 (16)
//! READ FULL STATUS    generation, bytes that follow, then of each registrant:
//!                     key (64), 0 (32), 0x01 holder (8), scope and type (8), 0 (32), port (16), length (32), name
//! ```
//! The parameter list of PERSISTENT RESERVE OUT:
//! ```text
//! offset  size  field
//!      0     8  key of the initiator
//!      8     8  key that the action is about
//!     20     1  0x08 name of other ports, 0x04 all ports, 0x01 keep over power loss (APTPL)
//!     24
//! ```
//! Learnt from: SPC-4, 5.12, 6.15, 6.16 and 7.6.4.5.

use lun::{Holder, Nexus, ReservationError, ReservationKey, ReservationReport, ReservationType};

use super::execute::{Failure, Outcome, Path};
use super::{LogicalUnit, Sense};
use crate::target::initiator_port;

const PARAMETER_LIST_SIZE: usize = 24;

/// PERSISTENT RESERVE IN.
pub(crate) fn reserve_in(logical: &LogicalUnit, action: u8) -> Result<Vec<u8>, Sense> {
    let report = logical.unit.reservations().report();
    let body = match action {
        0 => report.registrations.values().flat_map(|key| key.0.to_be_bytes()).collect(),
        1 => read_reservation(&report),
        2 => return Ok(capabilities(logical)),
        3 => full_status(&report),
        _ => return Err(Sense::invalid_field(1)),
    };
    let body: Vec<u8> = body;
    let length = u32::try_from(body.len()).expect("registrations are bounded by memory");
    Ok([&report.generation.to_be_bytes()[..], &length.to_be_bytes(), &body].concat())
}

fn read_reservation(report: &ReservationReport) -> Vec<u8> {
    let Some((holder, kind)) = &report.reservation else { return Vec::new() };
    let key = match holder {
        Holder::One(nexus) => report.registrations.get(nexus).map_or(0, |key| key.0),
        Holder::AllRegistrants => 0,
    };
    let mut bytes = key.to_be_bytes().to_vec();
    bytes.extend([0, 0, 0, 0, 0, kind.code(), 0, 0]);
    bytes
}

fn capabilities(logical: &LogicalUnit) -> Vec<u8> {
    let reservations = logical.unit.reservations();
    let (can_persist, persists) = (reservations.can_persist(), reservations.is_persistent());
    let mut types = [0; 2];
    for kind in ReservationType::ALL {
        let [byte, bit] = match kind {
            ReservationType::WriteExclusive => [0, 0x02],
            ReservationType::ExclusiveAccess => [0, 0x08],
            ReservationType::WriteExclusiveRegistrantsOnly => [0, 0x20],
            ReservationType::ExclusiveAccessRegistrantsOnly => [0, 0x40],
            ReservationType::WriteExclusiveAllRegistrants => [0, 0x80],
            ReservationType::ExclusiveAccessAllRegistrants => [1, 0x01],
        };
        types[usize::from(byte)] |= bit;
    }
    vec![0, 8, u8::from(can_persist), 0x80 | u8::from(persists), types[0], types[1], 0, 0]
}

fn full_status(report: &ReservationReport) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (nexus, key) in &report.registrations {
        let holds = match &report.reservation {
            Some((Holder::One(holder), kind)) if holder == nexus => Some(*kind),
            Some((Holder::AllRegistrants, kind)) => Some(*kind),
            _ => None,
        };
        let name = transport_id(nexus);
        let length = u32::try_from(name.len()).expect("names are short");
        bytes.extend(key.0.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.push(u8::from(holds.is_some()));
        bytes.push(holds.map_or(0, ReservationType::code));
        bytes.extend([0, 0, 0, 0, 0, 1]);
        bytes.extend(length.to_be_bytes());
        bytes.extend(name);
    }
    bytes
}

/// The name of an initiator port: 0x45, 0, bytes that follow (16 bits), the name with NULs up to a whole word.
fn transport_id(nexus: &Nexus) -> Vec<u8> {
    let mut name = initiator_port(nexus);
    name.push(0);
    name.resize(name.len().next_multiple_of(4).max(20), 0);
    let length = u16::try_from(name.len()).expect("names are short");
    [&[0x45, 0][..], &length.to_be_bytes(), &name].concat()
}

impl From<ReservationError> for Failure {
    fn from(error: ReservationError) -> Self {
        match error {
            ReservationError::Conflict(_) => Self::Conflict,
            ReservationError::InvalidRelease => Self::Check(Sense::INVALID_RELEASE),
            ReservationError::InvalidKey | ReservationError::Damaged => {
                Self::Check(Sense::INVALID_PARAMETER)
            }
            ReservationError::NotSaved => Self::Check(Sense::INSUFFICIENT_RESERVATION_RESOURCES),
        }
    }
}

/// PERSISTENT RESERVE OUT.
pub(crate) fn reserve_out(
    path: &Path<'_>,
    logical: &LogicalUnit,
    (action, scope_type): (u8, u8),
    data: &[u8],
) -> Outcome {
    let list: &[u8; PARAMETER_LIST_SIZE] = match data.first_chunk() {
        Some(list) if data.len() == PARAMETER_LIST_SIZE => list,
        _ => return Err(Sense::PARAMETER_LIST_LENGTH.into()),
    };
    let key_at = |at: usize| {
        let bytes = list[at..].first_chunk().expect("the list has 24 bytes");
        ReservationKey(u64::from_be_bytes(*bytes))
    };
    let (own, other, flags) = (key_at(0), key_at(8), list[20]);
    let (reservations, nexus) = (logical.unit.reservations(), path.nexus);
    let kind = || {
        let is_whole_unit = scope_type >> 4 == 0;
        let kind = ReservationType::from_code(scope_type & 0xf);
        kind.filter(|_| is_whole_unit).ok_or(Sense::invalid_field(2))
    };
    match action {
        0 | 6 => {
            // names of other ports, and all target ports: there is one port, and initiators register themselves
            if flags & 0x0c != 0 {
                return Err(Sense::INVALID_PARAMETER.into());
            }
            let persists = flags & 1 != 0;
            if persists && !reservations.can_persist() {
                return Err(Sense::INVALID_PARAMETER.into());
            }
            let current = (action == 0).then_some(own);
            reservations.register(nexus, current, other, Some(persists))?;
        }
        1 => reservations.reserve(nexus, own, kind()?)?,
        2 => drop(reservations.release(nexus, own, kind()?)?),
        3 => drop(reservations.clear(nexus, own)?),
        4 => drop(reservations.preempt(nexus, own, other, kind()?)?),
        5 => {
            let preempted = reservations.preempt(nexus, own, other, kind()?)?;
            // NVMe commands of the others are over: the change has waited for them
            (path.abort_tasks)(logical, &logical.sessions_of(&preempted.unregistered));
        }
        _ => return Err(Sense::invalid_field(1).into()),
    }
    Ok(())
}

/// RESERVE(6).
pub(crate) fn reserve(path: &Path<'_>, logical: &LogicalUnit) -> Outcome {
    let is_free = logical.unit.reservations().report().registrations.is_empty();
    if is_free && logical.reserve(path.session) { Ok(()) } else { Err(Failure::Conflict) }
}

/// RELEASE(6). A session that does not hold the unit releases nothing.
pub(crate) fn release(path: &Path<'_>, logical: &LogicalUnit) -> Outcome {
    if !logical.unit.reservations().report().registrations.is_empty() {
        return Err(Failure::Conflict);
    }
    logical.release(path.session);
    Ok(())
}
