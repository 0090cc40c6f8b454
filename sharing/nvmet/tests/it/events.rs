//! Asynchronous events.

use std::collections::BTreeMap;

use crate::host::{Connect, DISCOVERY, Entry, Host, Queue, SET_FEATURES, enable, le32};
use crate::served_pool::{ServedPool, subsystem};
use crate::volume_pool::VOLUME;

const REQUEST_EVENT: u8 = 0x0c;
const NAMESPACE_CHANGED: u64 = 0x04_00_02;

/// Wants to be told of changes, and asks for an event.
fn request(host: &mut Host, notices: u32) -> u16 {
    let entry = Entry::new(SET_FEATURES, 0).dword(10, 0x0b).dword(11, notices);
    assert_eq!(host.admin.run(entry).status, 0);
    host.admin.submit(Entry::new(REQUEST_EVENT, 0).data(0, false), &[])
}

#[test]
fn a_new_size_is_an_event() {
    let served = ServedPool::start();
    let mut host = served.host();
    let event = request(&mut host, 1 << 8);
    let (volume, _hold) = served.pool.volumes().open(VOLUME).unwrap();
    volume.resize(4 << 20).unwrap();
    assert_eq!(host.admin.complete(event, &[]).result, NAMESPACE_CHANGED);
    assert_eq!(host.identify(0, 1).data[..8], (8192_u64).to_le_bytes());
    // the next event comes after the log page was read
    let event = host.admin.submit(Entry::new(REQUEST_EVENT, 0).data(0, false), &[]);
    assert_eq!(le32(&host.log_page(4, 4096).data, 0), 1);
    assert_eq!(le32(&host.log_page(4, 4096).data, 0), 0);
    volume.resize(8 << 20).unwrap();
    assert_eq!(host.admin.complete(event, &[]).result, NAMESPACE_CHANGED);
}

#[test]
fn other_namespaces_are_an_event() {
    let served = ServedPool::start();
    let mut host = served.host();
    let event = request(&mut host, 1 << 8);
    let mut more = subsystem(&served.namespace);
    more.namespaces =
        BTreeMap::from([(1, served.namespace.clone()), (5, served.namespace.clone())]);
    served.server.set_subsystems(vec![more]).unwrap();
    assert_eq!(host.admin.complete(event, &[]).result, NAMESPACE_CHANGED);
    assert_eq!(le32(&host.log_page(4, 4096).data, 0), 5);
    let list = host.identify(2, 0).data;
    assert_eq!((le32(&list, 0), le32(&list, 4), le32(&list, 8)), (1, 5, 0));
}

#[test]
fn discovery_hosts_hear_of_new_subsystems() {
    let served = ServedPool::start();
    let mut admin = Queue::open(served.address(), 0);
    let connect = Connect { subsystem: DISCOVERY, keep_alive: 30_000, ..Connect::default() };
    assert_eq!(connect.run(&mut admin).status, 0);
    enable(&mut admin);
    let notices = Entry::new(SET_FEATURES, 0).dword(10, 0x0b).dword(11, 1 << 31);
    assert_eq!(admin.run(notices).status, 0);
    let event = admin.submit(Entry::new(REQUEST_EVENT, 0).data(0, false), &[]);
    let mut more = subsystem(&served.namespace);
    more.name = "nqn.2026-01.org.example:more".to_owned();
    served.server.set_subsystems(vec![subsystem(&served.namespace), more]).unwrap();
    assert_eq!(admin.complete(event, &[]).result, 0x70_f0_02);
}

#[test]
fn too_many_event_requests_are_refused() {
    let served = ServedPool::start();
    let mut host = served.host();
    for _ in 0..4 {
        host.admin.submit(Entry::new(REQUEST_EVENT, 0).data(0, false), &[]);
    }
    assert_eq!(host.admin.run(Entry::new(REQUEST_EVENT, 0)).status, 0x105);
    assert_eq!(host.admin.run(Entry::new(0x18, 0)).status, 0);
}
