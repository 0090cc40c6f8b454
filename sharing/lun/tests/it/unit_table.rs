//! One volume for several protocols: views with their own blocks, and common locks, reservations and events.

use std::sync::Arc;

use lun::{
    AccessKind, Durability, Error, LunEvent, LunOptions, Nexus, OpenUnit, ReservationCallback,
    ReservationKey, ReservationLoss, ReservationStore, ReservationType, Reservations, UnitTable,
};
use parking_lot::Mutex;

use crate::volume_pool::{VOLUME, create_pool};

const SMALL: LunOptions = LunOptions { block_size: 512, read_only: false };
const LARGE: LunOptions = LunOptions { block_size: 4096, read_only: true };

type Losses = Vec<(ReservationLoss, Vec<Nexus>)>;

/// The path of an iSCSI initiator, and that of an NVMe host.
fn nexuses() -> (Nexus, Nexus) {
    let initiator = Nexus(b"iqn.2026-01.org.example:one,i,0x800000000001\0target".to_vec());
    (initiator, Nexus(vec![7; 16]))
}

#[test]
fn views_share_volume_and_differ_in_blocks() {
    let (_storm, pool) = create_pool();
    let table = UnitTable::new(|_, _| Reservations::default());
    let one = table.open(&pool, VOLUME, SMALL).unwrap();
    let other = table.open(&pool, VOLUME, LARGE).unwrap();
    assert!(table.open(&pool, VOLUME, SMALL).unwrap().is_same(&one));
    assert!(!one.is_same(&other) && one.guids == other.guids);
    assert_eq!((one.lun.geometry().block_size, other.lun.geometry().block_size), (512, 4096));
    one.lun.write(4096, &[3; 4096], Durability::Cached).unwrap();
    let mut found = [0; 4096];
    other.lun.read(4096, &mut found).unwrap();
    assert_eq!(found, [3; 4096]);
    assert_eq!(other.lun.write(0, &[1; 4096], Durability::Cached), Err(Error::ReadOnly));
    let events: Arc<Mutex<Vec<LunEvent>>> = Arc::default();
    let into = Arc::clone(&events);
    let callback: lun::EventCallback = Arc::new(move |event| into.lock().push(event));
    other.lun.subscribe(&callback);
    let size = one.lun.geometry().size() * 2;
    pool.properties().set(VOLUME, "volsize", &size.to_string()).unwrap();
    assert_eq!(*events.lock(), [LunEvent::Resized { size }]);
    drop((one, other));
    pool.export().unwrap();
}

#[test]
fn reservations_hold_across_protocols() {
    let (_storm, pool) = create_pool();
    let table = UnitTable::new(|_, _| Reservations::default());
    let iscsi = table.open(&pool, VOLUME, SMALL).unwrap();
    let nvme = table.open(&pool, VOLUME, LARGE).unwrap();
    let (initiator, host) = nexuses();
    assert_eq!((initiator.nvme_host(), host.nvme_host()), (None, Some([7; 16])));
    let losses: Arc<Mutex<Losses>> = Arc::default();
    let into = Arc::clone(&losses);
    let callback: ReservationCallback =
        Arc::new(move |loss, nexuses| into.lock().push((loss, nexuses.to_vec())));
    iscsi.lun.reservations().subscribe(&callback);
    let (one, other) = (ReservationKey(11), ReservationKey(22));
    let register = |unit: &OpenUnit, nexus, key| {
        unit.lun.reservations().register(nexus, None, key, None).unwrap();
    };
    register(&iscsi, &initiator, one);
    register(&nvme, &host, other);
    let kind = ReservationType::WriteExclusive;
    iscsi.lun.reservations().reserve(&initiator, one, kind).unwrap();
    assert!(nvme.lun.reservations().admit(&host, AccessKind::Write).is_err());
    assert!(nvme.lun.reservations().admit(&host, AccessKind::Read).is_ok());
    nvme.lun.reservations().preempt(&host, other, one, kind).unwrap();
    assert_eq!(*losses.lock(), [(ReservationLoss::RegistrationPreempted, vec![initiator.clone()])]);
    assert!(iscsi.lun.reservations().admit(&initiator, AccessKind::Write).is_err());
    assert!(nvme.lun.reservations().admit(&host, AccessKind::Write).is_ok());
}

#[test]
fn preemption_waits_for_admitted_commands() {
    let (_storm, pool) = create_pool();
    let table = UnitTable::new(|_, _| Reservations::default());
    let unit = table.open(&pool, VOLUME, SMALL).unwrap();
    let (victim, survivor) = nexuses();
    let (one, other) = (ReservationKey(11), ReservationKey(22));
    let reservations = unit.lun.reservations();
    reservations.register(&victim, None, one, None).unwrap();
    reservations.register(&survivor, None, other, None).unwrap();
    let kind = ReservationType::WriteExclusive;
    std::thread::scope(|scope| {
        let admitted = reservations.admit(&victim, AccessKind::Write).unwrap();
        let preempting = scope.spawn(|| reservations.preempt(&survivor, other, one, kind));
        unit.lun.write(0, &[9; 512], Durability::Cached).unwrap();
        assert!(reservations.report().registrations.contains_key(&victim));
        drop(admitted);
        preempting.join().unwrap().unwrap();
    });
    assert!(!reservations.report().registrations.contains_key(&victim));
}

#[test]
fn saved_reservations_load_when_volume_reopens() {
    let (_storm, pool) = create_pool();
    let saved: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let files = Arc::clone(&saved);
    let table = UnitTable::new(move |_, name| {
        assert_eq!(name, VOLUME);
        let into = Arc::clone(&files);
        let loaded = files.lock().as_ref().map(|bytes| Reservations::load(bytes).unwrap());
        loaded.unwrap_or_default().with_store(ReservationStore::new(move |bytes| {
            *into.lock() = bytes.map(<[u8]>::to_vec);
            true
        }))
    });
    let (initiator, host) = nexuses();
    let unit = table.open(&pool, VOLUME, SMALL).unwrap();
    let reservations = unit.lun.reservations();
    reservations.register(&initiator, None, ReservationKey(5), Some(false)).unwrap();
    assert_eq!(*saved.lock(), None);
    reservations.register(&initiator, None, ReservationKey(6), Some(true)).unwrap();
    reservations.reserve(&initiator, ReservationKey(6), ReservationType::ExclusiveAccess).unwrap();
    drop(unit);
    let unit = table.open(&pool, VOLUME, LARGE).unwrap();
    let reservations = unit.lun.reservations();
    assert!(reservations.is_persistent());
    assert!(reservations.admit(&host, AccessKind::Read).is_err());
    assert!(reservations.admit(&initiator, AccessKind::Write).is_ok());
    reservations.set_persistence(false).unwrap();
    assert_eq!(*saved.lock(), None);
}
