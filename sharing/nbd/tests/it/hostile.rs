//! Bytes that are not the protocol: the connection ends, and others are served.

use std::io::{Read, Write};
use std::net::Shutdown;

use proptest::prelude::*;

use crate::client::{Client, READ};
use crate::served_pool::ServedPool;

/// Pieces of valid messages, to get far into the server.
fn any_piece() -> impl Strategy<Value = Vec<u8>> {
    let request = (0..10_u16, 0..40_u16, any::<u64>(), 0..0x0010_0000_u32);
    let request = request.prop_map(|(command, flags, offset, length)| {
        [
            &0x25609513_u32.to_be_bytes()[..],
            &flags.to_be_bytes(),
            &command.to_be_bytes(),
            &7_u64.to_be_bytes(),
            &(offset % (4 << 20)).to_be_bytes(),
            &length.to_be_bytes(),
        ]
        .concat()
    });
    let option = (0..12_u32, proptest::collection::vec(any::<u8>(), 0..40), any::<bool>());
    let option = option.prop_map(|(code, payload, is_true)| {
        let length = u32::try_from(payload.len()).unwrap() + u32::from(!is_true);
        [b"IHAVEOPT", &code.to_be_bytes()[..], &length.to_be_bytes(), &payload].concat()
    });
    let noise = proptest::collection::vec(any::<u8>(), 0..200);
    prop_oneof![request, option, noise]
}

fn send_and_read_all(mut client: Client, pieces: &[Vec<u8>]) {
    let mut reading = client.stream.try_clone().unwrap();
    std::thread::scope(|threads| {
        // replies are read meanwhile: otherwise the server would wait for that
        threads.spawn(move || std::io::copy(&mut reading, &mut std::io::sink()));
        for piece in pieces {
            // the server may have closed the connection
            if client.stream.write_all(piece).is_err() {
                break;
            }
        }
        let _ = client.stream.shutdown(Shutdown::Write);
    });
    // the server closes as well, or has reset the connection
    let mut rest = [0; 1];
    assert!(!matches!(client.stream.read(&mut rest), Ok(1..)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn hostile_bytes_end_only_their_connection(
        pieces in proptest::collection::vec(any_piece(), 1..12),
    ) {
        let served = ServedPool::start();
        send_and_read_all(Client::connect(served.address()), &pieces);
        send_and_read_all(served.client(), &pieces);
        send_and_read_all(served.simple_client(), &pieces);
        let mut client = served.client();
        assert_eq!(client.request((READ, 0), 0, 512).error, 0);
        drop(client);
        assert_eq!(served.server.stop(), 0);
    }
}
