//! Locks of NFSv3: the lock manager, the status monitor and the portmapper, as clients see them.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use nfs::wire::nlm::{self, Lock, LockStatus};
use nfs::wire::rpc::parse_reply;
use nfs::wire::xdr::{Reader, Writer};
use nfs::wire::{nsm, portmap};
use nfs::{Portmapper, PortmapperStatus, ServerOptions};

use crate::client::RpcClient;
use crate::nlm_client::{ClientPrograms, LockClient};
use crate::served_pool::{ServedPool, options, wait_until};
use crate::v3_client::V3Client;
use crate::v4_client::{BOTH, V4Client};

/// A pool with a file, its mounted root, and the handle of the file.
fn served_file(options: ServerOptions) -> (ServedPool, V3Client, Vec<u8>) {
    let served = ServedPool::start_with(options);
    let mut client = V3Client::mount(served.address(), "/tank").unwrap();
    let root = client.root.clone();
    let file = client.create(&root, "file", 0o600).unwrap();
    (served, client, file)
}

fn locking<const N: usize>(served: &ServedPool, names: [&str; N]) -> [LockClient; N] {
    names.map(|name| LockClient::connect(served.address(), name))
}

#[test]
fn locks_conflict_between_clients_and_processes() {
    let (served, _client, file) = served_file(options());
    let [mut one, mut two] = locking(&served, ["one", "two"]);
    assert_eq!(one.lock(&file, (1, 0, 10), true), LockStatus::Granted);
    assert_eq!(one.lock(&file, (1, 5, 10), true), LockStatus::Granted);
    assert_eq!(one.lock(&file, (2, 14, 1), true), LockStatus::Denied);
    assert_eq!(two.lock(&file, (1, 0, 1), false), LockStatus::Denied);
    assert_eq!(two.test(&file, (1, 8, 0)), Some((true, (1, 0, 15))));
    assert_eq!(two.lock(&file, (1, 15, 0), true), LockStatus::Granted);
    assert_eq!(one.test(&file, (9, 20, 5)), Some((true, (1, 15, 0))));
    assert_eq!(one.unlock(&file, (1, 2, 3)), LockStatus::Granted);
    assert_eq!(two.lock(&file, (1, 2, 3), true), LockStatus::Granted);
    // each has a file with locks, until it unlocks all
    assert_eq!(served.server.status().exports[0].opens, 2);
    for client in [&mut one, &mut two] {
        client.unlock(&file, (1, 0, 0));
    }
    let status = served.server.status();
    assert_eq!((status.exports[0].opens, status.lock_clients.len()), (0, 0));
}

#[test]
fn locks_conflict_with_those_of_nfsv4() {
    let (served, _client, file) = served_file(options());
    let [mut old] = locking(&served, ["old"]);
    let mut new = V4Client::connect(served.address(), "new");
    let root = new.handle(&["tank"]).unwrap();
    let (open, new_file) = new.open(&root, "file", (BOTH, 0), false).unwrap();
    assert_eq!(file, new_file);
    let lock = new.lock((&file, &open), "owner", (0, 10), false).unwrap();
    assert_eq!(old.lock(&file, (1, 5, 1), false), LockStatus::Denied);
    // an owner of another protocol has no process
    assert_eq!(old.test(&file, (1, 5, 1)), Some((true, (0, 0, 10))));
    new.unlock(&file, &lock, (0, 10)).unwrap();
    assert_eq!(old.lock(&file, (1, 5, 1), true), LockStatus::Granted);
    assert!(new.lock((&file, &open), "other", (0, 10), false).is_err());
}

#[test]
fn waiting_lock_is_granted_by_call() {
    let programs = ClientPrograms::start(LockStatus::Granted);
    let (served, _client, file) =
        served_file(ServerOptions { client_portmapper: programs.port, ..options() });
    let [mut one, mut two] = locking(&served, ["one", "two"]);
    assert_eq!(one.lock(&file, (1, 0, 10), true), LockStatus::Granted);
    assert_eq!(two.wait(&file, (7, 5, 0)), LockStatus::Blocked);
    // the same request again waits once
    assert_eq!(two.wait(&file, (7, 5, 0)), LockStatus::Blocked);
    assert_eq!(served.server.status().lock_clients[1].waits, 1);
    one.unlock(&file, (1, 0, 10));
    let (call, arguments) = programs.next();
    assert_eq!(call, (nlm::PROGRAM, nlm::GRANTED));
    let mut reader = Reader::new(&arguments);
    reader.opaque(1024).unwrap();
    assert!(reader.bool().unwrap());
    let lock = Lock::parse(&mut reader).unwrap();
    assert_eq!((lock.caller, lock.owner), (&b"two"[..], &b"7@two"[..]));
    assert_eq!((lock.handle, lock.process, lock.offset, lock.length), (&file[..], 7, 5, 0));
    wait_until("the end of the wait", || served.server.status().lock_clients[0].waits == 0);
    assert_eq!(one.lock(&file, (1, 8, 1), true), LockStatus::Denied);
}

#[test]
fn lock_ends_when_client_refuses_grant() {
    let programs = ClientPrograms::start(LockStatus::Denied);
    let (served, _client, file) =
        served_file(ServerOptions { client_portmapper: programs.port, ..options() });
    let [mut one, mut two] = locking(&served, ["one", "two"]);
    one.lock(&file, (1, 0, 10), true);
    assert_eq!(two.wait(&file, (7, 0, 10)), LockStatus::Blocked);
    one.unlock(&file, (1, 0, 10));
    programs.next();
    wait_until("the end of the lock", || served.server.status().lock_clients.is_empty());
    assert_eq!(one.lock(&file, (1, 0, 10), true), LockStatus::Granted);
}

#[test]
fn cancelled_wait_gets_no_lock() {
    let (served, _client, file) = served_file(options());
    let [mut one, mut two] = locking(&served, ["one", "two"]);
    one.lock(&file, (1, 0, 10), true);
    assert_eq!(two.cancel(&file, (7, 0, 10)), LockStatus::Denied);
    assert_eq!(two.wait(&file, (7, 0, 10)), LockStatus::Blocked);
    assert_eq!(two.cancel(&file, (7, 0, 10)), LockStatus::Granted);
    one.unlock(&file, (1, 0, 10));
    assert_eq!(one.lock(&file, (2, 0, 10), true), LockStatus::Granted);
    one.unlock(&file, (2, 0, 10));
    // the server grants the lock but cannot call the client: the next request gets it, or a CANCEL ends it
    one.lock(&file, (1, 0, 10), true);
    two.wait(&file, (7, 0, 10));
    one.unlock(&file, (1, 0, 10));
    assert_eq!(one.lock(&file, (1, 0, 10), true), LockStatus::Denied);
    assert_eq!(two.wait(&file, (7, 0, 10)), LockStatus::Granted);
    two.unlock(&file, (7, 0, 10));
    one.lock(&file, (1, 0, 10), true);
    two.wait(&file, (7, 0, 10));
    one.unlock(&file, (1, 0, 10));
    assert_eq!(two.cancel(&file, (7, 0, 10)), LockStatus::Granted);
    assert_eq!(one.lock(&file, (1, 0, 10), true), LockStatus::Granted);
}

#[test]
fn crossed_waits_are_deadlock() {
    let (served, mut client, file) = served_file(options());
    let root = client.root.clone();
    let other = client.create(&root, "other", 0o600).unwrap();
    let [mut one, mut two] = locking(&served, ["one", "two"]);
    one.lock(&file, (1, 0, 1), true);
    two.lock(&other, (1, 0, 1), true);
    assert_eq!(one.wait(&other, (1, 0, 1)), LockStatus::Blocked);
    assert_eq!(two.wait(&file, (1, 0, 1)), LockStatus::Deadlock);
}

#[test]
fn result_of_message_comes_by_call() {
    let programs = ClientPrograms::start(LockStatus::Granted);
    let (served, _client, file) =
        served_file(ServerOptions { client_portmapper: programs.port, ..options() });
    let [mut one] = locking(&served, ["one"]);
    one.lock_message(&file, (1, 0, 10));
    let (call, arguments) = programs.next();
    assert_eq!(call, (nlm::PROGRAM, 12));
    let mut reader = Reader::new(&arguments);
    assert_eq!((reader.opaque(1024).unwrap(), reader.u32().unwrap()), (&b"cookie"[..], 0));
}

#[test]
fn locked_file_outlasts_its_name() {
    let (served, mut client, file) = served_file(options());
    let [mut one, mut two] = locking(&served, ["one", "two"]);
    one.lock(&file, (1, 0, 10), true);
    let root = client.root.clone();
    client.remove(12, &root, "file").unwrap();
    client.attributes(&file).unwrap();
    assert_eq!(two.lock(&file, (1, 0, 10), true), LockStatus::Denied);
    one.unlock(&file, (1, 0, 10));
    assert!(client.attributes(&file).is_err());
    assert_eq!(two.lock(&file, (1, 0, 10), true), LockStatus::StaleHandle);
}

#[test]
fn restarted_client_loses_its_locks() {
    let (served, _client, file) = served_file(options());
    let [mut one, mut two, mut three] = locking(&served, ["one.lan", "two", "three"]);
    one.lock(&file, (1, 0, 10), true);
    two.lock(&file, (1, 10, 10), true);
    // without its domain
    three.notify_restart("ONE");
    assert_eq!(three.lock(&file, (1, 0, 10), true), LockStatus::Granted);
    assert_eq!(three.lock(&file, (1, 10, 10), true), LockStatus::Denied);
    two.free_all();
    assert_eq!(three.lock(&file, (1, 10, 10), true), LockStatus::Granted);
}

/// Options with a list of clients in a new folder.
fn listed(name: &str, client_portmapper: u16) -> (PathBuf, ServerOptions) {
    let dir = std::env::temp_dir().join(format!("nfs-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let lock_client_list = Some(dir.join("clients"));
    let host_name = "nas".to_owned();
    (dir, ServerOptions { lock_client_list, client_portmapper, host_name, ..options() })
}

#[test]
fn clients_reclaim_locks_after_restart() {
    let programs = ClientPrograms::start(LockStatus::Granted);
    let (dir, options) = listed("reclaim", programs.port);
    let lease = Duration::from_secs(3);
    let (served, _client, file) = served_file(ServerOptions { lease, ..options });
    let [mut one] = locking(&served, ["one"]);
    assert_eq!(one.reclaim(&file, (1, 0, 10)), LockStatus::Denied);
    one.lock(&file, (1, 0, 10), true);
    let served = served.restart();
    // under its name and its address, with a number that is higher than the first
    for name in ["nas", "127.0.0.1"] {
        let (call, arguments) = programs.next();
        assert_eq!(call, (nsm::PROGRAM, nsm::NOTIFY));
        let mut reader = Reader::new(&arguments);
        let notice = (reader.opaque(1024).unwrap(), reader.u32().unwrap());
        assert_eq!(notice, (name.as_bytes(), 3));
    }
    let [mut one, mut two] = locking(&served, ["one", "two"]);
    let mut new = V4Client::connect(served.address(), "new");
    let root = new.handle(&["tank"]).unwrap();
    let (open, _) = new.open(&root, "file", (BOTH, 0), false).unwrap();
    assert_eq!(two.lock(&file, (1, 0, 10), true), LockStatus::DeniedGracePeriod);
    assert!(new.lock((&file, &open), "owner", (0, 10), false).is_err());
    assert_eq!(one.reclaim(&file, (1, 0, 10)), LockStatus::Granted);
    assert!(served.server.status().grace.is_some());
    wait_until("the end of the grace period", || served.server.status().grace.is_none());
    assert_eq!(two.lock(&file, (1, 0, 10), true), LockStatus::Denied);
    assert_eq!(two.lock(&file, (1, 10, 10), true), LockStatus::Granted);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn locks_and_waits_of_client_are_limited() {
    let limits = ServerOptions { max_clients: 2, max_states_per_client: 3, ..options() };
    let (served, _client, file) = served_file(limits);
    let [mut one, mut two, mut three] = locking(&served, ["one", "two", "three"]);
    for offset in [0, 2] {
        assert_eq!(one.lock(&file, (1, offset, 1), true), LockStatus::Granted);
    }
    assert_eq!(two.lock(&file, (1, 9, 1), true), LockStatus::Granted);
    assert_eq!(one.wait(&file, (1, 9, 1)), LockStatus::Blocked);
    assert_eq!(one.lock(&file, (1, 4, 1), true), LockStatus::DeniedNoLocks);
    assert_eq!(three.lock(&file, (1, 6, 1), true), LockStatus::DeniedNoLocks);
    // a client without locks gives way
    two.unlock(&file, (1, 9, 1));
    assert_eq!(three.lock(&file, (1, 6, 1), true), LockStatus::Granted);
}

#[test]
fn share_reservations_deny_others() {
    let (served, mut client, file) = served_file(options());
    let [mut one, mut two] = locking(&served, ["one", "two"]);
    // reads and writes, and denies writes
    assert_eq!(one.share(20, &file, (3, 2)), LockStatus::Granted);
    assert_eq!(two.share(20, &file, (2, 0)), LockStatus::Denied);
    let mut new = V4Client::connect(served.address(), "new");
    let root = new.handle(&["tank"]).unwrap();
    // denials of other protocols hold: here of reads
    assert!(new.open(&root, "file", (BOTH, 1), false).is_err());
    assert_eq!(one.share(21, &file, (3, 2)), LockStatus::Granted);
    let (open, _) = new.open(&root, "file", (BOTH, 1), false).unwrap();
    assert_eq!(two.share(20, &file, (1, 0)), LockStatus::Denied);
    assert_eq!(two.share(20, &file, (2, 2)), LockStatus::Granted);
    new.close(&file, &open).unwrap();
    // reads and writes of NFSv3 do not tell their owner
    client.write(&file, 0, 0, b"x").unwrap();
}

#[test]
fn locks_end_with_their_export() {
    let (served, _client, file) = served_file(options());
    let [mut one, mut two] = locking(&served, ["one", "two"]);
    one.lock(&file, (1, 0, 10), true);
    two.wait(&file, (1, 0, 10));
    served.server.set_exports(Vec::new()).unwrap();
    assert!(served.server.status().lock_clients.is_empty());
    served.server.set_exports(served.exports.clone()).unwrap();
    assert_eq!(two.lock(&file, (1, 0, 10), true), LockStatus::Granted);
}

fn getport(program: u32, version: u32, transport: portmap::Transport) -> Vec<u8> {
    let mut writer = Writer::default();
    portmap::write_getport(&mut writer, (program, version), transport);
    writer.into_bytes()
}

/// Sends a datagram. Returns the result in the reply.
fn call_udp(address: SocketAddr, program: (u32, u32, u32), arguments: &[u8]) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let message = RpcClient::connect(address).message(program, arguments);
    socket.send_to(&message, address).unwrap();
    let mut reply = [0; 4096];
    let length = socket.recv(&mut reply).unwrap();
    parse_reply(&reply[..length]).unwrap().map(|results| results.rest().to_vec())
}

#[test]
fn portmapper_answers_over_tcp_and_udp() {
    let portmapper = Portmapper::Listen(vec![SocketAddr::from(([127, 0, 0, 1], 0))]);
    let served = ServedPool::start_with(ServerOptions { portmapper, ..options() });
    let PortmapperStatus::Answers(addresses) = served.server.status().portmapper else {
        panic!("{:?}", served.server.status())
    };
    let (address, port) = (addresses[0], u32::from(served.address().port()));
    let mut client = RpcClient::connect(address);
    let find = (portmap::PROGRAM, 2, portmap::GETPORT);
    for (program, transport, wanted) in [
        (100_003, portmap::Transport::Tcp, port),
        (100_003, portmap::Transport::Udp, 0),
        (nlm::PROGRAM, portmap::Transport::Udp, port),
        (nsm::PROGRAM, portmap::Transport::Tcp, port),
        (portmap::PROGRAM, portmap::Transport::Udp, u32::from(address.port())),
        (100_011, portmap::Transport::Tcp, 0),
    ] {
        let arguments = getport(program, 4, transport);
        assert_eq!(client.call(find, &arguments), wanted.to_be_bytes(), "{program}");
        assert_eq!(call_udp(address, find, &arguments).unwrap(), wanted.to_be_bytes());
    }
    let mut binding = Writer::default();
    binding.u32(nlm::PROGRAM);
    binding.u32(4);
    for text in [&b"tcp"[..], b"", b""] {
        binding.opaque(text);
    }
    let found = client.call((portmap::PROGRAM, 4, 3), binding.as_bytes());
    let wanted = format!("127.0.0.1.{}.{}", port >> 8, port & 255);
    assert_eq!(Reader::new(&found).opaque(100).unwrap(), wanted.as_bytes());
    assert!(client.call((portmap::PROGRAM, 2, 4), &[]).len() > 100);
    // a long reply to a short datagram
    assert_eq!(call_udp(address, (portmap::PROGRAM, 2, 4), &[]), None);
    // programs that others register are not
    assert_eq!(client.call((portmap::PROGRAM, 2, 1), &[0; 16]), [0; 4]);
    assert_eq!(call_udp(served.address(), (nlm::PROGRAM, 4, 0), &[]), Some(Vec::new()));
    // NFS needs TCP
    assert_eq!(call_udp(served.address(), (100_003, 3, 0), &[]), None);
}
