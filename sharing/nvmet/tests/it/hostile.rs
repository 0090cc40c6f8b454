//! Hosts that send anything: their connection ends, and no other notices.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use nvmet::ServerOptions;
use proptest::prelude::*;

use crate::host::{Connect, Entry, Queue, READ, WRITE, enable, le16};
use crate::served_pool::{ServedPool, options, wait_until};

/// Sends bytes, says that nothing follows, and reads until the controller closes the connection.
fn send_and_read_all(mut stream: TcpStream, bytes: &[u8]) {
    // the controller may have closed the connection
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}

/// A PDU with a known type and anything in its fields; its lengths may lie.
fn any_pdu() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![8 => Just(4_u8), 2 => Just(6), 1 => any::<u8>()];
    let opcode = prop_oneof![0_u8..0x20, Just(0x7f), any::<u8>()];
    let fields = proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 72);
    let data = proptest::collection::vec(any::<u8>(), 0..80);
    let lie = prop_oneof![8 => Just(0_u8), 1 => any::<u8>()];
    (kind, opcode, fields, data, lie, any::<bool>()).prop_map(
        |(kind, opcode, fields, data, lie, is_in_capsule)| {
            let mut entry = Entry(*fields.first_chunk().expect("64 bytes"));
            entry.0[0] = opcode;
            entry.0[1] = 0x40 | entry.0[1] & 1;
            let entry = entry.data(data.len(), is_in_capsule);
            let size: u8 = if kind == 4 { 72 } else { 24 };
            let offset = if data.is_empty() { 0 } else { size };
            let length = u32::from(size) + u32::try_from(data.len()).expect("short");
            let mut pdu = vec![kind, 0, size, offset ^ lie];
            pdu.extend(length.to_le_bytes());
            pdu.extend(&entry.0[..usize::from(size) - 8]);
            pdu.extend(data);
            pdu
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_bytes_end_only_their_connection(pdus in proptest::collection::vec(any_pdu(), 1..12)) {
        let served = ServedPool::start();
        let bytes = pdus.concat();
        send_and_read_all(TcpStream::connect(served.address()).unwrap(), &bytes);
        send_and_read_all(Queue::open(served.address(), 0).stream, &bytes);
        let host = crate::host::Host::connect(served.address(), 2);
        send_and_read_all(host.admin.stream, &bytes);
        let host = crate::host::Host::connect(served.address(), 3);
        send_and_read_all(host.io.stream, &bytes);
        drop(host.admin);
        // reservations that the bytes have made do not keep a host from reading its size
        let mut host = crate::host::Host::connect(served.address(), 4);
        prop_assert_eq!(host.identify(0, 1).status, 0);
        drop(host);
        prop_assert_eq!(served.server.stop(), 0);
    }
}

/// The error that ends a connection after some bytes.
fn fatal_error(queue: &mut Queue, bytes: &[u8]) -> u16 {
    queue.stream.write_all(bytes).unwrap();
    let pdu = queue.receive().expect("a report of the error");
    assert_eq!(pdu.kind, 3, "{pdu:?}");
    le16(&pdu.header, 8)
}

#[test]
fn broken_rules_are_named() {
    let served = ServedPool::start();
    let open = |digests| Queue::open(served.address(), digests);
    // a second initialization, an unknown type, a wrong header length
    let mut initialization = [0; 128];
    (initialization[2], initialization[4]) = (128, 128);
    assert_eq!(fatal_error(&mut open(0), &initialization), 2);
    assert_eq!(fatal_error(&mut open(0), &[9, 0, 24, 0, 24, 0, 0, 0]), 1);
    assert_eq!(fatal_error(&mut open(0), &[4, 0, 71, 0, 71, 0, 0, 0]), 1);
    // a wrong digest of a header
    let mut queue = open(1);
    let mut pdu = queue.encode(4, &Entry::new(READ, 1).0, &[], 0);
    *pdu.last_mut().unwrap() ^= 1;
    assert_eq!(fatal_error(&mut queue, &pdu), 3);
    // data that nobody asked for
    let mut queue = open(0);
    let pdu = queue.encode(6, &[0; 16], &[1], 0);
    assert_eq!(fatal_error(&mut queue, &pdu), 1);
    // more data than a capsule has
    let mut queue = open(0);
    let pdu = queue.encode(4, &Entry::new(WRITE, 1).0, &vec![0; 17 << 10], 0);
    assert_eq!(fatal_error(&mut queue, &pdu), 5);
}

#[test]
fn data_outside_of_the_request_end_the_connection() {
    let served = ServedPool::start();
    for (offset, length) in [(0, 1024), (512, 512), (0, 32 << 10)] {
        let mut host = served.host();
        let entry = Entry::new(WRITE, 1).blocks(0, 32).data(16 << 10, false);
        host.io.submit(entry, &[]);
        let ready = host.io.receive().unwrap();
        assert_eq!(ready.kind, 9);
        let number = |number: u32| number.to_le_bytes();
        let header = [&ready.header[8..12], &number(offset), &number(length), &[0; 4]].concat();
        let data = vec![0; usize::try_from(length).unwrap()];
        // the last data, which leave a part out
        let pdu = host.io.encode(6, &header, &data, 4);
        assert_eq!(fatal_error(&mut host.io, &pdu), 4);
    }
}

#[test]
fn damaged_data_fail_their_command() {
    let served = ServedPool::start();
    let mut host = crate::host::Host::connect_with(served.address(), 2, Connect::default());
    let entry = Entry::new(WRITE, 1).blocks(0, 1).data(512, true);
    let mut pdu = host.io.encode(4, &entry.0, &[3; 512], 0);
    *pdu.last_mut().unwrap() ^= 1;
    host.io.stream.write_all(&pdu).unwrap();
    assert_eq!(host.io.complete(0, &[]).status, 0x022);
    assert_eq!(host.io.read(0, 1).data, [0; 512]);
}

#[test]
fn more_commands_than_entries_end_the_connection() {
    let served = ServedPool::start();
    let mut admin = Queue::open(served.address(), 0);
    let connect = Connect { last_entry: 1, ..Connect::default() };
    assert_eq!(connect.run(&mut admin).status, 0);
    enable(&mut admin);
    let event = Entry::new(0x0c, 0).data(0, false);
    admin.submit(event, &[]);
    admin.submit(event, &[]);
    let pdu = admin.encode(4, &event.0, &[], 0);
    assert_eq!(fatal_error(&mut admin, &pdu), 2);
}

#[test]
fn stalling_hosts_are_disconnected() {
    let stall_timeout = Duration::from_millis(50);
    let served = ServedPool::start_with(&ServerOptions { stall_timeout, ..options() });
    // nothing, half an initialization, no Connect
    let mut nothing = TcpStream::connect(served.address()).unwrap();
    let mut half = TcpStream::connect(served.address()).unwrap();
    half.write_all(&[0, 0, 128, 0, 128]).unwrap();
    let mut idle = Queue::open(served.address(), 0).stream;
    for stream in [&mut nothing, &mut half, &mut idle] {
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
    }
}

#[test]
fn connections_above_the_limit_are_closed() {
    let served = ServedPool::start_with(&ServerOptions { max_connections: 2, ..options() });
    let _host = served.host();
    let mut third = TcpStream::connect(served.address()).unwrap();
    assert_eq!(third.read(&mut [0; 8]).unwrap_or(0), 0);
    assert_eq!(served.server.status().controllers.len(), 1);
    wait_until("one controller", || served.server.status().controllers.len() == 1);
}
