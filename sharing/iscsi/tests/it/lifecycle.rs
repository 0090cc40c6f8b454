//! Changes of volumes and targets under running sessions, the status, and the end of a server.

use std::time::{Duration, Instant};

use iscsi::{Counters, Error, ServerOptions, Target};
use lun::Reservations;

use crate::initiator::{Initiator, Pdu, read10, write10};
use crate::served_pool::{
    ServedPool, TARGET, open_unit, options, start_server, target, wait_until,
};
use crate::volume_pool::{SIZE, VOLUME};

#[test]
fn resizes_and_rollbacks_notify_initiators() {
    let served = ServedPool::start();
    served.pool.snapshots().create(&[format!("{VOLUME}@before")]).unwrap();
    let mut initiator = served.initiator();
    served.pool.properties().set(VOLUME, "volsize", &(SIZE * 2).to_string()).unwrap();
    assert_eq!(initiator.attentions(), [(0x2a, 0x09)], "capacity data has changed");
    let end = u32::try_from(SIZE / 512).unwrap();
    initiator.write(&write10(0, end, 1), &[1; 512]).good();
    initiator.write(&write10(0, 0, 1), &[1; 512]).good();
    served.pool.snapshots().rollback(VOLUME).unwrap();
    assert_eq!(initiator.attentions(), [(0x28, 0x00), (0x2a, 0x09)], "not ready to ready");
    assert_eq!(initiator.read(&read10(0, 1), 512).good(), [0; 512]);
    assert_eq!(initiator.read(&read10(end, 1), 512).check(), (5, 0x21, 0));
    served.pool.export().unwrap();
    assert_eq!(initiator.read(&read10(0, 1), 512).check(), (5, 0x25, 0));
    assert_eq!(initiator.read(&[0; 6], 0).check(), (5, 0x25, 0));
}

#[test]
fn changes_send_asynchronous_messages() {
    let served = ServedPool::start();
    let mut initiator =
        served.initiator_with(1, &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")]);
    served.pool.properties().set(VOLUME, "volsize", &(SIZE * 2).to_string()).unwrap();
    let mut changed = target(&served.unit);
    changed.units.insert(3, served.unit.clone());
    served.server.set_targets(vec![changed]).unwrap();
    assert_eq!(served.server.stop(), 0);
    assert!(initiator.is_closed());
    let [resized, units, ended] = &initiator.notices[..] else {
        panic!("{:?}", initiator.notices);
    };
    // sense data: unit attention, and its code
    let sense =
        |notice: &Pdu| (notice.header[36], notice.data[4], notice.data[14], notice.data[15]);
    assert_eq!(sense(resized), (0, 6, 0x2a, 0x09), "capacity data has changed");
    assert_eq!(sense(units), (0, 6, 0x3f, 0x0e), "reported LUNs data has changed");
    assert_eq!((ended.header[36], ended.data.len()), (3, 0), "all connections are dropped");
    for notice in &initiator.notices {
        assert_eq!(notice.at(16), u32::MAX, "no request has it");
    }
}

/// Takes the unit attentions as soon as there are some.
fn wait_for_attentions(initiator: &mut Initiator) -> Vec<(u8, u8)> {
    let begun = Instant::now();
    loop {
        let found = initiator.attentions();
        if !found.is_empty() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "no unit attention comes");
    }
}

#[test]
fn filling_pools_warn_initiators_once() {
    let options = ServerOptions { space_check_interval: Duration::ZERO, ..options() };
    let served = ServedPool::start_with(&options);
    let mut initiator = served.initiator();
    initiator.write(&write10(0, 0, 1), &[1; 512]).good();
    assert!(initiator.attentions().is_empty());
    // the pool has 128 MiB
    served.pool.properties().set(VOLUME, "volsize", &(2_u64 << 30).to_string()).unwrap();
    assert_eq!(initiator.attentions(), [(0x2a, 0x09)], "capacity data has changed");
    initiator.write(&write10(0, 0, 1), &[2; 512]).good();
    // the space is looked at after the answer
    let warnings = wait_for_attentions(&mut initiator);
    assert_eq!(warnings, [(0x38, 0x07)], "thin provisioning soft threshold reached");
    initiator.write(&write10(0, 0, 1), &[3; 512]).good();
    initiator.read(&read10(0, 1), 512).good();
    assert!(initiator.attentions().is_empty());
    assert_eq!(served.server.stop(), 0);
    assert!(initiator.is_closed());
    assert_eq!(initiator.notices.len(), 3, "a new size, the warning, the end");
}

#[test]
fn reload_keeps_sessions_and_reports_units() {
    let served = ServedPool::start();
    let other = Target { name: format!("{TARGET}-other"), ..target(&served.unit) };
    served.server.set_targets(vec![target(&served.unit), other]).unwrap();
    let mut initiator = served.initiator();
    let mut leaving =
        Initiator::connect_as(served.address(), 2).log_in(&format!("{TARGET}-other"), &[]);
    let second = open_unit(&served.pool, Reservations::default());
    let mut changed = target(&served.unit);
    changed.units.insert(3, second);
    served.server.set_targets(vec![changed.clone()]).unwrap();
    assert!(leaving.is_closed());
    assert_eq!(initiator.attentions(), [(0x3f, 0x0e)], "reported LUNs data has changed");
    initiator.lun = 3;
    assert_eq!(initiator.attentions(), [(0x29, 0x00)]);
    assert_eq!(initiator.read(&read10(0, 1), 512).status, 0);
    // the same again affects no session, and a refused reload changes nothing
    served.server.set_targets(vec![changed.clone()]).unwrap();
    let twice = vec![changed.clone(), changed.clone()];
    assert!(matches!(served.server.set_targets(twice), Err(Error::DuplicateTarget { .. })));
    let nameless = Target { name: "disk".to_owned(), ..changed.clone() };
    assert!(matches!(served.server.set_targets(vec![nameless]), Err(Error::Name { .. })));
    assert!(initiator.attentions().is_empty());
    changed.initiators = vec!["iqn.2026-01.org.example:other".to_owned()];
    served.server.set_targets(vec![changed]).unwrap();
    assert!(initiator.is_closed());
}

#[test]
fn status_counts_sessions_and_bytes() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    // a command is counted after its answer: TEST UNIT READY was answered twice, by the attention and by GOOD
    wait_until("the count of the first commands", || {
        served.server.status().sessions[0].counters.commands == 2
    });
    let before = served.server.status();
    assert_eq!((&before.targets[..], before.sessions.len()), (&[TARGET.to_owned()][..], 1));
    let session = &before.sessions[0];
    assert_eq!(
        (session.target.as_deref(), &session.volumes[..]),
        (Some(TARGET), &[VOLUME.to_owned()][..])
    );
    assert_eq!(session.initiator, crate::initiator::INITIATOR);
    initiator.write(&write10(0, 0, 2), &[1; 1024]).good();
    initiator.read(&read10(0, 1), 512).good();
    initiator.read(&[0xff; 16], 0).check();
    let expected = Counters { commands: 3, errors: 1, read_bytes: 512, written_bytes: 1024 };
    wait_until("the count", || {
        let after = served.server.status().sessions[0].counters;
        after.since(&session.counters) == Some(expected)
    });
}

#[test]
fn stop_ends_sessions_and_frees_the_address() {
    let served = ServedPool::start();
    let address = served.address();
    let mut initiator = served.initiator();
    assert_eq!(served.server.stop(), 0);
    assert!(initiator.is_closed());
    assert!(std::net::TcpStream::connect(address).is_err());
    drop(served.server);
    let options = ServerOptions { listen: vec![address], ..options() };
    let again = start_server(&options, vec![target(&served.unit)]).unwrap();
    let taken = start_server(&options, Vec::new()).err().map(|error| error.to_string());
    assert!(taken.unwrap_or_default().contains(&address.to_string()));
    drop(again);
    let bad = ServerOptions { max_write_bytes: 1, ..crate::served_pool::options() };
    assert!(matches!(start_server(&bad, Vec::new()), Err(Error::Limit { .. })));
}
