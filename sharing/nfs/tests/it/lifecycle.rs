//! The start, the reload and the end of a server, and clients that misbehave or vanish.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use nfs::wire::status::Status;
use nfs::{Error, Server, ServerOptions};

use crate::client::RpcClient;
use crate::served_pool::{ServedPool, options, wait_until};
use crate::v3_client::{FILE_SYNC, V3Client};
use crate::v4_client::{BOTH, V4Client};

#[test]
fn handles_survive_restart() {
    let served = ServedPool::start();
    let mut client = V3Client::mount(served.address(), "/tank").unwrap();
    let (root, verifier) = (client.root.clone(), {
        let file = client.create(&client.root.clone(), "file", 0o644).unwrap();
        client.write(&file, 0, FILE_SYNC, b"data").unwrap().verifier
    });
    let file = client.lookup(&root, "file").unwrap();
    let served = served.restart();
    assert!(client.rpc.is_closed());
    client.rpc = RpcClient::connect(served.address());
    assert_eq!(client.read(&file, 0, 10).unwrap().0, b"data");
    assert_eq!(client.lookup(&root, "file").unwrap(), file);
    assert_ne!(client.write(&file, 0, FILE_SYNC, b"x").unwrap().verifier, verifier);
    let mut forged = file.clone();
    forged[10] ^= 1;
    assert_eq!(client.read(&forged, 0, 10).map(drop), Err(Status::BADHANDLE));
}

#[test]
fn reload_ends_removed_exports() {
    let lease = Duration::ZERO;
    let served = ServedPool::start_with(ServerOptions { lease, ..options() });
    let mut client = V3Client::mount(served.address(), "/tank").unwrap();
    let root = client.root.clone();
    let child = client.lookup(&root, "child").unwrap();
    let file = client.create(&child, "file", 0o644).unwrap();
    let kept = vec![served.exports[0].clone()];
    served.server.set_exports(kept.clone()).unwrap();
    assert_eq!(client.read(&file, 0, 10).map(drop), Err(Status::STALE));
    // nothing is below the mount point
    assert_eq!(client.lookup(&root, "child"), Err(Status::NOENT));
    served.server.set_exports(served.exports.clone()).unwrap();
    assert_eq!(client.lookup(&root, "child").unwrap(), child);
    client.read(&file, 0, 10).unwrap();
    let twice = vec![kept[0].clone(), kept[0].clone()];
    assert!(matches!(served.server.set_exports(twice), Err(Error::DuplicatePath { .. })));
    let mut bad = kept.clone();
    bad[0].path = "tank".to_owned();
    assert!(matches!(served.server.set_exports(bad), Err(Error::BadPath { .. })));
    client.read(&file, 0, 10).unwrap();
}

#[test]
fn reload_keeps_opens_of_exports_that_stay() {
    let served = ServedPool::start();
    let mut client = V4Client::connect(served.address(), "one");
    let root = client.handle(&["tank"]).unwrap();
    let child = client.handle(&["tank", "child"]).unwrap();
    let (kept, file) = client.open(&root, "file", (BOTH, 0), true).unwrap();
    let (ended, other) = client.open(&child, "file", (BOTH, 0), true).unwrap();
    served.server.set_exports(vec![served.exports[0].clone()]).unwrap();
    client.write(&file, &kept, 0, b"x").unwrap();
    assert!(client.write(&other, &ended, 0, b"x").is_err());
    assert_eq!(served.server.status().clients[0].opens, 1);
    let shown = &served.server.status().exports[..];
    assert!(matches!(shown, [only] if only.path == "/tank" && only.opens == 1), "{shown:?}");
}

#[test]
fn handles_wait_for_their_pool_after_start() {
    let served = ServedPool::start();
    let mut client = V3Client::mount(served.address(), "/tank").unwrap();
    let root = client.root.clone();
    served.server.set_exports(Vec::new()).unwrap();
    // the pool may be imported a little later than the server starts
    assert_eq!(client.attributes(&root).map(drop), Err(Status::DELAY));
    served.server.set_exports(served.exports.clone()).unwrap();
    client.attributes(&root).unwrap();
}

#[test]
fn status_counts_clients_and_bytes() {
    let served = ServedPool::start();
    let mut client = V3Client::mount(served.address(), "/tank").unwrap();
    let root = client.root.clone();
    let file = client.create(&root, "file", 0o644).unwrap();
    client.write(&file, 0, FILE_SYNC, b"12345").unwrap();
    client.read(&file, 0, 100).unwrap();
    let status = served.server.status();
    let [connection] = &status.connections[..] else { panic!("{status:?}") };
    assert_eq!((connection.version, &connection.exports[..]), (Some(3), &["/tank".to_owned()][..]));
    let counters = connection.counters;
    assert_eq!((counters.requests, counters.read_bytes, counters.written_bytes), (4, 5, 5));
    assert_eq!(status.totals, counters);
    drop(client);
    wait_until("the end of a connection", || served.server.status().connections.is_empty());
}

#[test]
fn stalled_and_oversized_requests_end_their_connection() {
    let stall_timeout = Duration::from_millis(200);
    let served = ServedPool::start_with(ServerOptions { stall_timeout, ..options() });
    // the timeout does not count between requests
    let mut silent = V3Client::mount(served.address(), "/tank").unwrap();
    let half = [&[0x80, 0, 0, 100][..], &[1; 50]].concat();
    let unfinished = [0, 0, 0, 4, 1, 2, 3, 4];
    let endless = [0; 4].repeat(100);
    let huge = [0xff; 8];
    for bytes in [&half[..], &[0x80, 0], &unfinished, &endless, &huge, &[0x80, 0, 0, 4, 0, 0, 0, 0]]
    {
        let mut client = RpcClient::connect(served.address());
        client.stream.write_all(bytes).unwrap();
        assert!(client.is_closed(), "{bytes:?}");
    }
    let root = silent.root.clone();
    silent.attributes(&root).unwrap();
}

#[test]
fn connections_above_the_limit_are_closed() {
    let served = ServedPool::start_with(ServerOptions { max_connections: 1, ..options() });
    let first = V3Client::mount(served.address(), "/tank").unwrap();
    assert!(RpcClient::connect(served.address()).is_closed());
    drop(first);
    wait_until("the end of a connection", || served.server.status().connections.is_empty());
    V3Client::mount(served.address(), "/tank").unwrap();
}

#[test]
fn silent_connections_have_no_threads() {
    const CLIENTS: usize = 40;
    let served = ServedPool::start();
    let mount = |_| V3Client::mount(served.address(), "/tank").unwrap();
    let mut clients: Vec<_> = (0..CLIENTS).map(mount).collect();
    let are_idle = || served.server.status().idle_connections == CLIENTS;
    let root = clients[0].root.clone();
    for round in 0..3 {
        wait_until("the end of the threads", are_idle);
        for (number, client) in clients.iter_mut().enumerate() {
            client.create(&root, &format!("{round}-{number}"), 0o644).unwrap();
        }
    }
    assert_eq!(clients[0].list(&root, (true, 8192)).len(), 3 * CLIENTS + 1);
    // several requests at once, of a client that was silent
    wait_until("the end of the threads", are_idle);
    let client = &mut clients[0].rpc;
    let message = client.message((100_003, 3, 0), &[]);
    (0..100).for_each(|_| client.send(&message));
    (0..100).for_each(|_| assert!(client.receive().len() >= 24));
    // a client that is gone, and the end of the server
    drop(clients.pop());
    wait_until("the end of a connection", || {
        served.server.status().connections.len() == CLIENTS - 1
    });
    wait_until("the end of the threads", || served.server.status().idle_connections == CLIENTS - 1);
    assert_eq!(served.server.stop(), 0);
    assert!(clients.iter_mut().all(|client| client.rpc.is_closed()));
}

#[test]
fn stop_frees_address_and_file_systems() {
    let served = ServedPool::start();
    let address = served.address();
    let mut client = V4Client::connect(address, "one");
    let root = client.handle(&["tank"]).unwrap();
    client.open(&root, "file", (BOTH, 0), true).unwrap();
    assert_eq!(served.server.stop(), 0);
    assert!(client.rpc.is_closed());
    assert!(TcpStream::connect(address).is_err());
    let ServedPool { server, pool, exports, .. } = served;
    let again = ServerOptions { listen: vec![address], ..options() };
    let second = Server::start(&again, Vec::new()).unwrap();
    let taken = Server::start(&again, Vec::new()).err().map(|error| error.to_string());
    assert!(taken.unwrap().contains(&address.to_string()));
    drop((server, exports, second));
    pool.export().unwrap();
    let bad = ServerOptions { max_buffered_bytes: 1, ..options() };
    assert!(matches!(Server::start(&bad, Vec::new()), Err(Error::Limit { .. })));
}
