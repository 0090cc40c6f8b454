//! The handshake: the facts that clients get about exports, and the replies to mistakes.

use std::io::Write;

use lun::LunOptions;

use crate::client::{BLOCK_STATUS, Client, READ, text};
use crate::served_pool::{self, ServedPool, export, open_unit};
use crate::volume_pool::{SIZE, VOLUME_BLOCK};

const UNSUPPORTED: u32 = 1 << 31 | 1;
const INVALID: u32 = 1 << 31 | 3;
const UNKNOWN: u32 = 1 << 31 | 6;
const TOO_BIG: u32 = 1 << 31 | 9;

fn kinds(replies: &[(u32, Vec<u8>)]) -> Vec<u32> {
    replies.iter().map(|(kind, _)| *kind).collect()
}

#[test]
fn exports_are_listed_and_described() {
    let served = ServedPool::start();
    let options = LunOptions { block_size: 4096, read_only: true };
    let other = open_unit(&served.pool, options);
    served.server.set_exports(vec![export("ro", &other), export("disk", &served.unit)]).unwrap();
    let mut client = Client::connect(served.address());
    let listed = client.option(3, &[]);
    let names = [("disk", "volume disk"), ("ro", "volume ro")]
        .map(|(name, description)| (2, [text(name), description.into()].concat()));
    assert_eq!(listed, [&names[..], &[(1, Vec::new())]].concat());
    let asks_for_names = [text("ro"), vec![0, 2, 0, 1, 0, 2]].concat();
    let described = client.option(6, &asks_for_names);
    assert_eq!(kinds(&described), [3, 3, 3, 3, 1]);
    assert_eq!(described[2].1, b"\0\x01ro");
    assert_eq!(described[3].1, b"\0\x02volume ro");
    client.go("ro").unwrap();
    // has flags, read-only, flush, FUA, multi-conn, cache
    assert_eq!((client.size, client.flags), (SIZE, 0b101_0000_1111));
    assert_eq!(client.block_sizes, [4096, VOLUME_BLOCK, 32 << 20]);
    let writable = served.client();
    // further: trim, write zeroes, DF, fast zero, and not read-only
    assert_eq!((writable.size, writable.flags), (SIZE, 0b1101_1110_1101));
    assert_eq!(writable.block_sizes, [512, VOLUME_BLOCK, 32 << 20]);
}

#[test]
fn bad_options_are_refused_by_replies() {
    let served = ServedPool::start();
    let mut client = Client::connect(served.address());
    let mut refused = |option, payload: &[u8]| client.option(option, payload)[0].0;
    assert_eq!(refused(5, &[]), UNSUPPORTED);
    assert_eq!(refused(99, b"whatever"), UNSUPPORTED);
    assert_eq!(refused(3, b"more"), INVALID);
    assert_eq!(refused(8, b"more"), INVALID);
    assert_eq!(refused(6, &[text("none"), vec![0, 0]].concat()), UNKNOWN);
    assert_eq!(refused(6, &[text("disk"), vec![0, 9, 0]].concat()), INVALID);
    assert_eq!(refused(6, &[0xff; 64]), INVALID);
    assert_eq!(refused(6, &[0, 0, 0, 1, 0xff, 0, 0]), INVALID);
    assert_eq!(refused(10, &[text("disk"), vec![0; 4]].concat()), INVALID);
    assert_eq!(refused(7, &vec![0; 1 << 20]), TOO_BIG);
    assert_eq!(client.go("none"), Err(UNKNOWN));
    // all that did not end the handshake
    client.go("disk").unwrap();
    assert_eq!(client.request((READ, 0), 0, 512).data(0), [0; 512]);
}

#[test]
fn metadata_contexts_are_listed_and_selected() {
    let served = ServedPool::start();
    let mut client = Client::connect(served.address());
    client.use_structured_replies();
    let query = |export: &str, queries: &[&str]| {
        let count = u32::try_from(queries.len()).unwrap().to_be_bytes().to_vec();
        let queries: Vec<u8> = queries.iter().flat_map(|query| text(query)).collect();
        [text(export), count, queries].concat()
    };
    for queries in [&[][..], &["base:"], &["x-other:y", "base:allocation"]] {
        let listed = client.option(9, &query("disk", queries));
        assert_eq!(listed[0], (4, b"\0\0\0\0base:allocation".to_vec()), "{queries:?}");
        assert_eq!(kinds(&listed), [4, 1]);
    }
    for (queries, found) in
        [(&[][..], 0), (&["base:"], 0), (&["x:y"], 0), (&["base:allocation"], 1)]
    {
        assert_eq!(client.option(10, &query("disk", queries)).len(), 1 + found, "{queries:?}");
    }
    // a selection for another export ends the one before
    assert_eq!(kinds(&client.option(10, &query("none", &["base:allocation"]))), [UNKNOWN]);
    client.go("disk").unwrap();
    assert_eq!(client.request((BLOCK_STATUS, 0), 0, 512).error, 22);
}

#[test]
fn old_clients_start_by_name() {
    let served = ServedPool::start();
    for (flags, name, length) in [(3, "disk", 10), (1, "disk", 134), (0, "", 134), (2, "", 10)] {
        let mut client = Client::connect_with_flags(served.address(), flags);
        client.send_option(1, name.as_bytes());
        let answer = client.read(length);
        assert_eq!(answer[..8], SIZE.to_be_bytes());
        assert_eq!(client.request((READ, 0), 0, 512).data(0), [0; 512]);
    }
    let mut client = Client::connect(served.address());
    client.send_option(1, b"none");
    assert!(client.is_closed());
    // a client without fixed newstyle knows no other option
    let mut client = Client::connect_with_flags(served.address(), 0);
    client.send_option(3, &[]);
    assert!(client.is_closed());
    let mut client = Client::connect_with_flags(served.address(), 0x80);
    assert!(client.is_closed());
    let mut client = Client::connect(served.address());
    client.option(2, b"bye");
    assert!(client.is_closed());
}

#[test]
fn slow_handshakes_are_ended() {
    let stall_timeout = std::time::Duration::from_millis(100);
    let options = nbd::ServerOptions { stall_timeout, ..served_pool::options() };
    let served = ServedPool::start_with(&options, LunOptions::default());
    let mut silent = Client::connect(served.address());
    let mut half = Client::connect(served.address());
    half.stream.write_all(b"IHAVE").unwrap();
    assert!(silent.is_closed() && half.is_closed());
}
