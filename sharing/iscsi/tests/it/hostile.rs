//! Initiators that send anything: their connection ends, and no other notices.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use iscsi::ServerOptions;
use proptest::prelude::*;

use crate::initiator::{Initiator, Pdu, read10, write10};
use crate::served_pool::{ServedPool, options, wait_until};

/// Sends bytes, ends the stream, and reads until the target closes the connection.
fn send_and_read_all(mut initiator: Initiator, bytes: &[u8]) {
    // the target may have closed the connection
    let _ = initiator.stream.write_all(bytes);
    let _ = initiator.stream.shutdown(Shutdown::Write);
    let mut rest = Vec::new();
    let _ = initiator.stream.read_to_end(&mut rest);
}

/// A PDU with a known opcode and anything in its fields, and a data segment that may be cut.
fn any_pdu() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![0_u8..7, Just(0x10), any::<u8>()];
    let fields = proptest::array::uniform32(any::<u8>());
    let data = proptest::collection::vec(any::<u8>(), 0..64);
    let lie = prop_oneof![8 => Just(0_u8), 1 => any::<u8>()];
    (opcode, any::<u8>(), fields, data, lie, any::<bool>()).prop_map(
        |(opcode, flags, fields, data, lie, is_next)| {
            let mut pdu = Pdu::new(opcode | 0x40, flags, &data).put(16, &fields);
            pdu.header[5] = lie;
            if is_next {
                pdu = pdu.u32(24, 8);
                pdu.header[0] = opcode & 0x3f;
            }
            let padding = vec![0; data.len().wrapping_neg() % 4];
            [&pdu.header[..], &pdu.data, &padding].concat()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_bytes_end_only_their_connection(pdus in proptest::collection::vec(any_pdu(), 1..12)) {
        let served = ServedPool::start();
        let bytes = pdus.concat();
        send_and_read_all(Initiator::connect_as(served.address(), 1), &bytes);
        send_and_read_all(served.initiator_with(2, &[]), &bytes);
        let mut initiator = served.initiator_with(3, &[]);
        assert_eq!(initiator.read(&read10(0, 1), 512).status, 0);
        drop(initiator);
        assert_eq!(served.server.stop(), 0);
    }
}

#[test]
fn broken_rules_end_the_connection() {
    let served = ServedPool::start();
    let login = Pdu::new(0x43, 0x87, &[]);
    let unsolicited = |initiator: &mut Initiator| {
        // InitialR2T=Yes is in force
        initiator.command_pdu(0x21, &write10(0, 0, 16), 8192, &[])
    };
    let too_long = |initiator: &mut Initiator| {
        let mut pdu = initiator.command_pdu(0xa1, &write10(0, 0, 16), 8192, &[]);
        pdu.header[5] = 0x20;
        pdu
    };
    let more_than_expected =
        |initiator: &mut Initiator| initiator.command_pdu(0xa1, &write10(0, 0, 1), 512, &[1; 1024]);
    let gap = |initiator: &mut Initiator| {
        let number = initiator.cmd_sn + 1;
        initiator.command_pdu(0x80, &[0; 6], 0, &[]).u32(24, number)
    };
    let pdus: [&dyn Fn(&mut Initiator) -> Pdu; 5] =
        [&|_| login.clone(), &unsolicited, &too_long, &more_than_expected, &gap];
    for make in pdus {
        let mut initiator = served.initiator();
        let pdu = make(&mut initiator);
        initiator.send(&pdu);
        assert!(initiator.is_closed(), "{pdu:?}");
    }
    let mut initiator = served.initiator();
    initiator.immediate = 0;
    let first = initiator.command_pdu(0xa1, &write10(0, 0, 16), 8192, &[]);
    let second = initiator.command_pdu(0xa1, &write10(0, 0, 16), 8192, &[]).u32(16, first.at(16));
    initiator.send(&first);
    assert_eq!(initiator.receive().unwrap().opcode(), 0x31);
    initiator.send(&second);
    assert!(initiator.is_closed(), "a tag that is in use");
}

#[test]
fn unknown_opcodes_are_rejected() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    for (opcode, reason) in [(0x1c, 5), (0x10, 3), (0x21, 5)] {
        let pdu = Pdu::new(0x40 | opcode, 0x80, b"data").u32(16, 9);
        initiator.send(&pdu);
        let answer = initiator.receive().unwrap();
        assert_eq!((answer.opcode(), answer.header[2]), (0x3f, reason));
        assert_eq!(answer.data, pdu.header);
    }
    assert!(initiator.attentions().is_empty());
}

#[test]
fn stalled_initiators_are_ended() {
    let options = ServerOptions { stall_timeout: Duration::from_millis(200), ..options() };
    let served = ServedPool::start_with(&options);
    // the time does not count between PDUs
    let mut silent = served.initiator_with(1, &[]);
    let mut half_header = served.initiator_with(2, &[]);
    half_header.stream.write_all(&[0x01, 0x80]).unwrap();
    let mut half_data = served.initiator_with(3, &[]);
    let pdu = half_data.command_pdu(0xa1, &write10(0, 0, 1), 512, &[1; 512]);
    half_data.stream.write_all(&pdu.header).unwrap();
    let mut half_login = Initiator::connect_as(served.address(), 4);
    half_login.stream.write_all(&[0x43]).unwrap();
    let mut deaf = served.initiator_with(5, &[]);
    for _ in 0..60 {
        deaf.send_read(&read10(0, 4096), 2 << 20);
    }
    assert!(half_header.is_closed() && half_data.is_closed() && half_login.is_closed());
    wait_until("the end of stalled sessions", || served.server.status().sessions.len() == 1);
    assert_eq!(silent.read(&read10(0, 1), 512).status, 0);
}

#[test]
fn vanished_initiators_are_forgotten() {
    let served = ServedPool::start();
    for isid in 0..4 {
        let mut initiator = served.initiator_with(isid, &[]);
        initiator.immediate = usize::from(isid) * 512;
        initiator.send_write(&write10(0, 0, 16), &[1; 8192]);
        initiator.send_read(&read10(0, 2048), 1 << 20);
    }
    wait_until("the end of all sessions", || served.server.status().sessions.is_empty());
}
