//! Reservations between two hosts.

use std::sync::Arc;

use lun::{AccessKind, Nexus, ReservationKey, ReservationStore, ReservationType, Reservations};
use parking_lot::Mutex;

use crate::host::{Entry, Host, le16, le32, le64};
use crate::served_pool::{ServedPool, open_namespace, options, start_server, subsystem};

const CONFLICT: u16 = 0x083;
const WRITE_EXCLUSIVE: u32 = 1;

fn keys(one: u64, other: u64) -> Vec<u8> {
    [one.to_le_bytes(), other.to_le_bytes()].concat()
}

fn register(host: &mut Host, new: u64) -> u16 {
    host.io.run_with(Entry::new(0x0d, 1), &keys(0, new)).status
}

fn acquire(host: &mut Host, action: u32, own: u64, victim: u64) -> u16 {
    let entry = Entry::new(0x11, 1).dword(10, action | WRITE_EXCLUSIVE << 8);
    host.io.run_with(entry, &keys(own, victim)).status
}

fn report(host: &mut Host) -> Vec<u8> {
    let entry = Entry::new(0x0e, 1).dword(10, 4096 / 4 - 1).dword(11, 1);
    let found = host.io.run_for(entry, 4096);
    assert_eq!(found.status, 0);
    found.data
}

#[test]
fn only_the_holder_writes() {
    let served = ServedPool::start();
    let (mut one, mut other) = (served.host(), Host::connect(served.address(), 2));
    assert_eq!(acquire(&mut one, 0, 7, 0), CONFLICT, "not registered");
    assert_eq!(register(&mut one, 7), 0);
    assert_eq!(register(&mut one, 7), 0, "again");
    assert_eq!(register(&mut one, 8), CONFLICT, "another key");
    assert_eq!(acquire(&mut one, 0, 7, 0), 0);
    assert_eq!(one.io.write(0, &[1; 512]).status, 0);
    assert_eq!(other.io.write(0, &[2; 512]).status, CONFLICT);
    assert_eq!(other.io.run(Entry::new(0, 1)).status, CONFLICT, "flush");
    assert_eq!(other.io.read(0, 1).data, [1; 512]);
    let release = Entry::new(0x15, 1).dword(10, WRITE_EXCLUSIVE << 8);
    assert_eq!(one.io.run_with(release, &keys(7, 0)[..8]).status, 0);
    assert_eq!(other.io.write(0, &[2; 512]).status, 0);
}

#[test]
fn a_preempted_host_hears_of_it() {
    let served = ServedPool::start();
    let (mut one, mut other) = (served.host(), Host::connect(served.address(), 2));
    assert_eq!((register(&mut one, 7), register(&mut other, 9)), (0, 0));
    assert_eq!(acquire(&mut one, 0, 7, 0), 0);
    let event = one.admin.submit(Entry::new(0x0c, 0).data(0, false), &[]);
    assert_eq!(acquire(&mut other, 1, 9, 7), 0);
    assert_eq!(one.admin.complete(event, &[]).result, 0x80_00_06);
    let page = one.log_page(0x80, 64).data;
    assert_eq!((le64(&page, 0), page[8], le32(&page, 12)), (1, 1, 1));
    assert_eq!(one.io.write(0, &[1; 512]).status, CONFLICT);
    assert_eq!(other.io.write(0, &[1; 512]).status, 0);
}

#[test]
fn reports_name_hosts_and_keys() {
    let served = ServedPool::start();
    let (mut one, mut other) = (served.host(), Host::connect(served.address(), 2));
    assert_eq!((register(&mut one, 7), register(&mut other, 9)), (0, 0));
    assert_eq!(acquire(&mut other, 0, 9, 0), 0);
    let found = report(&mut one);
    assert_eq!((le32(&found, 0), found[4], le16(&found, 5)), (2, 1, 2));
    let entry = |number: usize| &found[64 * (number + 1)..64 * (number + 2)];
    assert_eq!((entry(0)[2], le64(entry(0), 8), entry(0)[16]), (0, 7, 1));
    assert_eq!((entry(1)[2], le64(entry(1), 8), entry(1)[16]), (1, 9, 2));
    let short = Entry::new(0x0e, 1).dword(10, 15);
    assert_eq!(one.io.run_for(short, 64).status, 0x018, "not extended");
    // an unregistered host holds nothing
    let unregister = Entry::new(0x0d, 1).dword(10, 1);
    assert_eq!(other.io.run_with(unregister, &keys(8, 0)).status, CONFLICT, "wrong key");
    assert_eq!(other.io.run_with(unregister, &keys(9, 0)).status, 0);
    assert_eq!(report(&mut one)[4], 0);
}

#[test]
fn iscsi_initiators_keep_hosts_out() {
    let served = ServedPool::start();
    let mut host = served.host();
    assert_eq!(register(&mut host, 7), 0);
    // an iSCSI server of the same volume has the same reservations
    let initiator = Nexus(b"iqn.2026-01.org.example:one,i,0x800000000001\0target".to_vec());
    let (key, kind) = (ReservationKey(11), ReservationType::WriteExclusive);
    let reservations = served.namespace.lun.reservations();
    reservations.register(&initiator, None, key, None).unwrap();
    reservations.reserve(&initiator, key, kind).unwrap();
    assert_eq!(host.io.write(0, &[1; 512]).status, CONFLICT);
    let found = report(&mut host);
    let entry = |number: usize| &found[64 * (number + 1)..64 * (number + 2)];
    let held: Vec<u64> =
        (0..2).filter(|at| entry(*at)[2] == 1).map(|at| le64(entry(at), 8)).collect();
    assert_eq!(held, [11]);
    let event = host.admin.submit(Entry::new(0x0c, 0).data(0, false), &[]);
    reservations.preempt(&initiator, key, ReservationKey(7), kind).unwrap();
    assert_eq!(host.admin.complete(event, &[]).result, 0x80_00_06);
    assert_eq!(register(&mut host, 7), 0);
    assert_eq!(acquire(&mut host, 1, 7, 11), 0);
    assert!(reservations.admit(&initiator, AccessKind::Write).is_err());
    assert_eq!(host.io.write(0, &[1; 512]).status, 0);
}

#[test]
fn kept_reservations_outlast_a_restart() {
    let served = ServedPool::start();
    let kept = Arc::new(Mutex::new(None));
    let place = Arc::clone(&kept);
    let store = ReservationStore::new(move |bytes| {
        *place.lock() = bytes.map(<[u8]>::to_vec);
        true
    });
    let namespace = open_namespace(&served.pool, Reservations::default().with_store(store));
    let server = start_server(&options(), vec![subsystem(&namespace)]);
    let mut host = Host::connect(server.addresses()[0], 1);
    let persistent = Entry::new(0x0d, 1).dword(10, 3 << 30);
    assert_eq!(host.io.run_with(persistent, &keys(0, 7)).status, 0);
    assert_eq!(acquire(&mut host, 0, 7, 0), 0);
    assert_eq!(report(&mut host)[9], 1);
    drop(server);
    let bytes = kept.lock().clone().expect("kept reservations");
    let namespace = open_namespace(&served.pool, Reservations::load(&bytes).unwrap());
    let server = start_server(&options(), vec![subsystem(&namespace)]);
    let mut other = Host::connect(server.addresses()[0], 2);
    assert_eq!(other.io.write(0, &[1; 512]).status, CONFLICT);
    let mut host = Host::connect(server.addresses()[0], 1);
    assert_eq!(host.io.write(0, &[1; 512]).status, 0);
}
