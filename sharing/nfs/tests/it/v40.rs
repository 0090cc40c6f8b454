//! NFSv4.0: clients without sessions, owners that number their requests, what is reclaimed after a restart.

use nfs::ServerOptions;
use nfs::wire::status::Status;
use nfs::wire::v4::op;

use crate::client::RpcClient;
use crate::served_pool::{ServedPool, options};
use crate::v4_client::{BOTH, COMPOUND, Operations, Results, V4Client};
use crate::v40_client::V40Client;

#[test]
fn opens_and_locks_hold_between_versions() {
    let served = ServedPool::start();
    let mut one = V40Client::connect(served.address(), "one");
    let root = one.handle(&["tank"]);
    let (open, file) = one.open(&root, "file").unwrap();
    assert_eq!(one.write(&file, &open, b"words"), Ok(5));
    let lock = one.lock(&file, &open, (10, false)).unwrap();

    let mut two = V40Client::connect(served.address(), "two");
    let (theirs, _) = two.open(&root, "file").unwrap();
    assert_eq!(two.lock(&file, &theirs, (1, false)), Err(Status::DENIED));
    let mut three = V4Client::connect(served.address(), "three");
    let (sessions, _) = three.open(&root, "file", (BOTH, 0), false).unwrap();
    assert_eq!(three.lock((&file, &sessions), "a", (5, 1), false), Err(Status::DENIED));

    one.unlock(&file, &lock).unwrap();
    two.lock(&file, &theirs, (1, false)).unwrap();
    two.close(&file, &theirs).unwrap();
    three.lock((&file, &sessions), "a", (0, 1), false).unwrap();
    one.close(&file, &open).unwrap();
    assert_eq!(one.write(&file, &open, b"late"), Err(Status::BAD_STATEID));
}

#[test]
fn owners_requests_run_once() {
    let served = ServedPool::start();
    let mut client = V40Client::connect(served.address(), "one");
    let root = client.handle(&["tank"]);
    let (open, file) = client.open(&root, "file").unwrap();
    // the same number again: the same state, and the file is the current one
    let seqid = client.open_seqid;
    let operations = client.open_operations(&root, "other", seqid);
    let first = V40Client::read_open(&mut client.run(&operations)).unwrap();
    let remove = Operations::at(&root).add(op::REMOVE, |w| w.opaque(b"other"));
    assert_eq!(client.run(&remove).status, Status::OK);
    assert_eq!(V40Client::read_open(&mut client.run(&operations)), Ok(first));
    let late = client.open_operations(&root, "third", seqid - 1);
    assert_eq!(client.run(&late).status, Status::BAD_SEQID);
    client.open_seqid += 1;
    client.close(&file, &open).unwrap();
    client.open_seqid -= 1;
    client.close(&file, &open).unwrap();
    assert_eq!(client.close(&file, &open), Err(Status::BAD_STATEID));
}

#[test]
fn repeated_removal_gets_first_answer() {
    let served = ServedPool::start();
    let mut client = V40Client::connect(served.address(), "one");
    let root = client.handle(&["tank"]);
    client.open(&root, "file").unwrap();
    let remove = Operations::at(&root).add(op::REMOVE, |w| w.opaque(b"file")).compound(0);
    let first = client.rpc.call(COMPOUND, &remove);
    assert_eq!(Results::new(first.clone()).status, Status::OK);
    let mut other = RpcClient::connect(served.address());
    other.xid = client.rpc.xid;
    assert_eq!(other.call_again(COMPOUND, &remove), first);
    assert_eq!(Results::new(client.rpc.call(COMPOUND, &remove)).status, Status::NOENT);
}

#[test]
fn unconfirmed_owners_may_not_write() {
    let served = ServedPool::start();
    let mut client = V40Client::connect(served.address(), "one");
    let root = client.handle(&["tank"]);
    let operations = client.open_operations(&root, "file", 7);
    let (open, flags, file) = V40Client::read_open(&mut client.run(&operations)).unwrap();
    assert_eq!(flags & 2, 2);
    assert_eq!(client.write(&file, &open, b"x"), Err(Status::BAD_STATEID));
    // another number: the client has lost its count, and begins anew
    client.open_seqid = 20;
    let (again, _) = client.open(&root, "file").unwrap();
    client.write(&file, &again, b"x").unwrap();
    assert_eq!(client.write(&file, &open, b"x"), Err(Status::BAD_STATEID));
}

#[test]
fn v40_locks_are_reclaimed_after_restart() {
    let path = std::env::temp_dir().join(format!("nfs-v40-clients-{}", std::process::id()));
    let client_list = Some(path.clone());
    let served = ServedPool::start_with(ServerOptions { client_list, ..options() });
    let mut one = V40Client::connect(served.address(), "one");
    let root = one.handle(&["tank"]);
    let (open, file) = one.open(&root, "file").unwrap();
    one.lock(&file, &open, (10, false)).unwrap();
    let served = served.restart();

    let mut thief = V40Client::connect(served.address(), "thief");
    assert_eq!(thief.open(&root, "file").map(drop), Err(Status::GRACE));
    let stale = Operations::default().add(op::RENEW, |w| w.u64(one.client_id));
    assert_eq!(thief.run(&stale).status, Status::STALE_CLIENTID);
    assert_eq!(thief.write(&file, &open, b"x"), Err(Status::STALE_STATEID));
    let mut one = V40Client::connect(served.address(), "one");
    let open = one.reclaim_open(&file).unwrap();
    assert!(served.server.status().grace.is_some());
    one.lock(&file, &open, (10, true)).unwrap();
    // it has again all that it had when the server stopped: others need not wait
    assert!(served.server.status().grace.is_none());
    thief.open(&root, "file").unwrap();
    drop(served);
    std::fs::remove_file(path).unwrap();
}
