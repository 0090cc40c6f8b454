//! NFSv4: sessions, slots, locks, leases, and what is reclaimed after a restart.

use std::cell::RefCell;
use std::time::Duration;

use nfs::ServerOptions;
use nfs::wire::status::Status;
use nfs::wire::v4::op;

use crate::client::RpcClient;
use crate::served_pool::{ServedPool, options, wait_until};
use crate::v4_client::{
    BOTH, COMPOUND, Operations, READ, Results, V4Client, WRITE, create_session, exchange_id,
};

#[test]
fn repeated_requests_run_once() {
    let served = ServedPool::start();
    let mut client = V4Client::connect(served.address(), "one");
    let root = client.handle(&["tank"]).unwrap();
    client.open(&root, "file", (WRITE, 0), true).unwrap();
    let remove = Operations::at(&root).add(op::REMOVE, |w| w.opaque(b"file"));
    client.is_cached = true;
    let sequence = client.sequence + 1;
    let arguments = client.in_slot(&remove, sequence);
    let first = client.rpc.call(COMPOUND, &arguments);
    assert_eq!(Results::new(first.clone()).status, Status::OK);
    // over a new connection, as after the old one broke
    let mut other = RpcClient::connect(served.address());
    assert_eq!(other.call(COMPOUND, &arguments), first);
    client.sequence = sequence;
    assert_eq!(client.run(&remove).status, Status::NOENT);
    let late = client.in_slot(&remove, sequence);
    assert_eq!(Results::new(other.call(COMPOUND, &late)).status, Status::SEQ_MISORDERED);
    let early = client.in_slot(&remove, client.sequence + 2);
    assert_eq!(Results::new(other.call(COMPOUND, &early)).status, Status::SEQ_MISORDERED);
}

#[test]
fn lying_clients_are_refused() {
    let served = ServedPool::start();
    let mut client = V4Client::connect(served.address(), "one");
    let root = Operations::root();
    assert_eq!(client.send_bare(&root).status, Status::OP_NOT_IN_SESSION);
    let two = exchange_id("two", [0; 8]).add(op::PUTROOTFH, |_| {});
    assert_eq!(client.send_bare(&two).status, Status::NOT_ONLY_OP);
    assert_eq!(client.send_bare(&create_session(77, 1)).status, Status::STALE_CLIENTID);
    let known = client.client_id;
    assert_eq!(client.send_bare(&create_session(known, 9)).status, Status::SEQ_MISORDERED);
    let old = Results::new(client.rpc.call(COMPOUND, &root.compound(3))).status;
    assert_eq!(old, Status::MINOR_VERS_MISMATCH);
    let session = std::mem::replace(&mut client.session, [9; 16]);
    let arguments = client.in_slot(&root, 1);
    assert_eq!(Results::new(client.rpc.call(COMPOUND, &arguments)).status, Status::BADSESSION);
    client.session = session;
    let many = (0..100).fold(Operations::default(), |all, _| all.add(op::PUTROOTFH, |_| {}));
    let arguments = client.in_slot(&many, client.sequence + 1);
    assert_eq!(Results::new(client.rpc.call(COMPOUND, &arguments)).status, Status::TOO_MANY_OPS);
    // states of another client are none of its own
    let root = client.handle(&["tank"]).unwrap();
    let (state, file) = client.open(&root, "file", (BOTH, 0), true).unwrap();
    let mut other = V4Client::connect(served.address(), "other");
    assert_eq!(other.write(&file, &state, 0, b"x"), Err(Status::BAD_STATEID));
    assert_eq!(other.close(&file, &state), Err(Status::BAD_STATEID));
    // another user does not take the place of a client that has files open
    other.rpc.uid = 55;
    assert_eq!(other.send_bare(&exchange_id("one", [8; 8])).status, Status::CLID_INUSE);
}

#[test]
fn locks_and_denials_hold_between_clients() {
    let served = ServedPool::start();
    let mut one = V4Client::connect(served.address(), "one");
    let mut two = V4Client::connect(served.address(), "two");
    let root = one.handle(&["tank"]).unwrap();
    let (open, file) = one.open(&root, "file", (BOTH, 0), true).unwrap();
    let (theirs, _) = two.open(&root, "file", (BOTH, 0), false).unwrap();
    let lock = one.lock((&file, &open), "a", (10, 10), false).unwrap();
    assert_eq!(two.lock((&file, &theirs), "a", (15, 1), false), Err(Status::DENIED));
    let other = two.lock((&file, &theirs), "a", (20, u64::MAX), false).unwrap();
    one.unlock(&file, &lock, (10, 10)).unwrap();
    two.lock((&file, &theirs), "b", (15, 1), false).unwrap();
    two.unlock(&file, &other, (20, u64::MAX)).unwrap();
    assert_eq!(two.unlock(&file, &other, (20, 1)), Err(Status::OLD_STATEID));
    // the end of an open ends its locks
    two.close(&file, &theirs).unwrap();
    one.lock((&file, &open), "b", (0, u64::MAX), false).unwrap();

    let (denying, denied) = two.open(&root, "denied", (READ, WRITE), true).unwrap();
    assert_eq!(one.open(&root, "denied", (WRITE, 0), false).map(drop), Err(Status::SHARE_DENIED));
    one.open(&root, "denied", (READ, 0), false).unwrap();
    two.close(&denied, &denying).unwrap();
    one.open(&root, "denied", (WRITE, 0), false).unwrap();
}

#[test]
fn silent_clients_lose_locks_when_others_need_them() {
    let lease = Duration::from_secs(1);
    let served = ServedPool::start_with(ServerOptions { lease, ..options() });
    let mut one = V4Client::connect(served.address(), "one");
    let root = one.handle(&["tank"]).unwrap();
    let (open, file) = one.open(&root, "file", (BOTH, WRITE), true).unwrap();
    let lock = one.lock((&file, &open), "a", (0, u64::MAX), false).unwrap();
    let mut two = V4Client::connect(served.address(), "two");
    assert_eq!(two.open(&root, "file", (BOTH, 0), false).map(drop), Err(Status::SHARE_DENIED));
    // longer than the lease, but nobody needs what it has
    std::thread::sleep(2 * lease + Duration::from_millis(500));
    assert_eq!(one.write(&file, &open, 0, b"x"), Ok(1));
    one.unlock(&file, &lock, (0, 1)).unwrap();
    let mut two = V4Client::connect_again(served.address(), "two");
    assert_eq!(two.open(&root, "file", (BOTH, 0), false).map(drop), Err(Status::SHARE_DENIED));

    let two = RefCell::new(two);
    let open = || two.borrow_mut().open(&root, "file", (BOTH, 0), false);
    wait_until("the end of a lease", || open().is_ok());
    let (theirs, _) = open().unwrap();
    two.borrow_mut().lock((&file, &theirs), "a", (0, u64::MAX), false).unwrap();
    let arguments = one.in_slot(&Operations::root(), one.sequence + 1);
    assert_eq!(Results::new(one.rpc.call(COMPOUND, &arguments)).status, Status::BADSESSION);
}

#[test]
fn restarted_clients_begin_anew() {
    let served = ServedPool::start();
    let mut one = V4Client::connect(served.address(), "one");
    let root = one.handle(&["tank"]).unwrap();
    one.open(&root, "file", (BOTH, BOTH), true).unwrap();
    let mut again = V4Client::connect_reclaiming(served.address(), "one", [2; 8]);
    again.reclaim_complete().unwrap();
    assert_eq!(again.reclaim_complete(), Err(Status::COMPLETE_ALREADY));
    again.open(&root, "file", (BOTH, 0), false).unwrap();
    let arguments = one.in_slot(&Operations::root(), one.sequence + 1);
    assert_eq!(Results::new(one.rpc.call(COMPOUND, &arguments)).status, Status::BADSESSION);
    assert_eq!(served.server.status().clients.len(), 1);
}

#[test]
fn opens_and_locks_are_reclaimed_after_restart() {
    let dir = std::env::temp_dir().join(format!("nfs-clients-{}", std::process::id()));
    let client_list = Some(dir.clone());
    let served = ServedPool::start_with(ServerOptions { client_list, ..options() });
    let mut one = V4Client::connect(served.address(), "one");
    let root = one.handle(&["tank"]).unwrap();
    let (open, file) = one.open(&root, "file", (BOTH, 0), true).unwrap();
    one.lock((&file, &open), "a", (0, 10), false).unwrap();
    let served = served.restart();
    assert!(served.server.status().grace.is_some());

    let mut thief = V4Client::connect(served.address(), "thief");
    assert_eq!(thief.open(&root, "file", (BOTH, 0), false).map(drop), Err(Status::GRACE));
    assert_eq!(thief.reclaim_open(&file, BOTH).map(drop), Err(Status::NO_GRACE));
    let mut one = V4Client::connect_reclaiming(served.address(), "one", [1; 8]);
    let open = one.reclaim_open(&file, BOTH).unwrap();
    one.lock((&file, &open), "a", (0, 10), true).unwrap();
    one.reclaim_complete().unwrap();
    // all clients from before have finished: the grace period is over
    assert_eq!(served.server.status().grace, None);
    let (theirs, _) = thief.open(&root, "file", (BOTH, 0), false).unwrap();
    assert_eq!(thief.lock((&file, &theirs), "a", (5, 1), false), Err(Status::DENIED));
    assert_eq!(one.reclaim_open(&file, BOTH).map(drop), Err(Status::NO_GRACE));
    drop(served);
    std::fs::remove_file(dir).unwrap();
}

#[test]
fn state_of_one_client_is_bounded() {
    let limited = ServerOptions {
        max_states_per_client: 3,
        max_sessions_per_client: 1,
        max_clients: 2,
        ..options()
    };
    let served = ServedPool::start_with(limited);
    let mut one = V4Client::connect(served.address(), "one");
    let root = one.handle(&["tank"]).unwrap();
    for name in ["a", "b", "c"] {
        one.open(&root, name, (WRITE, 0), true).unwrap();
    }
    assert_eq!(one.open(&root, "d", (WRITE, 0), true).map(drop), Err(Status::RESOURCE));
    let again = create_session(one.client_id, 2);
    assert_eq!(one.send_bare(&again).status, Status::RESOURCE);
    // a client without a session makes room for others
    assert_eq!(one.send_bare(&exchange_id("two", [0; 8])).status, Status::OK);
    V4Client::connect(served.address(), "three");
    assert_eq!(one.send_bare(&exchange_id("four", [0; 8])).status, Status::DELAY);
}
