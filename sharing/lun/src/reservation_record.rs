//! Saved persistent reservations.
//!
//! ```text
//! size  field
//!    1  version: 1
//!    4  generation
//!    1  type of the reservation; 0: none
//!    2  length of the holder's nexus; 65535: all registrants; 0 where there is no reservation
//!       the holder's nexus
//!    4  number of registrations, then of each
//!    8    its key
//!    2    length of its nexus
//!         the nexus
//! ```
//!
//! All numbers are little-endian. Nothing follows.

use std::collections::BTreeMap;

use crate::reservations::{Holder, Nexus, ReservationKey, ReservationReport, ReservationType};

const VERSION: u8 = 1;
const ALL_REGISTRANTS: u16 = u16::MAX;

/// The bytes of a state. A nexus that is too long to be saved, which no protocol has, is left out.
pub(crate) fn encode(state: &ReservationReport) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend(state.generation.to_le_bytes());
    match &state.reservation {
        Some((Holder::AllRegistrants, kind)) => {
            bytes.push(kind.code());
            bytes.extend(ALL_REGISTRANTS.to_le_bytes());
        }
        Some((Holder::One(holder), kind)) if saved_len(holder).is_some() => {
            bytes.push(kind.code());
            push_nexus(&mut bytes, holder);
        }
        _ => bytes.extend([0, 0, 0]),
    }
    let saved = state.registrations.iter().filter(|(nexus, _)| saved_len(nexus).is_some());
    let mut count = 0_u32;
    let mut records = Vec::new();
    for (nexus, key) in saved {
        count += 1;
        records.extend(key.0.to_le_bytes());
        push_nexus(&mut records, nexus);
    }
    bytes.extend(count.to_le_bytes());
    bytes.extend(records);
    bytes
}

fn saved_len(nexus: &Nexus) -> Option<u16> {
    u16::try_from(nexus.0.len()).ok().filter(|length| *length != ALL_REGISTRANTS)
}

fn push_nexus(bytes: &mut Vec<u8>, nexus: &Nexus) {
    if let Some(length) = saved_len(nexus) {
        bytes.extend(length.to_le_bytes());
        bytes.extend(&nexus.0);
    }
}

/// The state of saved bytes; none: they are damaged.
pub(crate) fn decode(bytes: &[u8]) -> Option<ReservationReport> {
    let mut rest = bytes;
    let [version] = take(&mut rest)?;
    if version != VERSION {
        return None;
    }
    let generation = u32::from_le_bytes(take(&mut rest)?);
    let [code] = take(&mut rest)?;
    let length = u16::from_le_bytes(take(&mut rest)?);
    let reservation = if code == 0 {
        None
    } else if length == ALL_REGISTRANTS {
        Some((Holder::AllRegistrants, ReservationType::from_code(code)?))
    } else {
        let holder = Holder::One(take_nexus(&mut rest, length)?);
        Some((holder, ReservationType::from_code(code)?))
    };
    let mut registrations = BTreeMap::new();
    for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
        let key = ReservationKey(u64::from_le_bytes(take(&mut rest)?));
        let length = u16::from_le_bytes(take(&mut rest)?);
        registrations.insert(take_nexus(&mut rest, length)?, key);
    }
    let is_held_by_registrant = match &reservation {
        Some((Holder::One(holder), _)) => registrations.contains_key(holder),
        Some((Holder::AllRegistrants, _)) => !registrations.is_empty(),
        None => true,
    };
    let has_keys = registrations.values().all(|key| *key != ReservationKey::NONE);
    let is_whole = rest.is_empty() && is_held_by_registrant && has_keys;
    is_whole.then_some(ReservationReport { generation, registrations, reservation })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*first)
}

fn take_nexus(rest: &mut &[u8], length: u16) -> Option<Nexus> {
    let (nexus, behind) = rest.split_at_checked(length.into())?;
    *rest = behind;
    Some(Nexus(nexus.to_vec()))
}
