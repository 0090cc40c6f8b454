//! Reservations between two sessions, over a restart, and at the end of a session.

use std::sync::Arc;

use iscsi::Server;
use lun::{AccessKind, Nexus, ReservationKey, ReservationStore, ReservationType, Reservations};
use parking_lot::Mutex;

use crate::initiator::{Initiator, Response, read10, write10};
use crate::served_pool::{ServedPool, open_unit, options, start_server, target};

const CONFLICT: u8 = 0x18;
const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_REGISTRANTS: u8 = 6;

/// PERSISTENT RESERVE OUT with the own key, and one that the action is about.
fn reserve_out(
    initiator: &mut Initiator,
    (action, kind): (u8, u8),
    (own, other): (u64, u64),
    flags: u8,
) -> Response {
    let mut list = [own.to_be_bytes(), other.to_be_bytes(), [0; 8]].concat();
    list[20] = flags;
    initiator.write(&[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], &list)
}

fn reserve_in(initiator: &mut Initiator, action: u8) -> Vec<u8> {
    initiator.read(&[0x5e, action, 0, 0, 0, 0, 0, 1, 0, 0], 256).good()
}

#[test]
fn a_survivor_preempts_and_fences() {
    let served = ServedPool::start();
    let (mut one, mut other) = (served.initiator(), served.initiator_with(2, &[]));
    reserve_out(&mut one, (0, 0), (0, 11), 0).good();
    reserve_out(&mut other, (0, 0), (0, 22), 0).good();
    reserve_out(&mut one, (1, EXCLUSIVE_REGISTRANTS), (11, 0), 0).good();
    assert_eq!(
        reserve_in(&mut one, 0)[4..],
        *[&[0, 0, 0, 16][..], &11_u64.to_be_bytes(), &22_u64.to_be_bytes()].concat()
    );
    let status = reserve_in(&mut other, 3);
    let name = String::from_utf8_lossy(&status).into_owned();
    assert!(name.contains("iqn.2026-01.org.example:initiator,i,0x800000000001\0"), "{name}");
    other.write(&write10(0, 0, 1), &[2; 512]).good();
    // a write of the other one waits for data when it is fenced
    other.immediate = 0;
    other.send_write(&write10(0, 0, 16), &[2; 8192]);
    let r2t = other.receive().unwrap();
    reserve_out(&mut one, (5, EXCLUSIVE_REGISTRANTS), (11, 22), 0).good();
    other.send_solicited(&r2t, &[2; 8192]);
    assert_eq!(other.attentions(), [(0x2a, 0x05)], "registrations preempted");
    assert_eq!(other.write(&write10(0, 0, 1), &[]).status, CONFLICT);
    assert_eq!(other.read(&read10(0, 1), 512).status, CONFLICT);
    assert_eq!(one.read(&read10(1, 1), 512).good(), [0; 512], "the aborted write wrote nothing");
    let mut third = served.initiator_with(3, &[]);
    assert_eq!(third.read(&read10(0, 1), 512).status, CONFLICT);
    assert_eq!(third.read(&[0; 6], 0).status, 0);
    assert_eq!(reserve_out(&mut third, (2, EXCLUSIVE_REGISTRANTS), (11, 0), 0).status, CONFLICT);
    assert_eq!(reserve_out(&mut one, (2, WRITE_EXCLUSIVE), (11, 0), 0).check(), (5, 0x26, 4));
    reserve_out(&mut one, (3, 0), (11, 0), 0).good();
    assert_eq!(third.read(&read10(0, 1), 512).status, 0);
}

#[test]
fn nvme_hosts_keep_initiators_out() {
    let served = ServedPool::start();
    let mut one = served.initiator();
    reserve_out(&mut one, (0, 0), (0, 11), 0).good();
    // an NVMe/TCP server of the same volume has the same reservations
    let (host, key) = (Nexus(vec![0xab; 16]), ReservationKey(22));
    let reservations = served.unit.lun.reservations();
    reservations.register(&host, None, key, None).unwrap();
    reservations.reserve(&host, key, ReservationType::WriteExclusive).unwrap();
    assert_eq!(one.write(&write10(0, 0, 1), &[]).status, CONFLICT);
    assert_eq!(one.read(&read10(0, 1), 512).good(), [0; 512]);
    let status = reserve_in(&mut one, 3);
    let name = String::from_utf8_lossy(&status).into_owned();
    let uuid = "abababab-abab-abab-abab-abababababab";
    assert!(name.contains(&format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}\0")), "{name}");
    reservations.preempt(&host, key, ReservationKey(11), ReservationType::WriteExclusive).unwrap();
    assert_eq!(one.attentions(), [(0x2a, 0x05)], "registrations preempted");
    reserve_out(&mut one, (0, 0), (0, 11), 0).good();
    reserve_out(&mut one, (4, WRITE_EXCLUSIVE), (11, 22), 0).good();
    assert!(reservations.admit(&host, AccessKind::Write).is_err());
    one.write(&write10(0, 0, 1), &[1; 512]).good();
}

#[test]
fn kept_reservations_outlast_a_restart() {
    let served = ServedPool::start();
    let kept: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let into = Arc::clone(&kept);
    let store = ReservationStore::new(move |bytes| {
        *into.lock() = bytes.map(<[u8]>::to_vec);
        true
    });
    // without a store a target does not accept APTPL
    let mut one = served.initiator();
    assert_eq!(reserve_in(&mut one, 2)[2], 0);
    assert_eq!(reserve_out(&mut one, (0, 0), (0, 11), 1).check(), (5, 0x26, 0));
    let unit = open_unit(&served.pool, Reservations::default().with_store(store.clone()));
    let server = start_server(&options(), vec![target(&unit)]).unwrap();
    let connect = |server: &Server, isid| {
        let mut initiator = Initiator::connect_as(server.addresses()[0], isid)
            .log_in(crate::served_pool::TARGET, &[]);
        initiator.attentions();
        initiator
    };
    let mut one = connect(&server, 1);
    reserve_out(&mut one, (0, 0), (0, 11), 1).good();
    reserve_out(&mut one, (1, WRITE_EXCLUSIVE), (11, 0), 0).good();
    assert_eq!(reserve_in(&mut one, 2)[2..4], [1, 0x81]);
    drop(server);
    let saved = kept.lock().clone().expect("reservations");
    let loaded = Reservations::load(&saved).unwrap();
    let unit = open_unit(&served.pool, loaded.with_store(store));
    let server = start_server(&options(), vec![target(&unit)]).unwrap();
    let mut other = connect(&server, 2);
    assert_eq!(other.write(&write10(0, 0, 1), &[]).status, CONFLICT);
    let mut one = connect(&server, 1);
    one.write(&write10(0, 0, 1), &[1; 512]).good();
    // a registration without APTPL removes the saved ones
    reserve_out(&mut one, (6, 0), (0, 12), 0).good();
    assert_eq!(*kept.lock(), None);
}

#[test]
fn old_reservations_end_with_the_session() {
    let served = ServedPool::start();
    let (mut one, mut other) = (served.initiator(), served.initiator_with(2, &[]));
    let (reserve, release) = ([0x16, 0, 0, 0, 0, 0], [0x17, 0, 0, 0, 0, 0]);
    assert_eq!(one.read(&reserve, 0).status, 0);
    assert_eq!(other.read(&reserve, 0).status, CONFLICT);
    assert_eq!(other.read(&release, 0).status, 0, "nothing is released");
    assert_eq!(other.read(&read10(0, 1), 512).status, CONFLICT);
    drop(one);
    crate::served_pool::wait_until("the end of a session", || {
        served.server.status().sessions.len() == 1
    });
    assert_eq!(other.read(&reserve, 0).status, 0);
}
