//! Streams of big-endian machines: records and tables are swapped, the content of files is not.
//!
//! The streams are OpenZFS's, with every field and every table turned into the other order: a stream of a big-endian machine
//! was not to be had.

use engine::pool::{Pool, SendRequest};
use engine::stream::content_digest;
use ondisk::object_type::Content;
use ondisk::stream::{CHECKSUM_OFFSET, End, Record};
use ondisk::{ObjectType, Order};
use simd::fletcher::Fletcher4;

use crate::streams::{close_and_check, create_pool, receive};
use crate::test_pool::read_file;

fn recorded(fixture: &str, name: &str) -> Vec<u8> {
    std::fs::read(fixtures::load(fixture).dir.join(name)).unwrap()
}

/// A little-endian block of an object as a big-endian machine has it.
fn to_big(kind: ObjectType, bytes: &mut [u8]) {
    let is_table = kind.content() == Content::Zap;
    // the first word of a table tells its kind, and is looked at before it is swapped
    let turn_kind = |bytes: &mut [u8]| {
        if is_table && bytes.len() >= 8 {
            bytes[..8].reverse();
        }
    };
    turn_kind(bytes);
    ondisk::swap::to_little(kind, 0, bytes);
    turn_kind(bytes);
}

/// The stream that a big-endian machine would send of the same snapshot.
fn in_big_endian(stream: &[u8]) -> Vec<u8> {
    let mut reader = send::StreamReader::new(stream);
    let (mut out, mut sum) = (Vec::new(), Fletcher4::new(true));
    while let Some(mut found) = reader.next_record().unwrap() {
        let payload = &mut found.payload;
        match &found.record {
            Record::Object(object) => to_big(object.bonus_kind, payload),
            Record::Write(write) if write.compression == 0 => to_big(write.kind, payload),
            _ => {}
        }
        let is_begin = matches!(found.record, Record::Begin(_));
        if let Record::End(End { to_guid, .. }) = found.record {
            found.record = Record::End(End { checksum: sum.finish(), to_guid });
        }
        let begin_payload = if is_begin { u32::try_from(payload.len()).unwrap() } else { 0 };
        let mut bytes = found.record.encode(Order::Big, begin_payload);
        sum.update(&bytes[..CHECKSUM_OFFSET]);
        if !is_begin {
            for (field, word) in bytes[CHECKSUM_OFFSET..].chunks_exact_mut(8).zip(sum.finish()) {
                field.copy_from_slice(&word.to_be_bytes());
            }
        }
        sum.update(&bytes[CHECKSUM_OFFSET..]);
        sum.update(payload);
        out.extend_from_slice(&bytes);
        out.extend_from_slice(payload);
    }
    out
}

/// The sum of a snapshot's content.
fn sum(pool: &Pool, snapshot: &str) -> [u64; 4] {
    let snapshot = snapshot.to_owned();
    let request = SendRequest { snapshot, large_blocks: true, ..SendRequest::default() };
    let mut stream = Vec::new();
    pool.streams().send(&request, &mut stream).unwrap();
    content_digest(&mut &*stream).unwrap().sum
}

#[test]
fn big_endian_streams_give_the_same_snapshots() {
    let (pool, folder) = create_pool("bigendian");
    for (number, full, next) in [
        (0, "full.zstream", Some("incremental.zstream")),
        (1, "large.zstream", None),
        (2, "compressed.zstream", None),
        (3, "volume.zstream", Some("volume-incremental.zstream")),
    ] {
        let [ours, theirs] = ["little", "big"].map(|order| format!("tank/{order}{number}"));
        for (part, name) in [("one", Some(full)), ("two", next)] {
            let Some(name) = name else { continue };
            let little = recorded("sent", name);
            let big = in_big_endian(&little);
            assert!(big.len() == little.len() && big != little, "{name}");
            receive(&pool, &ours, &little).unwrap();
            receive(&pool, &theirs, &big).unwrap_or_else(|why| panic!("{name}: {why}"));
            let [ours, theirs] = [&ours, &theirs].map(|it| sum(&pool, &format!("{it}@{part}")));
            assert_eq!(ours, theirs, "{name}");
        }
    }
    let numbers: String = (1..=30).map(|number| format!("{number}\n")).collect();
    assert_eq!(read_file(&pool, "tank/big0", "small"), numbers.as_bytes());
    close_and_check(pool, &folder);
}

#[test]
fn damaged_big_endian_stream_leaves_nothing() {
    let (pool, folder) = create_pool("bigdamaged");
    let big = in_big_endian(&recorded("sent", "full.zstream"));
    for at in [400, 5000, 60_000, big.len() - 100] {
        let mut bytes = big.clone();
        bytes[at] ^= 1;
        assert!(receive(&pool, "tank/big", &bytes).is_err(), "{at}");
        assert!(pool.snapshots().list("tank/big").is_err());
    }
    let raw = in_big_endian(&recorded("sent-raw", "raw.zstream"));
    let why = receive(&pool, "tank/raw", &raw).unwrap_err().to_string();
    assert!(why.contains("a raw stream of a big-endian machine is not supported"), "{why}");
    close_and_check(pool, &folder);
}
