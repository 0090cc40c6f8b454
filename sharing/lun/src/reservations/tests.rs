//! Reservations compared with SPC-4's rules.

use proptest::prelude::*;

use super::{
    AccessKind, Holder, Nexus, Preempted, ReservationConflict, ReservationError, ReservationKey,
    ReservationType, Reservations,
};
use ReservationType::{
    ExclusiveAccess, ExclusiveAccessAllRegistrants, ExclusiveAccessRegistrantsOnly, WriteExclusive,
    WriteExclusiveAllRegistrants, WriteExclusiveRegistrantsOnly,
};

const NONE: ReservationKey = ReservationKey::NONE;
const CONFLICT: ReservationError = ReservationError::Conflict(ReservationConflict);

fn nexus(number: u8) -> Nexus {
    Nexus(vec![number; 3])
}

fn key(number: u64) -> ReservationKey {
    ReservationKey(number)
}

/// Nexus 0 to 2 registered with keys 10 to 12; nexus 3 is not registered.
fn registered() -> Reservations {
    let all = Reservations::default();
    for number in 0..3 {
        all.register(&nexus(number), Some(NONE), key(10 + u64::from(number)), None).unwrap();
    }
    all
}

#[test]
fn access_is_as_the_table_says() {
    let all = registered();
    // by type: the rights of the holder, another registrant and an unregistered initiator
    let table = [
        (WriteExclusive, ["rw", "r", "r"]),
        (ExclusiveAccess, ["rw", "", ""]),
        (WriteExclusiveRegistrantsOnly, ["rw", "rw", "r"]),
        (ExclusiveAccessRegistrantsOnly, ["rw", "rw", ""]),
        (WriteExclusiveAllRegistrants, ["rw", "rw", "r"]),
        (ExclusiveAccessAllRegistrants, ["rw", "rw", ""]),
    ];
    for (kind, wanted) in table {
        all.reserve(&nexus(0), key(10), kind).unwrap();
        for (who, wanted) in [0, 1, 3].into_iter().zip(wanted) {
            let may = |access| all.check(&nexus(who), access).is_ok();
            let found = [(AccessKind::Read, "r"), (AccessKind::Write, "w")];
            let found: String = found
                .iter()
                .filter(|(access, _)| may(*access))
                .map(|(_, letter)| *letter)
                .collect();
            assert_eq!(found, wanted, "{kind:?}, nexus {who}");
        }
        all.release(&nexus(0), key(10), kind).unwrap();
    }
}

#[test]
fn registration_needs_the_current_key() {
    let all = registered();
    assert_eq!(all.register(&nexus(0), Some(key(9)), key(20), None), Err(CONFLICT));
    assert_eq!(all.register(&nexus(3), Some(key(9)), key(20), None), Err(CONFLICT));
    assert!(all.register(&nexus(3), None, key(20), None).is_ok());
    assert!(all.register(&nexus(0), Some(key(10)), key(20), None).is_ok());
    assert_eq!(all.report().generation, 5);
    assert_eq!(all.reserve(&nexus(0), key(10), WriteExclusive), Err(CONFLICT));
    assert!(all.reserve(&nexus(0), key(20), WriteExclusive).is_ok());
    assert_eq!(all.report().generation, 5);
}

#[test]
fn reservation_ends_when_its_holder_unregisters() {
    let all = registered();
    all.reserve(&nexus(0), key(10), WriteExclusiveRegistrantsOnly).unwrap();
    let told = all.register(&nexus(0), Some(key(10)), NONE, None).unwrap();
    assert_eq!(told, Preempted { unregistered: vec![], released: vec![nexus(1), nexus(2)] });
    assert_eq!(all.report().reservation, None);
    all.reserve(&nexus(1), key(11), ExclusiveAccessAllRegistrants).unwrap();
    all.register(&nexus(1), Some(key(11)), NONE, None).unwrap();
    assert!(all.report().reservation.is_some());
    all.register(&nexus(2), Some(key(12)), NONE, None).unwrap();
    assert_eq!(all.report().reservation, None);
}

#[test]
fn only_the_holder_releases() {
    let all = registered();
    all.reserve(&nexus(0), key(10), ExclusiveAccess).unwrap();
    assert_eq!(all.reserve(&nexus(1), key(11), ExclusiveAccess), Err(CONFLICT));
    assert_eq!(all.reserve(&nexus(0), key(10), WriteExclusive), Err(CONFLICT));
    assert!(all.release(&nexus(1), key(11), ExclusiveAccess).is_ok());
    let other = all.release(&nexus(0), key(10), WriteExclusive);
    assert_eq!(other, Err(ReservationError::InvalidRelease));
    assert!(all.report().reservation.is_some());
    all.release(&nexus(0), key(10), ExclusiveAccess).unwrap();
    assert_eq!(all.report().reservation, None);
}

#[test]
fn survivors_preempt_a_holder() {
    let all = registered();
    all.reserve(&nexus(0), key(10), WriteExclusiveRegistrantsOnly).unwrap();
    let told = all.preempt(&nexus(1), key(11), key(10), WriteExclusiveRegistrantsOnly).unwrap();
    assert_eq!(told, Preempted { unregistered: vec![nexus(0)], released: vec![] });
    let state = all.report();
    let holder = Holder::One(nexus(1));
    assert_eq!(state.reservation, Some((holder, WriteExclusiveRegistrantsOnly)));
    assert_eq!(all.check(&nexus(0), AccessKind::Write), Err(ReservationConflict));
    // a registrant that holds nothing loses its registration only
    let told = all.preempt(&nexus(1), key(11), key(12), ExclusiveAccess).unwrap();
    assert_eq!(told.unregistered, [nexus(2)]);
    assert_eq!(all.report().reservation, state.reservation);
    assert_eq!(all.preempt(&nexus(1), key(11), key(77), ExclusiveAccess), Err(CONFLICT));
    let none = all.preempt(&nexus(1), key(11), NONE, ExclusiveAccess);
    assert_eq!(none, Err(ReservationError::InvalidKey));
}

#[test]
fn preempting_all_registrants_takes_a_key_of_zero() {
    let all = registered();
    all.reserve(&nexus(0), key(10), WriteExclusiveAllRegistrants).unwrap();
    let told = all.preempt(&nexus(2), key(12), NONE, ExclusiveAccess).unwrap();
    assert_eq!(told.unregistered, [nexus(0), nexus(1)]);
    assert_eq!(all.report().reservation, Some((Holder::One(nexus(2)), ExclusiveAccess)));
    assert_eq!(all.clear(&nexus(2), key(12)).unwrap(), Preempted::default());
    assert!(all.report().registrations.is_empty());
}

type Step = (u8, u8, u64, u64, usize);

fn apply(all: &Reservations, (what, who, current, other, kind): Step) {
    let (who, current, other, kind) =
        (nexus(who), key(current), key(other), ReservationType::ALL[kind]);
    let _ = match what {
        0 => all.register(&who, Some(current), other, None).map(drop),
        1 => all.register(&who, None, other, None).map(drop),
        2 => all.reserve(&who, current, kind),
        3 => all.release(&who, current, kind).map(drop),
        4 => all.clear(&who, current).map(drop),
        _ => all.preempt(&who, current, other, kind).map(drop),
    };
}

proptest! {
    #[test]
    fn holders_are_registered_and_states_save(
        steps in prop::collection::vec((0..6_u8, 0..4_u8, 0..4_u64, 0..4_u64, 0..6_usize), 1..60),
    ) {
        let all = Reservations::default();
        for step in steps {
            apply(&all, step);
            let state = all.report();
            match &state.reservation {
                Some((Holder::One(holder), _)) => {
                    prop_assert!(state.registrations.contains_key(holder), "{:?}", state);
                }
                Some((Holder::AllRegistrants, kind)) => {
                    prop_assert!(kind.is_all_registrants() && !state.registrations.is_empty());
                }
                None => {}
            }
            let saved = all.save();
            prop_assert_eq!(Reservations::load(&saved).unwrap().report(), state);
            for end in 0..saved.len() {
                prop_assert!(Reservations::load(&saved[..end]).is_err());
            }
        }
    }

    #[test]
    fn damaged_bytes_load_without_panic(bytes: Vec<u8>) {
        let _ = Reservations::load(&bytes);
    }
}
