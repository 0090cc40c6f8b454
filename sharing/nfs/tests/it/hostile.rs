//! Bytes that are not the protocol: others are served, and nothing panics.

use std::io::Write;
use std::net::Shutdown;

use nfs::wire::v4::op;
use proptest::prelude::*;

use crate::client::RpcClient;
use crate::served_pool::ServedPool;
use crate::v3_client::V3Client;
use crate::v4_client::{COMPOUND, Operations, V4Client};

/// Arguments in which a handle may be a true one, to get far into the server.
fn any_arguments() -> impl Strategy<Value = Vec<(bool, Vec<u8>)>> {
    let numbers = prop::collection::vec(prop_oneof![0..8_u32, any::<u32>()], 0..20);
    let noise = numbers.prop_map(|all| all.iter().flat_map(|n| n.to_be_bytes()).collect());
    prop::collection::vec((any::<bool>(), noise), 1..4)
}

fn join(parts: &[(bool, Vec<u8>)], handle: &[u8]) -> Vec<u8> {
    let length = u32::try_from(handle.len()).unwrap().to_be_bytes();
    let prefixed = |(is_handle, noise): &(bool, Vec<u8>)| {
        let handle = if *is_handle { [&length, handle].concat() } else { Vec::new() };
        [handle, noise.clone()].concat()
    };
    parts.iter().flat_map(prefixed).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn hostile_requests_do_no_harm(
        calls in prop::collection::vec((0..24_u32, any_arguments()), 1..12),
        operations in prop::collection::vec((0..80_u32, any_arguments()), 1..12),
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let served = ServedPool::start();
        let mut client = V3Client::mount(served.address(), "/tank").unwrap();
        let root = client.root.clone();
        let mut raw = RpcClient::connect(served.address());
        for (procedure, arguments) in &calls {
            let message = raw.message((100_003, 3, *procedure), &join(arguments, &root));
            raw.send(&message);
            raw.receive();
            raw.xid += 1;
        }
        let mut session = V4Client::connect(served.address(), "hostile");
        for (number, arguments) in &operations {
            let bytes = join(arguments, &root);
            let all = Operations::at(&root).add(op::SAVEFH, |_| {}).add(*number, |w| w.append(&bytes));
            session.sequence += 1;
            let request = session.in_slot(&all, session.sequence);
            let message = session.rpc.message(COMPOUND, &request);
            session.rpc.send(&message);
            session.rpc.receive();
        }
        let mut garbage = RpcClient::connect(served.address());
        // the server may have closed the connection
        let _ = garbage.stream.write_all(&noise);
        let _ = garbage.stream.shutdown(Shutdown::Write);
        prop_assert!(garbage.is_closed());
        client.attributes(&root).unwrap();
        drop((client, raw, session));
        prop_assert_eq!(served.server.stop(), 0);
    }
}
