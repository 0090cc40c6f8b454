//! Hosts that have to prove who they are. The proof itself is tested beside it, and with Linux's host.

use std::sync::Arc;
use std::time::Duration;

use nvmet::{DhChap, HostSecrets, Secret, Server, ServerOptions, Subsystem};
use parking_lot::Mutex;

use crate::host::{Connect, Entry, FABRICS, IDENTIFY, Queue, SUBSYSTEM, host_name, le16};
use crate::served_pool::{ServedPool, options, start_server, subsystem, wait_until};

const AUTHENTICATION_REQUIRED: u16 = 0x191;
/// The secret of the bytes 0 to 31.
const SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

fn private(served: &ServedPool, hosts: HostSecrets) -> Subsystem {
    let authentication = Some(DhChap::new(hosts, None).unwrap());
    Subsystem { authentication, ..subsystem(&served.namespace) }
}

fn shared_secret() -> HostSecrets {
    HostSecrets::Shared(Secret::parse(SECRET).unwrap())
}

/// A message of an authentication, or a place for one.
fn authentication(kind: u8, length: u32) -> Entry {
    Entry::new(FABRICS, u32::from(kind)).put(41, &[1, 1, 0xe9]).dword(11, length)
}

/// An offer of SHA-256 without a group.
fn offer() -> Vec<u8> {
    let mut offer = vec![0; 72];
    (offer[4], offer[7], offer[8], offer[10], offer[11], offer[12]) = (5, 1, 1, 1, 1, 1);
    offer
}

#[test]
fn hosts_without_a_proof_do_nothing() {
    let served = ServedPool::start();
    served.server.set_subsystems(vec![private(&served, shared_secret())]).unwrap();
    let mut admin = Queue::open(served.address(), 0);
    let connected = Connect::default().run(&mut admin);
    assert_eq!((connected.status, connected.result >> 16), (0, 2));
    let identify = Entry::new(IDENTIFY, 0).dword(10, 1);
    assert_eq!(admin.run_for(identify, 4096).status, AUTHENTICATION_REQUIRED);
    assert_eq!(admin.read_property(0, true).status, AUTHENTICATION_REQUIRED);
    assert_eq!(admin.write_property(0x14, 0x0046_0001).status, AUTHENTICATION_REQUIRED);
    // an I/O queue needs a controller that is enabled
    let controller = le16(&connected.result.to_le_bytes(), 0);
    let mut io = Queue::open(served.address(), 0);
    let connect = Connect { queue: 1, controller, ..Connect::default() };
    assert_eq!(connect.run(&mut io).status, 0x181);
}

#[test]
fn wrong_proofs_are_reported_and_end_the_connection() {
    let served = ServedPool::start();
    let failed = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&failed);
    let server = Server::start(
        &options(),
        vec![private(&served, shared_secret())],
        Arc::new(move |failure| report.lock().push(failure.clone())),
    )
    .unwrap();
    let mut admin = Queue::open(server.addresses()[0], 0);
    assert_eq!(Connect::default().run(&mut admin).status, 0);
    assert_eq!(admin.run_with(authentication(5, 72), &offer()).status, 0);
    let challenge = admin.run_for(authentication(6, 4096), 4096).data;
    assert_eq!((challenge[0], challenge[1], challenge[6], challenge[8]), (1, 1, 32, 1));
    let mut reply = vec![0; 16 + 64];
    (reply[0], reply[1], reply[4], reply[6]) = (1, 2, 5, 32);
    assert_eq!(admin.run_with(authentication(5, 80), &reply).status, 0);
    let failure = admin.run_for(authentication(6, 4096), 4096).data;
    assert_eq!((failure[1], failure[6], failure[7]), (0xf0, 1, 1));
    assert!(admin.receive().is_none());
    assert_eq!(server.status().failed_logins, 1);
    let failed = failed.lock();
    assert_eq!(
        (failed[0].host.as_str(), failed[0].subsystem.as_str()),
        (&*host_name(1), SUBSYSTEM)
    );
}

#[test]
fn hosts_without_a_secret_are_refused() {
    let served = ServedPool::start();
    let own = [(host_name(2), Secret::parse(SECRET).unwrap())];
    let server = start_server(&options(), vec![private(&served, HostSecrets::Own(own.into()))]);
    for (host, status) in [(1, 0x184), (2, 0)] {
        let mut admin = Queue::open(server.addresses()[0], 0);
        assert_eq!(Connect { host, ..Connect::default() }.run(&mut admin).status, status);
    }
}

#[test]
fn hosts_that_never_prove_are_disconnected() {
    let served = ServedPool::start();
    let stall_timeout = Duration::from_millis(200);
    let options = ServerOptions { stall_timeout, ..options() };
    let server = start_server(&options, vec![private(&served, shared_secret())]);
    let mut admin = Queue::open(server.addresses()[0], 0);
    assert_eq!(Connect::default().run(&mut admin).status, 0);
    assert!(admin.receive().is_none());
    wait_until("the end of the controller", || server.status().controllers.is_empty());
}
