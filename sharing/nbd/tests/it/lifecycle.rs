//! Changes of units and exports, clients that misbehave or vanish, and the end of a server.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::pool::Pool;
use lun::LunOptions;
use nbd::{Error, Server, ServerOptions};

use crate::client::{Client, DISCONNECT, FLUSH, FUA, READ};
use crate::served_pool::{self, ServedPool, export, open_unit};
use crate::volume_pool::{SIZE, VOLUME};

/// Waits until a condition holds; a test that waits in vain fails.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_mins(1), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_until_alone(server: &Server) {
    wait_until("the end of all connections", || server.status().clients.is_empty());
}

#[test]
fn reload_keeps_clients_of_unchanged_exports() {
    let served = ServedPool::start();
    let second = open_unit(&served.pool, LunOptions::default());
    let both = vec![export("disk", &served.unit), export("second", &second)];
    // the same unit must be the same object for the server to know it
    let kept = both[0].clone();
    served.server.set_exports(both).unwrap();
    let mut client = served.client();
    let mut other = Client::connect(served.address());
    other.go("second").unwrap();
    served.server.set_exports(vec![kept]).unwrap();
    assert!(other.is_closed());
    assert_eq!(client.request((READ, 0), 0, 512).data(0), [0; 512]);
    assert_eq!(Client::connect(served.address()).go("second"), Err(1 << 31 | 6));
    let twice = vec![export("disk", &served.unit), export("disk", &served.unit)];
    assert!(matches!(served.server.set_exports(twice), Err(Error::DuplicateExport { .. })));
    let long = vec![export(&"x".repeat(4097), &served.unit)];
    assert!(matches!(served.server.set_exports(long), Err(Error::LongName { .. })));
    // a configuration that is refused changes nothing
    assert_eq!(client.request((READ, 0), 0, 512).data(0), [0; 512]);
    served.server.set_exports(Vec::new()).unwrap();
    assert!(client.is_closed());
}

#[test]
fn exports_are_there_for_their_networks() {
    let served = ServedPool::start();
    let mut hidden = export("hidden", &served.unit);
    hidden.networks = vec!["192.0.2.0/24".parse().unwrap(), "::/0".parse().unwrap()];
    let mut disk = export("disk", &served.unit);
    disk.networks.push("192.0.2.0/24".parse().unwrap());
    served.server.set_exports(vec![hidden, disk.clone()]).unwrap();
    let mut client = Client::connect(served.address());
    assert_eq!(client.option(3, &[]).len(), 2, "one export and ACK");
    assert_eq!(client.go("hidden"), Err(1 << 31 | 6));
    client.go("").unwrap();
    disk.networks.remove(0);
    served.server.set_exports(vec![disk]).unwrap();
    assert!(client.is_closed());
    assert_eq!(Client::connect(served.address()).go("disk"), Err(1 << 31 | 6));
}

#[test]
fn growth_keeps_and_shrinking_ends_connections() {
    let served = ServedPool::start();
    let mut client = served.client();
    served.pool.properties().set(VOLUME, "volsize", &(SIZE * 2).to_string()).unwrap();
    assert_eq!(client.write(0, SIZE, &[1; 512]).error, 0);
    assert_eq!(served.client().size, SIZE * 2);
    served.pool.properties().set(VOLUME, "volsize", &(SIZE / 2).to_string()).unwrap();
    assert!(client.is_closed());
    assert_eq!(served.client().size, SIZE / 2);
}

#[test]
fn rollback_and_export_end_connections() {
    let served = ServedPool::start();
    served.pool.snapshots().create(&[format!("{VOLUME}@before")]).unwrap();
    let mut client = served.client();
    assert_eq!(client.write(0, 0, &[1; 512]).error, 0);
    served.pool.snapshots().rollback(VOLUME).unwrap();
    assert!(client.is_closed());
    let mut client = served.client();
    assert_eq!(client.request((READ, 0), 0, 512).data(0), [0; 512]);
    served.pool.export().unwrap();
    assert!(client.is_closed());
    let mut late = served.client();
    let reply = late.request((READ, 0), 0, 512);
    assert_eq!(reply.error, 108, "ESHUTDOWN");
    assert!(reply.message.contains("exported"), "{}", reply.message);
}

#[test]
fn status_counts_clients_and_bytes() {
    let served = ServedPool::start();
    let mut client = served.client();
    let before = served.server.status();
    assert_eq!((before.clients.len(), &before.exports[..]), (1, &["disk".to_owned()][..]));
    assert_eq!(before.clients[0].export.as_deref(), Some("disk"));
    assert_eq!(before.listening, [served.address()]);
    assert_eq!(client.write(0, 0, &[1; 1024]).error, 0);
    assert_eq!(client.request((READ, 0), 0, 512).error, 0);
    assert_eq!(client.request((READ, 0), 1, 512).error, 22);
    let after = served.server.status();
    let added = after.clients[0].counters.since(&before.clients[0].counters);
    let expected = nbd::Counters { requests: 3, errors: 1, read_bytes: 512, written_bytes: 1024 };
    assert_eq!((added, after.totals), (Some(expected), expected));
    client.send((DISCONNECT, 0), 0, 0);
    assert!(client.is_closed());
    wait_until_alone(&served.server);
    assert_eq!(served.server.status().totals, expected);
}

#[test]
fn requests_before_a_disconnect_are_answered() {
    let served = ServedPool::start();
    let mut client = served.client();
    let cookies: Vec<u64> =
        (0..50_u8).map(|at| client.send_write(0, u64::from(at) * 8192, &[at; 8192])).collect();
    let flush = client.send((FLUSH, 0), 0, 0);
    client.send((DISCONNECT, 0), 0, 0);
    for cookie in cookies {
        assert_eq!(client.reply(cookie).error, 0);
    }
    assert_eq!(client.reply(flush).error, 0);
    assert!(client.is_closed());
}

#[test]
fn stalled_clients_are_ended() {
    let stall_timeout = Duration::from_millis(200);
    let options = ServerOptions { stall_timeout, ..served_pool::options() };
    let served = ServedPool::start_with(&options, LunOptions::default());
    // the timeout does not count between requests
    let mut silent = served.client();
    let mut half_header = served.client();
    half_header.stream.write_all(&[0x25, 0x60]).unwrap();
    let mut half_data = served.client();
    half_data.send((crate::client::WRITE, 0), 0, 8192);
    half_data.stream.write_all(&[1; 4096]).unwrap();
    let mut deaf = served.client();
    assert_eq!(deaf.write(0, 0, &vec![1; 2 << 20]).error, 0);
    for _ in 0..40 {
        deaf.send((READ, 0), 0, 2 << 20);
    }
    assert!(half_header.is_closed() && half_data.is_closed());
    wait_until("the end of stalled connections", || served.server.status().clients.len() == 1);
    assert_eq!(silent.request((READ, 0), 8192 * 3, 512).data(8192 * 3), [1; 512]);
}

#[test]
fn vanished_clients_are_forgotten() {
    let served = ServedPool::start();
    for round in 0..4 {
        let mut client = served.client();
        let _ = client.send_write(0, 0, &[1; 8192]);
        client.send((READ, 0), 0, 1 << 20);
        if round % 2 == 0 {
            client.send((crate::client::WRITE, 0), 0, 8192);
        }
    }
    drop(Client::connect(served.address()));
    wait_until_alone(&served.server);
}

#[test]
fn connections_above_the_limit_are_closed() {
    let options = ServerOptions { max_connections: 2, ..served_pool::options() };
    let served = ServedPool::start_with(&options, LunOptions::default());
    let (first, _second) = (served.client(), served.client());
    let mut third = std::net::TcpStream::connect(served.address()).unwrap();
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut third, &mut rest);
    assert!(rest.is_empty());
    drop(first);
    wait_until("the end of a connection", || served.server.status().clients.len() == 1);
    assert_eq!(served.client().size, SIZE);
}

#[test]
fn stop_ends_connections_and_frees_the_address() {
    let served = ServedPool::start();
    let address = served.address();
    let mut client = served.client();
    assert_eq!(client.write(0, 0, &[1; 512]).error, 0);
    assert_eq!(served.server.stop(), 0);
    assert!(client.is_closed());
    assert!(std::net::TcpStream::connect(address).is_err());
    drop(served.server);
    let options = ServerOptions { listen: vec![address], ..served_pool::options() };
    let again = Server::start(&options, vec![export("disk", &served.unit)], None).unwrap();
    let taken = Server::start(&options, Vec::new(), None).err();
    let sentence = taken.map(|error| error.to_string()).unwrap_or_default();
    assert!(sentence.contains(&address.to_string()), "{sentence}");
    drop(again);
    let bad = ServerOptions { max_buffered_bytes: 1, ..served_pool::options() };
    assert!(matches!(Server::start(&bad, Vec::new(), None), Err(Error::Limit { .. })));
}

/// Has work done while a thread writes txgs, without which a pool is not suspended but closed.
fn with_sync_thread(pool: &Pool, work: impl FnOnce()) {
    struct CloseOnDrop<'a>(&'a AtomicBool, &'a Pool);
    impl Drop for CloseOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
            // a suspended pool would wait forever
            let _ = self.1.close();
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| pool.background().run_txg_sync(Duration::from_millis(20), &stop));
        let _close = CloseOnDrop(&stop, pool);
        wait_until("the sync thread", || pool.background().has_sync_thread());
        work();
    });
}

fn suspend(served: &ServedPool) {
    served.fail_drive(true);
    assert!(served.pool.sync().is_err());
    assert_eq!(served.pool.status().state, "SUSPENDED");
}

fn resume(served: &ServedPool) {
    served.fail_drive(false);
    served.pool.clear_errors(None).unwrap();
}

#[test]
fn clients_wait_for_a_suspended_pool() {
    let served = ServedPool::start();
    with_sync_thread(&served.pool, || {
        let in_flight = || -> Vec<u64> {
            served.server.status().clients.iter().map(|client| client.in_flight).collect()
        };
        let mut client = served.client();
        suspend(&served);
        let waiting = client.send_write(FUA, 0, &[1; 8192]);
        let mut vanishing = served.client();
        vanishing.send_write(FUA, 8192, &[2; 8192]);
        wait_until("two writes", || in_flight() == [1, 1]);
        drop(vanishing);
        wait_until("the end of a client", || in_flight() == [1]);
        resume(&served);
        assert_eq!(client.reply(waiting).error, 0);
        assert_eq!(client.request((READ, 0), 0, 8192).data(0), [1; 8192]);
        // with failmode=continue, and at the end of the server, the client gets an error
        served.pool.properties().set_pool("failmode", "continue").unwrap();
        suspend(&served);
        let refused = client.write(FUA, 0, &[3; 8192]);
        assert_eq!(refused.error, 5, "EIO");
        assert!(refused.message.contains("zpool clear"), "{}", refused.message);
        resume(&served);
        served.pool.properties().set_pool("failmode", "wait").unwrap();
        suspend(&served);
        client.send_write(FUA, 0, &[3; 8192]);
        wait_until("a write", || in_flight() == [1]);
        assert_eq!(served.server.stop(), 0);
        assert!(client.is_closed());
        resume(&served);
    });
}
